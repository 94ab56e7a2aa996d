"""What searches prepare of sorted runs, kept as long as the runs live."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from nestcode import _core
from nestcode.search.decoded import DecodedScorer
from nestcode.search.graph import Graph, Items, Navigator, make_records
from nestcode.search.runs import Positions, SortedRun
from nestcode.search.scanned_codes import ScannedCodes, ScannedFormat, scanned_format
from nestcode.search.scorer import NO_LAYOUT, PreparedCodes, ScanLayout, Scorer
from nestcode.search.vectors import BESIDE_CODES, NO_SCALES, RunVectors, StoredVectors


@dataclass(frozen=True)
class PreparedGraph:
    """The graph of a run as searches read it."""

    records: _core.GraphRecords
    by_codes: Graph  # ranks by estimated distance
    by_vectors: Graph | None  # ranks by the vectors that the index stores, if it does as floats
    nbytes: int  # of what was prepared


class PreparationCache:
    """The prepared codes of runs, for one scorer, as long as the runs live.

    Args:
        scorer: what they are prepared for.

    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._prepared: WeakKeyDictionary[object, tuple[int, PreparedCodes]] = WeakKeyDictionary()
        self._layouts: WeakKeyDictionary[object, ScanLayout] = WeakKeyDictionary()  # those that no file holds
        self._scanned: WeakKeyDictionary[object, ScannedCodes] = WeakKeyDictionary()
        # Vectors as float32, by whether the index stores them or codes decode to them.
        self._expanded: dict[bool, WeakKeyDictionary[object, StoredVectors]] = {
            stored: WeakKeyDictionary() for stored in (True, False)
        }
        self._graphs: WeakKeyDictionary[object, PreparedGraph] = WeakKeyDictionary()
        self._navigator: Navigator | None = None  # of the graphs
        self._zeros: WeakKeyDictionary[object, Positions] = WeakKeyDictionary()
        self._formats: dict[int, ScannedFormat | None] = {}  # of scanned codes, by width

    def prepare(self, run: SortedRun, bits: int) -> PreparedCodes:
        """Return the prepared codes of a run whose inverted lists are named by `bits` bits."""
        known = self._prepared.get(run.owner)
        if known is None or known[0] != bits:
            prepared = self.scorer.prepare(run.codes, run.list_starts(bits), self._layout(run))
            known = self._prepared[run.owner] = bits, prepared
        return known[1]

    def _layout(self, run: SortedRun) -> ScanLayout:
        """Return the layout that the index stores, or compute it: of a buffer, or files of early versions."""
        wanted = self.scorer.layout_format
        if run.layout.format == wanted:
            return run.layout
        known = self._layouts.get(run.owner)
        if known is None and wanted:
            run.mapped.touch(but=BESIDE_CODES)
            known = self._layouts[run.owner] = self.scorer.lay_out(run.codes)
            run.mapped.release()
        return known or NO_LAYOUT

    def graph(self, run: SortedRun) -> PreparedGraph:
        """Return the graph of a run as searches read it."""
        assert run.graph is not None
        assert isinstance(self.scorer, DecodedScorer)
        known = self._graphs.get(run.graph)
        if known is None:
            run.graph.touch()
            if self._navigator is None:
                self._navigator = Navigator(self.scorer.coder, width=run.codes.width)
            items = stored = run.graph.items if run.graph.layout == self._navigator.layout else None
            if items is None:
                run.mapped.touch()
                items = self._navigator.encode(Items(self.scorer.coder, run.codes, run.vectors), run.codes)
            floats = run.vectors if run.vectors is not None and run.vectors.rows.dtype.kind == "f" else None
            records = make_records(self._navigator, items, run.graph.neighbors, floats)
            by_codes = Graph(self._navigator, records)
            by_vectors = None if floats is None else Graph(self._navigator, records, floats.rows)
            nbytes = records.nbytes + (items.nbytes if stored is None else 0)
            known = self._graphs[run.graph] = PreparedGraph(records, by_codes, by_vectors, nbytes)
        return known

    def scanned_format(self, width: int) -> ScannedFormat | None:
        """Return how the core scans codes of `width` bits, or None where only their coder decodes them."""
        if width not in self._formats:
            self._formats[width] = scanned_format(self.scorer, width)
        return self._formats[width]

    def scanned(self, run: SortedRun, how: ScannedFormat) -> ScannedCodes:
        """Return the codes of a run as scans read them."""
        known = self._scanned.get(run.owner)
        if known is None or len(known) != len(run.codes):
            run.mapped.touch(but=BESIDE_CODES)
            known = self._scanned[run.owner] = how.prepare(run.codes)
        return known

    def expand(self, run: SortedRun, *, stored: bool) -> StoredVectors:
        """Return the vectors of a run as float32: those that the index stores, or what its codes decode to."""
        known = self._expanded[stored].get(run.owner)
        if known is None or len(known) != len(run.codes):
            if stored:
                assert run.vectors is not None
                rows = RunVectors([run.vectors], [run.mapped]).rows(np.arange(len(run.codes)))
            else:
                assert isinstance(self.scorer, DecodedScorer)
                run.mapped.touch(but=BESIDE_CODES)
                rows = np.ascontiguousarray(self.scorer.coder.decode(run.codes), dtype=np.float32)
            known = self._expanded[stored][run.owner] = StoredVectors(rows, NO_SCALES)
        return known

    def zeros(self, run: SortedRun) -> Positions:
        """Return the positions of zero vectors in a run, by their codes, ascending."""
        known = self._zeros.get(run.owner)
        if known is None:
            assert isinstance(self.scorer, DecodedScorer)
            codes = run.codes

            def row(position: int) -> bytes:
                run.mapped.touch_rows("codes", np.array([position], dtype=np.uint32))
                return bytes(codes.packed[position])

            places, found = range(len(codes)), [np.empty(0, dtype=np.uint32)]
            for zero in map(bytes, self.scorer.zero_codes(codes.width).packed):
                first, last = bisect_left(places, zero, key=row), bisect_right(places, zero, key=row)
                found.append(np.arange(first, last, dtype=np.uint32))
            known = self._zeros[run.owner] = np.concatenate(found)
        return known

    @property
    def nbytes(self) -> int:
        """Bytes of what was prepared."""
        sizes = [codes.nbytes for _, codes in list(self._prepared.values())]
        sizes += [layout.nbytes for layout in list(self._layouts.values())]
        sizes += [one.nbytes for one in list(self._scanned.values())]
        sizes += [one.nbytes for one in list(self._graphs.values())]
        sizes += [vectors.nbytes for runs in self._expanded.values() for vectors in list(runs.values())]
        return sum(sizes)
