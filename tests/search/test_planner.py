"""Laws of the planner: what it compares never falls, and what its plans cost is bounded."""

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestcode import AdaptiveCoder, CellCoder, Index, LinearCoder, ResidualCoder
from nestcode.coders import Coder
from nestcode.index import compaction
from nestcode.search import planner
from nestcode.search.planner import Effort, Work, default_candidates, make_plan
from tests import twins

works = st.builds(
    Work,
    listed=st.integers(0, 10**6),
    nodes=st.sampled_from([0, 5000, 10**6]),
    walks=st.booleans(),
    lists=st.sampled_from([1, 64, 4096]),
    ns_per_estimated=st.floats(0.5, 20),
    ns_per_scanned=st.floats(0.5, 2000),
    ns_per_reranked=st.floats(50, 2000),
).filter(lambda work: work.listed + work.nodes > 0 and (work.walks or not work.nodes))
efforts = st.none() | st.builds(
    Effort,
    candidates=st.integers(1, 10**5),
    items=st.integers(1, 10**6),
    rerank=st.integers(1, 1000),
    k=st.integers(1, 100),
)


@given(st.lists(st.integers(0, 3 * 10**6), min_size=2, max_size=50))
def test_more_items_never_lower_what_lists_compare(counts: list[int]) -> None:
    compared = [default_candidates(count) for count in sorted(counts)]
    assert compared == sorted(compared)
    assert all(found <= count for found, count in zip(compared, sorted(counts), strict=True))


@given(works, st.integers(1, 200), st.integers(1, 10**6), st.data())
def test_more_hits_and_candidates_never_lower_what_is_compared(
    work: Work, k: int, candidates: int, data: st.DataObject
) -> None:
    allowed = data.draw(st.integers(1, work.listed + work.nodes))
    more_hits, more = data.draw(st.integers(k, 300)), data.draw(st.integers(candidates, 2 * 10**6))
    k, more_hits = min(k, allowed), min(more_hits, allowed)
    few, many = (make_plan(work, allowed, k, budget) for budget in (candidates, more))
    assert few.compared <= many.compared
    assert make_plan(work, allowed, k, candidates).compared <= make_plan(work, allowed, more_hits, candidates).compared


@given(works, st.integers(1, 100), st.none() | st.integers(1, 1000), efforts, st.data())
def test_no_filter_costs_more_than_twice_the_better_operator(
    work: Work, k: int, rerank: int | None, effort: Effort | None, data: st.DataObject
) -> None:
    """Counted: what lists and walks may do before they are given up for a scan costs no more than that scan."""
    items = work.listed + work.nodes
    allowed = data.draw(st.integers(1, items))
    k = min(k, allowed)
    plan = make_plan(work, allowed, k, None, rerank, effort)
    if plan.operator == "scan":
        assert plan.compared == allowed
        return
    if allowed < items or effort is None:
        assert plan.most_ns <= plan.ns["scan"]


@given(works, st.integers(1, 100), st.integers(1, 1000), st.data())
def test_a_batch_is_scanned_where_a_query_alone_is(work: Work, k: int, queries: int, data: st.DataObject) -> None:
    """Many queries are scanned together in less time each, and what lists may spend does not shrink with that."""
    allowed = data.draw(st.integers(1, work.listed + work.nodes))
    alone, batch = (make_plan(work, allowed, min(k, allowed), queries=count) for count in (1, queries))
    assert batch.ns["scan"] <= alone.ns["scan"]
    assert alone.operator != "scan" or batch.operator == "scan"
    assert batch.operator == "scan" or batch.most_ns == alone.most_ns


