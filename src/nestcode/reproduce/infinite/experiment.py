"""Section 7 of the paper: infinitely many latent dimensions, as a code that widens while it is trained.

Lengths of infinite support have no width of their own. A code of any width serves them, since draws beyond it keep
everything; it is widened while its last units gain enough, and only draws that reach the new units train these.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nestcode.arrays import Doubles, Floats
from nestcode.lengths import Beyond, Geometric, Lengths, LogUniform, Uniform
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.infinite.figures import MOST, figure_lengths, figure_width
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Growth, Training, errors_by_length, train

LONG = 100_000  # a support that stands for an infinite one
SELDOM = 0.01  # a unit that is kept less often hardly counts


@dataclass(frozen=True)
class Grown:
    """A network that grew, and went through one stage more than it wanted."""

    errors: Doubles  # (width + 1,): as shares of the error of length 0
    more: Doubles  # the same after the stage more
    same: bool  # whether that stage left all codes, and what their prefixes decode to, as they were

    @property
    def width(self) -> int:
        """Units reached."""
        return len(self.errors) - 1

    @property
    def missed(self) -> float:
        """What a unit of the stage more gained, on average."""
        return float(self.errors[-1] - self.more[-1]) / (len(self.more) - len(self.errors))


@dataclass(frozen=True)
class Setup:
    """Data and training that all networks share."""

    X: Floats  # to train with
    test: torch.Tensor
    training: Training  # a stage of it
    growth: Growth

    def network(self, width: int, lengths: Lengths) -> OrderedAutoencoder:
        """An untrained network; the seed is that of the training."""
        torch.manual_seed(self.training.seed)
        return OrderedAutoencoder(self.X.shape[1], width, lengths=lengths, corruption=0, dropout=0, spread="common")

    def errors(self, network: OrderedAutoencoder) -> Doubles:
        """Errors of all lengths on test data, as shares of the error of length 0."""
        found = errors_by_length(network, self.test.to(network.mean.device), range(network.width + 1))
        return np.asarray(found / found[0])

    def about(self) -> dict[str, Any]:
        """What tells kept results apart."""
        return {"training": self.training.but(growth=self.growth).to_json(), "items": self.X.shape}


def moments(lengths: Lengths, width: int) -> tuple[float, float]:
    """The mean and variance of the kept length: E[b²] = Σ_k (2k − 1) P(b ≥ k)."""
    square = (2 * np.arange(1.0, width + 1) - 1) @ lengths.survival(width)
    return lengths.mean(width), float(square - lengths.mean(width) ** 2)


def closed(decay: float) -> tuple[float, float]:
    """The mean and variance of geometric lengths of infinite support."""
    return 1 / (1 - decay), decay / (1 - decay) ** 2


def enough(decay: float) -> int:
    """How many units geometric lengths keep at least once in a hundred draws."""
    return 1 + int(np.log(SELDOM) / np.log(decay))


def grow(lab: Lab, setup: Setup, decay: float) -> Grown:
    """A network that grew until that no longer paid, or what was kept of it."""
    lengths, step = Geometric(decay), setup.growth.step

    def make() -> dict[str, Any]:
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
            same = torch.equal(after[:, : code.shape[1]], code) and all(
                torch.equal(network.decode(after[:, :end]), was) for end, was in zip(ends, before, strict=True)
            )
        return {"errors": errors, "more": setup.errors(network), "same": np.array(same)}

    kept = lab.cached("infinite-grown", make, decay=decay, **setup.about())
    return Grown(kept["errors"], kept["more"], bool(kept["same"]))


def learn(lab: Lab, setup: Setup, lengths: Lengths, width: int) -> Doubles:
    """The errors of a network that had its whole width from the start, and as many steps as one that grew to it."""
    stages = 1 + (width - setup.growth.start) // setup.growth.step
    training = setup.training.but(steps=stages * setup.training.steps)

    def make() -> dict[str, Any]:
        network = setup.network(width, lengths)
        train(network, setup.X, training, QUIET)
        return {"errors": setup.errors(network)}

    return lab.cached("infinite-once", make, lengths=lengths, width=width, **setup.about())["errors"]


def setups(lab: Lab) -> tuple[str, list[Setup]]:
    """What is learnt, in words, and a setup for each seed."""
    images = lab.images(
        train=lab.pick(toy=600, quick=10_000, full=50_000), test=lab.pick(toy=100, quick=1000, full=2000)
    ).downsampled(lab.pick(toy=8, quick=8, full=16))
    least = 1e-3 if lab.data is None else 2e-3  # 1e-3 takes CIFAR-10 to 80 units, too long for this scale
    growth = lab.pick(toy=Growth(4, 4, 24, 1e-2), quick=Growth(8, 8, 96, least), full=Growth(16, 16, 256, 1e-3))
    steps, batch_size = lab.pick(toy=(60, 100), quick=(200, 250), full=(400, 500))
    device = lab.pick(toy="cpu", quick="cpu", full="auto")
    training = Training(steps=steps, batch_size=batch_size, learning_rate=1e-2, compile=False, device=device)
    X, test = as_rows(images.train), torch.from_numpy(as_rows(images.test))
    made = [Setup(X, test, training.but(seed=seed), growth) for seed in lab.seeds]
    return f"{images.name}, {images.side} x {images.side} pixels", made


def run(lab: Lab) -> None:
    """Grow networks for several decays, and train others at once."""
    data, each = setups(lab)
    decays = lab.pick(toy=(0.8, 0.95), quick=(0.8, 0.9, 0.95, 0.98), full=(0.8, 0.9, 0.95, 0.98))
    grown: dict[float, list[Grown]] = {}
    once: dict[float, list[Doubles]] = {}
    for decay in decays:
        pairs = [(setup, grow(lab, setup, decay)) for setup in lab.progress(each, f"growing, decay {decay}")]
        grown[decay] = [one for _, one in pairs]
        once[decay] = [learn(lab, setup, Geometric(decay), one.width)
                       for setup, one in lab.progress(pairs, f"at once, decay {decay}")]  # fmt: skip
    widest = max(one.width for runs in grown.values() for one in runs)
    plain = [learn(lab, setup, LogUniform(), widest) for setup in lab.progress(each, "at once, LogUniform")]
    say_lengths(lab, decays)
    say_widths(lab, each[0].growth, grown)
    say_errors(lab, each[0].growth, grown, once, plain)
    errors = {"grown": {decay: [one.errors for one in runs] for decay, runs in grown.items()}, "at once": once,
              "LogUniform at once": dict.fromkeys(decays, plain)}  # fmt: skip
    limits = {decay: enough(decay) for decay in decays}
    lab.figure(
        "infinite-width",
        figure_width(errors, limits, f"kept in {SELDOM:.0%} of draws"),
        f"{data}. Left: units reached, a dot for each seed, beside the number of units that these lengths keep at "
        f"least in {SELDOM:.0%} of all draws. Right: the error with all units, and the range "
        f"over seeds; above {MOST} % it is not drawn.",
    )
    lab.figure(
        "infinite-lengths",
        figure_lengths(errors, each[0].growth),
        f"{data}: errors of prefixes, a line for each seed. Dots end the stages of networks that grew. Networks that "
        "were trained at once have the same width and as many steps, those with LogUniform the widest of them.",
    )
    lab.measured |= {name: {str(decay): [one.tolist() for one in runs] for decay, runs in by_decay.items()}
                    for name, by_decay in errors.items()}  # fmt: skip
    lab.departure(f"The paper has no experiment on this: networks with one layer of rectified units on {data} are "
                  f"chosen here, and that a unit must gain {each[0].growth.least:.2%} of the variance. Bits grow "
                  "in the same way.")  # fmt: skip
    lab.departure(
        "Growing stops by what the last units gained, which asks the data. The survival P(b ≥ k) could decide "
        f"instead: units kept in less than {SELDOM:.0%} of all draws are left out. That is known before training, but "
        "it asks p_B alone: the table and the left figure show both."
    )
    lab.departure("Units that are there stay as they are when others are added, so that codes remain valid. The "
                  "infinite model would go on training all of them.")  # fmt: skip


def say_lengths(lab: Lab, decays: tuple[float, ...]) -> None:
    """Finite mean and variance, or not."""
    supports = LONG // 100, LONG
    known = {f"Geometric({decay})": (Geometric(decay), closed(decay)) for decay in decays}
    others: dict[str, tuple[Lengths, None]] = {"LogUniform": (LogUniform(), None), "Uniform": (Uniform(), None)}
    found = {name: [moments(lengths, width) for width in supports] for name, (lengths, _) in (known | others).items()}
    off = max(abs(ours / exact - 1) for name, (_, pair) in known.items()
              for ours, exact in zip(found[name][-1], pair, strict=True))  # fmt: skip
    log = [mean for mean, _ in found["LogUniform"]]
    lab.finding(
        "p_B of infinite support can have finite mean and variance",
        paper="it can be chosen so",
        ours=f"geometric lengths: those of {LONG:,} units are within {off:.0e} of 1/(1−ρ) and ρ/(1−ρ)²; the mean of "
        f"LogUniform grows with its support, {log[0]:.0f} of {supports[0]:,} and {log[1]:,.0f} of {supports[1]:,}",
        holds=off < 1e-6 and log[1] > 2 * log[0],
    )
    rows = []
    for name, (_, pair) in (known | others).items():
        exact = ["grows", "grows"] if pair is None else list(pair)
        (short, short_variance), (long, long_variance) = found[name]
        rows.append([name, short, long, exact[0], short_variance, long_variance, exact[1]])
    heads = [f"{what} of {which}" for what in ("mean", "variance") for which in (*(f"{s:,}" for s in supports), "all")]
    lab.table(["lengths", *heads], rows, "Moments of the kept length, of supports of that many lengths.")


def say_widths(lab: Lab, growth: Growth, grown: dict[float, list[Grown]]) -> None:
    """Where growing ends, and what it leaves as it was."""
    runs = [one for own in grown.values() for one in own]
    stopped = [one for one in runs if one.width + growth.step <= growth.most]
    widths = {decay: float(np.mean([one.width for one in own])) for decay, own in grown.items()}
    first, last = min(widths), max(widths)
    lab.finding("training ends at a finite width by itself", paper="practical training of infinite models",
                ours=f"{len(stopped)} of {len(runs)} networks stop before {growth.most} units, at "
                f"{min(one.width for one in runs)} to {max(one.width for one in runs)}",
                holds=len(stopped) == len(runs))  # fmt: skip
    if stopped:
        missed = float(np.mean([one.missed for one in stopped]))
        lab.finding("a stage more would not have paid", paper="not measured",
                    ours=f"its units take {missed:.2%} off each, {growth.least:.2%} being asked for",
                    holds=missed <= growth.least)  # fmt: skip
    lab.finding(
        "the width reached follows the data more than the mean of p_B",
        paper="not measured",
        ours=f"from decay {first} to {last} the mean length is {closed(last)[0] / closed(first)[0]:.1f} times as long, "
        f"the code {widths[last] / widths[first]:.1f} times as wide ({widths[first]:.0f} and {widths[last]:.0f} units)",
        holds=max(widths.values()) / min(widths.values()) < np.sqrt(closed(last)[0] / closed(first)[0]),
    )
    lab.finding("growing leaves old prefixes as they were, bit for bit", paper="follows from the nesting",
                ours=f"codes, and what they decode to after each stage: the same in {sum(one.same for one in runs)} "
                f"of {len(runs)} networks", holds=all(one.same for one in runs))  # fmt: skip


def say_errors(
    lab: Lab, growth: Growth, grown: dict[float, list[Grown]], once: dict[float, list[Doubles]], plain: list[Doubles]
) -> None:
    """Errors of networks that grew beside those of others."""
    ends = {decay: (float(np.mean([one.errors[-1] for one in own])), float(np.mean([e[-1] for e in once[decay]])))
            for decay, own in grown.items()}  # fmt: skip
    gains = {decay: tuple(float(np.mean([e[-1 - growth.step] - e[-1] for e in errors])) / growth.step
                          for errors in ([one.errors for one in own], once[decay]))
             for decay, own in grown.items()}  # fmt: skip
    first, last = min(ends), max(ends)
    slow, fast = ([one.errors[-1] for one in grown[decay]] for decay in (last, first))
    lab.finding("the slowest decay ends with lower errors than the fastest, whatever the seed", paper="not measured",
                ours=", ".join(f"{decay}: {ours:.1%}" for decay, (ours, _) in ends.items()) + " of the variance",
                holds=max(slow) < min(fast))  # fmt: skip
    lab.finding(
        "grown, the last units learn; at once, fast decays starve them",
        paper="gradients of late units vanish (section 4.1)",
        ours=f"each of the last {growth.step} units takes off {gains[first][0]:.2%} grown, {gains[first][1]:.2%} at "
        f"once at decay {first}, and {gains[last][0]:.2%} and {gains[last][1]:.2%} at {last}",
        holds=gains[first][0] > gains[first][1],
    )
    ratios = [ours / theirs for ours, theirs in ends.values()]
    lab.finding("growing costs nothing against the same network trained at once", paper="not measured",
                ours=f"errors with all units are {min(ratios):.2f} to {max(ratios):.2f} of those at once",
                holds=max(ratios) <= 1)  # fmt: skip
    beside = [
        one.errors[-1] / errors[one.width] for own in grown.values() for one, errors in zip(own, plain, strict=True)
    ]
    lab.finding("growing costs nothing against lengths of finite support", paper="not measured",
                ours=f"they are {min(beside):.2f} to {max(beside):.2f} of those of LogUniform at that length",
                holds=max(beside) <= 1)  # fmt: skip
    rows = []
    for decay, own in grown.items():
        widths, missed = [one.width for one in own], float(np.mean([one.missed for one in own]))
        kept = np.mean([Geometric(decay).survival(width)[-1] for width in widths])
        rows.append([decay, closed(decay)[0], f"{np.mean(widths):.0f} ({min(widths)} to {max(widths)})", enough(decay),
                     f"{kept:.2g}", *(f"{error:.2%}" for error in ends[decay]),
                     *(f"{gain:.3%}" for gain in gains[decay]), f"{missed:.3%}"])  # fmt: skip
    heads = ("decay", "mean length", "width reached", f"kept in {SELDOM:.0%} of draws", "P(last unit kept)",
             "error grown", "error at once", "last units grown", "last units at once", "a stage more")  # fmt: skip
    lab.table(heads, rows, "Errors as shares of the variance; what a unit takes off, at the end and in a stage more.")


EXPERIMENT = Experiment(
    "infinite",
    "section 7",
    "Infinitely many latent dimensions",
    "Ordered representations give insight into how one might practically train models with an infinite number of "
    "latent dimensions: p_B can be chosen to have infinite support, while having finite mean and variance.",
    run,
)
