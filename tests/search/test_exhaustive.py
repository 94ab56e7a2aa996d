"""Exhaustive search is exact, however badly the data is scaled."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import Index, _core
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.search.exhaustive import CodeEstimator, VectorEstimator, squared_distances
from nestcode.search.plan import Plan
from tests import twins
from tests.search.searching import fitted, kinds, metrics

ROWS, FEATURES = 400, 12


def two_groups(apart: float) -> NDArray[np.float32]:
    rows = np.random.default_rng(0).standard_normal((ROWS, FEATURES))
    rows[1::2] += apart
    return rows.astype(np.float32)


def one_wide_column() -> NDArray[np.float32]:
    rows = np.random.default_rng(0).standard_normal((ROWS, FEATURES))
    rows[:, 5] *= 1e3
    return rows.astype(np.float32)


SCALES = {
    "around 0": two_groups(0),
    "around 100": two_groups(0) + np.float32(1e2),
    "around 10,000": two_groups(0) + np.float32(1e4),
    "groups 100 apart": two_groups(1e2),
    "groups 10,000 apart": two_groups(1e4),
    "groups and a shift": two_groups(1e4) - np.float32(1e2),
    "one column 1,000 times as wide": one_wide_column(),
}
scales = pytest.mark.parametrize("scale", SCALES)


def check_nearest(ids: NDArray[np.int64], distances: twins.Doubles, rounding: NDArray[np.float64]) -> None:
    """The hits are as near as the nearest of all, up to `rounding` of each query's distances; each comes once."""
    found, best = np.take_along_axis(distances, ids, axis=1), np.sort(distances, axis=1)[:, : ids.shape[1]]
    assert all(len(set(row)) == len(row) for row in ids.tolist())
    assert (np.abs(np.sort(found, axis=1) - best) <= rounding).all()


