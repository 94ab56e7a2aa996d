"""Search by vectors in one call of the core, from rows of floats to ids (`cpp/nestcode/row_search.hpp`).

This is the plain case: queries are vectors, distances are by the coder's metric to stored vectors or to what codes
decode to, and nothing is filtered. Queries are compared with all items by any metric, also with the caller's vectors.
Other searches take the same steps one by one (searcher.py), and so do batches that rerank little of inverted lists,
which matrix products project, and rows whose squares leave the range of float32.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids
from nestcode.coders.base import CodebookLayout, ScalarLayout
from nestcode.codes import thread_count
from nestcode.fork import lazy_property
from nestcode.search.decoded import ProjectedScorer
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.hits import Hits
from nestcode.search.plan import Budget, Effort, check_k, count_candidates
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.product_tables import ScalarTables
from nestcode.search.scorer import NO_CODEBOOKS, SearchMetric
from nestcode.search.vectors import GivenVectors, VectorsById

FEW = 16  # rows, which the core projects as fast as a matrix product does
MANY = 1000  # bit-plane codes to rerank, which take the core less time than it loses to a matrix product
EXPANDED = 8 << 20  # bytes of items that are kept as vectors
NO_CENTROIDS, NO_BITS = np.zeros((1, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)


class RowBudget(NamedTuple):
    """The work of a search."""

    lists: int  # candidates in inverted lists
    graphs: int  # candidates of a walk
    reranked: int


class RowSearcher:
    """A prepared snapshot, searched by rows.

    Args:
        prepared: the snapshot; `supports` must hold for it.
        stored: whether candidates are reranked by the vectors that the index stores, not by their codes.

    """

    def __init__(self, prepared: PreparedSnapshot, *, stored: bool) -> None:
        scorer = prepared.scorer
        assert isinstance(scorer, ProjectedScorer)
        self._prepared, self._coder = prepared, scorer.coder
        self._vectors = prepared.vectors.core if stored else None
        self._features, self._metric = scorer.coder.n_features_in_, scorer.coder.metric_
        bits = prepared.list_bits if prepared.has_lists else None
        self._core = prepared.row_searcher(
            scorer.row_projection(bits, whole=not stored),
            None if bits is None else scorer.list_scoring(bits),
            None if stored else code_decoder(scorer, prepared.snapshot.width),
        )
        self._bit_planes = isinstance(scorer, FastScanScorer)
        # Walks project queries themselves, and find many items to rank by whole codes.
        self._walks = prepared.has_graphs and not (stored and prepared.has_lists)
        self._budget = lru_cache(maxsize=256, typed=True)(partial(_row_budget, prepared))

    def search(
        self,
        queries: NDArray[np.floating[Any]],
        k: int,
        candidates: int | None,
        rerank: int | None,
        effort: Effort | None,
        threads: int | None,
        metric: SearchMetric | None,
        vectors: VectorsById | None,
    ) -> Hits | None:
        """Return the k nearest items of one vector or of each row, or None where that takes a plan."""
        workers, budget = self._budget(k, candidates, rerank, effort, threads)
        if not (metric is None and vectors is None) and not (budget is None and self._scans(metric)):
            return None
        if queries.ndim == 1 and len(queries) == self._features:
            ids, distances = np.empty(k, np.int64), np.empty(k, np.float32)
            if budget is None:
                return self._scan(queries, metric or self._metric, vectors, ids, distances, workers)
            compared = self._core.search_one(queries, k, *budget, ids, distances)
            return None if compared < 0 else Hits(ids, distances, compared)
        if queries.ndim != 2 or queries.shape[1] != self._features:
            return None
        if len(queries) == 1:  # as one vector, which takes less time than a batch of one
            hits = self.search(queries[0], k, candidates, rerank, effort, threads, metric, vectors)
            return hits and Hits(hits.ids[None], hits.distances[None], np.array([hits.compared]))
        if budget is None:
            ids, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
            return self._scan(queries, metric or self._metric, vectors, ids, distances, workers)
        by_core = self._walks or (budget.reranked >= MANY and self._bit_planes)
        if len(queries) > FEW and not by_core:
            return None
        shape, counts = (len(queries), k), np.empty(len(queries), np.int64)
        ids, distances = np.empty(shape, np.int64), np.empty(shape, np.float32)
        done = self._core.search(queries, k, *budget, ids, distances, counts, workers)
        return Hits(ids, distances, counts) if done else None

    def _scans(self, metric: SearchMetric | None) -> bool:
        """Return whether one vector is compared with all items by a metric here."""
        if metric is None or metric == self._metric:
            return True
        return not self._prepared.by_graph and self._metric == "l2" and metric in ("cosine", "inner")

    def _scan(
        self,
        queries: NDArray[np.floating[Any]],
        metric: SearchMetric,
        vectors: VectorsById | None,
        ids: Ids,
        distances: Floats,
        threads: int,
    ) -> Hits | None:
        """Return the nearest of all items of one vector or of each row, or None where that takes a plan."""
        prepared = self._prepared
        found = Hits(ids, distances, prepared.count if queries.ndim == 1 else np.full(len(queries), prepared.count))
        if vectors is None and self._floats is not None:
            rows = np.arange(prepared.count, dtype=np.uint32)
            done = self._floats.nearest(queries, rows, prepared.ids, metric, distances, ids, threads)
        elif vectors is not None or self._vectors is not None:
            given = None if vectors is None else GivenVectors(vectors, self._features)
            done = prepared.scan_vectors(given, queries, metric, ids, distances, threads)
        else:
            done = self._codes is not None and self._codes.search(queries, metric, distances, ids, threads)
        return found if done else None

    @lazy_property
    def _floats(self) -> _core.VectorRuns | None:
        """Few items as vectors, where these are compared in less time than their integers, or their codes by tables."""
        prepared = self._prepared
        if prepared.count * self._features * 4 > EXPANDED:
            return None
        if self._vectors is not None:
            positions = prepared.positions.astype(np.int64)
            return _core.VectorRuns(prepared.vectors.rows(positions)) if prepared.vectors.integers else None
        layout = self._coder.layout(prepared.snapshot.width)
        if isinstance(layout, ScalarLayout):
            directions = np.count_nonzero(layout.planes.allocation)  # that a query is projected on
            if prepared.count * (self._features - directions) > self._features * directions:
                return None
        rows = [self._coder.decode(codes) for _, _, codes in prepared.items()]
        return _core.VectorRuns(np.concatenate(rows).astype(np.float32, copy=False))

    @lazy_property
    def _codes(self) -> _core.CodeScan | None:
        """The lookup tables that score all codes, where they are of bit planes."""
        prepared = self._prepared
        if not isinstance(prepared.tables, ScalarTables):
            return None
        return prepared.tables.scan(self._core, prepared.adc_codes, prepared.ids)


def _row_budget(
    prepared: PreparedSnapshot,
    k: int,
    candidates: int | None,
    rerank: int | None,
    effort: Effort | None,
    threads: int | None,
) -> tuple[int, RowBudget | None]:
    """Return how many threads to use, and the work of a search; None compares all items."""
    budget = Budget(candidates, rerank, effort).for_snapshot(prepared)
    workers, k = thread_count(threads), check_k(k, prepared.count)
    most, reranked = max(count_candidates(prepared, budget, k), k), budget.rerank(k)
    if most >= prepared.count:
        return workers, None
    return workers, RowBudget(prepared.list_candidates(most), most, min(reranked, prepared.count))


def supports(prepared: PreparedSnapshot, *, stored: bool) -> bool:
    """Return whether a `RowSearcher` can search a snapshot."""
    scorer = prepared.scorer
    if not isinstance(scorer, ProjectedScorer) or scorer.scales_queries or not prepared.count:
        return False
    if prepared.by_prefix or prepared.in_files:
        return False
    return not prepared.vectors.in_files if stored else code_decoder(scorer, prepared.snapshot.width) is not None


def code_decoder(scorer: ProjectedScorer, width: int) -> _core.CoefficientDecoder | None:
    """Return what the core decodes codes of `width` bits by, or None where only the coder can."""
    layout = scorer.coder.layout(width)
    if isinstance(layout, ScalarLayout):
        centroids = np.ascontiguousarray(layout.centroids, dtype=np.float32)
        return _core.CoefficientDecoder(centroids, layout.planes.allocation, layout.planes.levels, NO_CODEBOOKS)
    if isinstance(layout, CodebookLayout) and layout.exact:
        return _core.CoefficientDecoder(NO_CENTROIDS, NO_BITS, np.zeros((0, 0), dtype=np.float32), layout.codebooks)
    return None
