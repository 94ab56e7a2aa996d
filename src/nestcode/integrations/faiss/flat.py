"""Exact search over vectors in memory: what a `NestedIndex` does before it has enough vectors to fit a coder."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids, as_floats, check_ids, check_rows
from nestcode.codes import thread_count
from nestcode.errors import InvalidInput
from nestcode.search.filters import check_allowed
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.request import check_k
from nestcode.search.scorer import SearchMetric


def in_use(taken: int) -> InvalidInput:
    """Return the error that an id of a new item is in use."""
    return InvalidInput(f"ids must be new, but {taken} is in use: remove it first with remove_ids, or give another")


class FlatVectors:
    """Vectors by id, with the methods of an `Index` that need no codes.

    >>> flat = FlatVectors(features=2)
    >>> flat.add([[0.0, 0.0], [3.0, 4.0]], ids=[5, 7])
    >>> flat.search([[3.0, 3.0]], k=3, metric="l2").ids
    array([[ 7,  5, -1]])
    """

    def __init__(self, features: int) -> None:
        self._row_of: dict[int, int] = {}  # id -> row, in order of the rows
        self._buffer: Floats = np.empty((0, features), dtype=np.float32)  # doubled when full

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def ids(self) -> Ids:
        """All ids, in the order of the rows."""
        return np.fromiter(self._row_of, dtype=np.int64, count=len(self))

    @property
    def vectors(self) -> Floats:
        """All vectors, (n, features)."""
        return self._buffer[: len(self)]

    def check_new(self, ids: ArrayLike, count: int) -> Ids:
        """Return the ids of `count` items as an array, or raise if one is in use."""
        checked = check_ids(ids, count)
        used = next((one for one in checked.tolist() if one in self._row_of), None)
        if used is not None:
            raise in_use(used)
        return checked

    def add(self, items: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors under ids that are not in use."""
        rows = as_floats(check_rows(items, self._buffer.shape[1])).astype(np.float32)
        new = self.check_new(ids, len(rows)).tolist()
        begin, end = len(self), len(self) + len(rows)
        if end > len(self._buffer):
            buffer = np.empty((max(end, 2 * begin), rows.shape[1]), dtype=np.float32)
            buffer[:begin] = self.vectors
            self._buffer = buffer
        self._buffer[begin:end] = rows
        self._row_of.update(zip(new, range(begin, end), strict=True))

    def remove(self, ids: Ids) -> None:
        """Remove the vectors with these ids."""
        known = self.ids
        kept = ~np.isin(known, ids)
        self._buffer = self.vectors[kept]
        self._row_of = {one: row for row, one in enumerate(known[kept].tolist())}

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        metric: SearchMetric,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> Hits:
        """Return the k nearest vectors of each query, by `Index.search`'s distances."""
        return self._search(check_rows(queries, self._buffer.shape[1]), check_k(k, len(self)), metric, filter, threads)

    def range_search(
        self,
        queries: ArrayLike,
        radius: float,
        *,
        candidates: int,  # noqa: ARG002
        metric: SearchMetric,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = None,
    ) -> RangeHits:
        """Return all vectors within a radius of each query, nearest first, as `Index.range_search` does."""
        found = []
        for point in check_rows(queries, self._buffer.shape[1]):
            every = self._search(point[None], max(len(self), 1), metric, filter, threads)
            inside = (every.ids[0] >= 0) & (every.distances[0] <= radius)
            found.append(Hits(every.ids[0, inside], every.distances[0, inside], int(every.compared[0])))
        return RangeHits(tuple(found))

    def reconstruct(self, ids: ArrayLike) -> Floats:
        """Return the vectors with these ids, (n, features)."""
        wanted = check_ids(ids, distinct=False).tolist()
        missing = next((one for one in wanted if one not in self._row_of), None)
        if missing is not None:
            raise InvalidInput(f"ids must be in the index, got {missing}, which is not")
        return self._buffer[[self._row_of[one] for one in wanted]]

    def _search(
        self,
        queries: NDArray[Any],
        k: int,
        metric: SearchMetric,
        filter: ArrayLike | Iterable[int] | None,  # noqa: A002
        threads: int | None,
    ) -> Hits:
        """Return the k nearest allowed vectors of each query."""
        ids, rows = self.ids, np.arange(len(self))
        if filter is not None:
            given = check_allowed(filter)
            rows = np.flatnonzero(np.isin(ids, np.flatnonzero(given) if given.dtype == bool else given))
        found, near = np.full((len(queries), k), -1), np.full((len(queries), k), np.inf, dtype=np.float32)
        points = np.ascontiguousarray(as_floats(queries))
        _core.scan(_core.VectorRuns(self.vectors), points, rows, ids[rows], metric, near, found, thread_count(threads))
        return Hits(found, near, np.full(len(queries), len(rows)))
