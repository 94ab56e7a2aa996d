"""The searcher of an index: a request is planned once, and executed once (the steps are drawn in `nestcode.search`)."""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nestcode import _core
from nestcode.arrays import CORES, FLOAT32_MAX, Floats, Ids
from nestcode.coders import Coder
from nestcode.coders.base import BaseLayout, CodebookLayout, ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.adc import AdcScorer
from nestcode.search.decoded import DecodedScorer, RefinedScorer
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.filters import Filter
from nestcode.search.hamming import HammingRerankScorer, HammingScorer
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.planner import Effort, Plan
from nestcode.search.preparation import PreparationCache
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.request import Request, check_k
from nestcode.search.runs import Positions, Snapshot, SortedRun
from nestcode.search.scan import scan
from nestcode.search.scorer import ScanLayout, Scorer
from nestcode.search.selection import Selection
from nestcode.search.vectors import VectorType

QUERIES = 256  # whose candidates are in memory at once
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


class SelectedItems(NamedTuple):
    """What searches of a snapshot may return, by their filters, as long as these live."""

    prepared: PreparedSnapshot
    by_filter: WeakKeyDictionary[Filter, Selection]


class Searcher:
    """Searches the snapshots of one index, and caches what scorers prepare.

    Args:
        coder: the coder of the index, if it has one.
        graphs: whether segments get graphs, so that an effort is one of walks.
        by_graph: whether to use them.

    """

    def __init__(self, coder: Coder | None, *, graphs: bool = False, by_graph: bool = True) -> None:
        self._coder, self.graphs, self._by_graph = coder, graphs, by_graph
        self._caches: dict[bool, tuple[int, PreparationCache]] = {}  # with their width, by whether codes are compared
        # By that, whether graphs are used, and whether zero vectors are told apart.
        self._latest: dict[tuple[bool, bool, bool], SelectedItems] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of what scorers prepared."""
        return sum(cache.nbytes for _, cache in list(self._caches.values()))

    def pack(self, run: SortedRun) -> None:
        """Pack the records of a run's graph, so that no search has to."""
        if self._by_graph:
            self._cache(run.codes.width, by_codes=False).graph(run).records.pack(CORES)

    def search(
        self,
        snapshot: Snapshot,
        request: Request,
        k: int,
        candidates: int | None = None,
        rerank: int | None = None,
        effort: Effort | None = None,
    ) -> Hits:
        """Return the k nearest items of each query."""
        selection = self._select(snapshot, request)
        k = check_k(k, selection.count + len(selection.zeros))
        plan = self._plan(selection, request, k, candidates, rerank, effort)
        if request.single:
            ids, distances = np.empty(k, np.int64), np.empty(k, np.float32)
            compared = self._search_one(selection, request, plan, ids, distances)
            if compared >= 0:
                return selection.with_zeros(Hits(ids, distances, compared))
        found = selection.with_zeros(self._execute(selection, request, plan, k))
        return Hits(found.ids[0], found.distances[0], int(found.compared[0])) if request.single else found

    def explain(
        self,
        snapshot: Snapshot,
        request: Request,
        k: int,
        candidates: int | None = None,
        rerank: int | None = None,
        effort: Effort | None = None,
    ) -> Plan:
        """Return how a search would be executed."""
        request.check()
        selection = self._select(snapshot, request)
        k = check_k(k, selection.count + len(selection.zeros))
        return self._plan(selection, request, k, candidates, rerank, effort)

    def range_search(
        self, snapshot: Snapshot, request: Request, radius: float, candidates: int | None, effort: Effort | None
    ) -> Hits | RangeHits:
        """Return all candidates within a distance of each query, nearest first."""
        if not isinstance(radius, float | int | np.floating | np.integer) or not np.isfinite(radius):
            raise InvalidInput(f"radius must be a finite number, got {radius!r}")
        radius = float(np.float32(np.clip(radius, -FLOAT32_MAX, FLOAT32_MAX)))  # the type of distances
        selection = self._select(snapshot, request)
        found: list[Hits] = []
        for query in range(len(request)):
            one, k = request.part(query, query + 1), RANGE_START
            while True:
                plan = self._plan(selection, one, k, candidates, max(4 * k, 100), effort)
                hits = selection.with_zeros(self._execute(selection, one, plan, k))
                inside = hits.distances[0] <= radius
                if not inside[-1] or hits.ids[0, -1] < 0 or k >= hits.compared[0]:
                    break
                k = min(4 * k, int(hits.compared[0]))
            inside &= hits.ids[0] >= 0
            found.append(Hits(hits.ids[0, inside], hits.distances[0, inside], int(hits.compared[0])))
        return found[0] if request.single else RangeHits(tuple(found))

    # plan

    def _select(self, snapshot: Snapshot, request: Request) -> Selection:
        """Return the items that a search may return, of a snapshot that is prepared for its scorer."""
        by_codes = request.by_codes
        # Graphs connect items that are near by the coder's own metric.
        by_graph = (
            self.graphs
            and self._by_graph
            and not by_codes
            and self._coder is not None
            and request.metric == self._coder.metric_
        )
        apart = request.rank == "asymmetric" and request.metric == "cosine"
        known = self._latest.get((by_codes, by_graph, apart))
        if known is None or known.prepared.snapshot is not snapshot:
            prepared = PreparedSnapshot(snapshot, self._cache(snapshot.width, by_codes=by_codes), by_graph=by_graph)
            known = self._latest[by_codes, by_graph, apart] = SelectedItems(prepared, WeakKeyDictionary())
        selection = known.by_filter.get(request.allowed)
        if selection is None:
            selection = known.by_filter[request.allowed] = Selection(known.prepared, request.allowed, apart=apart)
        return selection

    def _plan(
        self,
        selection: Selection,
        request: Request,
        k: int,
        candidates: int | None,
        rerank: int | None,
        effort: Effort | None,
    ) -> Plan:
        prepared = selection.prepared
        if effort is not None and self.graphs and not prepared.by_graph:
            effort = None  # it was measured for walks
        vectors: VectorType | None = None
        if request.rank == "exact":
            vectors = "float32" if request.vectors is not None else prepared.vector_type
        fetched = request.vectors is not None and not request.vectors.is_array
        return prepared.plan(selection.count, k, candidates, rerank, effort, vectors, fetched=fetched)

    # operators

    def _search_one(self, selection: Selection, request: Request, plan: Plan, ids: Ids, distances: Floats) -> int:
        """Write the hits of one query, and return how many items it was compared with, -1 where it takes a batch."""
        if request.by_codes:
            return -1
        if plan.operator == "scan":
            return selection.count if selection.count and scan(selection, request, ids, distances) else -1
        prepared = selection.prepared
        reranker = prepared.reranker(by_vectors=request.rank == "exact", given=request.vectors is not None)
        if reranker == "caller":
            return -1
        searcher = prepared.row_searcher(request.metric, reranker)
        return searcher.search_one(selection.core, request.row, plan.budget, ids, distances)

    def _execute(self, selection: Selection, request: Request, plan: Plan, k: int) -> Hits:
        """Return the hits of all queries: those of the plan's operator, and of a scan where that was given up."""
        n = len(request)
        ids, distances, compared = np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.empty(n, np.int64)
        if plan.operator == "scan" or selection.count == 0:
            self._scan(selection, request, ids, distances)
            compared.fill(selection.count)
            return Hits(ids, distances, compared)
        for first in range(0, n, QUERIES):
            some = slice(first, min(first + QUERIES, n))
            part = request if n <= QUERIES else request.part(some.start, some.stop)
            self._find(selection, part, plan, ids[some], distances[some], compared[some])
        if n and compared.min() < 0:
            changes = np.flatnonzero(np.diff(compared < 0, prepend=False, append=False))
            for start, stop in changes.reshape(-1, 2).tolist():  # adjacent queries are scanned together
                self._scan(selection, request.part(start, stop), ids[start:stop], distances[start:stop])
            compared[compared < 0] = selection.count
        return Hits(ids, distances, compared)

    def _scan(self, selection: Selection, request: Request, ids: Ids, distances: Floats) -> None:
        """Write the nearest items of each query by comparing all of them."""
        if not selection.count:
            request.check()
        if not scan(selection, request, ids, distances):
            request.check()
            raise _out_of_range()

    def _find(
        self, selection: Selection, request: Request, plan: Plan, ids: Ids, distances: Floats, compared: Ids
    ) -> None:
        """Write the hits of queries by lists and walks; `compared` is -1 where a scan takes less."""
        prepared, threads = selection.prepared, request.threads
        if isinstance(prepared.scorer, DecodedScorer):
            reranker = prepared.reranker(by_vectors=request.rank == "exact", given=request.vectors is not None)
            if reranker != "caller":
                search = prepared.row_searcher(request.metric, reranker).search
                self._run(
                    prepared,
                    request,
                    lambda rows: search(selection.core, rows, plan.budget, ids, distances, compared, threads),
                )
                return
        scores, positions = self._candidates(selection, request, plan, ids.shape[1], compared)
        hits = prepared.ids_at(positions)
        hits[compared < 0] = -1
        near = self._rerank(prepared, request, hits, positions)
        near[hits < 0] = np.inf
        _core.select_top_k(near, hits, distances, ids, threads)
        _check_range(distances, ids)
        self._rerank_more(selection, request, plan, scores, near, ids, distances, compared)

    def _rerank_more(
        self,
        selection: Selection,
        request: Request,
        plan: Plan,
        scores: Floats,
        near: Floats,
        ids: Ids,
        distances: Floats,
        compared: Ids,
    ) -> None:
        """Rerank more candidates of the queries that find many late, as the core does where it reranks."""
        k, listed = ids.shape[1], plan.budget.reranked
        if plan.most_reranked == 0 or request.by_codes or not selection.prepared.lists:
            return
        estimates, own = (np.ascontiguousarray(part[:, :listed]) for part in (scores, near))
        late = np.empty(len(ids), dtype=np.bool_)
        _core.find_late(estimates, own, k, late)
        unsure = np.isfinite(own[:, -1]) & (compared >= 0) & late
        more = plan.widened()
        for query in np.flatnonzero(unsure).tolist():
            some = slice(query, query + 1)
            if more is None:
                compared[some] = -1
            else:
                self._find(selection, request.part(query, query + 1), more, ids[some], distances[some], compared[some])

    def _run(self, prepared: PreparedSnapshot, request: Request, run: Callable[[Any], bool]) -> None:
        """Call a search of the core with the queries, and raise an error that says why where it refuses them."""
        if run(request.batch_given):
            return
        prepared.check()
        if not run(np.ascontiguousarray(request.rows)):  # raises where queries are not finite, or too long
            prepared.check()
            raise _out_of_range()

    def _candidates(
        self, selection: Selection, request: Request, plan: Plan, k: int, compared: Ids
    ) -> tuple[Floats, Positions]:
        """Return the least estimates and the positions of their items, (queries, candidates)."""
        prepared, scorer, n, threads = selection.prepared, selection.prepared.scorer, len(request), request.threads
        projected = scorer.projected if isinstance(scorer, DecodedScorer) else None
        if projected is not None:
            searcher = prepared.row_searcher(request.metric, "caller")
            columns = searcher.columns(plan.budget, k)
            scores, positions = np.empty((n, columns), np.float32), np.empty((n, columns), np.uint32)
            self._run(
                prepared,
                request,
                lambda rows: searcher.candidates(
                    selection.core, rows, plan.budget, k, scores, positions, compared, threads
                ),
            )
            return scores, positions
        hamming = scorer.base if isinstance(scorer, RefinedScorer) else scorer
        assert isinstance(hamming, HammingScorer)
        keep = k if request.by_codes else plan.budget.reranked  # distances between codes are final
        scores, positions = np.empty((n, keep), np.float32), np.empty((n, keep), np.uint32)
        packed = request.packed(hamming.width) if request.by_codes else request.batch(hamming, 0, n).packed
        selection.core.hamming(packed, plan.listed, plan.most_passed, scores, positions, compared, threads)
        prepared.check()
        return scores, positions

    def _rerank(self, prepared: PreparedSnapshot, request: Request, ids: Ids, positions: Positions) -> Floats:
        """Return distances from queries to candidates, (queries, candidates), by what the request ranks by."""
        scorer = prepared.scorer
        if request.rank == "exact":
            if request.vectors is not None:
                return request.vectors.rerank(request.rows, ids, request.metric, request.threads)
            keys = np.where(ids >= 0, positions, np.int64(-1))
            return prepared.vectors.rerank(request.rows, keys, request.metric, request.threads)
        codes = prepared.codes_at(positions)
        if isinstance(scorer, DecodedScorer):
            return scorer.rerank(request.batch(scorer, 0, len(request)), codes, request.threads)
        assert isinstance(scorer, HammingScorer)
        assert request.codes is not None
        return HammingScorer(request.codes.width).rerank_codes(request.codes, codes)

    def _cache(self, width: int, *, by_codes: bool) -> PreparationCache:
        known = self._caches.get(by_codes)
        if known is None or known[0] != width:  # the index may have been truncated
            scorer = HammingScorer(width) if by_codes else _scorer(self._coder, width)
            known = self._caches[by_codes] = width, PreparationCache(scorer)
        return known[1]


def _scorer(coder: Coder | None, bits: int) -> Scorer:
    return HammingScorer(bits) if coder is None else scorer_for(coder, bits)


def _check_range(distances: Floats, ids: Ids) -> None:
    """Raise if distances exceed float32, in which case hits come in no order."""
    first, last = distances[:, 0].min(initial=0), distances[:, -1].max(initial=0)
    if first > -FLOAT32_MAX and last < FLOAT32_MAX:
        return
    if (np.abs(distances[ids >= 0]) >= FLOAT32_MAX).any():  # missing hits are at infinite distance
        raise _out_of_range()


def _out_of_range() -> InvalidInput:
    return InvalidInput(
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
