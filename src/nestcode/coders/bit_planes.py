"""Ordered bit planes: spend bits one at a time where the expected distortion falls most.

Each direction has a binary tree of intervals. Its next bit splits every interval at the point that lowers the squared
error most (two means in one dimension), and decodes to the mean of what fell there. Among all directions the next bit
goes to the one whose split gains most, which is the paper's Δ_b made greedy: bits come in order of importance.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.codes import CORES
from nestcode.storage import check_arrays

DEPTH = 8  # bits a direction may take: its cell is one byte


@dataclass(frozen=True)
class Planes:
    """The bits of a code: which direction each refines, and the trees of all directions.

    A tree's node 1 is the whole line, nodes 2n and 2n + 1 are the two parts of node n.
    """

    owners: NDArray[np.int32]  # (width,): the direction that each bit refines, -1 for bits that say nothing
    errors: NDArray[np.float64]  # (width + 1,): the squared error after that many bits
    thresholds: Floats  # (directions, nodes)
    centers: Floats  # (directions, 2 * nodes): the mean of each node's part


def depths_of(owners: NDArray[np.int32], directions: int) -> NDArray[np.int64]:
    """How many of these bits each direction has, (directions,)."""
    return np.bincount(owners[owners >= 0], minlength=directions)


class Tree:
    """The intervals of one direction, split level by level from a sample of its numbers."""

    def __init__(self, numbers: Floats) -> None:
        self._sorted = np.sort(numbers.astype(np.float64))
        self._sums = np.concatenate([[0.0], np.cumsum(self._sorted)])
        self._steps = 1 + np.flatnonzero(np.diff(self._sorted) > 0)  # equal numbers are never cut apart
        self._edges = np.array([0, len(numbers)])  # where the parts begin and end in the sorted numbers
        self.thresholds: list[NDArray[np.float64]] = []  # one array for each level
        self.centers = [np.zeros(1)]  # no bits decode as 0, the mean of a principal direction

    def split(self) -> float:
        """Go one level deeper, and return by how much the mean squared error falls."""
        before = self._explained()
        cuts = self._best_cuts()
        below, above = (self._sorted[np.clip(place, 0, len(self._sorted) - 1)] for place in (cuts - 1, cuts))
        middle = ((below + above) / 2).astype(np.float32)
        self.thresholds.append(np.where(middle < above, middle, below))  # rounding must not move `above` down
        edges = np.empty(2 * len(self._edges) - 1, dtype=np.int64)
        edges[::2], edges[1::2] = self._edges, cuts
        self._edges = edges
        self.centers.append(self._means(np.repeat(self.centers[-1], 2)))
        return max(self._explained() - before, 0.0)

    def _best_cuts(self) -> NDArray[np.int64]:
        """Where to cut each part so that the two means explain most."""
        cuts = self._edges[:-1].copy()
        inner = self._steps[~np.isin(self._steps, self._edges)]
        if len(inner) == 0:
            return cuts
        part = np.searchsorted(self._edges, inner, side="right") - 1
        begin, end = self._edges[part], self._edges[part + 1]
        left, right = self._sums[inner] - self._sums[begin], self._sums[end] - self._sums[inner]
        explained = left**2 / (inner - begin) + right**2 / (end - inner)
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        best = np.maximum.reduceat(explained, starts)
        hits = np.flatnonzero(explained == np.repeat(best, np.diff(starts, append=len(inner))))
        first = hits[np.searchsorted(hits, starts)]  # the first cut of each part that reaches its best
        cuts[part[starts]] = inner[first]
        return cuts

    def _means(self, inherited: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of each part; an empty one decodes as the part it was split from."""
        counts = np.diff(self._edges)
        sums, means = np.diff(self._sums[self._edges]), inherited.astype(np.float64)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means

    def _explained(self) -> float:
        return float((np.diff(self._edges) * self.centers[-1] ** 2).sum() / len(self._sorted))


