"""Autoencoders nested by groups, by a tree of subsets and by recursive cardinality, beside the chain of prefixes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import Doubles
from nestcode.data import digits
from nestcode.lengths import Empirical, Lengths, Uniform
from nestcode.nn import Chain, Groups, Nesting, OrderedAutoencoder, Tree
from nestcode.report import BLUE, GRAY, GREEN, VERMILLION
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Training, train

UNITS, GROUPS = 4, 7  # units of a group, tree node or block, and how many of these
WIDTH = UNITS * GROUPS


@dataclass(frozen=True)
class RecursiveCardinality(Nesting):
    """Any blocks of units: a draw picks how many are kept, then how many of them are in the first half, and so on.

    A recursive cardinality model of the mask (Swersky et al., NIPS 2012), uniform at each step.
    """

    lengths: Lengths = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", Empirical([share for _, share in self._draws()]))

    def _draws(self) -> list[tuple[tuple[bool, ...], float]]:
        """Return all masks of blocks, and their relative probabilities."""
        return [draw for count in range(1, GROUPS + 1) for draw in cardinalities(GROUPS, count)]

    def _masks(self, width: int) -> NDArray[np.bool_]:
        return np.array([mask for mask, _ in self._draws()]).repeat(width // GROUPS, axis=1)


def cardinalities(blocks: int, count: int) -> Iterator[tuple[tuple[bool, ...], float]]:
    """Yield each way to keep so many of the blocks, and its probability given that number.

    >>> list(cardinalities(2, 1))
    [((False, True), 0.5), ((True, False), 0.5)]
    """
    if blocks == 1:
        yield (count == 1,), 1.0
        return
    half = blocks // 2
    splits = range(max(0, count - (blocks - half)), min(half, count) + 1)
    for first in splits:
        for left, share in cardinalities(half, first):
            for right, other in cardinalities(blocks - half, count - first):
                yield left + right, share * other / len(splits)


NESTINGS: dict[str, Nesting] = {
    "chain": Chain(Uniform()),
    "groups": Groups([UNITS] * GROUPS, Uniform()),
    "tree": Tree.binary(3, Uniform(), units=UNITS),
    "recursive cardinality": RecursiveCardinality(),
}
STYLES = {
    "chain": (BLUE, "-"),
    "groups": (VERMILLION, "s"),
    "tree": (GREEN, "o"),
    "recursive cardinality": (GRAY, "."),
}


@dataclass(frozen=True)
class Trained:
    """Errors of a trained network by subset of its nesting."""

    errors: Doubles  # (subsets, items): squared errors of test digits
    swaps: Doubles  # (WIDTH − 1,): relative rise of the expected error if two adjacent units swap

    @property
    def means(self) -> Doubles:
        """Return the mean error of each subset."""
        return np.asarray(self.errors.mean(axis=1))


def run(lab: Lab) -> None:
    """Train each nesting, and measure all of its subsets."""
    trained = {name: [measure(lab, name, seed) for seed in lab.progress(lab.seeds, f"training the {name}")]
               for name in NESTINGS}  # fmt: skip
    means = {name: np.mean([one.means for one in runs], axis=0) for name, runs in trained.items()}
    for name, nesting in NESTINGS.items():
        pairs = contained(nesting)
        falls = [bool(means[name][larger] < means[name][smaller]) for smaller, larger in pairs]
        lab.finding(f"{name}: a subset decodes better than the subsets it contains",
                    paper=None if name in ("chain", "groups") else "nesting can be generalized",
                    ours=f"{sum(falls)} of {len(falls)} steps lower the error", holds=all(falls))  # fmt: skip
    add_groups(lab, trained, means)
    add_tree(lab, trained["tree"])
    lab.figure(
        "nesting-subsets",
        figure_subsets(means),
        "Units of each subset (dark), one subset per row, and the error of each subset on test digits. Subsets of the "
        "tree with equally many units are alternatives.",
    )
    lab.figure("nesting-swaps", figure_swaps({name: trained[name] for name in ("chain", "groups")}),
               "Rise of the expected error if two adjacent units swap.")  # fmt: skip
    lab.measured |= {
        "errors": {name: each.tolist() for name, each in means.items()},
        "swaps": {name: [one.swaps.tolist() for one in runs] for name, runs in trained.items()},
    }
    lab.departure(
        "The paper only suggests this: we chose networks of 64-28-64 units on digits. Of recursive cardinality models "
        "it is the distribution of the masks, over all subsets of seven blocks, that is taken; its potentials are not "
        "learned."
    )


def contained(nesting: Nesting) -> list[tuple[int, int]]:
    """Return pairs of subsets, the first contained in the second with none between (the covering relation)."""
    masks = nesting.masks(WIDTH).numpy()
    inside = [[bool(np.all(a <= b)) and a.sum() < b.sum() for b in masks] for a in masks]
    table = np.array(inside)
    between = table.astype(int) @ table.astype(int) > 0
    return [(int(a), int(b)) for a, b in np.argwhere(table & ~between)]


def errors_of(network: OrderedAutoencoder, X: Tensor, masks: Tensor) -> Doubles:
    """Return the squared error of each item with each subset, (subsets, items)."""
    with torch.inference_mode():
        errors = [(network(X, mask.expand(len(X), -1)) - X).square().sum(dim=1) for mask in masks]
    return torch.stack(errors).double().numpy()


def swap_costs(network: OrderedAutoencoder, X: Tensor, nesting: Nesting) -> Doubles:
    """Return the relative rise of the expected error if two adjacent units swap in all subsets, (WIDTH − 1,)."""
    masks, probabilities = nesting.masks(WIDTH), nesting.probabilities(WIDTH).numpy()
    before = probabilities @ errors_of(network, X, masks).mean(axis=1)
    rises = []
    for unit in range(WIDTH - 1):
        order = torch.arange(WIDTH)
        order[[unit, unit + 1]] = order[[unit + 1, unit]]
        rises.append(probabilities @ errors_of(network, X, masks[:, order]).mean(axis=1) / before - 1)
    return np.array(rises)


def measure(lab: Lab, name: str, seed: int) -> Trained:
    """Train a network with this nesting, or read its errors from the cache."""
    training = Training(steps=lab.pick(toy=120, quick=1500, full=20_000), batch_size=200, learning_rate=3e-3, seed=seed,
                        device="cpu")  # fmt: skip

    def compute() -> dict[str, NDArray[Any]]:
        rows = digits()[0]
        rows = rows[np.random.default_rng(0).permutation(len(rows))]
        test = torch.from_numpy(rows[:300])
        torch.manual_seed(seed)
        network = OrderedAutoencoder(64, WIDTH, lengths=NESTINGS[name], corruption=0.0, dropout=0.0, spread="common")
        train(network, rows[300:], training, QUIET)
        network.eval()
        nesting = NESTINGS[name]
        return {"errors": errors_of(network, test, nesting.masks(WIDTH)), "swaps": swap_costs(network, test, nesting)}

    stored = lab.cached(f"nesting-{name}", compute, seed=seed, training=training.to_json())
    return Trained(stored["errors"], stored["swaps"])


def add_groups(lab: Lab, trained: dict[str, list[Trained]], means: dict[str, Doubles]) -> None:
    """Report the order of units within and across groups, and the error of groups."""
    ends = np.arange(UNITS, WIDTH, UNITS) - 1  # adjacent units in different groups
    inside, across = (
        np.array([np.delete(one.swaps, ends) for one in trained["groups"]]),
        np.array([one.swaps[ends] for one in trained["groups"]]),
    )
    chain = np.array([np.delete(one.swaps, ends) for one in trained["chain"]])
    lab.finding(
        "groups: units of one group are exchangeable, units of two groups are not",
        ours=f"swaps change the error by {np.abs(inside).max():.0e} inside a group, by {across.mean():.1%} across "
        f"(the same swaps in the chain: {chain.mean():.1%})",
        holds=np.abs(inside).max() < 1e-5 < min(across.mean(), chain.mean()),
    )
    ratio = means["groups"] / means["chain"][UNITS - 1 :: UNITS]
    lab.finding(
        "groups: fewer lengths do not cost accuracy at those that remain",
        ours=f"error relative to the chain at {UNITS} to {WIDTH} units: {ratio.min():.2f} to {ratio.max():.2f}",
        holds=ratio.mean() < 1.02,
    )


def add_tree(lab: Lab, runs: list[Trained]) -> None:
    """Report the errors of the tree's leaves."""
    leaves = np.array([one.means[3:] for one in runs])  # four subsets of three nodes
    root, apart = float(np.mean([one.means[0] for one in runs])), float(np.ptp(leaves, axis=1).max())
    chosen = float(np.mean([one.errors[3:].min(axis=0).mean() for one in runs]))
    lab.finding(
        "tree: the leaves are alternatives",
        ours=f"error of the four leaves {leaves.mean():.2f}, at most {apart:.2f} apart (root alone {root:.2f}); "
        f"{chosen:.2f} if each digit takes its best leaf",
        holds=apart < 0.2 * (root - leaves.mean()) and chosen < leaves.min(),
    )


