"""One way through search: the same hits whatever reranks candidates, and however queries are given."""

from dataclasses import replace
from functools import cache
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest

from nestcode import AdaptiveCoder, CellCoder, Index, LinearCoder
from nestcode.errors import InvalidInput
from nestcode.index import compaction
from nestcode.index.snapshot import Snapshot
from nestcode.search import planner
from nestcode.search.hits import Hits
from tests import twins
from tests.search.searching import ROWS, Q, X, fill, fitted, kinds, metrics

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


def assert_same_but_ties(found: Hits, expected: Hits, atol: float) -> None:
    """Distances are the same up to rounding, and ids wherever other hits are not as near; the next hit is not known."""
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5, atol=atol)
    near = np.where(np.isinf(expected.distances), np.float32(1e30), expected.distances).reshape(-1, found.ids.shape[-1])
    tied = np.diff(near, axis=1) <= 2 * (atol + 1e-5 * np.abs(near[:, 1:]))
    alone = ~(np.pad(tied, ((0, 0), (1, 0))) | np.pad(tied, ((0, 0), (0, 1)), constant_values=True))
    assert np.array_equal(found.ids.reshape(near.shape)[alone], expected.ids.reshape(near.shape)[alone])


def check(index: Index, metric: Any, candidates: int) -> None:
    """What the core reranks, by stored vectors or by codes, is what vectors in hand rerank."""
    by_id = np.zeros((ROWS, X.shape[1]), dtype=np.float32)
    ids = index.ids
    by_id[ids] = index.vectors(ids) if index.vector_type else index.reconstruct(ids)
    calls: list[tuple[Any, int, int]] = [(Q, 10, 30), (Q.astype(np.float64), 1, 10), (Q[:1], 10, 40), (Q[3], 3, 20)]
    for queries, k, rerank in calls:
        options = {"k": k, "candidates": candidates, "rerank": rerank, "metric": metric, "threads": 2}
        found = index.search(queries, **options)
        expected = index.search(queries, vectors=by_id, **options)
        assert np.array_equal(found.compared, expected.compared)
        assert found.ids.shape == expected.ids.shape
        assert found.ids.dtype == np.int64
        assert_same_but_ties(found, expected, atol=2e-4)


@stores
@metrics
@kinds
def test_lists_find_the_same_whatever_reranks(kind: str, own: Any, metric: Any, vectors: Any) -> None:
    index = filled(kind, own, vectors)
    check(index, metric, 60)
    check(index, metric, 300)


@pytest.mark.parametrize("vectors", [None, "int8"])  # of floats, walks rank by the vectors themselves
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_graphs_find_the_same_whatever_reranks(metric: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)
    index = walked(metric, vectors)
    assert sum(one.graph is not None for one in index._live.current.segments) == 2
    check(index, metric, 40)


@stores
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_graphs_find_what_a_scan_finds(metric: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = walked(metric, vectors)
    scanned = index.search(Q, 10, candidates=ROWS)
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)
    for allowed in (None, index.ids[::2], index.ids[::9]):
        expected = scanned if allowed is None else index.search(Q, 10, candidates=ROWS, filter=allowed)
        hits = index.search(Q, 10, filter=allowed)
        assert np.mean(hits.distances <= expected.distances[:, -1:] + 1e-3) > 0.95


@pytest.mark.parametrize("kind", ["linear", "cell", "residual", "adaptive"])
@pytest.mark.parametrize("vectors", [None, "float16"])
def test_queries_may_be_given_in_any_form(kind: str, vectors: Any) -> None:
    coder = AdaptiveCoder(16, beams=1).fit(X) if kind == "adaptive" else fitted(kind)
    index = Index(coder, vectors=vectors)
    index.add(X)
    budgets: list[dict[str, Any]] = [{}, {"candidates": 60}, {"filter": np.arange(0, ROWS, 3)}]
    for budget in budgets:
        expected = index.search(Q, 5, **budget)
        for queries in (
            Q.tolist(),
            np.asfortranarray(Q),
            Q.astype(">f4"),
            Q.astype(np.float64),
            np.repeat(Q, 2, 1)[:, ::2],
        ):
            assert_same_but_ties(index.search(queries, 5, **budget), expected, atol=2e-4)
        alone = Hits(expected.ids[7], expected.distances[7], expected.compared[7])
        for query in (Q[7], Q[7].tolist(), Q[7].astype(">f4"), np.repeat(Q[7], 2)[::2]):
            one = index.search(query, 5, **budget)
            assert_same_but_ties(one, alone, atol=2e-4)
            assert one.compared == alone.compared


