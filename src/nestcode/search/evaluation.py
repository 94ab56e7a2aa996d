"""Recall of a search, and the fastest settings that reach a target: `Index.evaluate` and `Index.tune`."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.hits import Evaluation, Hits
from nestcode.search.planner import Effort, Plan
from nestcode.search.request import Request

START, MOST = 10, 640  # candidates reranked for each hit: tried first, and at most
STEPS = (2.0, 1.4, 1.2)  # factors by which `rerank` is changed, from coarse to fine
TOLERANCE = 1.05  # of the candidate budget
MARGIN = 1.0  # standard errors by which recall must exceed the target
NEARLY = 0.005  # of recall, that a faster search may lose where the target is out of reach
FEW_QUERIES = 10  # whose recall says little about that of others, whatever its standard error
COMPARED_IDS = 1 << 22  # pairs of a found and a true one at once
FEW_ITEMS = 10_000  # that an exhaustive search compares in no time


class RecallTrials:
    """Searches for the same queries with several settings, against an exhaustive one.

    Recall counts a hit that is as near as the k-th true neighbor, as ties are equally right. So it is not the recall of
    ids that `nestcode.metrics.recall` computes.

    Args:
        search: as `Index.search`.
        explain: as `Index.explain`.
        queries: not in the index, or they find themselves.
        k: how many nearest items count.
        count: items of the index.
        options: further arguments of every search.
        exact: a request by vectors that the searches do not get.
        true: the true neighbors and their distances, where they are known.

    """

    def __init__(
        self,
        search: Callable[..., Hits],
        explain: Callable[..., Plan],
        queries: Codes | ArrayLike,
        k: int,
        count: int,
        options: dict[str, Any],
        exact: Request | None,
        true: Hits | None = None,
    ) -> None:
        self._search, self._explain, self._queries, self._k, self.count, self._options = (
            search,
            explain,
            queries,
            k,
            count,
            options,
        )
        self._exact = exact
        self._tried: dict[tuple[int, int], Evaluation] = {}
        by_vectors = {}
        if exact is not None and exact.vectors is not None:
            by_vectors = {"rank": "exact", "vectors": exact.vectors.source}
        if true is None:
            true = search(queries, k, candidates=max(count, 1), **{**options, **by_vectors})
        self._true = true.ids.reshape(-1, k)
        if not count or not len(self._true):
            raise InvalidInput(
                f"recall needs items and queries, got {count} and {len(self._true)}: add items, and give queries"
            )
        self._wanted = int((true.ids >= 0).sum())
        worst = np.where(true.ids >= 0, true.distances, np.finfo(np.float32).min).max(axis=-1, keepdims=True)
        self._as_near = worst + 1e-6 * np.abs(worst)

    def run(self, candidates: int | None, rerank: int | None) -> Evaluation:
        """Search for all queries once."""
        planned = {name: value for name, value in self._options.items() if name != "threads"}
        plan = self._explain(self._queries, self._k, candidates=candidates, rerank=rerank, **planned)
        start = time.perf_counter()
        found = self._search(self._queries, self._k, candidates=candidates, rerank=rerank, **self._options)
        seconds = time.perf_counter() - start
        # By distance, as ties are equally right, and by id, as the distance of the same item may be rounded otherwise.
        ids, distances = found.ids.reshape(-1, self._k), found.distances
        same, block = np.empty(ids.shape, dtype=bool), max(COMPARED_IDS // self._k**2, 1)
        for first in range(0, len(ids), block):
            some = slice(first, first + block)
            same[some] = (ids[some, :, None] == self._true[some, None, :]).any(axis=2)
        if self._exact is not None and self._exact.vectors is not None:
            rows, metric = self._exact.rows, self._exact.metric
            distances = self._exact.vectors.rerank(rows, ids, metric, threads=1).reshape(distances.shape)
        near = (same.reshape(found.ids.shape) | (distances <= self._as_near)) & (found.ids >= 0)
        compared, queries = float(np.mean(found.compared)), len(ids)
        return Evaluation(
            recall=float(near.sum() / self._wanted),
            standard_error=float(near.sum(axis=-1).std(ddof=min(1, queries - 1)) * queries**0.5 / self._wanted),
            compared=compared,
            share=compared / self.count,
            candidates=candidates or plan.compared,
            rerank=rerank or plan.reranked,
            seconds=seconds / np.size(found.compared),
            ns=plan.executed_ns(compared),
        )

    def fastest(self, target: float) -> Evaluation:
        """Return the fastest settings whose recall is a standard error above the target, or come near the best.

        The fastest of many settings is one that these queries favor: without a margin it often misses the target on
        other queries.
        """
        if len(self._true) < FEW_QUERIES:
            warnings.warn(
                f"settings are chosen by the recall of at least {FEW_QUERIES} queries, got {len(self._true)}: give "
                "more, some hundred if there are, as others may miss the target by far",
                stacklevel=3,
            )
        best, rerank = None, START * self._k // 4
        while best is None and rerank < min(MOST * self._k, self.count):
            rerank *= 4
            best = self._fewest(rerank, target)
        if best is None:
            return self._out_of_reach(target)
        for factor in STEPS:
            for change in (1 / factor, factor):
                better: Evaluation | None = best
                while better is not None:
                    best, better = better, self._faster(better, change, target)
        return best

    def effort(self, chosen: Evaluation) -> Effort:
        """Return settings as they hold for an index of any size."""
        return Effort(chosen.candidates, self.count, chosen.rerank, self._k)

    def _faster(self, best: Evaluation, change: float, target: float) -> Evaluation | None:
        """Return the fewest candidates with `rerank` changed by a factor, if that is faster; otherwise None."""
        rerank = min(max(round(best.rerank * change), self._k), self.count)
        if rerank == best.rerank or (change > 1 and rerank > best.candidates):
            return None
        found = self._fewest(rerank, target, best)
        return found if found is not None and found.ns < best.ns else None

    def _fewest(self, rerank: int, target: float, near: Evaluation | None = None) -> Evaluation | None:
        """Return the least candidate budget below all items that reaches the target; None where there is none.

        The search for it begins at the budget of other settings, if there are any, and gives up once it is slower.
        """
        low, high, step, best = 0, self.count, 2.0 if near is None else 1.2, None
        trial = max(self._k, self.count // 256) if near is None else near.candidates
        while low < trial < high:
            tried = self._try(trial, rerank)
            if _reaches(tried, target):
                high, best = trial, tried
            elif near is not None and tried.ns > near.ns:
                return None
            else:
                low = trial
            if best is not None and high <= TOLERANCE * low:
                break
            if best is None:
                trial = min(max(int(step * low), low + 1), self.count - 1)
            else:
                trial = max(int(high / step), self._k) if low == 0 else int((low * high) ** 0.5)
        return best

    def _try(self, candidates: int, rerank: int) -> Evaluation:
        """Search for all queries once for each choice of settings."""
        if (candidates, rerank) not in self._tried:
            self._tried[candidates, rerank] = self.run(candidates, rerank)
        return self._tried[candidates, rerank]

    def _out_of_reach(self, target: float) -> Evaluation:
        """Return an exhaustive search if that alone reaches a recall, otherwise the fastest of nearly the best."""
        best = self.run(self.count, START * self._k)
        if _reaches(best, target):
            if self.count > FEW_ITEMS:
                warnings.warn(
                    f"only an exhaustive search of all {self.count} items reaches a recall of {target}, and later "
                    "searches will be exhaustive: use a wider code, give the vectors, or lower target_recall",
                    stacklevel=4,
                )
            return best
        most = max((tried.recall for tried in self._tried.values()), default=0.0)
        near = [tried for tried in self._tried.values() if tried.recall >= most - NEARLY]
        chosen = min(near or [best], key=lambda tried: tried.ns)
        warnings.warn(
            f"no search reaches a recall of {target} by a standard error, an exhaustive one has {best.recall:.3f} ± "
            f"{best.standard_error:.3f}; later searches have {chosen.recall:.3f} with {chosen.candidates} of "
            f"{self.count} candidates: use a wider code, give the vectors or more queries, or lower target_recall",
            stacklevel=4,
        )
        return chosen


def _reaches(tried: Evaluation, target: float) -> bool:
    """Return whether recall is above a target by its standard error, so that other queries mostly reach it too."""
    return tried.recall - MARGIN * tried.standard_error >= target
