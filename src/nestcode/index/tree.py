"""The paper's binary tree over codes, and the nested neighborhoods of a query (section 5.1).

A sorted array of codes is the tree: all codes that share a prefix lie side by side. The C++ core descends it
(`cpp/nestcode/prefix_tree.hpp`); this file has the public queries and their results.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Protocol, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import Ids, StoredIds, check_budget, check_ids, is_number, shown
from nestcode.codes import Codes, is_single, thread_count
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.index.ordered import Scan, key_of, key_range
from nestcode.index.segment import LiveSegment, Segment
from nestcode.storage import MappedArrays

Neighborhood = _core.Neighborhood


class TreeRun(Protocol):
    """A sorted run of codes that can be searched by prefix: a segment of an index, or its buffer."""

    @property
    def tree(self) -> _core.PrefixTree:
        """The run as the core searches it."""

    def __len__(self) -> int: ...

    @property
    def mapped(self) -> MappedArrays:
        """The arrays that are mapped from files."""


class Neighborhoods:
    """Neighborhoods of several queries, or nested neighborhoods of one: arrays `length`, `count`, `offsets`, `ids`.

    >>> codes = Codes.from_bits([[0, 0, 1], [0, 0, 0], [1, 1, 1]])
    >>> hoods = PrefixTree(codes).neighborhood(codes, size=2)
    >>> hoods.length, hoods.count
    (array([2, 2, 0], dtype=int32), array([2, 2, 3]))
    >>> hoods.ids, hoods.offsets  # those of query i are ids[offsets[i] : offsets[i + 1]]
    (array([1, 0, 1, 0, 1, 0, 2]), array([0, 2, 4, 7]))
    >>> hoods[2].ids
    array([1, 0, 2])

    Ids are gathered when they are read, in the order of the tree: by segment, and by code within it.
    """

    def __init__(
        self,
        forest: "Forest",
        length: NDArray[np.int32],
        count: NDArray[np.int64],
        ranges: NDArray[np.uint32],
        threads: int = 1,
    ) -> None:
        self.length, self.count = length, count
        self._forest, self._ranges, self._threads = forest, ranges, threads

    @lazy_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the ids of each query begin, and their end: (n + 1,)."""
        offsets = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.count, out=offsets[1:])
        return offsets

    @lazy_property
    def ids(self) -> Ids:
        """The ids of all queries, one after the other."""
        ids = np.empty(self.offsets[-1], dtype=np.int64)
        self._forest.gather_ids(np.ascontiguousarray(self._ranges), self.offsets, ids, self._threads)
        self._forest.check()
        return ids

    def __len__(self) -> int:
        return len(self.length)

    @overload
    def __getitem__(self, i: SupportsIndex) -> Neighborhood: ...
    @overload
    def __getitem__(self, i: slice) -> "Neighborhoods": ...
    def __getitem__(self, i: SupportsIndex | slice) -> "Neighborhood | Neighborhoods":
        if isinstance(i, slice):
            return Neighborhoods(self._forest, self.length[i], self.count[i], self._ranges[i], self._threads)
        return Neighborhood(self._forest, int(self.length[i]), int(self.count[i]), self._ranges[i])

    def __iter__(self) -> Iterator[Neighborhood]:
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> Any:
        raise InvalidInput("neighborhoods read their index, and are not copied or pickled: keep their ids and length")

    def __repr__(self) -> str:
        return f"Neighborhoods({len(self)}: length={self.length}, count={self.count})"


Neighborhood.__reduce__ = Neighborhoods.__reduce__  # type: ignore[method-assign, assignment]


class Forest(_core.Forest):
    """The trees of several runs, searched as one."""

    def __init__(self, runs: Sequence[TreeRun], width: int) -> None:
        super().__init__([run.tree for run in runs], width)
        self.runs = tuple(runs)
        self.width = width
        self._count = sum(len(run) for run in runs)

    def __len__(self) -> int:
        return self._count

    def neighborhoods(
        self, queries: Codes, size: int | None = None, fraction: float | None = None, threads: int | None = 1
    ) -> Neighborhoods:
        """Return the neighborhood of each query, as `PrefixTree` describes it."""
        self._check_query(queries)
        least = least_members(size, fraction, len(self))
        n = len(queries)
        length, count = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int64)
        ranges = np.empty((n, len(self.runs), 2), dtype=np.uint32)
        several = thread_count(threads)
        self._find_neighborhoods(queries.packed, least, length, count, ranges, several)
        self.check()
        return Neighborhoods(self, length, count, ranges, several)

    def nested(self, query: Codes) -> Neighborhoods:
        """Return every neighborhood of one query, from the root (all items) to the longest shared prefix.

        >>> tree = PrefixTree(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> family = tree.nested(Codes.from_bits([[0, 0, 1]]))
        >>> list(zip(family.length.tolist(), family.count.tolist()))
        [(0, 4), (1, 3), (2, 2), (3, 1)]
        >>> family[2].ids
        array([1, 0])
        """
        self._check_query(query)
        if len(query) != 1:
            raise InvalidInput(f"nested takes one code, got {len(query)}: call it for each, as in codes[i]")
        lengths = np.arange(self.neighborhood(query[0], size=1).length + 1, dtype=np.int32)
        count = np.empty(len(lengths), dtype=np.int64)
        ranges = np.empty((len(lengths), len(self.runs), 2), dtype=np.uint32)
        self._find_prefixes(query.packed, count, ranges)
        self.check()
        return Neighborhoods(self, lengths, count, ranges)

    def check(self) -> None:
        """Raise if a search read from a damaged file."""
        if self._damaged:
            for run in self.runs:
                run.mapped.check()

    def _neighborhood(
        self, query: Codes, size: int | None, fraction: float | None, threads: int | None
    ) -> Neighborhood | Neighborhoods:
        """Handle the calls that the core leaves to Python: batches, fractions and errors."""
        hoods = self.neighborhoods(query, size, fraction, threads)
        return hoods[0] if is_single(query) else hoods

    def _check_query(self, query: Codes) -> None:
        if not isinstance(query, Codes):
            raise InvalidInput(
                f"queries must be Codes, got {type(query).__name__}: encode them with the coder that made the codes"
            )
        if query.width != self.width:
            raise InvalidInput(
                f"queries must have the width {self.width} of the searched codes, got {query.width}: "
                "encode them with the same coder, or take the prefix of that length"
            )


