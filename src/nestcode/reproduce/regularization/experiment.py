"""Networks trained with each L1 penalty, and the table of `design.py`; `measures.py` measures them."""

from dataclasses import asdict
from typing import Any

import numpy as np

from nestcode.arrays import Doubles
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.regularization import measures
from nestcode.reproduce.regularization.design import (
    CELLS,
    FLIPPED,
    NO_PENALTY,
    NO_SWEEPING,
    NOISE,
    PAPER,
    PRIMARY,
    RATIO,
    SEEDS,
    SIZES,
    WEIGHTS,
    Cell,
    Effect,
)
from nestcode.reproduce.regularization.figures import figure_penalty, figure_table
from nestcode.reproduce.regularization.measures import NEAREST, Measured
from nestcode.training import AdaptivePenalty, ConstantPenalty

Table = dict[Cell, list[Measured]]  # by combination, one per seed

NONE, ADAPTIVE = "none", f"adaptive, ratio {RATIO}"
CONSTANTS = {f"constant, {value:.0e}": value for value in (1e-5, 1e-4, 1e-3)}
EARLY = 8  # units


def run(lab: Lab) -> None:
    """Train with each penalty, then all combinations of the table."""
    task, start = measures.make_task(lab), measures.preset(lab)
    lengths = measures.powers_of_two(start.width)
    by_penalty = {
        name: [measures.train_and_measure(lab, task, seed, penalty=penalty) for seed in lab.seeds]
        for name, penalty in lab.progress(penalties().items(), "penalties")
    }
    seeds = table_seeds(lab)
    table = {cell: [measures.measure_cell(lab, task, cell, seed) for seed in seeds]
             for cell in lab.progress(CELLS, "table")}  # fmt: skip
    add_gradients(lab, by_penalty[NONE])
    add_penalties(lab, by_penalty)
    add_invariance(lab, table, seeds)
    add_factors(lab, table, seeds)
    sizes = "-".join(map(str, (task.X.shape[1], *start.layers, start.width)))
    setting = f"{task.name}, {sizes} units"
    lab.figure(
        "regularization-penalty",
        figure_penalty(by_penalty, lengths),
        f"{setting}, without sweeping, mean and range over {len(lab.seeds)} seeds. Left: gradient of the penalty "
        "relative to that of the reconstruction; the single coefficient is right for the first unit. "
        "Middle: weights of trained networks. Right: MSE of test items.",
    )
    lab.figure(
        "regularization-table",
        figure_table(table),
        f"{setting}. Recall of neighborhoods by combination; dots are seeds, crosses means.",
    )
    add_table(lab, table)
    lab.measured |= {
        "lengths": lengths,
        "penalties": {name: [as_lists(one) for one in runs] for name, runs in by_penalty.items()},
        "table": {str(cell): [as_lists(one) for one in runs] for cell, runs in table.items()},
    }
    budget = start.training.steps * start.training.batch_size
    lab.departure(
        f"Adam replaces nonlinear conjugate gradients, and each network sees {budget:,} examples of {task.name} "
        "instead of 159 million of 80 Million Tiny Images, since dozens are trained."
    )
    lab.departure("The paper gives no values here. Factors, measures and rules of decision were fixed before the runs, "
                  "in `reproduce/regularization/design.py`.")  # fmt: skip
    if lab.data is None:
        lab.departure("Without --data the items are digits, and the network is smaller.")
    elif lab.scale != "full":
        lab.departure("Images are downsampled to 8 x 8 pixels, and the network is smaller than 3072-2048-1024-512.")


def penalties() -> dict[str, AdaptivePenalty | ConstantPenalty | None]:
    """Return the penalties of section 4.2 by name."""
    constants = {name: ConstantPenalty("l1", by) for name, by in CONSTANTS.items()}
    return {NONE: None, ADAPTIVE: AdaptivePenalty("l1", RATIO), **constants}


def table_seeds(lab: Lab) -> tuple[int, ...]:
    """Return the seeds of the table."""
    return SEEDS[: lab.pick(toy=1, quick=3, full=5)]


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


def scale_of(runs: list[Measured]) -> float:
    """Return the mean standard deviation of units before the threshold, over seeds."""
    return float(np.mean([one.scale for one in runs]))


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
        where="section 4.2",
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


def is_above(high: Doubles, low: Doubles) -> bool:
    """Return whether the mean difference over seeds is above twice its standard deviation."""
    difference = high - low
    return bool(difference.mean() > 2 * difference.std())


def effect(table: Table, measure: str, with_it: Cell, without: Cell, *, size: int = 0, claims: int = 1) -> Effect:
    """Return the paired effect of a factor on a measure; recall is at one of SIZES, errors at full width."""
    place = {"recall": size, "errors": -1, "flips": ()}[measure]
    on, off = (np.array([getattr(one, measure)[place] for one in table[cell]]) for cell in (with_it, without))
    return Effect.of(on, off, claims=claims)


