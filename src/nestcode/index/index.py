"""The index: items by id, found by prefix or by distance (reader.py); how it is changed, saved and opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import SMALLEST_SQUARE, Ids, check_ids, check_int, check_seed, next_ids
from nestcode.coders import Coder
from nestcode.coders.auto import to_nobody, to_stderr
from nestcode.coders.base import Metric, Selection
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index.autotune.choice import Choice, Preference
from nestcode.index.folders import Folders, folders_of
from nestcode.index.live import LiveSnapshot
from nestcode.index.memory import Memory
from nestcode.index.reader import IndexReader, check_recall
from nestcode.index.rounding import round_vectors
from nestcode.index.segment import MAX_WIDTH, LiveSegment, Segment, StoredGraph
from nestcode.index.snapshot import OnDuplicate, Snapshot, some_ids
from nestcode.index.store import Commit, Store
from nestcode.search.filters import RecentFilters
from nestcode.search.graph import Items, Navigator, build_graph, degree_beside, pack_records
from nestcode.search.preparation import StoredLayouts
from nestcode.search.request import encode_to
from nestcode.search.schema import check_schema
from nestcode.search.searcher import Searcher
from nestcode.search.vectors import VectorFormat, VectorType
from nestcode.storage import check_path

if TYPE_CHECKING:
    from nestcode.index.health import Health
    from nestcode.search.attributes import Attributes


class Index(IndexReader):
    """Items by id, found by prefix or by distance; can be changed, saved, memory-mapped and shared between threads.

    >>> import numpy as np
    >>> from nestcode import Codes
    >>> rng = np.random.default_rng(0)
    >>> codes = Codes.from_bits(rng.random((1000, 64)) < 0.5)
    >>> index = Index(width=64)
    >>> index.add(codes)
    >>> index.neighborhood(codes[7], size=1).ids
    array([7])
    >>> index.remove([7])
    >>> len(index), 7 in index
    (999, False)

    With a coder it accepts vectors:

    >>> from nestcode import LinearCoder
    >>> X = rng.standard_normal((500, 8))
    >>> index = Index(LinearCoder(width=32).fit(X))
    >>> index.add(X, ids=np.arange(1000, 1500))
    >>> index.neighborhood(X[3], size=1).ids
    array([1003])

    If it stores the vectors too, searches rerank by them:

    >>> index = Index(LinearCoder(width=32).fit(X), vectors="float16")
    >>> index.add(X)
    >>> index.search(X[3], k=1).ids, index.vectors([3]).shape
    (array([3]), (1, 8))

    All methods may be called from any thread. A search reads the snapshot that was current when the search began;
    writes wait for each other. Adding is cheap: new items go to a small write buffer, which is flushed to sorted
    segments, and segments are merged in the background, or by `compact()` at once. A forked child has the index as it
    was at the fork. Its changes to an index in memory are its own, its readers refresh by themselves, and it cannot
    write to a folder that the parent opened with mode="a".

    Args:
        coder: a fitted coder; without a coder the index accepts `Codes` only. The index keeps a copy of the coder.
        width: the number of leading bits that the index keeps; by default the coder's width.
        vectors: store the vectors of items as "float16", "int8" (with a scale for each vector) or "float32"; by default
            the index stores only codes. float16 rounds values below 3e-8 to 0, and refuses values above 65504; for the
            cosine it also refuses a vector that would become all 0.
        graph: build a graph of each segment of at least 4,096 items, in the background. A search by graphs is several
            times as fast as by inverted lists, and takes up to 1,792 bytes an item in memory and 180 in files. The
            coder must be a `LinearCoder` (the choice of `fit(goal="graph")`) or a `RotationCoder`. Smaller segments
            get no graph, because a scan is as fast.

    """

    def __init__(
        self,
        coder: Coder | None = None,
        *,
        width: int | None = None,
        vectors: VectorType | None = None,
        graph: bool = False,
    ) -> None:
        if coder is not None and not isinstance(coder, Coder):
            raise InvalidInput(f"expected a coder, got {type(coder).__name__}: Index(coder) or Index(width=...)")
        if coder is None and width is None:
            raise InvalidInput("give a coder or a width: Index(coder) takes vectors, Index(width=...) takes codes")
        if coder is not None:
            _ = coder.width_  # raises if it is not fitted
            _check_unit(coder)
            coder = copy(coder)  # it may be fitted again
        width = coder.width_ if width is None and coder is not None else check_int(width, "width", least=1)
        most = MAX_WIDTH if coder is None else min(coder.width_, MAX_WIDTH)
        if width > most:
            raise InvalidInput(f"width must be at most {most}, got {width}: fit a wider coder, or keep fewer bits")
        if vectors is not None and coder is None:
            raise InvalidInput(f"only an index with a coder stores vectors, got vectors={vectors!r}: give a coder")
        stored = None if vectors is None or coder is None else VectorFormat(vectors, coder.n_features_in_)
        if graph is not False:
            _check_graph(graph, coder, width)
        self._begin(Commit(width, coder, largest=-1, segments=(), vector_format=stored, graph=graph), store=None)

    @classmethod
    def build(
        cls,
        X: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        metric: Metric = "l2",
        recall: float = 0.95,
        k: int = 10,
        max_bytes: float | None = None,
        prefer: Preference = "latency",
        graph: bool = True,
        queries: ArrayLike | None = None,
        attributes: Any = None,
        seed: int = 0,
        seconds: float | None = None,
        verbose: bool = False,
    ) -> Index:
        """Return an index of the rows that reaches a recall, with the kind and the effort that trial searches choose.

        >>> from nestcode.data import digits
        >>> X, _ = digits()
        >>> index = Index.build(X)
        >>> index.search(X[:2], k=1).ids.tolist()
        [[0], [1]]
        >>> print(index.choice)  # doctest: +ELLIPSIS
        lists, CellCoder(512), float16 vectors: the fastest that reaches the target...

        Trials build inverted lists and graphs on samples, in rounds: each round has more rows and fewer candidates,
        the best of the round before. Each trial is tuned to the target with held-out rows as queries, and the planner's
        table of costs predicts its cost for all rows. A scan needs no trial. Below 4,096 rows, which get no graph,
        `build` indexes all rows in lists and scans them if that is faster. Otherwise it indexes all rows in the best
        way. It sets the effort by held-out queries, so that other queries reach the target with a confidence of 95 %.
        `index.choice` has the trials, their results and the reason for the choice.

        Costs are counted, not timed, so the same data and seed give the same index on any machine. Ctrl-C ends the
        trials; if one has finished, `build` continues with the best so far.

        Args:
            X: (n, features).
            ids: a distinct non-negative integer for each row; by default the row number.
            metric: "l2", or "cosine" to compare items by angle.
            recall: the share of the k nearest items that searches should find.
            k: the number of nearest items that recall counts.
            max_bytes: the most bytes of memory per item, as `nbytes` counts them, including attributes and the arrays
                that searches prepare; by default the machine's available memory. With a bound, the index may store
                vectors as int8, or only codes.
            prefer: among the indexes that reach the recall, "latency" prefers the fastest search, "memory" the fewest
                bytes, and "build" the least work to build the index and to search it once for each item.
            graph: whether `build` may choose a graph. A graph of many items is searched fastest, takes several times as
                long to build as inverted lists, and up to 1,792 bytes an item.
            queries: (q, features), a sample of future queries; by default held-out rows. Pass some hundred if queries
                differ in kind from the items.
            attributes: columns to filter by and to return with hits, one row for each item, in a form that `add`
                accepts.
            seed: the seed of the samples and of the coder.
            seconds: begin no trial after this time. The choice then depends on the machine.
            verbose: print each trial to standard error.

        """
        from nestcode.index.autotune.build import Requirements, build

        required = Requirements(metric, recall, k, max_bytes, prefer, graph, seed, seconds)
        index: Index = build(X, required, queries, ids, attributes, to_stderr if verbose else to_nobody)
        return index

    def _begin(self, start: Commit, store: Store | None) -> None:
        self._coder, self.effort = start.coder, start.effort
        self._vector_format = start.vector_format
        self._largest = start.largest  # id used so far
        self._searcher = Searcher(start.coder, graphs=start.graph)
        self._recent = RecentFilters()
        snapshot = Snapshot.of(
            start.width, start.segments, StoredLayouts(start.coder), start.vector_format, start.schema
        )
        build = partial(_build_graph, start.coder, self._searcher) if start.graph and start.coder is not None else None
        self._live = LiveSnapshot(snapshot, build)
        self._store = store  # where it was opened
        self._saved: dict[str, dict[str, Any] | None] = {}  # manifests of saves, by folder
        self.choice: Choice | Selection | None = None if start.coder is None else start.coder.selection_
        self._behind = False  # the last commit is read, but not shown: reading failed, or a fork came between
        self._committed = snapshot, start  # the last commit, if there is a store

    # writes

    def add(
        self,
        items: Codes | ArrayLike,
        ids: ArrayLike | None = None,
        *,
        vectors: ArrayLike | None = None,
        attributes: Any = None,
        on_duplicate: OnDuplicate = "error",
    ) -> None:
        """Add items: vectors for the coder, or codes.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.add(Codes.from_bits([[0, 0]]), ids=[0], on_duplicate="replace")
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 00, 11)

        Args:
            items: (n, features), one vector, or `Codes`.
            ids: a distinct non-negative integer for each item; by default ids continue after the largest id used so
                far.
            vectors: (n, features), the vectors of `Codes`, if the index stores vectors.
            attributes: columns to filter by and to return with hits, one row for each item: a table (pyarrow, pandas or
                polars), a dictionary of columns, or a list of dictionaries. The first `add` with attributes fixes the
                columns and their types. Missing columns and items without attributes are null.
            on_duplicate: if an id is in use, "error" raises and changes nothing, and "replace" replaces the old item.

        """
        _check_on_duplicate(on_duplicate)
        codes, stored = (
            encode_to(self.width, items, self.coder),
            round_vectors(items, vectors, self._vector_format, self.coder),
        )
        given = None if ids is None else check_ids(ids, len(codes))
        if not len(codes):
            return

        def insert(snapshot: Snapshot) -> Snapshot:
            columns = _read_attributes(attributes, len(codes), snapshot)
            known = next_ids(self._largest, len(codes)) if given is None else given
            if known.min() <= self._largest:
                snapshot = snapshot.free(known, on_duplicate)
            snapshot = snapshot.insert(codes.prefix(snapshot.width), known, stored, columns)
            self._largest = max(self._largest, int(known.max()))
            return snapshot

        self._write(insert)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items; if an id is not in the index, raise and remove nothing.

        Tombstones hide the items at once. When a segment has lost a quarter of its items, the background rewrites it,
        with a new graph if the index has graphs; approximate searches may then find different neighbors.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.remove(0)
        >>> index.ids
        array([1])
        """
        unwanted = check_ids(ids)
        self._write(lambda snapshot: snapshot.delete(snapshot.locate_all(unwanted)))

    def update(
        self,
        items: Codes | ArrayLike,
        ids: ArrayLike,
        *,
        vectors: ArrayLike | None = None,
        attributes: Any = None,
    ) -> None:
        """Replace the codes and stored vectors of items; if an id is not in the index, raise and change nothing.

        `attributes` replaces the old row of each item; without it, the old rows stay.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.update(Codes.from_bits([[0, 0]]), ids=[1])
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 01, 00)
        """
        codes, stored = (
            encode_to(self.width, items, self.coder),
            round_vectors(items, vectors, self._vector_format, self.coder),
        )
        known = check_ids(ids, len(codes))

        def replace(snapshot: Snapshot) -> Snapshot:
            located = snapshot.locate_all(known)
            columns = _read_attributes(attributes, len(codes), snapshot)
            if columns is None:
                columns = snapshot.attributes(located)
            return snapshot.delete(located).insert(codes.prefix(snapshot.width), known, stored, columns)

        self._write(replace)

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Add columns of attributes, a mapping from names to types; existing items have null there.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), attributes={"lang": ["en", "de"]})
        >>> index.add_columns({"year": "int64"})
        >>> index.add(Codes.from_bits([[0, 0]]), attributes={"lang": ["en"], "year": [2024]})
        >>> index.columns, index.matching("year IS NULL")
        ({'lang': 'string', 'year': 'int64'}, array([0, 1]))

        The types are "bool", "int8" to "uint64", "float32", "float64", "string", "category", "bytes", "date",
        "timestamp[us]" or "timestamp[us, UTC]", and "strings" for lists. Stored items are not rewritten.
        """

        def extend(snapshot: Snapshot) -> Snapshot:
            known = dict(snapshot.schema or {})
            try:
                added = dict(columns)
                check_schema({**known, **added})
            except (TypeError, ValueError) as error:
                raise InvalidInput(f'columns must be types by name, as in {{"year": "int64"}} ({error})') from None
            twice = next((name for name in added if name in known), None)
            if twice is not None:
                raise InvalidInput(
                    f"columns must be new, but {twice!r} is {known[twice]} in this index: leave it out, or choose "
                    "another name"
                )
            return snapshot.add_columns(added)

        self._write(extend)

    def merge(self, other: Index, *, on_duplicate: OnDuplicate = "error") -> None:
        """Add all items of another index of the same width, coder and vectors, under their ids.

        >>> a, b = Index(width=2), Index(width=2)
        >>> a.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> b.add(Codes.from_bits([[0, 0]]), ids=[7])
        >>> a.merge(b)
        >>> a.ids
        array([0, 1, 7])
        """
        if not isinstance(other, Index):
            raise InvalidInput(f"expected an Index, got {type(other).__name__}: add(items) takes items")
        if not _same_coder(self.coder, other.coder):
            raise InvalidInput("indexes must have the same coder to merge: encode items of one with the other's coder")
        if other.vector_type != self.vector_type:
            raise InvalidInput(
                f"indexes must store the same type of vectors to merge, got {self.vector_type} and "
                f"{other.vector_type}: build one of them again"
            )
        _check_on_duplicate(on_duplicate)
        theirs, largest = other._live.read().flush(), other._largest
        ids = theirs.ids()

        def attach(snapshot: Snapshot) -> Snapshot:
            if theirs.width != snapshot.width:
                raise InvalidInput(
                    f"indexes must have the same width to merge, got {snapshot.width} and {theirs.width}: truncate one"
                )
            snapshot = snapshot.free(ids, on_duplicate)
            self._largest = max(self._largest, largest)
            segments = theirs.segments if self.graph else [one.without_graph() for one in theirs.segments]
            return snapshot.attach(segments, theirs.schema)

        self._write(attach)

    def compact(self) -> None:
        """Merge all segments into one without the removed items, and build its graph if the index has graphs.

        Searches continue meanwhile.
        """
        self._check_writable()
        self._live.compact()

    def truncate(self, width: int) -> None:
        """Keep the first `width` bits of every code, in place: less memory, and less precise distances.

        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 1, 1], [1, 1, 0]]))
        >>> index.truncate(2)
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 01, 11)

        Every prefix of a nested code is a good code of its length, so nothing is encoded again. Stored vectors stay.
        The effort that `tune` chose for the longer codes stays too: tune again to reach the same recall. Running
        searches keep the bits that they began with; files keep all bits until `commit()`.
        """
        width = check_int(width, "width", least=1)
        if width > self.width:
            raise InvalidInput(f"truncate shortens codes of {self.width} bits, got {width}: give fewer bits")
        self._check_writable()
        self._live.truncate(width)

    def wait(self) -> None:
        """Wait until the background has merged segments and built graphs, and lay out graphs that were read from files.

        Call it after `Index.open` if the first searches must be as fast as later ones.
        """
        if self._store is None or self._store.writable:
            self._live.start()
        self._live.wait()
        for one in self._live.current.segments:
            if one.graph is not None:
                self._searcher.pack(one)
                one.graph.mapped.unmap_pages()

    def _blind_to(self, ids: Ids) -> Index:
        """Return a reader whose graphs do not lead to these items, so that they serve as new queries.

        A walk for a stored item ends at the item's own record, which lists the neighbors that it looks for. The reader
        shares all arrays except the neighbors.
        """
        contents = self._contents()[1]
        segments = (
            one if one.graph is None else replace(one, graph=one.graph.blind_to(one.find(ids)))
            for one in contents.segments
        )
        reader = object.__new__(Index)
        reader._begin(replace(contents, segments=tuple(segments)), store=None)
        return reader

    def _with_graphs(self) -> Index:
        """Return a reader of the same items with a graph for each segment, however small."""
        contents = self._contents()[1]
        assert contents.coder is not None
        build = partial(_build_graph, contents.coder, self._searcher)
        segments = (LiveSegment(one.segment, one.tombstones, build(one.segment)) for one in contents.segments)
        reader = object.__new__(Index)
        reader._begin(replace(contents, segments=tuple(segments), graph=True), store=None)
        return reader

    def health(self, k: int = 10, *, target_recall: float | None = None, queries: int = 200, seed: int = 0) -> Health:
        """Return whether the index still suits its items, and for each problem the call that fixes it.

        >>> from nestcode.data import digits
        >>> X, _ = digits()
        >>> index = Index.build(X)
        >>> print(index.health())  # doctest: +ELLIPSIS
        1,797 items, recall@10 0.9...: healthy
        >>> index.health().ok
        True

        `health` searches for stored items; an item does not count as its own neighbor. It reports that the index has
        outgrown its lists if a coder fitted to its present size would make eight times as many. It reports that the
        data have changed if the codes of the newest items (those with the largest ids) have 1.5 times the error of the
        coder's fit. Without stored vectors it checks the number of lists only; measure recall by `evaluate` with
        queries of yours.

        Args:
            k: the number of nearest items that recall counts.
            target_recall: the least healthy recall; by default the target of `build`, or 0.9.
            queries: the number of items to search for.
            seed: the seed that selects these items.

        """
        from nestcode.index.health import TARGET, check_health

        k, queries = check_int(k, "k", least=1), check_int(queries, "queries", least=1)
        seed = check_seed(seed)
        asked = self.choice.recall if isinstance(self.choice, Choice) else TARGET
        return check_health(self, k, asked if target_recall is None else check_recall(target_recall), queries, seed)

    # files

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, memory: str | None = None) -> None:
        """Write the index to a folder; `Index.open` reads it.

        A crash at any moment leaves either the previous index or this one. `save` waits for graphs that are being
        built.

        Args:
            path: the folder.
            overwrite: replace another index in the folder. A damaged index is never replaced: delete its folder first.
                Without `overwrite`, `save` replaces only an index that this object saved there and nobody changed
                since.
            memory: "codes" also writes the nodes of graphs with their vectors, in blocks: `open(memory="codes")` reads
                them. Later commits then write them too. "all" leaves them out. By default a copy has them if its
                original has.

        """
        check_path(path)
        tier = None if memory is None else Memory.parse(memory)
        nodes = self._store is not None and self._store.nodes if tier is None else not tier.everything
        own = self._store is not None and self._store.writable and os.path.realpath(path) == self._store.realpath
        if self.graph:
            self._live.write(Snapshot.flush)
            self._live.wait()
        if self._store is not None and own:
            self._store.nodes = nodes
            self.commit()
            return
        with Store(path, write=True) as store:
            if store.exists():
                found = sum(map(len, store.read().segments))
                folder, manifest = store.last
                if not overwrite and self._saved.get(folder) != manifest:
                    raise InvalidInput(
                        f"{path} holds another index, of {found:,} items: choose another folder, or replace it by "
                        "save(path, overwrite=True)"
                    )
            store.nodes = nodes or (tier is None and store.nodes)
            store.commit(self._contents()[1])
            folder, manifest = store.last
            self._saved[folder] = manifest

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        mode: Literal["r", "a"] = "r",
        *,
        memory: str | None = None,
    ) -> Self:
        """Open a saved index as a memory map, in milliseconds; pages are verified when they are first read.

        >>> import tempfile
        >>> from nestcode import Codes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = Index(width=2)
        ...     index.add(Codes.from_bits([[0, 1], [1, 1]]))
        ...     index.save(folder)
        ...     with Index.open(folder, mode="a") as opened:
        ...         opened.add(Codes.from_bits([[0, 0]]))
        ...         opened.commit()
        ...     len(Index.open(folder))
        3

        Args:
            path: a folder; or several folders that are read as one sharded index; or one folder with parts (`part-…`),
                as `merge_shards` writes it. Parts have the same coder and distinct ids. The results are those of one
                index with all items; with graphs recall can be higher, because each part has its own walk. `open` does
                not compare the ids of the parts: if several parts have the same id, searches can return it several
                times, and `verify()` raises.
            mode: "r" opens a reader. There may be any number of readers; each sees the snapshot that it opened until
                `refresh()`. "a" opens the only writer: `commit()` makes changes durable, and `close()` or leaving the
                `with` block lets another process write.
            memory: the arrays to load into memory at once: "all", or "codes" for the arrays from which searches
                estimate distances. Vectors then stay in files and are read for reranking. A graph that was saved with
                `memory="codes"` is walked in its file, and each visit of a node reads a block of 4 KiB. Without such a
                file, searches use inverted lists; a commit of a writer with `memory="codes"` writes it. By default the
                operating system decides which pages stay in memory.

        """
        if mode not in ("r", "a"):
            raise InvalidInput(f'mode must be "r" to read or "a" to change, got {mode!r}')
        tier = None if memory is None else Memory.parse(memory)
        folders = folders_of(path)
        if not isinstance(path, str | os.PathLike) or folders != [Path(path).absolute()]:
            if mode != "r":
                raise InvalidInput(f"several folders are opened to read, got mode {mode!r}: open the one to change")
            store: Store = Folders(path, memory=tier)
        else:
            store = Store(path, write=False, memory=tier) if mode == "r" else Store.existing(path, tier)
        try:
            index = object.__new__(cls)
            index._begin(store.read(), store)
            if mode == "a":
                store.delete_obsolete_files()
        except BaseException:
            store.close()
            raise
        return index

    def refresh(self) -> bool:
        """Show the last commit to a reader, and return whether there was a new one.

        >>> import tempfile
        >>> from nestcode import Codes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = Index(width=2)
        ...     index.save(folder)
        ...     reader = Index.open(folder)
        ...     with Index.open(folder, mode="a") as writer:
        ...         writer.add(Codes.from_bits([[0, 1], [1, 1]]))
        ...         writer.commit()
        ...     len(reader), reader.refresh(), len(reader), reader.refresh()
        (0, True, 2, False)

        Unchanged segments keep the arrays that searches prepared. An effort that this reader chose, by `tune` or by
        assignment, stays. A writer sees its own changes at once, so it gets False, unless somebody restored a copy of
        the folder: the writer then continues with the copy, and must have no changes of its own.
        """
        if self._store is None:
            raise InvalidInput("this index is in memory, where nobody else changes it: refresh is for Index.open(path)")
        with self._store.writing:
            if self._store.inherited:
                raise _inherited(self._store)
            if not self._store.writable and not self._store.read_only:
                raise InvalidInput(f"{self._store.path} was closed: open it again to see later commits")
            if not self._behind and not self._store.changed():
                return False
            self._live.restore(partial(self._read_again, self._store), compact=self._store.writable)
            self._behind = False
        return True

    def _read_again(self, store: Store) -> Snapshot:
        """Return the snapshot of the folder's last commit, and adopt its settings, while writers wait."""
        if store.writable and self._live.written is not self._committed[0]:
            raise InvalidInput(
                f"{store.path} holds another commit than this writer's last one, and the writer has changes: "
                "save the index to another folder to keep them, then rollback() and refresh()"
            )
        self._behind = True
        found = store.read()
        lay_out = self._live.current.lay_out
        snapshot = Snapshot.of(found.width, found.segments, lay_out, found.vector_format, found.schema)
        self._largest = found.largest
        if self.effort == self._committed[1].effort:  # and not the reader's own
            self.effort = found.effort
        self._committed = snapshot, found
        self._searcher.graphs = found.graph
        return snapshot

    def commit(self) -> None:
        """Make all changes so far durable: a crash from now on does not lose them."""
        if self._store is None:
            raise InvalidInput("this index is in memory: save(path) it, then Index.open(path, mode='a')")
        with self._store.writing:
            self._check_writable()
            committed = self._contents()
            self._store.commit(committed[1])
            self._committed = committed

    def rollback(self) -> None:
        """Discard all changes since the last commit, or since the index was opened.

        >>> import tempfile
        >>> from nestcode import Codes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Index(width=2).save(folder)
        ...     with Index.open(folder, mode="a") as index:
        ...         index.add(Codes.from_bits([[0, 1], [1, 1]]))
        ...         index.rollback()
        ...         len(index)
        0

        A failed commit keeps its changes in memory: commit again after you have removed the cause, or roll back.
        """
        if self._store is None:
            raise InvalidInput("this index is in memory and has no commit: rollback is for Index.open(path, mode='a')")
        with self._store.writing:
            self._check_writable()
            snapshot, commit = self._committed

            def restore() -> Snapshot:
                self._largest, self.effort = commit.largest, commit.effort
                return snapshot

            self._live.restore(restore)

    def verify(self) -> None:
        """Read everything, and raise DamagedFile if a checksum does not match, or InvalidInput if an id repeats.

        Only an index of several folders can have an id more than once.
        """
        snapshot = self._live.current
        for one in snapshot.segments:
            one.verify()
        ids = snapshot.ids()
        twice = np.unique(ids[1:][ids[1:] == ids[:-1]])
        if len(twice):
            raise InvalidInput(f"ids must be distinct among all folders, but {some_ids(twice)} not: build one again")

    def close(self, *, save_graphs: bool = True) -> None:
        """Wait for graphs, save them, and let another process write. Other uncommitted changes are lost.

        Args:
            save_graphs: False does not wait and leaves the folder unchanged, for example if a backup was restored to
                it.

        """
        if save_graphs:
            self._live.wait()
        else:
            self._live.stop()
        if self._store is not None:
            try:
                since = self._live.current is not self._live.written is self._committed[0]
                if save_graphs and self.graph and since and self._store.writable and not self._store.changed():
                    self.commit()
            finally:
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise InvalidInput("an index is not copied or pickled: save(path) it, and Index.open(path) where it is wanted")

    def _contents(self) -> tuple[Snapshot, Commit]:
        """Flush the buffer, and return the snapshot and its commit."""
        found: list[tuple[Snapshot, Commit]] = []

        def flush(snapshot: Snapshot) -> Snapshot:
            snapshot = snapshot.flush()
            commit = Commit(
                snapshot.width,
                self.coder,
                self._largest,
                snapshot.segments,
                self._vector_format,
                self.effort,
                self.graph,
                snapshot.schema,
            )
            found.append((snapshot, commit))
            return snapshot

        self._live.write(flush)
        return found[0]

    def _write(self, edit: Callable[[Snapshot], Snapshot]) -> None:
        self._check_writable()
        self._live.write(edit)

    def _check_writable(self) -> None:
        if self._store is not None and self._store.inherited:
            raise _inherited(self._store)
        if self._store is not None and not self._store.writable:
            raise InvalidInput(f"{self._store.path} was opened to read, or closed: open it with mode='a' to change it")


