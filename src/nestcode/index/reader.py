"""The reading half of an index: its contents, neighborhoods by prefix and searches by distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, as_array, check_ids, check_int, is_number, shown
from nestcode.coders import Coder
from nestcode.codes import Codes, is_single
from nestcode.errors import InvalidInput
from nestcode.index import compaction
from nestcode.index.live import LiveSnapshot
from nestcode.index.snapshot import Snapshot
from nestcode.index.tree import Neighborhoods
from nestcode.search.evaluation import RecallTrials, TrueDistances
from nestcode.search.filters import EVERYTHING, Filter, Filtering, RecentFilters, filter_of
from nestcode.search.hits import Evaluation, Hits, RangeHits
from nestcode.search.planner import Effort, Plan
from nestcode.search.request import Rank, Request, encode_to
from nestcode.search.scorer import SearchMetric
from nestcode.search.searcher import Searcher
from nestcode.search.vectors import VectorFormat, VectorsById, VectorType

if TYPE_CHECKING:
    from nestcode.search.hybrid import Text


class IndexReader:
    """The half of `Index` that reads; each call reads the snapshot that was current when it began."""

    _coder: Coder | None
    _effort: Effort | None = None
    _vector_format: VectorFormat | None
    _searcher: Searcher
    _live: LiveSnapshot
    _largest: int
    _recent: RecentFilters

    @property
    def coder(self) -> Coder | None:
        """The coder of the index: a copy from the time it was passed."""
        return self._coder

    @coder.setter
    def coder(self, _: object) -> None:
        raise _fixed("coder", "make another with Index(coder), and add the items to that")

    @property
    def graph(self) -> bool:
        """Whether large segments get graphs for searches."""
        return self._searcher.graphs

    @graph.setter
    def graph(self, _: object) -> None:
        raise _fixed("graph", "make another with Index(coder, graph=True), and merge this one into it")

    @property
    def graph_pending(self) -> bool:
        """Whether a graph is still being built; until then recall can be lower. `wait` waits for it."""
        return self.graph and compaction.pick_for_graph(self._live.current.segments) is not None

    @property
    def effort(self) -> Effort | None:
        """The default effort of searches: `tune` chooses it, and files keep it."""
        return self._effort

    @effort.setter
    def effort(self, effort: Effort | None) -> None:
        if effort is not None and not isinstance(effort, Effort):
            raise InvalidInput(f"effort must be an Effort or None, got {effort!r}: call tune, or copy another index's")
        self._effort = effort

    # contents

    @property
    def width(self) -> int:
        """Bits of each code."""
        return self._live.current.width

    @width.setter
    def width(self, _: object) -> None:
        raise _fixed("width", "truncate(width) keeps fewer bits")

    def __len__(self) -> int:
        return len(self._live.current)

    @property
    def ids(self) -> Ids:
        """All ids, ascending."""
        return self._live.read().ids()

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        return bool(self.contains(np.array([item]))[0])

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return which ids are in the index.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), ids=[5, 3])
        >>> index.contains([3, 4, 5])
        array([ True, False,  True])
        """
        return self._live.read().locate(check_ids(ids, distinct=False))[0] >= 0

    def codes(self, ids: ArrayLike) -> Codes:
        """Return the codes of items by id: one code for one id.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), ids=[5, 3])
        >>> index.codes([3, 5])
        Codes(2 items of 2 bits: 11, 01)
        """
        snapshot = self._live.read()
        codes = snapshot.codes(snapshot.locate_all(check_ids(ids, distinct=False)))
        return codes if np.ndim(ids) else codes[0]

    def bounds(self) -> Codes:
        """Return the least and the greatest code, including removed items; empty `Codes` if there are none.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1], [1, 0]]))
        >>> index.bounds()
        Codes(2 items of 2 bits: 01, 11)
        """
        snapshot = self._live.read()
        ends = [run.codes_at(np.array([0, len(run.ids) - 1])) for run in snapshot.runs]
        if not ends:
            return Codes.unchecked(np.empty((0, -(-snapshot.width // 8)), dtype=np.uint8), snapshot.width)
        packed = np.concatenate([codes.packed for codes in ends])
        ordered = Codes.unchecked(packed, snapshot.width)
        return ordered[ordered.sort_order()[[0, -1]]]

    def reconstruct(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Decode the stored codes of items: one vector for one id, (n, features) for n ids.

        >>> from nestcode import Index, LinearCoder
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
        """The type of stored vectors, "float32", "float16" or "int8"; None if the index stores none."""
        return None if self._vector_format is None else self._vector_format.dtype

    def vectors(self, ids: ArrayLike) -> Floats:
        """Return the stored vectors, rounded as they are stored: one vector for one id, (n, features) for n ids.

        >>> from nestcode import Index, LinearCoder
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> index = Index(LinearCoder(width=3).fit(X), vectors="float16")
        >>> index.add(X)
        >>> index.vectors(5), index.vectors([5])
        (array([10., 11.], dtype=float32), array([[10., 11.]], dtype=float32))
        """
        if self._vector_format is None:
            raise InvalidInput('this index stores no vectors: make it with Index(coder, vectors="float16")')
        snapshot = self._live.read()
        vectors = snapshot.vectors(snapshot.locate_all(check_ids(ids, distinct=False)))
        return vectors if np.ndim(ids) else vectors[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all segments and the buffer, in memory or mapped, and of the arrays that searches prepared."""
        return sum(self.nbytes_by_part().values())

    def nbytes_by_part(self) -> dict[str, int]:
        """Return the bytes of each part: the arrays in files by name, the buffer and the arrays that searches prepared.

        >>> from nestcode import Index
        >>> index = Index(width=64)
        >>> index.add(Codes.from_bits(np.eye(64).repeat(100, axis=0) > 0))
        >>> parts = index.nbytes_by_part()
        >>> parts["codes"], parts["ids"]  # ids take 8 bytes where one of them is 2^32 or more
        (51200, 25600)
        """
        return self._live.current.nbytes_by_part() | {"prepared": self._searcher.nbytes}

    def __repr__(self) -> str:
        items = "item" if len(self) == 1 else "items"
        coder = "" if self.coder is None else f", {self.coder!r}"
        vectors = "" if self.vector_type is None else f", vectors={self.vector_type!r}"
        segments = self._live.current.segments
        lacking = compaction.pick_for_graph(segments) is not None
        built = any(one.graph is not None for one in segments)  # small segments get none
        graph = f", graph={'being built' if lacking else 'built' if built else True}" if self.graph else ""
        return f"{type(self).__name__}({len(self)} {items} of {self.width} bits{coder}{vectors}{graph})"

    # filters

    def filter(self, wanted: Filtering) -> Filter:
        """Prepare a filter for many searches.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> wanted = index.filter([1, 3])
        >>> index.search(Codes.from_bits([[0, 0, 1]]), k=2, filter=wanted).ids
        array([[1, 3]])

        The index evaluates the filter once for each segment, and after an addition only for the new items. A prepared
        condition allows later items that meet it; prepared ids and masks allow only the items that they name.

        Args:
            wanted: ids; a mask by id, with an entry for each id up to the largest that the index used; or a condition
                on attributes, as in SQL: `"lang = 'en' AND year > 2020"`, `("year > ?", [2020])` with parameters, or
                `pc.field("year") > 2020` of pyarrow.

        """
        return self._filter(self._live.read(), wanted, lasting=True)

    def matching(self, wanted: Filtering) -> Ids:
        """Return the ids of all items that a filter allows, ascending.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.matching([False, True, True, False])
        array([1, 2])
        """
        snapshot = self._live.read()
        return snapshot.ids(self._filter(snapshot, wanted))

    # attributes

    @property
    def columns(self) -> dict[str, str]:
        """The columns of attributes by name, with their types; empty if the index has no attributes.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), attributes={"lang": ["en", "de"], "year": [2020, 2024]})
        >>> index.columns
        {'lang': 'string', 'year': 'int64'}
        """
        return dict(self._live.current.schema or {})

    def attributes(self, ids: ArrayLike, columns: Sequence[str] | str | None = None) -> Any:
        """Return attributes of items as a table of pyarrow, in the order of the ids.

        >>> from nestcode import Index
        >>> index = Index(width=2)
        >>> index.add(Codes.from_bits([[0, 1], [1, 1]]), attributes={"lang": ["en", "de"], "year": [2020, 2024]})
        >>> hits = index.search(Codes.from_bits([[1, 1]]), k=2, filter="year > 2020")
        >>> index.attributes(hits.ids, columns=["lang"]).to_pylist()
        [{'lang': 'de'}, {'lang': None}]

        Args:
            ids: ids of items, for example `hits.ids`. The table has one row per id, query after query; missing hits,
                whose ids are -1, have null rows.
            columns: names of columns; by default all. Other columns are not read.

        """
        snapshot = self._live.read()
        if snapshot.schema is None:
            raise InvalidInput("this index has no attributes: give them as index.add(items, attributes=table)")
        from nestcode.search.attributes import check_columns

        names = check_columns(columns, snapshot.schema)
        wanted = np.ravel(as_array(ids, "ids"))
        missing = wanted == -1
        run, position = np.full(len(wanted), -1), np.full(len(wanted), -1)
        run[~missing], position[~missing] = snapshot.locate_all(check_ids(wanted[~missing], distinct=False))
        return snapshot.attributes((run, position), names).table()  # type: ignore[union-attr]

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

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.neighborhood(Codes.from_bits([[0, 0, 1]]), size=2)
        Neighborhoods(1: length=[2], count=[2])

        This is the paper's retrieval (section 5.1). It compares prefixes only; its time is logarithmic in the number of
        items and independent of the width.

        Args:
            queries: one vector or (n, features) with a coder, or `Codes`. For one vector or `Code` the result is a
                `Neighborhood` with `length`, `count` and `ids`; for several it is `Neighborhoods`, and `hoods[i]` is a
                `Neighborhood`. `ids` are in the order of the tree.
            size: the least number of members (R in the paper). If the index has fewer items, the neighborhood is the
                root.
            fraction: instead of a size, the least share of all items.
            threads: how many threads share a batch; None is one for each core.

        """
        forest = self._live.read().forest
        if isinstance(queries, Codes):
            queries = encode_to(forest.width, queries, self.coder)
            return forest.neighborhood(queries, size=size, fraction=fraction, threads=threads)
        hoods = forest.neighborhoods(encode_to(forest.width, queries, self.coder), size, fraction, threads)
        return hoods[0] if is_single(queries) else hoods

    def nested(self, query: Codes | ArrayLike) -> Neighborhoods:
        """Return every neighborhood of one query, from the root to the longest prefix that any item shares.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 1, 0], [1, 1, 1]]))
        >>> index.nested(Codes.from_bits([[0, 1, 1]])).count
        array([3, 2, 1])
        """
        forest = self._live.read().forest
        return forest.nested(encode_to(forest.width, query, self.coder))

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
        filter: Filtering | None = None,  # noqa: A002
        text: Text | None = None,
        threads: int | None = 1,
    ) -> Hits:
        """Return the k nearest items of each query.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X))
        >>> index.add(X)
        >>> index.search(X[:3], k=1).ids.tolist()
        [[0], [1], [2]]
        >>> hits = index.search(X[7], k=2, vectors=X)  # reranked by the vectors themselves
        >>> int(hits.ids[0]), float(hits.distances[0])
        (7, 0.0)

        Args:
            queries: one vector, (n, features), or `Codes`. For one vector or `Code` the arrays have shape (k,).
            k: the number of hits, at most 65,536. If there are fewer items, the last ids are -1.
            candidates: the candidate budget. A search probes inverted lists, nearest first, until they hold this number
                of items; on a graph it is the beam width (ef). More candidates raise recall and latency, and
                `len(index)` makes the search exhaustive. The default is the choice of `tune`. Without `tune`, lists
                score 10,000 items plus 2 % of all, a graph keeps 4 k nodes (at least 100), and queries whose nearest
                items come late get more.
            rerank: the number of candidates, best estimates first, that are scored precisely. The default is the choice
                of `tune`; without `tune` it is 4 k (at least 100), and more while the next candidates include near
                items.
            rank: "asymmetric" compares vectors with decoded codes (ADC), "hamming" compares codes with codes, and
                "exact" compares vectors with `vectors` or the stored vectors. The default is the most precise one that
                is possible.
            metric: "l2" returns squared distances, "cosine" squared distances of L2-normalized vectors (2 - 2 cos), and
                "inner" negative inner products; by default the coder's metric. The cosine with a zero vector is 0 (a
                distance of 2).
            vectors: the vectors to rerank by, instead of the stored vectors: an array or a memory map with a row for
                each id, a mapping from ids to vectors, or a function that returns the vectors of an array of ids.
            filter: the items that may be found: a condition on attributes, ids, a mask by id, or a filter that `filter`
                prepared. Unless you set `candidates`, a search scans all allowed items if that is faster than lists or
                a walk.
            text: words to match as well (hybrid search): one text for all queries, or a list with one for each, or
                `{column: text}` if the index has several columns of strings. The search ranks the items by distance and
                by BM25, and fuses both rankings by reciprocal rank. So hits are not in the order of their distances.
            threads: how many threads share a batch; None is one for each core.

        """
        snapshot = self._live.read()
        request = self._request(
            snapshot, queries, rank=rank, metric=metric, vectors=vectors, filter=filter, threads=threads
        )
        if text is not None:
            from nestcode.search.hybrid import search_hybrid

            return search_hybrid(
                self._searcher, snapshot, snapshot.schema, request, text, k, candidates, rerank, self.effort
            )
        return self._searcher.search(snapshot, request, k, candidates, rerank, self.effort)

    def explain(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        filter: Filtering | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Plan:
        """Return the plan by which `search` would execute the same arguments, with its expected cost.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X), vectors="float32")
        >>> index.add(X)
        >>> plan = index.explain(X[7], k=5)
        >>> plan.operator, plan.allowed
        ('scan', 2000)
        >>> index.explain(X[7], k=5, candidates=100).operator
        'lists'
        """
        snapshot = self._live.read()
        request = self._request(
            snapshot, queries, rank=rank, metric=metric, vectors=vectors, filter=filter, threads=threads
        )
        return self._searcher.explain(snapshot, request, k, candidates, rerank, self.effort)

    def range_search(
        self,
        queries: Codes | ArrayLike,
        radius: float,
        *,
        candidates: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        filter: Filtering | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Any:
        """Return the candidates within a distance, nearest first: `Hits` of one query, `RangeHits` of several.

        >>> from nestcode import Index
        >>> index = Index(width=3)
        >>> index.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]]))
        >>> index.range_search(Codes.from_bits([[0, 0, 1]]), 1)[0].ids
        array([0, 1])

        Distances and the other arguments are those of `search`. Items beyond the candidate budget are not compared:
        `candidates=len(index)` finds all items within the radius.
        """
        snapshot = self._live.read()
        request = self._request(
            snapshot, queries, rank=rank, metric=metric, vectors=vectors, filter=filter, threads=threads
        )
        found: Hits | RangeHits = self._searcher.range_search(snapshot, request, radius, candidates, self.effort)
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
        filter: Filtering | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Evaluation:
        """Measure the recall of a search and the work it does.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=24).fit(X))
        >>> index.add(X)
        >>> round(index.evaluate(X[:100], k=5, vectors=X).recall, 1)  # reranked by vectors
        1.0
        >>> round(index.evaluate(X[:100], k=5, exact=X).recall, 1)  # by codes alone
        0.7

        An exhaustive search defines the true neighbors. It compares vectors: `exact`, `vectors` or the stored vectors.
        Without vectors it compares codes, and recall shows only the loss by probing few lists. Use queries that are not
        in the index: a stored query finds itself. The other arguments are those of `search`; a filter applies to the
        true neighbors too.
        """
        how: dict[str, Any] = {"rank": rank, "metric": metric, "vectors": vectors, "filter": filter}
        trials = self._trials(queries, k, exact, threads=threads, **how)
        return trials.run(candidates, rerank)

    def tune(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        target_recall: float = 0.9,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        exact: VectorsById | None = None,
        filter: Filtering | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Evaluation:
        """Choose `candidates` and `rerank` for later searches: the fastest measured ones that reach a recall.

        >>> from nestcode import CellCoder, Index
        >>> X = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
        >>> index = Index(CellCoder(width=64).fit(X[:3900]))
        >>> index.add(X[:3900])
        >>> found = index.tune(X[3900:], target_recall=0.9)
        >>> found.recall - found.standard_error >= 0.9
        True
        >>> index.effort.candidates < 2000
        True

        Recall must exceed the target by its standard error over the queries, so that similar queries usually reach it
        too. More queries make the error smaller and the searches faster.

        `evaluate` measures the recall. The choice is kept as `index.effort` and saved with the index; a reader keeps it
        until it is closed, also after `refresh`. As the index grows, searches score the same share of its items; on
        graphs, which `tune` waits for, they keep the same beam width. If no search reaches the target, `tune` warns and
        chooses the fastest search near the best recall. It also warns about fewer than ten queries: their recall says
        little about new queries.

        An index of several folders cannot save the choice: open each folder with mode="a", assign the same `effort`,
        and commit.
        """
        check_recall(target_recall)
        self._live.wait()
        how: dict[str, Any] = {"rank": rank, "metric": metric, "vectors": vectors, "filter": filter}
        trials = self._trials(queries, k, exact, threads=threads, **how)
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
        filter: Filtering | None,  # noqa: A002
        **options: Any,
    ) -> RecallTrials:
        k, allowed = check_int(k, "k", least=1), EVERYTHING if filter is None else self.filter(filter)
        options = {"metric": metric, "filter": allowed, **options}
        by_codes = isinstance(queries, Codes) or options["rank"] == "hamming"
        given = options["vectors"] if exact is None else exact
        stored = given is None and self._vector_format is not None and not by_codes
        snapshot, distances, truth = self._live.read(), None, options
        if given is not None or stored:
            known = self.vectors if given is None else given
            request = self._request(snapshot, queries, rank="exact", metric=metric, vectors=known)
            assert request.vectors is not None
            distances = TrueDistances(request.queries, request.vectors.rows, request.metric)
            truth = {**options, "rank": "exact", "vectors": given}
        count = sum(allowed.kept(run).count for run in snapshot.runs)
        true = self.search(queries, k, candidates=max(count, 1), **truth)
        return RecallTrials(self.search, self.explain, queries, k, count, options, true, distances)

    def _request(
        self,
        snapshot: Snapshot,
        queries: Codes | ArrayLike,
        filter: Filtering | None = None,  # noqa: A002
        **options: Any,
    ) -> Request:
        """Return the checked request of a search; see `Request` for other options."""
        stored = self._vector_format is not None
        allowed = EVERYTHING if filter is None else self._filter(snapshot, filter)
        return Request(self._coder, snapshot.width, queries, stored=stored, allowed=allowed, **options)

    def _filter(self, snapshot: Snapshot, wanted: Filtering, *, lasting: bool = False) -> Filter:
        """Return a filter for the items of a snapshot, or a lasting filter that allows later items too."""
        if isinstance(wanted, Filter):
            return wanted
        if _is_condition(wanted):
            if snapshot.schema is None:
                raise InvalidInput(
                    f"a condition looks at attributes, but this index has none, got {wanted!r:.80}: give them as "
                    "index.add(items, attributes=table), or filter by ids or a mask"
                )
            from nestcode.search.conditions import condition_filter

            return condition_filter(wanted, snapshot.schema)
        make = filter_of if lasting else self._recent.of
        return make(wanted, snapshot.largest, self._largest)


def check_recall(target: float) -> float:
    """Return a target recall, or raise."""
    if not is_number(target) or not 0 < target <= 1:
        raise InvalidInput(f"target_recall must be above 0 and at most 1, got {shown(target)}: 0.95 is 95 %")
    return float(target)


def _is_condition(wanted: object) -> bool:
    """Return whether a filter is a text, a text and its parameters, or an expression of pyarrow."""
    text = wanted[0] if isinstance(wanted, tuple) and wanted else wanted
    return isinstance(text, str) or (type(text).__module__, type(text).__name__) == ("pyarrow._compute", "Expression")


def _fixed(name: str, remedy: str) -> InvalidInput:
    return InvalidInput(f"an index keeps the {name} that it was made with, and index.{name} is only read: {remedy}")
