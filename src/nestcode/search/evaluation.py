"""Recall of a search, and the fastest settings that reach a target: `Index.evaluate` and `Index.tune`."""

import time
import warnings
from collections.abc import Callable
from copy import copy
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Doubles, Ids, as_float64
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.hits import Evaluation, Hits
from nestcode.search.planner import Effort, Plan
from nestcode.search.scorer import SearchMetric

START, SAFE, MOST = 4, 10, 640  # candidates reranked for each hit: tried first, beside all estimates, and at most
RERANK_STEPS = (2.0, 1.4)  # factors by which `rerank` is changed, from coarse to fine
BUDGET_STEPS = 1.3, 16.0  # factors by which the candidate budget changes until the target is crossed: least and most
TOLERANCE = 1.1  # of the candidate budget
MARGIN = 1.0  # standard errors by which recall must exceed the target
NEARLY = 0.005  # of recall, that a faster search may lose where the target is out of reach
FEW_QUERIES = 10  # whose recall says little about other queries, whatever its standard error
RERANK_HITS, LEAST_RERANK_QUERIES = 2000, 64  # of the queries that choose `rerank`: fewer change the budget instead
COMPARED_IDS = 1 << 22  # pairs of a found and a true one at once
COMPARED_VALUES = 1 << 22  # of vectors in float64 at once
ROUNDING = 1e-6  # by which equal distances may differ
FEW_ITEMS = 10_000  # that an exhaustive search compares in no time


