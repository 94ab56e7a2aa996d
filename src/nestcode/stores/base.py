"""The base of all stores: codes by id in the order of their bytes, validation, search and neighborhoods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Bytes, Ids, as_array, check_budget, check_ids, check_int
from nestcode.coders import Coder, coder_from_record
from nestcode.codes import Codes, is_single
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index.ordered import Scan, key_of, key_range
from nestcode.index.snapshot import OnDuplicate, some_ids
from nestcode.search.filters import check_allowed
from nestcode.search.hits import Hits, RangeHits
from nestcode.search.planner import choose_candidates, choose_rerank
from nestcode.search.preparation import scorer_for
from nestcode.search.ranging import search_range
from nestcode.search.request import Rank, Request, check_k, encode_to
from nestcode.search.scorer import Scorer, SearchMetric
from nestcode.search.vectors import VectorsById
from nestcode.storage import parse_record, record_bytes
from nestcode.stores.neighborhood import Neighborhood, find_neighborhood
from nestcode.stores.search import KeyRange, list_ranges, search_lists

COUNTED_IDS = 1000  # ids of a filter that are not worth a sample
SAMPLED_IDS = 4096  # ids of a filter that are looked up to estimate how many of them the store holds
PASSED_PER_CHOSEN = 1.1  # items that lists hold, by which ids that are chosen at random may be missed
READ_PER_CANDIDATE = 4  # items of the budget, where chosen ids lie far from a query
MAX_SCANNED_ITEMS = 1 << 62  # of one scan: half of it more is still a 64-bit integer, as databases require of limits


class DuplicateIds(Exception):
    """Some of the ids to insert are in the store."""


class MissingIds(Exception):
    """Some of the ids to delete are not in the store."""


class Closed:
    """The placeholder for the connection of a closed store."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidInput("the store is closed: open another")


