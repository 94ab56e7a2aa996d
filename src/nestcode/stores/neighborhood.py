"""The paper's retrieval (section 5.1) on ordered scans: the nested neighborhood of a query in a database."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nestcode.arrays import Ids
from nestcode.codes import Codes
from nestcode.index.ordered import OrderedCodes, Scan


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """All items that share the first `length` bits of a query, in the order of their codes.

    >>> from nestcode.stores import SqliteStore
    >>> store = SqliteStore.create(":memory:", width=3)
    >>> store.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [1, 1, 1]]), ids=[5, 6, 7])
    >>> hood = store.neighborhood(Codes.from_bits([[0, 0, 1]]), size=2)
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

    def around(self, code: Codes, limit: int) -> tuple[Scan, Scan]:
        """Return what `ascend` and what `descend` return, both of one snapshot."""


def find_neighborhood(store: Surroundings, query: Codes, size: int) -> Neighborhood:
    """Return the smallest neighborhood of a query with at least `size` members, or the root: all items.

    Its members lie around the query's code. So `size` items on each side determine the length of the prefix; only where
    a side may hold more members is the range of that prefix read too. Each scan is of one snapshot, and the last one
    alone determines the answer, so others may write meanwhile.
    """
    while True:
        after, before = store.around(query, size)
        near = Scan(np.concatenate([before.ids[::-1], after.ids]), _reversed(before.codes).concat(after.codes))
        found = _narrow(query, near, size)
        ends = [side.codes[-1] for side in (after, before) if len(side.ids) == size]
        if all(query.common_prefix(end).item() < found.length for end in ends):
            return found
        members = store.range(query.prefix(found.length))
        if found.length == 0 or len(members.ids) >= size:  # or else some were removed meanwhile
            return _narrow(query, members, size)


def _narrow(query: Codes, scan: Scan, size: int) -> Neighborhood:
    """Return the smallest neighborhood among items that lie side by side."""
    shared = query.common_prefix(scan.codes)[0]
    length = int(np.partition(shared, -size)[-size]) if len(shared) >= size else 0
    return Neighborhood(length, scan.ids[shared >= length])


def _reversed(codes: Codes) -> Codes:
    return codes[np.arange(len(codes))[::-1]]
