"""Nested residual codebooks: one entry a byte, each refining what the entries before it left.

A codebook's 256 entries are the leaves of a binary tree that two-means splits have grown, so the first bits of a byte
say in which part of the tree the entry lies. Until the byte is complete it stands for the mean of that part.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, squared_norms
from nestcode.codes import CORES

ENTRIES = 256
SEEDS = 64 * ENTRIES  # rows that a codebook is grown on
EARLY = 4  # times as many in the first rounds; the last ones see all


class Beams:
    """Rows as sums of entries, several candidates for each, best first."""

    def __init__(self, rows: Floats) -> None:
        self.residuals = rows[:, None, :]  # (n, beams, features): what each candidate leaves
        self.errors = squared_norms(rows)[:, None].astype(np.float32)  # (n, beams)
        self.cells = np.empty((len(rows), 1, 0), dtype=np.uint8)  # (n, beams, stages): the entries so far

    def extend(self, book: Floats, beams: int) -> None:
        """Add one entry of the book to each, and keep the best."""
        n, width, features = self.residuals.shape
        products = (self.residuals.reshape(-1, features) @ book.T).reshape(n, width, len(book))
        kept = min(beams, width * len(book))
        source, entry = np.empty((2, n, kept), dtype=np.uint16)
        errors = np.empty((n, kept), dtype=np.float32)
        norms = squared_norms(book).astype(np.float32)
        _core.extend_beams(self.errors, products, norms, source, entry, errors, threads=CORES)
        kept_from = (np.arange(0, n * width, width)[:, None] + source).reshape(-1)
        left = self.residuals.reshape(-1, features).take(kept_from, axis=0)
        left -= book.take(entry.reshape(-1), axis=0)
        self.residuals = left.reshape(n, kept, features)
        self.errors = errors
        cells = self.cells.reshape(n * width, self.cells.shape[2]).take(kept_from, axis=0)
        self.cells = np.concatenate([cells.reshape(n, kept, -1), entry[:, :, None].astype(np.uint8)], axis=2)


def grow_book(rows: Floats, bits: int, rng: np.random.Generator, seeds: int = SEEDS) -> Floats:
    """A codebook of 2^bits entries for rows, in the order of a binary tree that is grown on `seeds` of them."""
    few = rows[rng.choice(len(rows), min(seeds, len(rows)), replace=False)]
    book = np.array(_split(few, bits, rng), dtype=np.float32)
    early = rows[rng.choice(len(rows), min(EARLY * seeds, len(rows)), replace=False)]
    for part in (early, early, early, rows, rows):
        book = _refine(part, book)
    return book


def _split(rows: Floats, bits: int, rng: np.random.Generator) -> list[Floats]:
    """The means of 2^bits parts, found by splitting in two over and over."""
    mean: Floats = rows.mean(axis=0)
    if bits == 0:
        return [mean]
    centered = rows - mean
    direction: NDArray[Any] = rng.standard_normal((rows.shape[1],), dtype=np.float32)
    for _ in range(4):  # towards the direction in which the rows vary most
        direction = (centered @ direction) @ centered
        direction /= np.float32(max(float(np.linalg.norm(direction.astype(np.float64))), 1e-30))
    right = centered @ direction > 0
    for _ in range(3):  # two-means from there
        count = int(right.sum())
        if count in (0, len(rows)):
            break
        total: Floats = right.astype(np.float32) @ centered  # that of the others is the opposite
        a, b = -total / np.float32(len(rows) - count), total / np.float32(count)
        right = centered @ (b - a) > (a + b) @ (b - a) / 2
    if right.all() or not right.any():  # they are all alike
        return [mean] * (1 << bits)
    return _split(rows[~right], bits - 1, rng) + _split(rows[right], bits - 1, rng)


def nearest(rows: Floats, book: Floats) -> NDArray[np.intp]:
    """The nearest entry of each row."""
    halves = (squared_norms(book) / 2).astype(np.float32)
    found = np.empty(len(rows), dtype=np.intp)
    some = max(8192 * ENTRIES // max(len(book), ENTRIES), 64)
    for i in range(0, len(rows), some):
        products = rows[i : i + some] @ book.T
        products -= halves
        np.argmax(products, axis=1, out=found[i : i + some])
    return found


def _refine(rows: Floats, book: Floats) -> Floats:
    """Move every entry to the mean of the rows it is nearest to."""
    sums, counts = gather(rows, nearest(rows, book), len(book))
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], book).astype(np.float32)


def gather(rows: Floats, owners: NDArray[np.intp], count: int) -> tuple[Floats, NDArray[np.int64]]:
    """The sum of the rows of each owner, and how many there are."""
    counts = np.bincount(owners, minlength=count)
    order = np.argsort(owners.astype(np.uint16), kind="stable")  # by counting, as they are short
    sums = np.zeros((count, rows.shape[1]), dtype=np.float32)
    owned = np.flatnonzero(counts)
    if len(owned):
        starts = np.concatenate([[0], np.cumsum(counts[owned])[:-1]])
        sums[owned] = np.add.reduceat(rows[order], starts, axis=0)
    return sums, counts


def shorten(book: Floats, counts: NDArray[np.int64], bits: int) -> Floats:
    """The book when only the first `bits` of an entry are known, as long as before: means of the tree's parts."""
    weights = (counts + 1e-6).reshape(1 << bits, -1, 1)
    means = (book.reshape(1 << bits, -1, book.shape[1]) * weights).sum(axis=1) / weights.sum(axis=1)
    return np.repeat(means.astype(np.float32), len(book) >> bits, axis=0)


def encode(rows: Floats, books: Sequence[Floats], beams: int) -> NDArray[np.uint8]:
    """The entries of each row, (n, stages), by beam search."""
    search = Beams(rows)
    for book in books:
        search.extend(book, beams)
    return search.cells[:, 0]