@cache
def fitted_to(scale: str, kind: str, own: Any) -> Coder:
    """A coder of all rows but the first 20, which are the queries."""
    like = fitted(kind, own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # about unallocated bits
        return type(like)(**like.get_params()).fit(SCALES[scale][20:])


@cache
def filled(kind: str, own: Any, scale: str) -> Index:
    index = Index(fitted_to(scale, kind, own))
    index.add(SCALES[scale][20:])
    return index


@scales
@metrics
@kinds
def test_hits_by_vectors_are_those_of_brute_force(kind: str, own: Any, metric: Any, scale: str) -> None:
    queries, rows = np.split(SCALES[scale], [20])
    true = twins.distances(queries, rows, metric)
    digits = 2.0**-23 * np.abs(np.sort(true, axis=1)[:, :5]) + 1e-15  # of float32, and of float64 for unit vectors
    for vectors in (rows, rows.astype(np.float64)):
        hits = filled(kind, own, scale).search(queries, 5, candidates=len(rows), metric=metric, vectors=vectors)
        check_nearest(hits.ids, true, digits)
        np.testing.assert_allclose(hits.distances, np.take_along_axis(true, hits.ids, axis=1), rtol=1e-5, atol=1e-14)


@pytest.mark.usefixtures("expanded")
@scales
@metrics
@kinds
def test_hits_by_codes_are_those_of_decoding_all(kind: str, own: Any, metric: Any, scale: str) -> None:
    queries, index = SCALES[scale][:20], filled(kind, own, scale)
    decoded = index.reconstruct(index.ids)
    true = twins.distances(queries, decoded, metric)
    hits = index.search(queries, 5, candidates=len(index), metric=metric)
    check_nearest(hits.ids, true, rounding(np.sort(true, axis=1)[:, :5], queries, decoded, metric))


def rounding(near: twins.Doubles, queries: NDArray[Any], rows: NDArray[Any], metric: str) -> twins.Doubles:
    """By how much distances may change when coders' directions, queries and what codes decode to are float32."""
    moved = 2.0**-22 * (1 if metric == "cosine" else float(np.linalg.norm(rows, axis=1).max()))
    if metric == "inner":
        return np.repeat(moved * np.linalg.norm(queries, axis=1, keepdims=True), 5, axis=1)
    changes: twins.Doubles = 2 * np.sqrt(near) * moved + moved**2
    return changes


@pytest.mark.usefixtures("expanded")
@pytest.mark.parametrize("metric", ["cosine", "inner"])
@kinds
def test_queries_may_be_far_shorter_than_items(kind: str, metric: Any) -> None:
    index, short = filled(kind, "l2", "groups 100 apart"), 2.0**-20
    queries = SCALES["around 0"][:6] * np.float32(short)
    how: dict[str, Any] = {"k": len(index), "candidates": len(index), "metric": metric}
    each = np.stack([index.search(query, **how).distances for query in queries])
    true = np.sort(twins.distances(queries, index.reconstruct(index.ids), metric), axis=1)
    unit = 1 if metric == "cosine" else short
    for distances in (index.search(queries, **how).distances, each):
        np.testing.assert_allclose(distances / unit, true / unit, rtol=1e-4, atol=2e-3)


@pytest.mark.usefixtures("expanded")
@scales
@metrics
@kinds
def test_single_queries_are_as_exact_as_batches(kind: str, own: Any, metric: Any, scale: str) -> None:
    rows, index = SCALES[scale][20:], filled(kind, own, scale)
    decoded = index.reconstruct(index.ids)
    for query in SCALES[scale][:6]:
        true = twins.distances(query[None], rows, metric)
        hits = index.search(query, 5, candidates=len(rows), metric=metric, vectors=rows)
        check_nearest(hits.ids[None], true, 2.0**-23 * np.abs(np.sort(true, axis=1)[:, :5]) + 1e-15)
        np.testing.assert_allclose(hits.distances, true[0, hits.ids], rtol=1e-5, atol=1e-14)
        true = twins.distances(query[None], decoded, metric)
        hits = index.search(query, 5, candidates=len(rows), metric=metric)
        near = np.sort(true, axis=1)[:, :5]
        check_nearest(hits.ids[None], true, rounding(near, query[None], decoded, metric))


@scales
@metrics
@kinds
@pytest.mark.parametrize("queries", [1, 20])
def test_estimates_err_by_less_than_their_bounds(kind: str, own: Any, metric: Any, scale: str, queries: int) -> None:
    index, rows, chosen = filled(kind, own, scale), SCALES[scale][20:], np.arange(queries)
    for vectors in (None, rows, rows.astype(np.float64), rows.astype(np.float16)):
        plan = Plan(index.coder, lambda codes: codes, SCALES[scale][:queries], metric=metric, vectors=vectors)
        estimator_of = VectorEstimator if vectors is not None else CodeEstimator
        estimator = estimator_of(plan, index._searcher.prepare(index._live.current, plan), slice(0, queries))
        with np.errstate(all="ignore"):
            blocks = list(estimator.blocks())
            found = np.concatenate(
                [one.scales * (one.products + one.offsets[:, None]) + one.shifts for one in blocks], 1
            )
        pairs = np.meshgrid(chosen, np.arange(len(rows)), indexing="ij")
        true = estimator.compare(*(part.reshape(-1) for part in pairs)).reshape(queries, -1)
        bound = np.maximum.accumulate([one.bounds for one in blocks])[-1][:, None]
        error = np.where(np.isinf(bound), 0, found - true)
        assert (np.abs(error[:, :, None] - error[:, None, :]) <= bound[:, :, None] + bound[:, None, :]).all()


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 70) | st.integers(65, 400),
    st.lists(st.integers(0, 200) | st.integers(300, 700), min_size=1, max_size=4),
    st.sampled_from(_core.simd_names()),
)
def test_close_items_hold_the_nearest_whatever_the_errors_within_the_bounds(
    seed: int, k: int, blocks: list[int], simd: str
) -> None:
    rng, items, queries = np.random.default_rng(seed), sum(blocks), 3
    true = rng.standard_normal((queries, items))
    bounds = 10.0 ** rng.integers(-6, 0, (queries, 1)) * np.sort(rng.random(len(blocks)))  # which grow
    errors = np.repeat(bounds, blocks, axis=1) * rng.uniform(-1, 1, true.shape)
    close = _core.CloseItems(queries, k, items)
    for products, bound in zip(np.split(true + errors, np.cumsum(blocks)[:-1], axis=1), bounds.T, strict=True):
        ones = np.ones(products.shape[1], dtype=np.float32)
        # 2 (products / 2 - 1) + 2
        own = np.ascontiguousarray(products / 2, dtype=np.float32)
        close.add(own, np.full(queries, -1, np.float32), 2 * ones, 2 * ones, bound + 1e-5, 2, simd)
    counts = np.empty(queries, dtype=np.int64)
    close.count(counts)
    left = np.empty(counts.sum(), dtype=np.int64)
    close.write(left)
    ids = rng.permutation(items)
    distances, found = np.full((queries, k), np.inf, np.float32), np.full((queries, k), -1)
    close.rank(true[np.repeat(np.arange(queries), counts), left], ids, distances, found)
    for q in np.flatnonzero(counts):
        wanted, near = twins.nearest(true[q : q + 1], ids, k)
        assert np.array_equal(found[q], wanted[0])
        np.testing.assert_allclose(distances[q], near[0], rtol=1e-6)
    assert (counts[bounds[:, -1] < 1e-3] > 0).all() or items == 0  # few are close


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
@pytest.mark.parametrize(("features", "items", "k"), [(5, 7, 5), (37, 1300, 5), (48, 1024, 5), (9, 3000, 300)])
def test_batches_of_queries_have_the_hits_of_each_query_alone(metric: str, features: int, items: int, k: int) -> None:
    rng = np.random.default_rng(features)
    rows, queries = (rng.standard_normal((n, features)).astype(np.float32) for n in (items, 29))
    rows[3] = 0
    chosen = rng.permutation(items)[: items - 2].astype(np.uint32)  # of the vectors
    shape = len(queries), k
    for stored in (rows, rows.astype(np.float16)):
        vectors = _core.VectorRuns(stored)
        both = [(np.empty(shape, np.float32), np.empty(shape, np.int64)) for _ in range(2)]
        done = vectors.nearest(queries, chosen, chosen.astype(np.int64), metric, *both[0], 2)
        assert done == (_core.simd_names()[-1] == "avx512")  # BLAS multiplies elsewhere
        for query, distances, ids in zip(queries, *both[1], strict=True):
            assert vectors.nearest(query, chosen, chosen.astype(np.int64), metric, distances, ids)
        if done:
            assert np.array_equal(both[0][1], both[1][1])
            np.testing.assert_allclose(both[0][0], both[1][0], rtol=1e-6)