def figure_subsets(means: dict[str, Doubles]) -> Figure:
    """Draw the masks of the nestings, and errors by number of units."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels = figure.subplots(1, 5, width_ratios=[1, 1, 1, 1, 1.8])
    for axes, (name, nesting) in zip(panels, NESTINGS.items(), strict=False):
        axes.imshow(
            nesting.masks(WIDTH).numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=1.3, interpolation="nearest"
        )
        axes.set(title=name, xlabel="unit", ylabel="subset", yticks=[])
    last = panels[-1]
    for name, nesting in NESTINGS.items():
        color, style = STYLES[name]
        units = nesting.masks(WIDTH).sum(dim=1).numpy()
        if name == "tree":
            for smaller, larger in contained(nesting):
                last.plot(units[[smaller, larger]], means[name][[smaller, larger]], color=color, linewidth=1)
        last.plot(units, means[name], style, color=color, label=name, markersize=6, markerfacecolor="none")
    last.set(title="error of subsets", xlabel="units of the subset", ylabel="squared error", yscale="log")
    last.yaxis.set_major_formatter("{x:g}")
    last.yaxis.set_minor_formatter("{x:g}")
    last.grid(alpha=0.3, which="both")
    last.legend(frameon=False)
    return figure


def figure_swaps(trained: dict[str, list[Trained]]) -> Figure:
    """Draw the cost of swapping by pair of units."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    pairs = np.arange(1, WIDTH)
    for name, runs in trained.items():
        rises = 100 * np.mean([one.swaps for one in runs], axis=0)
        axes.plot(pairs, rises, "o-" if name == "chain" else "s--", color=STYLES[name][0], label=name, markersize=5)
    for end in range(UNITS, WIDTH, UNITS):
        axes.axvline(end, color=GRAY, linewidth=0.8, zorder=0)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="unit b, swapped with b + 1 (vertical lines: borders of groups)", ylabel="rise of the error (%)")
    axes.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    "nesting",
    "section 7",
    "Groups, trees and recursive cardinality instead of the chain of prefixes",
    "The nesting idea can be generalized to more complicated dependency structures than a chain of prefixes, such as "
    "recursive cardinality models.",
    run,
)
