"""How much of an exact search a search finds, and the quickest settings that find enough: `evaluate` and `tune`."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.hits import Evaluation, Hits
from nestcode.search.plan import Request

USUAL, MANY = (4, 10, 40), (160, 640)  # items that are ranked again, times k; many where codes can tell little
QUICK = 10_000  # items that are soon compared


class Trials:
    """Searches for the same queries at several efforts, beside an exact one.

    Args:
        search: as `Index.search`.
        queries: not in the index, or they find themselves.
        k: how many nearest count.
        count: items of the index.
        given: what else each search is given.
        exact: a question by vectors that the searches are not given.

    """

    def __init__(
        self, search: Callable[..., Hits], queries: Codes | ArrayLike, k: int, count: int, given: dict[str, Any],
        exact: Request | None,
    ) -> None:  # fmt: skip
        self._search, self._queries, self._k, self.count, self._given = search, queries, k, count, given
        self._everything, self._exact = max(count, 1), exact
        by_vectors = {} if exact is None else {"rank": "exact", "vectors": exact.vectors}
        true = search(queries, k, candidates=self._everything, **{**given, **by_vectors})
        self._true = true.ids.reshape(-1, k)
        self._wanted = int((true.ids >= 0).sum())
        worst = np.where(true.ids >= 0, true.distances, np.finfo(np.float32).min).max(axis=-1, keepdims=True)
        self._as_near = worst + 1e-6 * np.abs(worst)

    def run(self, candidates: int, rerank: int) -> Evaluation:
        """One search of all queries."""
        start = time.perf_counter()
        found = self._search(self._queries, self._k, candidates=candidates, rerank=rerank, **self._given)
        seconds = time.perf_counter() - start
        # By distance, as any that are as near will do, and by id, as the same item's may be rounded otherwise.
        ids, distances = found.ids.reshape(-1, self._k), found.distances
        same = np.array([np.isin(*row) for row in zip(ids, self._true, strict=True)], dtype=bool)
        if self._exact is not None:
            distances = self._exact.exact(0, len(ids), ids, threads=1).reshape(distances.shape)
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

    def quickest(self, target: float) -> Evaluation:
        """The choice that reaches a recall in the least time; all items where none does."""
        if not self.count or not len(self._true):
            raise InvalidInput(
                f"tune needs items and queries, got {self.count} and {len(self._true)}: give some of both"
            )
        choices = [best for times in USUAL if (best := self._fewest(times * self._k, target))]
        for times in MANY:
            if not choices and times * self._k < self._everything:
                choices = [best for best in [self._fewest(times * self._k, target)] if best]
        if choices:
            return min(choices, key=lambda choice: choice.seconds)
        best = self.run(self._everything, USUAL[-1] * self._k)
        if best.recall < target or self.count > QUICK:
            warnings.warn(
                f"no fewer than all {self.count} items reach a recall of {target}; they have {best.recall:.3f}, and "
                "later searches will look at as many: take a wider code, give the vectors, or want less",
                stacklevel=3,
            )
        return best

    def _fewest(self, rerank: int, target: float) -> Evaluation | None:
        """The fewest candidates that reach the target, to a twentieth; none where only all of them do."""
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
