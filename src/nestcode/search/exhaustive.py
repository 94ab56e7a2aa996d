"""Exhaustive search: every query against every item, exact.

A search whose candidate budget covers all items is exhaustive. It takes two passes:

1. Estimate all distances in float32, with a bound on their rounding errors: vectors by a matrix product, or for one
   query by one scan (`cpp/nestcode/scan.hpp`, which takes the second pass too); codes by ADC lookup tables.
2. Compute in float64 the distances of the items that the bound cannot rule out: those whose estimate is at most the
   k-th best plus twice the bound.

Squares of float32 have too few digits for data far from 0 or in clusters far apart. There the bound rules out too
little, and such queries are compared with all items in float64, by matrix products. So are codes that only a network
decodes. Hamming distances are integers and need no second pass.

The bounds are those of Higham (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1): a sum of d products
of float32 has an error of at most about d 2^-24 times the sum of their magnitudes, in any order of summation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Doubles, Floats, Ids, as_float64
from nestcode.codes import Codes
from nestcode.search.decoded import DecodedScorer
from nestcode.search.plan import Plan
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.scorer import SearchMetric
from nestcode.search.vectors import Vectors, median

QUERIES, ITEMS = 256, 1 << 14  # compared at once in float64
ESTIMATES = 1 << 24  # in memory at once, if there is more than one query
ROWS = 1 << 12  # vectors in a matrix product
PAIRS = 1 << 12  # of a query and an item, compared at once in float64
SCANNED = 2  # queries that scans of the vectors of their own score faster than a matrix product
CLOSE = 1e-9  # of the squared norms: what cancellation leaves of a smaller distance is less exact than float32
UNIT = 2.0**-24  # the relative error of rounding to float32
SMALLEST = 2.0**-125  # at least the error of a product that underflows

NO_KEYS = np.zeros(0, dtype=np.int64)
Indices = NDArray[np.int64]


def search_all(prepared: PreparedSnapshot, plan: Plan, start: int, ids: Ids, distances: Floats) -> None:
    """Write the nearest of all items that may be found, for the queries of a plan from `start` on."""
    if len(ids) > SCANNED or plan.rank != "exact" or prepared.count == 0:
        _search_together(prepared, plan, start, ids, distances)
        return
    for i in range(len(ids)):
        if not _scan_vectors(prepared, plan, start + i, ids[i], distances[i]):
            _search_together(prepared, plan, start + i, ids[i : i + 1], distances[i : i + 1])


def _scan_vectors(prepared: PreparedSnapshot, plan: Plan, query: int, ids: Ids, distances: Floats) -> bool:
    """Write the nearest items of one query by its own scan of the vectors, or return False where that is inexact."""
    vectors: Vectors = prepared.vectors if plan.vectors is None else plan.vectors
    keys, own = (prepared.positions, prepared.ids) if plan.vectors is None else 2 * (prepared.sorted_ids,)
    core = vectors.direct(own if plan.vectors is not None else NO_KEYS)
    if core is None:
        return False
    done = core.nearest(plan.queries[query].astype(np.float64), keys, own, plan.metric, distances, ids, plan.threads)
    vectors.check()
    return done


def _search_together(prepared: PreparedSnapshot, plan: Plan, start: int, ids: Ids, distances: Floats) -> None:
    """Write the nearest items of queries by products of matrices, which takes as long for one query as for a few."""
    queries = np.arange(start, start + len(ids))
    estimator = _choose_estimator(prepared, plan)
    if estimator is None:
        _compare_all(prepared, plan, queries, ids, distances)
        return
    block = max(1, min(ESTIMATES // prepared.count, QUERIES))
    for first in range(0, len(ids), block):
        some = slice(first, first + block)
        own = estimator(plan, prepared, queries[some])
        left = _search_by_estimates(own, ids[some], distances[some], plan.threads)
        if len(left):
            near, near_ids = distances[some][left], ids[some][left]
            _compare_all(prepared, plan, queries[some][left], near_ids, near)
            distances[some][left], ids[some][left] = near, near_ids


@dataclass(frozen=True)
class Estimates:
    """Distances in float32, up to a term that all items of a query share, and bounds of their errors."""

    distances: Floats  # (queries, items)
    absolute: Doubles  # (queries,): the error of a distance is at most this ...
    relative: float = 0.0  # ... and this share of it

    def limits(self, nearest: Floats) -> Doubles:
        """Return what the estimates of the k nearest items cannot exceed, given the k-th least estimate."""
        k_th = nearest.astype(np.float64)
        return k_th + 2 * (self.absolute + self.relative * np.abs(k_th))


class Estimator(ABC):
    """Estimates distances from some queries of a plan to all items, and computes those of a few pairs in float64."""

    ids: Ids  # of the items

    @abstractmethod
    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: Indices) -> None: ...

    @abstractmethod
    def estimate(self) -> Estimates:
        """Return estimated distances from the queries to all items."""

    @abstractmethod
    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs of a query and an item."""


