"""A graph navigated by nested codes (`cpp/nestcode/graph.hpp`).

A node's record holds the ids of 32 neighbors (24 beside int8 vectors), the leading bits of their codes as one fast-scan
block, and two values each that correct the estimates. So a visit is one sequential read and one batch of estimated
distances (SymphonyQG: Gou, Gao, Xu, Long 2025). Greedy best-first search keeps the `ef` items of least estimated
distance and visits each of them; a visited item's own distance comes from its vector.

    vectors, codes ──Navigator.encode──▶ items ──build_graph──▶ neighbors (n, 32), which an index stores
                                         items, neighbors ──make_records──▶ records, which searches read

The leading bits are bit planes, those of a `LinearCoder` or a `RotationCoder`: estimates of other codes take tables for
each centroid, or 256 entries.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Bytes, Floats, as_floats, center, squared_norms
from nestcode.coders import Coder
from nestcode.coders.base import ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.fastscan import GROUP_BITS, FastScan
from nestcode.search.vectors import StoredVectors, VectorType

DEGREE, SMALL_DEGREE = 32, 24  # neighbors of an item, and where memory matters more than time
BITS, MAX_BITS = 384, 1024  # that navigate: where codes rank what a walk finds, and at most
ENTRIES = 192  # entry points of a search: whole records of either degree
EF, PASSES = 160, 1  # of a build
CACHE_LINE = 64
LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


class Rows(Protocol):
    """Items that are read in pieces: an array, or `Items`."""

    def __getitem__(self, some: slice, /) -> Floats: ...


@dataclass(frozen=True)
class Items:
    """The items of an index: the vectors that it stores, or what their codes decode to."""

    coder: Coder
    codes: Codes
    vectors: StoredVectors | None

    def __getitem__(self, some: slice, /) -> Floats:
        return self.coder.decode(self.codes[some]) if self.vectors is None else self.vectors[some].floats()


def navigating_bits(width: int, *, ranked: bool) -> int:
    """Return how many leading bits of codes navigate.

    >>> navigating_bits(512, ranked=True), navigating_bits(512, ranked=False)
    (512, 384)

    Args:
        width: of the codes.
        ranked: whether stored vectors rank what a walk visits. Otherwise whole codes do, which may be long.

    """
    return min(width, MAX_BITS if ranked else BITS)


def degree_beside(vectors: VectorType | None) -> int:
    """Return how many neighbors an item has at most: who stores vectors as int8 prefers memory to time.

    >>> degree_beside("float16"), degree_beside("int8")
    (32, 24)
    """
    return SMALL_DEGREE if vectors == "int8" else DEGREE


class Navigator:
    """The leading bits of codes, by which a search finds its way.

    Args:
        coder: a fitted `LinearCoder` or `RotationCoder`.
        bits: how many leading bits, at most 1,024.
        width: of the codes; the coder's by default.

    """

    def __init__(self, coder: Coder, bits: int = BITS, *, width: int | None = None) -> None:
        width = coder.width_ if width is None else width
        layout, projection = coder.layout(width), coder.projection()
        if not isinstance(layout, ScalarLayout) or layout.centroid_bits or projection is None:
            raise InvalidInput(
                f"a graph is navigated by the bit planes of a LinearCoder or a RotationCoder, got a "
                f'{type(coder).__name__}: fit one of them, as nestcode.fit(X, width, goal="graph") does'
            )
        self.coder = coder
        self._scan = FastScan(layout, most=bits // GROUP_BITS)
        mean, directions = projection.mean.astype(np.float32), projection.directions[: self._scan.used]
        self._unit = max(coder.expected_error(0) * coder.n_features_in_, float(np.finfo(np.float32).tiny))
        self.core = _core.GraphProjection(mean, directions, self._scan.core, self._unit)
        self.layout = f"groups of {self._scan.columns} bytes of {width} bits, norms and factors"  # of what it encodes

    def record_bytes(self, degree: int) -> int:
        """Return the bytes of a node's record."""
        return (8 + self._scan.columns) * degree + 2 * (DEGREE - degree)

    def encode(self, vectors: Rows, codes: Codes) -> "NavigatingCodes":
        """Return what the records of other nodes hold of items.

        Args:
            vectors: the items, (n, features), or `Items`: decoded ones where the vectors are not kept.
            codes: of the items, in the same order.

        """
        projection = self.coder.projection()
        assert projection is not None
        grouped, corrections = self._scan.group(codes), np.empty((2, len(codes)), dtype=np.float16)
        norms, factors = corrections
        for first in range(0, len(codes), PIECE):
            some = slice(first, first + PIECE)
            decoded = self._scan.squared_norms(grouped[some])
            own = squared_norms(center(vectors[some], projection.mean, normalize=self.coder.metric_ == "cosine"))
            own = np.minimum(
                own, LARGEST_FLOAT16 * self._unit
            )  # both corrections are those of one item: outliers are clipped
            norms[some] = own / self._unit
            ratio = np.divide(own, decoded, out=np.zeros(len(own)), where=decoded > 0)
            factors[some] = np.minimum(np.sqrt(ratio), LARGEST_FLOAT16)
        return NavigatingCodes(grouped, corrections)


@dataclass(frozen=True)
class NavigatingCodes:
    """The bits that estimate the distances of items, and what corrects the estimates."""

    grouped: Bytes  # (n, columns): 4-bit groups, two a byte
    corrections: NDArray[np.float16]  # (2, n): squared norms around the mean, then factors, true by decoded norm

    def __getitem__(self, some: NDArray[np.uint32], /) -> "NavigatingCodes":
        return NavigatingCodes(self.grouped[some], self.corrections[:, some])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.grouped.nbytes + self.corrections.nbytes

    @property
    def parts(self) -> tuple[Bytes, NDArray[np.uint16], NDArray[np.uint16]]:
        """The arrays as the core takes them."""
        norms, factors = np.ascontiguousarray(self.corrections).view(np.uint16)
        return self.grouped, norms, factors