class TrueDistances:
    """Distances between queries and the vectors of items, in float64: float32 would tie items far from 0.

    Args:
        queries: (n, features), checked.
        rows: returns the vectors of ids.
        metric: of the distances.

    """

    def __init__(self, queries: NDArray[Any], rows: Callable[[Ids], NDArray[Any]], metric: SearchMetric) -> None:
        self._rows, self._metric = rows, metric
        self._queries = as_float64(queries, normalize=metric == "cosine")

    def __call__(self, queries: Ids, ids: Ids) -> Doubles:
        """Return the distance of each pair of a query, by its number, and an item, by its id."""
        found, step = np.empty(len(ids)), max(COMPARED_VALUES // self._queries.shape[1], 1)
        for first in range(0, len(ids), step):
            some = slice(first, first + step)
            left = self._queries[queries[some]]
            right = as_float64(self._rows(ids[some]), normalize=self._metric == "cosine")
            if self._metric == "inner":
                found[some] = -np.einsum("if,if->i", left, right)
                continue
            found[some] = np.square(left - right).sum(axis=1)
            if self._metric == "cosine":
                found[some][~(left.any(axis=1) & right.any(axis=1))] = 2  # as the cosine with a zero vector is 0
        return found


class RecallTrials:
    """Searches for the same queries with several settings, against an exhaustive one.

    Recall counts a hit that is as near as the k-th true neighbor, because ties are equally right.
    `nestcode.metrics.recall` compares ids instead.

    Args:
        search: as `Index.search`.
        explain: as `Index.explain`.
        queries: not in the index, or they find themselves.
        k: how many nearest items count.
        count: items of the index.
        options: further arguments of every search.
        true: the true neighbors and their distances.
        distances: between queries and items; None uses the distances that the searches report.
        own: the id of each query, where the queries are items of the index: no search counts the query itself.

    """

    def __init__(
        self,
        search: Callable[..., Hits],
        explain: Callable[..., Plan],
        queries: Codes | ArrayLike,
        k: int,
        count: int,
        options: dict[str, Any],
        true: Hits,
        distances: TrueDistances | None,
        own: Ids | None = None,
    ) -> None:
        self._search, self._explain, self._queries, self._k = search, explain, queries, k
        self.count, self._options, self._distances, self._own = count, options, distances, own
        self._tried: dict[tuple[int, int], Evaluation] = {}
        self._true = true.ids.reshape(-1, k)
        if not count or not len(self._true):
            raise InvalidInput(
                f"recall needs queries, and items that the filter allows, got {len(self._true)} and {count}: "
                "add items, give queries, or widen the filter"
            )
        self._numbers = np.arange(len(self._true))  # of the queries, as `distances` has them
        self._margin = MARGIN
        known, far = self._true >= 0, np.full(self._true.shape, -np.inf)
        far[known] = true.distances.reshape(-1, k)[known] if distances is None else self._measured(self._true, known)
        worst = far.max(axis=1, keepdims=True)
        self._as_near = worst + ROUNDING * np.abs(worst)

    def run(self, candidates: int | None, rerank: int | None) -> Evaluation:
        """Search for all queries once."""
        plan, start = self._plan(candidates, rerank), time.perf_counter()
        found = self._hits(candidates, rerank)
        seconds = time.perf_counter() - start
        right = self._right(found).sum(axis=1)
        compared, queries, wanted = float(np.mean(found.compared)), len(right), int((self._true >= 0).sum())
        return Evaluation(
            recall=float(right.sum() / wanted),
            standard_error=float(right.std(ddof=min(1, queries - 1)) * queries**0.5 / wanted),
            compared=compared,
            share=compared / self.count,
            candidates=candidates or plan.compared,
            rerank=rerank or plan.reranked,
            seconds=seconds / queries,
            ns=plan.executed_ns(compared),
        )

    def fastest(self, target: float, near: Effort | None = None, margin: float = MARGIN) -> Evaluation:
        """Return the fastest settings whose recall is above the target by a margin, or come near the best.

        These queries favor the fastest of many settings: without a margin it often misses the target on other queries.
        Some of the queries choose `rerank`, and all of them the candidate budget.

        Args:
            target: the recall.
            near: settings of a similar index, which are tried first.
            margin: standard errors by which recall must exceed the target.

        """
        self._margin = margin
        if len(self._true) < FEW_QUERIES:
            warnings.warn(
                f"settings are chosen by the recall of at least {FEW_QUERIES} queries, got {len(self._true)}: give "
                "more, some hundred if there are, because other queries may miss the target by far",
                stacklevel=3,
            )
        few = self._part(max(RERANK_HITS // self._k, LEAST_RERANK_QUERIES))
        if near is None:
            near = Effort(max(self.count // 256, self._k), self.count, START * self._k, self._k)
        first = few._reached(target, near.rerank_for(self._k), near.candidates)
        first = first and few._with_best_rerank(first, target)
        best = first and self._reached(target, first.rerank, first.candidates)
        return self._out_of_reach(target, few) if best is None else best

    def effort(self, chosen: Evaluation) -> Effort:
        """Return settings for an index of any size."""
        return Effort(chosen.candidates, self.count, chosen.rerank, self._k)

    # settings

    def _reached(self, target: float, rerank: int, start: int) -> Evaluation | None:
        """Return the fewest candidates that reach the target, with the fewest reranked candidates, in steps of 4."""
        best = self._fewest(rerank, target, start)
        while best is None and rerank < min(MOST * self._k, self.count):
            rerank *= 4
            best = self._fewest(rerank, target, self.count // 256)
        return best

    def _with_best_rerank(self, best: Evaluation, target: float) -> Evaluation:
        """Return settings that are faster with more or fewer reranked.

        If reranking the hits alone is as good, as on graphs of vectors, no number between has to be tried.
        """
        bare = self._faster(best, 1 / best.rerank, target)
        if bare is not None:
            return bare
        for step in RERANK_STEPS:
            for change in (1 / step, step):
                better: Evaluation | None = best
                while better is not None:
                    best, better = better, self._faster(better, change, target)
        return best

    def _faster(self, best: Evaluation, change: float, target: float) -> Evaluation | None:
        """Return the fewest candidates with `rerank` changed by a factor, if that is faster; otherwise None."""
        rerank = min(max(round(best.rerank * change), self._k), self.count)
        if rerank == best.rerank:
            return None
        own, other = self._plan(best.candidates, best.rerank), self._plan(best.candidates, rerank)
        spared = (own.ns[own.operator] - other.ns[other.operator]) / own.ns_per_compared
        most = min(best.candidates + int(spared), self.count - 1)  # candidates that take no longer
        if most < (self._k if change < 1 else rerank) or not self._reaches(self._try(most, rerank), target):
            return None
        found = self._fewest(rerank, target, most)
        return found if found is not None and found.ns < best.ns else None

    def _fewest(self, rerank: int, target: float, start: int) -> Evaluation | None:
        """Return the least candidate budget below all items that reaches the target, or None.

        Recall is close to a logistic function of the budget's logarithm, so one budget below the target and one above
        it predict the crossing.
        """
        low: Evaluation | None = None
        best: Evaluation | None = None
        trial = min(max(start, self._k), self.count - 1)
        while 0 < trial < self.count and (best is None or trial < best.candidates):
            tried = self._try(trial, rerank)
            low, best = (low, tried) if self._reaches(tried, target) else (tried, best)
            if best is None:
                wider = int(trial * self._step(tried, target)) + 1
                trial = min(wider, self.count - 1) if trial < self.count - 1 else self.count
            elif low is None:
                trial = max(int(trial / self._step(tried, target)), self._k)
            else:
                crossing = self._crossing(low, best, target)
                if best.candidates <= TOLERANCE * max(low.candidates, crossing):
                    break
                trial = max(int(crossing * TOLERANCE**0.5), low.candidates + 1)
        return best

    def _crossing(self, low: Evaluation, high: Evaluation, target: float) -> float:
        """Return the budget between two at which recall is expected to cross the target."""
        below, above, at = (self._logit(recall) for recall in (self._score(low), self._score(high), target))
        saturated = above >= self._logit(1) or below <= self._logit(0)
        share = 0.5 if saturated else (at - below) / max(above - below, 1e-9)
        return float(low.candidates * (high.candidates / low.candidates) ** min(max(share, 0.1), 0.9))

    def _step(self, tried: Evaluation, target: float) -> float:
        """Return the factor by which the budget is off, were the slope of the logistic function 1."""
        least, most = (log(step) for step in BUDGET_STEPS)
        return exp(min(max(abs(self._logit(target) - self._logit(self._score(tried))), least), most))

    def _logit(self, recall: float) -> float:
        """Return the logarithm of the odds of a recall, which half a hit bounds."""
        least = 0.5 / max(self._true.size, 1)
        bounded = min(max(recall, least), 1 - least)
        return log(bounded / (1 - bounded))

    def _try(self, candidates: int, rerank: int) -> Evaluation:
        """Search for all queries once for each choice of settings."""
        if (candidates, rerank) not in self._tried:
            self._tried[candidates, rerank] = self.run(candidates, rerank)
        return self._tried[candidates, rerank]

    def _score(self, tried: Evaluation) -> float:
        """Return the recall that other queries usually reach."""
        return tried.recall - self._margin * tried.standard_error

    def _reaches(self, tried: Evaluation, target: float) -> bool:
        return self._score(tried) >= target

    def _out_of_reach(self, target: float, few: "RecallTrials") -> Evaluation:
        """Return an exhaustive search if that alone reaches a recall, otherwise the fastest of nearly the best."""
        best = self.run(self.count, SAFE * self._k)
        if self._reaches(best, target):
            if self.count > FEW_ITEMS:
                warnings.warn(
                    f"only an exhaustive search of all {self.count} items reaches a recall of {target}, and later "
                    "searches will be exhaustive: use a wider code, give the vectors, or lower target_recall",
                    stacklevel=4,
                )
            return best
        some = (few._tried | self._tried).values()
        most = max((tried.recall for tried in some), default=0.0)
        near = min((tried for tried in some if tried.recall >= most - NEARLY), key=lambda one: one.ns, default=best)
        chosen = self.run(near.candidates, near.rerank)
        warnings.warn(
            f"no search reaches a recall of {target} by a standard error, an exhaustive one has {best.recall:.3f} ± "
            f"{best.standard_error:.3f}; later searches have {chosen.recall:.3f} with {chosen.candidates} of "
            f"{self.count} candidates: use a wider code, give the vectors or more queries, or lower target_recall",
            stacklevel=4,
        )
        return chosen

    # queries

    def _part(self, most: int) -> "RecallTrials":
        """Return the same trials with at most this number of queries."""
        count = len(self._true)
        if count <= most:
            return self
        part, numbers = copy(self), np.linspace(0, count - 1, most).astype(np.int64)
        part._queries = (self._queries if isinstance(self._queries, Codes) else np.asarray(self._queries))[numbers]
        part._numbers, part._true, part._as_near = numbers, self._true[numbers], self._as_near[numbers]
        part._own = None if self._own is None else self._own[numbers]
        part._margin, part._tried = self._margin * (most / count) ** 0.5, {}
        return part

    def _plan(self, candidates: int | None, rerank: int | None) -> Plan:
        options = {name: value for name, value in self._options.items() if name != "threads"}
        k = self._k + (self._own is not None)
        return self._explain(self._queries, k, candidates=candidates, rerank=rerank, **options)

    def _hits(self, candidates: int | None, rerank: int | None) -> Hits:
        """Return the hits of all queries, (queries, k), without the queries themselves."""
        k = self._k + (self._own is not None)
        found = self._search(self._queries, k, candidates=candidates, rerank=rerank, **self._options)
        ids, distances = found.ids.reshape(-1, k), found.distances.reshape(-1, k)
        if self._own is not None:
            itself = ids == self._own[:, None]
            ids, distances = without_own(ids, itself), without_own(distances, itself)
        return Hits(ids, distances, found.compared)

    def _right(self, found: Hits) -> NDArray[np.bool_]:
        """Return which hits are among the nearest items, (queries, k).

        By id first, and then by distance, as ties are equally right.
        """
        right, step = np.empty(found.ids.shape, dtype=bool), max(COMPARED_IDS // self._k**2, 1)
        for first in range(0, len(right), step):
            some = slice(first, first + step)
            right[some] = (found.ids[some, :, None] == self._true[some, None, :]).any(axis=2)
        known = found.ids >= 0
        far = found.distances
        if self._distances is not None:
            far, others = np.full(found.ids.shape, np.inf), known & ~right
            far[others] = self._measured(found.ids, others)
        near: NDArray[np.bool_] = (right | (far <= self._as_near)) & known
        return near

    def _measured(self, ids: Ids, wanted: NDArray[np.bool_]) -> Doubles:
        assert self._distances is not None
        return self._distances(self._numbers[np.nonzero(wanted)[0]], ids[wanted])


def without_own(found: NDArray[Any], own: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the columns of each row but its own, or but the last where its own is not there: (n, k + 1) -> (n, k)."""
    dropped = np.where(own.any(axis=1), own.argmax(axis=1), found.shape[1] - 1)
    kept = np.arange(found.shape[1]) != dropped[:, None]
    others: NDArray[Any] = found[kept].reshape(len(found), -1)
    return others
