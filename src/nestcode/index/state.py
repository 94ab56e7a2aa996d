"""What an index holds at one moment. A state never changes: every change makes a new one.

So a search that began on one state is not disturbed by what another thread adds, and an index changes by replacing
one reference.

    parts: sorted segments, each with what was removed from it ──┐
    tail:  the newest items in order of arrival ─────────────────┴──▶ forest: all of it, searched as one tree
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index.segment import NONE, Part, Segment
from nestcode.index.tree import Forest

TAIL, TAIL_BYTES = 1024, 1 << 24  # items that wait in order of arrival, and their most; more make a segment
RATIO = 32  # a segment is at least this many times as large as all smaller ones together, or they are merged


@dataclass(frozen=True, eq=False)
class Tail:
    """The newest items. Rows and ids are buffers that later tails share and only write past `used`."""

    rows: NDArray[np.uint8]
    row_ids: NDArray[np.int64]
    used: int
    heads: NDArray[np.uint64]  # of what is left, sorted by code
    order: NDArray[np.uint32]  # the rows of what is left, sorted by code
    width: int

    @classmethod
    def empty(cls, width: int) -> Self:
        """A tail with room for TAIL items, or fewer if they are wide."""
        row = -(-width // 8)
        room = max(1, min(TAIL, TAIL_BYTES // max(row, 1)))
        return cls(
            np.empty((room, row), dtype=np.uint8),
            np.empty(room, dtype=np.int64),
            0,
            np.empty(0, dtype=np.uint64),
            NONE,
            width,
        )

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def tree(self) -> _core.PrefixTree:
        """The tail as the core searches it."""
        tables = _core.build_prefix_tables(self.heads, self.width)
        owner = (self.rows, self.row_ids, self.heads, self.order, tables)
        return _core.PrefixTree(owner, self.rows, self.heads, self.order, tables, NONE, self.row_ids, self.width)

    def check(self) -> None:
        """Memory needs no check."""

    def add(self, codes: Codes, ids: NDArray[np.int64]) -> "Tail":
        """The same with new items; there must be room."""
        end = self.used + len(codes)
        self.rows[self.used : end], self.row_ids[self.used : end] = codes.packed, ids
        count = len(self) + len(codes)
        heads, order = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint32)
        _core.insert_rows(self.rows[:end], self.used, self.heads, self.order, heads, order)
        return Tail(self.rows, self.row_ids, end, heads, order, self.width)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each id, or -1."""
        own = self.ids()
        by_id = np.argsort(own)
        spot = np.searchsorted(own, ids, sorter=by_id).clip(max=max(len(own) - 1, 0))
        return np.where(own[by_id[spot]] == ids, by_id[spot], -1) if len(own) else np.full(len(ids), -1)

    def without(self, places: NDArray[np.int64]) -> "Tail":
        """The same with some items removed."""
        return replace(self, heads=np.delete(self.heads, places), order=np.delete(self.order, places))

    def ids(self) -> NDArray[np.int64]:
        """The ids of what is left, sorted by code."""
        return self.row_ids[self.order]

    def codes_at(self, places: NDArray[np.int64]) -> Codes:
        """Some of the codes."""
        return Codes.unchecked(self.rows[self.order[places]], self.width)

    def codes(self) -> Codes:
        """All codes that are left, sorted."""
        return Codes.unchecked(self.rows[self.order], self.width)


