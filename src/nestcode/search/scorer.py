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
from dataclasses import dataclass, field
from typing import Literal

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


@dataclass(frozen=True)
class PreparedCodes:
    """Sorted codes with the arrays that a scorer scans; arrays that it does not need are empty."""

    rows: Bytes  # the packed codes
    list_starts: NDArray[np.uint32]  # where each inverted list begins, and the end
    # (blocks, bytes, 32): the 4-bit groups of 32 items side by side
    blocks: Bytes = field(default_factory=lambda: NO_BLOCKS)
    block_starts: NDArray[np.uint32] = field(default_factory=lambda: NO_STARTS)  # the first block of each centroid
    biases: NDArray[np.int16] = field(default_factory=lambda: NO_BIASES)  # of each item in the blocks
    bias_unit: float = 0.0
    # of what the items in the blocks decode to, where distances are those by angle
    block_norms: Floats = field(default_factory=lambda: NO_NORMS)
    norms: Floats = field(default_factory=lambda: NO_NORMS)  # squared norms of what codes decode to

    def inverted_lists(self, skipped: NDArray[np.uint32]) -> _core.InvertedLists:
        """Return them as the core searches them, without the items at `skipped` positions."""
        return _core.InvertedLists(
            self.rows,
            self.list_starts,
            skipped,
            self.blocks,
            self.block_starts,
            self.biases,
            self.bias_unit,
            self.block_norms,
            self.norms,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of what was computed, without the codes."""
        computed = self.list_starts, self.blocks, self.block_starts, self.biases, self.block_norms, self.norms
        return sum(array.nbytes for array in computed)


@dataclass(frozen=True)
class QueryBatch:
    """Queries in a coder's projection, or as codes."""

    metric: SearchMetric
    coefficients: Floats  # (n, directions): around the mean, or around 0 for inner products
    mean_products: Floats  # (n,): inner products with the mean
    outside: Floats  # (n,): squared distances to the subspace of the projection, for "l2"
    packed: Bytes  # the queries' codes, where Hamming distances are computed


class Scorer(ABC):
    """Estimates distances from queries to the codes of an index."""

    scans_codes = True  # estimates read codes themselves, and not only what `prepare` makes of them

    @abstractmethod
    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""

    @abstractmethod
    def list_distances(self, queries: QueryBatch, bits: int) -> Floats:
        """Return the distances from queries to all inverted lists, (queries, 2^bits), up to a term that lists share."""

    @abstractmethod
    def prepare(self, codes: Codes, bits: int) -> PreparedCodes:
        """Return sorted codes with what `estimate` scans; lists are named by `bits` bits."""

    @abstractmethod
    def estimate(
        self,
        searcher: _core.Searcher,
        queries: QueryBatch,
        bits: int,
        candidates: int,
        out: _core.SearchResults,
        threads: int,
    ) -> None:
        """Probe inverted lists until they hold `candidates` items, and write the items of least estimated distance."""
