"""The searcher of an index: runs a plan on a snapshot, step by step (the steps are drawn in `nestcode.search`)."""

from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import CORES, FLOAT32_MAX, Floats, Ids
from nestcode.coders import Coder
from nestcode.coders.base import BaseLayout, CodebookLayout, ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.adc import AdcScorer
from nestcode.search.decoded import DecodedScorer, RefinedScorer
from nestcode.search.exhaustive import search_all
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.hamming import HammingRerankScorer, HammingScorer
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.plan import Effort, IdFilter, Plan, check_k, count_candidates
from nestcode.search.prepared import (
    Estimates,
    Filter,
    Positions,
    PreparationCache,
    PreparedSnapshot,
    Snapshot,
    SortedRun,
)
from nestcode.search.row_search import FEW, RowSearcher, supports
from nestcode.search.scorer import QueryBatch, ScanLayout, Scorer, SearchMetric
from nestcode.search.vectors import VectorsById

QUERIES = 256  # estimated and reranked at once
NATIVE_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})  # that the core reads
SETTING_TYPES = frozenset({int, type(None)})  # what other types mean, a plan decides
MOST = 0.9  # of all items: hits are tested against a filter of so many ids, and not the items
MANY = 0.25  # the same where all items are compared
RANGE_START = 64  # hits that a range search begins with; it goes on by factors of 4


class StoredLayouts:
    """Lays out codes for the searches of an index, which stores the layouts.

    Snapshots refer to it, and it to none, unlike a `Searcher`: so an index that nobody refers to any more is freed at
    once, with the files that it has open.
    """

    def __init__(self, coder: Coder | None) -> None:
        self._coder = coder
        self._latest: tuple[int, Scorer] | None = None  # the scorer of all bits, by width

    def __call__(self, codes: Codes) -> ScanLayout:
        """Return what searches by distance scan of sorted codes."""
        if self._latest is None or self._latest[0] != codes.width:
            self._latest = codes.width, _scorer(self._coder, codes.width)
        return self._latest[1].lay_out(codes)