class CodeStore(ABC):
    """Codes by id in a database, found by prefix or by distance as in a `nestcode.Index`.

    >>> from nestcode import LinearCoder
    >>> from nestcode.stores import SqliteStore
    >>> X = np.random.default_rng(0).standard_normal((500, 8))
    >>> store = SqliteStore.create(":memory:", LinearCoder(width=32).fit(X))
    >>> store.add(X, ids=np.arange(500))
    >>> store.neighborhood(X[3], size=1).ids, store.search(X[3], k=1).ids
    (array([3]), array([3]))

    Subclasses scan keys, which are the bytes of codes. They never hold more of the database than an answer needs, so
    any number of processes may read and write it; each scan is of one snapshot.
    """

    MAX_BYTES: int | None = None  # of a code

    def __init__(self, width: int, coder: Coder | None) -> None:
        self.width, self.coder = width, coder
        self._scorer = lru_cache(maxsize=2)(self._make_scorer)

    # what a database does

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _ascend(self, key: bytes, limit: int) -> Scan:
        """Return the first `limit` items of at least a key, ascending."""

    @abstractmethod
    def _descend(self, key: bytes, limit: int) -> Scan:
        """Return the last `limit` items below a key, descending."""

    @abstractmethod
    def _range(self, low: bytes, high: bytes) -> Scan:
        """Return all items from key `low` to below key `high`, ascending."""

    def _around(self, key: bytes, limit: int, length: int) -> tuple[Scan, Scan]:
        """Return the results of `_ascend` and `_descend` on one snapshot, with prefixes of the codes."""
        with self._reading():
            after, before = self._ascend(key, limit), self._descend(key, limit)
        return Scan(after.ids, after.codes.prefix(length)), Scan(before.ids, before.codes.prefix(length))

    @abstractmethod
    def _select(self, ids: Ids) -> Scan:
        """Return the items of some ids; ids that are not in the store are left out."""

    @abstractmethod
    def _insert(self, items: Scan, *, replace: bool) -> None:
        """Insert all items or none; raise DuplicateIds if an id is in use and must not be replaced."""

    @abstractmethod
    def _delete(self, ids: Ids) -> None:
        """Delete all items of these ids; delete none and raise MissingIds where one is missing."""

    @abstractmethod
    def _estimated_count(self) -> int:
        """Return a fast estimate of the number of items."""

    def _reading(self) -> AbstractContextManager[object]:
        """Return a context whose scans are of one snapshot."""
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """Close the connection, unless you passed it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ordered access (nestcode.index.ordered)

    def ascend(self, code: Codes, limit: int) -> Scan:
        """Return the first `limit` items whose codes are at least `code`, ascending."""
        return self._ascend(key_of(self._encode(code)), _check_limit(limit, "limit"))

    def descend(self, code: Codes, limit: int) -> Scan:
        """Return the last `limit` items whose codes are less than `code`, descending."""
        return self._descend(key_of(self._encode(code)), _check_limit(limit, "limit"))

    def around(self, code: Codes, limit: int, length: int) -> tuple[Scan, Scan]:
        """Return the results of `ascend` and `descend` on one snapshot, with the first `length` bits of codes.

        >>> from nestcode.stores import SqliteStore
        >>> store = SqliteStore.create(":memory:", width=2)
        >>> store.add(Codes.from_bits([[0, 1], [1, 1], [1, 0]]), ids=[5, 3, 4])
        >>> store.around(Codes.from_bits([[1, 0]]), limit=1, length=1)
        (Scan(ids=array([4]), codes=Codes(1 item of 1 bit: 1)), Scan(ids=array([5]), codes=Codes(1 item of 1 bit: 0)))
        """
        query, limit = self._encode(code), _check_limit(limit, "limit")
        return self._around(key_of(query), limit, query.prefix(length).width)

    def range(self, prefix: Codes) -> Scan:
        """Return all items whose codes begin with `prefix`, ascending.

        >>> from nestcode.stores import SqliteStore
        >>> store = SqliteStore.create(":memory:", width=2)
        >>> store.add(Codes.from_bits([[0, 1], [1, 1], [1, 0]]), ids=[5, 3, 4])
        >>> store.range(Codes.from_bits([[1]]))
        Scan(ids=array([4, 3]), codes=Codes(2 items of 2 bits: 10, 11))
        """
        return self._range(*key_range(prefix, self.width))

    # contents

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        return len(self._select(np.array([item], dtype=np.int64)).ids) > 0

    def codes(self, ids: ArrayLike) -> Codes:
        """Return the codes of items by id: one code for one id."""
        wanted = check_ids(ids, distinct=False)
        found = self._select(np.unique(wanted))
        order = np.argsort(found.ids)
        place = np.searchsorted(found.ids, wanted, sorter=order)
        missing = ~np.isin(wanted, found.ids)
        if missing.any():
            raise InvalidInput(f"ids must be of items in the store, but {some_ids(wanted[missing])} not")
        codes = found.codes[order[place]]
        return codes if np.ndim(ids) else codes[0]

    # retrieval

    def neighborhood(
        self,
        queries: Codes | ArrayLike,
        *,
        size: int,
        filter: Any = None,  # noqa: A002
    ) -> Any:
        """Return the smallest neighborhood of each query that has at least `size` members.

        Args:
            queries: one vector or (n, features) with a coder, or `Codes`. For one vector or `Code` the result is a
                `Neighborhood`, for several it is a list.
            size: the least number of members (R in the paper). If the store has fewer items, the neighborhood is the
                root.
            filter: in SQL stores, a condition on the items that count: see `search`.

        """
        size = _check_limit(size, "size")
        view, chosen = self._filtered(filter)
        if chosen is not None:
            raise InvalidInput("neighborhoods are filtered by SQL, got ids: give a condition to a SQL store")
        codes = self._encode(queries)
        found = [view._find_neighborhood(code, size) for code in codes]
        return found[0] if is_single(queries) else found

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
        filter: Any = None,  # noqa: A002
        threads: int | None = 1,
    ) -> Hits:
        """Return the k nearest items of each query, as `nestcode.Index.search` does.

        Args:
            queries: one vector, (n, features), or `Codes`. One vector or one `Code` gives arrays of shape (k,).
            k: how many.
            candidates: the candidate budget: the store probes inverted lists, nearest first, until they hold this
                number of items, and ranks all of these by their whole codes. By default 10,000 plus 2 % of all items.
            rerank: the number of candidates to rerank by `vectors`, or by the decoding network; by default 10 k and at
                least 100.
            rank: "asymmetric" compares vectors with decoded codes (ADC), "hamming" codes with codes, "exact" vectors
                with `vectors`. By default the most precise that is possible.
            metric: "l2" gives squared distances, "cosine" those of L2-normalized vectors, 2 - 2 cos, "inner" negative
                inner products; the coder's by default.
            vectors: the vectors of the items by id: an array with a row for each id, a mapping from ids to vectors, or
                a function that returns the vectors of an array of ids, for example from a column of your table.
            filter: the items that may be found: ids; a mask by id, which allows no ids beyond its end; or, in SQL
                stores, a condition in SQL, alone or with the values of its placeholders: `("price < ?", [10])`, or
                `("price < ?", 10)`.
            threads: the number of threads that decode candidates; None uses all cores.

        """
        view, chosen = self._filtered(filter)
        how: dict[str, Any] = {"rank": rank, "metric": metric, "vectors": vectors, "threads": threads}
        request = Request(self.coder, self.width, queries, place="store", **how)
        count = self._estimated_count()
        held = count if chosen is None else self._estimate_held(chosen)
        budget, reranked = max(choose_candidates(candidates, held), check_k(k, count)), choose_rerank(rerank, k)
        scorer = self._scorer(request.by_codes)
        lists = list_ranges(scorer.list_bits(count), self.width)
        if budget >= count:
            few: Scan | None = keep(view._range(*list_ranges(0, self.width)[0]), chosen)
        elif chosen is not None and held <= budget:
            few = self._select(chosen)
        else:
            few = view._at_most(budget)
        if few is not None:
            return search_lists(request, scorer, k, lists, reranked, lambda _: few)
        share = 0.0 if chosen is None or candidates is not None else min(held / count, 1.0)
        return search_lists(request, scorer, k, lists, reranked, lambda near: view._probe(near, budget, chosen, share))

    def range_search(
        self, queries: Codes | ArrayLike, radius: float, *, candidates: int | None = None, **options: Any
    ) -> Hits | RangeHits:
        """Return the candidates within a distance, nearest first: `Hits` of one query, `RangeHits` of several.

        >>> from nestcode.stores import SqliteStore
        >>> store = SqliteStore.create(":memory:", width=3)
        >>> store.add(Codes.from_bits([[0, 0, 1], [0, 0, 0], [1, 1, 0]]), ids=[5, 3, 4])
        >>> store.range_search(Codes.from_bits([[0, 0, 1]]), 1)[0].ids
        array([5, 3])

        The other arguments are those of `search`. Items beyond the candidate budget are not compared.
        """
        rows = queries if isinstance(queries, Codes) else np.atleast_2d(as_array(queries))
        search = partial(self.search, candidates=candidates, **options)
        return search_range(search, rows, radius, single=is_single(queries))

    def _estimate_held(self, chosen: Ids) -> int:
        """Estimate how many of these ids are in the store."""
        if len(chosen) <= COUNTED_IDS:
            return len(chosen)
        sample = chosen
        if len(chosen) > SAMPLED_IDS:
            sample = np.random.default_rng(0).choice(chosen, SAMPLED_IDS, replace=False, shuffle=False)
        return round(len(self._select(sample).ids) / len(sample) * len(chosen))

    def _at_most(self, budget: int) -> Scan | None:  # noqa: ARG002
        """Return all items that meet a condition if there are at most `budget`, or None."""
        return None

    def _probe(self, lists: list[KeyRange], budget: int, chosen: Ids | None, share: float) -> Scan:
        """Return the items of the first lists that hold `budget` items, or of all lists.

        If the chosen ids are far from a query, lists hold less than their `share` of them, and more lists are probed.
        """
        scans, held, passed = [self._scan([], [])], 0, 0
        with self._reading():
            for low, high in lists:
                every = self._range(low, high)
                scans.append(keep(every, chosen))
                held, passed = held + len(scans[-1].ids), passed + len(every.ids)
                if is_enough(held, passed, budget, share):
                    break
        return concat(scans)

    def _find_neighborhood(self, query: Codes, size: int) -> Neighborhood:
        """Return the smallest neighborhood of a query with at least `size` members."""
        return find_neighborhood(self, query, size)

    def _filtered(self, condition: Any) -> tuple[CodeStore, Ids | None]:
        """Return a view of the items that a filter allows, and the allowed ids among them, or None for all."""
        if condition is None:
            return self, None
        chosen = check_allowed(condition)
        return self, np.flatnonzero(chosen) if chosen.dtype == bool else np.unique(chosen)

    # writes

    def add(self, items: Codes | ArrayLike, ids: ArrayLike, *, on_duplicate: OnDuplicate = "error") -> None:
        """Add items, vectors for the coder or codes: all of them or, on an error, none.

        >>> from nestcode.stores import SqliteStore
        >>> store = SqliteStore.create(":memory:", width=2)
        >>> store.add(Codes.from_bits([[0, 1], [1, 1]]), ids=[5, 3])
        >>> store.add(Codes.from_bits([[0, 0]]), ids=[5], on_duplicate="replace")
        >>> store.codes([3, 5])
        Codes(2 items of 2 bits: 11, 00)

        Args:
            items: (n, features), one vector, or `Codes`.
            ids: a distinct integer of at least 0 for each, such as the keys of your own table.
            on_duplicate: if an id is in use, "error" raises and changes nothing, and "replace" stores the new item.

        """
        if on_duplicate not in ("error", "replace"):
            raise InvalidInput(f'on_duplicate must be "error" or "replace", got {on_duplicate!r}')
        codes = self._encode(items)
        known = check_ids(ids, len(codes))
        order = codes.sort_order()  # a b-tree takes sorted keys several times as fast
        try:
            self._insert(Scan(known[order], codes[order]), replace=on_duplicate == "replace")
        except DuplicateIds as error:
            taken = self._select(known).ids
            if not len(taken) and error.__cause__ is not None:  # another constraint, or the id is free again
                raise error.__cause__ from None
            raise InvalidInput(
                f'ids must be new, but {some_ids(taken)} in use: give other ids, or pass on_duplicate="replace"'
            ) from None

    def remove(self, ids: ArrayLike) -> None:
        """Remove items; if an id is not in the store, raise and remove nothing."""
        unwanted = check_ids(ids)
        try:
            self._delete(unwanted)
        except MissingIds:
            missing = np.setdiff1d(unwanted, self._select(unwanted).ids)
            raise InvalidInput(f"ids must be of items in the store, but {some_ids(missing)} not") from None

    # internals

    def _make_scorer(self, by_codes: bool) -> Scorer:
        return scorer_for(None if by_codes else self.coder, self.width)

    def _encode(self, items: Codes | ArrayLike) -> Codes:
        return encode_to(self.width, items, self.coder, "store")

    @property
    def _code_bytes(self) -> int:
        return -(-self.width // 8)

    def _scan(self, ids: Sequence[int], codes: Sequence[bytes]) -> Scan:
        """Return items from the keys and values of a database."""
        self._check_codes(codes)
        return self._packed_scan(np.array(ids, dtype=np.int64), b"".join(codes))

    def _check_codes(self, codes: Iterable[object]) -> None:
        """Raise unless values of the database are codes of the store."""
        size = self._code_bytes
        if not all(type(code) is bytes and len(code) == size for code in codes):
            raise self._foreign_items()

    def _foreign_items(self) -> DamagedFile:
        return DamagedFile(
            f"items of this store have an id of at least 0 and a code of {self.width} bits in {self._code_bytes} bytes,"
            " but the database holds codes of another width: delete the codes that a store of this width did not add"
        )

    def _packed_scan(self, ids: Ids, codes: bytes, length: int | None = None) -> Scan:
        """Return items from ids and the bytes of their codes, or of the first `length` bits of these."""
        size = -(-(self.width if length is None else length) // 8)
        if len(codes) != len(ids) * size or (ids < 0).any():
            raise self._foreign_items()
        packed: Bytes = np.frombuffer(codes, dtype=np.uint8).reshape(len(ids), size)
        width = min(8 * size, self.width)
        try:
            held = Codes.unchecked(packed, width) if width == 8 * size else Codes(packed, width)
        except InvalidInput:  # bits past the width
            raise self._foreign_items() from None
        return Scan(ids, held if length is None else held.prefix(length))

    def __repr__(self) -> str:
        coder = "" if self.coder is None else f", {self.coder!r}"
        return f"{type(self).__name__}({self.width} bits{coder})"


def concat(scans: Sequence[Scan]) -> Scan:
    """Return the items of at least one scan."""
    if len(scans) == 1:
        return scans[0]
    ids, codes = zip(*scans, strict=True)
    return Scan(np.concatenate(ids), codes[0].concat(*codes[1:]))


def keep(scan: Scan, chosen: Ids | None) -> Scan:
    """Return the items whose ids are chosen, which are sorted; None chooses all."""
    if chosen is None:
        return scan
    kept = np.searchsorted(chosen, scan.ids, "right") > np.searchsorted(chosen, scan.ids)
    return Scan(scan.ids[kept], scan.codes[kept])


def is_enough(held: Any, passed: Any, budget: int, share: float) -> Any:
    """Return whether probed lists suffice that hold `held` allowed items of `passed` items; elementwise for arrays."""
    return (held >= budget) & ((share * passed <= PASSED_PER_CHOSEN * held) | (held >= READ_PER_CANDIDATE * budget))


def check_settings(coder: Coder | None, width: int | None, most_bytes: int | None) -> tuple[int, Coder | None]:
    """Return the width and the coder of a new store, or raise."""
    if coder is not None and not isinstance(coder, Coder):
        raise InvalidInput(f"expected a coder, got {type(coder).__name__}: give a fitted coder, or width=...")
    if coder is None and width is None:
        raise InvalidInput("give a coder or a width: a store with a coder takes vectors, one with a width takes codes")
    width = coder.width_ if width is None and coder is not None else check_int(width, "width", least=1)
    if coder is not None and width > coder.width_:
        raise InvalidInput(f"width must be at most the coder's {coder.width_}, got {width}: keep fewer bits")
    if most_bytes is not None and width > 8 * most_bytes:
        raise InvalidInput(f"keys of this database hold {8 * most_bytes} bits, got width {width}: keep fewer bits")
    return width, copy(coder)


def dump_coder(coder: Coder | None) -> bytes:
    """Return a coder as bytes, none as b""."""
    return b"" if coder is None else record_bytes(coder.to_record())


def parse_settings(rows: Sequence[Sequence[Any]], source: str) -> tuple[int, Coder | None]:
    """Return the width and the coder in the rows of a store's settings; errors call the store `source`."""
    match rows:
        case [[int(width), bytes(coder)]] if width > 0:
            return width, coder_from_record(parse_record(coder, source), source) if coder else None
    raise DamagedFile(f"{source} must have one row of settings, its width and its coder: restore a copy")


def _check_limit(value: int, name: str) -> int:
    """Return a number of items, by default the largest possible; raise if it is not a positive integer."""
    return min(check_budget(value, name), MAX_SCANNED_ITEMS)


def batches(items: Scan, size: int) -> Iterator[Scan]:
    """Yield items in batches."""
    for first in range(0, len(items.ids), size):
        yield Scan(items.ids[first : first + size], items.codes[first : first + size])
