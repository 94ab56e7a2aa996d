"""`nestcode.fit`: the coder that suits the data, chosen by trial fits on a sample and measured on held-out rows.

    goal          measure on held-out rows                                      candidates, in order of preference
    "search"      recall@10 by the distances to what codes decode to            CellCoder, LinearCoder
    "codes"       the same                                                      CellCoder, LinearCoder, ResidualCoder
    "distortion"  mean squared error of what codes decode to                    LinearCoder, CellCoder, ResidualCoder,
                                                                                AdaptiveCoder
    "graph"       none: its codes navigate the graphs of an index               LinearCoder

Later candidates take longer to fit, encode or search. So a later candidate must be clearly better than the one it
replaces: 5 % more neighbors found or 5 % fewer missed, or 5 % less error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import center, check_seed, pieces
from nestcode.coders.adaptive.coder import AdaptiveCoder
from nestcode.coders.base import Metric, Selection, check_settings
from nestcode.coders.cell.coder import CellCoder
from nestcode.coders.cell.kmeans import choose_bits
from nestcode.coders.linear.coder import LinearCoder
from nestcode.coders.residual.coder import ResidualCoder
from nestcode.coders.sampling import Reservoir, clip_outliers
from nestcode.errors import InvalidInput
from nestcode.metrics import distortion, exact_neighbors, recall

Goal = Literal["search", "codes", "distortion", "graph"]
Choice = LinearCoder | ResidualCoder | CellCoder | AdaptiveCoder
CANDIDATES: dict[Goal, list[type[Choice]]] = {
    "search": [CellCoder, LinearCoder],
    "codes": [CellCoder, LinearCoder, ResidualCoder],
    "distortion": [LinearCoder, CellCoder, ResidualCoder, AdaptiveCoder],
    "graph": [LinearCoder],
}
BY_RECALL: tuple[Goal, ...] = ("search", "codes")  # the other goals measure the error, if anything
WIDTHS: dict[Goal, int] = {"search": 256, "codes": 256, "distortion": 256, "graph": 384}  # by default
MAX_BITS_PER_FEATURE = 8  # more bits say little, whatever the coder
SAMPLE_ROWS, SAMPLE_VALUES, TRIAL_WIDTH = 20_000, 1 << 23, 128
HELD_OUT = 0.2  # of the sample
QUERIES, NEIGHBORS = 500, 10
LEAST_ROWS = {"search": 500, "codes": 500, "distortion": 50}  # in the sample, to compare candidates at all
MARGIN = 0.95


def fit(
    X: ArrayLike | Iterable[ArrayLike],
    width: int | None = None,
    *,
    metric: Metric = "l2",
    goal: Goal = "search",
    seed: int = 0,
    verbose: bool = False,
) -> Choice:
    """Fit the coder that suits the data best, among the coders that need no PyTorch.

    >>> import nestcode as nc
    >>> X, _ = nc.data.digits()
    >>> coder = nc.fit(X, width=64, goal="distortion")
    >>> coder
    ResidualCoder(width=64, metric='l2', beams=4, seed=0)
    >>> print(coder.selection_)  # doctest: +ELLIPSIS
    ResidualCoder: mean squared error 0.005..., better than LinearCoder 0.007..., CellCoder ..., AdaptiveCoder ...

    Every candidate is fitted on 80 % of a sample of at most 20,000 rows, at no more than 128 bits and with one beam.
    The other rows measure it. With the goals "search" and "codes" up to 500 of these rows are queries and the rest are
    items, and the measure is recall@10: the share of the ten exact nearest neighbors that are among the ten nearest
    decoded items. With the goal "distortion" the measure is the mean squared error. A candidate that is slower to fit,
    encode or search must be clearly better: 5 % more neighbors found, 5 % fewer missed, or 5 % less error. Fewer than
    500 rows (50 for "distortion") are too few to compare, and the choice is `LinearCoder`. With the goal "graph" the
    choice is always a `LinearCoder`, whose codes navigate the graphs of `Index(coder, graph=True)`. `coder.selection_`
    has the comparison, and files keep it.

    Args:
        X: (n, features): an array, a memory map, or a list of arrays.
        width: bits of a code; by default 256, or 384 with the goal "graph", but at most 8 for each feature.
        metric: "l2", or "cosine" to compare items by angle.
        goal: "search" compares the coders that are fitted in seconds by recall@10, for an index that stores vectors;
            "codes" also compares `ResidualCoder`, for an index of codes alone; "distortion" compares by squared error;
            "graph" is for an index with graphs.
        seed: the seed of the sample, the trials and the fit.
        verbose: print the measure of each candidate and the choice to standard error.

    """
    if isinstance(X, Iterator):
        raise InvalidInput("fit reads the data more than once, and an iterator ends: give an array or a list of arrays")
    if goal not in CANDIDATES:
        raise InvalidInput(f'goal must be "search", "codes", "distortion" or "graph", got {goal!r}')
    by_default = width is None
    if width is None:
        first = next(pieces(X), None)
        width = WIDTHS[goal] if first is None else min(WIDTHS[goal], MAX_BITS_PER_FEATURE * max(first.shape[1], 1))
    check_settings(width, metric, seed)
    seed = check_seed(seed)
    candidates: list[Choice] = [kind(width, metric, seed=seed) for kind in CANDIDATES[goal]]
    report = to_stderr if verbose else to_nobody
    selection = _select(X, candidates, goal, report)
    report(f"fitting {selection.chosen} of {width} bits to all rows")
    with warnings.catch_warnings():
        if by_default:  # nobody asked for as many bits
            warnings.filterwarnings("ignore", message="the data fills")
        coder = next(coder for coder in candidates if type(coder).__name__ == selection.chosen).fit(X)
    coder.selection_ = selection
    return coder


def least_distortion(X: ArrayLike | Iterable[ArrayLike], coders: Sequence[Choice]) -> int:
    """Return the coder with the least squared error on held-out rows; the first coder if rows are too few."""
    train, held_out, count = _split_sample(X, coders[0])
    if count < LEAST_ROWS["distortion"]:
        return 0
    return int(np.argmin([trial_error(_trial(coder, train, count), held_out) for coder in coders]))


def trial_error(coder: Choice, held_out: NDArray[Any]) -> float:
    """Return the mean squared error of decoded held-out rows."""
    rows = center(held_out, np.zeros(held_out.shape[1]), normalize=coder.metric_ == "cosine")
    return distortion(rows, coder.decode(coder.encode(held_out)))


def trial_recall(coder: Choice, held_out: NDArray[Any]) -> float:
    """Return recall@10 by the distances to decoded items; the first fifth of the held-out rows are the queries."""
    count = min(QUERIES, len(held_out) // 5)
    queries, items = held_out[:count], held_out[count:]
    exact = exact_neighbors(queries, items, NEIGHBORS, coder.metric_)
    return recall(exact_neighbors(queries, coder.decode(coder.encode(items)), NEIGHBORS, coder.metric_), exact)


def _select(
    X: ArrayLike | Iterable[ArrayLike], candidates: Sequence[Choice], goal: Goal, report: Callable[[str], None]
) -> Selection:
    """Return the choice among candidates, with the measure of each."""
    if goal == "graph":
        return Selection(goal, "none", {}, type(candidates[0]).__name__, "its codes navigate the graphs of an index")
    name = "recall@10" if goal in BY_RECALL else "mean squared error"
    train, held_out, count = _split_sample(X, candidates[0])
    scores: dict[str, float] = {}
    if count < LEAST_ROWS[goal]:
        chosen, reason = "LinearCoder", f"fewer than {LEAST_ROWS[goal]} rows are too few to compare coders"
    else:
        for candidate in candidates:
            coder = _trial(candidate, train, count)
            score = trial_recall(coder, held_out) if goal in BY_RECALL else trial_error(coder, held_out)
            scores[type(candidate).__name__] = score
            report(f"{type(candidate).__name__:13} {name} {score:.3g} on held-out rows")
        chosen = _first_clearly_best(scores, goal)
        best = (max if goal in BY_RECALL else min)(scores, key=scores.__getitem__)
        reason = _reason(name, scores, chosen, best)
        if candidates[0].width > TRIAL_WIDTH:
            reason += f" (trials at {TRIAL_WIDTH} bits)"
    report(f"{chosen}: {reason}")
    return Selection(goal, f"{name} on held-out rows", scores, chosen, reason)


def to_stderr(line: str) -> None:
    """Report a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


