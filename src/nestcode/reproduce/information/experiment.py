"""Marginal gains of units under several distributions of the length.

With C_b the squared error of b units and S_b = P(length ≥ b), the expected error is C_0 − Σ_b S_b Δ_b, where
Δ_b = C_b−1 − C_b is the gain of unit b.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.data import digits
from nestcode.lengths import Empirical, Geometric, Lengths, LogUniform, Uniform
from nestcode.nn import Binarize, OrderedAutoencoder, SemiLinearAutoencoder, expected_loss
from nestcode.reproduce.information.figures import HOLE, NO_SUPPORT, STYLES, figure_gains, figure_swaps
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Training
from nestcode.training import train as fit

Encoder = Literal["linear", "sigmoid"]

ENCODERS: tuple[Encoder, ...] = ("linear", "sigmoid")
BITS = 8  # of codes that are enumerated
FULL_SUPPORT = ("Geometric(0.5)", "Uniform", "LogUniform")


@dataclass(frozen=True)
class Trained:
    """A trained autoencoder as arrays."""

    code: Doubles  # (n, width)
    decoder: Doubles  # (features, width)
    bias: Doubles  # (features,)

    def loss(self, X: Doubles, lengths: Lengths, order: NDArray[np.int64] | None = None) -> float:
        """Return the exact expected loss, with the units in another order if one is given."""
        units = np.arange(self.code.shape[1]) if order is None else order
        parts = (self.code[:, units], self.decoder[:, units], X, self.bias)
        code, decoder, target, bias = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        return float(expected_loss(code, decoder, target, lengths, bias))

    def errors(self, X: Doubles) -> Doubles:
        """Return C_b for b = 0, …, width, by plain truncation."""
        lengths = range(self.code.shape[1] + 1)
        residuals = (X - self.bias - self.code[:, :b] @ self.decoder[:, :b].T for b in lengths)
        return np.array([np.mean(np.sum(residual**2, axis=1)) for residual in residuals])


def run(lab: Lab) -> None:
    """Train a linear and a sigmoid encoder for each distribution of the length."""
    X = digits()[0].astype(np.float64)
    X -= X.mean(axis=0)
    width = lab.pick(toy=5, quick=6, full=8)
    lengths = distributions(width)
    names = list(lengths)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    directions = vectors[:, ::-1][:, :width]
    best = values.sum() - np.append(0, values[::-1][:width].cumsum())  # C_b of PCA, the optimum of b units
    linear, sigmoid = (
        {name: [train(lab, X, encoder, name, seed, width) for seed in lab.seeds]
         for name in lab.progress(names, f"training {encoder} encoders")}
        for encoder in ENCODERS
    )  # fmt: skip
    linear_errors, sigmoid_errors = (
        {name: np.array([one.errors(X) for one in runs]) for name, runs in models.items()}
        for models in (linear, sigmoid)
    )
    gains = {name: -np.diff(each) for name, each in linear_errors.items()}
    excess = {name: each[:, 1:] / best[1:] - 1 for name, each in sigmoid_errors.items()}
    add_weights(lab, X, linear | {f"{name}, sigmoid": runs for name, runs in sigmoid.items()}, lengths)
    add_gains(lab, gains, excess, -np.diff(best))
    add_holes(lab, X, linear, lengths, directions)
    add_bound(lab, X.astype(np.float32))
    lab.figure(
        "information-gains",
        figure_gains(lengths, gains, excess, -np.diff(best)),
        "Left: weight of each unit. Middle: gains of the units of a linear encoder on digits. With full support they "
        f"are the eigenvalues, whatever the weights; without support at {HOLE}, units {HOLE} and {HOLE + 1} mix "
        "theirs. Right: a sigmoid encoder cannot be optimal at all lengths, and the weights decide where it is good; "
        "bands are the range over seeds.",
    )
    costs = {name: np.array([swap_costs(one, X, lengths[name]) for one in linear[name]]) for name in names}
    lab.figure(
        "information-swaps",
        figure_swaps(costs),
        "Relative rise of the loss if two adjacent units of the trained linear encoder swap.",
    )
    kinds = {"gains": gains, "excess": excess, "swaps": costs}
    lab.measured |= {kind: {name: each.tolist() for name, each in by.items()} for kind, by in kinds.items()}
    lab.departure(
        "The paper has no experiment here; these are semi-linear autoencoders on digits, where all is exact. Below "
        "equation 5 the paper prints the weight as F(K) − F(b), where b − 1 is right, and that missing support at b "
        "frees the order of b and b − 1: it frees b and b + 1."
    )


def distributions(width: int) -> dict[str, Lengths]:
    """Return distributions of the length: with full support, with a hole, and with all mass on K."""
    hole = Empirical([float(length != HOLE) for length in range(1, width + 1)])
    lengths = [Geometric(0.5), Uniform(), LogUniform(), hole, Empirical([1], lengths=[width])]
    return dict(zip(STYLES, lengths, strict=True))


def train(lab: Lab, X: Doubles, encoder: Encoder, name: str, seed: int, width: int) -> Trained:
    """Return an autoencoder trained on the exact loss under this distribution, or read it from the cache."""
    steps = lab.pick(toy=50, quick=200, full=2000) * (2 if encoder == "linear" else 1)

    def compute() -> dict[str, Doubles]:
        model = SemiLinearAutoencoder(width, encoder=encoder, lengths=distributions(width)[name])
        model.fit(X, by="exact", steps=steps, seed=seed)
        return {"code": model.encode(X).numpy(), "decoder": model.decoder_weight.numpy(),
                "bias": (model.decoder_bias + model.mean).numpy()}  # fmt: skip

    stored = lab.cached("information", compute, encoder=encoder, lengths=name, seed=seed, width=width, steps=steps)
    return Trained(stored["code"], stored["decoder"], stored["bias"])


def telescoped(errors: Doubles, lengths: Lengths) -> float:
    """Return C_0 − Σ_b S_b Δ_b: equation 5 of the paper, starting from the empty code."""
    return float(errors[0] - lengths.survival(len(errors) - 1) @ -np.diff(errors))


def swap_costs(trained: Trained, X: Doubles, lengths: Lengths) -> Doubles:
    """Return the relative rise of the loss if units b and b + 1 swap, for b = 1, …, width − 1."""
    before, width = trained.loss(X, lengths), trained.code.shape[1]
    orders = [np.arange(width) for _ in range(width - 1)]
    for b, order in enumerate(orders):
        order[[b, b + 1]] = order[[b + 1, b]]
    return np.array([trained.loss(X, lengths, order) / before - 1 for order in orders])


def cosines(trained: Trained, directions: Doubles) -> Doubles:
    """Return |cos| of each unit with the eigenvector of the same index."""
    norms = np.linalg.norm(trained.decoder, axis=0)
    return np.asarray(np.abs(np.sum(trained.decoder * directions[:, : len(norms)], axis=0)) / norms)


def rising_weights(trials: int, width: int = 32) -> int:
    """Return how many random distributions have a weight that rises from one unit to the next."""
    rng = np.random.default_rng(0)
    drawn = (rng.random(width) * (rng.random(width) < rng.random()) + 1e-9 * np.eye(width)[-1] for _ in range(trials))
    return sum(bool(np.any(np.diff(Empirical(weights.tolist()).survival(width)) > 0)) for weights in drawn)


def add_weights(lab: Lab, X: Doubles, models: dict[str, list[Trained]], lengths: dict[str, Lengths]) -> None:
    """Report equation 5 itself."""
    off = 0.0
    for name, runs in models.items():
        own = lengths[name.removesuffix(", sigmoid")]
        off = max(off, *(abs(telescoped(one.errors(X), own) / one.loss(X, own) - 1) for one in runs))
    lab.finding("the loss is a sum of marginal gains, weighted by P(length ≥ b)", paper="equation 5",
                ours=f"equal up to {off:.0e}", holds=off < 1e-9)  # fmt: skip
    rising = rising_weights(1000)
    lab.finding("weights never rise with b, whatever the distribution",
                ours=f"{rising} of 1,000 random distributions rise", holds=rising == 0, seeds=())  # fmt: skip


def add_gains(lab: Lab, gains: dict[str, Doubles], excess: dict[str, Doubles], values: Doubles) -> None:
    """Report the effect of the distribution on the gains."""
    off = max(float(np.abs(gains[name] / values - 1).max()) for name in FULL_SUPPORT)
    lab.finding("full support orders the units: gains fall strictly", paper="sufficient, also for PCA",
                ours=f"linear encoder: gains are the eigenvalues up to {off:.0e}", holds=off < 0.02)  # fmt: skip
    early, late = excess["Geometric(0.5)"].mean(axis=0), excess["all on K"].mean(axis=0)
    lab.finding(
        "the distribution decides how information is allocated (sigmoid encoder)",
        paper="dictates the allocation per unit",
        ours=f"error above that of PCA, Geometric(0.5) and all on K: {early[0]:.1%} and {late[0]:.0%} at one unit, "
        f"{early[-1]:.1%} and {late[-1]:.1%} at full width",
        holds=early[0] < late[0] and early[-1] > late[-1],
    )


def add_bound(lab: Lab, X: Floats) -> None:
    """Report equation 4: the loss as a bound of the mutual information, of codes short enough to enumerate."""
    steps = lab.pick(toy=100, quick=1000, full=5000)
    stored = {
        seed: lab.cached("information-enumerated", partial(enumerate_codes, X, steps, seed), seed=seed, steps=steps)
        for seed in lab.seeds
    }
    true, bound, start = (np.array([one[name] for one in stored.values()]) for name in ("true", "bound", "start"))
    lab.finding(
        "the negative loss is a lower bound of the mutual information, which training raises",
        paper="a lower bound, maximized",
        where="equation 4",
        ours="nats of bits 1, 4 and 8: "
        + ", ".join(f"{low:.2f} of {high:.2f}" for low, high in zip(bound.mean(axis=0)[[0, 3, 7]],
                                                                    true.mean(axis=0)[[0, 3, 7]], strict=True))
        + f"; {start.mean(axis=0)[-1]:.2f} before training",
        holds=bool(np.all(bound <= true) and np.all(bound[:, -1] > start[:, -1])),
    )  # fmt: skip


def enumerate_codes(X: Floats, steps: int, seed: int) -> dict[str, Doubles]:
    """Return the mutual information of items and prefixes, and its bound by the loss, for eight bits: (bits,) each.

    The code is a function of the item, so that the mutual information is the entropy of the code. The bound is that of
    Barber and Agakov, log N + E log q(item | code), with q a Gaussian around what the code decodes to, normalized over
    the N items: its logarithm is the squared error up to constants.
    """
    torch.manual_seed(seed)
    network = OrderedAutoencoder(
        X.shape[1], BITS, lengths=Uniform(), binarize=Binarize(BITS, signed=True), corruption=0.0, spread="common"
    )
    training = Training(steps=1, batch_size=200, learning_rate=1e-12, seed=seed, device="cpu", holdout=0.0)
    fit(network, X, training, QUIET)  # thresholds
    start = bounds(network, X)[1]
    fit(network, X, training.but(steps=steps, learning_rate=1e-2), QUIET)
    true, bound = bounds(network, X)
    return {"true": true, "bound": bound, "start": start}


def bounds(network: OrderedAutoencoder, X: Floats) -> tuple[Doubles, Doubles]:
    """Return the entropy of each prefix in nats, and the bound by the loss."""
    items, entropies, found = torch.from_numpy(X), [], []
    with torch.inference_mode():
        code = network.encode(items)
        for length in range(1, BITS + 1):
            cells, inverse, counts = code[:, :length].unique(dim=0, return_inverse=True, return_counts=True)
            shares = counts.double() / len(items)
            entropies.append(float(-(shares * shares.log()).sum()))
            distances = torch.cdist(network.decode(cells).double(), items.double()).square()  # (cells, items)
            own = distances[inverse, torch.arange(len(items))]
            log_q = [  # for any variance a bound, of which the best is taken
                float((-own / scale - torch.logsumexp(-distances / scale, dim=1)[inverse]).mean())
                for scale in own.mean() * torch.logspace(-6, 2, 33, base=2, dtype=torch.float64)
            ]
            found.append(float(np.log(len(items)) + max(log_q)))
    return np.array(entropies), np.array(found)


def add_holes(
    lab: Lab, X: Doubles, models: dict[str, list[Trained]], lengths: dict[str, Lengths], directions: Doubles
) -> None:
    """Report the order of units where the distribution has no support."""
    costs = np.array([swap_costs(one, X, lengths[NO_SUPPORT]) for one in models[NO_SUPPORT]])
    free, others = np.abs(costs[:, HOLE - 1]).max(), np.delete(costs, HOLE - 1, axis=1).min()
    lab.finding(
        f"no support at b = {HOLE}: units b and b + 1 are exchangeable",
        paper="the order of b and b − 1 no longer matters (a misprint)",
        ours=f"the loss changes by {free:.0e} if {HOLE} and {HOLE + 1} swap, by {others:.0e} and more for other pairs",
        holds=free < 1e-9 < others,
    )
    near = np.array([cosines(one, directions) for one in models[NO_SUPPORT]])
    apart = np.delete(near, [HOLE - 1, HOLE], axis=1)
    lab.finding(
        "no support at b: only units b and b + 1 are mixtures of eigenvectors",
        ours=f"smallest |cos| {near[:, HOLE - 1 : HOLE + 1].min():.2f}, of other units {apart.min():.4f}",
        holds=near[:, HOLE - 1 : HOLE + 1].min() < 0.99 < apart.min(),
    )
    standard, ordered = models["all on K"], models["Uniform"]
    whole = lengths["all on K"]
    order = np.random.default_rng(0).permutation(standard[0].code.shape[1])
    change = max(abs(one.loss(X, whole, order) / one.loss(X, whole) - 1) for one in standard)
    worse = max(one.loss(X, whole) / two.loss(X, whole) - 1 for one, two in zip(ordered, standard, strict=True))
    near = np.array([cosines(one, directions) for one in standard])
    lab.finding(
        "all mass on K is the standard autoencoder, without order",
        paper="the order-free formulation",
        ours=f"every order has the same loss (to {change:.0e}), smallest |cos| with eigenvectors {near.min():.2f}; the "
        f"ordered autoencoder loses {max(worse, 0):.1e} at full width",
        holds=change < 1e-9 and near.min() < 0.9 and worse < 1e-2,
    )


EXPERIMENT = Experiment(
    "information",
    "section 2.1",
    "Information allocation by the distribution of the length",
    "The objective is a telescoping sum of marginal gains Δ_b, weighted by coefficients that are positive and never "
    "rise, which orders the units. Where a length has no support, the order of two units no longer matters; all mass "
    "on K is the order-free autoencoder. The choice of p_B dictates how much information each unit gets.",
    run,
)
