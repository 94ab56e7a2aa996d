"""The searcher of an index: a request is planned once, and executed once (the steps are drawn in `nestcode.search`)."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from nestcode.arrays import CORES, check_budget
from nestcode.coders import Coder
from nestcode.search.execution import execute
from nestcode.search.filters import Filter
from nestcode.search.graph import Navigator
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.planner import Effort, Plan
from nestcode.search.preparation import PreparationCache, scorer_for
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.ranging import search_range
from nestcode.search.request import Request, check_k
from nestcode.search.runs import Snapshot, SortedRun
from nestcode.search.selection import Selection
from nestcode.search.vectors import VectorType


class SelectedItems(NamedTuple):
    """What searches of a snapshot may return, by their filters, as long as these live."""

    prepared: PreparedSnapshot
    by_filter: WeakKeyDictionary[Filter, Selection]


class Searcher:
    """Searches the snapshots of one index, and caches what scorers prepare.

    Args:
        coder: the coder of the index, if it has one.
        graphs: whether segments get graphs, so that an effort is one of walks.

    """

    def __init__(self, coder: Coder | None, *, graphs: bool = False) -> None:
        self._coder, self.graphs = coder, graphs
        self._caches: dict[bool, PreparationCache] = {}  # by whether codes are compared
        # By whether codes are compared, graphs are walked, and zero vectors are skipped.
        self._latest: dict[tuple[bool, bool, bool], SelectedItems] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of what scorers prepared."""
        return sum(cache.nbytes for cache in list(self._caches.values()))

    def navigator(self, width: int, *, ranked: bool) -> Navigator:
        """Return what navigates the graphs of codes of this width; `ranked` says whether vectors are stored."""
        return self._cache(width, by_codes=False).navigator(ranked=ranked)

    def pack(self, run: SortedRun) -> None:
        """Pack the records of a run's graph, so that no search has to."""
        if run.graph is not None and run.graph.walked:
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
        k, candidates, rerank = self._check(selection, k, candidates, rerank)
        return self._search(selection, request, k, candidates, rerank, effort)

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
        k, candidates, rerank = self._check(selection, k, candidates, rerank)
        return self._plan(selection, request, k, candidates, rerank, effort)

    def range_search(
        self, snapshot: Snapshot, request: Request, radius: float, candidates: int | None, effort: Effort | None
    ) -> Hits | RangeHits:
        """Return all candidates within a distance of each query, nearest first."""
        candidates = None if candidates is None else check_budget(candidates, "candidates")
        selection = self._select(snapshot, request)

        def search(queries: Request, k: int) -> Hits:
            return self._search(selection, queries, k, candidates, None, effort)

        return search_range(search, request, radius, single=request.single)

    @staticmethod
    def _check(
        selection: Selection, k: int, candidates: int | None, rerank: int | None
    ) -> tuple[int, int | None, int | None]:
        """Return the numbers of a search as Python's, or raise."""
        k = check_k(k, selection.count + len(selection.zeros))
        candidates = None if candidates is None else check_budget(candidates, "candidates")
        return k, candidates, None if rerank is None else check_budget(rerank, "rerank")

    def _search(
        self,
        selection: Selection,
        request: Request,
        k: int,
        candidates: int | None,
        rerank: int | None,
        effort: Effort | None,
    ) -> Hits:
        """Plan a search and execute it."""
        plan = self._plan(selection, request, k, candidates, rerank, effort)
        return selection.with_zeros(execute(selection, request, plan, k))

    # plan

    def _select(self, snapshot: Snapshot, request: Request) -> Selection:
        """Return the items that a search may return, of a snapshot that is prepared for its scorer."""
        by_codes = request.by_codes
        # Graphs connect items that are near by the coder's own metric.
        by_graph = self.graphs and not by_codes and self._coder is not None and request.metric == self._coder.metric_
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
        return prepared.plan(
            selection.count, k, candidates, rerank, effort, vectors, fetched=fetched, queries=len(request)
        )

    def _cache(self, width: int, *, by_codes: bool) -> PreparationCache:
        known = self._caches.get(by_codes)
        if known is None or known.scorer.width != width:  # the index may have been truncated
            scorer = scorer_for(None if by_codes else self._coder, width)
            known = self._caches[by_codes] = PreparationCache(scorer)
        return known
