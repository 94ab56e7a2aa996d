"""Inner products of queries with what codes decode to, by ADC lookup tables over all bits of a code.

Exhaustive search scores every item by them. Table indices and norms are computed once for each run of codes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Bytes, Floats, squared_norms
from nestcode.coders.base import CodebookLayout, ScalarLayout
from nestcode.coders.codebooks import ENTRIES
from nestcode.codes import Codes
from nestcode.search.adc import group_bits, regroup, sum_tables
from nestcode.search.decoded import DecodedScorer

NO_CENTROIDS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class AdcCodes:
    """Codes as lookup tables score them."""

    indices: Bytes  # (items, bytes): into the tables
    centroids: NDArray[np.int64]  # (items,): of the coarse quantizer; empty without one
    squares: Floats  # (items,): squared norms of the coefficients
    norms: Floats  # (items,): norms of what codes decode to in features, the mean included

    def __getitem__(self, positions: NDArray[np.uint32] | slice) -> "AdcCodes":
        return AdcCodes(*(a[positions] if len(a) else a for a in vars(self).values()))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())


class ProductTables(ABC):
    """How codes select terms of inner products: one for each byte of table indices, and one for the centroid."""

    largest: float  # at least the norm of any sum of terms, whatever their signs

    def __init__(self, scorer: DecodedScorer, count: int, directions: int) -> None:
        self._scorer = scorer
        self.operations = 2 * count + directions + 16  # how many roundings an inner product goes through at most

    @abstractmethod
    def tables(self, coefficients: Floats) -> Floats:
        """Return the inner products of queries with all terms, (queries, bytes, 256)."""

    @abstractmethod
    def indices(self, codes: Codes) -> Bytes:
        """Return the table indices of codes, (items, bytes)."""

    def products(self, coefficients: Floats, items: AdcCodes, threads: int) -> Floats:
        """Return the inner products of all pairs, (queries, items)."""
        return sum_tables(items.indices, self.tables(coefficients), threads)

    def prepare(self, codes: Codes) -> AdcCodes:
        """Return codes as table indices, with their norms; this decodes all of them once."""
        scorer, squares, norms = self._scorer, np.empty(len(codes), np.float32), np.empty(len(codes), np.float32)
        for first in range(0, len(codes), PIECE):
            some = codes[first : first + PIECE]
            decoded = scorer.coder.coefficients(some).astype(np.float64)
            own = squares[first : first + PIECE] = np.einsum("nd,nd->n", decoded, decoded)
            if scorer.coder.metric_ == "cosine":
                full = np.maximum(own + 2 * decoded @ scorer.mean + scorer.mean_square, 0)
            else:  # around a mean far from 0, too few digits of the norm would be left
                full = squared_norms(scorer.coder.decode(some))
            norms[first : first + PIECE] = np.sqrt(full)
        return AdcCodes(self.indices(codes), NO_CENTROIDS, squares, norms)


class CodebookTables(ProductTables):
    """Tables of a residual quantizer: the bytes of a code are its table indices."""

    def __init__(self, scorer: DecodedScorer, layout: CodebookLayout) -> None:
        self._codebooks = layout.codebooks
        super().__init__(scorer, len(self._codebooks), self._codebooks.shape[2])
        squares = np.sum(self._codebooks.astype(np.float64) ** 2, axis=2)
        self.largest = float(np.sqrt(squares.max(axis=1, initial=0)).sum())

    def tables(self, coefficients: Floats) -> Floats:
        """Return the inner products of queries with codebook entries, (queries, bytes, 256)."""
        books = self._codebooks
        products: Floats = coefficients @ books.reshape(-1, books.shape[2]).T
        return products.reshape(len(coefficients), len(books), ENTRIES)

    def indices(self, codes: Codes) -> Bytes:
        """Return the bytes of codes."""
        return codes.packed


class ScalarTables(ProductTables):
    """Tables of bit planes, regrouped to bytes, and of the centroids of a coarse quantizer."""

    def __init__(self, scorer: DecodedScorer, layout: ScalarLayout) -> None:
        self._centroids, self._bits = layout.centroids, layout.centroid_bits
        self._groups = group_bits(layout.planes.allocation, self._centroids.shape[1], self._bits)
        super().__init__(scorer, len(self._groups.directions), self._centroids.shape[1])
        self._directions, self._depths, self._entries = _scalar_entries(
            layout, self._groups.directions, self._groups.depths
        )
        each = np.zeros(self._centroids.shape[1])
        np.maximum.at(each, self._directions, np.abs(self._entries).max(axis=2))
        self.largest = float(np.linalg.norm(each)) + float(np.sqrt(squared_norms(self._centroids).max()))

    def tables(self, coefficients: Floats) -> Floats:
        """Return the inner products of queries with the levels of grouped directions, (queries, bytes, 256)."""
        chosen = np.ascontiguousarray(coefficients.T[self._directions].transpose(0, 2, 1))  # (bytes, queries, few)
        tables = np.empty((len(coefficients), len(chosen), ENTRIES), dtype=np.float32)
        np.matmul(chosen, self._entries, out=tables.transpose(1, 0, 2))
        return tables

    def indices(self, codes: Codes) -> Bytes:
        """Return the regrouped bits of codes."""
        return regroup(codes.packed, self._groups)

    def prepare(self, codes: Codes) -> AdcCodes:
        """Return codes as table indices, with their centroids and norms."""
        items = super().prepare(codes)
        return replace(items, centroids=codes.leading_bits(self._bits)) if self._bits else items

    def scan(
        self,
        searcher: _core.RowSearcher,
        runs: Sequence[AdcCodes],
        ids: NDArray[np.int64],
    ) -> _core.CodeScan:
        """Return what scans the codes of runs for one query."""
        items = [_core.ScannedCodes(one.indices, one.centroids, one.squares, one.norms) for one in runs]
        directions, depths = (part.astype(np.int32) for part in (self._directions, self._depths))
        tables = directions, depths, self._entries, self.operations
        return _core.CodeScan(searcher, *tables, items, ids)

    def products(self, coefficients: Floats, items: AdcCodes, threads: int) -> Floats:
        """Return the inner products of all pairs, (queries, items): those with the centroids and the residuals."""
        sums = super().products(coefficients, items, threads)
        if self._bits:
            sums += (coefficients @ self._centroids.T).take(items.centroids, axis=1)
        return sums


def product_tables(scorer: DecodedScorer, width: int) -> ProductTables | None:
    """Return the tables of a scorer's codes of `width` bits, or None where only decoding has the exact products."""
    layout = scorer.coder.layout(width)
    if isinstance(layout, ScalarLayout):
        return ScalarTables(scorer, layout)
    return CodebookTables(scorer, layout) if isinstance(layout, CodebookLayout) and layout.exact else None


def _scalar_entries(
    layout: ScalarLayout, groups: tuple[tuple[int, ...], ...], depths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the directions of each group and their bits, (groups, most), and levels by index, (groups, most, 256)."""
    most = max(map(len, groups), default=0)
    directions, bits = np.zeros((2, len(groups), most), dtype=np.int64)
    levels = np.zeros((len(groups), most, ENTRIES), dtype=np.float32)
    for g, group in enumerate(groups):
        below = sum(int(depths[d]) for d in group)
        for j, d in enumerate(group):
            depth = int(depths[d])
            below -= depth
            intervals = np.arange(ENTRIES) >> below & ((1 << depth) - 1)
            directions[g, j], bits[g, j], levels[g, j] = d, depth, layout.planes.levels[d, (1 << depth) + intervals]
    return directions, bits, levels