def entry_points(nodes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return where searches begin: evenly spaced nodes, as sorted codes are near their neighbors in order."""
    return nodes[np.arange(ENTRIES) * len(nodes) // ENTRIES]


def degree_of(neighbors: NDArray[np.uint32]) -> int:
    """Return how many neighbors the records of a graph have room for: fewer than 32 where no item has more."""
    if neighbors.shape[1] < DEGREE:
        return int(neighbors.shape[1])
    for first in range(0, len(neighbors), PIECE):
        some = neighbors[first : first + PIECE, SMALL_DEGREE:]
        if (some != np.arange(first, first + len(some))[:, None]).any():
            return DEGREE
    return SMALL_DEGREE


def filled_up(neighbors: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return neighbors as files hold them, (n, 32): the own positions of items follow."""
    missing = DEGREE - neighbors.shape[1]
    own = np.arange(len(neighbors), dtype=np.uint32)[:, None].repeat(missing, axis=1)
    return np.hstack([neighbors, own]) if missing else neighbors


def build_graph(
    navigator: Navigator,
    vectors: Rows,
    items: NavigatingCodes,
    *,
    degree: int = DEGREE,
    ef: int = EF,
    passes: int = PASSES,
    seed: int = 0,
    threads: int = CORES,
) -> NDArray[np.uint32]:
    """Return the neighbors of each item, (n, 32); the same for any number of threads.

    They are positions, nearest first. An item with fewer neighbors has its own position in the last places, and one
    that equals the item before it, a duplicate, in all places: the first of them is found for all.

    Args:
        navigator: the bits that navigate.
        vectors: of the items, as the navigator took them.
        items: what the navigator made of them.
        degree: how many neighbors an item has at most, 32 or 24.
        ef: how many nodes the search for an item visits, which are its candidates.
        passes: how often all items are searched for.
        seed: of the random projection trees that begin the build.
        threads: how many threads build.

    """
    rows = as_floats(vectors[:], normalize=navigator.coder.metric_ == "cosine").astype(np.float32, copy=False)
    count, distinct = len(rows), distinct_items(rows, items)
    if len(distinct) < count:
        rows, items = rows[distinct], items[distinct]
    among = np.empty((len(rows), DEGREE), dtype=np.uint32)
    entries = entry_points(np.arange(len(rows), dtype=np.uint32))
    _core.build_graph(navigator.core, rows, *items.parts, entries, among, degree, ef, passes, seed, threads)
    if len(distinct) == count:
        return among
    neighbors = np.arange(count, dtype=np.uint32)[:, None].repeat(DEGREE, axis=1)
    neighbors[distinct] = distinct[among]
    return neighbors


def distinct_items(rows: Floats, items: NavigatingCodes) -> NDArray[np.uint32]:
    """Return the positions of items whose vectors differ from those before them."""
    alike = 1 + np.flatnonzero((items.grouped[1:] == items.grouped[:-1]).all(axis=1))
    duplicates = alike[(rows[alike] == rows[alike - 1]).all(axis=1)]
    return np.delete(np.arange(len(rows), dtype=np.uint32), duplicates)


def make_records(
    navigator: Navigator,
    items: NavigatingCodes,
    neighbors: NDArray[np.uint32],
    vectors: StoredVectors | None = None,
    *,
    room: Bytes | None = None,
) -> _core.GraphRecords:
    """Return the records of a graph, which its searches read: each is packed at its first visit, or all by `pack()`.

    Args:
        navigator: the bits that navigate.
        items: what the navigator made of them.
        neighbors: of the items, by `build_graph`.
        vectors: the items' own, which are verified with their records where they are mapped from a file.
        room: where the records are to lie, (items and entry points, bytes); new memory by default.

    """
    count, degree = len(items.grouped), degree_of(neighbors)
    alone = np.flatnonzero(neighbors[:, 0] == np.arange(count))
    nodes = np.delete(np.arange(count, dtype=np.uint32), alone[alone > 0])
    watched = None if vectors is None else vectors.core
    own = _room(navigator, count, degree) if room is None else room
    return _core.GraphRecords(neighbors, entry_points(nodes), *items.parts, own, watched, degree=degree)


def pack_records(
    navigator: Navigator, items: NavigatingCodes, neighbors: NDArray[np.uint32], threads: int = CORES
) -> tuple[_core.GraphRecords, NDArray[np.uint32]]:
    """Return all records of a graph, and its neighbors where they lie in the records: memory holds them once."""
    degree = degree_of(neighbors)
    room = _room(navigator, len(neighbors), degree)
    own = room[: len(neighbors), : degree * neighbors.itemsize].view(np.uint32)
    own[:] = neighbors[:, :degree]
    records = make_records(navigator, items, own, room=room)
    records.pack(threads)
    return records, own


def _room(navigator: Navigator, count: int, degree: int) -> Bytes:
    """Return room for the records of items and of entry points."""
    return _empty_aligned(count + ENTRIES // degree, navigator.record_bytes(degree))


def _empty_aligned(rows: int, columns: int) -> Bytes:
    """Return an uninitialized array that begins at a cache line, as NumPy's own need not."""
    memory = np.empty(rows * columns + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + rows * columns].reshape(rows, columns)