class Searcher:
    """Searches the snapshots of one index, and caches what scorers prepare.

    Args:
        coder: the coder of the index, if it has one.
        prefix: how many leading bits distances are estimated by; None is as many as the scorer takes.
        graphs: whether segments get graphs, so that an effort is one of walks.
        by_graph: whether to use them.

    """

    def __init__(
        self, coder: Coder | None, prefix: int | None = None, *, graphs: bool = False, by_graph: bool = True
    ) -> None:
        self._coder, self._prefix, self.graphs, self._by_graph = coder, prefix, graphs, by_graph
        self._caches: dict[bool, tuple[int, PreparationCache]] = {}  # with their width, by whether codes are compared
        self._rows: tuple[Snapshot, RowSearcher | None] | None = None  # of the latest snapshot, if it can be
        self._latest: dict[tuple[bool, bool], PreparedSnapshot] = {}  # by that, and whether graphs are used

    @property
    def nbytes(self) -> int:
        """Bytes of what scorers prepared."""
        return sum(cache.nbytes for _, cache in list(self._caches.values()))

    def pack(self, run: SortedRun) -> None:
        """Pack the records of a run's graph, so that no search has to."""
        if self._by_graph:
            self._cache(run.codes.width, by_codes=False).graph(run).records.pack(CORES)

    def search(self, snapshot: Snapshot, plan: Plan, k: int) -> Hits:
        """Return the k nearest items of each query."""
        found = self._search_most(snapshot, plan, k) or self._search(self.prepare(snapshot, plan), plan, k)
        _check_range(found)
        if plan.single:
            return Hits(found.ids[0], found.distances[0], int(found.compared[0]))
        return found

    def _search(self, prepared: PreparedSnapshot, plan: Plan, k: int) -> Hits:
        k = check_k(k, prepared.count)
        budget = plan.budget.for_snapshot(prepared)
        candidates = max(count_candidates(prepared, budget, k), k)  # k hits wherever there are so many
        return top_k(prepared, plan, k, candidates, budget.rerank(k))

    def _search_most(self, snapshot: Snapshot, plan: Plan, k: int) -> Hits | None:
        """Return the hits that a filter of nearly all ids leaves of twice as many, or None where these are too few."""
        if plan.allowed is None or plan.budget.chosen_candidates is not None or not len(plan):
            return None
        if plan.vectors is not None:  # there may be none of items that the filter excludes
            return None
        check_k(k, len(snapshot))
        if len(snapshot) <= 2 * k or plan.allowed.size < MOST * len(snapshot):
            return None
        prepared = self._prepare(snapshot, plan.metric, by_codes=plan.codes is not None)
        if min(plan.allowed.size, prepared.count) <= plan.budget.few_left(prepared):  # all that it leaves are compared
            return None
        found = self._search(prepared, plan, 2 * k)
        return _keep_allowed(found, plan.allowed, k)

    def search_rows(
        self,
        snapshot: Snapshot,
        queries: object,
        k: int,
        candidates: int | None,
        rerank: int | None,
        effort: Effort | None,
        threads: int | None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        allowed: IdFilter | None = None,
    ) -> Hits | None:
        """Return the k nearest items by default rank in one call of the core, or None where it cannot.

        It takes one vector or a few, (n, features), of native floats; whatever is invalid is left to a plan, which says
        why.
        """
        if type(queries) is not np.ndarray or queries.dtype not in NATIVE_FLOATS:
            return None
        if not (queries.flags.c_contiguous and queries.flags.aligned):
            return None
        if not {type(k), type(candidates), type(rerank), type(threads)} <= SETTING_TYPES:
            return None
        known = self._rows
        if known is None or known[0] is not snapshot:
            known = self._rows = snapshot, self._row_searcher(snapshot)
        searcher = known[1]
        if searcher is None:
            return None
        if allowed is None:
            return searcher.search(queries, k, candidates, rerank, effort, threads, metric, vectors)
        if candidates is not None or vectors is not None:
            return None
        found = searcher.search_some(queries, k, allowed, rerank, effort, threads, metric)
        if found is not None:
            return found
        every = searcher.compares_all(k, effort)
        share = min(allowed.size / len(snapshot), 1.0)
        few = queries.ndim == 1 or len(queries) <= FEW
        if share < (MANY if every and few else MOST):
            return None
        # So many hits of an exact search that a filter of random ids leaves k, by five standard deviations.
        more = int((k + 5 * sqrt(k * (1 - share))) / share) + 2 if every else 2 * k
        if 2 * more > len(snapshot):
            return None
        found = searcher.search(queries, more, None, rerank, effort, threads, metric, None)
        return None if found is None else _keep_allowed(found, allowed, k)

    def range_search(self, snapshot: Snapshot, plan: Plan, radius: float) -> Hits | RangeHits:
        """Return all candidates within a distance of each query, nearest first."""
        if not isinstance(radius, float | int | np.floating | np.integer) or not np.isfinite(radius):
            raise InvalidInput(f"radius must be a finite number, got {radius!r}")
        radius = float(np.float32(np.clip(radius, -FLOAT32_MAX, FLOAT32_MAX)))  # the type of distances
        prepared = self.prepare(snapshot, plan)
        budget = plan.budget.for_snapshot(prepared)
        found: list[Hits] = []
        for query in range(len(plan)):
            k = RANGE_START
            while True:
                candidates = count_candidates(prepared, budget, k)
                hits = top_k(prepared, plan, k, candidates, max(4 * k, 100), query)
                inside = hits.distances[0] <= radius
                if not inside[-1] or hits.ids[0, -1] < 0 or k >= hits.compared[0]:
                    break
                k = min(4 * k, int(hits.compared[0]))
            inside &= hits.ids[0] >= 0
            found.append(Hits(hits.ids[0, inside], hits.distances[0, inside], int(hits.compared[0])))
        return found[0] if plan.single else RangeHits(tuple(found))

    def candidates(self, snapshot: Snapshot, plan: Plan, k: int) -> int:
        """Return the candidate budget of a search."""
        prepared = self.prepare(snapshot, plan)
        return count_candidates(prepared, plan.budget.for_snapshot(prepared), k)

    def prepare(self, snapshot: Snapshot, plan: Plan) -> PreparedSnapshot:
        """Return a snapshot prepared for a plan; without a filter it is kept until the next snapshot."""
        return self._prepare(snapshot, plan.metric, plan.allowed, by_codes=plan.codes is not None)

    def _prepare(
        self, snapshot: Snapshot, metric: SearchMetric, allowed: Filter | None = None, *, by_codes: bool = False
    ) -> PreparedSnapshot:
        # Graphs connect items that are near by the coder's own metric.
        can_walk = self._by_graph and self._coder is not None and not by_codes and metric == self._coder.metric_
        by_graph = can_walk and self.graphs
        make = partial(
            PreparedSnapshot,
            snapshot,
            self._cache(snapshot.width, by_codes=by_codes),
            allowed,
            by_graph=by_graph,
            fits_effort=by_graph == self.graphs,
        )
        if allowed is not None:
            return make()
        known = self._latest.get((by_codes, by_graph))
        if known is None or known.snapshot is not snapshot:
            known = self._latest[by_codes, by_graph] = make()
        return known

    def _row_searcher(self, snapshot: Snapshot) -> RowSearcher | None:
        """Return what searches a snapshot by rows, if there is a coder that the core knows."""
        if self._coder is None or not len(snapshot):
            return None
        prepared = self._prepare(snapshot, self._coder.metric_)
        stored = all(run.vectors is not None for run in snapshot.runs)
        return RowSearcher(prepared, stored=stored) if supports(prepared, stored=stored) else None

    def _cache(self, width: int, *, by_codes: bool) -> PreparationCache:
        known = self._caches.get(by_codes)
        if known is None or known[0] != width:  # the index may have been truncated
            prefix = None if self._prefix is None or self._prefix >= width else self._prefix
            bits = width if prefix is None else prefix
            scorer = HammingScorer(bits) if by_codes else _scorer(self._coder, bits)
            known = self._caches[by_codes] = width, PreparationCache(scorer, prefix)
        return known[1]


