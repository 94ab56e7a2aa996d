"""Codes that grow while they are trained, under lengths of infinite support.

A code of any width serves such lengths, since samples beyond its width keep all units. It grows while its last units
gain enough; new units train on the samples that reach them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nestcode.arrays import Doubles, Floats
from nestcode.lengths import Beyond, Geometric, Lengths, LogUniform, Uniform
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.infinite.figures import ERROR_LIMIT, figure_lengths, figure_width
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Growth, Training, errors_by_length, train

LONG = 100_000  # a support that stands for an infinite one
RARE = 0.01  # a unit that is kept with a lower probability hardly counts


@dataclass(frozen=True)
class Grown:
    """Errors of a network that grew until growth stopped, and went through one more stage."""

    errors: Doubles  # (width + 1,): relative to length 0
    extended: Doubles  # the same after one more stage
    unchanged: bool  # whether that stage left all codes and decoded prefixes as they were

    @property
    def width(self) -> int:
        """Return the units reached."""
        return len(self.errors) - 1

    @property
    def missed_gain(self) -> float:
        """Return the mean gain of a unit of the additional stage."""
        return float(self.errors[-1] - self.extended[-1]) / (len(self.extended) - len(self.errors))


@dataclass(frozen=True)
class Setup:
    """Data and training that all networks share."""

    X: Floats  # training items
    test: torch.Tensor
    training: Training  # of one stage
    growth: Growth

    def network(self, width: int, lengths: Lengths) -> OrderedAutoencoder:
        """Return an untrained network; the training holds the seed."""
        torch.manual_seed(self.training.seed)
        return OrderedAutoencoder(self.X.shape[1], width, lengths=lengths, corruption=0, dropout=0, spread="common")

    def errors(self, network: OrderedAutoencoder) -> Doubles:
        """Return test errors of all lengths, relative to length 0."""
        errors = errors_by_length(network, self.test.to(network.mean.device), range(network.width + 1))
        return np.asarray(errors / errors[0])

    def settings(self) -> dict[str, Any]:
        """Return what cached results depend on."""
        return {"training": self.training.but(growth=self.growth).to_json(), "items": self.X.shape}


def run(lab: Lab) -> None:
    """Grow networks under several decays, and train others at once."""
    data, each = setups(lab)
    decays = lab.pick(toy=(0.8, 0.95), quick=(0.8, 0.9, 0.95, 0.98), full=(0.8, 0.9, 0.95, 0.98))
    grown: dict[float, list[Grown]] = {}
    once: dict[float, list[Doubles]] = {}
    for decay in decays:
        pairs = [(setup, grow(lab, setup, decay)) for setup in lab.progress(each, f"growing, decay {decay}")]
        grown[decay] = [one for _, one in pairs]
        once[decay] = [train_at_once(lab, setup, Geometric(decay), one.width)
                       for setup, one in lab.progress(pairs, f"at once, decay {decay}")]  # fmt: skip
    widest = max(one.width for runs in grown.values() for one in runs)
    plain = [train_at_once(lab, setup, LogUniform(), widest) for setup in lab.progress(each, "at once, LogUniform")]
    add_moments(lab, decays)
    add_widths(lab, each[0].growth, grown)
    add_errors(lab, each[0].growth, grown, once, plain)
    errors = {"grown": {decay: [one.errors for one in runs] for decay, runs in grown.items()}, "at once": once,
              "LogUniform at once": dict.fromkeys(decays, plain)}  # fmt: skip
    limits = {decay: units_kept(decay) for decay in decays}
    lab.figure(
        "infinite-width",
        figure_width(errors, limits, f"kept with P ≥ {RARE:.0%}"),
        f"{data}. Left: width reached, one dot per seed, beside the units that are kept with a probability of at least "
        f"{RARE:.0%}. Right: error at full width, with the range over seeds, up to {ERROR_LIMIT} %.",
    )
    lab.figure(
        "infinite-lengths",
        figure_lengths(errors, each[0].growth),
        f"{data}: error by length, one line per seed. Dots mark the ends of growth stages. Networks trained at once "
        "have the same width and as many steps, those with LogUniform the width of the widest.",
    )
    lab.measured |= {name: {str(decay): [one.tolist() for one in runs] for decay, runs in by_decay.items()}
                    for name, by_decay in errors.items()}  # fmt: skip
    lab.departure(
        f"The paper has no experiment on this: we chose networks with one layer of rectified units on {data}, and that "
        f"a unit must gain {each[0].growth.least:.2%} of the variance. Bits grow in the same way."
    )
    lab.departure(
        "Growth stops by the gain of the last units, which depends on the data. A stopping rule by the survival "
        f"P(b ≥ k), such as leaving out units kept with P < {RARE:.0%}, is known before training, but depends on p_B "
        "alone: the table and the left figure show both."
    )
    lab.departure(
        "Existing units are frozen when others are added, so that codes remain valid. The infinite model would "
        "continue to train all of them."
    )


def setups(lab: Lab) -> tuple[str, list[Setup]]:
    """Return a description of the data, and a setup for each seed."""
    images = lab.images(
        train=lab.pick(toy=600, quick=10_000, full=50_000), test=lab.pick(toy=100, quick=1000, full=2000)
    ).downsampled(lab.pick(toy=8, quick=8, full=16))
    least = 1e-3 if lab.data is None else 2e-3  # 1e-3 takes CIFAR-10 to 80 units, too long for this scale
    growth = lab.pick(toy=Growth(4, 4, 24, 1e-2), quick=Growth(8, 8, 96, least), full=Growth(16, 16, 256, 1e-3))
    steps, batch_size = lab.pick(toy=(40, 100), quick=(200, 250), full=(400, 500))
    device = lab.pick(toy="cpu", quick="cpu", full="auto")
    training = Training(steps=steps, batch_size=batch_size, learning_rate=1e-2, compile=False, device=device)
    X, test = as_rows(images.train), torch.from_numpy(as_rows(images.test))
    made = [Setup(X, test, training.but(seed=seed), growth) for seed in lab.seeds]
    return f"{images.name}, {images.side} x {images.side} pixels", made


def grow(lab: Lab, setup: Setup, decay: float) -> Grown:
    """Grow a network until new units gain too little, then one more stage; or read the result from the cache."""
    lengths, step = Geometric(decay), setup.growth.step

    def compute() -> dict[str, Any]:
        network = setup.network(setup.growth.start, lengths)
        train(network, setup.X, setup.training.but(growth=setup.growth), QUIET)
        errors, test = setup.errors(network), setup.test.to(network.mean.device)
        ends = np.cumsum(network.blocks())
        with torch.inference_mode():
            code = network.encode(test)
            before = [network.decode(code[:, :end]) for end in ends]
        network.grow(step)
        network.set_lengths(Beyond(lengths, len(errors) - 1))
        train(network, setup.X, setup.training, QUIET)
        with torch.inference_mode():
            after = network.encode(test)
            unchanged = torch.equal(after[:, : code.shape[1]], code) and all(
                torch.equal(network.decode(after[:, :end]), was) for end, was in zip(ends, before, strict=True)
            )
        return {"errors": errors, "extended": setup.errors(network), "unchanged": np.array(unchanged)}

    stored = lab.cached("infinite-grown", compute, decay=decay, **setup.settings())
    return Grown(stored["errors"], stored["extended"], bool(stored["unchanged"]))


def train_at_once(lab: Lab, setup: Setup, lengths: Lengths, width: int) -> Doubles:
    """Return the errors of a network that has its full width from the start, after as many steps as a grown one."""
    stages = 1 + (width - setup.growth.start) // setup.growth.step
    training = setup.training.but(steps=stages * setup.training.steps)

    def compute() -> dict[str, Any]:
        network = setup.network(width, lengths)
        train(network, setup.X, training, QUIET)
        return {"errors": setup.errors(network)}

    return lab.cached("infinite-once", compute, lengths=lengths, width=width, **setup.settings())["errors"]


def moments(lengths: Lengths, width: int) -> tuple[float, float]:
    """Return mean and variance of the length: E[b²] = Σ_k (2k − 1) P(b ≥ k)."""
    square = (2 * np.arange(1.0, width + 1) - 1) @ lengths.survival(width)
    return lengths.mean(width), float(square - lengths.mean(width) ** 2)


def geometric_moments(decay: float) -> tuple[float, float]:
    """Return mean and variance of geometric lengths of infinite support, in closed form."""
    return 1 / (1 - decay), decay / (1 - decay) ** 2


def units_kept(decay: float) -> int:
    """Return how many units geometric lengths keep with a probability of at least RARE."""
    return 1 + int(np.log(RARE) / np.log(decay))


def add_moments(lab: Lab, decays: tuple[float, ...]) -> None:
    """Report mean and variance of the length, and whether they are finite."""
    supports = LONG // 100, LONG
    known = {f"Geometric({decay})": (Geometric(decay), geometric_moments(decay)) for decay in decays}
    others: dict[str, tuple[Lengths, None]] = {"LogUniform": (LogUniform(), None), "Uniform": (Uniform(), None)}
    found = {name: [moments(lengths, width) for width in supports] for name, (lengths, _) in (known | others).items()}
    off = max(abs(ours / exact - 1) for name, (_, pair) in known.items()
              for ours, exact in zip(found[name][-1], pair, strict=True))  # fmt: skip
    log = [mean for mean, _ in found["LogUniform"]]
    lab.finding(
        "p_B of infinite support can have finite mean and variance",
        ours=f"geometric lengths over {LONG:,} units are within {off:.0e} of 1/(1−ρ) and ρ/(1−ρ)²; the mean of "
        f"LogUniform grows with its support, {log[0]:.0f} over {supports[0]:,} and {log[1]:,.0f} over {supports[1]:,}",
        holds=off < 1e-6 and log[1] > 2 * log[0],
        seeds=(),
    )
    rows = []
    for name, (_, pair) in (known | others).items():
        exact = ["grows", "grows"] if pair is None else list(pair)
        (short, short_variance), (long, long_variance) = found[name]
        rows.append([name, short, long, exact[0], short_variance, long_variance, exact[1]])
    heads = [f"{what}, {which}" for what in ("mean", "variance") for which in (*(f"K = {s:,}" for s in supports), "∞")]
    lab.table(["lengths", *heads], rows, "Moments of the length by the size K of the support.")


def add_widths(lab: Lab, growth: Growth, grown: dict[float, list[Grown]]) -> None:
    """Report where growth stops, and that it leaves old codes valid."""
    runs = [one for own in grown.values() for one in own]
    stopped = [one for one in runs if one.width + growth.step <= growth.most]
    widths = {decay: float(np.mean([one.width for one in own])) for decay, own in grown.items()}
    first, last = min(widths), max(widths)
    lab.finding("growth stops at a finite width by itself",
                ours=f"{len(stopped)} of {len(runs)} networks stop before {growth.most} units, at "
                f"{min(one.width for one in runs)} to {max(one.width for one in runs)}",
                holds=len(stopped) == len(runs))  # fmt: skip
    if stopped:
        missed = float(np.mean([one.missed_gain for one in stopped]))
        lab.finding("one more stage would not have paid",
                    ours=f"its units gain {missed:.2%} each, where {growth.least:.2%} is required",
                    holds=missed <= growth.least)  # fmt: skip
    lengths = geometric_moments(last)[0] / geometric_moments(first)[0]
    lab.finding(
        "the width reached depends on the data more than on the mean of p_B",
        ours=f"from decay {first} to {last} the mean length grows by a factor of {lengths:.1f}, the width by "
        f"{widths[last] / widths[first]:.1f} ({widths[first]:.0f} and {widths[last]:.0f} units)",
        holds=max(widths.values()) / min(widths.values()) < np.sqrt(lengths),
    )
    lab.finding("growth leaves old prefixes unchanged, bit for bit",
                ours=f"codes and decoded prefixes are equal after each stage in {sum(one.unchanged for one in runs)} "
                f"of {len(runs)} networks", holds=all(one.unchanged for one in runs))  # fmt: skip


def add_errors(
    lab: Lab, growth: Growth, grown: dict[float, list[Grown]], once: dict[float, list[Doubles]], plain: list[Doubles]
) -> None:
    """Report the errors of grown networks beside those of others."""
    ends = {decay: (float(np.mean([one.errors[-1] for one in own])), float(np.mean([e[-1] for e in once[decay]])))
            for decay, own in grown.items()}  # fmt: skip
    gains = {decay: tuple(float(np.mean([e[-1 - growth.step] - e[-1] for e in errors])) / growth.step
                          for errors in ([one.errors for one in own], once[decay]))
             for decay, own in grown.items()}  # fmt: skip
    first, last = min(ends), max(ends)
    slow, fast = ([one.errors[-1] for one in grown[decay]] for decay in (last, first))
    lab.finding("the slowest decay ends with a lower error than the fastest, for every seed",
                ours=", ".join(f"{decay}: {ours:.1%}" for decay, (ours, _) in ends.items()) + " of the variance",
                holds=max(slow) < min(fast))  # fmt: skip
    lab.finding(
        "the last units of grown networks are trained; at once, fast decays starve them",
        ours=f"each of the last {growth.step} units gains {gains[first][0]:.2%} grown, {gains[first][1]:.2%} at "
        f"once at decay {first}, and {gains[last][0]:.2%} and {gains[last][1]:.2%} at {last}",
        holds=gains[first][0] > gains[first][1],
    )
    ratios = [ours / theirs for ours, theirs in ends.values()]
    lab.finding("growth costs no accuracy against the same network trained at once",
                ours=f"errors at full width are {min(ratios):.2f} to {max(ratios):.2f} of those at once",
                holds=max(ratios) <= 1)  # fmt: skip
    beside = [
        one.errors[-1] / errors[one.width] for own in grown.values() for one, errors in zip(own, plain, strict=True)
    ]
    lab.finding("growth costs no accuracy against lengths of finite support",
                ours=f"errors are {min(beside):.2f} to {max(beside):.2f} of those of LogUniform at that length",
                holds=max(beside) <= 1)  # fmt: skip
    rows = []
    for decay, own in grown.items():
        widths, missed = [one.width for one in own], float(np.mean([one.missed_gain for one in own]))
        kept = np.mean([Geometric(decay).survival(width)[-1] for width in widths])
        rows.append([decay, geometric_moments(decay)[0], f"{np.mean(widths):.0f} ({min(widths)} to {max(widths)})",
                     units_kept(decay), f"{kept:.2g}", *(f"{error:.2%}" for error in ends[decay]),
                     *(f"{gain:.3%}" for gain in gains[decay]), f"{missed:.3%}"])  # fmt: skip
    heads = ("decay", "mean length", "width reached", f"units kept with P ≥ {RARE:.0%}", "P(last unit kept)",
             "error, grown", "error, at once", "gain of last units, grown", "gain of last units, at once",
             "gain of one more stage")  # fmt: skip
    lab.table(heads, rows, "Errors and gains per unit as shares of the variance.")


EXPERIMENT = Experiment(
    "infinite",
    "section 7",
    "Infinitely many latent dimensions",
    "Ordered representations give insight into how one might practically train models with an infinite number of "
    "latent dimensions: p_B can be chosen to have infinite support, while having finite mean and variance.",
    run,
)
