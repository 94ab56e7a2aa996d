"""The arrays that searches prepare of sorted runs, by the scorer of their codes, kept as long as the runs live."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.coders import Coder
from nestcode.coders.base import BaseLayout, CodebookLayout, ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import DamagedFile
from nestcode.search.adc import AdcScorer
from nestcode.search.decoded import DecodedScorer
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.graph import Items, NavigatingCodes, Navigator, make_records, navigating_bits
from nestcode.search.hamming import HammingScorer
from nestcode.search.nodes import records_in_file
from nestcode.search.projected import ProjectedScorer
from nestcode.search.runs import Positions, SortedRun
from nestcode.search.scorer import NO_LAYOUT, ScanLayout, Scorer, SearchMetric
from nestcode.search.vectors import BESIDE_CODES, NO_SCALES, RunVectors, StoredVectors

Part = TypeVar("Part")


def scorer_for(coder: Coder | None, width: int) -> Scorer:
    """Return the scorer for the first `width` bits of a coder's codes, by their layout, or of bare codes."""
    layout = None if coder is None else coder.layout(width)
    if coder is None:
        return HammingScorer(width)
    if isinstance(layout, ScalarLayout):
        return FastScanScorer(coder, layout, width)
    if isinstance(layout, CodebookLayout):
        return AdcScorer(coder, layout, width)
    return DecodedScorer(coder, scorer_for(layout.base if isinstance(layout, BaseLayout) else None, width))


class StoredLayouts:
    """Lays out codes for the searches of an index, which stores the layouts.

    Snapshots refer to it, and unlike a `Searcher` it refers to no snapshot: so an unused index is freed at once, with
    its open files.
    """

    def __init__(self, coder: Coder | None) -> None:
        self._coder = coder
        self._latest: Scorer | None = None

    def __call__(self, codes: Codes) -> ScanLayout:
        """Return the layout that searches by distance scan."""
        if self._latest is None or self._latest.width != codes.width:
            self._latest = scorer_for(self._coder, codes.width)
        return self._latest.estimator.lay_out(codes)


@dataclass(frozen=True)
class PreparedLists:
    """The inverted lists of a run as searches read them."""

    core: _core.InvertedLists
    nbytes: int  # of what was computed, without the codes and the layout


@dataclass(frozen=True)
class PreparedGraph:
    """The graph of a run as searches read it."""

    records: _core.GraphRecords
    by_codes: _core.Graph  # ranks by estimated distance
    by_vectors: _core.Graph  # ranks by the vectors that the index stores, if it does
    vectors: _core.VectorRows | None  # these, where walks read them
    nbytes: int  # of what was prepared


