"""The write buffer of an index: the newest items, before they are flushed to a segment (an LSM-tree's memtable)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes, Ids
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.index.segment import NO_TOMBSTONES, gather_attributes
from nestcode.search.runs import Positions
from nestcode.search.scorer import NO_LAYOUT, ScanLayout
from nestcode.search.vectors import StoredVectors, VectorFormat
from nestcode.storage import MappedArrays

if TYPE_CHECKING:
    from nestcode.search.attributes import Attributes

BUFFER_ITEMS, BUFFER_BYTES = 1024, 1 << 24  # that a buffer holds at most; more become a segment


@dataclass(frozen=True, eq=False)
class Buffer:
    """Items in order of arrival, and their order by code.

    A buffer never changes: later buffers share the arrays of rows and write only past `used`. The first insertion
    allocates them.
    """

    capacity: int  # rows that it has room for
    rows: Bytes  # (capacity or none, bytes): packed codes
    row_ids: Ids  # (capacity or none,)
    used: int  # rows that were written
    heads: NDArray[np.uint64]  # the first 64 bits of what was not deleted, sorted by code
    order: NDArray[np.uint32]  # the rows of what was not deleted, sorted by code
    width: int
    row_vectors: StoredVectors | None = None  # (capacity or none, features), where the index stores vectors
    row_attributes: tuple["Attributes", ...] = ()  # of all rows used, where the index has attributes

    @classmethod
    def empty(cls, width: int, vectors: VectorFormat | None = None) -> Self:
        """Return a buffer with room for BUFFER_ITEMS items, or fewer if they are wide."""
        row = -(-width // 8)
        bytes_of_item = max(row, 1) + (0 if vectors is None else vectors.row_bytes)
        return cls(
            max(1, min(BUFFER_ITEMS, BUFFER_BYTES // bytes_of_item)),
            np.empty((0, row), dtype=np.uint8),
            np.empty(0, dtype=np.int64),
            0,
            np.empty(0, dtype=np.uint64),
            np.empty(0, dtype=np.uint32),
            width,
            None if vectors is None else vectors.empty(0),
        )

    def __len__(self) -> int:
        return len(self.order)

    @property
    def room(self) -> int:
        """How many more items fit."""
        return self.capacity - self.used

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        vectors = 0 if self.row_vectors is None else self.row_vectors.nbytes
        attributes = sum(part.nbytes for part in self.row_attributes)
        return self.rows.nbytes + self.row_ids.nbytes + self.heads.nbytes + self.order.nbytes + vectors + attributes

    @lazy_property
    def tree(self) -> _core.PrefixTree:
        """The buffer as the core searches it."""
        tables = _core.build_prefix_tables(self.heads, self.width)
        owner = (self.rows, self.row_ids, self.heads, self.order, tables)
        return _core.PrefixTree(
            owner, self.rows, self.heads, self.order, tables, NO_TOMBSTONES, self.row_ids, self.width
        )

    # what a search reads (search.prepared.SortedRun)

    mapped: ClassVar[MappedArrays] = MappedArrays()  # it is in memory

    @property
    def codes(self) -> Codes:
        """The codes, sorted."""
        return Codes.unchecked(self.rows[self.order], self.width)

    @property
    def ids(self) -> Ids:
        """The ids of the codes."""
        return self.row_ids[self.order]

    @lazy_property
    def vectors(self) -> StoredVectors | None:
        """The vectors of the codes."""
        return None if self.row_vectors is None else self.row_vectors[self.order]

    @lazy_property
    def attributes(self) -> "Attributes | None":
        """The columns of the codes, where the index has some."""
        found = gather_attributes([(part, len(part)) for part in self.row_attributes])
        return None if found is None else found[self.order]

    @property
    def tombstones(self) -> NDArray[np.uint32]:
        """None: what is deleted from a buffer leaves it at once."""
        return NO_TOMBSTONES

    @property
    def graph(self) -> None:
        """None: what is in a buffer is scanned."""

    @property
    def owner(self) -> "Buffer":
        """The buffer itself."""
        return self

    @property
    def layout(self) -> ScanLayout:
        """None: it is computed for a search, of so few codes."""
        return NO_LAYOUT

    def list_starts(self, bits: int) -> NDArray[np.uint32]:
        """Return where the codes of each prefix of `bits` bits begin, and the end."""
        starts = np.empty((1 << bits) + 1, dtype=np.uint32)
        self.tree.find_starts(bits, starts)
        return starts

    # what a snapshot reads

    def insert(
        self, codes: Codes, ids: Ids, vectors: StoredVectors | None, attributes: "Attributes | None" = None
    ) -> "Buffer":
        """Return a buffer with new items, for which there must be room."""
        own, end = self if self.used else self._allocated(), self.used + len(codes)
        own.rows[own.used : end], own.row_ids[own.used : end] = codes.packed, ids
        if own.row_vectors is not None and vectors is not None:
            own.row_vectors.write(own.used, vectors)
        count = len(own) + len(codes)
        heads, order = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint32)
        _core.insert_rows(own.rows[:end], own.used, own.heads, own.order, heads, order)
        columns = own._with_attributes(attributes, len(codes))
        return replace(own, used=end, heads=heads, order=order, row_attributes=columns)

    def _with_attributes(self, new: "Attributes | None", count: int) -> tuple["Attributes", ...]:
        """Return the attributes of all rows with those of `count` more: each part is larger than the next."""
        known = new or next(iter(self.row_attributes), None)
        if known is None:
            return ()
        added = known.nulls(known.schema, count) if new is None else new
        parts = list(self.row_attributes) or ([known.nulls(known.schema, self.used)] if self.used else [])
        while parts and len(parts[-1]) <= len(added):
            added = known.concat([parts.pop(), added])
        return (*parts, added)

    def _allocated(self) -> "Buffer":
        """Return an empty buffer with arrays of its own."""
        return replace(
            self,
            rows=np.empty((self.capacity, self.rows.shape[1]), dtype=np.uint8),
            row_ids=np.empty(self.capacity, dtype=np.int64),
            row_vectors=None if self.row_vectors is None else self.row_vectors.format.empty(self.capacity),
        )

    def delete(self, positions: NDArray[np.int64]) -> "Buffer":
        """Return a buffer without some items."""
        return replace(self, heads=np.delete(self.heads, positions), order=np.delete(self.order, positions))

    def find(self, ids: Ids) -> NDArray[np.int64]:
        """Return the position of each id, or -1."""
        own = self.ids
        by_id = np.argsort(own)
        spot = np.searchsorted(own, ids, sorter=by_id).clip(max=max(len(own) - 1, 0))
        return np.where(own[by_id[spot]] == ids, by_id[spot], -1) if len(own) else np.full(len(ids), -1)

    def codes_at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the codes at some positions."""
        return Codes.unchecked(self.rows[self.order[positions]], self.width)

    def live_ids(self) -> Ids:
        """Return the ids of what was not deleted."""
        return self.ids

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at some positions."""
        return self.ids[positions]
