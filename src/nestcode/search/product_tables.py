"""Inner products of queries with what codes decode to, by ADC lookup tables over all bits of a code.

Exhaustive search scores every item by them. Table indices and norms are computed once for each run of codes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import PIECE, Bytes, Floats, squared_norms
from nestcode.coders.base import CodebookLayout, Layout, ScalarLayout
from nestcode.codes import Codes
from nestcode.search.adc import ENTRIES, group_bits, regroup, sum_tables
from nestcode.search.decoded import DecodedScorer
from nestcode.search.partition import leading_bits

NO_CENTROIDS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class AdcCodes:
    """Codes as lookup tables score them."""

    indices: Bytes  # (items, bytes): into the tables
    centroids: NDArray[np.int64]  # (items,): of the coarse quantizer; empty without one
    squares: Floats  # (items,): squared norms of the coefficients
    norms: Floats  # (items,): norms of what codes decode to in features, the mean included

    def take(self, positions: NDArray[np.uint32]) -> "AdcCodes":
        """Return some of these codes."""
        return AdcCodes(*(a.take(positions, axis=0) if len(a) else a for a in vars(self).values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())


class ProductTables:
    """How a scorer's codes select terms of inner products: a term for each byte of a code, and one for its centroid."""

    def __init__(self, scorer: DecodedScorer, layout: ScalarLayout | CodebookLayout) -> None:
        self._scorer, self._layout = scorer, layout
        if isinstance(layout, ScalarLayout):
            self._centroids = layout.centroids
            self._groups = group_bits(layout.planes.allocation, layout.centroids.shape[1], layout.centroid_bits)
            self._directions, self._entries = _scalar_entries(layout, self._groups.directions, self._groups.depths)
            each = np.zeros(layout.centroids.shape[1])
            np.maximum.at(each, self._directions, np.abs(self._entries).max(axis=2))
            largest = float(np.linalg.norm(each))
        else:
            self._centroids = np.zeros((1, layout.codebooks.shape[2]), dtype=np.float32)
            largest = float(np.sqrt(np.sum(layout.codebooks.astype(np.float64) ** 2, axis=2)).max(axis=1).sum())
        self.largest = largest + float(np.sqrt(squared_norms(self._centroids)).max())
        """At least the norm of any sum of terms, whatever their signs."""

    @property
    def operations(self) -> int:
        """How many roundings an inner product goes through at most."""
        layout = self._layout
        tables = len(self._groups.directions) if isinstance(layout, ScalarLayout) else len(layout.codebooks)
        return 2 * tables + self._centroids.shape[1] + 16

    def prepare(self, codes: Codes) -> AdcCodes:
        """Return codes as table indices, with their norms; this decodes all of them once."""
        layout, scorer = self._layout, self._scorer
        scalar = isinstance(layout, ScalarLayout)
        indices = regroup(codes.packed, self._groups) if scalar else np.ascontiguousarray(codes.packed)
        centroids = leading_bits(codes, layout.centroid_bits) if scalar and layout.centroid_bits else NO_CENTROIDS
        squares, norms = np.empty(len(codes), dtype=np.float32), np.empty(len(codes), dtype=np.float32)
        for first in range(0, len(codes), PIECE):
            decoded = scorer.coder.coefficients(codes[first : first + PIECE]).astype(np.float64)
            own = np.einsum("nd,nd->n", decoded, decoded)
            squares[first : first + PIECE] = own
            full = own + 2 * decoded @ scorer.mean + scorer.mean_square
            norms[first : first + PIECE] = np.sqrt(np.maximum(full, 0))
        return AdcCodes(indices, centroids, squares, norms)

    def products(self, coefficients: Floats, items: AdcCodes, threads: int) -> Floats:
        """Return the inner products of all pairs, (queries, items)."""
        if isinstance(self._layout, ScalarLayout):
            tables = np.matmul(coefficients[:, self._directions][:, :, None], self._entries)[:, :, 0]
        else:
            books = self._layout.codebooks
            tables = (coefficients @ books.reshape(-1, books.shape[2]).T).reshape(-1, len(books), ENTRIES)
        sums = sum_tables(items.indices, np.ascontiguousarray(tables), threads)
        if len(items.centroids):
            sums += (coefficients @ self._centroids.T).take(items.centroids, axis=1)
        return sums


def product_tables(scorer: DecodedScorer, width: int) -> ProductTables | None:
    """Return the tables of a scorer's codes of `width` bits, or None where only decoding has the exact products."""
    layout: Layout | None = scorer.coder.layout(width)
    if isinstance(layout, ScalarLayout) or (isinstance(layout, CodebookLayout) and layout.exact):
        return ProductTables(scorer, layout)
    return None


def _scalar_entries(
    layout: ScalarLayout, groups: tuple[tuple[int, ...], ...], depths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    """Return the directions of each group, (groups, most), and their levels by table index, (groups, most, 256)."""
    most = max(map(len, groups), default=0)
    directions = np.zeros((len(groups), most), dtype=np.int64)
    levels = np.zeros((len(groups), most, ENTRIES), dtype=np.float32)
    for g, group in enumerate(groups):
        below = sum(int(depths[d]) for d in group)
        for j, d in enumerate(group):
            depth = int(depths[d])
            below -= depth
            intervals = np.arange(ENTRIES) >> below & ((1 << depth) - 1)
            directions[g, j], levels[g, j] = d, layout.planes.levels[d, (1 << depth) + intervals]
    return directions, levels