@dataclass(frozen=True, eq=False)
class State:
    """Parts and a tail."""

    width: int
    parts: tuple[Part, ...]
    tail: Tail

    @classmethod
    def empty(cls, width: int) -> Self:
        """Nothing yet."""
        return cls(width, (), Tail.empty(width))

    @cached_property
    def forest(self) -> Forest:
        """All of it, searched as one tree."""
        return Forest(self.holders, self.width)

    @property
    def holders(self) -> tuple[Part | Tail, ...]:
        """Whatever holds items."""
        return (*self.parts, self.tail) if len(self.tail) else self.parts

    def __len__(self) -> int:
        return sum(map(len, self.holders))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        tail = self.tail.rows.nbytes + self.tail.row_ids.nbytes + self.tail.heads.nbytes + self.tail.order.nbytes
        return tail + sum(part.segment.nbytes + part.dead.nbytes for part in self.parts)

    def find(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each id which holder has it, or -1, and its place there."""
        holder, place = np.full(len(ids), -1), np.full(len(ids), -1)
        for h, one in enumerate(self.holders):
            found = one.find(ids)
            holder[found >= 0], place[found >= 0] = h, found[found >= 0]
        return holder, place

    def find_all(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same for ids that must be there."""
        holder, place = self.find(ids)
        if (holder < 0).any():
            raise InvalidInput(f"ids must be of items in the index, but {_some(ids[holder < 0])} not")
        return holder, place

    def freed(self, ids: NDArray[np.int64], on_duplicate: str) -> "State":
        """The same without items of these ids, if they may be replaced."""
        holder, place = self.find(ids)
        taken = holder >= 0
        if not taken.any():
            return self
        if on_duplicate == "error":
            raise InvalidInput(
                f'ids must be new, but {_some(ids[taken])} in use: give others, or say on_duplicate="replace"'
            )
        return self.without(holder[taken], place[taken])

    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending."""
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *(holder.ids() for holder in self.holders)]))

    def codes(self, holder: NDArray[np.int64], place: NDArray[np.int64]) -> Codes:
        """The codes of what `find` found."""
        packed = np.empty((len(holder), -(-self.width // 8)), dtype=np.uint8)
        for h, one in enumerate(self.holders):
            packed[holder == h] = one.codes_at(place[holder == h]).packed
        return Codes.unchecked(packed, self.width)

    def with_items(self, codes: Codes, ids: NDArray[np.int64]) -> "State":
        """The same with new items, whose ids must be new."""
        if self.tail.used + len(codes) <= len(self.tail.rows):
            return State(self.width, self.parts, self.tail.add(codes, ids))
        segment = Segment.build(self.tail.codes().concat(codes), np.concatenate([self.tail.ids(), ids]))
        return State(self.width, (*self.parts, Part(segment)), Tail.empty(self.width))

    def with_parts(self, parts: Sequence[Part]) -> "State":
        """The same with parts of another state, whose ids must be new."""
        # Parts are told apart by their segments, and the same one may come again: each is given an object of its own.
        own = (Part(replace(part.segment), part.dead) for part in parts)
        return replace(self, parts=(*self.parts, *own))

    def sealed(self) -> "State":
        """The same with the tail made a segment."""
        if not len(self.tail):
            return self
        segment = Segment.build(self.tail.codes(), self.tail.ids())
        return State(self.width, (*self.parts, Part(segment)), Tail.empty(self.width))

    def without(self, holder: NDArray[np.int64], place: NDArray[np.int64]) -> "State":
        """The same without what `find` found."""
        parts = [part.without(place[holder == h]) if (holder == h).any() else part for h, part in enumerate(self.parts)]
        tail = self.tail.without(place[holder == len(self.parts)])
        return State(self.width, tuple(part for part in parts if len(part)), tail)

    def swapped(self, sources: Sequence[Part], merged: Segment) -> "State":
        """The same with the merger of earlier parts in their place, less what was removed from them meanwhile."""
        now = {part.segment: part for part in self.parts}
        gone = []
        for source in sources:
            left = now.pop(source.segment, None)
            alive = np.delete(np.arange(len(source.segment)), source.dead)
            dead = alive if left is None else np.setdiff1d(left.dead, source.dead)
            gone.append(source.segment.ids[dead])
        part = Part(merged)
        if any(map(len, gone)):
            part = part.without(merged.find(np.concatenate(gone)))
        return replace(self, parts=(*((part,) if len(part) else ()), *now.values()))


def _some(ids: NDArray[np.int64]) -> str:
    listed = ", ".join(map(str, ids[:3].tolist())) + (", …" if len(ids) > 3 else "")
    return f"{listed} {'is' if len(ids) == 1 else 'are'}"


def crowded(parts: Sequence[Part]) -> list[Part]:
    """The parts to merge next, so that few are left and each item is copied few times; none if all is well.

    A part is merged with all smaller ones when it is less than RATIO times as large as they are together, and is
    written anew when a quarter of it was removed.
    """
    by_size = sorted(parts, key=len)
    chosen, smaller = 0, 0
    for count, part in enumerate(by_size, start=1):
        if count > 1 and len(part) < RATIO * smaller:
            chosen = count
        smaller += len(part)
    if chosen:
        return by_size[:chosen]
    return [part for part in parts if 4 * len(part.dead) > len(part.segment)][:1]
