"""Ranking by what codes decode to.

The first bits of a code decode to the centre of its cell. All distances come from inner products in principal
directions: of the query with centres, with what half bytes or bytes of codes stand for, with decoded codes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Floats, squared_norms
from nestcode.coders.bit_planes import Planes, read_bits
from nestcode.codes import CORES, Codes
from nestcode.search.fastscan import Scan
from nestcode.search.ranking import (
    MOST_BITS,
    NO_BLOCKS,
    NO_CODES,
    NO_NORMS,
    Batch,
    Metric,
    Ranking,
    Ready,
    find_starts,
    leading_bits,
)


@dataclass(frozen=True)
class Centers:
    """What the first bits of codes decode to, as sums of two parts, without directions that have none of it."""

    coarse: Floats  # (coarse, used)
    fine: Floats  # (fine, rest_used)
    used: int
    rest_used: int
    by_metric: dict[Metric, tuple[Floats, Floats]]  # a distance is the inner product times the first, plus the second


class Decoder(Protocol):
    """The part of a coder that ranking uses."""

    def _coefficients(self, codes: Codes, threads: int = CORES) -> Floats: ...

    def expected_error(self, length: int) -> float:
        """Return the mean squared error of a feature at `length` bits."""


class DecodedRanking(Ranking, ABC):
    """Ranking by distances to what codes decode to, in some directions."""

    def __init__(self, coder: Decoder, mean: NDArray[np.float64], mean_numbers: Floats, width: int) -> None:
        self._coder, self._width = coder, width
        self._mean_numbers = mean_numbers  # the mean in those directions
        self._mean_square = float(mean @ mean)

    @abstractmethod
    def batch(self, queries: NDArray[np.floating[Any]], metric: Metric) -> Batch:
        """Queries, (n, features), of length 1 for the cosine, made ready."""

    def distances(self, batch: Batch, codes: Codes, threads: int) -> Floats:
        """From each query to as many of the codes, in order, (queries, codes / queries)."""
        decoded = self._coder._coefficients(codes, threads)
        items = np.arange(len(codes)).reshape(len(batch.numbers), -1)
        out = np.empty(items.shape, dtype=np.float32)
        if batch.metric == "cosine":
            numbers = self._around_zero(batch)
            outside = batch.about_mean - numbers @ self._mean_numbers
            square = max(self._mean_square - float(self._mean_numbers @ self._mean_numbers), 0.0)
            _core.rescore(decoded, numbers, items, "cosine", out, threads, self._mean_numbers, square, outside)
            return out
        _core.rescore(decoded, batch.numbers, items, batch.metric, out, threads, NO_NORMS, 0.0, NO_NORMS)
        return out + batch.outside[:, None] if batch.metric == "l2" else out - batch.about_mean[:, None]

    def _around_zero(self, batch: Batch) -> Floats:
        return batch.numbers if batch.metric == "inner" else batch.numbers + self._mean_numbers


class SumRanking(DecodedRanking):
    """Where decoding is a sum in principal directions: cells and rough distances come from inner products too."""

    def __init__(self, coder: Decoder, mean: NDArray[np.float64], directions: Floats, width: int) -> None:
        super().__init__(coder, mean, (directions @ mean).astype(np.float32), width)
        self._mean, self._directions = mean, directions
        variance = coder.expected_error(0) * len(mean)
        self._length = np.float32(np.sqrt(self._mean_square + variance))  # of items
        self._centers = lru_cache(maxsize=4)(self._make_centers)

    @abstractmethod
    def split(self, bits: int) -> tuple[Floats, Floats]:
        """What the cells' first bits decode to, (coarse, directions), and what the others add, (fine, directions)."""

    def batch(self, queries: NDArray[np.floating[Any]], metric: Metric) -> Batch:
        """Queries, (n, features), of length 1 for the cosine, made ready."""
        about_mean = (queries @ self._mean).astype(np.float32)
        centered = queries if metric == "inner" else queries - self._mean.astype(queries.dtype)
        rows: Floats = centered.astype(np.float32, copy=False)
        numbers: Floats = rows @ self._directions.T
        outside = NO_NORMS
        if metric == "l2":
            rest = rows - numbers @ self._directions  # a difference of squares would be inexact far from the mean
            outside = np.einsum("nf,nf->n", rest, rest)
        return Batch(metric, numbers, about_mean, outside, NO_CODES)

    def stretched(self, batch: Batch) -> Batch:
        """For rough distances: queries of the cosine as long as items are, which are then nearest at small angles."""
        if batch.metric != "cosine" or abs(self._length - 1) < 0.05:
            return batch
        numbers = self._length * self._around_zero(batch) - self._mean_numbers
        return replace(batch, numbers=numbers, about_mean=self._length * batch.about_mean)

    def cells(self, batch: Batch, bits: int) -> _core.SumCells:
        """How far each cell is from each query, up to what is the same for all."""
        centers = self._centers(bits)
        numbers = self._around_zero(batch) if batch.metric == "cosine" else batch.numbers
        products: Floats = numbers[:, : centers.used] @ centers.coarse.T
        rest: Floats = numbers[:, : centers.rest_used] @ centers.fine.T
        offsets = batch.about_mean if batch.metric == "cosine" else np.zeros(len(numbers), dtype=np.float32)
        return _core.SumCells(products, rest, offsets, *centers.by_metric[batch.metric])

    def _make_centers(self, bits: int) -> Centers:
        coarse, fine = self.split(bits)
        both = coarse[:, None] + fine[None]
        norms = np.einsum("cfd,cfd->cf", both, both, dtype=np.float64)
        lengths = np.sqrt(np.maximum(norms + 2 * (both @ self._mean_numbers) + self._mean_square, 1e-30))
        none, twice = np.zeros(norms.shape, dtype=np.float32), np.full(norms.shape, -2, dtype=np.float32)
        by_metric: dict[Metric, tuple[Floats, Floats]] = {
            "l2": (twice, norms.astype(np.float32)),
            "cosine": ((-2 / lengths).astype(np.float32), none),
            "inner": (twice, none),
        }
        used, rest_used = (int(np.flatnonzero(part.any(axis=0)).max(initial=0)) + 1 for part in (coarse, fine))
        trimmed = np.ascontiguousarray(coarse[:, :used]), np.ascontiguousarray(fine[:, :rest_used])
        return Centers(*trimmed, used, rest_used, by_metric)


