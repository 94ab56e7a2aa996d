"""Hybrid search: the nearest items and the best matches of a text, as one ranking.

queries ──▶ Searcher.search ──▶ the nearest items ──┐
text    ──▶ bm25 ─────────────▶ the best matches  ──┴──▶ reciprocal_rank_fusion ──▶ Hits, the best first

Ranks are fused, and not scores, as distances and BM25 have no common scale.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nestcode.arrays import Floats, Ids
from nestcode.errors import InvalidInput
from nestcode.search.attributes import unknown_column
from nestcode.search.filters import filter_of_ids
from nestcode.search.fusion import reciprocal_rank_fusion
from nestcode.search.hits import Hits
from nestcode.search.planner import Effort
from nestcode.search.request import Request, check_k
from nestcode.search.runs import Snapshot
from nestcode.search.schema import Schema
from nestcode.search.searcher import Searcher
from nestcode.search.words import bm25

MIN_DEPTH = 100  # of both rankings: what is far down in one may be first in the other
Text = str | Sequence[str] | Mapping[str, str | Sequence[str]]


def search_hybrid(
    searcher: Searcher,
    snapshot: Snapshot,
    schema: Schema | None,
    request: Request,
    text: Text,
    k: int,
    candidates: int | None,
    rerank: int | None,
    effort: Effort | None,
) -> Hits:
    """Return the k best items of each query by reciprocal rank fusion, with their distances."""
    column, texts = check_text(text, schema, len(request))
    k = check_k(k, len(snapshot))
    depth = max(k, MIN_DEPTH)
    near = searcher.search(snapshot, request[:], depth, candidates, rerank, effort)
    matches = {one: bm25(snapshot.runs, column, one, depth, request.allowed) for one in dict.fromkeys(texts)}
    ids, distances = np.full((len(texts), k), -1), np.full((len(texts), k), np.inf, dtype=np.float32)
    for query, one in enumerate(texts):
        best = reciprocal_rank_fusion([near.ids[query], matches[one]], k)
        ids[query, : len(best)] = best
        distances[query, : len(best)] = _distances(searcher, snapshot, request[query : query + 1], best)
    if request.single:
        return Hits(ids[0], distances[0], int(near.compared[0]))
    return Hits(ids, distances, near.compared)


def _distances(searcher: Searcher, snapshot: Snapshot, query: Request, ids: Ids) -> Floats:
    """Return the distances of items to a query."""
    if not len(ids):
        return np.empty(0, dtype=np.float32)
    query.allowed = filter_of_ids(ids)
    found = searcher.search(snapshot, query, len(ids), candidates=len(ids), rerank=len(ids))
    order = np.argsort(found.ids[0])
    distances: Floats = found.distances[0, order[np.searchsorted(found.ids[0], ids, sorter=order)]]
    return distances


def check_text(text: Any, schema: Schema | None, count: int) -> tuple[str, list[str]]:
    """Return the column of a text, and the text of each query.

    >>> check_text("red roses", {"title": "string", "year": "int64"}, count=2)
    ('title', ['red roses', 'red roses'])
    """
    columns = [name for name, kind in (schema or {}).items() if kind == "string"]
    if isinstance(text, Mapping):
        if len(text) != 1:
            raise InvalidInput(f"text must name one column, got {len(text)}: search them one after the other")
        ((column, given),) = text.items()
        if column not in columns:
            raise unknown_column(column, dict.fromkeys(columns, "string"), " for text")
    else:
        given = text
        if len(columns) != 1:
            known = f"{len(columns)}: {', '.join(columns[:20])}" if columns else "none"
            raise InvalidInput(
                f"text is searched in a column of strings, and this index has {known}: "
                + ("name one, as in text={'title': 'words'}" if columns else "add one with attributes=")
            )
        column = columns[0]
    texts = [given] * count if isinstance(given, str) else list(given) if isinstance(given, Sequence) else [given]
    for one in texts:
        if not isinstance(one, str):
            raise InvalidInput(f"text must be a string, or a list of one for each query, got {one!r:.80}")
        if any("\ud800" <= letter <= "\udfff" for letter in one):
            raise InvalidInput(f"text must be Unicode, got a lone surrogate in {one!r:.80}: decode it again")
    if len(texts) != count:
        raise InvalidInput(f"text must be one string for each query, got {len(texts)} for {count} queries")
    return column, texts
