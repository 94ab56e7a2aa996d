"""Section 7 of the paper: other nestings than the chain of prefixes, groups of units and a tree of subsets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from nestcode.arrays import Doubles
from nestcode.data import digits
from nestcode.lengths import Uniform
from nestcode.nn import Chain, Groups, Nesting, OrderedAutoencoder, Tree
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Training, train

UNITS, GROUPS = 4, 7  # a group, or a node of the tree
WIDTH = UNITS * GROUPS
NESTINGS: dict[str, Nesting] = {
    "chain": Chain(Uniform()),
    "groups": Groups([UNITS] * GROUPS, Uniform()),
    "tree": Tree.binary(3, Uniform(), units=UNITS),
}
LOOKS = {"chain": ("#0072B2", "-"), "groups": ("#D55E00", "s"), "tree": ("#009E73", "o")}


@dataclass(frozen=True)
class Learnt:
    """What a trained network does with the subsets of its nesting."""

    errors: Doubles  # (subsets, items): squared errors of test digits
    swaps: Doubles  # (WIDTH − 1,): how much the expected error rises, as a share, if two neighbouring units swap

    @property
    def means(self) -> Doubles:
        """The error of each subset."""
        return np.asarray(self.errors.mean(axis=1))


def contained(nesting: Nesting) -> list[tuple[int, int]]:
    """Pairs of subsets, the first in the second with none between."""
    masks = nesting.masks(WIDTH).numpy()
    inside = [[bool(np.all(a <= b)) and a.sum() < b.sum() for b in masks] for a in masks]
    table = np.array(inside)
    between = table.astype(int) @ table.astype(int) > 0
    return [(int(a), int(b)) for a, b in np.argwhere(table & ~between)]


def errors_of(network: OrderedAutoencoder, X: Tensor, masks: Tensor) -> Doubles:
    """The squared error of each item with each subset, (subsets, items)."""
    with torch.inference_mode():
        found = [(network(X, mask.expand(len(X), -1)) - X).square().sum(dim=1) for mask in masks]
    return torch.stack(found).double().numpy()


def swapped(network: OrderedAutoencoder, X: Tensor, nesting: Nesting) -> Doubles:
    """What it costs if neighbouring units take each other's place in all subsets."""
    masks, chances = nesting.masks(WIDTH), nesting.probabilities(WIDTH).numpy()
    before = chances @ errors_of(network, X, masks).mean(axis=1)
    rises = []
    for unit in range(WIDTH - 1):
        order = torch.arange(WIDTH)
        order[[unit, unit + 1]] = order[[unit + 1, unit]]
        rises.append(chances @ errors_of(network, X, masks[:, order]).mean(axis=1) / before - 1)
    return np.array(rises)


def learn(lab: Lab, name: str, seed: int) -> Learnt:
    """A network trained with that nesting, or what was kept of it."""
    training = Training(steps=lab.pick(toy=200, quick=1500, full=20_000), batch_size=200, learning_rate=3e-3, seed=seed,
                        device="cpu")  # fmt: skip

    def make() -> dict[str, NDArray[Any]]:
        rows = digits()[0]
        rows = rows[np.random.default_rng(0).permutation(len(rows))]
        test = torch.from_numpy(rows[:300])
        torch.manual_seed(seed)
        network = OrderedAutoencoder(64, WIDTH, lengths=NESTINGS[name], corruption=0.0, dropout=0.0, spread="common")
        train(network, rows[300:], training, QUIET)
        network.eval()
        nesting = NESTINGS[name]
        return {"errors": errors_of(network, test, nesting.masks(WIDTH)), "swaps": swapped(network, test, nesting)}

    kept = lab.cached(f"nesting-{name}", make, seed=seed, training=training.to_json())
    return Learnt(kept["errors"], kept["swaps"])


def run(lab: Lab) -> None:
    """Train each nesting, and look at all of its subsets."""
    learnt = {name: [learn(lab, name, seed) for seed in lab.progress(lab.seeds, f"training the {name}")]
              for name in NESTINGS}  # fmt: skip
    means = {name: np.mean([one.means for one in runs], axis=0) for name, runs in learnt.items()}
    for name, nesting in NESTINGS.items():
        pairs = contained(nesting)
        falls = [bool(means[name][larger] < means[name][smaller]) for smaller, larger in pairs]
        lab.finding(f"{name}: a subset decodes better than those within it", paper="the order of nesting",
                    ours=f"{sum(falls)} of {len(falls)} steps lower the error", holds=all(falls))  # fmt: skip
    say_groups(lab, learnt, means)
    say_tree(lab, learnt["tree"])
    lab.figure(
        "nesting-subsets",
        figure_subsets(means),
        "Which units are kept together (dark), a subset in each row, and the error of each subset on digits that were "
        "not trained on. Subsets of the tree that keep as many units are alternatives.",
    )
    lab.figure("nesting-swaps", figure_swaps({name: learnt[name] for name in ("chain", "groups")}),
               "How much the expected error rises if two neighbouring units change places.")  # fmt: skip
    lab.measured |= {"errors": {name: each.tolist() for name, each in means.items()},
                    "swaps": {name: [one.swaps.tolist() for one in runs] for name, runs in learnt.items()}}  # fmt: skip
    lab.departure("The paper only says that this could be done: networks of 64-28-64 units on digits are chosen here.")