@stores
@metrics
def test_zero_tiny_and_long_queries_are_answered(own: Any, metric: Any, vectors: Any) -> None:
    index = filled("cell", own, vectors)
    rows = index.vectors(index.ids) if vectors else index.reconstruct(index.ids)
    for row in (np.zeros(X.shape[1], dtype=np.float32), 1e-25 * Q[0].astype(np.float64), 1e6 * Q[0].astype(np.float64)):
        hits = index.search(row, 5, metric=metric, candidates=300, rerank=300)
        true = twins.distances(row[None], rows, metric)[0]
        own_distances = true[np.searchsorted(index.ids, hits.ids)]
        np.testing.assert_allclose(
            hits.distances, own_distances, rtol=1e-4, atol=1e-4 * max(np.abs(own_distances).max(), 1)
        )
    broken = Q.copy()
    broken[3, 2] = np.nan
    for queries in (broken, broken[3]):
        budgets: list[dict[str, Any]] = [{}, {"candidates": 60}, {"filter": []}]
        for budget in budgets:
            with pytest.raises(InvalidInput, match="data must be finite"):
                index.search(queries, 5, metric=metric, **budget)


@pytest.mark.filterwarnings("ignore:the data fills")
@pytest.mark.parametrize("vectors", [None, "float32"])
@pytest.mark.parametrize("kind", [LinearCoder, CellCoder])
def test_zeros_alone_are_searched_by_angle(kind: Any, vectors: Any) -> None:
    index = Index(kind(16, metric="cosine").fit(np.zeros((50, 8), dtype=np.float32)), vectors=vectors)
    index.add(np.zeros((50, 8), dtype=np.float32))
    budgets: list[dict[str, Any]] = [{}, {"candidates": 10}]
    for budget in budgets:
        for queries in (np.ones(8, dtype=np.float32), np.zeros((2, 8))):
            assert (index.search(queries, 2, **budget).distances == 2).all()


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


def test_many_centroids_in_float16_probe_the_same_lists() -> None:
    index = Index(CellCoder(24, metric="cosine", cells=64).fit(X), vectors="float32")
    index.add(X)
    check(index, "cosine", 200)


@pytest.mark.parametrize(
    ("kind", "vectors", "scanned"), [("lists", "float16", 50.0), ("graph", None, 200.0), ("graph", "float16", 200.0)]
)
def test_no_filter_costs_more_than_twice_the_better_of_a_scan_and_the_other_operator(
    kind: str, vectors: Any, scanned: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where the core estimates, visits and reranks, wherever the allowed items lie."""
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)
    monkeypatch.setattr(planner, "NS_PER_SCANNED_ITEM", scanned)  # as if there were more features
    monkeypatch.setattr(planner, "NS_PER_VISITED_NODE", 200.0)
    monkeypatch.setattr(planner, "COMPETITIVE_RATIO", 0)
    rng = np.random.default_rng(4)
    X, queries = (rng.standard_normal((count, 32)).astype(np.float32) for count in (3000, 8))
    coder = LinearCoder(64, metric="cosine").fit(X) if kind == "graph" else CellCoder(48, cells=16).fit(X)
    index = Index(coder, vectors=vectors, graph=kind == "graph")
    index.add(X)
    index.compact()
    index.wait()
    order = np.argsort(twins.distances(queries, X, coder.metric_), axis=1)
    given_up = 0
    for q, share, side in product(range(len(queries)), (2, 4), ("near", "far", "random")):
        count = len(X) // share
        ids = order[q, :count] if side == "near" else order[q, -count:] if side == "far" else np.arange(0, 3000, share)
        wanted = index.filter(ids)
        request = index._request(index._live.read(), queries[q : q + 1], filter=wanted)
        selection = index._searcher._select(index._live.read(), request)
        plan = index.explain(queries[q], filter=wanted)
        if plan.operator == "scan":
            continue
        searcher = selection.prepared.row_searcher(request.metric, selection.prepared.reranker(request))
        scan, spent, compared = plan.ns["scan"], np.empty((2, 1)), np.empty((2, 1), dtype=np.int64)
        for i, own in enumerate((plan, replace(plan, most_ns=inf))):
            hits = np.empty((1, 10), dtype=np.int64), np.empty((1, 10), dtype=np.float32), compared[i]
            assert searcher.search(selection.core, request.batch, own.budget, *hits, spent=spent[i])
        assert compared[1] > 0
        assert spent[0] <= scan
        if compared[0] < 0:
            given_up += 1
            assert spent[0] + scan <= 2.1 * spent[1]
    assert given_up


def test_a_search_says_what_it_will_do() -> None:
    index = filled("cell", "l2", "float32")
    assert index.explain(Q, 10).operator == "scan"
    plan = index.explain(Q, 10, candidates=60, filter=index.ids[::2])
    assert (plan.operator, plan.compared, plan.items) == (
        "lists",
        60,
        sum(len(run.ids) for run in index._live.current.runs),
    )
    assert plan.allowed == len(index.ids[::2])
    assert str(plan).startswith("lists: 60 items estimated of ")
