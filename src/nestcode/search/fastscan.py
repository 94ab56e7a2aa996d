"""4-bit fast-scan: estimated distances of bit-plane codes, 32 items at once (`cpp/nestcode/fastscan.hpp`).

The first bits of up to four directions form a group of 4 bits, whose lookup table of 16 entries fits a SIMD register: a
shuffle looks up 32 items. Entries are quantized to 7 bits, so that two of them add up in a byte (André, Kermarrec, Le
Scouarnec 2015; ScaNN; FAISS's FastScan).

Items are residuals of centroids, and tables are computed once for each parent, a family of centroids, not for each
centroid. So the entries stay small enough for 7 bits. What that leaves out, twice the inner product of the centroid's
offset from its parent and the item's residual, does not depend on the query: it is the item's bias.

What few bits decode to is shorter than the item, and more so the less they tell of it, so distances to it are biased.
Items of a coder for the cosine have norm 1, whatever they decode to: their inner products are divided by the norms of
what they decode to. That finds among the best 40 what distances find among the best 60.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Bytes, Floats, squared_norms
from nestcode.coders import Coder
from nestcode.coders.base import ScalarLayout
from nestcode.coders.scalar_quantizer import dequantize
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search.adc import BitGroups, group_bits, regroup
from nestcode.search.inverted_lists import all_codes, default_list_bits
from nestcode.search.planner import NS_PER_FASTSCAN_BYTE, NS_PER_FASTSCAN_ITEM
from nestcode.search.projected import ProjectedScorer
from nestcode.search.scorer import BLOCK, NO_CODEBOOKS, NO_NORMS, ScanLayout, SearchMetric

GROUPS = 52  # that are scanned: 208 bits, or the first plane where no bit tells more than another
MOST_GROUPS = 256  # whose sums fit 16 bits
GROUP_BITS = 4
USEFUL = 0.97  # a bit that leaves at most this share of the error makes lists tighter


class FastScan:
    """What the 4-bit groups of codes of a scalar layout decode to.

    Args:
        layout: of the codes.
        most: 4-bit groups at most.
        mean: the mean in the layout's directions, and its squared norm in all, where distances are those by angle.

    """

    def __init__(self, layout: ScalarLayout, most: int = GROUPS, mean: tuple[Floats, float] | None = None) -> None:
        centroids, planes = layout.centroids, layout.planes
        self._centroids = np.ascontiguousarray(centroids, dtype=np.float32)
        self._bits = layout.centroid_bits
        self._mean, self._squares = NO_NORMS, np.zeros(0)
        if mean is not None:
            self._mean = mean[0]
            self._squares = np.sum((centroids.astype(np.float64) + mean[0]) ** 2, axis=1)
            self._squares += mean[1] - np.sum(mean[0].astype(np.float64) ** 2)  # of the mean in other directions
        parents = _choose_parents(centroids, spread=float(np.sqrt(planes.errors[0])))
        self._offsets = self._centroids - np.repeat(parents, len(centroids) // len(parents), axis=0)
        self._groups = _most_groups(planes.allocation.tobytes(), len(planes.levels), layout.centroid_bits, most)
        groups = self._groups.directions
        self._levels = np.zeros((len(groups), GROUP_BITS, 1 << GROUP_BITS), dtype=np.float32)
        directions = np.full((len(groups), GROUP_BITS), -1, dtype=np.int32)
        largest = np.zeros(centroids.shape[1], dtype=np.float32)  # level of each direction
        for g, group in enumerate(groups):
            below = sum(int(self._groups.depths[d]) for d in group)
            for j, d in enumerate(group):
                depth = int(self._groups.depths[d])
                below -= depth
                intervals = np.arange(1 << GROUP_BITS) >> below & ((1 << depth) - 1)
                self._levels[g, j], directions[g, j] = planes.levels[d, (1 << depth) + intervals], d
                largest[d] = np.abs(self._levels[g, j]).max()
        self.used = int(directions.max(initial=-1)) + 1  # leading directions that groups quantize
        self.core = _core.FastScanGroups(directions, self._levels, parents)
        bound = 2 * float((np.abs(self._offsets) @ largest).max(initial=0))
        self.bias_unit = min(max(bound / np.iinfo(np.int16).max, float(np.finfo(np.float32).tiny)), 1e38)

    def lay_out(self, codes: Codes, name: str) -> ScanLayout:
        """Return sorted codes as blocks, in a format of this name."""
        centroids = codes.leading_bits(self._bits)
        counts = np.bincount(centroids, minlength=len(self._offsets))
        starts = block_starts(counts)
        shifts = BLOCK * starts[:-1].astype(np.int64) - (np.cumsum(counts) - counts)
        slots = (np.arange(len(codes)) + shifts[centroids]).astype(np.uint32)
        blocks = np.zeros((int(starts[-1]), self.columns, BLOCK), dtype=np.uint8)
        biases = np.zeros(len(blocks) * BLOCK, dtype=np.int16)
        norms = np.zeros(len(biases) if len(self._squares) else 0, dtype=np.float32)  # for angles
        for first in range(0, len(codes), PIECE):
            grouped, at = self.group(codes[first : first + PIECE]), slots[first : first + PIECE]
            _core.pack_blocks(grouped, at, blocks)
            self.core.correct_items(
                grouped,
                centroids[first : first + PIECE],
                at,
                self._centroids,
                self._offsets,
                self._mean,
                self._squares,
                self.bias_unit,
                biases,
                norms,
                CORES,
            )
        return ScanLayout(name, blocks, biases, norms)

    @property
    def columns(self) -> int:
        """Bytes of the groups of a code: two groups each."""
        return -(-len(self._groups.directions) // 2)

    def group(self, codes: Codes) -> Bytes:
        """Return the 4-bit groups of codes, two a byte, (n, columns)."""
        sources = np.full((self.columns, 2, GROUP_BITS), -1, dtype=np.int32)
        sources.reshape(-1, GROUP_BITS)[: len(self._groups.directions)] = self._groups.sources.reshape(-1, GROUP_BITS)
        ordered = np.ascontiguousarray(sources[:, ::-1]).reshape(-1)  # the second of two lies high in its byte
        grouped = np.empty((len(codes), self.columns), dtype=np.uint8)
        _core.permute_bits(codes.packed, ordered, grouped, threads=CORES)
        return grouped

    def squared_norms(self, grouped: Bytes) -> NDArray[np.float64]:
        """Return the squared norms of the residuals that groups decode to, (n,)."""
        squares = np.sum(self._levels.astype(np.float64) ** 2, axis=1)  # (groups, 16): directions are orthonormal
        norms = np.empty(len(grouped))
        _core.sum_group_tables(grouped, squares, norms, CORES)
        return norms


def block_starts(counts: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
    """Return the first block of each centroid, and the end, given how many items each has: no block is shared."""
    return np.concatenate([[0], np.cumsum(-(-counts.astype(np.int64) // BLOCK))]).astype(np.uint32)


class FastScanScorer(ProjectedScorer):
    """4-bit fast-scan over the first bit planes of codes with or without a coarse quantizer."""

    keeps_decoded = False

    def __init__(self, coder: Coder, layout: ScalarLayout, width: int) -> None:
        super().__init__(coder, width)
        by_angle = coder.metric_ == "cosine"
        plane = 0 if layout.ordered else min(-(-layout.centroids.shape[1] // GROUP_BITS), MOST_GROUPS)
        mean = (self.mean, self.mean_square) if by_angle else None
        self._layout, self._scan = layout, FastScan(layout, max(GROUPS, plane), mean)
        self.layout_format = f"fast-scan blocks of {self._scan.columns} bytes" + (" and norms" if by_angle else "")
        self.ns_per_estimated = NS_PER_FASTSCAN_ITEM + NS_PER_FASTSCAN_BYTE * self._scan.columns
        self.bias_unit = self._scan.bias_unit
        norms = squared_norms(layout.centroids)
        self._norms: dict[SearchMetric, Floats] = {  # less twice the products with queries: squared distances
            "l2": norms.astype(np.float32),
            "cosine": (norms + 2 * (layout.centroids @ self.mean)).astype(np.float32),
            "inner": np.zeros(len(norms), dtype=np.float32),
        }

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        own = self._layout.centroid_bits
        if not self._layout.ordered:
            return 0  # one list: everything is scanned
        if own == 0:
            return default_list_bits(count, self.width)
        errors = self._layout.planes.errors  # useful bits make lists tighter, others only make more lists
        useful = int(np.argmin(np.append(errors[1:] < USEFUL * errors[:-1], False)))
        most = min(count.bit_length() - 7, self.width)
        return own + max(0, min(most - own, useful))

    def split_centroids(self, bits: int) -> tuple[Floats, Floats]:
        """Return the centroids of the coarse quantizer, and what the first bit planes add."""
        length = bits - self._layout.centroid_bits
        return self._layout.centroids, dequantize(all_codes(length).packed, self._layout.planes, length)

    @property
    def used_directions(self) -> int:
        """How many leading directions estimates read."""
        return self._scan.used

    def list_scoring(self, metric: SearchMetric, bits: int) -> _core.ListScoring:
        """Return how the core ranks lists named by `bits` bits and estimates the distances of their items."""
        norms = self._norms[metric]
        return _core.ListScoring(*self._list_parts(metric, bits), norms, self._scan.core, NO_CODEBOOKS)

    def lay_out(self, codes: Codes) -> ScanLayout:
        """Return sorted codes as blocks."""
        return self._scan.lay_out(codes, self.layout_format)

    def block_starts(self, list_starts: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the first block of each centroid, given where inverted lists begin."""
        lists = (len(list_starts) - 1) >> self._layout.centroid_bits  # of each centroid
        return block_starts(np.diff(list_starts[::lists]))[:-1]

    @property
    def decodable(self) -> ProjectedScorer:  # type: ignore[override]
        """The scorer itself."""
        return self

    @lazy_property
    def decoder(self) -> _core.CoefficientDecoder:
        """What the core decodes single codes by."""
        planes, centroids = self._layout.planes, np.ascontiguousarray(self._layout.centroids, dtype=np.float32)
        return _core.CoefficientDecoder(centroids, planes.allocation, planes.levels, NO_CODEBOOKS)

    @lazy_property
    def _bytes(self) -> BitGroups:
        """Which directions' bits share a byte of scanned codes."""
        layout = self._layout
        return group_bits(layout.planes.allocation, layout.centroids.shape[1], layout.centroid_bits)

    def _make_code_format(self, origin: Floats) -> _core.CodeFormat:
        """Return how the core decodes codes to scan them: by bytes that hold the bits of some directions."""
        groups, centroids = self._bytes.directions, np.pad(self._layout.centroids, ((0, 0), (0, 2)))
        directions, depths = np.zeros((2, len(groups), max(map(len, groups), default=0)), dtype=np.int32)
        for g, group in enumerate(groups):
            directions[g, : len(group)], depths[g, : len(group)] = group, self._bytes.depths[list(group)]
        return _core.CodeFormat(directions, depths, self._layout.planes.levels, (centroids + origin).astype(np.float32))

    def scanned_codes(self, codes: Codes) -> tuple[Bytes, NDArray[np.int64]]:
        """Return codes in that format, and the centroid of each if there is more than one."""
        centroids = (
            codes.leading_bits(self._layout.centroid_bits) if self._layout.centroid_bits else np.zeros(0, np.int64)
        )
        return regroup(codes.packed, self._bytes), centroids


