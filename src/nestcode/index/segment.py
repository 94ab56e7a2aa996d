"""Segments: immutable sorted runs of codes with their ids and vectors, and tombstones for what was deleted from them.

What searches scan, the `ScanLayout` of codes, is computed when a segment is built or merged, and stored with it.
A segment lies in memory or is mapped from files; mapped arrays are verified as they are touched (`storage.Mapped`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Ids, StoredIds
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.search.scorer import NO_LAYOUT, ScanLayout
from nestcode.search.vectors import VECTOR_ARRAYS, StoredVectors
from nestcode.storage import Mapped, MappedArrays

NO_TOMBSTONES = np.empty(0, dtype=np.uint32)
MAX_WIDTH = 2**24  # bits of a code in a tree
MAX_ITEMS = 2**30  # of a segment: its tables hold about as many positions, counted in 32 bits
LayOut = Callable[[Codes], ScanLayout]  # what searches scan of sorted codes


def no_layout(codes: Codes) -> ScanLayout:  # noqa: ARG001
    """Return nothing: codes themselves are scanned, or no search scans them."""
    return NO_LAYOUT


@dataclass(frozen=True, eq=False)
class Segment:
    """Codes in lexicographic order, with what finds them by prefix and by id."""

    codes: Codes
    heads: NDArray[np.uint64]  # the first 64 bits of each code
    tables: NDArray[np.uint32]  # where prefixes begin: cpp/nestcode/prefix_tables.hpp
    ids: StoredIds  # of the codes
    by_id: NDArray[np.uint32]  # the positions of the codes in order of ids
    vectors: StoredVectors | None = None  # of the codes, where the index stores them
    layout: ScanLayout = NO_LAYOUT  # of the codes; files of early versions lack it
    mapped: MappedArrays = field(default_factory=MappedArrays)  # by the array's name on disk

    @classmethod
    def build(cls, codes: Codes, ids: Ids, vectors: StoredVectors | None = None, lay_out: LayOut = no_layout) -> Self:
        """Sort codes into a segment."""
        if codes.width > MAX_WIDTH:
            raise InvalidInput(
                f"codes in an index have at most {MAX_WIDTH} bits, got {codes.width}: take a prefix of that length"
            )
        _check_count(len(codes))
        order = codes.sort_order()
        codes = codes[order]
        heads = np.empty(len(codes), dtype=np.uint64)
        _core.load_heads(codes.packed, heads)
        return cls._of(codes, heads, ids[order], None if vectors is None else vectors[order], lay_out(codes))

    @classmethod
    def merge(cls, segments: Sequence["LiveSegment"], width: int, lay_out: LayOut = no_layout) -> Self:
        """Merge segments into one, without what was deleted."""
        count = sum(len(one) for one in segments)
        _check_count(count)
        for one in segments:
            one.mapped.touch()
        packed = np.empty((count, -(-width // 8)), dtype=np.uint8)
        heads, ids, sources = np.empty(count, np.uint64), np.empty(count, np.int64), np.empty(count, np.int64)
        _core.merge_trees([one.tree for one in segments], packed, heads, ids, sources)
        stored = [one.vectors for one in segments if one.vectors is not None]
        vectors = StoredVectors.gather(stored, sources) if stored else None
        codes = Codes.unchecked(packed, width)
        return cls._of(codes, heads, ids, vectors, lay_out(codes))

    @classmethod
    def _of(
        cls, codes: Codes, heads: NDArray[np.uint64], ids: Ids, vectors: StoredVectors | None, layout: ScanLayout
    ) -> Self:
        by_id = np.argsort(ids, kind="stable").astype(np.uint32)
        stored: StoredIds = ids.astype(np.uint32) if ids.max(initial=0) < 2**32 else ids
        return cls(codes, heads, _core.build_prefix_tables(heads, codes.width), stored, by_id, vectors, layout)

    def __len__(self) -> int:
        return len(self.heads)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by their names on disk."""
        return {
            "codes": self.codes.packed,
            "ids": self.ids,
            "heads": self.heads,
            "tables": self.tables,
            "places": self.by_id,
            **self.layout.arrays(),
            **({} if self.vectors is None else self.vectors.arrays()),
        }

    def truncate(self, width: int, lay_out: LayOut) -> "Segment":
        """Return the segment with the first `width` bits of its codes: they are in order already."""
        self.mapped.touch(but=VECTOR_ARRAYS)
        packed = np.ascontiguousarray(self.codes.prefix(width).packed)
        heads = np.empty(len(packed), dtype=np.uint64)
        _core.load_heads(packed, heads)
        changed = ("codes", "heads", "tables", *self.layout.arrays())
        mapped = MappedArrays((name, one) for name, one in self.mapped.items() if name not in changed)
        tables, codes = _core.build_prefix_tables(heads, width), Codes.unchecked(packed, width)
        return Segment(codes, heads, tables, self.ids, self.by_id, self.vectors, lay_out(codes), mapped)

    def find(self, ids: Ids) -> NDArray[np.int64]:
        """Return the position of each id, or -1."""
        found = np.full(len(ids), -1, dtype=np.int64)
        _core.find_ids(self.ids, self.by_id, ids, found, self.mapped.guard("ids"), self.mapped.guard("places"))
        self.mapped.check()
        if found.max(initial=-1) >= len(self):
            raise DamagedFile(f"{self.mapped['places'].path} does not fit the other files: restore a copy")
        return found


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """The graph of a segment: its items are nodes, and each has the same number of neighbors among the others."""

    neighbors: NDArray[np.uint32]  # (n, degree): positions in the segment, its own where there are fewer neighbors
    mapped: Mapped | None = None  # None in memory

    def touch(self) -> None:
        """Verify the checksums of what was not read before, and that all neighbors are in the segment."""
        if self.mapped is not None:
            self.mapped.touch(0, self.neighbors.nbytes)
            if self.neighbors.max(initial=0) >= len(self.neighbors):
                raise DamagedFile(f"{self.mapped.path} does not fit the other files: restore a copy")

    def verify(self) -> None:
        """Verify all checksums, also of what was read before."""
        if self.mapped is not None:
            self.mapped.verify()


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment and its tombstones: the items that were deleted since it was written; and its graph, once built."""

    segment: Segment
    tombstones: NDArray[np.uint32] = field(default_factory=lambda: NO_TOMBSTONES)  # positions, ascending
    graph: StoredGraph | None = None
    tree: _core.PrefixTree = field(init=False)

    def __post_init__(self) -> None:
        segment, guarded = self.segment, ("codes", "heads", "tables", "ids")
        tree = _core.PrefixTree(
            (segment, self.tombstones),
            segment.codes.packed,
            segment.heads,
            NO_TOMBSTONES,  # rows are in order
            segment.tables,
            self.tombstones,
            segment.ids,
            segment.codes.width,
            *map(segment.mapped.guard, guarded),
        )
        object.__setattr__(self, "tree", tree)

    def __len__(self) -> int:
        return len(self.segment) - len(self.tombstones)

    # what a search reads (search.prepared.SortedRun)

    @property
    def codes(self) -> Codes:
        """All codes, deleted ones too."""
        return self.segment.codes

    @property
    def ids(self) -> StoredIds:
        """The ids of the codes."""
        return self.segment.ids

    @property
    def vectors(self) -> StoredVectors | None:
        """The vectors of the codes, where the index stores them."""
        return self.segment.vectors

    @property
    def owner(self) -> Segment:
        """The segment, which outlives its tombstones."""
        return self.segment

    @property
    def layout(self) -> ScanLayout:
        """What searches scan of the codes."""
        return self.segment.layout

    @property
    def mapped(self) -> MappedArrays:
        """What is mapped from files."""
        return self.segment.mapped

    def list_starts(self, bits: int) -> NDArray[np.uint32]:
        """Return where the codes of each prefix of `bits` bits begin, and the end."""
        starts = np.empty((1 << bits) + 1, dtype=np.uint32)
        self.tree.find_starts(bits, starts)
        self.mapped.check()
        if starts[0] or starts[-1] != len(self.segment) or (starts[:-1] > starts[1:]).any():
            raise DamagedFile(f"{self.mapped['tables'].path} does not fit the other files: restore a copy")
        return starts

    # what a snapshot reads

    def find(self, ids: Ids) -> NDArray[np.int64]:
        """Return the position of each id, or -1 where it never was or is deleted."""
        found = self.segment.find(ids)
        if len(self.tombstones):
            nearest = self.tombstones[np.searchsorted(self.tombstones, found).clip(max=len(self.tombstones) - 1)]
            found[nearest == found] = -1
        return found

    def delete(self, positions: NDArray[np.int64]) -> "LiveSegment":
        """Return the segment with more tombstones."""
        deleted = np.sort(positions).astype(np.uint32)
        tombstones = np.insert(self.tombstones, np.searchsorted(self.tombstones, deleted), deleted)
        return LiveSegment(self.segment, tombstones, self.graph)

    def without_graph(self) -> "LiveSegment":
        """Return the segment with its tombstones only."""
        return LiveSegment(self.segment, self.tombstones)

    def codes_at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the codes at some positions."""
        self.mapped.touch_rows("codes", positions.astype(np.uint32))
        return self.segment.codes[positions]

    def live_ids(self) -> Ids:
        """Return the ids of what was not deleted."""
        if "ids" in self.mapped:
            self.mapped["ids"].touch(0, self.segment.ids.nbytes)
        return np.delete(self.segment.ids, self.tombstones).astype(np.int64, copy=False)

    def verify(self) -> None:
        """Verify all checksums, also of what was read before."""
        self.mapped.verify()
        if self.graph is not None:
            self.graph.verify()

    def check_sizes(self) -> None:
        """Raise if a mapped file was truncated."""
        self.mapped.check_sizes()
        if self.graph is not None and self.graph.mapped is not None:
            self.graph.mapped.check_size()


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise InvalidInput(f"a segment holds at most {MAX_ITEMS} items, got {count}: use several indexes")
