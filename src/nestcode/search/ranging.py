"""Range search by searches for the k nearest items, with larger k until the last hit lies beyond the radius."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import FLOAT32_MAX, is_number, shown
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.request import Request

FIRST_HITS, GROWTH = 64, 4  # of each query
HITS_AT_ONCE = 1 << 20  # of several queries together


def search_range(
    search: Callable[[Any, int], Hits],
    queries: Request | Codes | NDArray[Any],
    radius: float,
    *,
    single: bool,
    most: int | None = None,
) -> Hits | RangeHits:
    """Return all items within a distance of each query that a search finds, nearest first.

    >>> near = np.array([[1.0, 3.0, 9.0]], dtype=np.float32)
    >>> search = lambda _, k: Hits(np.array([[7, 8, 9]]), near, np.array([3]))
    >>> hits = search_range(search, np.zeros((1, 2)), 4, single=True)
    >>> hits.ids
    array([7, 8])

    Args:
        search: returns the k nearest items of some of the queries, as arrays of 2 dimensions.
        queries: all of them.
        radius: the distance.
        single: whether the result is that of one query.
        most: the largest k that `search` accepts.

    """
    if not is_number(radius):
        raise InvalidInput(f"radius must be a finite number, got {shown(radius)}")
    radius = float(np.float32(np.clip(radius, -FLOAT32_MAX, FLOAT32_MAX)))  # the type of distances
    found: list[Hits] = [Hits(np.empty(0, np.int64), np.empty(0, np.float32), 0)] * len(queries)
    waiting = [(np.arange(len(queries)), FIRST_HITS if most is None else min(FIRST_HITS, most))]
    while waiting:
        some, k = waiting.pop()
        room = max(HITS_AT_ONCE // k, 1)
        if len(some) > room:
            waiting.append((some[room:], k))
        some = some[:room]
        hits = search(queries[some], k)
        inside = (hits.distances <= radius) & (hits.ids >= 0)
        done = ~inside[:, -1] | (hits.compared <= k)
        for row in np.flatnonzero(done).tolist():
            own = inside[row]
            found[some[row]] = Hits(hits.ids[row, own], hits.distances[row, own], int(hits.compared[row]))
        if not done.all():
            if k == most:
                raise InvalidInput(f"a radius must have at most {most:,} items within here, got more: make it smaller")
            grown = min(GROWTH * k, int(hits.compared.max()))
            waiting.append((some[~done], grown if most is None else min(grown, most)))
    return found[0] if single else RangeHits(tuple(found))