def _read_attributes(given: Any, count: int, snapshot: Snapshot) -> Attributes | None:
    """Return the attributes of new items as columns of the index, or None where none are given."""
    if given is None:
        return None
    from nestcode.search.attributes import Attributes

    return Attributes.read(given, count, snapshot.schema)


def _check_on_duplicate(choice: str) -> None:
    if choice not in ("error", "replace"):
        raise InvalidInput(f'on_duplicate must be "error" or "replace", got {choice!r}')


def _check_unit(coder: Coder) -> None:
    """Raise if squared distances between items underflow float32, in which they are estimated."""
    spread = coder.expected_error(0) * coder.n_features_in_
    if coder.metric_ == "l2" and 0 < spread < SMALLEST_SQUARE:
        raise InvalidInput(
            f"the squared distance of items from their mean must be at least {SMALLEST_SQUARE:g} on average, so that "
            f'distances fit float32, got {spread:.2g}: rescale the data, or fit a coder with metric="cosine"'
        )


def _check_graph(graph: object, coder: Coder | None, width: int) -> None:
    if graph is not True:
        raise InvalidInput(f"graph must be True or False, got {graph!r}")
    if coder is None:
        raise InvalidInput("graph=True needs vectors to compare, got no coder: give one, or leave it out")
    Navigator(coder, width=width)  # raises if its codes cannot navigate


def _inherited(store: Store) -> InvalidInput:
    return InvalidInput(
        f"{store.path} is written by the process that this process was forked from: search its items here, and "
        "open it again to see later commits, or with mode='a' once that process has closed it"
    )


def _same_coder(a: Coder | None, b: Coder | None) -> bool:
    return a is b or (a is not None and b is not None and a.fingerprint == b.fingerprint)


def _build_graph(coder: Coder, searcher: Searcher, segment: Segment) -> StoredGraph:
    segment.mapped.touch()
    vectors = Items(coder, segment.codes, segment.vectors)
    navigator = searcher.navigator(segment.codes.width, ranked=segment.vectors is not None)
    items = navigator.encode(vectors, segment.codes)
    degree = degree_beside(None if segment.vectors is None else segment.vectors.format.dtype)
    neighbors = build_graph(navigator, vectors, items, degree=degree)
    records, neighbors = pack_records(navigator, items, neighbors)
    graph = StoredGraph(neighbors, items, navigator.layout, records=records)
    searcher.pack(LiveSegment(segment, graph=graph))
    return graph
