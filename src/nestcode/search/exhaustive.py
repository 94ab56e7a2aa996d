"""Exhaustive search: every query against every item, in float64.

A search whose candidate budget covers all items is exhaustive. Squares of float32 have too few digits for data far from
0 or in clusters far apart: differences would be rounded away.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Doubles, Floats, Ids, as_floats
from nestcode.codes import Codes
from nestcode.search.decoded import DecodedScorer
from nestcode.search.plan import Plan
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.scorer import Metric, Scorer
from nestcode.search.vectors import median

QUERIES, ITEMS = 256, 1 << 14  # compared at once
CLOSE = 1e-9  # of the squared norms: what cancellation leaves of a smaller distance is less exact than float32


def search_all(prepared: PreparedSnapshot, plan: Plan, start: int, ids: Ids, distances: Floats) -> None:
    """Write the nearest of all items that may be found, for the queries of a plan from `start` on."""
    for known, codes in prepared.items():
        for at in range(0, len(known), ITEMS):
            own = known[at : at + ITEMS]
            distances_of = _distances_to(plan, prepared.scorer, own, codes[at : at + ITEMS])
            for first in range(0, len(ids), QUERIES):
                last = min(first + QUERIES, len(ids))
                near, near_ids = np.empty_like(distances[first:last]), np.empty_like(ids[first:last])
                to_all = distances_of(start + first, start + last)
                _core.select_top_k(to_all, own[None], near, near_ids, plan.threads)
                both = np.concatenate([distances[first:last], near], axis=1)
                both_ids = np.concatenate([ids[first:last], near_ids], axis=1)
                _core.select_top_k(both, both_ids, distances[first:last], ids[first:last], plan.threads)


def _distances_to(plan: Plan, scorer: Scorer, ids: Ids, codes: Codes) -> Callable[[int, int], Floats]:
    """Return a function that gives distances from queries `first` to `last` to these items, (queries, items)."""
    if plan.vectors is not None:
        return _distances_to_rows(plan, plan.vectors.rows(ids))
    if plan.codes is not None:
        own = plan.codes
        return lambda first, last: np.ascontiguousarray(own[first:last].hamming(codes), dtype=np.float32)
    assert isinstance(scorer, DecodedScorer)
    if plan.metric == "cosine" != scorer.coder.metric_:  # around a mean far from 0, short items have no angle left
        return _distances_to_rows(plan, scorer.coder.decode(codes))
    decoded = scorer.coder.coefficients(codes).astype(np.float64)
    return lambda first, last: decoded_distances(scorer, plan.rows[first:last], decoded, plan.metric)


def _distances_to_rows(plan: Plan, rows: NDArray[Any]) -> Callable[[int, int], Floats]:
    by_angle = plan.metric == "cosine"
    items = as_float64(rows, normalize=by_angle)
    return lambda first, last: vector_distances(
        as_float64(plan.queries[first:last], normalize=by_angle), items, plan.metric
    )


def as_float64(rows: NDArray[Any], *, normalize: bool) -> Doubles:
    """Return checked rows as float64, L2-normalized for the metric "cosine"."""
    return as_floats(np.asarray(rows, dtype=np.float64), normalize=normalize).astype(np.float64, copy=False)


def squared_distances(queries: Doubles, rows: Doubles) -> Doubles:
    """Return the squared distances of all pairs, (queries, rows), each at least as exact as a float32.

    >>> squared_distances(np.array([[1e9, 1.0]]), np.array([[1e9, 0.5], [0.0, 1.0]]))
    array([[2.5e-01, 1.0e+18]])
    """
    center = median(queries)
    a, b = queries - center, rows - center
    own, theirs = np.einsum("nf,nf->n", a, a), np.einsum("nf,nf->n", b, b)
    distances: Doubles = (-2 * a) @ b.T
    distances += own[:, None]
    distances += theirs
    nearest, most = distances.min(axis=1, initial=np.inf), theirs.max(initial=0)
    for query in np.flatnonzero(nearest <= CLOSE * (own + most)):  # canceled: subtract before squaring
        close = distances[query] <= CLOSE * (own[query] + theirs)
        distances[query, close] = np.sum((rows[close] - queries[query]) ** 2, axis=1)
    return distances


def vector_distances(queries: Doubles, rows: Doubles, metric: Metric) -> Floats:
    """Return distances from queries to rows, (queries, rows); both L2-normalized for "cosine"."""
    if metric == "l2":
        return as_float32(squared_distances(queries, rows))
    products: Doubles = queries @ rows.T
    return as_float32(-products if metric == "inner" else _by_angle(products, np.any(rows, axis=1, keepdims=True).T))


def decoded_distances(
    scorer: DecodedScorer, queries: NDArray[np.floating[Any]], decoded: Doubles, metric: Metric
) -> Floats:
    """Return distances from queries, L2-normalized for "cosine", to what codes decode to in a scorer's projection."""
    if metric == "inner":
        batch = scorer.project(queries, metric)
        return as_float32(-(batch.coefficients.astype(np.float64) @ decoded.T + batch.mean_products[:, None]))
    batch = scorer.project(queries, "l2")
    distances = squared_distances(batch.coefficients.astype(np.float64), decoded) + batch.outside[:, None]
    if metric == "l2":
        return as_float32(distances)
    # 2 - 2 cos from squared distances: inner products differ too little where all items point the same way.
    squares = np.einsum("nd,nd->n", decoded, decoded) + 2 * decoded @ scorer.mean + scorer.mean_square
    norms = np.sqrt(np.maximum(squares, 0))
    distances = np.maximum(distances - (norms - 1) ** 2, 0) / np.where(norms > 0, norms, 1)
    distances[~np.any(queries, axis=1)] = 2  # zero queries have no angle
    return as_float32(np.where(norms > 0, distances, 1))


def as_float32(distances: Doubles) -> Floats:
    """Return distances as searches report them: float32, clipped to its range."""
    most = np.finfo(np.float32).max
    return np.clip(distances, -most, most, out=distances).astype(np.float32)


def _by_angle(cosines: Doubles, directed: NDArray[np.bool_]) -> Doubles:
    """Return the squared distances of L2-normalized rows; zero rows are at distance 1 from all."""
    distances: Doubles = 1 + directed - 2 * np.where(directed, cosines, 0)
    return np.maximum(distances, 0, out=distances)
