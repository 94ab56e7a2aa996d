"""Section 2.1 of the paper: the objective is a sum of marginal gains, each weighed by how often its unit is kept.

With C_b the squared error of b units and S_b = P(length ≥ b), the expected error is C_0 − Σ_b S_b Δ_b, where Δ_b is
what unit b takes off, C_b−1 − C_b.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nestcode.arrays import Doubles
from nestcode.data import digits
from nestcode.lengths import Empirical, Geometric, Lengths, LogUniform, Uniform
from nestcode.nn import SemiLinearAutoencoder, expected_loss
from nestcode.reproduce.lab import Experiment, Lab

Encoder = Literal["linear", "sigmoid"]

HOLE = 3  # the length without support
ENCODERS: tuple[Encoder, ...] = ("linear", "sigmoid")
FULL = ("Geometric(0.5)", "Uniform", "LogUniform")
LOOKS = {
    "Geometric(0.5)": ("#0072B2", "o-"),
    "Uniform": ("#009E73", "s-"),
    "LogUniform": ("#CC79A7", "^-"),
    f"Uniform without {HOLE}": ("#D55E00", "D--"),
    "all on K": ("#000000", "x:"),
}


def choices(width: int) -> dict[str, Lengths]:
    """Distributions of the kept length: with support everywhere, with a hole, and without any order."""
    hole = Empirical([float(length != HOLE) for length in range(1, width + 1)])
    found = [Geometric(0.5), Uniform(), LogUniform(), hole, Empirical([1], lengths=[width])]
    return dict(zip(LOOKS, found, strict=True))


@dataclass(frozen=True)
class Learnt:
    """A trained autoencoder, as numbers."""

    code: Doubles  # (n, width)
    decoder: Doubles  # (features, width)
    bias: Doubles  # (features,)

    def loss(self, X: Doubles, lengths: Lengths, order: NDArray[np.int64] | None = None) -> float:
        """The exact expected loss, with the units in another order."""
        units = np.arange(self.code.shape[1]) if order is None else order
        parts = (self.code[:, units], self.decoder[:, units], X, self.bias)
        code, decoder, target, bias = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        return float(expected_loss(code, decoder, target, lengths, bias))

    def errors(self, X: Doubles) -> Doubles:
        """C_b for b = 0, …, width, by plain truncation."""
        lengths = range(self.code.shape[1] + 1)
        left = (X - self.bias - self.code[:, :b] @ self.decoder[:, :b].T for b in lengths)
        return np.array([np.mean(np.sum(rest**2, axis=1)) for rest in left])


def learn(lab: Lab, X: Doubles, encoder: Encoder, name: str, seed: int, width: int) -> Learnt:
    """An autoencoder trained on the exact loss of these lengths."""
    steps = lab.pick(toy=100, quick=200, full=2000) * (2 if encoder == "linear" else 1)

    def make() -> dict[str, Doubles]:
        model = SemiLinearAutoencoder(width, encoder=encoder, lengths=choices(width)[name])
        model.fit(X, by="exact", steps=steps, seed=seed)
        return {"code": model.encode(X).numpy(), "decoder": model.decoder_weight.numpy(),
                "bias": (model.decoder_bias + model.mean).numpy()}  # fmt: skip

    kept = lab.cached("information", make, encoder=encoder, lengths=name, seed=seed, width=width, steps=steps)
    return Learnt(kept["code"], kept["decoder"], kept["bias"])


def telescoped(errors: Doubles, lengths: Lengths) -> float:
    """C_0 − Σ_b S_b Δ_b: equation 5 of the paper, with the empty code in front."""
    return float(errors[0] - lengths.survival(len(errors) - 1) @ -np.diff(errors))


def swaps(learnt: Learnt, X: Doubles, lengths: Lengths) -> Doubles:
    """How much the loss rises, as a share, if units b and b + 1 change places, for b = 1, …, width − 1."""
    before, width = learnt.loss(X, lengths), learnt.code.shape[1]
    orders = [np.arange(width) for _ in range(width - 1)]
    for b, order in enumerate(orders):
        order[[b, b + 1]] = order[[b + 1, b]]
    return np.array([learnt.loss(X, lengths, order) / before - 1 for order in orders])


def cosines(learnt: Learnt, directions: Doubles) -> Doubles:
    """|cos| of each unit with the eigenvector of its number."""
    norms = np.linalg.norm(learnt.decoder, axis=0)
    return np.asarray(np.abs(np.sum(learnt.decoder * directions[:, : len(norms)], axis=0)) / norms)


def rising_weights(trials: int, width: int = 32) -> int:
    """How many random distributions have a weight that rises from one unit to the next."""
    rng = np.random.default_rng(0)
    drawn = (rng.random(width) * (rng.random(width) < rng.random()) + 1e-9 * np.eye(width)[-1] for _ in range(trials))
    return sum(bool(np.any(np.diff(Empirical(weights.tolist()).survival(width)) > 0)) for weights in drawn)


def run(lab: Lab) -> None:
    """Train a linear and a sigmoid encoder for each choice of lengths."""
    X = digits()[0].astype(np.float64)
    X -= X.mean(axis=0)
    width = lab.pick(toy=5, quick=6, full=8)
    lengths = choices(width)
    names = list(lengths)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    directions = vectors[:, ::-1][:, :width]
    best = values.sum() - np.append(0, values[::-1][:width].cumsum())  # C_b of PCA, which no b units can beat
    linear, bent = (
        {name: [learn(lab, X, encoder, name, seed, width) for seed in lab.seeds]
         for name in lab.progress(names, f"training {encoder} encoders")}
        for encoder in ENCODERS
    )  # fmt: skip
    errors, excess = (
        {name: np.array([one.errors(X) for one in runs]) for name, runs in models.items()} for models in (linear, bent)
    )
    gains = {name: -np.diff(each) for name, each in errors.items()}
    excess = {name: each[:, 1:] / best[1:] - 1 for name, each in excess.items()}
    say_weights(lab, X, linear | {f"{name}, sigmoid": runs for name, runs in bent.items()}, lengths)
    say_gains(lab, gains, excess, -np.diff(best))
    say_holes(lab, X, linear, lengths, directions)
    lab.figure(
        "information-gains",
        figure_gains(lengths, gains, excess, -np.diff(best)),
        "Left: the weight of each unit. Middle: what units of a linear encoder gain on digits. With support everywhere "
        f"it is the eigenvalue, whatever the weights; without support at {HOLE}, units {HOLE} and {HOLE + 1} share "
        "theirs. Right: a sigmoid encoder cannot be best at all lengths, and the weights decide where it is good; the "
        "range is that of seeds.",
    )
    moved = {name: np.array([swaps(one, X, lengths[name]) for one in linear[name]]) for name in names}
    lab.figure(
        "information-swaps",
        figure_swaps(moved),
        "How much the loss rises if neighbouring units of the trained linear encoder change places.",
    )
    kinds = {"gains": gains, "excess": excess, "swaps": moved}
    lab.measured |= {kind: {name: each.tolist() for name, each in by.items()} for kind, by in kinds.items()}
    lab.departure(
        "The paper gives no experiment here; these are semi-linear autoencoders on digits, where all is exact. Below "
        "equation 5 it prints the weight as F(K) − F(b), where b − 1 is right, and that no support at b frees b and "
        "b − 1: it is b and b + 1 that it frees."
    )


def say_weights(lab: Lab, X: Doubles, models: dict[str, list[Learnt]], lengths: dict[str, Lengths]) -> None:
    """Equation 5 itself."""
    off = 0.0
    for name, runs in models.items():
        own = lengths[name.removesuffix(", sigmoid")]
        off = max(off, *(abs(telescoped(one.errors(X), own) / one.loss(X, own) - 1) for one in runs))
    lab.finding("the loss is a sum of marginal gains, weighed by P(length ≥ b)", paper="equation 5",
                ours=f"equal up to {off:.0e}", holds=off < 1e-9)  # fmt: skip
    rising = rising_weights(1000)
    lab.finding("weights never rise with b, whatever the distribution", paper="regardless of the choice",
                ours=f"{rising} of 1,000 random ones rise", holds=rising == 0)  # fmt: skip


def say_gains(lab: Lab, gains: dict[str, Doubles], excess: dict[str, Doubles], values: Doubles) -> None:
    """What the choice of lengths does to the gains."""
    off = max(float(np.abs(gains[name] / values - 1).max()) for name in FULL)
    lab.finding("support everywhere orders the units: gains fall strictly", paper="sufficient, and enough for PCA",
                ours=f"linear encoder: gains are the eigenvalues up to {off:.0e}", holds=off < 0.02)  # fmt: skip
    early, late = excess["Geometric(0.5)"].mean(axis=0), excess["all on K"].mean(axis=0)
    lab.finding(
        "the distribution decides where information goes (sigmoid encoder)",
        paper="dictates the allocation per unit",
        ours=f"error above that of PCA, Geometric(0.5) and all on K: {early[0]:.1%} and {late[0]:.0%} at one unit, "
        f"{early[-1]:.1%} and {late[-1]:.1%} at all",
        holds=early[0] < late[0] and early[-1] > late[-1],
    )


def say_holes(
    lab: Lab, X: Doubles, models: dict[str, list[Learnt]], lengths: dict[str, Lengths], directions: Doubles
) -> None:
    """What becomes of the order where lengths have no support."""
    name = f"Uniform without {HOLE}"
    moved = np.array([swaps(one, X, lengths[name]) for one in models[name]])
    free, others = np.abs(moved[:, HOLE - 1]).max(), np.delete(moved, HOLE - 1, axis=1).min()
    lab.finding(
        f"no support at b = {HOLE}: units b and b + 1 are exchangeable",
        paper="b and b − 1 (a misprint)",
        ours=f"loss changes by {free:.0e} where {HOLE} and {HOLE + 1} swap, by {others:.0e} and more for other pairs",
        holds=free < 1e-9 < others,
    )
    near = np.array([cosines(one, directions) for one in models[name]])
    apart = np.delete(near, [HOLE - 1, HOLE], axis=1)
    lab.finding(
        "without support at b, only units b and b + 1 are mixtures of their eigenvectors",
        paper="order no longer matters",
        ours=f"smallest |cos| {near[:, HOLE - 1 : HOLE + 1].min():.2f}, of other units {apart.min():.4f}",
        holds=near[:, HOLE - 1 : HOLE + 1].min() < 0.99 < apart.min(),
    )
    own, ordered = models["all on K"], models["Uniform"]
    whole = lengths["all on K"]
    order = np.random.default_rng(0).permutation(own[0].code.shape[1])
    change = max(abs(one.loss(X, whole, order) / one.loss(X, whole) - 1) for one in own)
    worse = max(one.loss(X, whole) / two.loss(X, whole) - 1 for one, two in zip(ordered, own, strict=True))
    near = np.array([cosines(one, directions) for one in own])
    lab.finding(
        "all mass on K is the ordinary autoencoder, without order",
        paper="the order-free formulation",
        ours=f"any order has the same loss (to {change:.0e}), smallest |cos| with eigenvectors {near.min():.2f}; the "
        f"ordered one loses {max(worse, 0):.1e} at full width",
        holds=change < 1e-9 and near.min() < 0.9 and worse < 1e-2,
    )


def figure_gains(
    lengths: dict[str, Lengths], gains: dict[str, Doubles], excess: dict[str, Doubles], values: Doubles
) -> Figure:
    """Weights, gains, and what becomes of errors where not all can be best."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    units = np.arange(1, len(values) + 1)
    for name, choice in lengths.items():
        left.plot(units, choice.survival(len(units)), LOOKS[name][1], color=LOOKS[name][0], label=name)
        middle.plot(units, gains[name][0], LOOKS[name][1], color=LOOKS[name][0], markersize=5)
        _band(right, units, np.maximum(excess[name], 1e-4), name)
    middle.plot(units, values, color="#999999", linewidth=6, alpha=0.5, zorder=0, label="eigenvalues")
    left.set(title="weight of unit b", ylabel="P(length ≥ b)")
    middle.set(title="gain of unit b, linear encoder", ylabel="Δ_b: fall of the squared error")
    right.set(title="error of b units, sigmoid encoder", ylabel="above that of PCA, as a share", yscale="log")
    for axes in (left, middle, right):
        axes.set(xlabel="unit b", xticks=units[:: max(1, len(units) // 8)])
        axes.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=8)
    middle.legend(frameon=False, fontsize=9)
    return figure


def _band(axes: Axes, units: NDArray[np.int64], each: Doubles, name: str) -> None:
    color, style = LOOKS[name]
    axes.plot(units, each.mean(axis=0), style, color=color, markersize=5)
    axes.fill_between(units, each.min(axis=0), each.max(axis=0), color=color, alpha=0.15, linewidth=0)


def figure_swaps(moved: dict[str, Doubles]) -> Figure:
    """What swapping costs, pair by pair."""
    figure = Figure(figsize=(7.5, 3.9), layout="constrained")
    axes = figure.subplots()
    for name, each in moved.items():
        pairs = np.arange(1, each.shape[1] + 1)
        axes.plot(pairs, np.maximum(each.mean(axis=0), 1e-16), LOOKS[name][1], color=LOOKS[name][0], label=name)
    axes.set_yscale("log")
    axes.set_xticks(pairs, [f"{b}, {b + 1}" for b in pairs])
    axes.set(xlabel="units that change places", ylabel="rise of the loss, as a share", ylim=(1e-17, 10))
    axes.axhspan(1e-17, 1e-12, color="#999999", alpha=0.2)
    axes.text(pairs[-1], 3e-17, "rounding: exchangeable", ha="right", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    return figure


EXPERIMENT = Experiment(
    "information",
    "section 2.1",
    "Where information goes",
    "The objective is a telescopic sum of marginal gains Δ_b, weighed by coefficients that are positive and never "
    "rise, which is what orders the units. Where a length has no support, the order of two units no longer matters; "
    "all mass on K is the order-free autoencoder. The choice of p_B dictates how much information each unit gets.",
    run,
)
