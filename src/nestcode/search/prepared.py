"""What a search reads: the sorted runs of an index at one moment, prepared for a scorer.

An index is searched through two small protocols. A `SortedRun` is codes in lexicographic order with their ids, some of
them deleted: a segment, or the write buffer. A `Snapshot` is the runs of an index at one moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids, StoredIds
from nestcode.coders.base import CodebookLayout, Layout, ScalarLayout
from nestcode.codes import Codes
from nestcode.errors import DamagedFile
from nestcode.fork import lazy_property
from nestcode.search.decoded import DecodedScorer
from nestcode.search.graph import (
    NOTHING_SKIPPED,
    UNBOUNDED,
    Graph,
    Items,
    NavigatingCodes,
    Navigator,
    bitmap,
    make_records,
)
from nestcode.search.product_tables import AdcCodes, ProductTables, product_tables
from nestcode.search.read_ahead import ReadAhead
from nestcode.search.scorer import NO_LAYOUT, PreparedCodes, QueryBatch, ScanLayout, Scorer, SearchMetric
from nestcode.search.vectors import NO_SCALES, VECTOR_ARRAYS, GivenVectors, RunVectors, StoredVectors
from nestcode.storage import MappedArrays

Positions = NDArray[np.uint32]
# A filter excludes a query's surroundings where lists have so many times the items, or a walk visits so many times the
# nodes, that they would among items allowed at random. All allowed items are then compared, so lists take more to show
# it where these are many times the candidates: categories that a query is not of are common, and estimates do there.
EXCLUDED_LISTS, EXCLUDED_DEAR, EXCLUDED_NODES = 1.1, 1.5, 2
DEAR = 2.5
DEVIATIONS = 3  # more, in standard deviations of a count: few candidates would exceed the factor by chance
SCANNED = 8192  # items that are all scanned as long as they lack their graph
FEW_ITEMS = 4096  # are all compared by default, also those that a filter leaves: inverted lists save little
EXPANDED = 8 << 20  # bytes of items that are kept as vectors: of integers, and of codes of bit planes
DECODED = 64 << 20  # the same of other codes, which take microseconds to decode
MISSING = np.iinfo(np.uint32).max  # the position of a missing hit
Scalar = TypeVar("Scalar", bound=np.generic)


class NeighborGraph(Protocol):
    """The graph of a run, whose items are its nodes."""

    @property
    def neighbors(self) -> NDArray[np.uint32]:
        """The positions of each item's neighbors, (items, degree)."""

    @property
    def items(self) -> NavigatingCodes | None:
        """What a navigator made of the items, where it is stored."""

    @property
    def layout(self) -> str:
        """The name of the layout of what is stored of the items."""

    def touch(self) -> None:
        """Verify the checksums of everything, before everything is read."""


class SortedRun(Protocol):
    """Codes in lexicographic order with their ids."""

    @property
    def codes(self) -> Codes:
        """All codes, deleted ones too."""

    @property
    def ids(self) -> StoredIds:
        """The ids of the codes."""

    @property
    def tombstones(self) -> Positions:
        """The positions of deleted items, ascending."""

    @property
    def vectors(self) -> StoredVectors | None:
        """The vectors of the codes, where the index stores them."""

    @property
    def layout(self) -> ScanLayout:
        """What a search scans of the codes, where the index stores it."""

    @property
    def graph(self) -> "NeighborGraph | None":
        """The graph of the run, if it has one."""

    @property
    def owner(self) -> object:
        """The object that lives as long as these codes do: what was prepared of them is cached with it."""

    def list_starts(self, bits: int) -> Positions:
        """Return where the codes of each prefix of `bits` bits begin, and the end."""

    def find(self, ids: Ids) -> Ids:
        """Return the position of each id, or -1 where it is deleted or missing."""

    @property
    def mapped(self) -> MappedArrays:
        """What is mapped from files: "codes", "ids" and so on; none of a run in memory."""


Filter = Callable[[SortedRun], Positions]  # the positions in a run that a search may find, ascending


class Snapshot(Protocol):
    """The sorted runs of an index at one moment; it never changes."""

    @property
    def width(self) -> int:
        """Bits of a code."""

    @property
    def runs(self) -> Sequence[SortedRun]:
        """All runs."""

    def __len__(self) -> int: ...


