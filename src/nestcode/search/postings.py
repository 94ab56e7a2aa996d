"""Postings: the items of each text in a column of lists, as an inverted index has them.

A scan of a column of lists compares every text of every item, which takes a hundred times as long as a search. Postings
take as long as a few scans to build, and a search for the text, by bisection, to look up.
"""

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import import_extra
from nestcode.search.runs import MISSING, Positions

pc = import_extra("pyarrow.compute", extra="arrow", purpose="attributes of items")


class Postings:
    """The items of each text in a column of lists.

    >>> import pyarrow as pa
    >>> postings = Postings(pa.array([["a", "b"], None, ["b", None], []], pa.large_list(pa.large_string())))
    >>> postings["b"].tolist(), postings["c"].tolist(), postings.counts("b").tolist()
    ([0, 2], [], [1, 1])

    Args:
        lists: an Arrow array of lists of texts.

    """

    def __init__(self, lists: Any) -> None:
        offsets = lists.offsets.to_numpy()
        items = np.repeat(np.arange(len(lists), dtype=np.uint32), np.diff(offsets))
        values = lists.values.slice(offsets[0], len(items)).dictionary_encode()
        order = pc.sort_indices(values.dictionary)
        self._texts = values.dictionary.take(order)  # ascending
        rank = np.empty(len(order) + 1, dtype=np.int32)
        rank[order.to_numpy()], rank[-1] = np.arange(len(order)), len(order)  # nulls come last
        ranks = rank[values.indices.fill_null(len(order)).to_numpy()]
        pairs = np.sort(ranks.astype(np.uint64) << 32 | items)  # integers sort in a fraction of the time of an argsort
        items, ranks = (pairs & MISSING).astype(np.uint32), (pairs >> 32).astype(np.int32)
        first = np.flatnonzero(np.diff(ranks, prepend=-1) | np.diff(items.astype(np.int64), prepend=-1))
        counts = np.diff(first, append=len(items))
        self._items: Positions = items[first]
        self._counts = counts.astype(np.min_scalar_type(counts.max(initial=0)))
        self._starts: NDArray[np.int64] = np.searchsorted(ranks[first], np.arange(len(order) + 1))

    def __getitem__(self, text: str) -> Positions:
        """Return the positions of the items whose list has a text, ascending."""
        return self._items[self._of(text)]

    def counts(self, text: str) -> NDArray[np.unsignedinteger[Any]]:
        """Return how often each of these lists has the text."""
        return self._counts[self._of(text)]

    def _of(self, text: str) -> slice:
        place = bisect_left(range(len(self._texts)), text, key=lambda i: self._texts[i].as_py())
        if place == len(self._texts) or self._texts[place].as_py() != text:
            return slice(0)
        return slice(*self._starts[place : place + 2].tolist())
