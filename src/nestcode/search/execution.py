"""The execution of a plan: scan, or lists and walks in the core, which a query leaves for a scan that takes less.

    scan               compares all items                                            scan.py
    search_rows        lists and walks, and reranks by what the core reads           cpp/nestcode/row_search.hpp
    search_candidates  the same, and reranks by what only Python has: vectors that the caller gives or that stay in
                       files, and codes that only their coder decodes

Each takes a selection, a request and a plan, and returns `Hits`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import FLOAT32_MAX, Floats
from nestcode.search.hits import Hits
from nestcode.search.planner import Plan
from nestcode.search.request import Request
from nestcode.search.runs import Positions
from nestcode.search.scan import out_of_range, scan
from nestcode.search.selection import Selection

QUERIES = 256  # whose candidates are in memory at once
GIVEN_UP, REFUSED = -1, -2  # instead of a number of compared items


def execute(selection: Selection, request: Request, plan: Plan, k: int) -> Hits:
    """Return the hits of all queries: those of the plan's operator, and of a scan where that was given up."""
    if plan.operator == "scan" or not selection.count or not len(request):
        return scan(selection, request, k)
    reranker = selection.prepared.reranker(request)
    if reranker == "caller":
        hits = search_candidates(selection, request, plan, k)
    else:
        searcher = selection.prepared.row_searcher(request.metric, reranker)
        if request.single:
            ids, distances = np.empty(k, np.int64), np.empty(k, np.float32)
            compared = searcher.search_one(selection.core, request.given, plan.budget, ids, distances)
            if compared != REFUSED:
                return scan(selection, request, k) if compared == GIVEN_UP else Hits(ids, distances, compared)
        hits = search_rows(selection, request, plan, k, searcher)
    given_up = np.flatnonzero(hits.compared == GIVEN_UP)
    if len(given_up):
        _put(scan(selection, request.part(given_up), k), hits, given_up)
    return Hits(hits.ids[0], hits.distances[0], int(hits.compared[0])) if request.single else hits


def search_rows(selection: Selection, request: Request, plan: Plan, k: int, searcher: _core.RowSearcher) -> Hits:
    """Return the hits of lists and walks, reranked by the core; `compared` is -1 where a scan takes less."""
    n = len(request)
    hits = Hits(np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.empty(n, np.int64))
    outputs = hits.ids, hits.distances, hits.compared
    _run(selection, request, lambda rows: searcher.search(selection.core, rows, plan.budget, *outputs, request.threads))
    return hits


def search_candidates(selection: Selection, request: Request, plan: Plan, k: int) -> Hits:
    """Return the hits of lists and walks, reranked by Python; `compared` is -1 where a scan takes less."""
    n = len(request)
    if n > QUERIES:
        parts = [request.part(slice(first, first + QUERIES)) for first in range(0, n, QUERIES)]
        found = [search_candidates(selection, part, plan, k) for part in parts]
        return Hits(*(np.concatenate(arrays) for arrays in zip(*(vars(hits).values() for hits in found), strict=True)))
    scores, positions, compared = _find(selection, request, plan, k)
    known = selection.prepared.ids_at(positions)
    known[compared == GIVEN_UP] = -1
    reranked = _rerank(selection, request, known, positions)
    reranked[known < 0] = np.inf
    hits = Hits(np.empty((n, k), np.int64), np.empty((n, k), np.float32), compared)
    _core.select_top_k(reranked, known, hits.distances, hits.ids, request.threads)
    _check_range(hits)
    if (
        plan.reranks_more
        and plan.reranked < plan.allowed
        and not request.by_codes
        and selection.prepared.lists is not None
    ):
        late = _find_late(scores, reranked, plan, k) & (compared != GIVEN_UP)
        wider, queries = plan.widened(), np.flatnonzero(late)
        if wider is None:
            compared[late] = GIVEN_UP
        elif len(queries):
            _put(search_candidates(selection, request.part(queries), wider, k), hits, queries)
    return hits


def _find(selection: Selection, request: Request, plan: Plan, k: int) -> tuple[Floats, Positions, Any]:
    """Return the least estimates, the positions of the items to rerank and how many were compared: lists and walks."""
    prepared, n, threads = selection.prepared, len(request), request.threads
    compared, by_rows = np.empty(n, dtype=np.int64), not request.by_codes and prepared.scorer.projected is not None
    if by_rows:
        searcher = prepared.row_searcher(request.metric, "caller")
        columns = searcher.columns(plan.budget, k)
    else:
        columns = k if request.by_codes else plan.kept  # distances between codes are final
    scores, positions = np.empty((n, columns), np.float32), np.empty((n, columns), np.uint32)
    if by_rows:

        def run(rows: Any) -> bool:
            return searcher.candidates(selection.core, rows, plan.budget, k, scores, positions, compared, threads)

        _run(selection, request, run)
    else:
        packed = request.packed(prepared.snapshot.width)
        selection.core.hamming(
            packed, plan.listed, plan.most_items(plan.work.ns_per_estimated), scores, positions, compared, threads
        )
        prepared.check()
    if prepared.lists is not None and not request.by_codes:  # some of the lists' candidates; those of graphs come last
        positions = positions[:, [*plan.ranks, *range(plan.kept, columns)]]
    return scores, positions, compared


def _rerank(selection: Selection, request: Request, ids: Any, positions: Positions) -> Floats:
    """Return distances from queries to candidates, (queries, candidates), by what the request ranks by."""
    prepared = selection.prepared
    if request.rank != "exact":
        return prepared.scorer.distances(request, prepared.codes_at(positions))
    if request.vectors is not None:
        return request.vectors.rerank(request.rows, ids, request.metric, request.threads)
    keys = np.where(ids >= 0, positions, np.int64(-1))
    return prepared.vectors.rerank(request.rows, keys, request.metric, request.threads)


def _find_late(scores: Floats, reranked: Floats, plan: Plan, k: int) -> Any:
    """Return which queries find some of the nearest candidates in the sample of the next ones, as the core does."""
    late = np.empty(len(scores), dtype=np.bool_)
    _core.find_late(np.ascontiguousarray(reranked[:, : len(plan.ranks)]), plan.budget.reranked, k, late)
    middle, last = scores[:, plan.kept // 2], scores[:, plan.kept - 1]
    return late | ((middle == last) & np.isfinite(last))  # or where the cut after the candidates is arbitrary


def _run(selection: Selection, request: Request, run: Callable[[Any], bool]) -> None:
    """Call a search of the core with the queries, and raise an error that says why where it refuses them."""
    if run(request.batch):
        return
    selection.prepared.check()
    if not run(np.ascontiguousarray(request.rows)):  # raises where queries are not finite, or too long
        selection.prepared.check()
        raise out_of_range()


def _put(some: Hits, hits: Hits, queries: NDArray[np.int64]) -> None:
    """Replace the hits of some queries."""
    hits.ids[queries], hits.distances[queries], hits.compared[queries] = some.ids, some.distances, some.compared


def _check_range(hits: Hits) -> None:
    """Raise if distances exceed float32, in which case hits come in no order."""
    first, last = hits.distances[:, 0].min(initial=0), hits.distances[:, -1].max(initial=0)
    if first > -FLOAT32_MAX and last < FLOAT32_MAX:
        return
    if (np.abs(hits.distances[hits.ids >= 0]) >= FLOAT32_MAX).any():  # missing hits are at infinite distance
        raise out_of_range()
