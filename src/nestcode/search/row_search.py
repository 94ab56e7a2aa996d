"""Search by vectors in one call of the core, from rows of floats to ids (`cpp/nestcode/row_search.hpp`).

This is the plain case: queries are vectors, distances are by the coder's metric to stored vectors or to what codes
decode to, and a filter leaves few items or nearly all. Queries are compared with all items by any metric, also with the
caller's vectors. Other searches take the same steps one by one (searcher.py), and so do batches that rerank little of
inverted lists, which matrix products project, and rows whose squares leave the range of float32.
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
from nestcode.search.decoded import DecodedScorer, ProjectedScorer
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.hits import Hits
from nestcode.search.plan import Budget, Effort, IdFilter, check_k, count_candidates
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.product_tables import ScalarTables
from nestcode.search.scorer import NO_CODEBOOKS, SearchMetric
from nestcode.search.vectors import GivenVectors, RunVectors, VectorsById

FEW = 16  # rows, which the core projects as fast as a matrix product does
MANY = 1000  # bit-plane codes to rerank, which take the core less time than it loses to a matrix product
FEW_CODES = 1024  # codes that a filter leaves, which are decoded in less time than tables are made
NO_CENTROIDS, NO_BITS = np.zeros((1, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)


class RowBudget(NamedTuple):
    """The work of a search."""

    lists: int  # candidates in inverted lists
    graphs: int  # candidates of a walk
    reranked: int


class RowSearcher:
    """A prepared snapshot, searched by rows.

    Args:
        prepared: the snapshot, of a coder's codes.
        stored: whether candidates are reranked by the vectors that the index stores, not by their codes.

    """

    def __init__(self, prepared: PreparedSnapshot, *, stored: bool) -> None:
        scorer = prepared.scorer
        assert isinstance(scorer, DecodedScorer)
        self._prepared, self._stored, self._scorer = prepared, stored, scorer
        self._features, self._metric = scorer.coder.n_features_in_, scorer.coder.metric_
        self._bit_planes = isinstance(scorer, FastScanScorer)
        # Walks project queries themselves, and find many items to rank by whole codes.
        self._walks = prepared.has_graphs and not (stored and prepared.has_lists)
        self._decoded = 0  # codes that filters left
        self._budget = lru_cache(maxsize=256, typed=True)(partial(_row_budget, prepared))

    @lazy_property
    def _searcher(self) -> _core.RowSearcher | None:
        """What searches lists and graphs, and codes of bit planes, or None where that takes a plan."""
        prepared, scorer = self._prepared, self._scorer
        if not isinstance(scorer, ProjectedScorer) or scorer.scales_queries:
            return None
        decoder = None if self._stored else code_decoder(scorer, prepared.snapshot.width)
        if decoder is None and not self._stored:
            return None
        bits = prepared.list_bits if prepared.has_lists else None
        return prepared.row_searcher(
            scorer.row_projection(bits, whole=not self._stored),
            None if bits is None else scorer.list_scoring(bits),
            decoder,
        )

    def compares_all(self, k: int, effort: Effort | None) -> bool:
        """Return whether a search without a candidate budget compares all items."""
        return self._budget(k, None, None, effort, 1)[1] is None

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
            compared = -1 if self._searcher is None else self._searcher.search_one(queries, k, *budget, ids, distances)
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
        if self._searcher is None or (len(queries) > FEW and not by_core):
            return None
        shape, counts = (len(queries), k), np.empty(len(queries), np.int64)
        ids, distances = np.empty(shape, np.int64), np.empty(shape, np.float32)
        done = self._searcher.search(queries, k, *budget, ids, distances, counts, workers)
        return Hits(ids, distances, counts) if done else None

    def search_some(
        self,
        queries: NDArray[np.floating[Any]],
        k: int,
        allowed: IdFilter,
        rerank: int | None,
        effort: Effort | None,
        threads: int | None,
        metric: SearchMetric | None,
    ) -> Hits | None:
        """Return the k nearest of the few items that a filter leaves, or None where that takes a plan."""
        prepared, workers = self._prepared, self._budget(k, None, rerank, effort, threads)[0]
        if queries.ndim not in (1, 2) or queries.shape[-1] != self._features or not len(queries):
            return None
        if not self._scans(metric):
            return None
        most = min(allowed.size, prepared.count)
        if most > self._few(effort):  # known without looking up the positions of many items
            return None
        positions = rows = prepared.positions_of(allowed)
        if not len(positions):
            return None
        vectors = prepared.scanned_vectors if self._stored else self._decoded_vectors(len(positions))
        if vectors is not None:
            core = vectors.core
        else:
            core = _core.VectorRuns(prepared.decode_at(positions))
            rows = np.arange(len(positions), dtype=np.uint32)
        shape = (*queries.shape[:-1], k)
        ids, distances = np.empty(shape, np.int64), np.empty(shape, np.float32)
        own = prepared.ids_at(positions)
        if not core.nearest(queries, rows, own, metric or self._metric, distances, ids, workers):
            return None
        return Hits(ids, distances, len(own) if queries.ndim == 1 else np.full(len(queries), len(own)))

    def _decoded_vectors(self, count: int) -> RunVectors | None:
        """Return what all codes decode to, or None where `count` of them are to be decoded for this search alone.

        All are decoded once searches wanted as many: that takes at most twice the time of the better choice.
        """
        if not self._prepared.keeps_decoded:
            return None
        self._decoded += count
        return self._prepared.decoded_vectors if self._decoded >= self._prepared.undecoded else None

    def _few(self, effort: Effort | None) -> int:
        """Return how many items that a filter leaves are compared here."""
        prepared = self._prepared
        if not (self._stored or prepared.keeps_decoded):
            return FEW_CODES
        return Budget(effort=effort).few_left(prepared)

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
        exact = vectors is not None or self._stored
        given = None if vectors is None else GivenVectors(vectors, self._features)
        done = prepared.scan_vectors(given, queries, metric, ids, distances, threads, exact=exact)
        if not done and not exact and self._codes is not None:
            done = self._codes.search(queries, metric, distances, ids, threads)
        return found if done else None

    @lazy_property
    def _codes(self) -> _core.CodeScan | None:
        """The lookup tables that score all codes, where they are of bit planes."""
        prepared = self._prepared
        if not isinstance(prepared.tables, ScalarTables) or self._searcher is None:
            return None
        return prepared.tables.scan(self._searcher, prepared.adc_codes, prepared.ids)


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
    """Return whether a `RowSearcher` can search a snapshot: with decoded codes or vectors, and all of it in memory."""
    if not isinstance(prepared.scorer, DecodedScorer) or not prepared.count:
        return False
    return not (prepared.by_prefix or prepared.in_files or (stored and prepared.vectors.in_files))


def code_decoder(scorer: ProjectedScorer, width: int) -> _core.CoefficientDecoder | None:
    """Return what the core decodes codes of `width` bits by, or None where only the coder can."""
    layout = scorer.coder.layout(width)
    if isinstance(layout, ScalarLayout):
        centroids = np.ascontiguousarray(layout.centroids, dtype=np.float32)
        return _core.CoefficientDecoder(centroids, layout.planes.allocation, layout.planes.levels, NO_CODEBOOKS)
    if isinstance(layout, CodebookLayout) and layout.exact:
        return _core.CoefficientDecoder(NO_CENTROIDS, NO_BITS, np.zeros((0, 0), dtype=np.float32), layout.codebooks)
    return None
