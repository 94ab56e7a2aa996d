"""A snapshot as one scorer searches it.

Positions count through all runs: first the runs that are searched by inverted lists, then the runs with graphs.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Ids
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search import planner
from nestcode.search.planner import Effort, Plan, Work, make_plan
from nestcode.search.preparation import PreparationCache
from nestcode.search.request import Request
from nestcode.search.runs import MISSING, Positions, Snapshot
from nestcode.search.scorer import SearchMetric
from nestcode.search.vectors import RunVectors, VectorType

CACHED_PLANS = 256
Scalar = TypeVar("Scalar", bound=np.generic)
# What ranks candidates precisely: the core by vectors or codes, or the caller; distances between codes are precise.
Reranker = Literal["vectors", "codes", "caller", "estimates"]


class PreparedSnapshot:
    """A snapshot as one scorer searches it.

    Args:
        snapshot: the snapshot.
        cache: the scorer's prepared arrays.
        by_graph: whether runs with a graph are searched by it, not by inverted lists.

    """

    def __init__(self, snapshot: Snapshot, cache: PreparationCache, *, by_graph: bool = False) -> None:
        self.snapshot, self.scorer, self.cache, self.by_graph = snapshot, cache.scorer, cache, by_graph
        self._graphs = [run for run in snapshot.runs if by_graph and run.graph is not None and run.graph.walked]
        self._listed = [run for run in snapshot.runs if run not in self._graphs]
        self.runs = [*self._listed, *self._graphs]
        self._ids: list[NDArray[Any]] = [run.ids for run in self.runs]
        self.ends = np.cumsum([len(ids) for ids in self._ids])
        self.listed = sum(len(run.ids) - len(run.tombstones) for run in self._listed)
        self.list_bits = cache.scorer.list_bits(self.listed)
        self.rows = [run.codes.packed for run in self.runs]  # their codes
        self._searchers: dict[tuple[SearchMetric, Reranker], _core.RowSearcher] = {}
        self._scanned: dict[SearchMetric, _core.ScannedRuns] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self.gathered: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # bytes that selections keep of vectors

    # plan

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
        queries: int,
    ) -> Plan:
        """Return the plan of a search for the k nearest of `allowed` items, by vectors of a type or by codes."""
        queries = min(queries, planner.QUERIES_TOGETHER)
        key = allowed, k, candidates, rerank, effort, vectors, fetched, queries
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= CACHED_PLANS:
                self._plans.clear()
            work = self._work(vectors)
            known = self._plans[key] = make_plan(
                work, allowed, k, candidates, rerank, effort, fetched=fetched, queries=queries
            )
        return known

    def _work(self, vectors: VectorType | None) -> Work:
        """Return the costs of an item in a search."""
        scorer, nodes = self.scorer, sum(len(run.ids) for run in self._graphs)
        reranked = planner.NS_PER_RERANKED_ITEM + planner.NS_PER_RERANKED_VALUE * scorer.features
        scanned = planner.NS_PER_SCANNED_CODE_BYTE * -(-self.snapshot.width // 8)
        if vectors is not None:
            scanned = planner.NS_PER_SCANNED_VALUE[vectors] * scorer.features
        elif not scorer.features:
            scanned = scorer.ns_per_estimated
        else:
            reranked += scorer.ns_per_decoded
            if self.keeps_decoded or scorer.decodable is None:
                scanned = planner.NS_PER_SCANNED_VALUE["float32"] * scorer.features
            if not self.keeps_decoded:
                scanned += scorer.ns_per_decoded
        lists = 1 << self.list_bits if self._listed else 0
        return Work(self.stored - nodes, nodes, self.by_graph, lists, scorer.ns_per_estimated, scanned, reranked)

    @property
    def stored(self) -> int:
        """The number of items, including deleted items."""
        return sum(map(len, self._ids))

    @lazy_property
    def vector_type(self) -> VectorType | None:
        """The type of the stored vectors, if any."""
        stored = next((run.vectors for run in self.runs if run.vectors is not None), None)
        return None if stored is None else stored.format.dtype

    @property
    def keeps_decoded(self) -> bool:
        """Whether the first scan decodes all codes and keeps the vectors: they take little memory."""
        small = self.stored * self.scorer.features * 4 <= planner.DECODED_BYTES
        return self.scorer.keeps_decoded and small and not any(run.mapped.stays_in_file("codes") for run in self.runs)

    # what lists and walks read

    @lazy_property
    def lists(self) -> _core.Lists | None:
        """The inverted lists, if any; scans need none."""
        lists = [self.cache.lists(run, self.list_bits).core for run in self._listed]
        return _core.Lists(lists) if lists else None

    def row_searcher(self, metric: SearchMetric, reranker: Reranker) -> _core.RowSearcher:
        """Return the core's searcher of lists and graphs, which reranks if it can."""
        known = self._searchers.get((metric, reranker))
        if known is None:
            known = self._searchers[metric, reranker] = self._make_searcher(metric, reranker)
        return known

    def _make_searcher(self, metric: SearchMetric, reranker: Reranker) -> _core.RowSearcher:
        scorer, decodable = self.scorer.projected, self.scorer.decodable
        ids, codes = ([run.mapped.guard(name) for run in self.runs] for name in ("ids", "codes"))
        if scorer is None:
            return _core.RowSearcher(None, None, self.lists, [], self._ids, ids, None, None, self.rows, codes)
        graphs = [self.cache.graph(run) for run in self._graphs]
        by_vectors = reranker == "vectors"
        bits = self.list_bits if self._listed else None
        return _core.RowSearcher(
            scorer.row_projection(metric, bits, whole=reranker == "codes"),
            None if bits is None else scorer.list_scoring(metric, bits),
            self.lists,
            [one.by_vectors if by_vectors else one.by_codes for one in graphs],
            self._ids,
            ids,
            self._searched_vectors if by_vectors else None,
            decodable.decoder if reranker == "codes" and decodable is not None else None,
            self.rows,
            codes,
        )

    @lazy_property
    def _searched_vectors(self) -> _core.VectorRuns:
        """The vectors of all runs as lists and walks read them: some lie in the nodes of graphs."""
        listed = [run.vectors.core for run in self._listed if run.vectors is not None]
        walked = [self.cache.graph(run).vectors for run in self._graphs]
        return _core.VectorRuns([*listed, *(vectors for vectors in walked if vectors is not None)])

    def reranker(self, request: Request) -> Reranker:
        """Return the reranker of a request."""
        if request.rank == "exact":
            in_files = any(run.vectors is not None and run.vectors.read_ahead for run in self._listed)
            return "vectors" if request.vectors is None and not in_files else "caller"
        if request.by_codes:
            return "estimates"
        return "caller" if self.scorer.decodable is None else "codes"

    def compares_rows(self, request: Request) -> bool:
        """Return whether lists and walks compare the rows of a request, and not its codes."""
        return not request.by_codes and self.scorer.projected is not None

    # what scans read

    @lazy_property
    def vectors(self) -> RunVectors:
        """The vectors that the index stores."""
        stored = [run.vectors for run in self.runs if run.vectors is not None]
        return RunVectors(stored, [run.mapped for run in self.runs])

    @lazy_property
    def scanned_vectors(self) -> RunVectors:
        """The stored vectors as scans read them: int8 as float32, where that takes little memory."""
        expanded = self.stored * self.scorer.features * 4
        if not self.vectors.integers or self.vectors.in_files or expanded > planner.EXPANDED_BYTES:
            return self.vectors
        return RunVectors([self.cache.stored_as_floats(run) for run in self.runs])

    @lazy_property
    def decoded_vectors(self) -> RunVectors | None:
        """The decoded codes, where they are kept."""
        return RunVectors([self.cache.decoded(run) for run in self.runs]) if self.keeps_decoded else None

    def scanned_codes(self, metric: SearchMetric) -> _core.ScannedRuns | None:
        """Return the codes of all runs as scans read them, or None if only their coder decodes them."""
        how = self.scorer.decodable
        if how is None:
            return None
        if metric not in self._scanned:
            codes = [self.cache.scanned(run, how, metric) for run in self.runs]
            projection = how.row_projection(metric, None, whole=True)
            self._scanned[metric] = _core.ScannedRuns(projection, how.code_format(metric), codes)
        return self._scanned[metric]

    # items by position

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids of items by their positions in all runs together, -1 for missing ones."""
        found: Ids = self._rows_at("ids", self._ids, positions).astype(np.int64, copy=False).reshape(positions.shape)
        found[positions == MISSING] = -1
        return found

    def codes_at(self, positions: Positions) -> Codes:
        """Return the codes of items by their positions in all runs together; any code for missing ones."""
        return Codes.unchecked(self._rows_at("codes", self.rows, positions), self.snapshot.width)

    def _rows_at(
        self, name: Literal["codes", "ids"], arrays: Sequence[NDArray[Scalar]], positions: Positions
    ) -> NDArray[Scalar]:
        """Return verified rows of the runs' arrays, (positions, …); the last row for positions beyond."""
        positions, start = positions.reshape(-1), 0
        for run, end in zip(self.runs, self.ends.tolist(), strict=True):
            run.mapped.touch_rows(name, positions - np.uint32(start))  # those of other runs lie beyond its rows
            start = end
        if len(arrays) == 1:
            return arrays[0].take(positions, axis=0, mode="clip")
        positions = np.minimum(positions, self.ends[-1] - 1).astype(np.uint32)
        out = np.empty((len(positions), *arrays[0].shape[1:]), dtype=np.result_type(*arrays))
        owner = np.searchsorted(self.ends, positions, side="right")
        for r, array in enumerate(arrays):
            mine = owner == r
            out[mine] = array[positions[mine] - (self.ends[r] - len(array))]
        return out

    def check(self) -> None:
        """Raise if a checksum failed in the arrays that were read so far."""
        for run in self.runs:
            run.mapped.check()
            if run.graph is not None:
                run.graph.mapped.check()
