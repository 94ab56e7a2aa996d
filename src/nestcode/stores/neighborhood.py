"""The paper's retrieval (section 5.1) on ordered scans: the nested neighborhood of a query in a database."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Ids
from nestcode.codes import Codes
from nestcode.index.ordered import OrderedCodes, Scan

LEADING = 64  # bits of codes that are read at first: neighborhoods seldom share more


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """All items that share the first `length` bits of a query, in the order of their codes.

    >>> from nestcode.stores import SqliteStore
    >>> store = SqliteStore.create(":memory:", width=3)
    >>> store.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [1, 1, 1]]), ids=[5, 6, 7])
    >>> hood = store.neighborhood(Codes.from_bits([[0, 0, 1]])[0], size=2)
    >>> hood, hood.ids
    (Neighborhood(length=2, count=2), array([6, 5]))
    """

    length: int  # bits of the shared prefix
    ids: Ids

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Neighborhood(length={self.length}, count={self.count})"


class Surroundings(OrderedCodes, Protocol):
    """Ordered codes that ascend and descend at one moment."""

    def around(self, code: Codes, limit: int, length: int) -> tuple[Scan, Scan]:
        """Return what `ascend` and what `descend` return, both of one snapshot, with prefixes of `length` bits."""


def find_neighborhood(store: Surroundings, query: Codes, size: int) -> Neighborhood:
    """Return the smallest neighborhood of a query with at least `size` members, or the root: all items.

    Its members lie around the query's code. So `size` items on each side determine the length of the prefix; half as
    many more hold most neighborhoods whole. Whole codes are read only where members share all leading bits, and the
    range of the prefix only where a side may hold more members. Each scan is of one snapshot, and the last one alone
    determines the answer, so other processes may write meanwhile.
    """
    limit, known = size + size // 2, min(LEADING, query.width)
    while True:
        after, before = store.around(query, limit, known)
        ids = np.concatenate([before.ids[::-1], after.ids])
        codes = Codes.unchecked(np.concatenate([before.codes.packed[::-1], after.codes.packed]), known)
        shared = query.prefix(known).common_prefix(codes)[0]
        found = _narrow(ids, shared, size)
        if found.length == known < query.width:
            known = query.width
            continue
        full = [end for end, side in ((0, before), (-1, after)) if len(side.ids) == limit]
        if all(shared[end] < found.length for end in full):
            return found
        members = store.range(query.prefix(found.length))
        if found.length == 0 or len(members.ids) >= size:  # or else some were removed meanwhile
            return _narrow(members.ids, query.common_prefix(members.codes)[0], size)


def _narrow(ids: Ids, shared: NDArray[np.int32], size: int) -> Neighborhood:
    """Return the smallest neighborhood among items, given how many bits they share with the query."""
    length = int(np.partition(shared, -size)[-size]) if len(shared) >= size else 0
    return Neighborhood(length, ids[shared >= length])
