"""The nodes of a graph in blocks of a file: a visit reads one block (`cpp/nestcode/node_blocks.hpp`).

graph.neighbors ──place_nodes──▶ slots (n,) ──node_blocks──▶ blocks, which a memory tier leaves in their file
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes
from nestcode.search.graph import DEGREE, NavigatingCodes, entry_points
from nestcode.search.vectors import StoredVectors, VectorFormat

NO_SLOT = 2**32 - 1  # of a duplicate, which is no node
BLOCKS_AT_ONCE = 1 << 12  # that are made and written together


class NodeLayout(NamedTuple):
    """How nodes lie in blocks.

    >>> NodeLayout.of(VectorFormat("float16", features=384))
    NodeLayout(node_bytes=896, nodes=4, block_bytes=4096)
    """

    node_bytes: int
    nodes: int  # of a block
    block_bytes: int

    @classmethod
    def of(cls, vectors: VectorFormat) -> Self:
        """Return the layout of nodes with vectors of this format."""
        return cls(*_core.NodeBlocks.layout(DEGREE, value_bytes(vectors)))


def value_bytes(vectors: VectorFormat) -> int:
    """Return the bytes of a vector without its scale."""
    return vectors.features * np.dtype(vectors.dtype).itemsize


def place_nodes(neighbors: NDArray[np.uint32], layout: NodeLayout) -> NDArray[np.uint32]:
    """Return the slot of each item: a node lies in a block with its nearest neighbors."""
    slots = np.empty(len(neighbors), dtype=np.uint32)
    _core.place_nodes(np.ascontiguousarray(neighbors), layout.nodes, slots)
    return slots


def count_blocks(slots: NDArray[np.uint32], layout: NodeLayout) -> int:
    """Return how many blocks hold the nodes."""
    return -(-int((slots != NO_SLOT).sum()) // layout.nodes)


def node_blocks(
    neighbors: NDArray[np.uint32], vectors: StoredVectors, slots: NDArray[np.uint32], layout: NodeLayout
) -> Iterator[Bytes]:
    """Yield the blocks of all nodes, (some, block_bytes), in their order."""
    items = np.argsort(slots, kind="stable")[: int((slots != NO_SLOT).sum())]
    own = layout.nodes * layout.node_bytes
    for first in range(0, len(items), BLOCKS_AT_ONCE * layout.nodes):
        some = items[first : first + BLOCKS_AT_ONCE * layout.nodes]
        nodes = np.zeros((-(-len(some) // layout.nodes) * layout.nodes, layout.node_bytes), dtype=np.uint8)
        beside = 4 * DEGREE
        nodes[: len(some), :beside] = np.ascontiguousarray(neighbors[some], dtype="<u4").view(np.uint8)
        rows = vectors.rows[some]
        values = rows.astype(rows.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        nodes[: len(some), beside : beside + values.shape[1]] = values
        blocks = np.zeros((len(nodes) // layout.nodes, layout.block_bytes), dtype=np.uint8)
        blocks[:, :own] = nodes.reshape(-1, own)
        yield blocks


@dataclass(frozen=True, eq=False)
class StoredNodes:
    """The nodes of a graph as a file holds them."""

    slots: NDArray[np.uint32]  # (n,), in memory
    blocks: Bytes  # (blocks, block_bytes), in the file
    guard: _core.ChecksumGuard | None

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.slots.nbytes + self.blocks.nbytes

    def core(self, vectors: StoredVectors) -> _core.NodeBlocks:
        """Return the nodes as the core reads them, which hold vectors of this format."""
        return _core.NodeBlocks(self.blocks, self.slots, DEGREE, value_bytes(vectors.format), self.guard)


def records_in_file(
    items: NavigatingCodes, slots: NDArray[np.uint32], nodes: _core.NodeBlocks, vectors: _core.VectorRows
) -> _core.GraphRecords:
    """Return the records of a graph whose nodes stay in a file: each visit packs one, and none is kept."""
    entries = entry_points(np.flatnonzero(slots != NO_SLOT).astype(np.uint32))
    no_neighbors, no_room = np.empty((0, DEGREE), dtype=np.uint32), np.empty((0, 0), dtype=np.uint8)
    return _core.GraphRecords(no_neighbors, entries, *items.parts, no_room, vectors, nodes)
