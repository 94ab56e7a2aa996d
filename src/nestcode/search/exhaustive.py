"""Exhaustive search: every query against every item, exact.

A search whose candidate budget covers all items is exhaustive. It takes two passes:

1. Estimate all distances in float32, with a bound on their rounding errors: vectors by a matrix product, or for one
   query by one scan; codes by ADC lookup tables, or decoded as vectors for many queries.
2. Compute in float64 the distances of the items that the bound cannot rule out: those whose estimate is at most the
   k-th best plus twice the bound.

The core takes both passes for one query, and with AVX-512 for batches (`cpp/nestcode/scan.hpp`, `row_search.hpp`).

Squares of float32 have too few digits for data far from 0 or in clusters far apart. There the bound rules out too
little, and such queries are compared with all items in float64, by matrix products. So are codes that only a network
decodes. Hamming distances are integers and need no second pass.

The bounds are those of Higham (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1): a sum of d products
of float32 has an error of at most about d 2^-24 times the sum of their magnitudes, in any order of summation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
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
from nestcode.search.product_tables import AdcCodes, ProductTables
from nestcode.search.scorer import NO_CODES, NO_NORMS, QueryBatch, SearchMetric
from nestcode.search.vectors import Vectors, median

QUERIES = 256  # compared at once
ITEMS = 1 << 14  # in float64
ROWS = 1 << 12  # vectors in a matrix product
PAIRS = 1 << 12  # of a query and an item, compared at once in float64
DECODED = 8  # queries for which decoding codes, for a matrix product, takes less time than lookup tables
SCANNED = 2  # queries that scans of the vectors of their own score faster than a matrix product
CLOSE = 1e-9  # of the squared norms: what cancellation leaves of a smaller distance is less exact than float32
UNIT = 2.0**-24  # the relative error of rounding to float32
SMALLEST = 2.0**-125  # at least the error of a product that underflows

NO_KEYS = np.zeros(0, dtype=np.int64)
Indices = NDArray[np.int64]


def search_all(prepared: PreparedSnapshot, plan: Plan, start: int, ids: Ids, distances: Floats) -> None:
    """Write the nearest of all items that may be found, for the queries of a plan from `start` on."""
    exact = plan.rank == "exact"
    if prepared.count == 0 or plan.codes is not None or not (exact or prepared.decoded_vectors):
        _search_together(prepared, plan, start, ids, distances)
        return
    rows = np.ascontiguousarray(plan.queries[start : start + len(ids)], dtype=plan.rows.dtype)
    if len(ids) > SCANNED:
        if not prepared.scan_vectors(plan.vectors, rows, plan.metric, ids, distances, plan.threads, exact=exact):
            ids.fill(-1)
            distances.fill(np.inf)
            _search_together(prepared, plan, start, ids, distances)
        return
    for i, row in enumerate(rows):
        if not prepared.scan_vectors(plan.vectors, row, plan.metric, ids[i], distances[i], plan.threads, exact=exact):
            _search_together(prepared, plan, start + i, ids[i : i + 1], distances[i : i + 1])


def _search_together(prepared: PreparedSnapshot, plan: Plan, start: int, ids: Ids, distances: Floats) -> None:
    """Write the nearest items of queries by products of matrices, which takes as long for one query as for a few."""
    estimator = _choose_estimator(prepared, plan)
    if estimator is None:
        _compare_all(prepared, plan, np.arange(start, start + len(ids)), ids, distances)
        return
    for first in range(0, len(ids), QUERIES):
        some = slice(first, first + QUERIES)
        own = estimator(plan, prepared, slice(start + first, start + first + len(ids[some])))
        left = _search_by_estimates(own, ids[some], distances[some], plan.threads)
        if len(left):
            near, near_ids = distances[some][left], ids[some][left]
            _compare_all(prepared, plan, start + first + left, near_ids, near)
            distances[some][left], ids[some][left] = near, near_ids


@dataclass(frozen=True)
class Block:
    """Inner products of some items, which estimates of their distances are computed from.

    An estimate is scales * (products + offsets) + shifts, up to a term that all items of a query share.
    """

    products: Floats  # (queries, items)
    offsets: Floats  # (queries,)
    scales: Floats  # (items,)
    shifts: Floats  # (items,)
    bounds: Doubles  # (queries,): of the errors of these estimates and all before


class Estimator(ABC):
    """Estimates distances from some queries of a plan to all items, and computes those of a few pairs in float64."""

    ids: Ids  # of the items

    @abstractmethod
    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: slice) -> None: ...

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the estimates of all items in order, each until the next."""

    @abstractmethod
    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs of a query and an item."""


def _choose_estimator(prepared: PreparedSnapshot, plan: Plan) -> type[Estimator] | None:
    if plan.codes is not None or prepared.count == 0:
        return None
    if plan.rank == "exact" or prepared.decoded_vectors is not None:
        return VectorEstimator
    return None if prepared.tables is None else CodeEstimator


def _search_by_estimates(estimator: Estimator, ids: Ids, distances: Floats, threads: int) -> Indices:
    """Write the nearest items of an estimator's queries, and return the queries left to compare with all items."""
    close = _core.CloseItems(len(ids), ids.shape[1], len(estimator.ids))
    with np.errstate(all="ignore"):  # what is not finite is left to float64, which checks the data
        for block in estimator.blocks():
            close.add(block.products, block.offsets, block.scales, block.shifts, block.bounds, threads)
    counts = np.empty(len(ids), dtype=np.int64)
    close.count(counts)
    queries, items = np.repeat(np.arange(len(ids)), counts), np.empty(counts.sum(), dtype=np.int64)
    close.write(items)
    exact = np.empty(len(items))
    for first in range(0, len(exact), PAIRS):
        some = slice(first, first + PAIRS)
        exact[some] = estimator.compare(queries[some], items[some])
    close.rank(exact, estimator.ids, distances, ids)
    return np.flatnonzero(counts == 0)


