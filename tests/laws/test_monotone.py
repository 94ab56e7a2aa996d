"""More candidates, hits and items never lower what searches compare, on both sides of the planner's thresholds."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Index, LinearCoder
from nestcode.index import compaction
from nestcode.search import planner
from tests import twins

ROWS = 900
X, Q = twins.clustered(ROWS), twins.clustered(12, seed=2)
BUDGETS = [1, 7, 30, 100, 250, 600, ROWS - 1, ROWS, 10 * ROWS]


@pytest.fixture(autouse=True)
def _few_items_are_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "COMPETITIVE_RATIO", 2)
    monkeypatch.setattr(planner, "LIST_CANDIDATES", 150)
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)


@cache
def filled(kind: str, vectors: Any) -> Index:
    coder = LinearCoder(40).fit(X) if kind == "graph" else CellCoder(40, cells=16).fit(X)
    index = Index(coder, vectors=vectors, graph=kind == "graph")
    index.add(X)
    index.compact()
    return index


@pytest.mark.parametrize("vectors", [None, "float32"])
@pytest.mark.parametrize(("kind", "share"), [("lists", 1), ("lists", 3), ("graph", 1)])
def test_more_candidates_and_hits_never_lower_what_is_compared(kind: str, vectors: Any, share: int) -> None:
    """With a filter, walks visit nodes that it excludes, too, more than a scan compares."""
    index = filled(kind, vectors)
    allowed = index.ids[::share]
    for k in (1, 10, 40):
        by_budget = [index.search(Q, k, candidates=budget, filter=allowed).compared for budget in BUDGETS]
        assert (np.diff(by_budget, axis=0) >= 0).all()
        assert (by_budget[-1] == len(allowed)).all()
    for budget in (10, 200, ROWS):
        by_hits = [index.search(Q, k, candidates=budget, filter=allowed).compared for k in (1, 5, 20, 80, 300, ROWS)]
        assert (np.diff(by_hits, axis=0) >= 0).all()


@pytest.mark.parametrize("vectors", [None, "float32"])
def test_more_items_never_lower_the_least_that_is_compared(vectors: Any) -> None:
    """Lists are probed as a whole, so that a search may compare more than its plan."""
    index = Index(CellCoder(40, cells=16).fit(X), vectors=vectors)
    least, operators = 0, set()
    for first, last in [(0, 1), (1, 100), (100, 149), *((n, n + 1) for n in range(149, 157)), (157, 500), (500, ROWS)]:
        index.add(X[first:last])
        plan = index.explain(Q, 10)
        assert plan.compared >= least
        assert (index.search(Q, 10).compared >= plan.compared).all()
        least = plan.compared
        operators.add(plan.operator)
    assert operators == {"scan", "lists"}
