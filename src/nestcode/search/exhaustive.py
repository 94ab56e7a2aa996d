"""Queries compared with all items, in doubles: what a search with every candidate goes by.

Squares of float32 have too few digits for data far from 0, or in groups far apart: differences drown in them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats, as_floats
from nestcode.search.decoded import DecodedScorer
from nestcode.search.scorer import Metric

FEW_DIGITS = 1e-9  # of the squared lengths: what is left of a smaller distance is not as exact as a float32


def doubles(rows: NDArray[Any], *, normalize: bool) -> Doubles:
    """Checked rows without NaN and infinities, scaled to length 1 where asked."""
    return as_floats(np.asarray(rows, dtype=np.float64), normalize=normalize).astype(np.float64, copy=False)


def middle(queries: NDArray[Any]) -> NDArray[Any]:
    """The median of queries, as round as the data is: around it squares are small where all data is far from 0."""
    center: NDArray[Any] = np.partition(queries, len(queries) // 2, axis=0)[len(queries) // 2]
    return center


def squared_distances(queries: Doubles, rows: Doubles) -> Doubles:
    """Of all pairs, (queries, rows), each to at least the digits of a float32.

    >>> squared_distances(np.array([[1e9, 1.0]]), np.array([[1e9, 0.5], [0.0, 1.0]]))
    array([[2.5e-01, 1.0e+18]])
    """
    center = middle(queries)
    a, b = queries - center, rows - center
    own, theirs = np.einsum("nf,nf->n", a, a), np.einsum("nf,nf->n", b, b)
    distances: Doubles = (-2 * a) @ b.T
    distances += own[:, None]
    distances += theirs
    nearest, most = distances.min(axis=1, initial=np.inf), theirs.max(initial=0)
    for query in np.flatnonzero(nearest <= FEW_DIGITS * (own + most)):
        lost = distances[query] <= FEW_DIGITS * (own[query] + theirs)
        distances[query, lost] = np.sum((rows[lost] - queries[query]) ** 2, axis=1)
    return distances


def to_vectors(queries: Doubles, rows: Doubles, metric: Metric) -> Floats:
    """Distances from queries to rows, both of length 1 for the cosine."""
    if metric == "l2":
        return narrow(squared_distances(queries, rows))
    products: Doubles = queries @ rows.T
    return narrow(-products if metric == "inner" else _by_angle(products, np.any(rows, axis=1, keepdims=True).T))


def to_decoded(scorer: DecodedScorer, queries: NDArray[np.floating[Any]], decoded: Doubles, metric: Metric) -> Floats:
    """Distances from queries, of length 1 for the cosine, to what codes decode to in the scorer's directions."""
    if metric == "inner":
        batch = scorer.project(queries, metric)
        return narrow(-(batch.coefficients.astype(np.float64) @ decoded.T + batch.mean_products[:, None]))
    batch = scorer.project(queries, "l2")
    distances = squared_distances(batch.coefficients.astype(np.float64), decoded) + batch.outside[:, None]
    if metric == "l2":
        return narrow(distances)
    # 2 - 2 cos out of distances, as products of what all points the same way differ by too little.
    squares = np.einsum("nd,nd->n", decoded, decoded) + 2 * decoded @ scorer.mean + scorer.mean_square
    lengths = np.sqrt(np.maximum(squares, 0))
    distances = np.maximum(distances - (lengths - 1) ** 2, 0) / np.where(lengths > 0, lengths, 1)
    distances[~np.any(queries, axis=1)] = 2  # of no direction
    return narrow(np.where(lengths > 0, distances, 1))


def narrow(distances: Doubles) -> Floats:
    """Distances as searches give them: float32, at most its largest number."""
    most = np.finfo(np.float32).max
    return np.clip(distances, -most, most, out=distances).astype(np.float32)


def _by_angle(cosines: Doubles, directed: NDArray[np.bool_]) -> Doubles:
    """Squared distances at length 1; rows of no direction are at 1 from all."""
    distances: Doubles = 1 + directed - 2 * np.where(directed, cosines, 0)
    return np.maximum(distances, 0, out=distances)