def order_bits(coefficients: Floats, total: float, width: int, smallest: float | None = None) -> Planes:
    """Order `width` bits over the columns of a sample of coefficients, (rows, directions).

    Args:
        coefficients: the sample that the trees are grown on.
        total: the mean squared error of the empty code on that sample.
        width: how many bits to order.
        smallest: the gain that is mere rounding; a billionth of `total` if not given.

    """
    smallest = 1e-9 * total if smallest is None else smallest
    squares = np.mean(coefficients.astype(np.float64) ** 2, axis=0)  # no splits of a direction can gain more
    trees: dict[int, Tree] = {}
    queue = [(-float(square), direction, False) for direction, square in enumerate(squares) if square > 0]
    heapq.heapify(queue)
    owners, gains = np.full(width, -1, dtype=np.int32), np.zeros(width)
    place = 0
    while place < width and queue:
        negative, direction, known = heapq.heappop(queue)
        if known:  # the gain of a split that was tried: the largest of all
            if -negative <= smallest:
                break
            owners[place], gains[place] = direction, -negative
            place += 1
        if direction not in trees:
            trees[direction] = Tree(coefficients[:, direction])
        tree = trees[direction]
        if len(tree.thresholds) < DEPTH:
            heapq.heappush(queue, (-tree.split(), direction, True))
    thresholds, centers = _tables(trees, depths_of(owners, len(squares)))
    errors = np.maximum(total - np.concatenate([[0.0], np.cumsum(gains)]), 0)
    return Planes(owners, errors, thresholds, centers)


def pack_bits(
    coefficients: Floats,
    planes: Planes,
    packed: NDArray[np.uint8],
    heads: NDArray[np.uint8] | None = None,
    first: int = 0,
) -> None:
    """Write the codes of coefficients, (rows, directions), into packed rows: `first` bits of `heads`, then planes."""
    cells = np.empty(coefficients.shape, dtype=np.uint8)
    depths = depths_of(planes.owners, coefficients.shape[1]).astype(np.uint8)
    _core.find_cells(coefficients, planes.thresholds, depths, cells, threads=CORES)
    sources = np.full(8 * packed.shape[1], -1, dtype=np.int32)
    known = np.where(planes.owners >= 0, 8 * planes.owners + levels_of(planes.owners), -1)
    sources[first : first + len(known)] = known
    if heads is not None:
        sources[:first] = 8 * coefficients.shape[1] + np.arange(first)
        cells = np.concatenate([cells, heads], axis=1)
    _core.permute_bits(cells, sources, packed, threads=CORES)


def read_bits(packed: NDArray[np.uint8], planes: Planes, length: int, first: int = 0, threads: int = CORES) -> Floats:
    """What the first `length` bits of the planes say, (rows, directions); they begin at bit `first` of a row."""
    out = np.empty((len(packed), len(planes.centers)), dtype=np.float32)
    _core.read_planes(packed, planes.owners[:length], first, planes.centers, out, threads=threads)
    return out


def levels_of(owners: NDArray[np.int32]) -> NDArray[np.int64]:
    """Which bit of its direction each bit is, from 0."""
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    levels = np.empty(len(owners), dtype=np.int64)
    levels[order] = np.arange(len(owners)) - np.searchsorted(ordered, ordered)
    return levels


def check_planes(planes: Planes, width: int, directions: int) -> None:
    """Raise unless planes from a file order `width` bits over so many directions."""
    check_arrays(vars(planes), {"owners": (np.int32, (width,)), "errors": (np.float64, (width + 1,))})
    lowest, highest = planes.owners.min(initial=0), planes.owners.max(initial=0)
    if lowest < -1 or highest >= max(directions, 1):
        raise ValueError(f"its owners are {lowest} to {highest}, and there are {directions} directions")
    deepest = int(depths_of(planes.owners, directions).max(initial=0))
    if deepest > DEPTH:
        raise ValueError(f"its owners give a direction {deepest} bits, more than {DEPTH}")
    shapes: dict[str, tuple[type[Any], tuple[int, ...]]] = {
        "thresholds": (np.float32, (directions, 1 << deepest)),
        "centers": (np.float32, (directions, 2 << deepest)),
    }
    check_arrays(vars(planes), shapes)


def _tables(trees: dict[int, Tree], depths: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The trees as arrays, cut to the directions and levels in use."""
    used, deepest = (int(np.flatnonzero(depths)[-1]) + 1 if depths.any() else 0), int(depths.max(initial=0))
    thresholds = np.zeros((used, 1 << deepest), dtype=np.float32)
    centers = np.zeros((used, 2 << deepest), dtype=np.float32)
    for direction in range(used):
        for level in range(depths[direction]):
            thresholds[direction, 1 << level : 2 << level] = trees[direction].thresholds[level]
        for level in range(depths[direction] + 1):
            row = trees[direction].centers[level] if direction in trees else 0
            centers[direction, 1 << level : 2 << level] = row
    return thresholds, centers