def _scorer(coder: Coder | None, bits: int) -> Scorer:
    return HammingScorer(bits) if coder is None else scorer_for(coder, bits)


def _keep_allowed(found: Hits, allowed: IdFilter, k: int) -> Hits | None:
    """Return the first k hits of each query that a filter allows, or None where these are too few."""
    kept = allowed.contains(found.ids)
    if (kept.sum(axis=-1) < k).any():
        return None
    first = np.argsort(~kept, axis=-1, kind="stable")[..., :k]
    ids = np.take_along_axis(found.ids, first, axis=-1)
    return Hits(ids, np.take_along_axis(found.distances, first, axis=-1), found.compared)


def _check_range(hits: Hits) -> None:
    """Raise if distances exceed float32, in which case hits come in no order."""
    first, last = hits.distances[:, 0].min(initial=0), hits.distances[:, -1].max(initial=0)
    if first > -FLOAT32_MAX and last < FLOAT32_MAX:
        return
    if (np.abs(hits.distances[hits.ids >= 0]) >= FLOAT32_MAX).any():  # missing hits are at infinite distance
        raise InvalidInput(
            f"distances and inner products must be below {FLOAT32_MAX:.2g}, the largest float32, but some exceed it: "
            "rescale the data and the queries"
        )


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
    # Vectors that the caller fetches one by one are fetched to rerank, never all of them.
    can_scan = plan.budget.chosen_candidates is None and (plan.vectors is None or plan.vectors.is_array)
    for first in range(0, len(queries), QUERIES):
        some = slice(first, min(first + QUERIES, len(queries)))
        begin, end = queries.start + some.start, queries.start + some.stop
        batch = plan.batch(prepared.scorer, begin, end) if prepared.has_lists or plan.rank != "exact" else None
        found = _estimate(prepared, plan, batch, range(begin, end), candidates, keep, k, bounded=can_scan)
        estimated, positions, compared[some], excluded = found
        hits = prepared.ids_at(positions)
        if plan.rank == "exact":
            near = _rerank(prepared, plan, plan.rows[begin:end], hits, positions)
        elif isinstance(prepared.scorer, DecodedScorer) and batch is not None:
            near = prepared.scorer.rerank(batch, prepared.codes_at(positions), plan.threads)
        elif exact:
            near = estimated
        else:
            assert plan.codes is not None
            assert isinstance(prepared.scorer, HammingScorer)
            near = prepared.scorer.rerank_codes(plan.codes[slice(begin, end)], prepared.codes_at(positions))
            near[hits < 0] = np.inf
        _core.select_top_k(near, hits, distances[some], ids[some], plan.threads)
        if prepared.filtered and can_scan:
            compared[some][excluded] = prepared.count
            changes = np.flatnonzero(np.diff(excluded, prepend=False, append=False))
            for start, stop in changes.reshape(-1, 2).tolist():  # adjacent queries are searched together
                near, hits = distances[some][start:stop], ids[some][start:stop]
                near[:], hits[:] = np.inf, -1
                search_all(prepared, plan, begin + start, hits, near)
    return Hits(ids, distances, compared)


def _estimate(
    prepared: PreparedSnapshot,
    plan: Plan,
    batch: QueryBatch | None,
    queries: range,
    candidates: int,
    keep: int,
    k: int,
    *,
    bounded: bool,
) -> Estimates:
    """Return the best of each query by lists and, beside them, by each graph, which reranking makes comparable.

    Bounded walks end where a filter excludes a query's surroundings.
    """
    found = []
    if batch is not None and prepared.has_lists:
        found.append(prepared.estimate(batch, len(queries), candidates, keep, plan.threads))
    if prepared.has_graphs:
        rows = plan.rows[queries.start : queries.stop].astype(np.float32, copy=False)
        best = k if plan.rank == "exact" and plan.vectors is None else None
        keep = min(keep, candidates)
        found += prepared.walk(rows, plan.metric, candidates, keep, best, plan.threads, bounded=bounded)
    if len(found) == 1:
        return found[0]
    distances, positions, compared, excluded = zip(*found, strict=True)
    return Estimates(
        np.concatenate(distances, axis=1),
        np.concatenate(positions, axis=1),
        np.sum(compared, axis=0),
        np.any(excluded, axis=0),
    )


def _rerank(
    prepared: PreparedSnapshot, plan: Plan, queries: NDArray[np.floating[Any]], ids: Ids, positions: Positions
) -> Floats:
    """Return distances to the vectors of hits, which the caller gave by id or the index stores by position."""
    if plan.vectors is not None:
        return plan.vectors.rerank(queries, ids, plan.metric, plan.threads)
    return prepared.vectors.rerank(queries, np.where(ids >= 0, positions, np.int64(-1)), plan.metric, plan.threads)