class PrefixTree(Forest):
    """A prefix tree of codes: finds the items that share the longest prefix with a query.

    >>> codes = Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    >>> tree = PrefixTree(codes)
    >>> hood = tree.neighborhood(codes[0], size=2)  # descend while at least 2 items are left
    >>> hood
    Neighborhood(length=2, count=2)
    >>> hood.ids  # in the order of the codes
    array([1, 0])
    >>> hoods = tree.neighborhood(codes[:2], size=2)  # a batch has arrays
    >>> hoods.length, hoods.ids, hoods.offsets
    (array([2, 2], dtype=int32), array([1, 0, 1, 0]), array([0, 2, 4]))

    `neighborhood(query, *, size=None, fraction=None, threads=1)` is the paper's retrieval: it follows the query's
    bits from the root and stops before the first neighborhood with fewer than `size` members (R in the paper), or
    fewer than `fraction` of all items. `length` is the number of bits that the members share with the query, `count`
    the number of members, and `ids` their ids in the order of the tree; `np.sort` them if the order matters. If there
    are fewer than `size` items, or too few share even the first bit, the neighborhood is the root: length 0 and every
    item. One `Code`, such as `codes[i]`, gives a `Neighborhood`, and `Codes` give `Neighborhoods`.

    An `Index` can change and be saved; a `PrefixTree` cannot.

    Args:
        codes: the items.
        ids: a distinct integer of at least 0 for each; their positions by default.

    """

    def __init__(self, codes: Codes, ids: ArrayLike | None = None) -> None:
        if not isinstance(codes, Codes):
            raise InvalidInput(f"expected Codes, got {type(codes).__name__}: encode(X) of a coder makes them")
        ids = np.arange(len(codes)) if ids is None else check_ids(ids, len(codes))
        self._segment = Segment.build(codes, ids)
        super().__init__([LiveSegment(self._segment)], codes.width)

    @property
    def codes(self) -> Codes:
        """The codes in the order of the tree."""
        return self._segment.codes

    def ascend(self, code: Codes, limit: int) -> Scan:
        """Return the first `limit` items whose codes are at least `code`, ascending."""
        self._check_query(code)
        first = self._position(key_of(code))
        return self._scan(slice(first, first + check_budget(limit, "limit")))

    def descend(self, code: Codes, limit: int) -> Scan:
        """Return the last `limit` items whose codes are less than `code`, descending."""
        self._check_query(code)
        end = self._position(key_of(code))
        return self._scan(np.arange(max(0, end - check_budget(limit, "limit")), end)[::-1])

    def range(self, prefix: Codes) -> Scan:
        """Return all items whose codes begin with `prefix`, ascending."""
        return self._scan(slice(*map(self._position, key_range(prefix, self.width))))

    def _position(self, key: bytes) -> int:
        """Return how many codes are less than a key."""
        rows = self.codes.packed
        return bisect_left(range(len(rows)), key, key=lambda row: rows[row].tobytes())

    def _scan(self, positions: slice | NDArray[np.int64]) -> Scan:
        return Scan(self._segment.ids[positions].astype(np.int64), self.codes[positions])

    def __repr__(self) -> str:
        return f"PrefixTree({len(self)} items of {self.width} bits)"

    def __reduce__(self) -> tuple[type[Self], tuple[Codes, StoredIds]]:
        return type(self), (self.codes, self._segment.ids)


def least_members(size: int | None, fraction: float | None, count: int) -> int:
    """Return how many members a neighborhood of `count` items must have."""
    if (size is None) == (fraction is None):
        raise InvalidInput(
            f"give either size, the fewest members accepted, or fraction, their share of all items, "
            f"got size={shown(size)} and fraction={shown(fraction)}"
        )
    if fraction is None:
        return check_budget(size, "size")
    if not is_number(fraction) or not 0 < fraction <= 1:
        raise InvalidInput(f"fraction must be above 0 and at most 1, got {shown(fraction)}: 0.01 is 1 % of the items")
    least = max(1, ceil(fraction * count))
    # 7 of 25 items are 0.28 of them, but 0.28 * 25 is rounded to more than 7.
    return least - 1 if least > 1 and (least - 1) / count >= fraction else least
