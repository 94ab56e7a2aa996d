"""The searcher of an index: runs a plan on a snapshot, step by step (the steps are drawn in `nestcode.search`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids
from nestcode.coders import Coder
from nestcode.coders.base import BaseLayout, CodebookLayout, ScalarLayout
from nestcode.errors import InvalidInput
from nestcode.search.adc import AdcScorer
from nestcode.search.decoded import DecodedScorer, RefinedScorer
from nestcode.search.exhaustive import search_all
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.hamming import HammingRerankScorer, HammingScorer
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.plan import Plan, check_k
from nestcode.search.prepared import Positions, PreparationCache, PreparedSnapshot, Snapshot
from nestcode.search.scorer import Scorer

QUERIES = 256  # estimated and reranked at once
RANGE_START = 64  # hits that a range search begins with; it goes on by factors of 4


class Searcher:
    """Searches the snapshots of one index, and caches what scorers prepare.

    Args:
        coder: the coder of the index, if it has one.
        prefix: how many leading bits distances are estimated by; None is as many as the scorer takes.

    """

    def __init__(self, coder: Coder | None, prefix: int | None = None) -> None:
        self._coder, self._prefix = coder, prefix
        self._latest: dict[bool, tuple[PreparationCache, PreparedSnapshot]] = {}  # by whether codes are compared

    @property
    def nbytes(self) -> int:
        """Bytes of what scorers prepared."""
        return sum(cache.nbytes for cache, _ in list(self._latest.values()))

    def search(self, snapshot: Snapshot, plan: Plan, k: int) -> Hits:
        """Return the k nearest items of each query."""
        prepared = self.prepare(snapshot, plan)
        k = check_k(k, prepared.count)
        budget = max(plan.candidates(prepared.count), k)  # k hits wherever there are so many
        found = top_k(prepared, plan, k, budget, plan.rerank(k))
        if plan.single:
            return Hits(found.ids[0], found.distances[0], int(found.compared[0]))
        return found

    def range_search(self, snapshot: Snapshot, plan: Plan, radius: float) -> Hits | RangeHits:
        """Return all candidates within a distance of each query, nearest first."""
        if not isinstance(radius, float | int | np.floating | np.integer) or not np.isfinite(radius):
            raise InvalidInput(f"radius must be a finite number, got {radius!r}")
        prepared = self.prepare(snapshot, plan)
        budget = plan.candidates(prepared.count)
        found: list[Hits] = []
        for query in range(len(plan)):
            k = RANGE_START
            while True:
                hits = top_k(prepared, plan, k, budget, max(4 * k, 100), query)
                inside = hits.distances[0] <= radius
                if not inside[-1] or hits.ids[0, -1] < 0 or k >= hits.compared[0]:
                    break
                k = min(4 * k, int(hits.compared[0]))
            inside &= hits.ids[0] >= 0
            found.append(Hits(hits.ids[0, inside], hits.distances[0, inside], int(hits.compared[0])))
        return found[0] if plan.single else RangeHits(tuple(found))

    def prepare(self, snapshot: Snapshot, plan: Plan) -> PreparedSnapshot:
        """Return a snapshot prepared for a plan; without a filter it is kept until the next snapshot."""
        by_codes = plan.codes is not None
        known = self._latest.get(by_codes)
        if known is not None and known[1].snapshot.width != snapshot.width:  # the index was truncated
            known = None
        cache = self._cache(by_codes, snapshot.width) if known is None else known[0]
        if known is None or known[1].snapshot is not snapshot:
            known = self._latest[by_codes] = cache, PreparedSnapshot(snapshot, cache)
        return known[1] if plan.allowed is None else PreparedSnapshot(snapshot, cache, plan.allowed)

    def _cache(self, by_codes: bool, width: int) -> PreparationCache:
        prefix = None if self._prefix is None or self._prefix >= width else self._prefix
        bits, coder = width if prefix is None else prefix, self._coder
        scorer: Scorer = HammingScorer(bits) if by_codes or coder is None else scorer_for(coder, bits)
        return PreparationCache(scorer, prefix)


def scorer_for(coder: Coder, width: int) -> DecodedScorer:
    """Return the scorer for the first `width` bits of a coder's codes, by their layout."""
    layout = coder.layout(width)
    if isinstance(layout, ScalarLayout):
        return FastScanScorer(coder, layout, width)
    if isinstance(layout, CodebookLayout):
        return AdcScorer(coder, layout, width)
    if isinstance(layout, BaseLayout):
        return RefinedScorer(coder, scorer_for(layout.base, width))
    return HammingRerankScorer(coder, width)


def top_k(
    prepared: PreparedSnapshot, plan: Plan, k: int, candidates: int, rerank: int, query: int | None = None
) -> Hits:
    """Return the k nearest items of each query of a plan, or of one of them.

    Args:
        prepared: what is searched.
        plan: the queries and how items are ranked.
        k: hits of a query; ids of -1 fill up.
        candidates: items to estimate; all of them make the search exhaustive.
        rerank: how many of these are reranked.
        query: the one query to answer; None answers all.

    """
    queries = range(len(plan)) if query is None else range(query, query + 1)
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    distances = np.full((len(queries), k), np.inf, dtype=np.float32)
    if candidates >= prepared.count:
        search_all(prepared, plan, queries.start, ids, distances)
        return Hits(ids, distances, np.full(len(queries), prepared.count))
    compared = np.zeros(len(queries), dtype=np.int64)
    exact = plan.codes is not None and not prepared.by_prefix  # Hamming distances of whole codes
    keep = min(k if exact else rerank, prepared.count)
    for first in range(0, len(queries), QUERIES):
        some = slice(first, min(first + QUERIES, len(queries)))
        begin, end = queries.start + some.start, queries.start + some.stop
        batch = plan.batch(prepared.scorer, begin, end)
        estimated, positions, compared[some] = prepared.estimate(batch, end - begin, candidates, keep, plan.threads)
        hits = prepared.ids_at(positions)
        if plan.rank == "exact":
            near = _rerank(prepared, plan, plan.rows[begin:end], hits, positions)
        elif isinstance(prepared.scorer, DecodedScorer):
            near = prepared.scorer.rerank(batch, prepared.codes_at(positions), plan.threads)
        elif exact:
            near = estimated
        else:
            assert plan.codes is not None
            assert isinstance(prepared.scorer, HammingScorer)
            near = prepared.scorer.rerank_codes(plan.codes[slice(begin, end)], prepared.codes_at(positions))
            near[hits < 0] = np.inf
        _core.select_top_k(near, hits, distances[some], ids[some], plan.threads)
    return Hits(ids, distances, compared)


def _rerank(
    prepared: PreparedSnapshot, plan: Plan, queries: NDArray[np.floating[Any]], ids: Ids, positions: Positions
) -> Floats:
    """Return distances to the vectors of hits, which the caller gave by id or the index stores by position."""
    if plan.vectors is not None:
        return plan.vectors.rerank(queries, ids, plan.metric, plan.threads)
    return prepared.vectors.rerank(queries, np.where(ids >= 0, positions, np.int64(-1)), plan.metric, plan.threads)
