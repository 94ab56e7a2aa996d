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
from nestcode.search.plan import Plan

RERANKS, MORE_RERANKS = (4, 10, 40), (160, 640)  # to try, times k; the larger ones where short codes estimate poorly
FEW_ITEMS = 10_000  # that an exhaustive search compares in no time


class RecallTrials:
    """Searches for the same queries with several settings, against an exhaustive one.

    Recall counts a hit that is as near as the k-th true neighbor, as ties are equally right. So it is not the recall of
    ids that `nestcode.metrics.recall` computes.

    Args:
        search: as `Index.search`.
        queries: not in the index, or they find themselves.
        k: how many nearest items count.
        count: items of the index.
        options: further arguments of every search.
        exact: a plan by vectors that the searches do not get.

    """

    def __init__(
        self,
        search: Callable[..., Hits],
        queries: Codes | ArrayLike,
        k: int,
        count: int,
        options: dict[str, Any],
        exact: Plan | None,
    ) -> None:
        self._search, self._queries, self._k, self.count, self._options = search, queries, k, count, options
        self._everything, self._exact = max(count, 1), exact
        by_vectors = {}
        if exact is not None and exact.vectors is not None:
            by_vectors = {"rank": "exact", "vectors": exact.vectors.source}
        true = search(queries, k, candidates=self._everything, **{**options, **by_vectors})
        self._true = true.ids.reshape(-1, k)
        self._wanted = int((true.ids >= 0).sum())
        worst = np.where(true.ids >= 0, true.distances, np.finfo(np.float32).min).max(axis=-1, keepdims=True)
        self._as_near = worst + 1e-6 * np.abs(worst)

    def run(self, candidates: int, rerank: int) -> Evaluation:
        """Search for all queries once."""
        start = time.perf_counter()
        found = self._search(self._queries, self._k, candidates=candidates, rerank=rerank, **self._options)
        seconds = time.perf_counter() - start
        # By distance, as ties are equally right, and by id, as the distance of the same item may be rounded otherwise.
        ids, distances = found.ids.reshape(-1, self._k), found.distances
        same = np.array([np.isin(*row) for row in zip(ids, self._true, strict=True)], dtype=bool)
        if self._exact is not None and self._exact.vectors is not None:
            rows, metric = self._exact.rows, self._exact.metric
            distances = self._exact.vectors.rerank(rows, ids, metric, threads=1).reshape(distances.shape)
        near = (same.reshape(found.ids.shape) | (distances <= self._as_near)) & (found.ids >= 0)
        compared = float(np.mean(found.compared)) if np.size(found.compared) else 0.0
        return Evaluation(
            recall=float(near.sum() / self._wanted) if self._wanted else 1.0,
            compared=compared,
            share=compared / self._everything,
            candidates=candidates,
            rerank=rerank,
            seconds=seconds / max(np.size(found.compared), 1),
        )

    def fastest(self, target: float) -> Evaluation:
        """Return the fastest settings that reach a recall, or an exhaustive search where none do."""
        if not self.count or not len(self._true):
            raise InvalidInput(
                f"tune needs items and queries, got {self.count} and {len(self._true)}: give some of both"
            )
        choices = [best for times in RERANKS if (best := self._fewest(times * self._k, target))]
        for times in MORE_RERANKS:
            if not choices and times * self._k < self._everything:
                choices = [best for best in [self._fewest(times * self._k, target)] if best]
        if choices:
            return min(choices, key=lambda choice: choice.seconds)
        best = self.run(self._everything, RERANKS[-1] * self._k)
        if best.recall < target or self.count > FEW_ITEMS:
            warnings.warn(
                f"no candidate budget below all {self.count} items reaches a recall of {target}; an exhaustive search "
                f"has {best.recall:.3f}, and later searches will be exhaustive: use a wider code, give the vectors, or "
                "lower target_recall",
                stacklevel=3,
            )
        return best

    def _fewest(self, rerank: int, target: float) -> Evaluation | None:
        """Return the smallest candidate budget that reaches the target, within 5 %; None where only all items do."""
        low, high, best = 0, self._everything, None
        trial = min(max(self._k, self._everything // 256), self._everything)
        while trial < self._everything and high - low > max(1, high // 20):
            tried = self.run(trial, rerank)
            if tried.recall >= target:
                high, best = trial, tried
            else:
                low = trial
            trial = 2 * low if best is None else (low + high) // 2
        return best
