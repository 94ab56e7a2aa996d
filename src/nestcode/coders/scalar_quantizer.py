"""Ordered bit planes: an embedded scalar quantizer that spends each bit where it lowers the distortion most.

Each direction has a tree-structured scalar quantizer. Its next bit splits every interval in two at the threshold that
lowers the squared error most (two-means in one dimension), and reconstructs with the mean of each part. Greedy bit
allocation gives the next bit of a code to the direction whose split gains most, the paper's Δ_b: bits come in order of
importance.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, Bytes, Floats
from nestcode.storage import check_arrays

DEPTH = 8  # bits a direction may take, so that its interval is one byte


@dataclass(frozen=True)
class BitPlanes:
    """The bit allocation of a code, and the scalar quantizers of all directions.

    A quantizer is a binary tree: node 1 is the whole line, nodes 2n and 2n + 1 are the two parts of node n.
    """

    allocation: NDArray[np.int32]  # (width,): the direction that each bit refines, -1 for unallocated bits
    errors: NDArray[np.float64]  # (width + 1,): the mean squared error of a row at every length
    thresholds: Floats  # (directions, nodes): where each node is split
    levels: Floats  # (directions, 2 * nodes): the reconstruction level of each node


def bits_per_direction(allocation: NDArray[np.int32], directions: int) -> NDArray[np.int64]:
    """Return the number of bits allocated to each direction: (width,) -> (directions,)."""
    return np.bincount(allocation[allocation >= 0], minlength=directions)


class TreeQuantizer:
    """The scalar quantizer of one direction, grown level by level by two-means splits of a sample."""

    def __init__(self, sample: Floats) -> None:
        self._sorted = np.sort(sample.astype(np.float64))
        self._sums = np.concatenate([[0.0], np.cumsum(self._sorted)])
        self._edges = np.array([0, len(sample)])  # where the intervals begin and end in the sorted sample
        self._gains: list[float] = []  # of each level
        self.thresholds: list[Floats] = []  # one array per level of the tree
        self.levels = [np.zeros(1)]  # without bits, 0: the mean of a principal direction

    def gain(self, depth: int) -> float:
        """Return by how much the split of all intervals at this depth lowers the mean squared error."""
        while len(self._gains) <= depth:
            self._split()
        return self._gains[depth]

    def _split(self) -> None:
        """Split all intervals in two; equal values are never separated."""
        count = len(self._edges) - 1
        edges, thresholds = np.empty(2 * count + 1, dtype=np.int64), np.empty(count, dtype=np.float32)
        means = np.empty(2 * count)
        parents = self.levels[-1]
        risen = _core.split_intervals(self._sorted, self._sums, self._edges, parents, edges, thresholds, means)
        self._edges = edges
        self.thresholds.append(thresholds)
        self.levels.append(means)
        self._gains.append(max(risen, 0.0) / len(self._sorted))


def allocate_bits(
    coefficients: Floats,
    total: float,
    width: int,
    smallest: float | None = None,
    trees: dict[int, TreeQuantizer] | None = None,
) -> BitPlanes:
    """Return `width` bits allocated greedily over the directions of a sample, (rows, directions).

    Args:
        coefficients: the sample that the quantizers are trained on.
        total: the mean squared error of the empty code on that sample.
        width: number of bits.
        smallest: gains up to this value count as rounding errors; a billionth of `total` if not given.
        trees: the quantizers of directions that an earlier call trained on the same sample; new ones are added.

    """
    smallest = 1e-9 * total if smallest is None else smallest
    variances = np.mean(coefficients.astype(np.float64) ** 2, axis=0)  # an upper bound of what a direction can gain
    trees = {} if trees is None else trees
    depths = [0] * len(variances)
    queue = [(-float(variance), direction, False) for direction, variance in enumerate(variances) if variance > 0]
    heapq.heapify(queue)
    allocation, gains = np.full(width, -1, dtype=np.int32), np.zeros(width)
    place = 0
    while place < width and queue:
        negative, direction, is_gain = heapq.heappop(queue)
        if is_gain:  # of a split that was tried: the largest of all
            if -negative <= smallest:
                break
            allocation[place], gains[place] = direction, -negative
            place += 1
            depths[direction] += 1
        if direction not in trees:
            trees[direction] = TreeQuantizer(coefficients[:, direction])
        if depths[direction] < DEPTH:
            heapq.heappush(queue, (-trees[direction].gain(depths[direction]), direction, True))
    thresholds, levels = _tables(trees, np.array(depths))
    errors = np.maximum(total - np.concatenate([[0.0], np.cumsum(gains)]), 0)
    return BitPlanes(allocation, errors, thresholds, levels)


def quantize(
    coefficients: Floats, planes: BitPlanes, packed: Bytes, centroid_bits: Bytes | None = None, first: int = 0
) -> None:
    """Write the codes of coefficients, (rows, directions), into packed rows: `first` centroid bits, then bit planes."""
    intervals = np.empty(coefficients.shape, dtype=np.uint8)
    depths = bits_per_direction(planes.allocation, coefficients.shape[1]).astype(np.uint8)
    _core.quantize_scalars(coefficients, planes.thresholds, depths, intervals, threads=CORES)
    sources = np.full(8 * packed.shape[1], -1, dtype=np.int32)
    allocated = np.where(planes.allocation >= 0, 8 * planes.allocation + _plane_of(planes.allocation), -1)
    sources[first : first + len(allocated)] = allocated
    if centroid_bits is not None:
        sources[:first] = 8 * coefficients.shape[1] + np.arange(first)
        intervals = np.concatenate([intervals, centroid_bits], axis=1)
    _core.permute_bits(intervals, sources, packed, threads=CORES)


def dequantize(packed: Bytes, planes: BitPlanes, length: int, first: int = 0, threads: int = CORES) -> Floats:
    """Return the coefficients of the first `length` planes, (rows, directions); they begin at bit `first` of a row."""
    out = np.empty((len(packed), len(planes.levels)), dtype=np.float32)
    _core.decode_bit_planes(packed, planes.allocation[:length], first, planes.levels, out, threads=threads)
    return out


def _plane_of(allocation: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the bit plane of each bit: 0 for the first bit of its direction, 1 for the second, and so on."""
    order = np.argsort(allocation, kind="stable")
    ordered = allocation[order]
    planes = np.empty(len(allocation), dtype=np.int64)
    planes[order] = np.arange(len(allocation)) - np.searchsorted(ordered, ordered)
    return planes


