"""The health of an index: recall of stored items, growth since it was chosen, drift of the data."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestcode.arrays import Doubles, Ids, as_float64
from nestcode.coders import CellCoder, Coder
from nestcode.coders.base import ScalarLayout
from nestcode.coders.cell.kmeans import choose_bits
from nestcode.search.evaluation import RecallTrials, TrueDistances, without_own
from nestcode.search.hits import Hits

if TYPE_CHECKING:
    from nestcode.index.index import Index

TARGET = 0.9
OUTGROWN_CELL_RATIO = 8  # of the cells that would be chosen for all items to those of the coder
DRIFT = 1.5  # times the error of the fit that the newest items may have
SURE = 3.0  # standard errors of the mean error, which few outliers may raise
NEWEST_SHARE, NEWEST = 10, 1000  # one item in NEWEST_SHARE is among the newest; at most NEWEST items are decoded


@dataclass(frozen=True)
class Health:
    """The state of an index, as `Index.health` found it.

    >>> from nestcode import Codes, Index
    >>> index = Index(width=2)
    >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
    >>> index.health().ok, index.health().problems
    (True, ())

    Args:
        recall: the recall of stored items as queries, without themselves; None if the index stores no vectors.
        standard_error: the standard error of the recall over the queries.
        target: the recall that the index should have.
        k: hits that recall counts.
        items: in the index.
        error: the mean squared error of the codes of the newest items; None if the index stores no vectors.
        expected_error: the error that the fit measured.
        problems: the problems, each with the call that fixes it.

    """

    recall: float | None
    standard_error: float
    target: float
    k: int
    items: int
    error: float | None
    expected_error: float | None
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def __str__(self) -> str:
        found = "" if self.recall is None else f", recall@{self.k} {self.recall:.3f} ± {self.standard_error:.3f}"
        return "\n".join([f"{self.items:,} items{found}: {'healthy' if self.ok else 'not healthy'}", *self.problems])


def check_health(index: "Index", k: int, target: float, queries: int, seed: int) -> Health:
    """Return the problems of an index, each with the call that fixes it."""
    count, coder, problems = len(index), index.coder, []
    stored = index.vector_type is not None and count > 1
    recall, standard_error, error = None, 0.0, None
    if index.graph_pending:
        problems.append("its graph is still being built, and searches find less until then: index.wait()")
    if coder is not None and isinstance(coder, CellCoder) and _cells_too_few(coder, index.width, count):
        problems.append(
            f"its inverted lists suit fewer than {count:,} items, so each search compares more items than it has "
            f"to: {_rebuild(index)}"
        )
    if coder is not None and stored:
        each = _newest_errors(index, coder)
        error = float(each.mean())
        surely = error - SURE * float(each.std()) / len(each) ** 0.5
        if surely > DRIFT * coder.expected_error(index.width) > 0:
            problems.append(
                f"the codes of its newest items have a mean squared error of {error:.3g}, the rows that the coder was "
                f"fitted on {coder.expected_error(index.width):.3g}, so the data has changed: {_rebuild(index)}"
            )
        own = np.sort(np.random.default_rng(seed).choice(index.ids, min(queries, count), replace=False))
        found = _trials(index, coder, own, min(k, count - 1)).run(None, None)
        recall, standard_error = found.recall, found.standard_error
        if recall + standard_error < target:
            remedy = "index.tune(queries, target_recall=...)" if not problems else "the call above"
            problems.append(f"recall@{k} is {recall:.3f} ± {standard_error:.3f}, below {target:g}: {remedy}")
    expected = None if coder is None else coder.expected_error(index.width)
    return Health(recall, standard_error, target, k, count, error, expected, tuple(problems))


def _cells_too_few(coder: CellCoder, width: int, count: int) -> bool:
    layout = coder.layout(width)
    return isinstance(layout, ScalarLayout) and (1 << choose_bits(count)) >= OUTGROWN_CELL_RATIO << layout.centroid_bits


def _rebuild(index: "Index") -> str:
    metric = "" if index.coder is None else f", metric={index.coder.metric_!r}"
    vectors = "index.vectors(index.ids)" if index.vector_type is not None else "X"
    return f"Index.build({vectors}, index.ids{metric})"


def _newest_errors(index: "Index", coder: Coder) -> Doubles:
    """Return the mean squared errors of the codes of the items with the largest ids."""
    newest = index.ids[-min(max(len(index) // NEWEST_SHARE, 1), NEWEST) :]
    rows = as_float64(index.vectors(newest), normalize=coder.metric_ == "cosine")
    errors: Doubles = np.square(rows - index.reconstruct(newest)).mean(axis=1)
    return errors


def _trials(index: "Index", coder: Coder, own: Ids, k: int) -> RecallTrials:
    """Return searches for stored items that exclude the item itself."""
    queries = index.vectors(own)
    walks = index.explain(queries[:1], k).operator == "walk"
    searched = index._blind_to(own) if walks else index
    if walks:  # which find none of the queries
        others = searched.filter(np.setdiff1d(index.ids, own))
        true = searched.search(queries, k, candidates=len(index), filter=others, threads=None)
    else:
        found = searched.search(queries, k + 1, candidates=len(index), threads=None)
        itself = found.ids == own[:, None]
        true = Hits(without_own(found.ids, itself), without_own(found.distances, itself), found.compared)
    distances = TrueDistances(queries, index.vectors, coder.metric_)
    return RecallTrials(
        searched.search, searched.explain, queries, k, len(index), {"threads": None}, true, distances, own
    )
