"""A snapshot as one scorer searches it.

Positions count through all runs: those that are searched by inverted lists, then those that are searched by graphs.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Ids
from nestcode.coders.base import CodebookLayout, Layout, ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import DamagedFile
from nestcode.fork import lazy_property
from nestcode.search.decoded import DecodedScorer, ProjectedScorer
from nestcode.search.planner import (
    NS_PER_RERANKED_ITEM,
    NS_PER_RERANKED_VALUE,
    NS_PER_SCANNED_CODE_BYTE,
    NS_PER_SCANNED_VALUE,
    Effort,
    Plan,
    Work,
    make_plan,
)
from nestcode.search.preparation import PreparationCache
from nestcode.search.read_ahead import ReadAhead
from nestcode.search.runs import MISSING, Positions, Snapshot
from nestcode.search.scorer import NO_CODEBOOKS, SearchMetric
from nestcode.search.vectors import RunVectors, VectorType

CACHED_PLANS = 256
EXPANDED_BYTES = 8 << 20  # of integers that are kept as float32, which one query scans in half the time
DECODED_BYTES = 64 << 20  # of codes that are kept as vectors: those of bit planes are scanned as they are
NO_CENTROIDS, NO_BITS = np.zeros((1, 0), dtype=np.float32), np.zeros(0, dtype=np.int32)
Scalar = TypeVar("Scalar", bound=np.generic)
Reranker = Literal["vectors", "codes", "caller"]  # what ranks candidates precisely; by the core, but for the last one


class PreparedSnapshot:
    """A snapshot as one scorer searches it.

    Args:
        snapshot: what is searched.
        cache: what the scorer prepared of it before.
        by_graph: whether runs with a graph are searched by it, not by inverted lists.

    """

    def __init__(self, snapshot: Snapshot, cache: PreparationCache, *, by_graph: bool = False) -> None:
        self.snapshot, self.scorer, self.cache, self.by_graph = snapshot, cache.scorer, cache, by_graph
        graphs = [run for run in snapshot.runs if by_graph and run.graph is not None]
        listed = [run for run in snapshot.runs if run not in graphs]
        self.runs = [*listed, *graphs]
        self._ahead, self.in_files = ReadAhead(), any(run.mapped.stays_in_file("codes") for run in self.runs)
        self._ids: list[NDArray[Any]] = [run.ids for run in self.runs]
        self.ends = np.cumsum([len(ids) for ids in self._ids])
        self.listed = sum(len(run.ids) - len(run.tombstones) for run in listed)
        self.list_bits = cache.scorer.list_bits(self.listed)
        self._prepared = [cache.prepare(run, self.list_bits) for run in listed]
        self._graphs = [cache.graph(run) for run in graphs]
        self.rows = [run.codes.packed for run in self.runs]  # their codes
        self._searchers: dict[tuple[SearchMetric, Reranker], _core.RowSearcher] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self.gathered: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # bytes that selections keep of vectors

    @lazy_property
    def lists(self) -> _core.Lists | None:
        """The inverted lists, if there are some; scans need none."""
        runs = zip(self.runs, self._prepared, strict=False)
        try:
            lists = [own.inverted_lists(run.mapped.guard("codes")) for run, own in runs]
        except ValueError as error:  # from the core: arrays do not fit each other
            raise DamagedFile(f"the files of a segment do not fit each other ({error}): restore a copy") from error
        return _core.Lists(lists) if lists else None

    @property
    def stored(self) -> int:
        """How many items there are, also those that may not be found."""
        return sum(map(len, self._ids))

    def plan(
        self,
        allowed: int,
        k: int,
        candidates: int | None,
        rerank: int | None,
        effort: Effort | None,
        vectors: VectorType | None,
        *,
        fetched: bool,
    ) -> Plan:
        """Return the plan of a search for the k nearest of `allowed` items, by vectors of a type or by codes."""
        key = allowed, k, type(k), candidates, type(candidates), rerank, type(rerank), effort, vectors, fetched
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= CACHED_PLANS:
                self._plans.clear()
            work = self._work(vectors)
            known = self._plans[key] = make_plan(work, allowed, k, candidates, rerank, effort, fetched=fetched)
        return known

    @lazy_property
    def vector_type(self) -> VectorType | None:
        """How the index stores vectors, if it does."""
        stored = next((run.vectors for run in self.runs if run.vectors is not None), None)
        return None if stored is None else stored.format.dtype

    def _work(self, vectors: VectorType | None) -> Work:
        """Return what items cost a search."""
        nodes = sum(len(ids) for ids in self._ids[len(self._prepared) :])
        if vectors is None and isinstance(self.scorer, DecodedScorer) and (self.keeps_decoded or not self._by_tables):
            vectors = "float32"  # which codes are decoded to
        scanned = NS_PER_SCANNED_CODE_BYTE * -(-self.snapshot.width // 8)
        if vectors is not None:
            scanned = NS_PER_SCANNED_VALUE[vectors] * self._features
        elif not isinstance(self.scorer, DecodedScorer):
            scanned = self.scorer.ns_per_estimated
        lists = 1 << self.list_bits if self._prepared else 0
        values = self._features if isinstance(self.scorer, DecodedScorer) else 0
        reranked = NS_PER_RERANKED_ITEM + NS_PER_RERANKED_VALUE * values
        return Work(self.stored - nodes, nodes, self.by_graph, lists, self.scorer.ns_per_estimated, scanned, reranked)

    @property
    def _by_tables(self) -> bool:
        """Whether codes are scanned by tables of levels, or of codebook entries."""
        layout = self._layout
        return isinstance(layout, ScalarLayout) or (isinstance(layout, CodebookLayout) and layout.exact)

    def row_searcher(self, metric: SearchMetric, reranker: Reranker) -> _core.RowSearcher:
        """Return what searches lists and graphs by rows, and reranks where the core can."""
        known = self._searchers.get((metric, reranker))
        if known is None:
            known = self._searchers[metric, reranker] = self._make_searcher(metric, reranker)
        return known

    def _make_searcher(self, metric: SearchMetric, reranker: Reranker) -> _core.RowSearcher:
        assert isinstance(self.scorer, DecodedScorer)
        scorer = self.scorer.projected
        assert scorer is not None
        by_vectors = reranker == "vectors"
        chosen = [one.by_vectors if by_vectors and one.by_vectors else one.by_codes for one in self._graphs]
        bits = self.list_bits if self._prepared else None
        return _core.RowSearcher(
            scorer.row_projection(metric, bits, whole=reranker == "codes"),
            None if bits is None else scorer.list_scoring(metric, bits),
            self.lists,
            [graph.core for graph in chosen],
            self._ids,
            [run.mapped.guard("ids") for run in self.runs],
            self.vectors.core if by_vectors else None,
            self._decoder if reranker == "codes" else None,
            self.rows,
            [run.mapped.guard("codes") for run in self.runs],
        )

    def reranker(self, *, by_vectors: bool, given: bool) -> Reranker:
        """Return what reranks candidates: by vectors, given ones or those that the index stores, or by whole codes."""
        if given or self.in_files:
            return "caller"
        if by_vectors:
            return "caller" if self.vectors.in_files else "vectors"
        return "caller" if self._decoder is None else "codes"

    @lazy_property
    def _decoder(self) -> _core.CoefficientDecoder | None:
        """What the core decodes codes by, or None where only the coder can."""
        layout = self._layout if isinstance(self.scorer, ProjectedScorer) else None
        if isinstance(layout, ScalarLayout):
            centroids = np.ascontiguousarray(layout.centroids, dtype=np.float32)
            return _core.CoefficientDecoder(centroids, layout.planes.allocation, layout.planes.levels, NO_CODEBOOKS)
        if isinstance(layout, CodebookLayout) and layout.exact:
            return _core.CoefficientDecoder(NO_CENTROIDS, NO_BITS, np.zeros((0, 0), dtype=np.float32), layout.codebooks)
        return None

    def check(self) -> None:
        """Raise if a checksum failed in what was read so far."""
        for run in self.runs:
            run.mapped.check()

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids of items by their positions in all runs together, -1 for missing ones."""
        flat = positions.reshape(-1)
        self._touch_rows("ids", flat)
        taken = self._take(self._ids, flat)
        found: Ids = taken.astype(np.int64, copy=False).reshape(positions.shape)
        found[positions == MISSING] = -1
        return found

    def codes_at(self, positions: Positions) -> Codes:
        """Return the codes of items by their positions in all runs together; any code for missing ones."""
        flat = positions.reshape(-1)
        if not self.in_files:
            self._touch_rows("codes", flat)
            return Codes.unchecked(self._take(self.rows, flat), self.snapshot.width)
        with self._ahead.reading(lambda: self._request(np.unique(flat[flat != MISSING]).astype(np.int64))):
            self._touch_rows("codes", flat)
            return Codes.unchecked(self._take(self.rows, flat), self.snapshot.width)

    def _touch_rows(self, name: Literal["codes", "ids"], positions: Positions) -> None:
        """Verify the checksums of codes or ids by their positions in all runs together."""
        start = 0
        for run, end in zip(self.runs, self.ends.tolist(), strict=True):
            own = positions - np.uint32(start) if start else positions  # those of other runs lie beyond its rows
            run.mapped.touch_rows(name, own)
            start = end

    def _request(self, positions: Ids) -> bool:
        """Ask the system for codes in files, and return whether some were not in memory."""
        missing = False
        for run, end in zip(self.runs, self.ends, strict=True):
            start = end - len(run.ids)
            missing |= run.mapped.read_ahead("codes", positions[(positions >= start) & (positions < end)] - start)
        return missing

    @lazy_property
    def vectors(self) -> RunVectors:
        """The vectors that the index stores."""
        stored = [run.vectors for run in self.runs if run.vectors is not None]
        return RunVectors(stored, [run.mapped for run in self.runs])

    @lazy_property
    def scanned_vectors(self) -> RunVectors:
        """The same as scans read them: few integers are compared in less time as float32."""
        if not self.vectors.integers or self.vectors.in_files or self.stored * self._features * 4 > EXPANDED_BYTES:
            return self.vectors
        return self._expand(stored=True)

    @lazy_property
    def decoded_vectors(self) -> RunVectors | None:
        """What few codes decode to, but for those of bit planes."""
        return self._expand(stored=False) if self.keeps_decoded else None

    @lazy_property
    def code_scan(self) -> _core.CodeScan | None:
        """What scans codes by their positions in all runs together, or None where only their coder decodes them."""
        how = self.cache.scanned_format(self.snapshot.width)
        return None if how is None else how.scan([self.cache.scanned(run, how) for run in self.runs])

    @property
    def keeps_decoded(self) -> bool:
        """Whether codes are so few that they are kept as vectors, once all were compared."""
        if not isinstance(self.scorer, DecodedScorer) or self.in_files or isinstance(self._layout, ScalarLayout):
            return False
        return self.stored * self._features * 4 <= DECODED_BYTES

    @property
    def _features(self) -> int:
        assert isinstance(self.scorer, DecodedScorer)
        return self.scorer.coder.n_features_in_

    @lazy_property
    def _layout(self) -> Layout | None:
        return self.scorer.coder.layout(self.snapshot.width) if isinstance(self.scorer, DecodedScorer) else None

    def _expand(self, *, stored: bool) -> RunVectors:
        return RunVectors([self.cache.expand(run, stored=stored) for run in self.runs])

    def _take(self, arrays: Sequence[NDArray[Scalar]], positions: Positions) -> NDArray[Scalar]:
        """Return rows of the runs' arrays by positions in all runs; the last row for positions beyond."""
        if len(arrays) == 1:
            return arrays[0].take(positions, axis=0, mode="clip")
        positions = np.minimum(positions, self.ends[-1] - 1).astype(np.uint32)
        out = np.empty((len(positions), *arrays[0].shape[1:]), dtype=np.result_type(*arrays))
        owner = np.searchsorted(self.ends, positions, side="right")
        for r, array in enumerate(arrays):
            mine = owner == r
            out[mine] = array[positions[mine] - (self.ends[r] - len(array))]
        return out
