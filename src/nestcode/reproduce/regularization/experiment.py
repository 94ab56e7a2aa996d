"""Sections 4.2 and 4.4 of the paper: a penalty that keeps its share at every unit, and codes that noise leaves alone.

Networks are trained with each penalty and with each weight of invariance, see `regularization_measures.py`.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from nestcode.arrays import Doubles
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.regularization import measures
from nestcode.reproduce.regularization.figures import figure_invariance, figure_penalty
from nestcode.reproduce.regularization.measures import (
    FOUND,
    METHODS,
    NOISES,
    OURS,
    PAPER,
    QUERIES,
    RATIO,
    TRUTHS,
    Measured,
    precision,
)
from nestcode.training import AdaptivePenalty, ConstantPenalty

NONE, ADAPTIVE = "none", f"adaptive, ratio {RATIO}"
CONSTANTS = {f"constant, {value:.0e}": value for value in (1e-5, 1e-4, 1e-3)}
WEIGHT = 0.01  # of invariance, as in the preset "paper-retrieval"
EARLY = 8  # units


def run(lab: Lab) -> None:
    """Train with each penalty, then with each weight of invariance."""
    task, start = measures.make_task(lab), measures.preset(lab, PAPER)
    lengths = measures.lengths_of(start.width)
    adaptive = AdaptivePenalty("l1", RATIO)
    penalties = {NONE: None, ADAPTIVE: adaptive} | {name: ConstantPenalty("l1", by) for name, by in CONSTANTS.items()}
    by_penalty = {
        name: [measures.learn(lab, task, PAPER, seed, penalty=penalty) for seed in lab.seeds]
        for name, penalty in lab.progress(penalties.items(), "penalties", total=len(penalties))
    }
    weights = lab.pick(toy=(0.0, WEIGHT, 0.1), quick=(0.0, 0.001, WEIGHT, 0.1), full=(0.0, 0.001, WEIGHT, 0.1))
    pairs = [(recipe, by) for recipe in (PAPER, OURS) for by in weights]
    invariant = {
        (recipe, by): [measures.learn(lab, task, recipe, seed, penalty=adaptive, invariance=by) for seed in lab.seeds]
        for recipe, by in lab.progress(pairs, "invariance")
    }
    say_gradients(lab, by_penalty[NONE])
    say_penalties(lab, by_penalty)
    by_recipe = {recipe: {by: invariant[recipe, by] for by in weights} for recipe in (PAPER, OURS)}
    for recipe, runs in by_recipe.items():
        say_invariance(lab, recipe, runs)
    say_where_it_acts(lab, by_recipe[PAPER], lengths)
    sizes = "-".join(map(str, (task.X.shape[1], *start.layers, start.width)))
    about = f"{task.name}, {sizes} units, mean of {len(lab.seeds)} seeds with their range. Left: "
    lab.figure(
        "regularization-penalty",
        figure_penalty(by_penalty, lengths),
        f"{about}how hard a penalty pulls at a unit, beside the reconstruction; one coefficient for all is right for "
        "the first unit. Middle: weights of trained networks. Right: errors of items that were not trained on.",
    )
    lab.figure(
        "regularization-invariance",
        figure_invariance(by_recipe),
        f"{about}bits that change when each pixel gets noise. Others: the share of the items found, {FOUND} or a "
        "neighborhood of at least as many, that are in the nearest hundredth by pixels; much noise is 1 deviation.",
    )
    add_table(lab, "penalty", by_penalty)
    for recipe, runs in by_recipe.items():
        add_table(lab, f"invariance, {recipe}", {f"{by:g}": each for by, each in runs.items()})
    lab.measured |= {
        "lengths": lengths,
        "penalties": {name: [as_lists(one) for one in runs] for name, runs in by_penalty.items()},
        "invariance": {recipe: {f"{by:g}": [as_lists(one) for one in each] for by, each in runs.items()}
                       for recipe, runs in by_recipe.items()},
    }  # fmt: skip
    lab.departure("Adam and not conjugate gradients, as dozens of networks are trained.")
    lab.departure("The paper gives no numbers here: measures, the penalty's ratio and all weights are chosen here.")
    if lab.data is None:
        lab.departure("Without --data the items are digits, and the network is smaller.")
    elif lab.scale != "full":
        lab.departure("Images are averaged to 8 x 8 pixels and the network is smaller than 3072-2048-1024-512.")


def mean_and_spread(values: Any) -> str:
    """Over seeds.

    >>> mean_and_spread([0.1, 0.2])
    '0.15 ± 0.05'
    """
    return f"{np.mean(values):.3g} ± {np.std(values):.1g}"


def early(runs: list[Measured]) -> Doubles:
    """Mean weights of the first units, by seed."""
    return np.array([one.weights[:EARLY].mean() for one in runs])


def late(runs: list[Measured]) -> Doubles:
    """Mean weights of the last quarter of the units, by seed."""
    return np.array([one.weights[-len(one.weights) // 4 :].mean() for one in runs])


def last_error(runs: list[Measured]) -> Doubles:
    """Errors at full length, by seed."""
    return np.array([one.errors[-1] for one in runs])


def say_gradients(lab: Lab, runs: list[Measured]) -> None:
    """One coefficient for all, and one for each unit, in networks trained without a penalty."""
    constant = np.array([RATIO * one.balance[0] / one.balance for one in runs])  # right for the first unit
    above = [int(np.argmax(each > 1)) + 1 if (each > 1).any() else None for each in constant]
    lab.finding(
        "one coefficient, right for the first unit, dominates late units",
        paper="would dominate the high-index gradients",
        ours=f"regularization over reconstruction {RATIO} at unit 1, {mean_and_spread(constant[:, -1])} at unit "
        f"{constant.shape[1]}, over 1 first at unit {', '.join(map(str, above))}; adaptive: {RATIO} everywhere",
        holds=constant[:, -len(constant[0]) // 4 :].min() > 1,
    )


def matched(by_penalty: dict[str, list[Measured]]) -> str:
    """The constant whose first units are as small as those of the adaptive penalty."""
    wanted = early(by_penalty[ADAPTIVE]).mean()
    return min(CONSTANTS, key=lambda name: abs(float(np.log(early(by_penalty[name]).mean() / wanted))))


def say_penalties(lab: Lab, by_penalty: dict[str, list[Measured]]) -> None:
    """What penalties do to weights, errors and retrieval."""
    constant = matched(by_penalty)
    first, last = ({name: each(by_penalty[name]) / each(by_penalty[NONE]).mean() for name in (ADAPTIVE, constant)}
                   for each in (early, late))  # fmt: skip
    lab.finding(
        "a constant that shrinks the first units as the adaptive penalty does wipes out the last",
        paper="not appropriate for nested dropout",
        ours=f"weights beside none: first {EARLY} units {mean_and_spread(first[constant])} ({constant}) and "
        f"{mean_and_spread(first[ADAPTIVE])} (adaptive), last quarter {mean_and_spread(last[constant])} and "
        f"{mean_and_spread(last[ADAPTIVE])}",
        holds=last[constant].mean() < 0.5 * last[ADAPTIVE].mean(),
    )
    error = {name: last_error(by_penalty[name]) for name in (NONE, ADAPTIVE, constant)}
    lab.finding(
        "long codes are better with the adaptive penalty",
        paper="not measured",
        ours=f"error at full length {mean_and_spread(error[ADAPTIVE])}, {mean_and_spread(error[constant])} with the "
        f"constant, {mean_and_spread(error[NONE])} without",
        holds=is_above(error[constant], error[ADAPTIVE]),
    )
    near = {name: precision(by_penalty[name], 0, 1, 0) for name in error}
    lab.finding(
        "retrieval by Hamming distance is better with the adaptive penalty",
        paper="not measured",
        ours=f"near items among {FOUND} found {mean_and_spread(near[ADAPTIVE])}, {mean_and_spread(near[constant])} "
        f"with the constant, {mean_and_spread(near[NONE])} without",
        holds=is_above(near[ADAPTIVE], near[constant]),
    )


def is_above(high: Doubles, low: Doubles) -> bool:
    """Whether one is above the other by more than twice as much as that varies with the seed."""
    difference = high - low
    return bool(difference.mean() > 2 * difference.std())


def say_invariance(lab: Lab, recipe: str, runs: dict[float, list[Measured]]) -> None:
    """Bits that flip, and what is found, with and without."""
    flips = {by: np.array([one.flips[1] for one in each]) for by, each in runs.items()}
    lab.finding(
        f"{recipe}: with invariance, noise flips fewer bits",
        paper="similar examples map to similar codes",
        ours="; ".join(f"weight {by:g}: {mean_and_spread(100 * each)} %" for by, each in flips.items())
        + f" (noise of {NOISES[1]} deviations)",
        holds=bool(np.all(np.diff([each.mean() for each in flips.values()]) < 0)),
    )
    told, better = [], []
    for method, name in enumerate(METHODS):
        for query in (0, 2):
            on, off = (precision(runs[by], query, method, 0) for by in (WEIGHT, 0.0))
            better.append(is_above(on, off))
            told.append(f"{QUERIES[query]} queries by {name} {mean_and_spread(on)} ({mean_and_spread(off)} without)")
    lab.finding(
        f"{recipe}: with invariance, more near items are found",
        paper="better retrieval results",
        ours=f"in {sum(better)} of {len(better)} cases, weight {WEIGHT:g}: {'; '.join(told)}",
        holds=all(better),
    )


def say_where_it_acts(lab: Lab, runs: dict[float, list[Measured]], lengths: list[int]) -> None:
    """Invariance has one weight for all units, too."""
    most = max(runs)
    off, on = (np.mean([one.errors for one in runs[by]], axis=0) for by in (0.0, most))
    rise = on / off - 1
    middle = len(lengths) // 2
    lab.finding(
        f"{PAPER}: the weight of invariance is one for all units, and drowns late ones as a constant penalty does",
        paper="not measured",
        ours=f"weight {most:g} raises the error by {rise[middle]:.0%} at {lengths[middle]} bits and by "
        f"{rise[-1]:.0%} at {lengths[-1]}",
        holds=rise[-1] > 2 * max(rise[middle], 0),
    )


def add_table(lab: Lab, what: str, by_name: dict[str, list[Measured]]) -> None:
    """All measures, with spreads."""
    columns = [f"{truth}, {query}, {method}" for truth in TRUTHS for query in QUERIES[::2] for method in METHODS]
    rows = [
        [name, mean_and_spread(early(runs)), mean_and_spread(late(runs)), mean_and_spread(last_error(runs)),
         *(mean_and_spread(precision(runs, query, method, truth))
           for truth in range(2) for query in (0, 2) for method in range(2))]
        for name, runs in by_name.items()
    ]  # fmt: skip
    lab.table([what, f"weights, first {EARLY}", "weights, last quarter", "error", *columns], rows,
              f"Share of {FOUND} found that is near or of the same class; mean and deviation over seeds.")  # fmt: skip


def as_lists(one: Measured) -> dict[str, Any]:
    """For a JSON file."""
    return {name: array.tolist() for name, array in asdict(one).items()}


EXPERIMENT = Experiment(
    "regularization",
    "sections 4.2 and 4.4",
    "Adaptive penalties and invariant codes",
    "Gradients of late units are small, so that one regularization coefficient for all would dominate them: each unit "
    "gets its own, by a fixed ratio to the gradient of the reconstruction. Retrieval is better when codes are asked to "
    "change little with noise.",
    run,
)
