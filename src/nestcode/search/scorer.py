"""Scorers: how a search estimates the distances of many codes and reranks the best of them.

A scorer is built from what a coder reports about its codes (`Coder.layout`); `scorer_for` in searcher.py chooses it:

    layout           scorer                estimates by                                  reranks by
    ScalarLayout     FastScanScorer        4-bit fast-scan of the first bit planes       decoded codes
    CodebookLayout   AdcScorer             ADC lookup tables of the first bytes          decoded codes
    BaseLayout       RefinedScorer         the base's scorer                             decoded codes
    None             HammingRerankScorer   Hamming distance                              decoded codes
    (bare codes)     HammingScorer         Hamming distance                              –
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes, Floats
from nestcode.codes import Codes

SearchMetric = Literal["l2", "cosine", "inner"]
BLOCK = 32  # items that fast-scan scores at once
NO_BLOCKS, NO_STARTS = np.zeros((0, 0, BLOCK), dtype=np.uint8), np.zeros(0, dtype=np.uint32)
NO_BIASES = np.zeros(0, dtype=np.int16)
NO_COEFFICIENTS, NO_CODES = np.zeros((0, 0), dtype=np.float32), np.zeros((0, 0), dtype=np.uint8)
NO_NORMS = np.zeros(0, dtype=np.float32)
NO_CODEBOOKS = np.zeros((0, 256, 0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ScanLayout:
    """What a scorer scans beside sorted codes, or instead of them; arrays that it does not need are empty.

    An index stores it with its segments, and any scorer that names its format alike takes it as it is.
    """

    format: str = ""
    # (blocks, bytes, 32): the 4-bit groups of 32 items side by side
    blocks: Bytes = field(default_factory=lambda: NO_BLOCKS)
    biases: NDArray[np.int16] = field(default_factory=lambda: NO_BIASES)  # of each item in the blocks
    # of what the items in the blocks decode to, where distances are those by angle; or squared, of what codes decode to
    norms: Floats = field(default_factory=lambda: NO_NORMS)
    guards: Mapping[str, _core.ChecksumGuard] = field(default_factory=dict)  # of mapped arrays, by name

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names on disk, without empty ones."""
        arrays: dict[str, NDArray[Any]] = {"blocks": self.blocks, "biases": self.biases, "norms": self.norms}
        return {name: array for name, array in arrays.items() if array.size}

    @classmethod
    def of_arrays(
        cls, name: str, arrays: Mapping[str, NDArray[Any]], guards: Mapping[str, _core.ChecksumGuard]
    ) -> "ScanLayout":
        """Return the layout whose `arrays` these are, in a format of this name."""
        biases = arrays.get("biases", NO_BIASES)
        empty = np.zeros((len(biases) // NO_BLOCKS.shape[2], 0, NO_BLOCKS.shape[2]), dtype=np.uint8)  # of short codes
        return cls(name, arrays.get("blocks", empty), biases, arrays.get("norms", NO_NORMS), guards)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays().values())


@dataclass(frozen=True)
class PreparedCodes:
    """Sorted codes, their inverted lists and what a scorer scans of them."""

    rows: Bytes  # the packed codes
    list_starts: NDArray[np.uint32]  # where each inverted list begins, and the end
    layout: ScanLayout
    block_starts: NDArray[np.uint32] = field(default_factory=lambda: NO_STARTS)  # the first block of each centroid
    bias_unit: float = 0.0

    def inverted_lists(self, rows_guard: _core.ChecksumGuard | None = None) -> _core.InvertedLists:
        """Return them as the core searches them."""
        layout, guards = self.layout, self.layout.guards
        return _core.InvertedLists(
            self.rows,
            self.list_starts,
            layout.blocks,
            self.block_starts,
            layout.biases,
            self.bias_unit,
            layout.norms,
            rows_guard,
            guards.get("blocks"),
            guards.get("biases"),
            guards.get("norms"),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of what was computed, without the codes and the layout."""
        return self.list_starts.nbytes + self.block_starts.nbytes


@dataclass(frozen=True)
class QueryBatch:
    """Queries in a coder's projection, or as codes."""

    metric: SearchMetric
    coefficients: Floats  # (n, directions): around the mean, or around 0 for inner products
    mean_products: Floats  # (n,): inner products with the mean
    outside: Floats  # (n,): squared distances to the subspace of the projection, for "l2"
    packed: Bytes  # the queries' codes, where Hamming distances are computed


NO_LAYOUT = ScanLayout()


class Scorer(ABC):
    """Estimates distances from queries to the codes of an index."""

    scans_codes = True  # estimates read codes themselves, and not only their layout
    layout_format = ""  # of `lay_out`: another name whenever it would return something else for the same codes
    ns_per_estimated: float  # nanoseconds that the estimate of an item takes

    @abstractmethod
    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""

    @abstractmethod
    def list_distances(self, queries: QueryBatch, bits: int) -> Floats:
        """Return the distances from queries to all inverted lists, (queries, 2^bits), up to a term that lists share."""

    def lay_out(self, codes: Codes) -> ScanLayout:  # noqa: ARG002
        """Return what estimates read of sorted codes beside themselves; this takes time linear in their number."""
        return NO_LAYOUT

    def prepare(self, codes: Codes, list_starts: NDArray[np.uint32], layout: ScanLayout) -> PreparedCodes:
        """Return sorted codes as estimates read them, given where their lists begin."""
        return PreparedCodes(codes.packed, list_starts, layout)
