"""The view that a search has of an index: sorted runs, and a snapshot of all runs.

A `SortedRun` is codes in lexicographic order with their ids, some of them deleted: a segment, or the write buffer. A
`Snapshot` is the runs of an index at one moment.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Ids, StoredIds
from nestcode.codes import Codes
from nestcode.search.vectors import StoredVectors
from nestcode.storage import MappedArrays

if TYPE_CHECKING:
    from nestcode import _core
    from nestcode.search.attributes import Attributes
    from nestcode.search.graph import NavigatingCodes
    from nestcode.search.nodes import StoredNodes
    from nestcode.search.scorer import ScanLayout

Positions = NDArray[np.uint32]
MISSING = np.iinfo(np.uint32).max  # the position of a missing hit


class NeighborGraph(Protocol):
    """The graph of a run, whose items are its nodes."""

    @property
    def neighbors(self) -> NDArray[np.uint32]:
        """The positions of each item's neighbors, (items, degree)."""

    @property
    def items(self) -> "NavigatingCodes | None":
        """The navigator's codes of the items, if they are stored."""

    @property
    def layout(self) -> str:
        """The name of the layout of these codes."""

    @property
    def records(self) -> "_core.GraphRecords | None":
        """The records by that layout, if they were packed when the graph was built."""

    @property
    def nodes(self) -> "StoredNodes | None":
        """The nodes, if walks read them from a file."""

    @property
    def walked(self) -> bool:
        """Whether searches walk the graph."""

    @property
    def mapped(self) -> MappedArrays:
        """What is mapped from files."""

    def touch(self) -> None:
        """Verify all checksums, before everything is read."""


class RunOwner(Protocol):
    """The codes of a run with their ids, including deleted items."""

    def find(self, ids: Ids) -> Ids:
        """Return the position of each id, or -1 where it is missing."""


class SortedRun(Protocol):
    """Codes in lexicographic order with their ids."""

    @property
    def codes(self) -> Codes:
        """All codes, including deleted items."""

    @property
    def ids(self) -> StoredIds:
        """The ids of the codes."""

    @property
    def tombstones(self) -> Positions:
        """The positions of deleted items, ascending."""

    @property
    def vectors(self) -> StoredVectors | None:
        """The vectors of the codes, if the index stores them."""

    @property
    def attributes(self) -> "Attributes | None":
        """The columns of the codes, if the index has some; otherwise all are null."""

    @property
    def layout(self) -> "ScanLayout":
        """The layout of the codes that a search scans, if the index stores it."""

    @property
    def graph(self) -> NeighborGraph | None:
        """The graph of the run, if it has one."""

    @property
    def owner(self) -> "RunOwner":
        """The object that lives as long as these codes: arrays that were prepared of them are cached with it."""

    def list_starts(self, bits: int) -> Positions:
        """Return where the codes of each prefix of `bits` bits begin, and the end."""

    def find(self, ids: Ids) -> Ids:
        """Return the position of each id, or -1 where it is deleted or missing."""

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at some positions."""

    @property
    def mapped(self) -> MappedArrays:
        """The mapped arrays, "codes", "ids" and so on; none of a run in memory."""


class Snapshot(Protocol):
    """The sorted runs of an index at one moment; it never changes."""

    @property
    def width(self) -> int:
        """Bits of a code."""

    @property
    def runs(self) -> Sequence[SortedRun]:
        """All runs."""

    def __len__(self) -> int: ...
