"""Cells of k-means, in the order of a binary tree: how many, from which rows, and which cell a row lies in."""

import math

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats
from nestcode.coders.codebooks import gather, grow_book, nearest, shorten

CELL_ROWS = 160  # rows of the data for each cell, where their number is chosen here
MOST_BITS, CHOSEN_BITS = 16, 12  # of a cell's number, and of one chosen here
SAMPLE_ROWS = 1 << 16  # that k-means sees, or 64 for each cell
SEED_ROWS = 32  # for each cell, that the tree is grown on
SHARE = 0.9  # of the variance is in the directions that k-means sees
DIRECTIONS = 128  # that are computed at least


def bits_for(rows: int) -> int:
    """The bits of a cell's number that suit so many rows."""
    return min(max(round(math.log2(rows / CELL_ROWS)), 1), CHOSEN_BITS)


def rows_for(cells: int) -> int:
    """How many rows k-means sees at most."""
    return max(SAMPLE_ROWS, 64 * cells)


def leading(directions: Floats, covariance: Doubles) -> int:
    """How many of the principal directions k-means sees."""
    variances = np.maximum(np.sum((directions @ covariance) * directions, axis=1), 0)
    enough = int(np.searchsorted(np.cumsum(variances), SHARE * np.trace(covariance))) + 1
    return min(enough, len(directions))


def grow_cells(rows: Floats, cells: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """The centres of cells for rows, and how many rows each has."""
    unit = _unit(rows)
    rows = rows / unit
    book = grow_book(rows, cells.bit_length() - 1, rng, seeds=SEED_ROWS * cells)
    sums, counts = gather(rows, nearest(rows, book), cells)
    np.divide(sums, counts[:, None], out=book, where=counts[:, None] > 0, casting="same_kind")
    return book * unit, counts


def find_cells(rows: Floats, centers: Floats) -> NDArray[np.intp]:
    """The cell of each row: the one with the nearest centre."""
    unit = _unit(centers)
    return nearest(rows / unit, centers / unit)


def tree_means(centers: Floats, counts: NDArray[np.int64], bits: int) -> Floats:
    """The mean of each part of the tree that `bits` bits name, (2^bits, directions)."""
    if len(centers) == 1 << bits:
        return centers
    if bits == 0:
        return np.zeros((1, centers.shape[1]), dtype=np.float32)  # the mean of all data
    return shorten(centers, counts, bits)[:: len(centers) >> bits]


def _unit(rows: Floats) -> np.float32:
    """A power of two of the rows' size: without it their squares may leave the range of float32."""
    return np.float32(2.0 ** (math.frexp(np.abs(rows).max(initial=0))[1] - 1))
