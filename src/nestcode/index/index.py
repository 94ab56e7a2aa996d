"""The index: items by id, found by prefix or by distance; it can be changed, saved and shared between threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, check_ids, check_int, next_ids
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index.live import LiveSnapshot
from nestcode.index.memory import Memory
from nestcode.index.segment import MAX_WIDTH, LiveSegment, Segment, StoredGraph
from nestcode.index.shards import Shards
from nestcode.index.snapshot import OnDuplicate, Snapshot, some_ids
from nestcode.index.store import Commit, Store
from nestcode.index.tree import Neighborhoods
from nestcode.search.evaluation import RecallTrials
from nestcode.search.graph import Items, Navigator, build_graph
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.plan import Effort, Plan, Rank
from nestcode.search.scorer import SearchMetric
from nestcode.search.searcher import Searcher, StoredLayouts
from nestcode.search.vectors import StoredVectors, VectorFormat, VectorsById, VectorType


class Index:
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

    With a coder it takes vectors:

    >>> from nestcode import LinearCoder
    >>> X = rng.standard_normal((500, 8))
    >>> index = Index(LinearCoder(width=32).fit(X))
    >>> index.add(X, ids=np.arange(1000, 1500))
    >>> index.neighborhood(X[3], size=1).ids
    array([1003])

    It can store the vectors too, beside their codes; searches are then reranked by them:

    >>> index = Index(LinearCoder(width=32).fit(X), vectors="float16")
    >>> index.add(X)
    >>> index.search(X[3], k=1).ids, index.vectors([3]).shape
    (array([3]), (1, 8))

    All methods may be called from any thread. A search reads the snapshot that was current when the search began;
    writes wait for each other. Adding is cheap: new items go to a small write buffer, which is flushed to sorted
    segments, and segments are merged in the background, or by `compact()` at once.

    Args:
        coder: a fitted coder; without one the index takes `Codes` only. The index keeps it as it is now.
        width: how many leading bits are kept; the coder's width by default.
        vectors: store the vectors of items as "float16", "int8" (with a scale for each vector) or "float32"; by default
            only codes are stored.
        graph: build a graph of each large segment, in the background, and search by it: several times as fast as by
            inverted lists, for up to 1,536 bytes an item in memory and 128 in files. The coder must be a `LinearCoder`.

    """

    effort: Effort | None = None  # of searches that name none: `tune` chooses it, and files keep it

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

    def _begin(self, start: Commit, store: Store | None, tier: Memory | None = None) -> None:
        self.coder, self.effort, self.graph = start.coder, start.effort, start.graph
        self._vector_format = start.vector_format
        self._largest = start.largest  # id used so far
        prefix = None if tier is None else tier.prefix
        self._searcher = Searcher(start.coder, prefix, by_graph=tier is None or tier.everything)
        snapshot = Snapshot.of(start.width, start.segments, StoredLayouts(start.coder), start.vector_format)
        build = partial(_build_graph, start.coder, self._searcher) if start.graph and start.coder is not None else None
        self._live = LiveSnapshot(snapshot, build)
        self._store = store  # where it was opened
        self._committed = None if store is None else snapshot  # the last one

    # contents

    @property
    def width(self) -> int:
        """Bits of each code."""
        return self._live.current.width

    def __len__(self) -> int:
        return len(self._live.current)

    @property
    def ids(self) -> Ids:
        """All ids, ascending."""
        return self._live.read().ids()

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        return bool(self._live.read().locate(np.array([item], dtype=np.int64))[0][0] >= 0)

    def codes(self, ids: ArrayLike) -> Codes:
        """Return the codes of items by id.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), ids=[5, 3])
        >>> index.codes([3, 5])
        Codes(2 items of 2 bits: 11, 01)
        """
        snapshot = self._live.read()
        return snapshot.codes(snapshot.locate_all(check_ids(ids, distinct=False)))

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return what the kept bits decode to: one vector for one id, (n, features) for n.

        >>> from nestcode import LinearCoder
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> index = Index(LinearCoder(width=3).fit(X))
        >>> index.add(X)
        >>> index.reconstruct(5).shape, index.reconstruct([5, 4]).shape
        ((2,), (2, 2))
        """
        if self.coder is None:
            raise InvalidInput("an index without a coder has codes only: call codes(ids), or make it with Index(coder)")
        decoded = self.coder.decode(self.codes(ids))
        return decoded if np.ndim(ids) else decoded[0]

    @property
    def vector_type(self) -> VectorType | None:
        """How vectors are stored: "float32", "float16", "int8", or None for not at all."""
        return None if self._vector_format is None else self._vector_format.dtype

    def vectors(self, ids: ArrayLike) -> Floats:
        """Return the stored vectors of items by id, (n, features): as rounded when they were added.

        >>> from nestcode import LinearCoder
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> index = Index(LinearCoder(width=3).fit(X), vectors="float16")
        >>> index.add(X)
        >>> index.vectors([5])
        array([[10., 11.]], dtype=float32)
        """
        if self._vector_format is None:
            raise InvalidInput('this index stores no vectors: make it with Index(coder, vectors="float16")')
        snapshot = self._live.read()
        return snapshot.vectors(snapshot.locate_all(check_ids(ids, distinct=False)))

    @property
    def nbytes(self) -> int:
        """Bytes of all segments and the buffer, in memory or mapped, and of what searches prepared."""
        return sum(self.nbytes_by_part().values())

    def nbytes_by_part(self) -> dict[str, int]:
        """Return the bytes of each part: the arrays in files by name, the buffer and what searches prepared.

        >>> index = Index(width=64)
        >>> index.add(Codes.from_bits(np.eye(64).repeat(100, axis=0) > 0))
        >>> parts = index.nbytes_by_part()
        >>> parts["codes"], parts["ids"]  # ids take 8 bytes where one of them is 2^32 or more
        (51200, 25600)
        """
        return self._live.current.nbytes_by_part() | {"prepared": self._searcher.nbytes}

    def __repr__(self) -> str:
        coder = "" if self.coder is None else f", {self.coder!r}"
        vectors = "" if self.vector_type is None else f", vectors={self.vector_type!r}"
        return f"{type(self).__name__}({len(self)} items of {self.width} bits{coder}{vectors})"

    # retrieval by prefix

    def neighborhood(
        self,
        queries: Codes | ArrayLike,
        *,
        size: int | None = None,
        fraction: float | None = None,
        threads: int | None = 1,
    ) -> Any:
        """Return the smallest neighborhood of each query that has at least `size` members.

        Its members are all items that share the query's first `length` bits, with the largest such `length`.

        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.neighborhood(Codes.from_bits([[0, 0, 1]]), size=2)
        Neighborhood(length=2, count=2)

        This is the paper's retrieval (section 5.1). It compares prefixes only, and takes time logarithmic in the number
        of items, whatever the width.

        Args:
            queries: one vector or (n, features) with a coder, or `Codes`. One vector, or codes of one item, give a
                `Neighborhood` with `length`, `count` and `ids`; more give `Neighborhoods` with arrays, of which
                `hoods[i]` is one. Ids are gathered when they are read, in the order of the tree: `np.sort` them where
                the order matters.
            size: the fewest members accepted (R in the paper). The root, length 0, is accepted always.
            fraction: instead of a size, the smallest share of all items accepted.
            threads: how many threads share a batch; None is one for each core.

        """
        forest = self._live.read().forest
        if isinstance(queries, Codes):
            if queries.width != forest.width:
                queries = self._fitting(queries, forest.width)
            return forest.neighborhood(queries, size=size, fraction=fraction, threads=threads)
        hoods = forest.neighborhoods(self._encode(queries, forest.width), size, fraction, threads)
        return hoods[0] if np.ndim(queries) == 1 else hoods

    def nested(self, query: Codes | ArrayLike) -> Neighborhoods:
        """Return every neighborhood of one query, from the root to the longest prefix that any item shares.

        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 1, 1]]))
        >>> index.nested(Codes.from_bits([[0, 1, 1]])).count
        array([3, 2, 1])
        """
        forest = self._live.read().forest
        return forest.nested(self._encode(query, forest.width))

    # search by distance

    def search(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Hits:
        """Return the k nearest items of each query.

        >>> from nestcode import CellCoder
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X))
        >>> index.add(X)
        >>> index.search(X[:3], k=1).ids.tolist()
        [[0], [1], [2]]
        >>> hits = index.search(X[7], k=2, vectors=X)  # reranked by the vectors themselves
        >>> int(hits.ids[0]), float(hits.distances[0])
        (7, 0.0)

        Args:
            queries: one vector, (n, features), or `Codes`. One vector, or codes of one item, give arrays (k,).
            k: how many.
            candidates: the candidate budget: inverted lists are probed, nearest first, until they hold so many items;
                a walk on a graph keeps so many (ef). More find more and take longer; as many as there are items make
                the search exhaustive. By default what `tune` chose, or 1,000 plus 2 % of the items; 4 k and at least
                100 on a graph.
            rerank: how many candidates, the best by estimated distance, are reranked by precise ones: by default what
                `tune` chose, or 10 k and at least 100.
            rank: "asymmetric" compares vectors with decoded codes (ADC), "hamming" codes with codes, "exact" vectors
                with `vectors` or those the index stores. By default the most precise that is possible.
            metric: "l2" gives squared distances, "cosine" those of L2-normalized vectors, 2 - 2 cos, "inner" negative
                inner products; the coder's by default. The cosine with a zero vector is 0, its distance 2.
            vectors: the items themselves by id, instead of those the index stores: an array or a memory map with a row
                for each id, a mapping from ids to vectors, or a function that returns the vectors of an array of ids.
            filter: which items may be found: their ids, or a mask by id.
            threads: how many threads share a batch; None is one for each core.

        """
        snapshot = self._live.read()
        if rank is None and metric is None and vectors is None and filter is None:
            hits = self._searcher.search_rows(snapshot, queries, k, candidates, rerank, self.effort, threads)
            if hits is not None:
                return hits
        plan = self._plan(
            snapshot,
            queries,
            rank=rank,
            metric=metric,
            vectors=vectors,
            allowed=filter,
            candidates=candidates,
            rerank=rerank,
            threads=threads,
        )
        return self._searcher.search(snapshot, plan, k)

    def range_search(
        self,
        queries: Codes | ArrayLike,
        radius: float,
        *,
        candidates: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Any:
        """Return all items within a distance, nearest first: `Hits` of a single query, `RangeHits` of several.

        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.range_search(Codes.from_bits([[0, 0, 1]]), 1).ids
        array([0, 1])

        Distances and the other arguments are those of `search`; only candidates are found.
        """
        snapshot = self._live.read()
        plan = self._plan(
            snapshot,
            queries,
            rank=rank,
            metric=metric,
            vectors=vectors,
            allowed=filter,
            candidates=candidates,
            threads=threads,
        )
        found: Hits | RangeHits = self._searcher.range_search(snapshot, plan, radius)
        return found

    def evaluate(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        exact: VectorsById | None = None,
        threads: int | None = 1,
    ) -> Evaluation:
        """Measure the recall of a search and the work it does.

        >>> from nestcode import CellCoder
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=24).fit(X))
        >>> index.add(X)
        >>> round(index.evaluate(X[:100], k=5, vectors=X).recall, 1)  # reranked by vectors
        1.0
        >>> round(index.evaluate(X[:100], k=5, exact=X).recall, 1)  # by codes alone
        0.7

        The true neighbors are those of an exhaustive search by vectors: `exact`, or `vectors` where the search has them
        too, or those that the index stores. Without any it is an exhaustive search by codes, and recall shows only what
        probing few lists misses. Use queries that are not in the index: others find themselves. The other arguments are
        those of `search`.
        """
        trials = self._trials(queries, k, exact, rank=rank, metric=metric, vectors=vectors, threads=threads)
        snapshot, options = self._live.read(), {"rank": rank, "metric": metric, "vectors": vectors}
        plan = self._plan(snapshot, queries, candidates=candidates, rerank=rerank, **options)
        return trials.run(self._searcher.candidates(snapshot, plan, k), plan.budget.rerank(k))

    def tune(
        self,
        queries: Codes | ArrayLike,
        target_recall: float = 0.9,
        k: int = 10,
        *,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        exact: VectorsById | None = None,
        threads: int | None = 1,
    ) -> Evaluation:
        """Choose `candidates` and `rerank` for later searches: the fastest that reach a recall, by measurement.

        >>> from nestcode import CellCoder
        >>> X = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X[:3900]))
        >>> index.add(X[:3900])
        >>> index.tune(X[3900:], target_recall=0.9).recall >= 0.9
        True
        >>> index.effort.candidates < 2000
        True

        Recall is that of `evaluate`. The choice is kept as `index.effort`, and saved with the index. It grows with the
        index: a larger one scores the same share of its items. Where no search reaches the target, a warning is given
        and the fastest is chosen that comes near the best.
        """
        if not isinstance(target_recall, float | int | np.floating) or not 0 < target_recall <= 1:
            raise InvalidInput(f"target_recall must be above 0 and at most 1, got {target_recall!r}")
        trials = self._trials(queries, k, exact, rank=rank, metric=metric, vectors=vectors, threads=threads)
        best = trials.fastest(float(target_recall))
        self.effort = trials.effort(best)
        return best

    def _trials(
        self,
        queries: Codes | ArrayLike,
        k: int,
        exact: VectorsById | None,
        *,
        metric: SearchMetric | None,
        **options: Any,
    ) -> RecallTrials:
        plan = None
        if exact is None and self._vector_format is not None and options["rank"] == "asymmetric":
            exact = self.vectors
        if exact is not None:
            plan = self._plan(self._live.read(), queries, rank="exact", metric=metric, vectors=exact)
        return RecallTrials(self.search, queries, k, len(self), {"metric": metric, **options}, plan)

    # writes

    def add(
        self,
        items: Codes | ArrayLike,
        ids: ArrayLike | None = None,
        *,
        vectors: ArrayLike | None = None,
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
            ids: a distinct integer of at least 0 for each; by default they follow the largest used so far.
            vectors: (n, features), the vectors of `Codes`, if the index stores vectors.
            on_duplicate: where an id is in use, "error" raises and changes nothing, "replace" takes the new item.

        """
        _check_on_duplicate(on_duplicate)
        codes, stored = self._encode(items), self._round(items, vectors)
        given = None if ids is None else check_ids(ids, len(codes))
        if not len(codes):
            return

        def insert(snapshot: Snapshot) -> Snapshot:
            known = next_ids(self._largest, len(codes)) if given is None else given
            if known.min() <= self._largest:
                snapshot = snapshot.free(known, on_duplicate)
            snapshot = snapshot.insert(codes.prefix(snapshot.width), known, stored)
            self._largest = max(self._largest, int(known.max()))
            return snapshot

        self._write(insert)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items; if an id is not in the index, raise and remove nothing.

        Tombstones hide them at once. A segment that lost a quarter of its items is rewritten in the background, with a
        new graph if the index has graphs; from then on approximate searches may find other neighbors than before.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.remove(0)
        >>> index.ids
        array([1])
        """
        unwanted = check_ids(ids)
        self._write(lambda snapshot: snapshot.delete(snapshot.locate_all(unwanted)))

    def update(self, items: Codes | ArrayLike, ids: ArrayLike, *, vectors: ArrayLike | None = None) -> None:
        """Give items new codes, and new stored vectors; if an id is not in the index, raise and change nothing.

        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]))
        >>> index.update(Codes.from_bits([[0, 0]]), ids=[1])
        >>> index.codes([0, 1])
        Codes(2 items of 2 bits: 01, 00)
        """
        codes, stored = self._encode(items), self._round(items, vectors)
        known = check_ids(ids, len(codes))

        def replace(snapshot: Snapshot) -> Snapshot:
            located = snapshot.locate_all(known)
            return snapshot.delete(located).insert(codes.prefix(snapshot.width), known, stored)

        self._write(replace)

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
            raise InvalidInput("indexes must have the same coder to merge: encode the items of one with the other's")
        if other.vector_type != self.vector_type:
            raise InvalidInput(
                f"indexes must store vectors alike to merge, got {self.vector_type} and {other.vector_type}: build one "
                "of them again"
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
            return snapshot.attach(theirs.segments if self.graph else [one.without_graph() for one in theirs.segments])

        self._write(attach)

    def compact(self) -> None:
        """Merge everything into one segment, without what was deleted, and build its graph if the index has graphs.

        Searches go on meanwhile.
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
        Searches go on meanwhile with what they began with; files keep all bits until `commit()`.
        """
        if check_int(width, "width", least=1) > self.width:
            raise InvalidInput(f"truncate shortens codes of {self.width} bits, got {width}: give fewer bits")
        self._check_writable()
        self._live.truncate(width)

    def wait(self) -> None:
        """Wait until the background has merged segments and built graphs, and pack graphs that were read from files.

        Searches then take as long as later ones: call it after `Index.open` where the first one must not be slow.
        """
        self._live.wait()
        for one in self._live.current.segments:
            if one.graph is not None:
                self._searcher.pack(one)

    # files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a folder, in place of an index that is there; `Index.open` reads it.

        An index that is damaged is not replaced: delete its folder first. Graphs that are being built are waited for.

        A crash at any moment leaves the index that was there before, or this one.
        """
        if self.graph:
            self._live.write(Snapshot.flush)
            self._live.wait()
        if self._store is not None and self._store.writable and os.path.realpath(path) == self._store.realpath:
            self.commit()
            return
        with Store(path, write=True) as store:
            if store.exists():
                store.read()
            store.commit(self._contents()[1])

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        mode: Literal["r", "a"] = "r",
        *,
        memory: str | None = None,
    ) -> Self:
        """Open a saved index. It is memory-mapped, so that takes no time; pages are verified when first read.

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
            path: the folder; or several, which are read as one index: a sharded one, whose parts were built apart with
                one coder and distinct ids. Each is searched, and their answers are those of one index with all items.
                Opening them does not compare ids, as that reads them all: an id that is in several folders is found
                once for each, and `verify()` raises.
            mode: "r" reads: any number of readers, each of which sees the snapshot that it opened, whatever others
                commit, until `refresh()`. "a" writes too, one writer at a time: `commit()` makes changes durable, and
                `close()` or leaving a `with` block lets others write.
            memory: what is read into memory at once: "all"; "codes", what searches scan of codes, while vectors stay in
                files; or "prefix=128", the same of the first 128 bits of codes, by which searches then estimate
                distances. What stays in files is read for the candidates to rerank. By default the system decides.
                Graphs, which lie in memory, are used by default and with "all".

        """
        if mode not in ("r", "a"):
            raise InvalidInput(f'mode must be "r" to read or "a" to change, got {mode!r}')
        tier = None if memory is None else Memory.parse(memory)
        if isinstance(path, list | tuple):
            if mode != "r":
                raise InvalidInput(f"several folders are opened to read, got mode {mode!r}: open the one to change")
            store: Store = Shards(path, memory=tier)
        else:
            single = cast("str | os.PathLike[str]", path)
            store = Store(single, write=False, memory=tier) if mode == "r" else Store.existing(single, tier)
        try:
            index = object.__new__(cls)
            found = store.read()
            prefix = None if tier is None else tier.prefix
            if prefix is not None and prefix >= found.width:
                raise InvalidInput(
                    f"a prefix in memory must be shorter than the codes of {found.width} bits, got {memory!r}: give "
                    'fewer bits, or memory="codes"'
                )
            index._begin(found, store, tier)
            if mode == "a":
                store.delete_obsolete_files()
        except BaseException:
            store.close()
            raise
        return index

    def refresh(self) -> bool:
        """Show the last commit to a reader, and return whether it is another than before.

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

        Segments that did not change stay as they are, with what searches prepared of them. A writer, which nobody else
        can overtake, sees its own changes at once: False.
        """
        if self._store is None:
            raise InvalidInput("this index is in memory, where nobody else changes it: refresh is for Index.open(path)")
        with self._store.writing:
            if self._store.writable:
                return False
            if not self._store.read_only:
                raise InvalidInput(f"{self._store.path} was closed: open it again to see what others commit")
            if not self._store.changed():
                return False
            found = self._store.read()
            lay_out = self._live.current.lay_out
            self._live.current = Snapshot.of(found.width, found.segments, lay_out, found.vector_format)
            self._largest, self.effort, self.graph = found.largest, found.effort, found.graph
        return True

    def commit(self) -> None:
        """Make all changes so far durable: a crash from now on does not lose them."""
        if self._store is None:
            raise InvalidInput("this index is in memory: save(path) it, then Index.open(path, mode='a')")
        with self._store.writing:
            self._check_writable()
            snapshot, contents = self._contents()
            self._store.commit(contents)
            self._committed = snapshot

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

    def close(self) -> None:
        """Let another process write. Changes since the last `commit()` are not saved, but for graphs built since."""
        self._live.wait()
        if self._store is not None:
            try:
                since = self._live.current is not self._live.written is self._committed
                if self.graph and since and self._store.writable:
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
        """Flush the buffer, and return the snapshot and what a commit of it holds."""
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
            )
            found.append((snapshot, commit))
            return snapshot

        self._live.write(flush)
        return found[0]

    # internals

    def _plan(self, snapshot: Snapshot, queries: Codes | ArrayLike, **options: Any) -> Plan:
        """Return the checked plan of a search; options are those of `Plan`."""
        stored = self._vector_format is not None
        encode = partial(self._encode, width=snapshot.width)
        return Plan(self.coder, encode, queries, stored=stored, effort=self.effort, **options)

    def _write(self, edit: Callable[[Snapshot], Snapshot]) -> None:
        self._check_writable()
        self._live.write(edit)

    def _check_writable(self) -> None:
        if self._store is not None and not self._store.writable:
            raise InvalidInput(f"{self._store.path} was opened to read, or closed: open it with mode='a' to change it")

    def _encode(self, items: Codes | ArrayLike, width: int | None = None) -> Codes:
        """Return vectors or codes as codes of a width, by default the index's."""
        width = self.width if width is None else width
        if isinstance(items, Codes):
            return self._fitting(items, width)
        if self.coder is None:
            raise InvalidInput(
                f"an index without a coder takes Codes, got {type(items).__name__}: encode them first, "
                "or make the index with Index(coder)"
            )
        rows = np.asarray(items)
        return self.coder.encode(rows[None] if rows.ndim == 1 else rows).prefix(width)

    def _round(self, items: Codes | ArrayLike, vectors: ArrayLike | None) -> StoredVectors | None:
        """Return the vectors of new items as the index stores them, or None where it does not."""
        if self._vector_format is None:
            if vectors is not None:
                raise InvalidInput(
                    'this index stores no vectors: leave vectors out, or make it with Index(coder, vectors="float16")'
                )
            return None
        if isinstance(items, Codes):
            if vectors is None:
                raise InvalidInput(
                    "an index that stores vectors takes Codes together with their vectors: give vectors=, or add the "
                    "vectors alone"
                )
        elif vectors is not None:
            raise InvalidInput("vectors go with Codes, but the items given are vectors already: leave vectors= out")
        rows = np.asarray(items if vectors is None else vectors)
        stored = self._vector_format.round(rows[None] if rows.ndim == 1 else rows)
        if isinstance(items, Codes) and len(stored) != len(items):
            raise InvalidInput(f"there must be one vector for each code, got {len(stored)} for {len(items)} codes")
        return stored

    def _fitting(self, codes: Codes, width: int) -> Codes:
        """Return codes of a width, or of the coder's, as codes of that width."""
        if codes.width == width:
            return codes
        if self.coder is not None and codes.width == self.coder.width_:
            return codes.prefix(width)
        raise InvalidInput(
            f"codes must have the index's width {width}, got {codes.width}: take prefix({width}), "
            "or make an index of that width"
        )


def _check_on_duplicate(choice: str) -> None:
    if choice not in ("error", "replace"):
        raise InvalidInput(f'on_duplicate must be "error" or "replace", got {choice!r}')


def _check_graph(graph: object, coder: Coder | None, width: int) -> None:
    if graph is not True:
        raise InvalidInput(f"graph must be True or False, got {graph!r}")
    if coder is None:
        raise InvalidInput("graph=True needs vectors to compare, got no coder: give one, or leave it out")
    Navigator(coder, width=width)  # raises if its codes cannot navigate


def _same_coder(a: Coder | None, b: Coder | None) -> bool:
    return a is b or (a is not None and b is not None and a.fingerprint == b.fingerprint)


def _build_graph(coder: Coder, searcher: Searcher, segment: Segment) -> StoredGraph:
    segment.touch()
    items = Items(coder, segment.codes, segment.vectors)
    graph = StoredGraph(build_graph(Navigator(coder, width=segment.codes.width), items, segment.codes))
    searcher.pack(LiveSegment(segment, graph=graph))
    return graph
