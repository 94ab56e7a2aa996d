"""Segments: immutable sorted runs of codes with their ids and vectors, and tombstones for what was deleted from them.

What searches scan, the `ScanLayout` of codes, is computed when a segment is built or merged, and stored with it.
A segment lies in memory or is mapped from files; mapped arrays are verified as they are touched (`storage.Mapped`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Bytes, Ids, StoredIds
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.filters import EVERYTHING
from nestcode.search.graph import NavigatingCodes, filled_up
from nestcode.search.nodes import StoredNodes
from nestcode.search.runs import Positions
from nestcode.search.schema import Schema
from nestcode.search.scorer import NO_LAYOUT, ScanLayout
from nestcode.search.vectors import BESIDE_CODES, StoredVectors
from nestcode.storage import MappedArrays

if TYPE_CHECKING:
    from nestcode.search.attributes import Attributes

NO_TOMBSTONES = np.empty(0, dtype=np.uint32)
MAX_WIDTH = 2**24  # bits of a code in a tree
MAX_ITEMS = 2**30  # of a segment: its tables hold about as many positions, counted in 32 bits
LayOut = Callable[[Codes], ScanLayout]  # what searches scan of sorted codes


def no_layout(codes: Codes) -> ScanLayout:  # noqa: ARG001
    """Return nothing: codes themselves are scanned, or no search scans them."""
    return NO_LAYOUT


@dataclass(frozen=True, eq=False)
class Segment:
    """Codes in lexicographic order, with what finds them by prefix and by id.

    Heads and places, 12 bytes an item, lie in files. A segment in memory computes them when they are first needed:
    most searches need neither.
    """

    codes: Codes
    tables: NDArray[np.uint32]  # where prefixes begin: cpp/nestcode/prefix_tables.hpp
    ids: StoredIds  # of the codes
    file_heads: NDArray[np.uint64] | None = None  # None in memory
    file_places: NDArray[np.uint32] | None = None  # None in memory
    vectors: StoredVectors | None = None  # of the codes, where the index stores them
    layout: ScanLayout = NO_LAYOUT  # of the codes; files of early versions lack it
    mapped: MappedArrays = field(default_factory=MappedArrays)  # by the array's name on disk
    file_attributes: tuple[Schema, Bytes] | None = None  # an Arrow IPC stream; None in memory, or where there are none
    built_attributes: "Attributes | None" = None

    @classmethod
    def build(
        cls,
        codes: Codes,
        ids: Ids,
        vectors: StoredVectors | None = None,
        lay_out: LayOut = no_layout,
        attributes: "Attributes | None" = None,
    ) -> Self:
        """Sort codes into a segment."""
        if codes.width > MAX_WIDTH:
            raise InvalidInput(
                f"codes in an index have at most {MAX_WIDTH} bits, got {codes.width}: take a prefix of that length"
            )
        _check_count(len(codes))
        order = codes.sort_order()
        codes, columns = codes[order], None if attributes is None else attributes[order]
        own = None if vectors is None else vectors[order]
        return cls._of(codes, _heads(codes), ids[order], own, lay_out(codes), columns)

    @classmethod
    def merge(cls, segments: Sequence["LiveSegment"], width: int, lay_out: LayOut = no_layout) -> Self:
        """Merge segments into one, without what was deleted."""
        count = sum(len(one) for one in segments)
        _check_count(count)
        for one in segments:
            one.mapped.touch()
        packed = np.empty((count, -(-width // 8)), dtype=np.uint8)
        heads, ids, sources = np.empty(count, np.uint64), np.empty(count, np.int64), np.empty(count, np.int64)
        _core.merge_trees([one.tree_once() for one in segments], packed, heads, ids, sources)
        stored = [one.vectors for one in segments if one.vectors is not None]
        vectors = StoredVectors.gather(stored, sources) if stored else None
        codes = Codes.unchecked(packed, width)
        columns = gather_attributes([(one.attributes, len(one.segment)) for one in segments], sources)
        return cls._of(codes, heads, ids, vectors, lay_out(codes), columns)

    @classmethod
    def _of(
        cls,
        codes: Codes,
        heads: NDArray[np.uint64],
        ids: Ids,
        vectors: StoredVectors | None,
        layout: ScanLayout,
        attributes: "Attributes | None",
    ) -> Self:
        stored: StoredIds = ids.astype(np.uint32) if ids.max(initial=0) < 2**32 else ids
        tables = _core.build_prefix_tables(heads, codes.width)
        return cls(codes, tables, stored, vectors=vectors, layout=layout, built_attributes=attributes)

    def __len__(self) -> int:
        return len(self.ids)

    @lazy_property
    def heads(self) -> NDArray[np.uint64]:
        """The first 64 bits of each code."""
        return _heads(self.codes) if self.file_heads is None else self.file_heads

    @lazy_property
    def places(self) -> NDArray[np.uint32]:
        """The positions of the codes in order of ids."""
        return _places(self.ids) if self.file_places is None else self.file_places

    @lazy_property
    def attributes(self) -> "Attributes | None":
        """The columns of the codes, where the index has some; without, all are null."""
        if self.file_attributes is None:
            return self.built_attributes
        from nestcode.search.attributes import Attributes

        schema, file = self.file_attributes
        return Attributes(schema, len(self), file=file, mapped=self.mapped.get("attributes"))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all arrays by their names on disk, and keep none that are computed for that."""
        held = self._held()
        places = _places(self.ids) if held["places"] is None else held["places"]
        complete = held | {"heads": self.heads_once(), "places": places}
        if self.built_attributes is not None:
            complete["attributes"] = self.built_attributes.file()
        return {name: array for name, array in complete.items() if array is not None}

    def heads_once(self) -> NDArray[np.uint64]:
        """Return the heads, and keep none that are computed for that."""
        held = self._held()["heads"]
        return _heads(self.codes) if held is None else held

    def nbytes_by_part(self) -> dict[str, int]:
        """Return the bytes of the arrays that are held, in memory or mapped, by their names on disk."""
        parts = {name: array.nbytes for name, array in self._held().items() if array is not None}
        return parts if self.built_attributes is None else {**parts, "attributes": self.built_attributes.nbytes}

    def _held(self) -> dict[str, NDArray[Any] | None]:
        return {
            "codes": self.codes.packed,
            "ids": self.ids,
            "heads": vars(self).get("heads", self.file_heads),
            "tables": self.tables,
            "places": vars(self).get("places", self.file_places),
            **self.layout.arrays(),
            **({} if self.vectors is None else self.vectors.arrays()),
            "attributes": None if self.file_attributes is None else self.file_attributes[1],
        }

    def truncate(self, width: int, lay_out: LayOut) -> "Segment":
        """Return the segment with the first `width` bits of its codes: they are in order already."""
        self.mapped.touch(but=BESIDE_CODES)
        packed = np.ascontiguousarray(self.codes.prefix(width).packed)
        changed = ("codes", "heads", "tables", *self.layout.arrays())
        mapped = MappedArrays((name, one) for name, one in self.mapped.items() if name not in changed)
        codes, places = Codes.unchecked(packed, width), self._held()["places"]
        tables = _core.build_prefix_tables(_heads(codes), width)
        columns = self.file_attributes, self.built_attributes
        return Segment(codes, tables, self.ids, None, places, self.vectors, lay_out(codes), mapped, *columns)

    def find(self, ids: Ids) -> NDArray[np.int64]:
        """Return the position of each id, or -1."""
        found = np.full(len(ids), -1, dtype=np.int64)
        _core.find_ids(self.ids, self.places, ids, found, self.mapped.guard("ids"), self.mapped.guard("places"))
        self.mapped.check()
        if found.max(initial=-1) >= len(self):
            raise DamagedFile(f"{self.mapped['places'].path} does not fit the other files: restore a copy")
        return found


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """The graph of a segment: its items are nodes, and each has the same number of neighbors among the others."""

    neighbors: NDArray[np.uint32]  # (n, degree): positions in the segment, its own where there are fewer neighbors
    items: NavigatingCodes | None = None  # what searches estimate distances by; early files lack it
    layout: str = ""  # the name of its layout
    mapped: MappedArrays = field(default_factory=MappedArrays)
    records: _core.GraphRecords | None = None  # of a graph that was built here: the neighbors lie in them
    nodes: StoredNodes | None = None  # where walks read them from a file
    walked: bool = True  # by searches; not where a memory tier would have to read nodes that no file holds

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the records."""
        neighbors = self.neighbors.nbytes if self.records is None else 0
        nodes = 0 if self.nodes is None else self.nodes.nbytes
        return neighbors + nodes + (0 if self.items is None else self.items.nbytes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names on disk."""
        arrays: dict[str, NDArray[Any]] = {"neighbors": filled_up(self.neighbors)}
        if self.items is None:
            return arrays
        return {**arrays, "groups": self.items.grouped, "corrections": self.items.corrections}

    def without_records(self) -> "StoredGraph":
        """Return the graph without records, whose bits differ from the bits of shorter codes."""
        return self if self.records is None else StoredGraph(self.neighbors.copy(), self.items, self.layout)

    def touch(self) -> None:
        """Verify the checksums of what was not read before, and that all neighbors are in the segment."""
        self.mapped.touch(but=("nodes",))  # which are a copy
        if self.mapped and self.neighbors.max(initial=0) >= len(self.neighbors):
            raise DamagedFile(f"{self.mapped['neighbors'].path} does not fit the other files: restore a copy")

    def blind_to(self, positions: NDArray[np.int64]) -> "StoredGraph":
        """Return the graph without edges to or from some nodes: FreshDiskANN's deletion, without pruning.

        An edge to one of them leads to one of its own neighbors instead, the nearest that the record does not name yet.

        Args:
            positions: of the nodes; -1 is none.

        """
        self.touch()
        neighbors, hidden = self.neighbors.copy(), np.sort(positions[positions >= 0])
        hidden = hidden[neighbors[hidden, 0] != hidden]  # duplicates are no nodes
        sources, slots = np.nonzero(np.isin(neighbors, hidden))
        for first in range(0, len(sources), PIECE):
            source, slot = sources[first : first + PIECE], slots[first : first + PIECE]
            own, others = neighbors[source], self.neighbors[neighbors[source, slot]]
            known = (others[:, :, None] == own[:, None, :]).any(axis=2) | (others == source[:, None])
            unknown = ~known & ~np.isin(others, hidden)
            nearest = others[np.arange(len(source)), unknown.argmax(axis=1)]
            neighbors[source, slot] = np.where(unknown.any(axis=1), nearest, own[:, 0])
        neighbors[hidden] = (hidden == 0)[:, None]
        return StoredGraph(neighbors, self.items, self.layout)


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment and its tombstones: the items that were deleted since it was written; and its graph, once built."""

    segment: Segment
    tombstones: NDArray[np.uint32] = field(default_factory=lambda: NO_TOMBSTONES)  # positions, ascending
    graph: StoredGraph | None = None

    @lazy_property
    def tree(self) -> _core.PrefixTree:
        """The segment as the core searches it by prefix."""
        return self._tree(self.segment.heads)

    def tree_once(self) -> _core.PrefixTree:
        """Return the tree for one use, after which no heads are kept that were computed for it."""
        return self._tree(self.segment.heads_once())

    def _tree(self, heads: NDArray[np.uint64]) -> _core.PrefixTree:
        segment, guarded = self.segment, ("codes", "heads", "tables", "ids")
        return _core.PrefixTree(
            (segment, self.tombstones, heads),
            segment.codes.packed,
            heads,
            NO_TOMBSTONES,  # rows are in order
            segment.tables,
            self.tombstones,
            segment.ids,
            segment.codes.width,
            *map(segment.mapped.guard, guarded),
        )

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
    def attributes(self) -> "Attributes | None":
        """The columns of the codes, where the index has some; without, all are null."""
        return self.segment.attributes

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
        self.tree_once().find_starts(bits, starts)
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
        return self.ids_at(EVERYTHING.kept(self).positions)

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at some positions."""
        self.mapped.touch_rows("ids", positions)
        return self.segment.ids[positions].astype(np.int64, copy=False)

    def verify(self) -> None:
        """Verify all checksums, also of what was read before."""
        self.mapped.verify()
        if self.graph is not None:
            self.graph.mapped.verify()

    def check_sizes(self) -> None:
        """Raise if a mapped file was truncated."""
        self.mapped.check_sizes()
        if self.graph is not None:
            self.graph.mapped.check_sizes()


def gather_attributes(
    parts: Sequence[tuple["Attributes | None", int]], sources: Ids | None = None
) -> "Attributes | None":
    """Return the attributes of runs, given with their counts, by positions in all runs together; all by default."""
    schema = max((own.schema for own, _ in parts if own is not None), key=len, default=None)
    if schema is None:
        return None
    from nestcode.search.attributes import Attributes

    complete = [Attributes.nulls(schema, count) if own is None else own for own, count in parts]
    return Attributes.gather(complete, sources)


def _heads(codes: Codes) -> NDArray[np.uint64]:
    heads = np.empty(len(codes), dtype=np.uint64)
    _core.load_heads(codes.packed, heads)
    return heads


def _places(ids: StoredIds) -> NDArray[np.uint32]:
    return np.argsort(ids, kind="stable").astype(np.uint32)


def _check_count(count: int) -> None:
    if count > MAX_ITEMS:
        raise InvalidInput(f"a segment holds at most {MAX_ITEMS} items, got {count}: use several indexes")
