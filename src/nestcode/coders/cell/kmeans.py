"""The coarse quantizer: k-means in the leading principal directions, with centroids in the order of a binary tree.

The first bits of a centroid's number name a subtree, and decode to the mean of that subtree.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats, check_int
from nestcode.coders.codebooks import nearest_entries, sum_by_entry, truncate_codebook
from nestcode.errors import InvalidInput
from nestcode.pca import Covariance

ROWS_PER_CELL = 160  # of the data, where the number of cells is chosen here
MOST_CELL_BITS, MOST_CHOSEN_BITS = 16, 14  # of a cell's number: allowed, and chosen here
TRAIN_ROWS = 1 << 17  # for k-means, or 128 per cell
EARLY, EARLY_ROWS, LATE = 6, 40, 3  # Lloyd iterations on EARLY_ROWS rows per cell, then on all rows
EXPLAINED = 0.9  # share of the variance in the directions that k-means sees
DIRECTIONS = 256  # computed at least
POWER_ITERATIONS = 12  # toward the principal direction of a node


def check_cells(cells: int, width: int) -> None:
    """Raise unless this many cells have numbers that fit a code of `width` bits."""
    number = check_int(cells, "cells", least=2)
    if number & (number - 1) or number > 1 << MOST_CELL_BITS:
        raise InvalidInput(f"cells must be a power of two of at most {1 << MOST_CELL_BITS}, got {number}")
    if number.bit_length() - 1 > width:
        raise InvalidInput(
            f"a cell's number must fit the width {width}, but {number} cells take {number.bit_length() - 1} "
            f"bits: have at most {1 << width} cells or wider codes"
        )


def choose_bits(rows: int) -> int:
    """Return the bits of a cell's number that suit this many rows."""
    return min(max(round(math.log2(rows / ROWS_PER_CELL)), 1), MOST_CHOSEN_BITS)


def training_rows(cells: int) -> int:
    """Return the maximum number of rows that k-means is trained on."""
    return max(TRAIN_ROWS, 128 * cells)


def leading_directions(directions: Floats, covariance: Covariance) -> int:
    """Return how many principal directions it takes to explain most of the variance."""
    variances = np.maximum(np.sum(directions.T * (covariance @ directions.T), axis=0), 0)
    enough = int(np.searchsorted(np.cumsum(variances), EXPLAINED * covariance.trace())) + 1
    return min(enough, len(directions))


def train_centroids(rows: Floats, cells: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Return the centroids of k-means in tree order, (cells, directions), and the rows assigned to each.

    Lloyd iterations begin at random rows. A tree of two-means splits would be in order already, but they make a worse
    partition of it: on sentence embeddings a search has to score more items for the same recall.
    """
    scale = _scale(rows)
    rows = rows / scale
    centroids = rows[rng.choice(len(rows), cells, replace=len(rows) < cells)]
    few = rows[rng.choice(len(rows), min(EARLY_ROWS * cells, len(rows)), replace=False)]
    for part in (few,) * EARLY + (rows,) * LATE:
        sums, counts = sum_by_entry(part, nearest_entries(part, centroids), cells)
        centroids = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        empty = np.flatnonzero(counts == 0)
        centroids[empty] = part[rng.integers(len(part), size=len(empty))]
    centroids = centroids[tree_order(centroids)]
    sums, counts = sum_by_entry(rows, nearest_entries(rows, centroids), cells)
    np.divide(sums, counts[:, None], out=centroids, where=counts[:, None] > 0, casting="same_kind")
    return centroids * scale, counts


def tree_order(points: Floats) -> NDArray[np.intp]:
    """Return the order of 2^bits points as leaves of a binary tree, each node halved along its principal direction.

    Power iteration finds the directions of all nodes of a level at once: eigendecompositions of thousands of nodes took
    longer than k-means.
    """
    order = np.arange(len(points), dtype=np.intp)[None]  # (nodes, leaves of each)
    while order.shape[1] > 1:
        centered = points[order]
        centered -= centered.mean(axis=1, keepdims=True)
        farthest = np.argmax(np.linalg.norm(centered, axis=2), axis=1)
        direction: NDArray[Any] = np.take_along_axis(
            centered, farthest[:, None, None], axis=1
        )  # (nodes, 1, directions)
        for _ in range(POWER_ITERATIONS):
            direction = (direction @ centered.swapaxes(1, 2)) @ centered
            direction /= np.maximum(np.linalg.norm(direction, axis=2, keepdims=True), np.float32(1e-30))
        largest = np.take_along_axis(direction, np.argmax(np.abs(direction), axis=2)[:, :, None], axis=2)
        direction = np.where(largest < 0, -direction, direction)  # one of two points is the farthest by rounding
        along = (direction @ centered.swapaxes(1, 2))[:, 0]
        order = np.take_along_axis(order, np.argsort(along, axis=1, kind="stable"), axis=1)
        order = order.reshape(2 * len(order), -1)
    return order[:, 0]


def assign(rows: Floats, centroids: Floats) -> NDArray[np.intp]:
    """Return the nearest centroid of each row: (n, directions) -> (n,)."""
    scale = _scale(centroids)
    return nearest_entries(rows / scale, centroids / scale)


def prefix_centroids(centroids: Floats, counts: NDArray[np.int64], bits: int) -> Floats:
    """Return the mean of each subtree that `bits` bits name, (2^bits, directions)."""
    if len(centroids) == 1 << bits:
        return centroids
    if bits == 0:
        return np.zeros((1, centroids.shape[1]), dtype=np.float32)  # the mean of all data
    return truncate_codebook(centroids, counts, bits)[:: len(centroids) >> bits]


def _scale(rows: Floats) -> np.float32:
    """Return the power of two below the largest value: without it squares may overflow float32."""
    return np.float32(2.0 ** (math.frexp(np.abs(rows).max(initial=0))[1] - 1))
