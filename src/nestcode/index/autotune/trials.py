"""Trials: candidates are built on a sample of the rows and tuned to the target recall of held-out queries."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Ids
from nestcode.coders import Coder
from nestcode.coders.base import Metric
from nestcode.fork import lazy_property
from nestcode.index.autotune.candidates import Candidate
from nestcode.index.autotune.choice import Trial
from nestcode.metrics import exact_neighbors
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
        rows: (n, features), found by their numbers.
        queries: (queries, features).
        own: the numbers of the queries, where they are rows: a search does not count the query itself.
        hidden: whether it finds none of the queries, as in an index that is blind to them.
        metric: of the neighbors.
        k: neighbors of a query, fewer where there are fewer rows.

    """

    rows: NDArray[Any]
    queries: NDArray[Any]
    own: Ids | None
    metric: Metric
    k: int
    hidden: bool = False

    @lazy_property
    def neighbors(self) -> Ids:
        """The true neighbors of each query, (queries, k)."""
        if self.own is None:
            return exact_neighbors(self.queries, self.rows, self.k, self.metric)
        if self.hidden:
            others = np.delete(np.arange(len(self.rows)), self.own)
            return others[exact_neighbors(self.queries, self.rows[others], self.k, self.metric)]
        found = exact_neighbors(self.queries, self.rows, self.k + 1, self.metric)
        return without_own(found, found == self.own[:, None])

    def recall_of_rounding(self, rounded: StoredVectors) -> float:
        """Return the recall of an exhaustive search of rounded rows, where ties count."""
        some = Sample(rounded.floats(), self.queries, self.own, self.metric, self.k)
        numbers = np.arange(len(self.queries)).repeat(self.k)
        distances = TrueDistances(self.queries, lambda ids: self.rows[ids], self.metric)
        found, true = (distances(numbers, ids.ravel()).reshape(ids.shape) for ids in (some.neighbors, self.neighbors))
        return float(np.mean(found <= true.max(axis=1, keepdims=True) * (1 + 1e-6)))

    def searches(self, index: "Index", names: Ids | None = None) -> RecallTrials:
        """Return trial searches of an index that holds these rows under names, or their numbers."""
        names = np.arange(len(self.rows)) if names is None else names
        order = np.argsort(names, kind="stable")

        def vectors(ids: Ids) -> NDArray[Any]:
            rows: NDArray[Any] = self.rows[order[np.searchsorted(names, ids, sorter=order)]]
            return rows

        true = Hits(names[self.neighbors], np.empty(0, np.float32), len(self.rows))
        own = None if self.own is None else names[self.own]
        distances = TrueDistances(self.queries, vectors, self.metric)
        options = {"threads": None}
        return RecallTrials(
            index.search, index.explain, self.queries, self.k, len(index), options, true, distances, own
        )


def run_trials(
    sample: Sample, candidates: Iterable[Candidate], target: float, seed: int, report: Callable[[str], None]
) -> Iterator[Trial]:
    """Yield what each candidate needs to reach the target on a sample.

    One coder of each kind is fitted, and narrower codes are its prefixes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unallocated bits and missed targets: what is chosen warns
        for kind, alike in groupby(candidates, key=lambda one: one.kind):
            some = list(alike)
            coder: Coder = kind(max(one.width for one in some), sample.metric, seed=seed).fit(sample.rows)
            codes = coder.encode(sample.rows)
            for candidate in some:
                index = candidate.index(coder)
                index.add(codes, vectors=None if candidate.vectors is None else sample.rows)
                index.compact()
                found, plan = tune(index, sample, candidate, target)
                trial = Trial(
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
                cost = f"recall {found.recall:.3f}, {found.ns / 1e3:,.0f} us a query"
                report(f"{len(sample.rows):,} rows: {candidate}: {cost}")
                yield trial


def tune(index: "Index", sample: Sample, candidate: Candidate, target: float) -> tuple[Evaluation, Plan]:
    """Return the least work that reaches the target, and its plan."""
    trials = sample.searches(index)
    scans = candidate.structure == "scan"
    found = trials.run(len(index), sample.k) if scans else trials.fastest(target)
    plan = index.explain(sample.queries[:1], sample.k, candidates=found.candidates, rerank=found.rerank)
    return found, plan


def reaches(found: Evaluation, target: float) -> bool:
    """Return whether recall is above the target by its standard error."""
    return found.recall - found.standard_error >= target


def finalists(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Return the first candidates of different structures and coders."""
    first = {(one.structure, one.kind): one for one in reversed(candidates)}
    return [one for one in candidates if first[one.structure, one.kind] is one][:most]