def _choose_estimator(prepared: PreparedSnapshot, plan: Plan) -> type[Estimator] | None:
    if plan.codes is not None or prepared.count == 0:
        return None
    if plan.rank == "exact":
        return VectorEstimator
    return None if prepared.tables is None else CodeEstimator


def _search_by_estimates(estimator: Estimator, ids: Ids, distances: Floats, threads: int) -> Indices:
    """Write the nearest items of an estimator's queries, and return the queries left to compare with all items."""
    with np.errstate(all="ignore"):  # what is not finite is left to float64, which checks the data
        found = estimator.estimate()
        nearest, items = np.empty_like(distances), len(estimator.ids)
        _core.select_top_k(found.distances, estimator.ids[None], nearest, np.empty_like(ids), threads)
        limits = found.limits(nearest[:, -1])
        close = found.distances <= np.nextafter(limits.astype(np.float32), np.float32(np.inf))[:, None]
        failed = ~np.isfinite(limits) | ~np.isfinite(found.distances.sum(axis=1))
    counts = np.count_nonzero(close, axis=1)
    many = ~failed & (counts > 64 + items // 32)  # float64 compares all by matrix products as fast as these one by one
    left = failed | (many if counts[many].sum() > items else False)
    kept = np.flatnonzero(~left)
    if len(kept):
        pair_queries, pair_items = np.nonzero(close if len(kept) == len(left) else close[kept])
        exact = np.empty(len(pair_queries))
        for first in range(0, len(exact), PAIRS):
            some = slice(first, first + PAIRS)
            exact[some] = estimator.compare(kept[pair_queries[some]], pair_items[some])
        near, near_ids = as_float32(exact), estimator.ids[pair_items]
        order = np.lexsort((near_ids, near, pair_queries))
        starts = np.cumsum(counts[kept]) - counts[kept]  # of each query's pairs, which are at least k
        best = order[starts[:, None] + np.arange(distances.shape[1])]
        distances[kept], ids[kept] = near[best], near_ids[best]
    return np.flatnonzero(left)


class VectorEstimator(Estimator):
    """Distances to the vectors themselves."""

    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: Indices) -> None:
        given = plan.vectors is not None
        self._vectors: Vectors = prepared.vectors if plan.vectors is None else plan.vectors
        self.ids = prepared.sorted_ids if given else prepared.ids
        self._keys = self.ids if given else prepared.positions.astype(np.int64)
        self._metric, self._threads = plan.metric, plan.threads
        self._queries = as_float64(plan.queries[queries], normalize=plan.metric == "cosine")

    def estimate(self) -> Estimates:
        """Return distances by matrix products."""
        metric, own = self._metric, self._queries
        rounded = own.astype(np.float32)
        center = rounded.mean(axis=0) if metric == "l2" else np.zeros(own.shape[1], dtype=np.float32)
        out, norms = self._multiply(-2 * (own - center) if metric == "l2" else own, center)
        if metric != "l2":
            return self._from_products(out, norms)
        out += norms
        reach = np.linalg.norm(own - center, axis=1) + _largest(norms)
        return Estimates(out, (own.shape[1] + 16) * UNIT * reach**2 + own.shape[1] * SMALLEST)

    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs."""
        rows = as_float64(self._vectors.rows(self._keys[items]), normalize=self._metric == "cosine")
        return _compare_rows(self._queries[queries], rows, self._metric)

    def _multiply(self, queries: Doubles, center: Floats) -> tuple[Floats, Floats]:
        """Return inner products with vectors around a center, (queries, items), and their squared norms, (items,)."""
        keys = self._keys
        products, norms = np.empty((len(queries), len(keys)), dtype=np.float32), np.empty(len(keys), dtype=np.float32)
        for first in range(0, len(keys), ROWS):
            rows = self._vectors.rows(keys[first : first + ROWS])
            dtype = np.float32 if np.result_type(rows.dtype, np.float32) == np.float32 else np.float64
            rows = np.subtract(rows, center, dtype=dtype) if self._metric == "l2" else np.asarray(rows, dtype=dtype)
            products[:, first : first + ROWS] = queries.astype(dtype) @ rows.T
            norms[first : first + ROWS] = np.einsum("nf,nf->n", rows, rows)
        return products, norms

    def _from_products(self, products: Floats, norms: Floats) -> Estimates:
        features = self._queries.shape[1]
        if self._metric == "inner":
            np.negative(products, out=products)
            reach = np.linalg.norm(self._queries, axis=1) * _largest(norms)
            return Estimates(products, (features + 16) * UNIT * reach + features * SMALLEST)
        error = 3 * (features + 16) * UNIT
        short = norms < 1e-30  # their squares underflow, unless they are zero
        if short.any() and np.any(self._vectors.rows(self._keys[short])):
            error = np.inf
        products *= -2 / np.sqrt(np.maximum(norms, np.float32(1e-30)))
        products += 2  # the products of zero vectors are 0
        return Estimates(products, np.full(len(products), error))


class CodeEstimator(Estimator):
    """Distances to what codes decode to."""

    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: Indices) -> None:
        assert isinstance(prepared.scorer, DecodedScorer)
        self.ids, self._prepared, self._metric, self._threads = prepared.ids, prepared, plan.metric, plan.threads
        self._scorer, self._rows, self._raw = prepared.scorer, plan.rows[queries], plan.queries[queries]
        self._in_features = plan.metric == "cosine" != self._scorer.coder.metric_
        self._batch = self._scorer.project(self._rows, "inner" if self._in_features else _projected(plan.metric))

    def estimate(self) -> Estimates:
        """Return distances by ADC lookup tables."""
        metric, batch, tables = self._metric, self._batch, self._prepared.tables
        assert tables is not None
        scaled = (-1 if batch.metric == "inner" else -2) * batch.coefficients
        lengths = np.sqrt(np.einsum("nd,nd->n", batch.coefficients, batch.coefficients, dtype=np.float64))
        parts = []
        for codes in self._prepared.adc_codes:
            part = tables.products(scaled, codes, self._threads)
            if batch.metric == "l2":
                part += codes.squares
            if self._in_features:  # 2 - 2 cos
                part -= batch.mean_products[:, None]
                part *= 2 / codes.norms
                part += 2
            elif metric == "cosine":  # as `_angles`
                part += (lengths**2 + batch.outside)[:, None].astype(np.float32)
                part -= (codes.norms - 1) ** 2
                part /= codes.norms
            parts.append(part)
        out = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return Estimates(out, 2 * tables.operations * UNIT * self._reach(lengths, tables.largest))

    def _reach(self, lengths: Doubles, largest: float) -> Doubles:
        """Return the magnitudes that rounding errors are relative to, given the norms of the queries' coefficients."""
        if self._metric == "inner":
            return lengths * largest
        if self._metric == "l2":
            return np.asarray((lengths + largest) ** 2 + self._batch.outside)
        norms, center = (
            [codes.norms for codes in self._prepared.adc_codes if len(codes.norms)],
            self._scorer.mean_square,
        )
        shortest, longest = min(float(part.min()) for part in norms), max(float(part.max()) for part in norms)
        if shortest == 0:
            return np.full(len(lengths), np.inf)
        if self._in_features:
            return np.asarray(2 * (lengths + 1) * (largest + np.sqrt(center)) / shortest)
        squares = (lengths + largest) ** 2 + self._batch.outside + (longest + 1) ** 2 + center
        return np.asarray(squares / min(shortest, shortest**2))

    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs."""
        unique, which = np.unique(items, return_inverse=True)
        codes = self._prepared.codes_at(self._prepared.positions[unique])
        metric, scorer, batch = self._metric, self._scorer, self._batch
        if self._in_features:
            rows = as_float64(scorer.coder.decode(codes), normalize=True)[which]
            return _compare_rows(as_float64(self._raw, normalize=True)[queries], rows, metric)
        decoded = scorer.coder.coefficients(codes).astype(np.float64)
        coefficients, rows = batch.coefficients[queries].astype(np.float64), decoded[which]
        if metric == "inner":
            products: Doubles = np.einsum("nd,nd->n", coefficients, rows) + batch.mean_products[queries]
            return -products
        coefficients -= rows
        distances: Doubles = np.einsum("nd,nd->n", coefficients, coefficients) + batch.outside[queries]
        if metric == "l2":
            return distances
        return _angles(distances, _norms(scorer, decoded)[which], np.any(self._rows, axis=1)[queries])


def _projected(metric: SearchMetric) -> SearchMetric:
    """Return the metric to project queries for: angles follow from squared distances."""
    return "inner" if metric == "inner" else "l2"


def _largest(squared_norms: Floats) -> float:
    return float(np.sqrt(np.float64(squared_norms.max(initial=0)))) * (1 + 2.0**-10)  # rounding is far less than that


def _compare_rows(queries: Doubles, rows: Doubles, metric: SearchMetric) -> Doubles:
    """Return the distance of each query to the row beside it; both L2-normalized for "cosine"."""
    if metric == "inner":
        products: Doubles = np.einsum("nf,nf->n", queries, rows)
        return -products
    difference = queries - rows
    distances: Doubles = np.einsum("nf,nf->n", difference, difference)
    if metric == "cosine":
        distances[~(np.any(queries, axis=1) & np.any(rows, axis=1))] = 2  # the cosine with a zero vector is 0
    return distances


def _compare_all(prepared: PreparedSnapshot, plan: Plan, queries: Indices, ids: Ids, distances: Floats) -> None:
    """Write the nearest of all items by matrix products in float64, or by Hamming distances."""
    for known, positions, codes in prepared.items():
        for at in range(0, len(known), ITEMS):
            own = known[at : at + ITEMS]
            distances_of = _distances_to(plan, prepared, own, positions[at : at + ITEMS], codes[at : at + ITEMS])
            for first in range(0, len(ids), QUERIES):
                some = slice(first, first + QUERIES)
                near, near_ids = np.empty_like(distances[some]), np.empty_like(ids[some])
                _core.select_top_k(distances_of(queries[some]), own[None], near, near_ids, plan.threads)
                both = np.concatenate([distances[some], near], axis=1)
                both_ids = np.concatenate([ids[some], near_ids], axis=1)
                _core.select_top_k(both, both_ids, distances[some], ids[some], plan.threads)


def _distances_to(
    plan: Plan, prepared: PreparedSnapshot, ids: Ids, positions: Ids, codes: Codes
) -> Callable[[Indices], Floats]:
    """Return a function that gives distances from queries of the plan to these items, (queries, items)."""
    if plan.rank == "exact":
        rows = prepared.vectors.rows(positions) if plan.vectors is None else plan.vectors.rows(ids)
        return _distances_to_rows(plan, rows)
    if plan.codes is not None:
        own = plan.codes
        return lambda queries: np.ascontiguousarray(own[queries].hamming(codes), dtype=np.float32)
    scorer = prepared.scorer
    assert isinstance(scorer, DecodedScorer)
    if plan.metric == "cosine" != scorer.coder.metric_:  # around a mean far from 0, short items have no angle left
        return _distances_to_rows(plan, scorer.coder.decode(codes))
    decoded = scorer.coder.coefficients(codes).astype(np.float64)
    return lambda queries: decoded_distances(scorer, plan.rows[queries], decoded, plan.metric)


def _distances_to_rows(plan: Plan, rows: NDArray[Any]) -> Callable[[Indices], Floats]:
    by_angle = plan.metric == "cosine"
    items = as_float64(rows, normalize=by_angle)
    return lambda queries: vector_distances(as_float64(plan.queries[queries], normalize=by_angle), items, plan.metric)


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


def vector_distances(queries: Doubles, rows: Doubles, metric: SearchMetric) -> Floats:
    """Return distances from queries to rows, (queries, rows); both L2-normalized for "cosine"."""
    if metric == "l2":
        return as_float32(squared_distances(queries, rows))
    products: Doubles = queries @ rows.T
    return as_float32(-products if metric == "inner" else np.maximum(2 - 2 * products, 0))


def decoded_distances(
    scorer: DecodedScorer, queries: NDArray[np.floating[Any]], decoded: Doubles, metric: SearchMetric
) -> Floats:
    """Return distances from queries, L2-normalized for "cosine", to what codes decode to in a scorer's projection."""
    if metric == "inner":
        batch = scorer.project(queries, metric)
        return as_float32(-(batch.coefficients.astype(np.float64) @ decoded.T + batch.mean_products[:, None]))
    batch = scorer.project(queries, "l2")
    distances = squared_distances(batch.coefficients.astype(np.float64), decoded) + batch.outside[:, None]
    if metric == "l2":
        return as_float32(distances)
    return as_float32(_angles(distances, _norms(scorer, decoded), np.any(queries, axis=1, keepdims=True)))


def _norms(scorer: DecodedScorer, decoded: Doubles) -> Doubles:
    """Return the norms of what codes decode to, the mean included."""
    squares = np.einsum("nd,nd->n", decoded, decoded) + 2 * decoded @ scorer.mean + scorer.mean_square
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _angles(distances: Doubles, norms: Doubles, directed: NDArray[np.bool_]) -> Doubles:
    """Return 2 - 2 cos from squared distances; `directed` marks the queries that are not zero.

    Inner products differ too little where all items point the same way. The cosine with a zero vector is 0.
    """
    distances = np.maximum(distances - (norms - 1) ** 2, 0) / np.where(norms > 0, norms, 1)
    return np.where(directed & (norms > 0), distances, 2)


def as_float32(distances: Doubles) -> Floats:
    """Return distances as searches report them: float32, clipped to its range."""
    most = np.finfo(np.float32).max
    return np.clip(distances, -most, most, out=distances).astype(np.float32)