def check_bit_planes(planes: BitPlanes, width: int, directions: int) -> None:
    """Raise unless planes from a file allocate `width` bits to this many directions."""
    check_arrays(vars(planes), {"allocation": (np.int32, (width,)), "errors": (np.float64, (width + 1,))})
    lowest, highest = planes.allocation.min(initial=0), planes.allocation.max(initial=0)
    if lowest < -1 or highest >= max(directions, 1):
        raise ValueError(f"its bits are allocated to directions {lowest} to {highest} of {directions}")
    deepest = int(bits_per_direction(planes.allocation, directions).max(initial=0))
    if deepest > DEPTH:
        raise ValueError(f"its allocation gives a direction {deepest} bits, more than {DEPTH}")
    shapes: dict[str, tuple[type[Any], tuple[int, ...]]] = {
        "thresholds": (np.float32, (directions, 1 << deepest)),
        "levels": (np.float32, (directions, 2 << deepest)),
    }
    check_arrays(vars(planes), shapes)


def _tables(trees: dict[int, TreeQuantizer], depths: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return thresholds and levels as arrays, cut to the directions and depths in use."""
    used, deepest = (int(np.flatnonzero(depths)[-1]) + 1 if depths.any() else 0), int(depths.max(initial=0))
    thresholds = np.zeros((used, 1 << deepest), dtype=np.float32)
    levels = np.zeros((used, 2 << deepest), dtype=np.float32)
    for direction in range(used):
        for depth in range(depths[direction]):
            thresholds[direction, 1 << depth : 2 << depth] = trees[direction].thresholds[depth]
        for depth in range(depths[direction] + 1):
            row = trees[direction].levels[depth] if direction in trees else 0
            levels[direction, 1 << depth : 2 << depth] = row
    return thresholds, levels
