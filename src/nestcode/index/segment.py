"""Segments: sorted codes with their ids that never change. An index is a few of them.

A segment lies in memory or is mapped from files; mapped arrays are checked as they are touched (`storage.Mapped`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import Mapped

NONE = np.empty(0, dtype=np.uint32)
WIDEST = 2**24  # bits of a code in a tree
MAX_ITEMS = 2**30  # and three times as many numbers in tables, counted in 32 bits


@dataclass(frozen=True, eq=False)
class Segment:
    """Codes in lexicographic order, with what finds them by prefix and by id."""

    codes: Codes
    heads: NDArray[np.uint64]  # the first 64 bits of each code
    tables: NDArray[np.uint32]  # where prefixes begin: cpp/nestcode/prefix_tables.hpp
    ids: NDArray[np.int64]  # of the codes
    places: NDArray[np.uint32]  # of the codes, by ascending id
    mapped: dict[str, Mapped] = field(default_factory=dict)  # by name of the array, for segments in files

    @classmethod
    def build(cls, codes: Codes, ids: NDArray[np.int64]) -> Self:
        """Sort codes into a segment."""
        check_width(codes.width)
        _check_count(len(codes))
        order = codes.sort_order()
        codes = codes[order]
        heads = np.empty(len(codes), dtype=np.uint64)
        _core.load_heads(codes.packed, heads)
        return cls._of(codes, heads, ids[order])

    @classmethod
    def merge(cls, parts: Sequence["Part"], width: int) -> Self:
        """One segment of all that the parts hold and was not removed."""
        count = sum(len(part) for part in parts)
        _check_count(count)
        for part in parts:
            part.segment.touch()
        packed = np.empty((count, -(-width // 8)), dtype=np.uint8)
        heads, ids = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.int64)
        _core.merge_trees([part.tree for part in parts], packed, heads, ids)
        return cls._of(Codes.unchecked(packed, width), heads, ids)

    @classmethod
    def _of(cls, codes: Codes, heads: NDArray[np.uint64], ids: NDArray[np.int64]) -> Self:
        places = np.argsort(ids, kind="stable").astype(np.uint32)
        return cls(codes, heads, _core.build_prefix_tables(heads, codes.width), ids, places)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, or of files where it is mapped."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of it by name."""
        return {
            "codes": self.codes.packed,
            "ids": self.ids,
            "heads": self.heads,
            "tables": self.tables,
            "places": self.places,
        }

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each id, or -1."""
        found = np.full(len(ids), -1, dtype=np.int64)
        guards = (self.mapped[name].guard if self.mapped else None for name in ("ids", "places"))
        _core.find_ids(self.ids, self.places, ids, found, *guards)
        self.check()
        if found.max(initial=-1) >= len(self):
            raise DamagedFile(f"{self.mapped['places'].path} does not fit the other files: restore a copy")
        return found

    def touch(self) -> None:
        """Prove that all of it is what was written, before all of it is read."""
        for mapped in self.mapped.values():
            mapped.touch(0, mapped.array.nbytes)

    def verify(self) -> None:
        """Prove that all of it is what was written, also what was read before."""
        for mapped in self.mapped.values():
            mapped.verify()

    def check(self) -> None:
        """Raise if what was read so far is not what was written."""
        for mapped in self.mapped.values():
            mapped.check()


@dataclass(frozen=True, eq=False)
class Part:
    """A segment and which of its items were removed."""

    segment: Segment
    dead: NDArray[np.uint32] = field(default_factory=lambda: NONE)  # their places, ascending
    tree: _core.PrefixTree = field(init=False)

    def __post_init__(self) -> None:
        segment, watched = self.segment, ("codes", "heads", "tables", "ids")
        tree = _core.PrefixTree(
            (segment, self.dead),
            segment.codes.packed,
            segment.heads,
            NONE,
            segment.tables,
            self.dead,
            segment.ids,
            segment.codes.width,
            *(segment.mapped[name].guard if segment.mapped else None for name in watched),
        )
        object.__setattr__(self, "tree", tree)

    def __len__(self) -> int:
        return len(self.segment) - len(self.dead)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each id, or -1 where it never was or is no more."""
        found = self.segment.find(ids)
        if len(self.dead):
            nearest = self.dead[np.searchsorted(self.dead, found).clip(max=len(self.dead) - 1)]
            found[nearest == found] = -1
        return found

    def without(self, places: NDArray[np.int64]) -> "Part":
        """The same with some items removed."""
        gone = np.sort(places).astype(np.uint32)
        return Part(self.segment, np.insert(self.dead, np.searchsorted(self.dead, gone), gone))

    def codes_at(self, places: NDArray[np.int64]) -> Codes:
        """Some of the codes."""
        segment = self.segment
        if segment.mapped:
            step = segment.codes.packed.shape[1]
            for place in places.tolist():
                segment.mapped["codes"].touch(place * step, (place + 1) * step)
        return segment.codes[places]

    def check(self) -> None:
        """Raise if what was read so far is not what was written."""
        self.segment.check()

    def ids(self) -> NDArray[np.int64]:
        """The ids of what was not removed."""
        if self.segment.mapped:
            self.segment.mapped["ids"].touch(0, self.segment.ids.nbytes)
        return np.delete(self.segment.ids, self.dead)


def check_ids(ids: ArrayLike, count: int | None = None, *, distinct: bool = True) -> NDArray[np.int64]:
    """Ids as an array: whole numbers of at least 0, one for each of `count` items."""
    array = np.atleast_1d(np.asarray(ids))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"ids must be whole numbers in 1 dimension, got {array.dtype} of shape {array.shape}: "
            "number your items, and keep names in a list beside the index"
        )
    if count is not None and len(array) != count:
        raise InvalidInput(f"there must be one id for each item, got {len(array)} ids for {count} items")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int64).max):
        raise InvalidInput(f"ids must be from 0 to 2^63 - 1, got {array.min()} to {array.max()}")
    array = array.astype(np.int64)
    if distinct:
        ordered = np.sort(array)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.size:
            raise InvalidInput(f"ids must be distinct, got {twice[0]} more than once: give each item its own")
    return array


def ids_after(largest: int, count: int) -> NDArray[np.int64]:
    """The next ids when `largest` was the largest so far."""
    if largest + count >= 2**63:
        raise InvalidInput(
            f"ids cannot go on from {largest}: give ids of your own, as {count} more than the largest used so far "
            "would reach 2^63"
        )
    return np.arange(count) + (largest + 1)  # and not up to 2^63, which is no int64


def check_width(width: int) -> None:
    """Raise if codes are too wide to be searched."""
    if width > WIDEST:
        raise InvalidInput(f"codes in an index have at most {WIDEST} bits, got {width}: take a prefix of that length")


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise InvalidInput(f"a segment holds at most {MAX_ITEMS} items, got {count}: use several indexes")
