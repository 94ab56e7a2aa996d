"""The execution of a plan: scan, or lists and walks in the core, which a query leaves for a scan that takes less.

    scan         compares all items                                                          scan.py
    RowSearcher  lists and walks; reranks by what the core reads, or by `_distances` below   cpp/nestcode/row_search.hpp

Python computes the distances where only Python has what the request ranks by: vectors that the caller gives or that
stay in files, and codes that only their coder decodes. Which candidates these are, and whether they are enough, is for
the core to say.
"""

from __future__ import annotations  # those of an inner function would be evaluated in each search, for 20 µs

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.search.hits import Hits
from nestcode.search.planner import Plan
from nestcode.search.request import Request
from nestcode.search.runs import MISSING, Positions
from nestcode.search.scan import out_of_range, scan
from nestcode.search.selection import Selection

GIVEN_UP = -1  # instead of a number of compared items


def execute(selection: Selection, request: Request, plan: Plan, k: int) -> Hits:
    """Return the hits of all queries: those of the plan's operator, and of a scan where that was given up."""
    if plan.operator == "scan" or not selection.count or not len(request):
        return scan(selection, request, k)
    hits = _search(selection, request, plan, k)
    if request.single:
        compared = int(hits.compared[0])
        return scan(selection, request, k) if compared == GIVEN_UP else Hits(hits.ids, hits.distances, compared)
    given_up = np.flatnonzero(hits.compared == GIVEN_UP)
    if len(given_up):
        some = scan(selection, request[given_up], k)
        hits.ids[given_up], hits.distances[given_up] = some.ids, some.distances
        hits.compared[given_up] = some.compared
    return hits


def _search(selection: Selection, request: Request, plan: Plan, k: int) -> Hits:
    """Return the hits of lists and walks; `compared`, (n,), is -1 where a scan takes less."""
    prepared, n = selection.prepared, len(request)
    reranker = prepared.reranker(request)
    searcher, rerank = prepared.row_searcher(request.metric, reranker), None
    if reranker == "caller":
        rerank = partial(_distances, selection, request)

    def search(queries: NDArray[Any], *shape: int) -> Hits | None:
        hits = Hits(np.empty((*shape, k), np.int64), np.empty((*shape, k), np.float32), np.empty(n, np.int64))
        outputs = hits.ids, hits.distances, hits.compared
        done = searcher.search(selection.core, queries, plan.budget, *outputs, rerank, request.threads)
        return hits if done else None

    shape = () if request.single else (n,)
    if not prepared.compares_rows(request):
        found = search(request.packed(prepared.snapshot.width), n)
        if found is not None and request.single:
            found = Hits(found.ids[0], found.distances[0], found.compared)
    else:
        found = search(request.given, *shape)
        if found is None:  # queries are not finite or too long, which raises an error that says so, or a cosine's
            rows = np.ascontiguousarray(request.rows)
            found = search(rows[0] if request.single else rows, *shape)
    if found is None:
        prepared.check()
        raise out_of_range()
    return found


def _distances(selection: Selection, request: Request, queries: NDArray[np.uint64], positions: Positions) -> Floats:
    """Return the distances from some queries to items, (queries, items), by what the request ranks by."""
    prepared, some = selection.prepared, request[queries]
    if request.rank != "exact":
        return prepared.scorer.distances(some, prepared.codes_at(positions))
    if request.vectors is not None:
        return request.vectors.rerank(some.rows, prepared.ids_at(positions), request.metric, request.threads)
    keys = np.where(positions == MISSING, np.int64(-1), positions)
    return prepared.vectors.rerank(some.rows, keys, request.metric, request.threads)
