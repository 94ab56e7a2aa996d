"""Trials: candidates are built on a sample of the rows and tuned to the target recall of held-out queries."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, Ids, as_floats
from nestcode.coders import Coder
from nestcode.coders.base import Metric
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.index.autotune.candidates import Candidate, Kind
from nestcode.index.autotune.choice import Trial
from nestcode.index.compaction import MIN_GRAPH
from nestcode.search.evaluation import RecallTrials, TrueDistances, without_own
from nestcode.search.hits import Evaluation, Hits
from nestcode.search.planner import Plan
from nestcode.search.vectors import StoredVectors

if TYPE_CHECKING:
    from nestcode.index.index import Index


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to build indexes of, and queries whose true neighbors among them are computed once.

    Args:
        rows: (n, features), the items; the id of each is its row number.
        queries: (queries, features).
        query_rows: the row numbers of the queries if they are rows too; then no search counts the query itself.
        hidden: whether searches find none of the queries, as in an index that is blind to them.
        metric: of the distances that define true neighbors.
        k: the number of true neighbors of a query.

    """

    rows: NDArray[Any]
    queries: NDArray[Any]
    query_rows: Ids | None
    metric: Metric
    k: int
    hidden: bool = False

    @lazy_property
    def neighbors(self) -> Ids:
        """The true neighbors of each query, (queries, k)."""
        numbers = np.arange(len(self.rows))
        if self.query_rows is None:
            return self._nearest(numbers, self.k)
        if self.hidden:
            return self._nearest(np.delete(numbers, self.query_rows), self.k)
        found = self._nearest(numbers, self.k + 1)
        return without_own(found, found == self.query_rows[:, None])

    def _nearest(self, among: Ids, k: int) -> Ids:
        """Return the nearest of these rows to each query, (queries, k), by an exhaustive search of the core."""
        fine = np.float64 if np.result_type(self.rows.dtype, np.float32) != np.float32 else np.float32
        rows = _core.VectorRuns(np.require(self.rows, fine, ["C", "A"]))
        queries, shape = as_floats(self.queries), (len(self.queries), k)
        found, distances = np.full(shape, -1, np.int64), np.full(shape, np.inf, np.float32)
        _core.scan(rows, queries, among, among, self.metric, distances, found, CORES)
        return found

    def recall_of_rounding(self, rounded: StoredVectors) -> float:
        """Return the recall of an exhaustive search of rounded rows, where ties count."""
        some = Sample(rounded.floats(), self.queries, self.query_rows, self.metric, self.k)
        numbers = np.arange(len(self.queries)).repeat(self.k)
        distances = TrueDistances(self.queries, lambda ids: self.rows[ids], self.metric)
        found, true = (distances(numbers, ids.ravel()).reshape(ids.shape) for ids in (some.neighbors, self.neighbors))
        return float(np.mean(found <= true.max(axis=1, keepdims=True) * (1 + 1e-6)))

    def searches(self, index: "Index", names: Ids | None = None) -> RecallTrials:
        """Return trial searches of an index of these rows, whose ids are `names` or the row numbers."""
        names = np.arange(len(self.rows)) if names is None else names
        order = np.argsort(names, kind="stable")

        def vectors(ids: Ids) -> NDArray[Any]:
            rows: NDArray[Any] = self.rows[order[np.searchsorted(names, ids, sorter=order)]]
            return rows

        true = Hits(names[self.neighbors], np.empty(0, np.float32), len(self.rows))
        query_ids = None if self.query_rows is None else names[self.query_rows]
        distances = TrueDistances(self.queries, vectors, self.metric)
        options = {"threads": None}
        return RecallTrials(
            index.search, index.explain, self.queries, self.k, len(index), options, true, distances, query_ids
        )


def run_trials(
    sample: Sample,
    candidates: Sequence[Candidate],
    worth: Callable[[Candidate], bool],
    target: float,
    seed: int,
    report: Callable[[str], None],
) -> Iterator[Trial]:
    """Yield what each candidate needs to reach the target on a sample.

    One coder of each kind is fitted to the sample; narrower codes are its prefixes.

    Args:
        sample: rows and queries.
        candidates: in the order of their trials.
        worth: returns whether a candidate is worth its trial; it is called after all earlier trials were yielded.
        target: the recall to reach.
        seed: of the coders.
        report: is given a line for each trial.

    """
    coders: dict[Kind, tuple[Coder, Codes]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unallocated bits and missed targets: what is chosen warns
        for candidate in candidates:
            if not worth(candidate):
                continue
            kind = candidate.kind
            if kind not in coders:
                width = max(one.width for one in candidates if one.kind is kind)
                coder = kind(width, sample.metric, seed=seed).fit(sample.rows)
                coders[kind] = coder, coder.encode(sample.rows)
            index = _built(candidate, *coders[kind], sample)
            found, plan = tune(index, sample, target)
            cost = f"recall {found.recall:.3f}, {found.ns / 1e3:,.0f} us a query"
            report(f"{len(sample.rows):,} rows: {candidate}: {cost}")
            yield Trial(
                candidate,
                len(sample.rows),
                found.recall,
                found.standard_error,
                reaches(found, target),
                found.candidates,
                found.rerank,
                found.compared,
                plan.work,
                index.nbytes,
            )


def _built(candidate: Candidate, coder: Coder, codes: Codes, sample: Sample) -> "Index":
    """Return an index of the sample, whose graph is built however few the rows are."""
    walks = candidate.structure == "graph" and len(sample.rows) < MIN_GRAPH
    index = (replace(candidate, structure="lists") if walks else candidate).index(coder)
    index.add(codes, vectors=None if candidate.vectors is None else sample.rows)
    index.compact()
    return index._with_graphs() if walks else index


def tune(index: "Index", sample: Sample, target: float) -> tuple[Evaluation, Plan]:
    """Return the least work that reaches the target, and its plan."""
    found = sample.searches(index).fastest(target)
    plan = index.explain(sample.queries[:1], sample.k, candidates=found.candidates, rerank=found.rerank)
    return found, plan


def reaches(found: Evaluation, target: float) -> bool:
    """Return whether recall is above the target by its standard error."""
    return found.recall - found.standard_error >= target
