"""Networks trained with each L1 penalty and each weight of the invariance penalty; `measures.py` measures them."""

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
    lengths = measures.powers_of_two(start.width)
    adaptive = AdaptivePenalty("l1", RATIO)
    penalties = {NONE: None, ADAPTIVE: adaptive} | {name: ConstantPenalty("l1", by) for name, by in CONSTANTS.items()}
    by_penalty = {
        name: [measures.train_and_measure(lab, task, PAPER, seed, penalty=penalty) for seed in lab.seeds]
        for name, penalty in lab.progress(penalties.items(), "penalties", total=len(penalties))
    }
    weights = lab.pick(toy=(0.0, WEIGHT, 0.1), quick=(0.0, 0.001, WEIGHT, 0.1), full=(0.0, 0.001, WEIGHT, 0.1))
    pairs = [(recipe, by) for recipe in (PAPER, OURS) for by in weights]
    invariant = {
        (recipe, by): [
            measures.train_and_measure(lab, task, recipe, seed, penalty=adaptive, invariance=by) for seed in lab.seeds
        ]
        for recipe, by in lab.progress(pairs, "invariance")
    }
    add_gradients(lab, by_penalty[NONE])
    add_penalties(lab, by_penalty)
    by_recipe = {recipe: {by: invariant[recipe, by] for by in weights} for recipe in (PAPER, OURS)}
    for recipe, runs in by_recipe.items():
        add_invariance(lab, recipe, runs)
    add_late_units(lab, by_recipe[PAPER], lengths)
    sizes = "-".join(map(str, (task.X.shape[1], *start.layers, start.width)))
    setting = f"{task.name}, {sizes} units, mean and range over {len(lab.seeds)} seeds. Left: "
    lab.figure(
        "regularization-penalty",
        figure_penalty(by_penalty, lengths),
        f"{setting}gradient of the penalty relative to that of the reconstruction; the single coefficient is right for "
        "the first unit. Middle: weights of trained networks. Right: MSE of test items.",
    )
    lab.figure(
        "regularization-invariance",
        figure_invariance(by_recipe),
        f"{setting}bits flipped by noise. Others: precision, the share of the items found ({FOUND}, or a neighborhood "
        "of at least as many) that are in the nearest hundredth by pixels; much noise is 1 standard deviation.",
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
    lab.departure("Adam replaces nonlinear conjugate gradients, since dozens of networks are trained.")
    lab.departure("The paper gives no values here: we chose the measures, the ratio of the penalty and all weights.")
    if lab.data is None:
        lab.departure("Without --data the items are digits, and the network is smaller.")
    elif lab.scale != "full":
        lab.departure("Images are downsampled to 8 x 8 pixels, and the network is smaller than 3072-2048-1024-512.")


def mean_and_spread(values: Any) -> str:
    """Format mean and standard deviation over seeds.

    >>> mean_and_spread([0.1, 0.2])
    '0.15 ± 0.05'
    """
    return f"{np.mean(values):.3g} ± {np.std(values):.1g}"


def early(runs: list[Measured]) -> Doubles:
    """Return the mean weight of the first units, by seed."""
    return np.array([one.weights[:EARLY].mean() for one in runs])


def late(runs: list[Measured]) -> Doubles:
    """Return the mean weight of the last quarter of the units, by seed."""
    return np.array([one.weights[-len(one.weights) // 4 :].mean() for one in runs])


def last_error(runs: list[Measured]) -> Doubles:
    """Return the MSE at full width, by seed."""
    return np.array([one.errors[-1] for one in runs])


def add_gradients(lab: Lab, runs: list[Measured]) -> None:
    """Report the gradients of a single and of adaptive coefficients, in networks trained without a penalty."""
    constant = np.array([RATIO * one.balance[0] / one.balance for one in runs])  # right for the first unit
    above = [int(np.argmax(each > 1)) + 1 if (each > 1).any() else None for each in constant]
    lab.finding(
        "a single coefficient, right for the first unit, dominates late units",
        paper="would dominate the high-index gradients",
        ours=f"ratio of gradients {RATIO} at unit 1, {mean_and_spread(constant[:, -1])} at unit {constant.shape[1]}, "
        f"above 1 from unit {', '.join(map(str, above))}; adaptive: {RATIO} everywhere",
        holds=constant[:, -len(constant[0]) // 4 :].min() > 1,
    )


def matched(by_penalty: dict[str, list[Measured]]) -> str:
    """Return the constant that shrinks the first units most like the adaptive penalty does."""
    wanted = early(by_penalty[ADAPTIVE]).mean()
    return min(CONSTANTS, key=lambda name: abs(float(np.log(early(by_penalty[name]).mean() / wanted))))


def add_penalties(lab: Lab, by_penalty: dict[str, list[Measured]]) -> None:
    """Report the effect of penalties on weights, MSE and retrieval."""
    constant = matched(by_penalty)
    first, last = ({name: each(by_penalty[name]) / each(by_penalty[NONE]).mean() for name in (ADAPTIVE, constant)}
                   for each in (early, late))  # fmt: skip
    lab.finding(
        "a constant that shrinks the first units like the adaptive penalty wipes out the last ones",
        paper="not appropriate for nested dropout",
        ours=f"weights relative to no penalty: first {EARLY} units {mean_and_spread(first[constant])} ({constant}) and "
        f"{mean_and_spread(first[ADAPTIVE])} (adaptive), last quarter {mean_and_spread(last[constant])} and "
        f"{mean_and_spread(last[ADAPTIVE])}",
        holds=last[constant].mean() < 0.5 * last[ADAPTIVE].mean(),
    )
    error = {name: last_error(by_penalty[name]) for name in (NONE, ADAPTIVE, constant)}
    lab.finding(
        "long codes have a lower MSE with the adaptive penalty than with the constant",
        ours=f"MSE at full width {mean_and_spread(error[ADAPTIVE])}, {mean_and_spread(error[constant])} with the "
        f"constant, {mean_and_spread(error[NONE])} without",
        holds=is_above(error[constant], error[ADAPTIVE]),
    )
    near = {name: precision(by_penalty[name], 0, 1, 0) for name in error}
    lab.finding(
        "retrieval by Hamming distance is more precise with the adaptive penalty than with the constant",
        ours=f"precision@{FOUND} {mean_and_spread(near[ADAPTIVE])}, {mean_and_spread(near[constant])} "
        f"with the constant, {mean_and_spread(near[NONE])} without",
        holds=is_above(near[ADAPTIVE], near[constant]),
    )


def is_above(high: Doubles, low: Doubles) -> bool:
    """Return whether the mean difference over seeds is above twice its standard deviation."""
    difference = high - low
    return bool(difference.mean() > 2 * difference.std())


def add_invariance(lab: Lab, recipe: str, runs: dict[float, list[Measured]]) -> None:
    """Report flipped bits and precision with and without invariance."""
    flips = {by: np.array([one.flips[1] for one in each]) for by, each in runs.items()}
    lab.finding(
        f"{recipe}: with invariance, noise flips fewer bits",
        paper="similar examples map to similar codes" if recipe == PAPER else None,
        ours="; ".join(f"weight {by:g}: {mean_and_spread(100 * each)} %" for by, each in flips.items())
        + f" (noise of {NOISES[1]} standard deviations)",
        holds=bool(np.all(np.diff([each.mean() for each in flips.values()]) < 0)),
    )
    texts, better = [], []
    for method, name in enumerate(METHODS):
        for query in (0, 2):
            on, off = (precision(runs[by], query, method, 0) for by in (WEIGHT, 0.0))
            better.append(is_above(on, off))
            texts.append(f"{QUERIES[query]} queries by {name} {mean_and_spread(on)} ({mean_and_spread(off)} without)")
    lab.finding(
        f"{recipe}: with invariance, retrieval is more precise",
        paper="better retrieval results" if recipe == PAPER else None,
        ours=f"in {sum(better)} of {len(better)} cases, weight {WEIGHT:g}, precision of {'; '.join(texts)}",
        holds=all(better),
    )


def add_late_units(lab: Lab, runs: dict[float, list[Measured]], lengths: list[int]) -> None:
    """Report that the invariance penalty, with a single weight, dominates late units too."""
    most = max(runs)
    off, on = (np.mean([one.errors for one in runs[by]], axis=0) for by in (0.0, most))
    rise = on / off - 1
    middle = len(lengths) // 2
    lab.finding(
        f"{PAPER}: the single weight of invariance dominates late units, like a constant penalty",
        ours=f"weight {most:g} raises the MSE by {rise[middle]:.0%} at {lengths[middle]} bits and by "
        f"{rise[-1]:.0%} at {lengths[-1]}",
        holds=rise[-1] > 2 * max(rise[middle], 0),
    )


def add_table(lab: Lab, what: str, by_name: dict[str, list[Measured]]) -> None:
    """Add a table of all measures, with standard deviations."""
    columns = [f"{truth}, {query}, {method}" for truth in TRUTHS for query in QUERIES[::2] for method in METHODS]
    rows = [
        [name, mean_and_spread(early(runs)), mean_and_spread(late(runs)), mean_and_spread(last_error(runs)),
         *(mean_and_spread(precision(runs, query, method, truth))
           for truth in range(2) for query in (0, 2) for method in range(2))]
        for name, runs in by_name.items()
    ]  # fmt: skip
    lab.table(
        [what, f"weights, first {EARLY}", "weights, last quarter", "MSE", *columns],
        rows,
        caption=f"Precision@{FOUND}: share that is near or of the same class; mean and standard deviation over seeds.",
    )


def as_lists(one: Measured) -> dict[str, Any]:
    """Return the measurements as JSON values."""
    return {name: array.tolist() for name, array in asdict(one).items()}


EXPERIMENT = Experiment(
    "regularization",
    "sections 4.2 and 4.4",
    "Adaptive regularization and code invariance",
    "Gradients of late units are small, so that a single regularization coefficient would dominate them: each unit "
    "gets its own, by a fixed ratio to the gradient of the reconstruction. Retrieval is better with a penalty that "
    "makes codes invariant to noise.",
    run,
)