@metrics
def test_batches_by_codes_have_the_hits_of_each_query_alone_among_many_items(own: Any, metric: Any) -> None:
    rows = np.random.default_rng(5).standard_normal((5000, FEATURES)).astype(np.float32)  # more than stay decoded
    index = Index(fitted("linear", own))
    index.add(rows)
    index.remove(np.arange(0, 5000, 7))
    every = {"candidates": 5000, "metric": metric}
    for k in (5, 500):
        hits = index.search(rows[:9], k, **every)
        for query, distances in zip(rows[:9], hits.distances, strict=True):
            np.testing.assert_allclose(index.search(query, k, **every).distances, distances, rtol=1e-4, atol=1e-5)


@metrics
def test_duplicates_and_zeros_are_found(own: Any, metric: Any) -> None:
    rows = np.repeat(SCALES["around 0"][:40], 20, axis=0)
    rows[::100] = 0
    queries = SCALES["around 0"][30:50]
    queries[3] = 0
    index = Index(fitted("linear", own))
    index.add(rows)
    true = twins.distances(queries, rows, metric)
    for some in (slice(0, 20), slice(3, 4), slice(5, 6)):
        hits = index.search(queries[some], 30, candidates=len(rows), metric=metric, vectors=rows)
        twins.check_all(hits, true[some], np.arange(len(rows)))


def test_vectors_that_are_not_finite_are_refused_unless_filtered_out() -> None:
    rows = SCALES["around 0"].copy()
    index = Index(fitted("linear"))
    index.add(rows)
    clean = index.search(rows[:3], 5, candidates=ROWS, vectors=rows, filter=np.arange(ROWS - 1))
    for bad in (np.nan, np.inf):
        rows[-1, 2] = bad
        for queries in (rows[0], rows[:3]):
            with pytest.raises(InvalidInput, match="finite"):
                index.search(queries, 5, candidates=ROWS, vectors=rows)
        hits = index.search(rows[:3], 5, candidates=ROWS, vectors=rows, filter=np.arange(ROWS - 1))
        assert np.array_equal(hits.ids, clean.ids)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([0.0, 1.0, 1e4, 1e9, 1e15]))
def test_squared_distances_are_those_of_subtracting_first(seed: int, features: int, apart: float) -> None:
    rng = np.random.default_rng(seed)
    queries, rows = (rng.standard_normal((n, features)) + apart * rng.integers(0, 2, (n, 1)) for n in (4, 9))
    rows[0] = queries[0]
    true = twins.distances(queries, rows, "l2")
    np.testing.assert_allclose(squared_distances(queries, rows), true, rtol=1e-6, atol=0)
