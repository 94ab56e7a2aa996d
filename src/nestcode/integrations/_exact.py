"""Vectors as they are, each compared with every query: what an index is before it has enough of them to fit a coder."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles, Floats, Ids, as_floats, check_ids, check_rows
from nestcode.errors import InvalidInput
from nestcode.search.exhaustive import QUERIES, as_float64, vector_distances
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.plan import check_filter, check_k
from nestcode.search.scorer import Metric


class ExactRows:
    """Vectors by id, with the part of an `Index` that needs no codes.

    >>> rows = ExactRows(features=2)
    >>> rows.add([[0.0, 0.0], [3.0, 4.0]], ids=[5, 7])
    >>> rows.search([[3.0, 3.0]], k=3, metric="l2").ids
    array([[ 7,  5, -1]])
    """

    def __init__(self, features: int) -> None:
        self._places: dict[int, int] = {}  # the row of each id, in order
        self._room: Floats = np.empty((0, features), dtype=np.float32)  # twice as much when it is full

    def __len__(self) -> int:
        return len(self._places)

    @property
    def ids(self) -> Ids:
        """All ids, in the order of the rows."""
        return np.fromiter(self._places, dtype=np.int64, count=len(self))

    @property
    def rows(self) -> Floats:
        """All vectors, (n, features)."""
        return self._room[: len(self)]

    def check_new(self, ids: ArrayLike, count: int) -> Ids:
        """Ids for so many items, none of which is in use."""
        checked = check_ids(ids, count)
        used = next((one for one in checked.tolist() if one in self._places), None)
        if used is not None:
            raise InvalidInput(f"ids must be new, but {used} is in use: remove it first, or give another")
        return checked

    def add(self, items: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors under ids that are not in use."""
        rows = as_floats(check_rows(items, self._room.shape[1])).astype(np.float32)
        known = self.check_new(ids, len(rows)).tolist()
        begin, end = len(self), len(self) + len(rows)
        if end > len(self._room):
            room = np.empty((max(end, 2 * begin), rows.shape[1]), dtype=np.float32)
            room[:begin] = self.rows
            self._room = room
        self._room[begin:end] = rows
        self._places.update(zip(known, range(begin, end), strict=True))

    def remove(self, ids: Ids) -> None:
        """Remove what has these ids."""
        known = self.ids
        kept = ~np.isin(known, ids)
        self._room = self.rows[kept]
        self._places = {one: row for row, one in enumerate(known[kept].tolist())}

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        metric: Metric,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = None,  # noqa: ARG002
    ) -> Hits:
        """The k nearest of each query, by distances as `Index.search` gives them; NumPy chooses its threads."""
        k = check_k(k, len(self))
        asked, rows, ids = self._ready(queries, metric, filter)
        near = np.full((len(asked), k), np.inf, dtype=np.float32)
        found = np.full((len(asked), k), -1, dtype=np.int64)
        for first in range(0, len(asked), QUERIES):
            part = slice(first, first + QUERIES)
            distances = vector_distances(asked[part], rows, metric)
            order = np.argsort(distances, axis=1, kind="stable")[:, :k]
            near[part, : order.shape[1]] = np.take_along_axis(distances, order, axis=1)
            found[part, : order.shape[1]] = ids[order]
        return Hits(found, near, np.full(len(asked), len(rows)))

    def range_search(
        self,
        queries: ArrayLike,
        radius: float,
        *,
        candidates: int,  # noqa: ARG002
        metric: Metric,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = None,  # noqa: ARG002
    ) -> RangeHits:
        """All within a distance of each query, nearest first, as `Index.range_search` gives them."""
        asked, rows, ids = self._ready(queries, metric, filter)
        found = []
        for query in asked:
            distances = vector_distances(query[None], rows, metric)[0]
            order = np.argsort(distances, kind="stable")
            order = order[distances[order] <= radius]
            found.append(Hits(ids[order], distances[order], len(rows)))
        return RangeHits(tuple(found))

    def _ready(
        self, queries: ArrayLike, metric: Metric, chosen: ArrayLike | Iterable[int] | None
    ) -> tuple[Doubles, Doubles, Ids]:
        """Queries and rows, of length 1 for the cosine, and the ids of those that may be found."""
        rows, ids = self.rows, self.ids
        if chosen is not None:
            allowed = check_filter(chosen)(ids)
            rows, ids = rows[allowed], ids[allowed]
        asked = check_rows(queries, rows.shape[1])
        by_angle = metric == "cosine"
        return as_float64(asked, normalize=by_angle), as_float64(rows, normalize=by_angle), ids

    def reconstruct(self, ids: ArrayLike) -> Floats:
        """The vectors with these ids, (n, features)."""
        wanted = check_ids(ids, distinct=False).tolist()
        missing = next((one for one in wanted if one not in self._places), None)
        if missing is not None:
            raise InvalidInput(f"ids must be in the index, got {missing}, which is not")
        return self._room[[self._places[one] for one in wanted]]