def _choose_parents(centroids: Floats, spread: float) -> Floats:
    """Return the means of as few families of centroids as lie closer than `spread` to them, (parents, directions)."""
    parents = centroids.mean(axis=0, keepdims=True)
    while len(parents) < len(centroids):
        offsets = centroids.reshape(len(parents), -1, centroids.shape[1]) - parents[:, None]
        if np.sqrt(np.mean(np.sum(offsets**2, axis=2))) <= spread:
            break
        parents = centroids.reshape(2 * len(parents), -1, centroids.shape[1]).mean(axis=1)
    return np.ascontiguousarray(parents)


@lru_cache(maxsize=64)  # each index of a coder has scorers of its own
def _most_groups(allocation: bytes, directions: int, first: int, most: int) -> BitGroups:
    """Return the groups of as many bit planes as fit into `most` groups, by galloping search from the most that may.

    Args:
        allocation: the direction of each bit plane, as int32.
        directions: how many there are.
        first: the bit of a code at which planes begin.
        most: groups.

    """
    planes = np.frombuffer(allocation, dtype=np.int32)

    def groups(length: int) -> BitGroups:
        return group_bits(planes[:length], directions, first, GROUP_BITS)

    low, high, step = 0, min(len(planes), GROUP_BITS * most), 1
    trial, best = high, groups(0)
    while low <= high:
        found = groups(trial)
        if len(found.directions) <= most:
            low, best, step = trial + 1, found, 0
        else:
            high, step = trial - 1, 2 * step
        trial = max(high - step, low) if step else (low + high + 1) // 2
    return best