def test_the_cost_that_lists_begin_with_is_what_their_first_round_spends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the core, where no hit comes late."""
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)
    rows = twins.clustered(3000, seed=5)
    index = Index(CellCoder(40, cells=16).fit(rows), vectors="float32")
    index.add(rows)
    index.compact()
    request = index._request(index._live.read(), rows[:8])
    selection = index._searcher._select(index._live.read(), request)
    plan = index._searcher._plan(selection, request, 10, None, None, None)
    searcher = selection.prepared.row_searcher(request.metric, "vectors")
    spent, compared = np.empty(8), np.empty(8, np.int64)
    hits = np.empty((8, 10), np.int64), np.empty((8, 10), np.float32), compared
    assert searcher.search(selection.core, request.given, plan.budget, *hits, None, 1, "", spent)
    fixed = planner.NS_PER_LISTS + plan.work.lists * planner.NS_PER_LIST
    assert spent.min() == pytest.approx(plan.ns["lists"] - fixed, rel=0.02)


@given(works, st.integers(1, 100), st.integers(1, 10**6) | st.just(10**400))
def test_what_the_caller_chose_is_spent_and_no_more(work: Work, k: int, candidates: int) -> None:
    allowed = work.listed + work.nodes
    k = min(k, allowed)
    plan = make_plan(work, allowed, k, candidates)
    assert plan.operator == "scan" or max(candidates, k) < allowed
    if not work.walks:
        assert (plan.operator == "scan") == (max(candidates, k) >= allowed)
    if plan.operator == "lists" and not work.walks:
        assert plan.compared == max(candidates, k)
    assert make_plan(work, allowed, k, None, rerank=candidates).reranked <= max(candidates, k)
    assert plan.most_ns == inf or plan.operator == "scan"


# Recall

KINDS: dict[str, Any] = {
    "linear": lambda metric: LinearCoder(24, metric=metric),
    "coarse": lambda metric: LinearCoder(6, metric=metric),
    "cell": lambda metric: CellCoder(24, metric=metric, cells=16),
    "residual": lambda metric: ResidualCoder(16, metric=metric, beams=1),
    "adaptive": lambda metric: AdaptiveCoder(16, metric=metric, beams=1),
}


def rows_of(shape: str, count: int, rng: np.random.Generator) -> Any:
    """Items of one kind; the last 20 are queries."""
    if shape == "one feature":
        return rng.standard_normal((count, 1)).astype(np.float32)
    if shape == "two features":
        return rng.standard_normal((count, 2)).astype(np.float32)
    if shape == "noise":
        return rng.standard_normal((count, 48)).astype(np.float32)
    if shape == "clusters":
        return (
            8 * rng.standard_normal((10, 32))[rng.integers(0, 10, count)] + rng.standard_normal((count, 32))
        ).astype(np.float32)
    assert shape == "copies"
    few = rng.standard_normal((count // 20 + 1, 16))
    return (few[rng.integers(0, len(few), count)] + 1e-3 * rng.standard_normal((count, 16))).astype(np.float32)


@pytest.mark.filterwarnings("ignore:the data fills")
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("shape", ["one feature", "two features", "noise", "clusters", "copies"])
@pytest.mark.parametrize("kind", KINDS)
def test_coarse_codes_cost_time_and_not_recall(
    kind: str, shape: str, metric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where vectors are stored, reranking goes on until the nearest items are found."""
    monkeypatch.setattr(planner, "COMPETITIVE_RATIO", 0)  # few items are not scanned at once
    monkeypatch.setattr(compaction, "SIZE_RATIO", 0)
    rows = rows_of(shape, 3020, np.random.default_rng(3))
    base, queries = rows[:3000], rows[3000:]
    coder: Coder = KINDS[kind](metric).fit(base)
    index = Index(coder, vectors="float32")
    index.add(base)
    exact = twins.distances(queries, base, metric)
    for k in (1, 10):
        hits = index.search(queries, k)
        wanted = np.sort(exact, axis=1)[:, k - 1 : k]
        found = np.take_along_axis(exact, hits.ids, axis=1) <= wanted + 1e-4 * np.abs(wanted) + 1e-6
        assert found.mean() >= 0.9