def to_nobody(line: str) -> None:
    """Report nothing."""


def _first_clearly_best(scores: dict[str, float], goal: Goal) -> str:
    """Return the best candidate; a later candidate must be clearly better than the one it replaces."""
    chosen = next(iter(scores))
    for kind in scores:
        new, old = scores[kind], scores[chosen]
        better = new * MARGIN > old or 1 - new < MARGIN * (1 - old) if goal in BY_RECALL else new < MARGIN * old
        chosen = kind if better else chosen
    return chosen


def _reason(name: str, scores: dict[str, float], chosen: str, best: str) -> str:
    """Return why this candidate was chosen, in a sentence without its name."""
    if best == chosen:
        shown = {kind: f"{score:.3g}" for kind, score in scores.items()}
        own = shown.pop(chosen)
        others = ", ".join(f"{kind} {score}" for kind, score in shown.items())
        return f"{name} {own}, {'at least as good as' if own in shown.values() else 'better than'} {others}"
    return f"{name} {scores[chosen]:.3g}, not clearly worse than {best} {scores[best]:.3g}, and faster"


def _split_sample(X: ArrayLike | Iterable[ArrayLike], coder: Choice) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return rows to train on and held-out rows, of a uniform sample of the data, and the number of all rows.

    Outliers are clipped in held-out rows too: coders would be compared by the error of one row.
    """
    rng, first = np.random.default_rng(coder.seed), next(pieces(X), None)
    if first is None:
        raise InvalidInput("fit needs at least 1 item, got none")
    reservoir = Reservoir(rng, SAMPLE_ROWS, SAMPLE_VALUES * first.itemsize)
    count = 0
    for part in pieces(X):
        reservoir.add(part)
        count += len(part)
    rows = reservoir.rows() if coder.metric == "cosine" else clip_outliers(reservoir.rows())
    held_out = rng.random(len(rows)) < HELD_OUT
    return rows[~held_out], rows[held_out], count


def _trial(coder: Choice, train: NDArray[Any], count: int) -> Choice:
    """Return a coder like this one for `count` rows that is quick to fit, fitted to some of them."""
    width = min(coder.width, TRIAL_WIDTH)
    quick: dict[str, int] = {"beams": 1} if hasattr(coder, "beams") else {}
    if isinstance(coder, CellCoder):
        quick = {"cells": 1 << min(choose_bits(count), width)}  # the cells that all rows will have
    trial = type(coder)(width, coder.metric, seed=coder.seed, **quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unallocated bits: the fit on all data warns
        return trial.fit(train)
