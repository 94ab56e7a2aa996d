"""Residual quantization with tree-structured codebooks: one codebook entry per byte, chosen by beam search.

A codebook's 256 entries are the leaves of a binary tree, grown by two-means splits and refined by Lloyd iterations. The
first bits of a byte name a subtree, and until the byte is complete it decodes to the subtree's mean.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, multiply, squared_norms
from nestcode.codes import CORES

ENTRIES = 256  # of a codebook or a lookup table: the values of a byte
TREE_ROWS = 64 * ENTRIES  # that the tree of a codebook is grown on
EXPONENT = 30  # of two: sums of squares of values up to here stay well within float32
EARLY = 4  # times as many rows in the first Lloyd iterations; the last ones take all


class BeamSearch:
    """Partial encodings of rows as sums of codebook entries, the best `beams` of each row, best first."""

    def __init__(self, rows: Floats) -> None:
        self.residuals = rows[:, None, :]  # (n, beams, features)
        self.errors = squared_norms(rows)[:, None].astype(np.float32)  # (n, beams)
        self.entries = np.empty((len(rows), 1, 0), dtype=np.uint8)  # (n, beams, stages): the chosen entries

    def extend(self, codebook: Floats, beams: int) -> None:
        """Add one entry of the codebook to each partial encoding, and keep the best `beams` of each row."""
        n, width, features = self.residuals.shape
        products = multiply(self.residuals.reshape(-1, features), codebook.T).reshape(n, width, len(codebook))
        kept = min(beams, width * len(codebook))
        source, entry = np.empty((2, n, kept), dtype=np.uint16)
        errors = np.empty((n, kept), dtype=np.float32)
        norms = squared_norms(codebook).astype(np.float32)
        _core.extend_beams(self.errors, products, norms, source, entry, errors, threads=CORES)
        parents = (np.arange(0, n * width, width)[:, None] + source).reshape(-1)
        residuals = self.residuals.reshape(-1, features).take(parents, axis=0)
        residuals -= codebook.take(entry.reshape(-1), axis=0)
        self.residuals = residuals.reshape(n, kept, features)
        self.errors = errors
        entries = self.entries.reshape(n * width, self.entries.shape[2]).take(parents, axis=0)
        self.entries = np.concatenate([entries.reshape(n, kept, -1), entry[:, :, None].astype(np.uint8)], axis=2)


def scale_of(rows: Floats) -> np.float32:
    """Return 1, or where squares could leave float32, the power of two below the largest value."""
    exponent = math.frexp(float(np.abs(rows).max(initial=0)))[1]
    return np.float32(1 if -EXPONENT < exponent < EXPONENT else 2.0 ** (exponent - 1))


def encode(rows: Floats, codebooks: Sequence[Floats], beams: int) -> NDArray[np.uint8]:
    """Return the entries of each row by beam search: (n, features) -> (n, stages)."""
    search = BeamSearch(rows)
    for codebook in codebooks:
        search.extend(codebook, beams)
    return search.entries[:, 0]


def train_codebook(rows: Floats, bits: int, rng: np.random.Generator, tree_rows: int = TREE_ROWS) -> Floats:
    """Return 2^bits entries in tree order: two-means splits on `tree_rows` rows, then Lloyd iterations on all."""
    few = rows[rng.choice(len(rows), min(tree_rows, len(rows)), replace=False)]
    codebook = np.array(_split(few, bits, rng), dtype=np.float32)
    early = rows[rng.choice(len(rows), min(EARLY * tree_rows, len(rows)), replace=False)]
    for part in (early, early, early, rows, rows):
        codebook = _lloyd_step(part, codebook)
    return codebook


def _split(rows: Floats, bits: int, rng: np.random.Generator) -> list[Floats]:
    """Return the means of 2^bits parts, found by recursive two-means splits."""
    mean: Floats = rows.mean(axis=0)
    if bits == 0:
        return [mean]
    centered = rows - mean
    direction: NDArray[Any] = rng.standard_normal((rows.shape[1],), dtype=np.float32)
    for _ in range(4):  # power iteration toward the first principal direction
        direction = (centered @ direction) @ centered
        direction /= np.float32(max(float(np.linalg.norm(direction.astype(np.float64))), 1e-30))
    right = centered @ direction > 0
    for _ in range(3):  # two-means from there
        count = int(right.sum())
        if count in (0, len(rows)):
            break
        total: Floats = right.astype(np.float32) @ centered  # the other side's total is its negative
        a, b = -total / np.float32(len(rows) - count), total / np.float32(count)
        right = centered @ (b - a) > (a + b) @ (b - a) / 2
    if right.all() or not right.any():  # all rows are equal
        return [mean] * (1 << bits)
    return _split(rows[~right], bits - 1, rng) + _split(rows[right], bits - 1, rng)


def _lloyd_step(rows: Floats, codebook: Floats) -> Floats:
    """Return the codebook with every entry moved to the mean of the rows assigned to it."""
    sums, counts = sum_by_entry(rows, nearest_entries(rows, codebook), len(codebook))
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], codebook).astype(np.float32)


def nearest_entries(rows: Floats, codebook: Floats) -> NDArray[np.intp]:
    """Return the nearest entry of each row: (n, features) -> (n,)."""
    half_norms = (squared_norms(codebook) / 2).astype(np.float32)
    nearest = np.empty(len(rows), dtype=np.intp)
    some = max(8192 * ENTRIES // max(len(codebook), ENTRIES), 64)
    for i in range(0, len(rows), some):
        products = rows[i : i + some] @ codebook.T
        products -= half_norms
        np.argmax(products, axis=1, out=nearest[i : i + some])
    return nearest


def sum_by_entry(rows: Floats, entries: NDArray[np.intp], count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the sum of the rows assigned to each of `count` entries, and the number of those rows."""
    counts = np.bincount(entries, minlength=count)
    ordered = rows[np.argsort(entries.astype(np.uint16), kind="stable")]  # a radix sort, as they are 16-bit
    sums = np.zeros((count, rows.shape[1]), dtype=np.float32)
    ends = np.cumsum(counts)
    for entry in np.flatnonzero(counts):  # np.add.reduceat takes four times as long
        np.add.reduce(ordered[ends[entry] - counts[entry] : ends[entry]], axis=0, out=sums[entry])
    return sums, counts


def truncate_codebook(codebook: Floats, counts: NDArray[np.int64], bits: int) -> Floats:
    """Return a codebook of the same size in which each entry is the mean of its subtree at depth `bits`."""
    weights = (counts + 1e-6).reshape(1 << bits, -1, 1)
    means = (codebook.reshape(1 << bits, -1, codebook.shape[1]) * weights).sum(axis=1) / weights.sum(axis=1)
    return np.repeat(means.astype(np.float32), len(codebook) >> bits, axis=0)