class VectorEstimator(Estimator):
    """Distances to the vectors themselves."""

    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: slice) -> None:
        given = plan.vectors is not None
        own = prepared.scanned_vectors if plan.rank == "exact" else prepared.decoded_vectors
        vectors = own if plan.vectors is None else plan.vectors
        assert vectors is not None
        self._vectors: Vectors = vectors
        self.ids = prepared.sorted_ids if given else prepared.ids
        self._keys = self.ids if given else prepared.positions.astype(np.int64)
        self._core = self._vectors.direct(self.ids if given else NO_KEYS)
        self._metric, self._threads = plan.metric, plan.threads
        self._rows = plan.rows[queries]  # L2-normalized for "cosine"
        self._queries = np.ascontiguousarray(plan.queries[queries], dtype=self._rows.dtype)

    def blocks(self) -> Iterator[Block]:
        """Yield estimates by matrix products."""
        metric, own, features = self._metric, self._rows, self._rows.shape[1]
        center = _center(own) if metric == "l2" else None
        own = own if center is None else own - center
        rounded, offsets = own.astype(np.float32, copy=False), np.zeros(len(own), dtype=np.float32)
        lengths = _lengths(own)
        unit, largest, error = (features + 16) * UNIT, 0.0, 0.0
        room = np.empty(len(own) * min(ROWS, len(self._keys)), dtype=np.float32)
        for first in range(0, len(self._keys), ROWS):
            keys = self._keys[first : first + ROWS]
            rows, norms = self._around(center, keys)
            products = room[: len(own) * len(keys)].reshape(len(own), len(keys))
            if rows.dtype == np.float32:
                np.matmul(rounded, rows.T, out=products)
            else:
                products[:] = own @ rows.T
            largest = max(largest, _largest(norms))
            if metric == "l2":
                scales, shifts = np.full_like(norms, -2), norms
                bounds = unit * (lengths + largest) ** 2 + features * SMALLEST
            elif metric == "inner":
                scales, shifts = np.full_like(norms, -1), np.zeros_like(norms)
                bounds = unit * lengths * largest + features * SMALLEST
            else:
                short = norms < 1e-30  # their squares underflow, unless they are zero: then products are 0
                if short.any() and np.any(rows[short]):
                    error = np.inf
                scales = (-2 / np.sqrt(np.maximum(norms, 1e-30))).astype(np.float32)
                shifts = np.full_like(norms, 2)
                bounds = np.full(len(own), 3 * unit + error)
            yield Block(products, offsets, scales, shifts, bounds)

    def _around(self, center: Floats | None, keys: Ids) -> tuple[NDArray[np.floating[Any]], Floats]:
        """Return vectors minus a center, (keys, features), in float32 or finer, and their squared norms, (keys,)."""
        rows, norms = self._vectors.rows(keys), np.empty(len(keys), dtype=np.float32)
        dtype = np.float32 if np.result_type(rows.dtype, np.float32) == np.float32 else np.float64
        rows = np.asarray(rows, dtype=dtype) if center is None else np.subtract(rows, center, dtype=dtype)
        if dtype == np.float32 and rows.flags.c_contiguous and rows.flags.aligned:
            _core.squared_norms(rows, norms, self._threads)
        else:
            np.einsum("nf,nf->n", rows, rows, out=norms, casting="same_kind")
        return rows, norms

    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs."""
        keys = self._keys[items]
        if self._core is not None:
            out = np.empty(len(items))
            self._core.compare(self._queries, queries, keys, self._metric, out, self._threads)
            self._vectors.check()
            return out
        by_angle = self._metric == "cosine"
        rows = as_float64(self._vectors.rows(keys), normalize=by_angle)
        return _compare_rows(as_float64(self._queries[queries], normalize=by_angle), rows, self._metric)


class UnitQueries:
    """L2-normalized queries for inner products with items that are not, which a scorer decodes around their mean.

    They are projected in float64: the mean may be so long that float32 leaves no digits of a query around it, or a
    query so long that float32 leaves none of what it differs in.
    """

    def __init__(self, scorer: DecodedScorer, queries: NDArray[np.floating[Any]]) -> None:
        projection = scorer.coder.projection()
        assert projection is not None, "a coder with lookup tables has a projection"
        rows, directions = queries.astype(np.float64), projection.directions.astype(np.float64)
        norms = np.sqrt(np.einsum("nf,nf->n", rows, rows))
        rows *= np.where(norms > 0, 1 / norms, 0)[:, None]
        self.mean: Doubles = directions @ projection.mean  # its coefficients
        self.weights = rows @ directions.T  # (queries, directions): of coefficients
        self.products = rows @ projection.mean  # (queries,): with the mean
        weights, products = self.weights.astype(np.float32), self.products.astype(np.float32)
        self.batch = QueryBatch("cosine", weights, products, NO_NORMS, NO_CODES)


class CodeEstimator(Estimator):
    """Distances to what codes decode to."""

    def __init__(self, plan: Plan, prepared: PreparedSnapshot, queries: slice) -> None:
        assert isinstance(prepared.scorer, DecodedScorer)
        self.ids, self._prepared, self._metric, self._threads = prepared.ids, prepared, plan.metric, plan.threads
        self._scorer, self._rows = prepared.scorer, plan.rows[queries]
        self._unit: UnitQueries | None = None  # for angles where the coder does not L2-normalize items
        if plan.metric == "cosine" != self._scorer.coder.metric_:
            own = np.asarray(plan.queries[queries], dtype=self._rows.dtype)
            with np.errstate(all="ignore"):  # the largest ones are left to float64
                self._unit = UnitQueries(self._scorer, own)
            self._batch = self._unit.batch
        else:
            self._batch = self._scorer.project(self._rows, _projected(plan.metric))
        self._decoded: Floats | None = None  # all items, where they are one block

    def blocks(self) -> Iterator[Block]:
        """Yield estimates by ADC lookup tables, or for many queries by matrix products with decoded codes."""
        batch, tables = self._batch, self._prepared.tables
        assert tables is not None
        lengths = _lengths(batch.coefficients)
        offsets = np.zeros(len(lengths), dtype=np.float32)
        if self._unit is not None:
            offsets = batch.mean_products
        elif self._metric == "cosine":
            own = np.einsum("nd,nd->n", batch.coefficients, batch.coefficients, dtype=np.float64)
            offsets = (-0.5 * (own + batch.outside)).astype(np.float32)
        bounds = 2 * tables.operations * UNIT * self._reach(lengths, tables.largest)
        for products, codes in self._products(tables):
            scales, shifts = np.full_like(codes.norms, -2), codes.squares
            if self._unit is not None:  # 2 - 2 cos
                scales, shifts = np.float32(-2) / codes.norms, np.full_like(codes.norms, 2)
            elif self._metric == "cosine":  # as `_angles`
                scales, shifts = np.float32(-2) / codes.norms, (codes.squares - (codes.norms - 1) ** 2) / codes.norms
            elif self._metric == "inner":
                scales, shifts = np.full_like(codes.norms, -1), np.zeros_like(codes.norms)
            yield Block(products, offsets, scales, shifts, bounds)

    def _products(self, tables: ProductTables) -> Iterator[tuple[Floats, AdcCodes]]:
        """Yield inner products with what codes decode to, (queries, items), of all items in order."""
        start, prepared, coefficients = 0, self._prepared, self._batch.coefficients
        for codes in prepared.adc_codes:
            if len(coefficients) < DECODED:
                yield tables.products(coefficients, codes, self._threads), codes
            else:
                for first in range(0, len(codes.norms), ROWS):
                    some = codes[first : first + ROWS]
                    at = prepared.positions[start + first : start + first + len(some.norms)]
                    decoded = self._scorer.coder.coefficients(prepared.codes_at(at), self._threads)
                    if len(decoded) == len(self.ids):
                        self._decoded = decoded
                    yield coefficients @ decoded.T, some
            start += len(codes.norms)

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
        if self._unit is not None:
            spans = (largest + np.sqrt(center)) / shortest  # what cancels in the shortest item, and twice in its square
            return np.full(len(lengths), 6 * spans + spans**2)
        squares = (lengths + largest) ** 2 + self._batch.outside + (longest + 1) ** 2 + center
        return np.asarray(squares / min(shortest, shortest**2))

    def compare(self, queries: Indices, items: Indices) -> Doubles:
        """Return the distances of pairs."""
        metric, scorer, batch = self._metric, self._scorer, self._batch
        decoded, which = self._decoded, items
        if decoded is None:
            unique, which = np.unique(items, return_inverse=True)
            codes = self._prepared.codes_at(self._prepared.positions[unique])
            decoded = scorer.coder.coefficients(codes, self._threads)
        if self._unit is not None:
            products = self._unit.products[queries] - self._compare(
                self._unit.weights, decoded, queries, which, "inner"
            )
            norms = _norms(scorer, decoded.astype(np.float64), self._unit.mean)[which]
            return np.where(norms > 0, np.maximum(2 - 2 * products / np.where(norms > 0, norms, 1), 0), 2)
        distances = self._compare(batch.coefficients, decoded, queries, which, _projected(metric))
        if metric == "inner":
            return np.asarray(distances - batch.mean_products[queries])
        distances += batch.outside[queries]
        if metric == "l2":
            return distances
        norms = _norms(scorer, decoded.astype(np.float64), scorer.mean)[which]
        return _angles(distances, norms, np.any(self._rows, axis=1)[queries])

    def _compare(
        self,
        rows: NDArray[np.floating[Any]],
        decoded: Floats,
        queries: Indices,
        items: Indices,
        metric: SearchMetric,
    ) -> Doubles:
        out = np.empty(len(items))
        core = _core.VectorRuns(decoded)
        core.compare(rows, queries, items, metric, out, self._threads)
        return out


def _center(queries: NDArray[np.floating[Any]]) -> Floats | None:
    """Return the mean of queries, or None where it is not far from 0: then squares around 0 are as small."""
    mean = queries.mean(axis=0)
    far = len(queries) * (mean @ mean) > np.vdot(queries, queries) / 2
    return mean.astype(np.float32) if far else None


def _projected(metric: SearchMetric) -> SearchMetric:
    """Return the metric to project queries for: angles follow from squared distances."""
    return "inner" if metric == "inner" else "l2"


def _lengths(rows: NDArray[np.floating[Any]]) -> Doubles:
    """Return the norms of rows, rounded up."""
    squares = np.einsum("nf,nf->n", rows, rows)
    if squares.min(initial=1) < 1e-30:  # as float32 underflows
        squares = np.einsum("nf,nf->n", rows, rows, dtype=np.float64)
    return np.asarray(np.sqrt(squares, dtype=np.float64) * (1 + 2.0**-10))  # as below


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
    return as_float32(_angles(distances, _norms(scorer, decoded, scorer.mean), np.any(queries, axis=1, keepdims=True)))


def _norms(scorer: DecodedScorer, decoded: Doubles, mean: NDArray[np.floating[Any]]) -> Doubles:
    """Return the norms of what codes decode to, the mean included, given its coefficients."""
    squares = np.einsum("nd,nd->n", decoded, decoded) + 2 * decoded @ mean + scorer.mean_square
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