class Estimates(NamedTuple):
    """The items of least estimated distance of some queries."""

    distances: Floats  # (queries, best)
    positions: Positions  # (queries, best), in all runs together
    compared: Ids  # (queries,): items, or visited nodes
    excluded: NDArray[np.bool_]  # (queries,): whether a filter excludes the query's surroundings, so that few are near


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
        prefix: how many leading bits of codes it estimates by; None is all.

    """

    def __init__(self, scorer: Scorer, prefix: int | None = None) -> None:
        self.scorer, self.prefix = scorer, prefix
        self._prepared: WeakKeyDictionary[object, tuple[int, PreparedCodes]] = WeakKeyDictionary()
        self._layouts: WeakKeyDictionary[object, ScanLayout] = WeakKeyDictionary()  # those that no file holds
        self._adc: WeakKeyDictionary[object, AdcCodes] = WeakKeyDictionary()
        # Vectors as float32, by whether the index stores them or codes decode to them.
        self._expanded: dict[bool, WeakKeyDictionary[object, StoredVectors]] = {
            stored: WeakKeyDictionary() for stored in (True, False)
        }
        self._graphs: WeakKeyDictionary[object, PreparedGraph] = WeakKeyDictionary()
        self._navigator: Navigator | None = None  # of the graphs
        self._tables: dict[int, ProductTables | None] = {}  # by width

    def prepare(self, run: SortedRun, bits: int) -> PreparedCodes:
        """Return the prepared codes of a run whose inverted lists are named by `bits` bits."""
        known = self._prepared.get(run.owner)
        if known is None or known[0] != bits:
            codes = run.codes
            if self.prefix is not None:
                codes = codes.prefix(self.prefix)
                if self.scorer.scans_codes:
                    run.mapped.touch(but=VECTOR_ARRAYS)
                    codes = Codes.unchecked(np.ascontiguousarray(codes.packed), codes.width)
            prepared = self.scorer.prepare(codes, run.list_starts(bits), self._layout(run, codes))
            known = self._prepared[run.owner] = bits, prepared
        return known[1]

    def _layout(self, run: SortedRun, codes: Codes) -> ScanLayout:
        """Return the layout that the index stores, or compute it: of a prefix, a buffer, or files of early versions."""
        wanted = self.scorer.layout_format
        if self.prefix is None and run.layout.format == wanted:
            return run.layout
        known = self._layouts.get(run.owner)
        if known is None and wanted:
            run.mapped.touch(but=VECTOR_ARRAYS)
            known = self._layouts[run.owner] = self.scorer.lay_out(codes)
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

    def tables(self, width: int) -> ProductTables | None:
        """Return the lookup tables of all bits of a code, for exhaustive search, or None where there are none."""
        if width not in self._tables:
            scorer = self.scorer
            self._tables[width] = product_tables(scorer, width) if isinstance(scorer, DecodedScorer) else None
        return self._tables[width]

    def adc(self, run: SortedRun, tables: ProductTables) -> AdcCodes:
        """Return the codes of a run as these tables score them."""
        known = self._adc.get(run.owner)
        if known is None or len(known.squares) != len(run.codes):
            run.mapped.touch(but=VECTOR_ARRAYS)
            known = self._adc[run.owner] = tables.prepare(run.codes)
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
                run.mapped.touch(but=VECTOR_ARRAYS)
                rows = np.ascontiguousarray(self.scorer.coder.decode(run.codes), dtype=np.float32)
            known = self._expanded[stored][run.owner] = StoredVectors(rows, NO_SCALES)
        return known

    def is_decoded(self, run: SortedRun) -> bool:
        """Return whether what the codes of a run decode to is kept."""
        known = self._expanded[False].get(run.owner)
        return known is not None and len(known) == len(run.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of what was prepared."""
        sizes = [codes.nbytes for _, codes in list(self._prepared.values())]
        sizes += [layout.nbytes for layout in list(self._layouts.values())]
        sizes += [one.nbytes for one in list(self._adc.values())] + [one.nbytes for one in list(self._graphs.values())]
        sizes += [vectors.nbytes for runs in self._expanded.values() for vectors in list(runs.values())]
        return sum(sizes)