def say_groups(lab: Lab, learnt: dict[str, list[Learnt]], means: dict[str, Doubles]) -> None:
    """Order within groups, and what giving it up is worth."""
    ends = np.arange(UNITS, WIDTH, UNITS) - 1  # pairs of units that lie in two groups
    inside, across = (
        np.array([np.delete(one.swaps, ends) for one in learnt["groups"]]),
        np.array([one.swaps[ends] for one in learnt["groups"]]),
    )
    chain = np.array([np.delete(one.swaps, ends) for one in learnt["chain"]])
    lab.finding(
        "groups: units of one group are exchangeable, those of two are not",
        paper="follows from section 2.1",
        ours=f"swaps change the error by {np.abs(inside).max():.0e} inside a group, by {across.mean():.1%} across "
        f"(chain, same units as inside: {chain.mean():.1%})",
        holds=np.abs(inside).max() < 1e-5 < min(across.mean(), chain.mean()),
    )
    ratio = means["groups"] / means["chain"][UNITS - 1 :: UNITS]
    lab.finding(
        "groups: with fewer lengths to serve, those that are served lose nothing",
        paper="not measured",
        ours=f"error beside the chain's at {UNITS} to {WIDTH} units: {ratio.min():.2f} to {ratio.max():.2f}",
        holds=ratio.mean() < 1.02,
    )


def say_tree(lab: Lab, runs: list[Learnt]) -> None:
    """Leaves are alternatives."""
    leaves = np.array([one.means[3:] for one in runs])  # four subsets of three nodes
    root, apart = float(np.mean([one.means[0] for one in runs])), float(np.ptp(leaves, axis=1).max())
    chosen = float(np.mean([one.errors[3:].min(axis=0).mean() for one in runs]))
    lab.finding(
        "tree: the leaves are alternatives",
        paper="a dependency structure",
        ours=f"errors of the four {leaves.mean():.2f}, at most {apart:.2f} apart (the root alone {root:.2f}); "
        f"{chosen:.2f} if each digit takes its best",
        holds=apart < 0.2 * (root - leaves.mean()) and chosen < leaves.min(),
    )


def figure_subsets(means: dict[str, Doubles]) -> Figure:
    """Masks of the nestings, then errors by units kept."""
    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    panels = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.8])
    for axes, (name, nesting) in zip(panels, NESTINGS.items(), strict=False):
        axes.imshow(
            nesting.masks(WIDTH).numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=1.3, interpolation="nearest"
        )
        axes.set(title=name, xlabel="unit", ylabel="subset", yticks=[])
    last = panels[-1]
    for name, nesting in NESTINGS.items():
        color, style = LOOKS[name]
        kept = nesting.masks(WIDTH).sum(dim=1).numpy()
        if name == "tree":
            for smaller, larger in contained(nesting):
                last.plot(kept[[smaller, larger]], means[name][[smaller, larger]], color=color, linewidth=1)
        last.plot(kept, means[name], style, color=color, label=name, markersize=6, markerfacecolor="none")
    last.set(title="error of subsets", xlabel="units kept", ylabel="squared error", yscale="log")
    last.grid(alpha=0.3, which="both")
    last.legend(frameon=False)
    return figure


def figure_swaps(learnt: dict[str, list[Learnt]]) -> Figure:
    """The price of swapping, pair by pair."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    pairs = np.arange(1, WIDTH)
    for name, runs in learnt.items():
        rises = 100 * np.mean([one.swaps for one in runs], axis=0)
        axes.plot(pairs, rises, "o-" if name == "chain" else "s--", color=LOOKS[name][0], label=name, markersize=5)
    for end in range(UNITS, WIDTH, UNITS):
        axes.axvline(end, color="#999999", linewidth=0.8, zorder=0)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(xlabel="unit b that changes places with b + 1 (lines: between two groups)", ylabel="rise of the error (%)")
    axes.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    "nesting",
    "section 7",
    "Groups and trees instead of the chain",
    "The nesting idea can be generalized to more complicated dependency structures than a chain of prefixes.",
    run,
)
