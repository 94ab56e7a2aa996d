"""How a search ranks codes: which cells are near a query, rough distances for many items, full ones for a few.

A cell is all codes that share their first bits. Cells are ranked by how far they are from the query, their items
roughly and by part of their bits, and the best of those by all. `_sums.py` ranks by what codes decode to; here it is by
bits.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.codes import Codes
from nestcode.search.fastscan import BLOCK

Metric = Literal["l2", "cosine", "inner"]
MOST_BITS = 14  # of a cell
NO_BLOCKS = np.zeros((0, 0, BLOCK), dtype=np.uint8), np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.int16)
NO_NUMBERS, NO_CODES = np.zeros((0, 0), dtype=np.float32), np.zeros((0, 0), dtype=np.uint8)
NO_NORMS = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class Ready:
    """Codes in order, and what ranking needs to know of them."""

    rows: NDArray[np.uint8]
    starts: NDArray[np.uint32]  # where each cell begins, and the end
    blocks: NDArray[np.uint8]
    block_starts: NDArray[np.uint32]
    biases: NDArray[np.int16]
    unit: float
    norms: Floats

    def part(self, skipped: NDArray[np.uint32]) -> _core.SearchPart:
        """It as the core searches it, without the items at some places."""
        return _core.SearchPart(
            self.rows,
            self.starts,
            skipped,
            self.blocks,
            self.block_starts,
            self.biases,
            self.unit,
            self.norms,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of what was made for ranking."""
        made = self.starts, self.blocks, self.block_starts, self.biases, self.norms
        return sum(array.nbytes for array in made)


@dataclass(frozen=True)
class Batch:
    """Queries in principal directions."""

    metric: Metric
    numbers: Floats  # (n, directions): around the mean, or around 0 for inner products
    about_mean: Floats  # (n,): their inner product with the mean
    outside: Floats  # (n,): the squared length that lies in no direction
    packed: NDArray[np.uint8]  # their codes, if those are compared


class Ranking(Protocol):
    """What a search asks of a coder, or of bare codes."""

    def bits(self, count: int) -> int:
        """How many bits a cell has when there are `count` items."""

    def ready(self, codes: Codes, bits: int) -> Ready:
        """Sorted codes made ready."""

    def rough(
        self, searcher: _core.Searcher, batch: Batch, bits: int, candidates: int, out: _core.SearchOutputs, threads: int
    ) -> None:
        """Write the best hits among the items of the nearest cells that hold `candidates`."""


class BitRanking(Ranking):
    """By how many bits differ; a cell is as near as its bits are like the query's."""

    def __init__(self, width: int) -> None:
        self._width = width

    def bits(self, count: int) -> int:
        """How many bits a cell has when there are `count` items."""
        return max(0, min(count.bit_length() - 7, MOST_BITS, self._width))

    def ready(self, codes: Codes, bits: int) -> Ready:
        """Sorted codes made ready."""
        return Ready(codes.packed, find_starts(codes, bits), *NO_BLOCKS, 0.0, NO_NORMS)

    def rough(
        self,
        searcher: _core.Searcher,
        batch: Batch,
        bits: int,  # noqa: ARG002
        candidates: int,
        out: _core.SearchOutputs,
        threads: int,
    ) -> None:
        """Write the best hits among the items of the nearest cells that hold `candidates`."""
        searcher.hamming(batch.packed, candidates, out, threads)


def leading_bits(codes: Codes, bits: int) -> NDArray[np.int64]:
    """The first bits of codes as a number, at most 24 of them."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    for byte in range(-(-bits // 8)):
        numbers = numbers << 8 | codes.packed[:, byte]
    return numbers >> (-bits % 8)


def find_starts(codes: Codes, bits: int) -> NDArray[np.uint32]:
    """Where each cell of sorted codes begins, and the end."""
    return np.searchsorted(leading_bits(codes, bits), np.arange((1 << bits) + 1)).astype(np.uint32)
