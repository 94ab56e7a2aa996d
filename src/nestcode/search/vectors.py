"""Exact distances: reranking by the vectors themselves, which the caller keeps."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.scorer import NO_NORMS, SearchMetric


class Vectors:
    """The vectors of all items, a row for each id: an array or a memory map."""

    def __init__(self, vectors: ArrayLike) -> None:
        if isinstance(vectors, Codes):
            raise InvalidInput("vectors must be a numeric array, got Codes: give the items that were encoded")
        array = vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors)
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise InvalidInput(
                f"vectors must be numeric in 2 dimensions, a row for each id, got {array.dtype} of shape {array.shape}"
            )
        self.array: NDArray[Any] = array

    @property
    def features(self) -> int:
        """Features of a vector."""
        return int(self.array.shape[1])

    def rows(self, ids: Ids) -> NDArray[Any]:
        """Return the vectors of these ids, (ids, features)."""
        self.check(ids)
        rows: NDArray[Any] = self.array[ids]
        return rows

    def rerank(self, queries: NDArray[np.floating[Any]], ids: Ids, metric: SearchMetric, threads: int) -> Floats:
        """Return distances from each query to the vectors of its ids, (queries, ids); infinite for ids of -1."""
        self.check(ids)
        vectors = self.array
        if not (vectors.dtype == np.float32 and vectors.flags.c_contiguous and vectors.flags.aligned):
            kept, ids = np.unique(ids[ids >= 0]), ids.copy()
            ids[ids >= 0] = np.searchsorted(kept, ids[ids >= 0])
            center = median(queries) if metric == "l2" else 0  # far from 0, float32 would round differences away
            queries, vectors = queries - center, np.ascontiguousarray(vectors[kept] - center, dtype=np.float32)
        queries = queries.astype(np.float32, copy=False)
        out = np.empty(ids.shape, dtype=np.float32)
        own = np.ascontiguousarray(ids)
        _core.rerank(np.asarray(vectors), queries, own, metric, out, threads, NO_NORMS, 0.0, NO_NORMS)
        if np.isnan(out).any():
            raise InvalidInput("vectors must be finite, but some of those compared hold NaN: drop or impute such rows")
        return out

    def check(self, ids: Ids) -> None:
        """Raise unless there is a row for each of these ids."""
        if ids.max(initial=-1) >= len(self.array):
            raise InvalidInput(
                f"vectors must have a row for each id, but id {ids.max()} is beyond their {len(self.array)} rows"
            )


def median(queries: NDArray[Any]) -> NDArray[Any]:
    """Return the median of queries, one of their own values: squares around it are small where data is far from 0."""
    center: NDArray[Any] = np.partition(queries, len(queries) // 2, axis=0)[len(queries) // 2]
    return center
