"""Search by rows in one call of the core: it finds what the steps of a plan find, item for item."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from nestcode import AdaptiveCoder, CellCoder, Index, LinearCoder, _core
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index import compaction
from nestcode.index.snapshot import Snapshot
from nestcode.search import plan, prepared, row_search
from nestcode.search.hits import Hits
from nestcode.search.vectors import VectorFormat
from tests import twins
from tests.search.searching import FEATURES, ROWS, Q, X, fill, fitted, kinds

by_metric = pytest.mark.parametrize("metric", ["l2", "cosine"])
stores = pytest.mark.parametrize("vectors", [None, "float32", "float16", "int8"])


@cache
def filled(kind: str, metric: Any, vectors: Any) -> Index:
    """Three segments and the buffer, with tombstones."""
    return fill(Index(fitted(kind, metric), vectors=vectors)).index


@cache
def walked(metric: Any, vectors: Any) -> Index:
    """Two graphs, a segment without one and the buffer, with tombstones."""
    index = Index(LinearCoder(40, metric=metric).fit(X), vectors=vectors, graph=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MIN_GRAPH", 100)
        for name in ("SIZE_RATIO", "GRAPH_RATIO"):
            patch.setattr(compaction, name, 0)
        for first, last in ((0, 500), (500, 1000), (1000, 1050), (1050, ROWS)):
            index.add(X[first:last])
            if last < ROWS:
                index._live.write(Snapshot.flush)
        index.wait()
        index.remove(np.arange(0, ROWS, 7))
    return index


def by_rows(index: Index, queries: Any, k: int, **options: Any) -> Hits | None:
    chosen = {"candidates": None, "rerank": None, "effort": None, "threads": 1, **options}
    return index._searcher.search_rows(index._live.current, queries, k, **chosen)


def by_steps(index: Index, queries: Any, k: int, **options: Any) -> Hits:
    snapshot = index._live.current
    return index._searcher.search(snapshot, index._plan(snapshot, queries, **options), k)


def assert_same_but_ties(found: Hits, expected: Hits, atol: float) -> None:
    """Distances are the same up to rounding, and ids wherever other hits are not as near; the next hit is not known."""
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5, atol=atol)
    near = np.where(np.isinf(expected.distances), np.float32(1e30), expected.distances).reshape(-1, found.ids.shape[-1])
    tied = np.diff(near, axis=1) <= 2 * (atol + 1e-5 * np.abs(near[:, 1:]))
    alone = ~(np.pad(tied, ((0, 0), (1, 0))) | np.pad(tied, ((0, 0), (0, 1)), constant_values=True))
    assert np.array_equal(found.ids.reshape(near.shape)[alone], expected.ids.reshape(near.shape)[alone])


def check(index: Index, candidates: int) -> None:
    calls: list[tuple[Any, int, dict[str, Any]]] = [
        (Q, 10, {"rerank": 30, "threads": 2}),
        (Q.astype(np.float64), 1, {}),
        (Q[:1], 10, {}),
        (Q[3], 3, {"rerank": 20}),
        (Q[4].astype(np.float64), 300, {}),
    ]
    for queries, k, options in calls:
        found = by_rows(index, queries, k, candidates=candidates, **options)
        expected = by_steps(index, queries, k, candidates=candidates, **options)
        assert found is not None
        assert np.array_equal(found.compared, expected.compared)
        assert found.ids.shape == expected.ids.shape
        assert found.ids.dtype == np.int64
        assert_same_but_ties(found, expected, atol=1e-4)


@stores
@by_metric
@kinds
def test_lists_find_what_the_steps_find(kind: str, metric: str, vectors: Any) -> None:
    check(filled(kind, metric, vectors), 60)
    check(filled(kind, metric, vectors), 300)


def test_batches_that_rerank_many_codes_of_bit_planes_are_searched_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_search, "MANY", 50)
    batch = np.concatenate([Q] * (row_search.FEW // len(Q) + 1))
    for kind in ("linear", "cell", "residual"):
        index = filled(kind, "l2", None)
        assert by_rows(index, batch, 4, candidates=300, rerank=49) is None
        found = by_rows(index, batch, 4, candidates=300, rerank=50)
        if kind == "residual":
            assert found is None
        else:
            few = by_rows(index, Q, 4, candidates=300, rerank=50)
            assert found is not None
            assert few is not None
            assert found.ids[-len(Q) :].tolist() == few.ids.tolist()


@stores
@by_metric
def test_graphs_find_what_the_steps_find(metric: str, vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "VISIT", 0)
    index = walked(metric, vectors)
    assert sum(one.graph is not None for one in index._live.current.segments) == 2
    check(index, 40)


@pytest.mark.usefixtures("expanded")
@stores
@by_metric
@pytest.mark.parametrize("kind", ["linear", "cell"])
def test_one_query_is_compared_with_all_items_as_a_batch_is(kind: str, metric: str, vectors: Any) -> None:
    index = filled(kind, metric, vectors)
    for dtype, k in ((np.float32, 9), (np.float64, 1), (np.float32, ROWS + 5)):
        queries = Q.astype(dtype)
        batch = index.search(queries, k, candidates=ROWS)
        for q in range(len(Q) if k < ROWS else 2):
            found = by_rows(index, queries[q], k, candidates=ROWS)
            assert found is not None
            assert_same_but_ties(found, Hits(batch.ids[q], batch.distances[q], batch.compared[q]), atol=1e-5)
            assert found.compared == len(index)


@pytest.mark.usefixtures("expanded")
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
@pytest.mark.parametrize("kind", ["linear", "cell"])
def test_one_query_is_compared_with_all_items_by_any_metric(kind: str, metric: Any) -> None:
    for index, given in (
        (filled(kind, "l2", None), None),
        (filled(kind, "l2", None), X),
        (filled(kind, "l2", "int8"), None),
    ):
        for query in (Q[0], Q[1].astype(np.float64)):
            options = {"metric": metric, "vectors": given, "candidates": ROWS}
            found, expected = by_rows(index, query, 9, **options), by_steps(index, query, 9, **options)
            assert found is not None
            assert_same_but_ties(found, expected, atol=1e-5)
            assert by_rows(index, query, 9, metric=metric, vectors=X, candidates=60) is None
    by_angle = filled(kind, "cosine", None)
    assert (by_rows(by_angle, Q[0], 9, metric=metric, candidates=ROWS) is not None) is (metric == "cosine")


@pytest.mark.usefixtures("expanded")
@stores
@by_metric
@kinds
def test_few_items_that_a_filter_leaves_are_those_of_the_steps(kind: str, metric: str, vectors: Any) -> None:
    index = filled(kind, metric, vectors)
    for ids in (index.ids[:3], index.ids[::5], np.delete(index.ids, [7, 70]), np.arange(5000)):
        allowed = plan.IdFilter(ids)
        for queries in (Q, Q[:1], Q[2], Q[3].astype(np.float64)):
            found = by_rows(index, queries, 6, allowed=allowed)
            expected = by_steps(index, queries, 6, allowed=allowed)
            if found is None:  # BLAS multiplies, or tables score codes
                continue
            assert_same_but_ties(found, expected, atol=1e-4)
            assert set(found.ids.reshape(-1).tolist()) <= {-1, *ids.tolist()}
    assert by_rows(index, Q[0], 6, allowed=plan.IdFilter(index.ids[:3])) is not None
    assert by_rows(index, Q[0], 6, allowed=plan.IdFilter([]), candidates=None) is None
    with pytest.raises(InvalidInput, match="rerank"):
        by_rows(index, Q[0], 6, allowed=plan.IdFilter([1]), rerank=0)


@by_metric
def test_hits_that_a_filter_leaves_are_those_of_the_steps(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.cache_clear()
    for name, value in {"prepared.EXPANDED": 0, "row_search.FEW_CODES": 0}.items():
        monkeypatch.setattr(f"nestcode.search.{name}", value)
    index = filled("linear", metric, None)
    for ids in (index.ids[::2], np.delete(index.ids, [7, 70])):
        allowed = plan.IdFilter(ids)
        found = by_rows(index, Q[0], 6, allowed=allowed)
        assert found is not None
        assert found.compared == len(index)  # whose hits are tested
        assert_same_but_ties(found, by_steps(index, Q[0], 6, allowed=allowed), atol=1e-4)
    near = index.search(Q[0], 40, candidates=ROWS).ids
    assert (
        by_rows(index, Q[0], 6, allowed=plan.IdFilter(np.setdiff1d(index.ids, near))) is None
    )  # all near are excluded


@stores
def test_positions_of_allowed_items_are_looked_up_once_and_never_for_nearly_all(
    vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (prepared, plan):
        monkeypatch.setattr(module, "FEW_ITEMS", 20)
    for name in ("prepared.EXPANDED", "row_search.FEW_CODES"):
        monkeypatch.setattr(f"nestcode.search.{name}", 0)
    index = fill(Index(fitted("cell"), vectors=vectors)).index
    looked_up: list[object] = []
    look_up = plan.IdFilter._look_up

    def count(self: plan.IdFilter, run: prepared.SortedRun) -> prepared.Positions:
        looked_up.append(run)
        return look_up(self, run)

    monkeypatch.setattr(plan.IdFilter, "_look_up", count)
    for queries in (Q[0], Q):
        assert index.search(queries, 3, filter=np.delete(index.ids, [7, 70])).ids.min() >= 0
        assert not looked_up
        for step in (2, 5, 100):
            index.search(queries, 3, filter=index.ids[::step])
            assert len(looked_up) <= len(index._live.current.runs)
            looked_up.clear()


@by_metric
def test_codes_that_only_their_coder_decodes_are_kept_as_vectors(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    coder, found = AdaptiveCoder(16, beams=1, metric=metric).fit(X), []
    for most in (prepared.DECODED, 0):
        monkeypatch.setattr(prepared, "DECODED", most)
        index = Index(coder)
        index.add(X)
        assert (by_rows(index, Q[0], 5) is not None) is (most > 0)
        found.append([index.search(queries, 5) for queries in (Q, Q[0])])
    for kept, decoded in zip(*found, strict=True):
        assert_same_but_ties(kept, decoded, atol=1e-4)


@stores
@kinds
def test_filtered_searches_compare_as_many_by_rows_as_by_steps(
    kind: str, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (prepared, plan):
        monkeypatch.setattr(module, "FEW_ITEMS", 300)
    index = fill(Index(fitted(kind), vectors=vectors)).index
    for allowed in (index.ids[::2], index.ids[:500]):
        found = index.search(Q, 5, filter=allowed)
        absent = np.concatenate([allowed, np.arange(10**6, 10**6 + ROWS)])
        others: list[tuple[Any, Any, dict[str, Any]]] = [
            (np.asfortranarray(Q), allowed, {}),
            (Q.tolist(), allowed, {}),
            (Q, absent, {}),
            (Q, allowed, {"rank": "exact" if vectors else "asymmetric"}),
        ]
        for queries, some, options in others:
            same = index.search(queries, 5, filter=some, **options)
            assert np.array_equal(same.compared, found.compared)
            assert_same_but_ties(same, found, atol=1e-4)


@by_metric
def test_a_filter_decodes_the_codes_that_it_leaves_until_these_were_as_many_as_all(metric: Any) -> None:
    index = fill(Index(fitted("residual", metric))).index
    index.search(Q[0], 5, candidates=3)
    stored = sum(len(run.codes) for run in index._live.current.runs)  # deleted ones too
    few, before = index.ids[: stored // 4], index.nbytes_by_part()["prepared"]
    found = []
    for search in range(1, 8):
        found.append(index.search(Q[0], 5, filter=few))
        kept = 4 * FEATURES * stored if search * len(few) >= stored else 0
        assert index.nbytes_by_part()["prepared"] == before + kept
    for hits in found:
        assert_same_but_ties(hits, found[-1], atol=1e-4)


@pytest.mark.parametrize(("vectors", "kept"), [(None, "linear"), ("int8", "cell"), ("float16", "")])
def test_items_that_are_kept_as_vectors_count_as_bytes(vectors: Any, kept: str) -> None:
    index = fill(Index(fitted(kept or "linear"), vectors=vectors)).index
    index.search(Q[0], 5, candidates=3)
    before = index.nbytes_by_part()["prepared"]
    index.search(Q[0], 5)
    stored = sum(len(run.codes) for run in index._live.current.runs)  # deleted ones too
    assert index.nbytes_by_part()["prepared"] - before == (4 * FEATURES * stored if kept else 0)


def test_many_centroids_in_float16_probe_the_lists_of_the_steps() -> None:
    index = Index(CellCoder(24, metric="cosine", cells=64).fit(X), vectors="float32")
    index.add(X)
    check(index, 200)


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_nearest_vectors_are_those_of_sorting(metric: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([X, X[:30]])  # ties
    stored = VectorFormat(dtype, FEATURES).round(rows)
    ids = rng.permutation(len(rows))
    expected = twins.distances(Q[:3].astype(np.float64), stored.floats(), metric)
    expected = expected.astype(np.float32).astype(np.float64)  # as reported
    every = np.arange(len(rows))
    some = (
        [(k, every) for k in (1, 10, 64, 65, 400)]
        + [(10, every[:n]) for n in (1, 2, 3, 5, 15)]
        + [(20, np.arange(0, len(rows), 3))]
    )
    for runs in (_core.VectorRuns([stored.core]), _core.VectorRuns([stored[:500].core, stored[500:].core])):
        for k, positions in some:
            near, found = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.int64)
            for q, query in enumerate(Q[:3]):
                wanted, distances = twins.nearest(expected[q : q + 1, positions], ids[positions], k)
                for simd in _core.simd_names():
                    for dtype_of_query, items in ((np.float32, positions.astype(np.uint32)), (np.float64, positions)):
                        own: Any = query.astype(dtype_of_query)
                        assert runs.nearest(own, items, ids[positions], metric, near, found, 2, simd)
                        np.testing.assert_allclose(near, distances[0], rtol=1e-6, atol=1e-5)
                        assert np.array_equal(found, wanted[0])


def test_what_float32_cannot_tell_apart_is_left_to_float64() -> None:
    def nearest(rows: Any, query: Any, metric: Any = "l2") -> bool:
        runs = _core.VectorRuns(np.asarray(rows, dtype=np.float32))
        ids = np.arange(len(rows))
        out = np.empty(1, dtype=np.float32), np.empty(1, dtype=np.int64)
        return runs.nearest(np.asarray(query, dtype=np.float64), ids, ids, metric, *out)

    assert nearest(X, Q[0])
    assert not nearest(X, Q[0].astype(np.float64) + 1e-9)  # not a row of float32
    assert not nearest(X, np.zeros(FEATURES), "cosine")
    assert not nearest(1e-20 * X, Q[0], "cosine")  # squares underflow
    assert not nearest(1e30 * X, Q[0])
    assert not nearest(np.repeat(X[:1], 200, axis=0), Q[0])  # all are as near


@by_metric
@stores
def test_rows_that_take_float64_are_left_to_the_steps(metric: str, vectors: Any) -> None:
    index = filled("cell", metric, vectors)
    for row in (np.zeros(FEATURES, dtype=np.float32), 1e-25 * Q[0].astype(np.float64), 1e13 * Q[0].astype(np.float64)):
        assert by_rows(index, row, 5, candidates=60) is None
        assert np.array_equal(index.search(row, 5, candidates=60).ids, by_steps(index, row, 5, candidates=60).ids)
    broken = Q.copy()
    broken[3, 2] = np.nan
    for queries in (broken, broken[3]):
        with pytest.raises(InvalidInput, match="data must be finite"):
            index.search(queries, 5, candidates=60)


def test_other_searches_are_left_to_the_steps() -> None:
    index = filled("cell", "l2", None)
    for queries in (Q.tolist(), Q.astype(np.float16), Q.astype(">f4"), np.asfortranarray(Q), Q[:, :5], Q[None]):
        assert by_rows(index, queries, 5) is None
    by_blas = _core.simd_names()[-1] != "avx512"
    assert (by_rows(index, Q, 5, candidates=ROWS) is None) is by_blas  # a batch against all items is a matrix product
    assert by_rows(index, np.concatenate([Q, Q]), 5, candidates=60) is None  # which matrix products project
    assert by_rows(index, Q, 5, candidates=[3]) is None  # which a plan refuses
    empty: tuple[Index, ...] = (Index(fitted("cell")), Index(width=8))
    assert all(by_rows(one, Q, 5) is None for one in empty)
    adaptive: Coder = AdaptiveCoder(16, beams=1).fit(X)  # only the coder itself decodes
    stored: Any
    for stored, expected in ((None, False), ("float32", True)):
        other = Index(adaptive, vectors=stored)
        other.add(X)
        assert (by_rows(other, Q, 5, candidates=200) is not None) is expected


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": 0}, "k must be"), ({"k": 2.0}, "k must be"), ({"k": True}, "k must be"), ({"candidates": 0}, "candidates"),
     ({"candidates": 5.0}, "candidates"), ({"rerank": "5"}, "rerank"), ({"threads": 0}, "threads")],
)  # fmt: skip
def test_settings_are_checked_also_after_valid_ones(options: dict[str, Any], message: str) -> None:
    index = filled("cell", "l2", None)
    for valid in ({"k": 2}, {"k": 1}, {"candidates": 5}, {"rerank": 5}):
        index.search(Q[0], **{"candidates": 60, **valid})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        index.search(Q[0], **{"candidates": 60, **options})


def test_instruction_sets_agree() -> None:
    index = filled("cell", "cosine", "float16")
    assert by_rows(index, Q, 5, candidates=60) is not None
    known = index._searcher._rows
    assert known is not None
    assert known[1] is not None
    assert known[1]._searcher is not None
    found = []
    for simd in _core.simd_names():
        ids, near = np.empty((len(Q), 5), dtype=np.int64), np.empty((len(Q), 5), dtype=np.float32)
        compared = np.empty(len(Q), dtype=np.int64)
        assert known[1]._searcher.search(Q, 5, 60, 60, 40, ids, near, compared, 1, simd)
        found.append((ids, near, compared))
    for ids, near, compared in found[1:]:
        assert np.array_equal(ids, found[0][0])
        np.testing.assert_allclose(near, found[0][1], rtol=1e-5, atol=1e-5)
        assert np.array_equal(compared, found[0][2])