class PreparationCache:
    """The arrays that searches prepared of runs, for one scorer, as long as the runs live.

    Args:
        scorer: the scorer.

    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._navigators: dict[int, Navigator] = {}  # by their bits
        self._parts: WeakKeyDictionary[object, dict[str, tuple[object, Any]]] = WeakKeyDictionary()  # with versions

    def _part(self, owner: object, name: str, make: Callable[[], Part], version: object = None) -> Part:
        """Return a prepared part, or prepare it."""
        parts = self._parts.setdefault(owner, {})
        known = parts.get(name)
        if known is None or known[0] != version:
            known = parts[name] = version, make()
        part: Part = known[1]
        return part

    @property
    def nbytes(self) -> int:
        """Bytes of the prepared arrays."""
        return sum(part.nbytes for parts in list(self._parts.values()) for _, part in list(parts.values()))

    def lists(self, run: SortedRun, bits: int) -> PreparedLists:
        """Return the inverted lists of a run, with names of `bits` bits."""

        def make() -> PreparedLists:
            layout, starts = self._layout(run), run.list_starts(bits)
            blocks, guards = self.scorer.estimator.block_starts(starts), layout.guards
            try:
                core = _core.InvertedLists(
                    run.codes.packed,
                    starts,
                    layout.blocks,
                    blocks,
                    layout.biases,
                    self.scorer.estimator.bias_unit,
                    layout.norms,
                    run.mapped.guard("codes"),
                    guards.get("blocks"),
                    guards.get("biases"),
                    guards.get("norms"),
                )
            except ValueError as error:  # arrays do not fit each other
                raise DamagedFile(f"the files of a segment do not fit each other ({error}): restore a copy") from error
            return PreparedLists(core, starts.nbytes + blocks.nbytes)

        return self._part(run.owner, "lists", make, bits)

    def _layout(self, run: SortedRun) -> ScanLayout:
        """Return the layout that the index stores, or compute it: of a buffer, or files of early versions."""
        estimator = self.scorer.estimator
        if not estimator.layout_format:
            return NO_LAYOUT
        if run.layout.format == estimator.layout_format:
            return run.layout

        def make() -> ScanLayout:
            run.mapped.touch(but=BESIDE_CODES)
            layout = estimator.lay_out(run.codes)
            run.mapped.release()
            return layout

        return self._part(run.owner, "layout", make)

    def graph(self, run: SortedRun) -> PreparedGraph:
        """Return the graph of a run as searches read it."""
        graph = run.graph
        assert graph is not None

        def make() -> PreparedGraph:
            if graph.nodes is None:
                graph.touch()
            navigator, coder = self.navigator(graph.items, ranked=run.vectors is not None), self.scorer.coder
            known = graph.layout == navigator.layout
            items = stored = graph.items if known else None
            if items is None:
                run.mapped.touch()
                items = navigator.encode(Items(coder, run.codes, run.vectors), run.codes)
            records = graph.records if known else None
            vectors = None if run.vectors is None else run.vectors.core
            if graph.nodes is not None and run.vectors is not None:
                try:
                    nodes = graph.nodes.core(run.vectors)
                except ValueError as error:
                    raise DamagedFile(
                        f"the files of a graph do not fit each other ({error}): restore a copy"
                    ) from error
                vectors = _core.VectorRows(nodes, run.vectors.rows, run.vectors.scales, run.vectors.scales_guard)
                records = records_in_file(items, graph.nodes.slots, nodes, vectors)
            elif records is None:
                records = make_records(navigator, items, graph.neighbors, run.vectors)
            by_codes = by_vectors = _core.Graph(records, navigator.core, None)
            if vectors is not None:
                by_vectors = _core.Graph(records, navigator.core, vectors)
            nbytes = records.nbytes + (items.nbytes if stored is None else 0)
            return PreparedGraph(records, by_codes, by_vectors, vectors, nbytes)

        return self._part(graph, "graph", make)

    def navigator(self, stored: NavigatingCodes | None = None, *, ranked: bool) -> Navigator:
        """Return the navigator of a graph, with the number of bits that is stored, if any."""
        width = self.scorer.width
        bits = navigating_bits(width, ranked=ranked) if stored is None else 8 * stored.grouped.shape[1]
        if bits not in self._navigators:
            self._navigators[bits] = Navigator(self.scorer.coder, bits, width=width)
        return self._navigators[bits]

    def scanned(self, run: SortedRun, scorer: ProjectedScorer, metric: SearchMetric) -> _core.ScannedCodes:
        """Return the codes of a run as scans read them; this decodes all of them once, for their norms."""
        how = scorer.code_format(metric)

        def make() -> _core.ScannedCodes:
            run.mapped.touch(but=BESIDE_CODES)
            return _core.ScannedCodes(how, *scorer.scanned_codes(run.codes))

        return self._part(run.owner, f"scanned {metric == 'l2'}", make)

    def stored_as_floats(self, run: SortedRun) -> StoredVectors:
        """Return the vectors that the index stores of a run as float32."""
        stored = run.vectors
        assert stored is not None
        every = np.arange(len(run.codes))
        return self._part(run.owner, "stored", lambda: _floats(RunVectors([stored], [run.mapped]).rows(every)))

    def decoded(self, run: SortedRun) -> StoredVectors:
        """Return the decoded codes of a run."""

        def make() -> StoredVectors:
            run.mapped.touch(but=BESIDE_CODES)
            return _floats(self.scorer.coder.decode(run.codes))

        return self._part(run.owner, "decoded", make)

    def zeros(self, run: SortedRun) -> Positions:
        """Return the positions of zero vectors in a run, by their codes, ascending."""
        codes = run.codes

        def row(position: int) -> bytes:
            run.mapped.touch_rows("codes", np.array([position], dtype=np.uint32))
            return bytes(codes.packed[position])

        def make() -> Positions:
            places, found = range(len(codes)), [np.empty(0, dtype=np.uint32)]
            for zero in map(bytes, self.scorer.zero_codes.packed):
                first, last = bisect_left(places, zero, key=row), bisect_right(places, zero, key=row)
                found.append(np.arange(first, last, dtype=np.uint32))
            return np.concatenate(found)

        return self._part(run.owner, "zeros", make)


def _floats(rows: NDArray[Any]) -> StoredVectors:
    return StoredVectors(np.ascontiguousarray(rows, dtype=np.float32), NO_SCALES)
