"""The answers of the parts of a sharded index, merged to those of one index, wherever the parts are.

A search asks all parts and keeps the nearest of what they find. Parts are ranges of codes, so the neighborhood of a
query lies in the part whose range holds its code, or in that and its neighbors, where it reaches beyond the range.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, as_array, check_ids
from nestcode.coders import Coder
from nestcode.codes import Codes, is_single
from nestcode.errors import InvalidInput, import_extra
from nestcode.index.folders import check_distinct, check_same
from nestcode.index.snapshot import some_ids
from nestcode.index.tree import least_members
from nestcode.scale.ray.part import Facts, Work
from nestcode.search.evaluation import RecallTrials, TrueDistances
from nestcode.search.filters import check_allowed
from nestcode.search.hits import Evaluation, Hits, PartialHits, RangeHits, merge
from nestcode.search.request import Rank, Request, check_k, encode_to
from nestcode.search.scorer import SearchMetric
from nestcode.stores.neighborhood import Neighborhood

Condition = str | tuple[str, Sequence[Any]]
Wanted = ArrayLike | Condition
# (method of `Part`, arguments by part, whether parts may be missing) -> answers by part, and why parts are missing
Ask = Callable[[str, Mapping[int, tuple[Any, ...]], bool], tuple[dict[int, Any], dict[int, str]]]


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """The neighborhoods of several queries, with the arrays of `nestcode.index.Neighborhoods`."""

    found: tuple[Neighborhood, ...]

    @property
    def length(self) -> NDArray[np.int32]:
        """Bits that each shares with its query."""
        return np.array([hood.length for hood in self.found], dtype=np.int32)

    @property
    def count(self) -> NDArray[np.int64]:
        """Members of each."""
        return np.array([hood.count for hood in self.found], dtype=np.int64)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where the ids of each begin, and their end: (n + 1,)."""
        return np.cumsum([0, *(hood.count for hood in self.found)], dtype=np.int64)

    @property
    def ids(self) -> Ids:
        """The ids of all, one after the other."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(hood.ids for hood in self.found)])

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, i: int) -> Neighborhood:
        return self.found[i]

    def __iter__(self) -> Iterator[Neighborhood]:
        return iter(self.found)

    def __repr__(self) -> str:
        return f"Neighborhoods({len(self)}: length={self.length}, count={self.count})"


@dataclass(frozen=True, eq=False)
class Nested:
    """Every neighborhood of one query: `length` and `count` by the number of bits; `nested[length]` reads its ids."""

    count: NDArray[np.int64]
    members: Callable[[int], Ids]

    @property
    def length(self) -> NDArray[np.int32]:
        """The bits that each shares with the query, from 0."""
        return np.arange(len(self.count), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, length: int) -> Neighborhood:
        return Neighborhood(int(self.length[length]), self.members(int(self.length[length])))


@dataclass(frozen=True)
class _Plan:
    """The plans of all parts: what `RecallTrials` reads of a plan."""

    works: tuple[Work, ...]

    @property
    def compared(self) -> int:
        return sum(work.compared for work in self.works)

    @property
    def reranked(self) -> int:
        return max(work.reranked for work in self.works)

    def executed_ns(self, compared: float) -> float:
        """Return the nanoseconds of all parts together."""
        rest = (compared - self.compared) / len(self.works)
        return sum(work.ns + rest * work.ns_per_compared for work in self.works)


class PartsReader:
    """What an `Index` of several folders answers, asked of their parts.

    Args:
        facts: of each part.
        coder: of all of them.
        ask: asks parts.

    """

    def __init__(self, facts: Sequence[Facts], coder: Coder | None, ask: Ask) -> None:
        check_distinct([one.path for one in facts])
        check_same(
            [Path(one.path) for one in facts],
            [
                {"width": one.width, "coder": one.coder, "vectors": one.vectors, "attributes": one.columns}
                for one in facts
            ],
        )
        self.facts, self.coder, self._ask = tuple(facts), coder, ask
        self.width, self.columns, self.vector_type = facts[0].width, facts[0].columns, facts[0].vectors
        self.count = sum(one.items for one in facts)
        self._filled = [part for part, one in enumerate(facts) if len(one.bounds)] or [0]
        bounds = [facts[part].bounds.packed for part in self._filled if len(facts[part].bounds)]
        packed = np.array(bounds, dtype=np.uint8).reshape(-1, 2, -(-self.width // 8))
        self._least, self._greatest = (
            Codes.unchecked(np.ascontiguousarray(packed[:, end]), self.width) for end in range(2)
        )

    # search by distance

    def search(self, queries: Codes | ArrayLike, k: int = 10, *, allow_partial: bool = False, **options: Any) -> Hits:
        """Return the k nearest items of each query."""
        k, (rows, how) = check_k(k, self.count), self._request(queries, **options)
        found, missing = self._ask("search", self._each(rows, k, how), allow_partial)
        none = Hits(np.full((len(rows), k), -1), np.full((len(rows), k), np.inf, np.float32), np.zeros(len(rows), int))
        hits = merge([*found.values(), none], k)
        if is_single(queries):
            hits = Hits(hits.ids[0], hits.distances[0], int(hits.compared[0]))
        if not allow_partial:
            return hits
        return PartialHits(hits.ids, hits.distances, hits.compared, {self.facts[p].path: missing[p] for p in missing})

    def range_search(self, queries: Codes | ArrayLike, radius: float, **options: Any) -> Hits | RangeHits:
        """Return the candidates within a distance of each query."""
        rows, how = self._request(queries, **options)
        found, _ = self._ask("range_search", self._each(rows, radius, how), False)
        hits = tuple(_joined([answer[row] for answer in found.values()]) for row in range(len(rows)))
        return hits[0] if is_single(queries) else RangeHits(hits)

    def evaluate(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        filter: Wanted | None = None,  # noqa: A002
        **options: Any,
    ) -> Evaluation:
        """Measure the recall of a search, against an exhaustive one."""
        count = self.count if filter is None else len(self.matching(filter))
        options["filter"], distances = filter, None
        truth, rank, metric = options, options.get("rank"), options.get("metric")
        if self.vector_type is not None and not isinstance(queries, Codes) and rank != "hamming":
            request = Request(self.coder, self.width, queries, rank="exact", metric=metric, stored=True)
            distances = TrueDistances(request.queries, self.vectors, request.metric)
            truth = {**options, "rank": "exact"}
        true = self.search(queries, k, candidates=max(count, 1), **truth)
        trials = RecallTrials(self.search, self._explain, queries, k, count, options, true, distances)  # type: ignore[arg-type]
        return trials.run(candidates, rerank)

    def _explain(self, queries: Codes | ArrayLike, k: int, **options: Any) -> _Plan:
        rows, how = self._request(queries, **options)
        found, _ = self._ask("explain", self._each(rows, k, how), False)
        return _Plan(tuple(found.values()))

    def _request(
        self,
        queries: Codes | ArrayLike,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        filter: Wanted | None = None,  # noqa: A002
        threads: int | None = 1,
    ) -> tuple[Any, dict[str, Any]]:
        """Return checked queries as parts take them, a batch, and the other arguments of their search."""
        stored = self.vector_type is not None
        request = Request(self.coder, self.width, queries, rank=rank, metric=metric, stored=stored, threads=threads)
        rows = request.codes if request.codes is not None else request.queries
        if isinstance(rows, Codes):
            rows = Codes(rows.packed, rows.width)
        if request.codes is not None and rank == "hamming":
            rank = None  # which codes have
        how = {"candidates": candidates, "rerank": rerank, "rank": rank, "metric": metric, "threads": threads}
        how = {name: value for name, value in how.items() if value is not None or name == "threads"}
        return rows, how if filter is None else {**how, "filter": self._filter(filter)}

    # retrieval by prefix

    def neighborhood(
        self, queries: Codes | ArrayLike, *, size: int | None = None, fraction: float | None = None
    ) -> Neighborhood | Neighborhoods:
        """Return the smallest neighborhood of each query that has at least `size` members."""
        codes, least = self._encode(queries), least_members(size, fraction, self.count)
        codes = Codes(codes.packed, codes.width)
        reach = self._reach(codes)
        home = reach.argmax(axis=1) if len(self._filled) else np.zeros(len(codes), dtype=np.int64)
        rows = {part: np.flatnonzero(home == place) for place, part in enumerate(self._filled)}
        asked = {part: (codes[own], least) for part, own in rows.items() if len(own)}
        answers, _ = self._ask("neighborhoods", asked, False)
        found: list[Any] = [None] * len(codes)
        for part, answer in answers.items():
            for row, (length, ids) in zip(rows[part].tolist(), answer, strict=True):
                found[row] = Neighborhood(length, ids)
        beyond = np.array([hood.length for hood in found])[:, None] <= reach  # parts that may hold other members
        wider = np.flatnonzero(beyond.sum(axis=1) > 1)
        if len(wider):
            for row, hood in zip(wider.tolist(), self._widen(codes[wider], beyond[wider], least), strict=True):
                found[row] = hood
        return found[0] if is_single(queries) else Neighborhoods(tuple(found))

    def nested(self, query: Codes | ArrayLike) -> Nested:
        """Return every neighborhood of one query, from the root to the longest prefix that any item shares."""
        codes = self._encode(query)
        if len(codes) != 1:
            raise InvalidInput(f"nested takes one query, got {len(codes)}: call it for each")
        codes = Codes(codes.packed, codes.width)
        counts, _ = self._ask("counts", self._each(codes), False)
        total = np.sum([*counts.values()], axis=0)[0]

        def members(length: int) -> Ids:
            found, _ = self._ask("members", self._each(codes, [length]), False)
            return np.concatenate([answer[0] for answer in found.values()])

        return Nested(np.trim_zeros(total, "b") if total.any() else total[:1], members)

    def _reach(self, codes: Codes) -> NDArray[np.int32]:
        """Return how many bits each code can share with the items of each part, (n, parts), by the part's bounds."""
        if not len(self._least):
            return np.zeros((len(codes), len(self._filled)), dtype=np.int32)
        after, before = codes.common_prefix(self._least), codes.common_prefix(self._greatest)
        bits = np.pad(np.unpackbits(codes.packed, axis=1, count=self.width), [(0, 0), (0, 1)], constant_values=2)
        less, greater = (np.take_along_axis(bits, length, axis=1) for length in (after, before))
        return np.where(less == 0, after, np.where(greater == 1, before, self.width)).astype(np.int32)

    def _widen(self, codes: Codes, beyond: NDArray[np.bool_], least: int) -> Iterator[Neighborhood]:
        """Yield the neighborhoods of queries that may have members in several parts."""
        rows = {part: np.flatnonzero(beyond[:, place]) for place, part in enumerate(self._filled)}
        rows = {part: own for part, own in rows.items() if len(own)}
        counts, _ = self._ask("counts", {part: (codes[own],) for part, own in rows.items()}, False)
        total = np.zeros((len(codes), self.width + 1), dtype=np.int64)
        for part, answer in counts.items():
            total[rows[part]] += answer
        enough = total >= least
        lengths = np.where(enough.any(axis=1), self.width - enough[:, ::-1].argmax(axis=1), 0)
        asked = {part: (codes[own], lengths[own].tolist()) for part, own in rows.items()}
        members, _ = self._ask("members", asked, False)
        found: list[list[Ids]] = [[] for _ in range(len(codes))]
        for part in sorted(members):
            for row, ids in zip(rows[part].tolist(), members[part], strict=True):
                found[row].append(ids)
        return (Neighborhood(int(length), np.concatenate(ids)) for length, ids in zip(lengths, found, strict=True))

    # contents

    def matching(self, wanted: Wanted | None) -> Ids:
        """Return the ids of all items that a filter allows, ascending."""
        given = None if wanted is None else self._filter(wanted)
        found, _ = self._ask("matching", self._each(given), False)
        return np.sort(np.concatenate([*found.values()]))

    def is_latest(self) -> bool:
        """Return whether the folders of all parts hold the commits that were opened."""
        found, _ = self._ask("latest", self._each(), False)
        return all(found[part] == one.commit for part, one in enumerate(self.facts))

    def contains(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which ids are of items."""
        own = np.zeros(len(ids), dtype=np.bool_)
        for positions, _ in self._look_up("codes", ids):
            own[positions] = True
        return own

    def codes(self, ids: ArrayLike) -> Codes:
        """Return the codes of items by id."""
        wanted = check_ids(ids, distinct=False)
        packed = np.empty((len(wanted), -(-self.width // 8)), dtype=np.uint8)
        for positions, codes in self._look_up_all("codes", wanted):
            packed[positions] = codes.packed
        codes = Codes.unchecked(packed, self.width)
        return codes if np.ndim(ids) else codes[0]

    def vectors(self, ids: ArrayLike) -> Floats:
        """Return stored vectors by id."""
        if self.vector_type is None or self.coder is None:
            raise InvalidInput('this index stores no vectors: build it with vectors="float16"')
        wanted = check_ids(ids, distinct=False)
        rows = np.empty((len(wanted), self.coder.n_features_in_), dtype=np.float32)
        for positions, vectors in self._look_up_all("vectors", wanted):
            rows[positions] = vectors
        return rows if np.ndim(ids) else rows[0]

    def attributes(self, ids: ArrayLike, columns: Sequence[str] | str | None = None) -> Any:
        """Return attributes of items as a table of pyarrow, in the order of the ids; missing hits have nulls."""
        pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")
        wanted = np.ravel(as_array(ids, "ids"))
        known = np.flatnonzero(wanted != -1)
        tables, order = [], [np.empty(0, dtype=np.int64)]
        for positions, table in self._look_up_all("attributes", check_ids(wanted[known], distinct=False), columns):
            tables.append(table)
            order.append(known[positions])
        place = np.concatenate(order)
        rows = np.zeros(len(wanted), dtype=np.int64)
        rows[place] = np.arange(len(place))
        mask = np.ones(len(wanted), dtype=np.bool_)
        mask[place] = False
        return pa.concat_tables(tables).take(pa.array(rows, mask=mask))

    def _look_up_all(self, what: str, ids: Ids, *arguments: Any) -> list[tuple[NDArray[np.int64], Any]]:
        """Return what each part has of items, and their positions among the ids; raise if an id is in no part."""
        found = self._look_up(what, ids, *arguments)
        absent = np.delete(ids, np.concatenate([positions for positions, _ in found]))
        if len(absent):
            raise InvalidInput(f"ids must be of items in the index, but {some_ids(absent)} not: ask `id in index`")
        return found

    def _look_up(self, what: str, ids: Ids, *arguments: Any) -> list[tuple[NDArray[np.int64], Any]]:
        answers, _ = self._ask("look_up", self._each(what, ids, *arguments), False)
        return [*answers.values()]

    def _each(self, *arguments: Any) -> dict[int, tuple[Any, ...]]:
        """Return the same arguments for all parts."""
        return dict.fromkeys(range(len(self.facts)), arguments)

    @property
    def _encode(self) -> Callable[[Any], Codes]:
        return partial(encode_to, self.width, coder=self.coder)

    def _filter(self, wanted: Wanted) -> Any:
        """Return a filter as parts take it: a condition, or ids."""
        text = wanted[0] if isinstance(wanted, tuple) and wanted else wanted
        if isinstance(text, str) or type(text).__module__ == "pyarrow._compute":
            return wanted
        allowed = check_allowed(wanted)
        if allowed.dtype == bool:
            raise InvalidInput("a cluster filters by ids or a condition, got a mask: give np.flatnonzero(mask)")
        return allowed


def _joined(parts: Sequence[Hits]) -> Hits:
    """Return the hits of one query in all parts, nearest first."""
    ids, distances = (np.concatenate([getattr(hits, name) for hits in parts]) for name in ("ids", "distances"))
    order = np.lexsort((ids, distances))
    return Hits(ids[order], distances[order], sum(hits.compared for hits in parts))
