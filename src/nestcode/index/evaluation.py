"""How much of an exact search a search finds, and the quickest settings that find enough: `evaluate` and `tune`."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestcode.codes import Codes
from nestcode.index.hits import Evaluation, Hits

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
        exact: vectors to compare with, where the searches are not given them.

    """

    def __init__(
        self, search: Callable[..., Hits], queries: Codes | ArrayLike, k: int, count: int, given: dict[str, Any],
        exact: ArrayLike | None,
    ) -> None:  # fmt: skip
        self._search, self._queries, self._k, self._count, self._given = search, queries, k, count, given
        self._everything = max(count, 1)
        by_vectors = {} if exact is None else {"rank": "exact", "vectors": exact}
        true = search(queries, k, candidates=self._everything, **{**given, **by_vectors})
        self._true = true.ids.reshape(-1, k)
        self._wanted = int((true.ids >= 0).sum())
        # Any that are as near will do; but distances to codes say nothing about those to vectors.
        least = np.finfo(np.float32).min
        worst = np.where((true.ids >= 0) & (exact is None), true.distances, least).max(axis=-1, keepdims=True)
        self._as_near = worst + 1e-6 * np.abs(worst)

    def run(self, candidates: int, rerank: int) -> Evaluation:
        """One search of all queries."""
        start = time.perf_counter()
        found = self._search(self._queries, self._k, candidates=candidates, rerank=rerank, **self._given)
        seconds = time.perf_counter() - start
        # By id too, as the same item's distance may be rounded otherwise.
        rows = zip(found.ids.reshape(-1, self._k), self._true, strict=True)
        same = np.array([np.isin(*row) for row in rows], dtype=bool).reshape(found.ids.shape)
        near = (same | (found.distances <= self._as_near)) & (found.ids >= 0)
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
        choices = [best for times in USUAL if (best := self._fewest(times * self._k, target))]
        for times in MANY:
            if not choices and times * self._k < self._everything:
                choices = [best for best in [self._fewest(times * self._k, target)] if best]
        if choices:
            return min(choices, key=lambda choice: choice.seconds)
        best = self.run(self._everything, USUAL[-1] * self._k)
        if best.recall < target or self._count > QUICK:
            warnings.warn(
                f"no fewer than all {self._count} items reach a recall of {target}; they have {best.recall:.3f}, and "
                "later searches will compare them all: take a wider code, give the vectors, or want less",
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