def add_invariance(lab: Lab, table: Table, seeds: tuple[int, ...]) -> None:
    """Report what invariance does to bits and to retrieval, other factors being as in the paper."""
    cells = {by: Cell(PAPER.sweeping, PAPER.adaptive, by) for by in WEIGHTS}
    off, weights = cells.pop(0.0), WEIGHTS[1:]
    flips = {by: effect(table, "flips", cells[by], off, claims=len(weights)) for by in weights}
    lab.finding(
        "with invariance, similar examples map to similar codes: noise flips fewer bits",
        paper="similar examples map to similar codes",
        where="section 4.4",
        ours=f"share of the first {FLIPPED} bits that noise of {NOISE} standard deviations flips, "
        f"{np.mean([one.flips for one in table[off]]):.4f} without; "
        + "; ".join(f"weight {by:g}: {each}" for by, each in flips.items())
        + f". The standard deviation of units before the threshold is {scale_of(table[off]):.3g} without and "
        + ", ".join(f"{scale_of(table[cells[by]]):.3g}" for by in weights)
        + " with them: thresholds are quantiles, so that a scale which all examples share changes no bit",
        holds=decide([-each.sign for each in flips.values()]),
        seeds=seeds,
    )
    gains = {by: effect(table, "recall", cells[by], off, size=PRIMARY, claims=len(weights)) for by in weights}
    lab.finding(
        "with invariance, retrieval is better",
        paper="better retrieval results",
        where="section 4.4",
        ours=f"recall of the {NEAREST} nearest images in neighborhoods of {SIZES[PRIMARY]}, "
        f"{np.mean([one.recall[PRIMARY] for one in table[off]]):.4f} without; "
        + "; ".join(f"weight {by:g}: {each}" for by, each in gains.items()),
        holds=decide([each.sign for each in gains.values()]),
        seeds=seeds,
    )


def decide(signs: list[int]) -> bool | None:
    """Return True if an effect is there, False if only its opposite is, None if neither.

    >>> decide([0, 1]), decide([0, -1]), decide([0, 0])
    (True, False, None)
    """
    return True if 1 in signs else False if -1 in signs else None


def add_factors(lab: Lab, table: Table, seeds: tuple[int, ...]) -> None:
    """Report the effects of sweeping and of the adaptive penalty, other factors being as in the paper."""
    factors = {
        "sweeping": NO_SWEEPING,
        "the adaptive penalty": NO_PENALTY,
    }
    for name, without in factors.items():
        error = effect(table, "errors", PAPER, without, claims=2)
        gain = effect(table, "recall", PAPER, without, size=PRIMARY, claims=2)
        lab.finding(f"{name} lowers the error at full width", ours=f"MSE {error}", holds=decide([-error.sign]),
                    seeds=seeds)  # fmt: skip
        lab.finding(f"{name} raises the recall of neighborhoods of {SIZES[PRIMARY]}", ours=str(gain),
                    holds=decide([gain.sign]), seeds=seeds)  # fmt: skip


def add_table(lab: Lab, table: Table) -> None:
    """Add the table, with standard deviations over seeds."""
    rows = [
        [str(cell), *(mean_and_spread([one.recall[i] for one in runs]) for i in range(len(SIZES))),
         f"{np.mean([one.depth[PRIMARY] for one in runs]):.1f}", mean_and_spread([one.flips for one in runs]),
         f"{scale_of(runs):.3g}", f"{np.mean([one.errors[0] for one in runs]):.4f}", mean_and_spread(last_error(runs))]
        for cell, runs in table.items()
    ]  # fmt: skip
    sizes = [f"recall, R = {size}" for size in SIZES]
    lab.table(
        ["combination", *sizes, f"bits, R = {SIZES[PRIMARY]}", "flips", "scale", "MSE, 1 bit", "MSE"],
        rows,
        caption=f"Recall of the {NEAREST} nearest images by L2 of pixels, mean length of neighborhoods, share of the "
        f"first {FLIPPED} bits that noise flips, scale of the units, MSE at one bit and at full width; mean and "
        "standard deviation over seeds.",
    )


def as_lists(one: Measured) -> dict[str, Any]:
    """Return the measurements as JSON values."""
    return {name: np.asarray(array).tolist() for name, array in asdict(one).items()}


EXPERIMENT = Experiment(
    "regularization",
    "sections 4.2 and 4.4",
    "Adaptive regularization and code invariance",
    "Gradients of late units are small, so that a single regularization coefficient would dominate them: each unit "
    "gets its own, by a fixed ratio to the gradient of the reconstruction. Retrieval is better with a penalty that "
    "makes codes invariant to noise.",
    run,
)
