"""Nestcode for ann-benchmarks, which has this folder as ann_benchmarks/algorithms/nestcode."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import nestcode as nc

from ..base.module import BaseANN  # type: ignore[import-not-found]

METRICS: dict[str, Literal["l2", "cosine"]] = {"angular": "cosine", "euclidean": "l2"}


class Nestcode(BaseANN):  # type: ignore[misc]
    """An index of `CellCoder` codes, reranked by the vectors if `rerank_vectors`."""

    def __init__(self, metric: str, parameters: dict[str, Any]) -> None:
        self.metric = METRICS[metric]
        self.width, self.rerank_vectors = int(parameters["width"]), bool(parameters["rerank_vectors"])
        self.index: Any = None
        self.set_query_arguments(0.01, 40)

    def fit(self, X: NDArray[Any]) -> None:
        """Fit the coder and add all items."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        index = nc.Index(nc.CellCoder(self.width, metric=self.metric).fit(X))
        index.add(X)
        self.index, self.raw = index, {"vectors": X} if self.rerank_vectors else {}

    def set_query_arguments(self, share: float, rerank: int) -> None:
        """Set the candidate budget as a share of the items, and how many candidates are reranked."""
        self.share, self.rerank = share, rerank

    def query(self, q: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the ids of at most n items."""
        return self._search(q[None], n)[0]

    def batch_query(self, X: NDArray[Any], n: int) -> None:
        """Search for all rows in one batch."""
        self.found = self._search(X, n)

    def get_batch_results(self) -> list[NDArray[np.int64]]:
        """Return the ids of the last batch."""
        return self.found

    def get_memory_usage(self) -> float:
        """Return the kilobytes of the index, including vectors if it stores them."""
        if self.index is None:
            return 0.0
        return float((self.index.nbytes + sum(vectors.nbytes for vectors in self.raw.values())) / 1024)

    def __str__(self) -> str:
        kind = "reranked" if self.rerank_vectors else "compressed"
        return f"Nestcode({kind}, width={self.width}, share={self.share}, rerank={self.rerank})"

    def _search(self, queries: NDArray[Any], n: int) -> list[NDArray[np.int64]]:
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        candidates = max(n, round(self.share * len(self.index)))
        hits = self.index.search(queries, k=n, candidates=candidates, rerank=max(n, self.rerank), **self.raw)
        return [ids[ids >= 0] for ids in hits.ids]  # missing items have id -1
