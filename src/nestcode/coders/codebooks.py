"""Residual quantization with tree-structured codebooks: one codebook entry per byte, chosen by beam search.

A codebook's 256 entries are the leaves of a binary tree, grown by two-means splits and refined by Lloyd iterations. The
first bits of a byte name a subtree, and until the byte is complete it decodes to the subtree's mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Doubles, Floats, multiply, squared_norms

ENTRIES = 256  # of a codebook or a lookup table: the values of a byte
TREE_ROWS = 32 * ENTRIES  # that the tree of a codebook is grown on
EXPONENT = 30  # of two: sums of squares of values up to here stay well within float32
LAG = 4  # stages: tables of 2^18 bytes for each
PRODUCTS = 1 << 19  # of rows and entries at a time, which stay in a cache
CLOSE = 1.25  # times the squared error of the best beam: nearer beams are trained on too
RIDGE = 1.0  # rows that an entry's value before a refit counts for


class Lloyd(NamedTuple):
    """The Lloyd iterations of a codebook. Lengthened steps converge in half as many."""

    rows: int  # of each iteration, rounded up to whole parts
    relaxations: tuple[float, ...]  # of their steps


LLOYD = Lloyd(6 * TREE_ROWS, (1.7, 1.7, 1.7, 1.5, 1.3, 1.0, 1.0))


@dataclass(frozen=True)
class Stage:
    """A codebook, with the products that every beam search needs."""

    codebook: Floats  # (entries, features)
    norms: Floats  # (entries,): squared
    tables: Floats  # (at most LAG, 256, entries): inner products with the entries of earlier codebooks

    @classmethod
    def after(cls, earlier: Sequence[Floats], codebook: Floats) -> Self:
        """Return the stage of a codebook that comes after earlier ones, of 256 entries each."""
        tables = np.empty((min(LAG, len(earlier)), ENTRIES, len(codebook)), dtype=np.float32)
        for table, before in zip(tables, earlier[len(earlier) - len(tables) :], strict=True):
            np.matmul(before, codebook.T, out=table)
        return cls(codebook, squared_norms(codebook).astype(np.float32), tables)


def stages_of(codebooks: Sequence[Floats]) -> list[Stage]:
    """Return the stages of all codebooks."""
    return [Stage.after(codebooks[:stage], codebook) for stage, codebook in enumerate(codebooks)]


class BeamSearch:
    """Partial encodings of rows as sums of codebook entries, the best `beams` of each row, best first.

    Most beams of a row differ in their last entries only. So residuals are those of the distinct ancestors, `LAG`
    stages earlier, and what the entries chosen since change in their inner products comes out of tables.
    """

    def __init__(self, rows: Floats) -> None:
        self.residuals = rows  # (ancestors, features)
        self.ancestors = np.arange(len(rows), dtype=np.uint32)[:, None]  # (n, beams): rows of residuals
        self.recent: list[Floats] = []  # the codebooks since
        self.errors = squared_norms(rows)[:, None].astype(np.float32)  # (n, beams)
        self.entries = np.empty((len(rows), 1, 0), dtype=np.uint8)  # (n, beams, stages): the chosen entries

    def extend(self, stage: Stage, beams: int) -> None:
        """Add one entry of the codebook to each partial encoding, and keep the best `beams` of each row."""
        (n, width), stages = self.errors.shape, self.entries.shape[2]
        products = multiply(self.residuals, stage.codebook.T)
        kept = min(beams, width * len(stage.codebook))
        source, entry = np.empty((2, n, kept), dtype=np.uint16)
        errors = np.empty((n, kept), dtype=np.float32)
        recent = np.ascontiguousarray(self.entries[:, :, stages - len(self.recent) :])
        arrays = self.errors, self.ancestors, products, recent, stage.tables, stage.norms, source, entry, errors
        _core.extend_beams(*arrays, threads=CORES)
        parents = (np.arange(0, n * width, width)[:, None] + source).reshape(-1)
        entries = self.entries.reshape(n * width, stages).take(parents, axis=0).reshape(n, kept, stages)
        self.entries = np.concatenate([entries, entry[:, :, None].astype(np.uint8)], axis=2)
        self.ancestors = self.ancestors.reshape(-1).take(parents).reshape(n, kept)
        self.errors = errors
        self.recent.append(stage.codebook)
        if len(self.recent) > LAG:
            self._advance(self.recent.pop(0))

    def _advance(self, codebook: Floats) -> None:
        """Move the ancestors on by the entries that beams chose in the codebook after them."""
        pairs = self.ancestors.astype(np.int64) * ENTRIES + self.entries[:, :, -LAG - 1]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        residuals = self.residuals.take(distinct // ENTRIES, axis=0)
        residuals -= codebook.take(distinct % ENTRIES, axis=0)
        self.residuals, self.ancestors = residuals, inverse.reshape(pairs.shape).astype(np.uint32)

    def beam_residuals(self, beams: int) -> "BeamResiduals":
        """Return the residuals of the best of each row, then of the next up to `beams` that are nearly as good."""
        bounds = CLOSE * np.maximum(self.errors[:, :1], 0)  # rounding makes some errors negative
        close = (self.errors[:, :beams] <= bounds).T
        chosen = self.entries[:, :beams, self.entries.shape[2] - len(self.recent) :].transpose(1, 0, 2)
        return BeamResiduals(self.residuals, self.ancestors[:, :beams].T[close], chosen[close], self.recent.copy())


@dataclass(frozen=True)
class BeamResiduals:
    """Rows less the entries that were chosen from recent codebooks, without a copy for each beam."""

    rows: Floats  # (ancestors, features)
    ancestors: NDArray[np.uint32]  # (n,): rows of these
    chosen: NDArray[np.uint8]  # (n, recent)
    recent: list[Floats]  # codebooks

    @classmethod
    def of(cls, rows: Floats) -> list[Self]:
        """Return rows from which nothing was subtracted, in pieces."""
        parts = (np.ascontiguousarray(rows[i : i + PIECE]) for i in range(0, len(rows), PIECE))
        return [cls(part, _every(part), np.empty((len(part), 0), dtype=np.uint8), []) for part in parts]

    def __len__(self) -> int:
        return len(self.ancestors)

    def first(self, count: int) -> "BeamResiduals":
        """Return the first ones."""
        ancestors = self.ancestors[:count]
        rows = self.rows[: int(ancestors.max(initial=0)) + 1]  # the ancestors of best beams are in order
        return BeamResiduals(rows, ancestors, self.chosen[:count], self.recent)

    def array(self) -> Floats:
        """Return them as an array, (n, features)."""
        residuals = self.rows.take(self.ancestors, axis=0)
        if self.recent:
            sums = np.zeros_like(residuals)
            _core.sum_codebook_entries(self.chosen, np.array(self.recent), sums, threads=CORES)
            residuals -= sums
        return residuals

    def nearest(self, stage: Stage) -> NDArray[np.intp]:
        """Return the nearest entry of each, (n,): a beam search that keeps one of one."""
        products = multiply(self.rows, stage.codebook.T)
        source, entry = np.empty((2, len(self), 1), dtype=np.uint16)
        zeros, errors = np.zeros((2, len(self), 1), dtype=np.float32)
        arrays = products, self.chosen[:, None], stage.tables, stage.norms, source, entry, errors
        _core.extend_beams(zeros, self.ancestors[:, None], *arrays, threads=CORES)
        return entry[:, 0].astype(np.intp)


def scale_of(rows: Floats) -> np.float32:
    """Return 1, or where squares could leave float32, the power of two below the largest value."""
    exponent = math.frexp(float(np.abs(rows).max(initial=0)))[1]
    return np.float32(1 if -EXPONENT < exponent < EXPONENT else 2.0 ** (exponent - 1))


def encode(rows: Floats, stages: Sequence[Stage], beams: int) -> NDArray[np.uint8]:
    """Return the entries of each row by beam search: (n, features) -> (n, stages)."""
    search = BeamSearch(rows)
    for stage in stages:
        search.extend(stage, beams)
    return search.entries[:, 0]


def train_codebook(parts: Sequence[BeamResiduals], bits: int, rng: np.random.Generator, lloyd: Lloyd = LLOYD) -> Floats:
    """Return 2^bits entries in tree order: two-means splits, then Lloyd iterations, each on the next rows.

    Args:
        parts: rows in random order.
        bits: of an entry.
        rng: starts the splits.
        lloyd: iterations after the splits.

    """
    few = np.concatenate([part.first(-(-TREE_ROWS // len(parts))).array() for part in parts])
    starts = rng.standard_normal(((1 << bits) - 1, few.shape[1]), dtype=np.float32)
    codebook = np.empty((1 << bits, few.shape[1]), dtype=np.float32)
    _core.grow_two_means_tree(few, starts, codebook, threads=CORES)
    count = min(-(-lloyd.rows * len(parts) // sum(map(len, parts))), len(parts))
    around = cycle(parts)
    for relaxation in lloyd.relaxations:
        codebook = _lloyd_step(list(islice(around, count)), codebook, relaxation)
    return codebook


def _lloyd_step(parts: Sequence[BeamResiduals], codebook: Floats, relaxation: float) -> Floats:
    """Return the codebook with every entry moved to the mean of the rows assigned to it, or beyond."""
    size, recent = len(codebook), parts[0].recent
    stage, sums, counts = Stage.after(recent, codebook), np.zeros_like(codebook), np.zeros(size, dtype=np.int64)
    pairs = np.zeros((len(recent), size, ENTRIES), dtype=np.int64)  # of entries and recent ones
    for part in parts:
        entries = part.nearest(stage)
        counts += np.bincount(entries, minlength=size)
        _core.sum_rows_by_entry(part.rows, part.ancestors, entries, sums, threads=CORES)
        for pair, chosen in zip(pairs, part.chosen.T, strict=True):
            pair += count_pairs(entries, chosen, size)
    for pair, before in zip(pairs, recent, strict=True):
        sums -= pair.astype(np.float32) @ before
    steps = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None] - codebook, 0)
    return (codebook + relaxation * steps).astype(np.float32)


def refit_codebooks(rows: Floats, codes: NDArray[np.uint8], codebooks: Floats, survival: Doubles) -> Floats:
    """Return codebooks with the least expected squared error of a random prefix, for given codes of the rows.

    One solve of the normal equations, with a ridge that keeps entries of few rows where they are.

    Args:
        rows: (n, features).
        codes: of the rows, (n, stages).
        codebooks: (stages, 256, features).
        survival: P(length ≥ stage), (stages,), which weights what a stage adds.

    """
    stages, size, features = codebooks.shape
    chosen = np.ascontiguousarray(codes.T, dtype=np.intp)
    normal, wanted = np.zeros((stages, size, stages, size)), np.zeros((stages, size, features))
    for stage, entries in enumerate(chosen):
        wanted[stage] = survival[stage] * sum_by_entry(rows, entries, size)[0]
        for later in range(stage, stages):
            normal[stage, :, later] = survival[later] * count_pairs(entries, chosen[later], size)
            normal[later, :, stage] = normal[stage, :, later].T
    matrix, flat = normal.reshape(stages * size, -1), codebooks.reshape(-1, features).astype(np.float64)
    missing = wanted.reshape(-1, features) - matrix @ flat
    matrix[np.diag_indices_from(matrix)] += RIDGE
    refitted: Floats = (flat + np.linalg.solve(matrix, missing)).astype(np.float32)
    return refitted.reshape(codebooks.shape)


def count_pairs(first: NDArray[np.intp], second: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """Return how often each pair of entries occurs: (n,), (n,) -> (size, 256)."""
    return np.bincount(first * ENTRIES + second, minlength=size * ENTRIES).reshape(size, ENTRIES)


def nearest_entries(rows: Floats, codebook: Floats) -> NDArray[np.intp]:
    """Return the nearest entry of each row: (n, features) -> (n,)."""
    half_norms = (squared_norms(codebook) / 2).astype(np.float32)
    nearest = np.empty(len(rows), dtype=np.intp)
    some = max(PRODUCTS // len(codebook), 64)
    products = np.empty((min(some, len(rows)), len(codebook)), dtype=np.float32)
    for i in range(0, len(rows), some):
        part = rows[i : i + some]
        np.matmul(part, codebook.T, out=products[: len(part)])
        _core.nearest_entries(products[: len(part)], half_norms, nearest[i : i + some], threads=CORES)
    return nearest


def sum_by_entry(rows: Floats, entries: NDArray[np.intp], count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the sum of the rows assigned to each of `count` entries, and the number of those rows."""
    sums = np.zeros((count, rows.shape[1]), dtype=np.float32)
    _core.sum_rows_by_entry(np.ascontiguousarray(rows), _every(rows), entries, sums, threads=CORES)
    return sums, np.bincount(entries, minlength=count)


def _every(rows: Floats) -> NDArray[np.uint32]:
    return np.arange(len(rows), dtype=np.uint32)


def truncate_codebook(codebook: Floats, counts: NDArray[np.int64], bits: int) -> Floats:
    """Return a codebook of the same size in which each entry is the mean of its subtree at depth `bits`."""
    weights = (counts + 1e-6).reshape(1 << bits, -1, 1)
    means = (codebook.reshape(1 << bits, -1, codebook.shape[1]) * weights).sum(axis=1) / weights.sum(axis=1)
    return np.repeat(means.astype(np.float32), len(codebook) >> bits, axis=0)