class PlaneRanking(SumRanking):
    """For codes of a cell's number, of which there may be one only, and bit planes."""

    def __init__(
        self,
        coder: Decoder,
        mean: NDArray[np.float64],
        directions: Floats,
        planes: Planes,
        width: int,
        centers: Floats | None = None,
    ) -> None:
        super().__init__(coder, mean, directions, width)
        self._planes = planes
        self._cells = np.zeros((1, len(directions)), dtype=np.float32) if centers is None else centers
        self._cell_bits = len(self._cells).bit_length() - 1
        self._scan = Scan(self._cells, planes, width, float(np.sqrt(planes.errors[0])))
        norms = squared_norms(self._cells)
        self._norms: dict[Metric, Floats] = {  # less twice the products of `cells` they are squared distances
            "l2": norms.astype(np.float32),
            "cosine": (norms + 2 * (self._cells @ self._mean_numbers)).astype(np.float32),
            "inner": np.zeros(len(norms), dtype=np.float32),
        }

    def bits(self, count: int) -> int:
        """How many bits a cell has when there are `count` items."""
        if self._cell_bits == 0:
            return max(0, min(count.bit_length() - 7, MOST_BITS, self._width))
        errors = self._planes.errors  # a bit that says much makes cells smaller, others only make them more
        telling = int(np.argmin(np.append(errors[1:] < 0.97 * errors[:-1], False)))
        most = min(count.bit_length() - 7, self._width)
        return self._cell_bits + max(0, min(most - self._cell_bits, telling))

    def split(self, bits: int) -> tuple[Floats, Floats]:
        """The cells' centres, and what bits of planes add."""
        length = bits - self._cell_bits
        return self._cells, read_bits(_all_codes(length).packed, self._planes, length)

    def ready(self, codes: Codes, bits: int) -> Ready:
        """Sorted codes made ready."""
        blocks = self._scan.blocks(codes, leading_bits(codes, self._cell_bits))
        starts = find_starts(codes, bits)
        return Ready(codes.packed, starts, blocks.cells, blocks.starts, blocks.biases, self._scan.unit, NO_NORMS)

    def rough(
        self, searcher: _core.Searcher, batch: Batch, bits: int, candidates: int, out: _core.SearchOutputs, threads: int
    ) -> None:
        """Write the best hits among the items of the nearest cells that hold `candidates`."""
        batch, inner = self.stretched(batch), batch.metric == "inner"
        cells, groups = self.cells(batch, bits), self._scan.groups
        searcher.blocks(cells, self._norms[batch.metric], batch.numbers, groups, inner, candidates, out, threads)


class BookRanking(SumRanking):
    """For codes of one codebook entry a byte."""

    BYTES = 8  # that are looked at for rough distances

    def __init__(
        self, coder: Decoder, mean: NDArray[np.float64], directions: Floats, books: Floats, width: int
    ) -> None:
        """`books` are those of `min(width, 64)` bits, (bytes, 256, directions)."""
        super().__init__(coder, mean, directions, width)
        self._books = books

    def bits(self, count: int) -> int:
        """How many bits a cell has when there are `count` items."""
        return max(0, min(count.bit_length() - 6, 16, self._width))

    def split(self, bits: int) -> tuple[Floats, Floats]:
        """What the first byte decodes to, and what bits of the second add."""
        first = self._coder._coefficients(_all_codes(min(bits, 8)))
        if bits <= 8:
            return first, np.zeros((1, first.shape[1]), dtype=np.float32)
        second = self._coder._coefficients(_all_codes(bits)[: 1 << (bits - 8)])
        return first, second - first[:1]

    def ready(self, codes: Codes, bits: int) -> Ready:
        """Sorted codes made ready."""
        length = min(codes.width, 8 * self.BYTES)
        pieces = (codes[first : first + PIECE].prefix(length) for first in range(0, len(codes), PIECE))
        norms = [squared_norms(self._coder._coefficients(part)) for part in pieces]
        together = np.concatenate([np.zeros(0), *norms]).astype(np.float32)
        return Ready(codes.packed, find_starts(codes, bits), *NO_BLOCKS, 0.0, together)

    def rough(
        self, searcher: _core.Searcher, batch: Batch, bits: int, candidates: int, out: _core.SearchOutputs, threads: int
    ) -> None:
        """Write the best hits among the items of the nearest cells that hold `candidates`."""
        batch = self.stretched(batch)
        tables = -2 * batch.numbers @ self._books.reshape(-1, self._books.shape[2]).T
        tables = tables.reshape(len(tables), len(self._books), 256)
        searcher.tables(self.cells(batch, bits), tables, batch.metric == "inner", candidates, out, threads)


def _all_codes(bits: int) -> Codes:
    """Every code of some bits, in order."""
    return Codes.from_bits((np.arange(1 << bits)[:, None] >> np.arange(bits)[::-1] & 1).astype(bool))