class PreparedSnapshot:
    """A snapshot that one scorer can search, all of it or the items that a filter allows.

    Args:
        snapshot: what is searched.
        cache: what the scorer prepared of it before.
        allowed: which items may be found; None is all.
        by_graph: whether runs with a graph are searched by it, not by inverted lists.
        fits_effort: whether what `Index.tune` chose is of this way to search.

    """

    def __init__(
        self,
        snapshot: Snapshot,
        cache: PreparationCache,
        allowed: Filter | None = None,
        *,
        by_graph: bool = False,
        fits_effort: bool = True,
    ) -> None:
        self.snapshot, self.scorer, self._cache = snapshot, cache.scorer, cache
        self.by_graph, self.fits_effort = by_graph, fits_effort
        graphs = [run for run in snapshot.runs if by_graph and run.graph is not None]
        listed = [run for run in snapshot.runs if run not in graphs]
        self._runs = [*listed, *graphs]  # whose positions are counted in this order
        self.by_prefix = cache.prefix is not None  # estimates are of leading bits only
        self._ahead, self.in_files = ReadAhead(), any(run.mapped.stays_in_file("codes") for run in self._runs)
        self._ids: list[NDArray[Any]] = [run.ids for run in self._runs]
        self._ends = np.cumsum([len(ids) for ids in self._ids])
        self.filtered = allowed is not None
        self._kept = [_kept(run) if allowed is None else allowed(run) for run in self._runs]  # None: all may be found
        sizes = zip(self._kept, self._ids, strict=True)
        self._allowed = [len(ids) if kept is None else len(kept) for kept, ids in sizes]  # items that may be found
        self.count = sum(self._allowed)
        self._listed = sum(len(run.ids) - len(run.tombstones) for run in listed)
        self.list_bits = cache.scorer.list_bits(self._listed)
        self._prepared = [cache.prepare(run, self.list_bits) for run in listed]
        self._graphs = [cache.graph(run) for run in graphs]
        rows = [
            run.codes.packed if self.by_prefix else own.rows for run, own in zip(listed, self._prepared, strict=True)
        ]
        self._rows = [*rows, *(run.codes.packed for run in graphs)]

    @lazy_property
    def searcher(self) -> _core.Searcher | None:
        """What searches inverted lists, if there are some; exhaustive searches need none."""
        runs = zip(self._runs, self._prepared, self._skipped, strict=False)
        try:
            lists = [
                own.inverted_lists(skipped, None if self.by_prefix else run.mapped.guard("codes"))
                for run, own, skipped in runs
            ]
        except ValueError as error:  # from the core: arrays do not fit each other
            raise DamagedFile(f"the files of a segment do not fit each other ({error}): restore a copy") from error
        return _core.Searcher(lists) if lists else None

    @lazy_property
    def _skipped(self) -> list[Positions]:
        """The positions that must not be found, ascending, run by run."""
        runs = zip(self._runs, self._kept, strict=True)
        return [
            run.tombstones if kept is None or not self.filtered else _others(kept, len(run.ids)) for run, kept in runs
        ]

    @lazy_property
    def _bitmaps(self) -> list[NDArray[np.uint64]]:
        """The positions that must not be found as walks on the graphs take them."""
        first = len(self._prepared)
        return [_bitmap(run, own) for run, own in zip(self._runs[first:], self._skipped[first:], strict=True)]

    @property
    def has_lists(self) -> bool:
        """Whether some runs are searched by inverted lists."""
        return bool(self._prepared)

    @property
    def has_graphs(self) -> bool:
        """Whether some runs are searched by their graphs."""
        return bool(self._graphs)

    @property
    def stored(self) -> int:
        """How many items there are, also those that may not be found."""
        return sum(map(len, self._ids))

    def list_candidates(self, candidates: int) -> int:
        """Return the budget of lists: beside graphs, whose budget is that of a walk, all items where these are few."""
        return max(candidates, SCANNED + self._listed // 50) if self.by_graph else candidates

    def row_searcher(
        self,
        projection: _core.RowProjection,
        scoring: _core.ListScoring | None,
        decoder: _core.CoefficientDecoder | None,
    ) -> _core.RowSearcher:
        """Return what searches this snapshot by rows; without a decoder, candidates are reranked by stored vectors."""
        chosen = [graph.by_codes if decoder or not graph.by_vectors else graph.by_vectors for graph in self._graphs]
        graphs, vectors = [graph.core for graph in chosen], None if decoder else self.vectors.core
        return _core.RowSearcher(
            projection,
            scoring,
            self.searcher,
            graphs,
            self._bitmaps,
            self._ids,
            [run.mapped.guard("ids") for run in self._runs],
            vectors,
            decoder,
            self._rows,
            [run.mapped.guard("codes") for run in self._runs],
        )

    def estimate(self, queries: QueryBatch, count: int, candidates: int, keep: int, threads: int) -> Estimates:
        """Return the `keep` best of each of `count` queries.

        These are items in inverted lists; `walk` finds those in graphs. Where the lists hold fewer, there are fewer
        columns: reranking missing items would take as long as reranking others.
        """
        distances, positions = np.empty((count, keep), dtype=np.float32), np.empty((count, keep), dtype=np.uint32)
        compared, passed = np.empty((2, count), dtype=np.int64)
        if self.searcher is not None:
            candidates = self.list_candidates(candidates)
            out = _core.SearchResults(distances, positions, compared, passed)
            self.scorer.estimate(self.searcher, queries, self.list_bits, candidates, out, threads)
            if self.searcher.damaged:
                for run in self._runs:
                    run.mapped.check()
        most = min(keep, int(compared.max(initial=0)))
        first = len(self._prepared)
        share = sum(self._allowed[:first]) / max(sum(map(len, self._ids[:first])), 1)
        dear = EXCLUDED_DEAR * compared + DEVIATIONS * np.sqrt(compared)
        most_passed = np.where(self.count > DEAR * compared, dear, EXCLUDED_LISTS * compared)
        return Estimates(
            np.ascontiguousarray(distances[:, :most]),
            np.ascontiguousarray(positions[:, :most]),
            compared,
            self.filtered & (passed * share > most_passed),
        )

    def walk(
        self,
        queries: Floats,
        metric: SearchMetric,
        candidates: int,
        keep: int,
        k: int | None,
        threads: int,
        *,
        bounded: bool,
    ) -> list[Estimates]:
        """Return the best of each query in each graph.

        These are the `keep` best by estimated distance, or the k best by the vectors that the index stores, where k is
        given and a walk can read them. Bounded walks end where a filter excludes a query's surroundings.
        """
        found, first = [], len(self._prepared)
        starts = (self._ends - [len(ids) for ids in self._ids])[first:].tolist()
        for graph, skipped, start, allowed in zip(
            self._graphs, self._bitmaps, starts, self._allowed[first:], strict=True
        ):
            by_vectors = graph.by_vectors if k is not None else None
            best, chosen = (keep, graph.by_codes) if by_vectors is None or k is None else (k, by_vectors)
            most = UNBOUNDED
            if self.filtered and bounded:
                most = EXCLUDED_NODES * max(best, candidates) * graph.by_codes.count // allowed if allowed else 0
            hits = chosen.search(queries, best, candidates, metric=metric, skipped=skipped, most=most, threads=threads)
            if start:
                hits.positions[hits.positions != MISSING] += np.uint32(start)
            found.append(Estimates(hits.distances, hits.positions, hits.visited, hits.visited >= max(most, 1)))
        for run in self._runs[first:]:  # vectors are verified by their first visits
            run.mapped.check()
        return found

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
            return Codes.unchecked(self._take(self._rows, flat), self.snapshot.width)
        with self._ahead.reading(lambda: self._request(np.unique(flat[flat != MISSING]).astype(np.int64))):
            self._touch_rows("codes", flat)
            return Codes.unchecked(self._take(self._rows, flat), self.snapshot.width)

    def decode_at(self, positions: Positions) -> Floats:
        """Return what the codes of items decode to, (positions, features)."""
        assert isinstance(self.scorer, DecodedScorer)
        return np.ascontiguousarray(self.scorer.coder.decode(self.codes_at(positions)), dtype=np.float32)

    def _touch_rows(self, name: Literal["codes", "ids"], positions: Positions) -> None:
        """Verify the checksums of codes or ids by their positions in all runs together."""
        start = 0
        for run, end in zip(self._runs, self._ends.tolist(), strict=True):
            own = positions - np.uint32(start) if start else positions  # those of other runs lie beyond its rows
            run.mapped.touch_rows(name, own)
            start = end

    def _request(self, positions: Ids) -> bool:
        """Ask the system for codes in files, and return whether some were not in memory."""
        missing = False
        for run, end in zip(self._runs, self._ends, strict=True):
            start = end - len(run.ids)
            missing |= run.mapped.read_ahead("codes", positions[(positions >= start) & (positions < end)] - start)
        return missing

    @lazy_property
    def vectors(self) -> RunVectors:
        """The vectors that the index stores."""
        stored = [run.vectors for run in self._runs if run.vectors is not None]
        return RunVectors(stored, [run.mapped for run in self._runs])

    @lazy_property
    def scanned_vectors(self) -> RunVectors:
        """The same as exhaustive search reads them: few integers are compared in less time as float32."""
        if not self.vectors.integers or self.vectors.in_files or self.stored * self._features * 4 > EXPANDED:
            return self.vectors
        return self._expand(stored=True)

    @lazy_property
    def decoded_vectors(self) -> RunVectors | None:
        """What few codes decode to."""
        return self._expand(stored=False) if self.keeps_decoded else None

    @property
    def undecoded(self) -> int:
        """How many codes `decoded_vectors` would decode."""
        return sum(len(run.codes) for run in self._runs if not self._cache.is_decoded(run))

    @lazy_property
    def _by_tables(self) -> bool:
        """Whether codes are compared in less time than vectors: projecting a query takes as long as some of these."""
        if not isinstance(self._layout, ScalarLayout) or self.filtered:
            return False
        allocation, features = self._layout.planes.allocation, self._features
        directions = len(np.unique(allocation[allocation >= 0]))  # of bits that are used
        return self.count * (features - directions) > 2 * features * directions

    @property
    def _features(self) -> int:
        assert isinstance(self.scorer, DecodedScorer)
        return self.scorer.coder.n_features_in_

    @lazy_property
    def _layout(self) -> Layout | None:
        return self.scorer.coder.layout(self.snapshot.width) if isinstance(self.scorer, DecodedScorer) else None

    @lazy_property
    def few(self) -> int:
        """How many items a search compares all of by default: as many as it takes less time for than to probe lists."""
        if not isinstance(self.scorer, DecodedScorer) or self.in_files:
            return FEW_ITEMS
        if any(run.vectors is not None for run in self._runs):
            return FEW_ITEMS if isinstance(self._layout, ScalarLayout) else 2 * FEW_ITEMS  # tables take longer
        if isinstance(self._layout, ScalarLayout):
            return 2 * FEW_ITEMS
        if not self.keeps_decoded:
            return FEW_ITEMS
        # A table for each byte, and decoding what is reranked, take as long as comparing thousands of vectors.
        by_tables = isinstance(self._layout, CodebookLayout) and self._layout.exact
        return 4 * FEW_ITEMS if by_tables else self.stored

    @lazy_property
    def few_left(self) -> int:
        """How many items that a filter leaves a search compares all of by default: more where vectors are in memory."""
        if self.by_graph or self.in_files or self.by_prefix or not isinstance(self.scorer, DecodedScorer):
            return FEW_ITEMS
        stored = all(run.vectors is not None for run in self._runs) and not self.vectors.in_files
        return max(self.few, 2 * FEW_ITEMS) if stored or self.keeps_decoded else FEW_ITEMS

    @property
    def keeps_decoded(self) -> bool:
        """Whether codes are so few that they are kept as vectors, once all were compared."""
        if not isinstance(self.scorer, DecodedScorer) or self.in_files:
            return False
        most = EXPANDED if isinstance(self._layout, ScalarLayout) else DECODED
        return self.stored * self._features * 4 <= most

    def _expand(self, *, stored: bool) -> RunVectors:
        return RunVectors([self._cache.expand(run, stored=stored) for run in self._runs])

    def scan_vectors(
        self,
        given: GivenVectors | None,
        queries: NDArray[np.floating[Any]],
        metric: SearchMetric,
        ids: Ids,
        distances: Floats,
        threads: int,
        *,
        exact: bool,
    ) -> bool:
        """Write the nearest items of one query or each by vectors, or return False where it cannot.

        Vectors are the given ones, else those that the index stores where the search is exact, else decoded codes.
        """
        if given is None:
            vectors = self.scanned_vectors if exact else None if self._by_tables else self.decoded_vectors
            if vectors is None:
                return False
            return vectors.core.nearest(queries, self.positions, self.ids, metric, distances, ids, threads)
        if given.core is None or self._largest_id >= given.core.count:
            return False
        keys = self.sorted_ids
        return given.core.nearest(queries, keys, keys, metric, distances, ids, threads)

    def items(self) -> list[tuple[Ids, Ids, Codes]]:
        """Return the ids, the positions in all runs and the codes of all items that may be found, run by run."""
        found = []
        for run in self._runs:
            run.mapped.touch(but=VECTOR_ARRAYS)
        for ids, rows, kept, end in zip(self._ids, self._rows, self._kept, self._ends, strict=True):
            positions = np.arange(end - len(ids), end)
            if kept is not None:
                ids, rows, positions = ids[kept], rows[kept], positions[kept]
            found.append((ids.astype(np.int64, copy=False), positions, Codes.unchecked(rows, self.snapshot.width)))
        return found

    @lazy_property
    def positions(self) -> Positions:
        """The positions of all items that may be found, in all runs together."""
        runs = zip(self._ids, self._kept, strict=True)
        return self._in_all([np.arange(len(ids), dtype=np.uint32) if kept is None else kept for ids, kept in runs])

    def positions_of(self, allowed: Filter) -> Positions:
        """Return the positions of the items that a filter allows, in all runs together."""
        return self._in_all([allowed(run) for run in self._runs])

    def _in_all(self, positions: Sequence[Positions]) -> Positions:
        """Return positions in each run as positions in all runs together."""
        starts = [end - len(ids) for ids, end in zip(self._ids, self._ends.tolist(), strict=True)]
        shifted = [own + np.uint32(start) if start else own for own, start in zip(positions, starts, strict=True)]
        return shifted[0] if len(shifted) == 1 else np.concatenate([np.empty(0, dtype=np.uint32), *shifted])

    @lazy_property
    def ids(self) -> Ids:
        """The ids of all items that may be found, in the order of `positions`."""
        return self.ids_at(self.positions)

    @lazy_property
    def sorted_ids(self) -> Ids:
        """The ids of all items that may be found, ascending: the order in which vectors lie in memory."""
        return np.sort(self.ids)

    @lazy_property
    def _largest_id(self) -> int:
        return int(self.sorted_ids[-1])

    @property
    def tables(self) -> ProductTables | None:
        """The lookup tables of all bits of a code, or None where there are none."""
        return self._cache.tables(self.snapshot.width)

    @lazy_property
    def adc_codes(self) -> list[AdcCodes]:
        """All items that may be found as `tables` scores them, run by run in the order of `positions`."""
        assert self.tables is not None
        found = []
        for run, kept in zip(self._runs, self._kept, strict=True):
            codes = self._cache.adc(run, self.tables)
            found.append(codes if kept is None else codes[kept])
        return found

    def _take(self, arrays: Sequence[NDArray[Scalar]], positions: Positions) -> NDArray[Scalar]:
        """Return rows of the runs' arrays by positions in all runs; the last row for positions beyond."""
        if len(arrays) == 1:
            return arrays[0].take(positions, axis=0, mode="clip")
        positions = np.minimum(positions, self._ends[-1] - 1).astype(np.uint32)
        out = np.empty((len(positions), *arrays[0].shape[1:]), dtype=np.result_type(*arrays))
        owner = np.searchsorted(self._ends, positions, side="right")
        for r, array in enumerate(arrays):
            mine = owner == r
            out[mine] = array[positions[mine] - (self._ends[r] - len(array))]
        return out


def _bitmap(run: SortedRun, skipped: Positions) -> NDArray[np.uint64]:
    """Return the positions that must not be found as a graph's search takes them."""
    mask = np.zeros(len(run.ids), dtype=np.bool_)
    mask[skipped] = True
    return bitmap(mask) if len(skipped) else NOTHING_SKIPPED


def _kept(run: SortedRun) -> Positions | None:
    """Return the positions of a run that are not deleted, None where none are."""
    return _others(run.tombstones, len(run.ids)) if len(run.tombstones) else None


def _others(positions: Positions, count: int) -> Positions:
    """Return the positions below `count` that are not among some, ascending."""
    mask = np.ones(count, dtype=np.bool_)
    mask[positions] = False
    return np.flatnonzero(mask).astype(np.uint32)
