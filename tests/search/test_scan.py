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
from nestcode.search.request import Request
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
    norms = np.linalg.norm(rows, axis=1)
    moved = 2.0**-22 * float(norms.max() / norms.min() if metric == "cosine" else norms.max())
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


def rows_of_kind(kind: str, rng: np.random.Generator, count: int, features: int) -> NDArray[np.float64]:
    rows = rng.standard_normal((count, features))
    if kind == "far from 0":
        rows += 1e4
    if kind == "clusters far apart":
        rows[::2] += 1e4
    if kind == "zeros":
        rows[::3] = 0
    if kind == "duplicates":
        rows = rows[rng.integers(0, 1 + count // 9, count)]
    scale: float = {"tiny": 1e-25, "huge": 1e17}.get(kind, 1.0)
    return rows * scale


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "far from 0", "clusters far apart", "zeros", "duplicates", "tiny", "huge"]),
    st.sampled_from(["float32", "float64", "float16"]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["l2", "cosine", "inner"]),
    st.sampled_from(_core.simd_names()),
)
def test_the_core_scans_vectors_as_numpy_does(
    seed: int, kind: str, stored: str, given: str, metric: str, simd: str
) -> None:
    rng = np.random.default_rng(seed)
    features, items = int(rng.choice([2, 5, 17, 48, 100])), int(rng.choice([1, 7, 90, 1300]))
    count, k = int(rng.choice([1, 2, 3, 14, 40])), int(rng.choice([1, 5, 70, items + 3]))
    if stored == "float16" and kind in ("tiny", "huge"):
        stored = "float32"
    rows = rows_of_kind(kind, rng, items, features).astype(stored)
    queries = rows_of_kind(kind, rng, count, features).astype(given)
    chosen = rng.permutation(items)[: 1 + items * 3 // 4].astype(rng.choice(["uint32", "int64"]))
    ids = rng.permutation(10 * items)[: len(chosen)]
    halves = np.array_split(np.arange(len(chosen)), 2)  # hits of a scan stay in the next
    distances, found = np.full((count, k), np.inf, np.float32), np.full((count, k), -1)
    for some in halves if seed % 2 else [np.arange(len(chosen))]:
        vectors = _core.VectorRuns(rows)
        assert _core.scan(vectors, queries, chosen[some], ids[some], metric, distances, found, 2, simd)
    true = twins.distances(queries, rows[chosen], metric)
    twins.check_scan(found, distances, true, ids)


@given(st.integers(0, 2**32 - 1), st.sampled_from(_core.simd_names()))
def test_the_core_scans_codes_by_hamming_distance_as_numpy_does(seed: int, simd: str) -> None:
    rng = np.random.default_rng(seed)
    width, items, count = int(rng.integers(1, 700)), int(rng.choice([0, 3, 900])), int(rng.choice([1, 2, 40]))
    queries, codes = twins.random_codes(count, width, seed), twins.random_codes(items, width, seed + 1)
    ids, k = rng.permutation(9 * items)[:items], int(rng.choice([1, 20, 1000]))
    distances, found = np.full((count, k), np.inf, np.float32), np.full((count, k), -1)
    _core.scan_hamming(queries.packed, codes.packed, ids, distances, found, 2, simd)
    true = twins.hamming(queries.bits(), codes.bits()).astype(float)
    wanted, near = twins.nearest(true, ids, k)
    assert np.array_equal(found, wanted)
    assert np.array_equal(distances, near)


@scales
@metrics
@kinds
@pytest.mark.parametrize("simd", _core.simd_names())
def test_the_core_scans_codes_as_numpy_compares_what_they_decode_to(
    kind: str, own: Any, metric: Any, scale: str, simd: str
) -> None:
    index, queries = filled(kind, own, scale), SCALES[scale][:20]
    request = Request(index.coder, index.width, queries, metric=metric)
    prepared = index._searcher._select(index._live.current, request).prepared
    codes = prepared.scanned_codes(metric)
    assert codes is not None
    some = np.arange(0, len(index), 2, dtype=np.uint32)
    ids = prepared.ids_at(some)
    decoded = index.reconstruct(ids)
    for asked in (queries, queries[:2], queries.astype(np.float64), queries * np.float32(1e-20)):
        distances, found = np.full((len(asked), 5), np.inf, np.float32), np.full((len(asked), 5), -1)
        assert _core.scan(codes, asked, some, ids, metric, distances, found, 2, simd)
        true = twins.distances(asked, decoded, metric)
        error = rounding(np.sort(true, axis=1)[:, :5], asked, decoded, metric)
        places = np.argsort(ids)[np.searchsorted(np.sort(ids), found)]
        check_nearest(places, true, error)
        np.testing.assert_allclose(
            distances, np.take_along_axis(true, places, axis=1), rtol=1e-4, atol=error.max(initial=0)
        )


def test_scans_say_whether_distances_fit_float32() -> None:
    rows, ids = np.full((3, 4), 1e19, dtype=np.float32), np.arange(3)
    hits = np.full((2, 3), np.inf, np.float32), np.full((2, 3), -1)
    vectors = _core.VectorRuns(rows)
    assert _core.scan(vectors, rows[:2] / 2, ids, ids, "cosine", *hits)
    for queries in (np.zeros((2, 4)), -rows[:2], np.full((2, 4), np.nan)):
        hits = np.full((2, 3), np.inf, np.float32), np.full((2, 3), -1)
        assert not _core.scan(vectors, queries, ids, ids, "l2", *hits)
        assert (hits[0][hits[1] >= 0] <= np.finfo(np.float32).max).all()
    vectors = _core.VectorRuns(rows * np.float32(np.inf))
    for metric in ("l2", "cosine", "inner"):
        with pytest.raises(InvalidInput, match="finite"):
            _core.scan(vectors, rows[:2], ids, ids, metric, *hits)


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
