"""`Index.search` over HTTP: the client of `nestcode serve`. Streams are read by `RemoteStream` (remote_stream.py).

A `Client` has the methods of `Index` that a server offers, with the same arguments, so code switches by one line.
Several servers hold parts of the items, and the client merges their answers to those of one index.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Floats, Ids, as_array, check_ids, check_int, check_rows
from nestcode.codes import Codes, is_single
from nestcode.connection import TIMEOUT, Changed, PerProcess, check_address, error_of, headers_of, httpx
from nestcode.errors import InvalidInput, Unavailable, import_extra
from nestcode.index.snapshot import OnDuplicate, some_ids
from nestcode.remote_stream import RemoteStream
from nestcode.search.filters import check_allowed
from nestcode.search.hits import Hits, PartialHits, RangeHits, merge
from nestcode.search.ranging import search_range
from nestcode.search.request import Rank
from nestcode.search.scorer import SearchMetric
from nestcode.wire import ARROW, CODES, FLOAT32, HITS, MISSING, pack_items, unpack_hits, unpack_names, unpack_table

__all__ = ["Client", "RemoteStream"]

ROWS, BODY = 4096, 64 << 20  # rows and bytes of a request, unless the server states other limits
HITS_OF_A_QUERY = 1000  # unless the server states another limit
TEXT = {FLOAT32: 7, CODES: 2}  # times the bytes of a row that it takes at most in JSON
Result = TypeVar("Result")


class Client:
    """An index on one or several servers.

    >>> import tempfile
    >>> from nestcode import Codes, Index
    >>> from nestcode.serve import Service, create_app, in_thread
    >>> index = Index(width=64)
    >>> index.add(Codes.from_bits(np.random.default_rng(0).random((1000, 64)) < 0.5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index.save(folder)
    ...     with in_thread(create_app(Service(folder))) as url, Client(url) as client:
    ...         client.search(index.codes([7]), k=1).ids, len(client)
    (array([[7]]), 1000)

    Several servers are the shards of one index: their items have distinct ids, and they have the same coder.

    Args:
        urls: the address of a server, or of several.
        token: the bearer token of the servers.
        timeout: seconds to wait for an answer.

    """

    def __init__(self, urls: str | Sequence[str], *, token: str | None = None, timeout: float = TIMEOUT) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        if not addresses:
            raise InvalidInput("a client needs at least one server, got none: give its address")
        headers = headers_of(token)
        self._servers = [_Server(address, headers, timeout) for address in addresses]
        self._pool = PerProcess(partial(ThreadPoolExecutor, len(addresses)), ThreadPoolExecutor.shutdown)
        try:
            self._about = self._read_about()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return sum(int(about.get("count", 0)) for about in self._each(_Server.info))

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int | np.integer) or isinstance(item, bool) or not 0 <= item < 2**63:
            return False
        anywhere = Codes(np.zeros((1, -(-self.width // 8)), np.uint8), self.width)
        return bool(self.search(anywhere, k=1, filter=[int(item)]).ids[0, 0] == item)

    @property
    def width(self) -> int:
        """Bits of each code."""
        return _width_of(self._about)

    def search(
        self,
        queries: Codes | ArrayLike,
        k: int = 10,
        *,
        candidates: int | None = None,
        rerank: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: None = None,
        filter: ArrayLike | Iterable[int] | str | tuple[str, Sequence[Any]] | None = None,  # noqa: A002
        text: str | Mapping[str, str] | None = None,
        threads: int | None = 1,  # noqa: ARG002 (of the server)
        allow_partial: bool = False,
    ) -> Hits:
        """Return the k nearest items of each query, as `Index.search` does.

        `filter` is ids, a mask by id, or a condition, `"year > 2020"` or `("year > ?", [2020])`; `attributes` returns
        the attributes of the hits. `text` is one text for all queries, or `{column: text}`, and needs a single server.

        With several servers each one spends the budget `candidates` on its own items. A server reranks by the vectors
        that its index stores, so `vectors` is refused; `threads` has no effect, because servers have their own threads.

        With `allow_partial` the answer is `PartialHits`: a server of a cluster leaves out the parts that do not answer,
        and `hits.missing` names them. Without, a missing part is an error.
        """
        if vectors is not None:
            raise InvalidInput(
                "a server reranks by the vectors its index stores: leave vectors out, or build the index with "
                'vectors="float16"'
            )
        counts = {"k": k, "candidates": candidates, "rerank": rerank}
        options: dict[str, Any] = {
            name: check_int(value, name, least=1) for name, value in counts.items() if value is not None
        }
        options |= {name: value for name, value in (("rank", rank), ("metric", metric)) if value is not None}
        options |= {"allow_partial": True} if allow_partial else {}
        joined = {} if filter is None else _wanted(filter)
        if text is not None:
            self._only("search each by its own client, as hybrid rankings cannot be merged")
            joined["text"] = _text_of(text)
        k, filtered = options["k"], options | joined if joined else None
        missing: dict[str, str] = {}

        def ask(rows: _Rows) -> Hits:
            if not rows.count:
                return Hits(np.empty((0, k), np.int64), np.empty((0, k), np.float32), np.empty(0, np.int64))
            parts = [*map(ask_once, rows.split(self._about, filtered))]
            if len(parts) == 1:
                return parts[0]
            return Hits(
                np.concatenate([hits.ids for hits in parts]),
                np.concatenate([hits.distances for hits in parts]),
                np.concatenate([hits.compared for hits in parts]),
            )

        def ask_once(rows: _Rows) -> Hits:
            if filtered is None:
                found = self._each(lambda server: server.search(rows, k, missing, query=options))
            else:
                request = filtered | rows.as_json()
                found = self._each(lambda server: server.search(rows, k, missing, json=request))
            return found[0] if len(found) == 1 else merge(found, k)

        hits = self._with_rows(queries, ask)
        hits = Hits(hits.ids[0], hits.distances[0], int(hits.compared[0])) if is_single(queries) else hits
        return PartialHits(hits.ids, hits.distances, hits.compared, missing) if allow_partial else hits

    def range_search(
        self,
        queries: Codes | ArrayLike,
        radius: float,
        *,
        candidates: int | None = None,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        filter: ArrayLike | Iterable[int] | str | tuple[str, Sequence[Any]] | None = None,  # noqa: A002
    ) -> Hits | RangeHits:
        """Return the candidates within a distance, nearest first, as `Index.range_search` does.

        A server has a limit on the hits of a query (1,000 by default): more within the radius are an error.
        """
        rows = queries if isinstance(queries, Codes) else np.atleast_2d(np.asarray(queries))
        search = partial(self.search, candidates=candidates, rank=rank, metric=metric, filter=filter)
        return search_range(search, rows, radius, single=is_single(queries), most=self._about["limits"]["k"])

    def attributes(self, ids: ArrayLike, columns: Sequence[str] | str | None = None) -> Any:
        """Return attributes of items as a table of pyarrow, in the order of the ids, as `Index.attributes` does.

        Missing hits, whose ids are -1, have null rows.
        """
        wanted = np.ravel(as_array(ids, "ids"))
        hit = wanted != -1
        known = np.unique(check_ids(wanted[hit], distinct=False))
        request = {} if columns is None else {"columns": _names_of(columns)}
        parts = []
        for first in range(0, max(len(known), 1), ROWS):
            asked = request | {"ids": known[first : first + ROWS].tolist()}
            parts += self._each(lambda server, asked=asked: server.attributes(asked))  # type: ignore[misc]
        found = np.concatenate([part for part, _ in parts])
        pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")
        table, order = pa.concat_tables([part for _, part in parts]), np.argsort(found)
        absent = np.setdiff1d(known, found)
        if len(absent):
            raise InvalidInput(f"ids must be of items in the index, but {some_ids(absent)} not: ask `id in client`")
        place = np.zeros(len(wanted), dtype=np.int64)
        place[hit] = order[np.searchsorted(found, wanted[hit], sorter=order)]
        return table.take(pa.array(place, mask=~hit))

    def add(
        self, items: Codes | ArrayLike, ids: ArrayLike, *, attributes: Any = None, on_duplicate: OnDuplicate = "error"
    ) -> None:
        """Add items under ids, and return when they are durable; a call whose answer was lost may be repeated.

        `attributes` has the forms of `Index.add`, and only columns that the index already has.

        Many items travel in several requests. Each request adds all of its items or none; an error says how many items
        the earlier requests added.
        """

        def send(rows: _Rows) -> None:
            known = check_ids(ids, rows.count)
            with _counting(rows.count, "added") as done:
                for part in rows.split(self._about):
                    content = pack_items(known[sum(done) :][: part.count], part.body)
                    self._only().post("/v1/items", {"on_duplicate": on_duplicate}, rows=part, content=content)
                    done.append(part.count)

        def send_with_attributes(rows: _Rows) -> None:
            known, columns = check_ids(ids, rows.count).tolist(), _rows_of(attributes, rows.count)
            each = max((len(json.dumps(row)) for row in columns), default=0) + len(str(2**63)) + 2
            with _counting(rows.count, "added") as done:
                for part in rows.split(self._about, {"on_duplicate": on_duplicate}, each):
                    own = slice(sum(done), sum(done) + part.count)
                    request = {"ids": known[own], "attributes": columns[own], "on_duplicate": on_duplicate}
                    self._only().post("/v1/items", rows=part, json=request | part.as_json())
                    done.append(part.count)

        self._with_rows(items, send if attributes is None else send_with_attributes)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items, and return when their removal is durable; many items travel in several requests."""
        unwanted, most = check_ids(ids), _most_rows(self._about)
        with _counting(len(unwanted), "removed") as done:
            for first in range(0, len(unwanted), most):
                some = unwanted[first : first + most].tolist()
                self._only().post("/v1/items/delete", json={"ids": some})
                done.append(len(some))

    def encode(self, X: ArrayLike) -> Codes:
        """Return the codes of vectors, of the index's width."""

        def ask(rows: _Rows) -> Codes:
            parts = rows.split(self._about)
            packed = b"".join(self._servers[0].post("/v1/encode", rows=part, accept=CODES) for part in parts)
            return Codes(np.frombuffer(packed, np.uint8).reshape(rows.count, -(-rows.width // 8)), rows.width)

        return self._with_rows(np.asarray(X), ask)

    def decode(self, codes: Codes, *, length: int | None = None) -> Floats:
        """Decode the first `length` bits of codes, (n, features)."""
        query = {} if length is None else {"length": length}

        def ask(rows: _Rows) -> Floats:
            coder = self._about.get("coder")
            if not rows.count and coder is not None:
                return np.empty((0, coder["features"]), np.float32)
            parts = rows.split(self._about) if rows.count else [rows]  # without a coder, the server says so
            found = b"".join(self._servers[0].post("/v1/decode", query, rows=part, accept=FLOAT32) for part in parts)
            return np.frombuffer(found, "<f4").reshape(rows.count, -1).astype(np.float32)

        return self._with_rows(codes, ask)

    def close(self) -> None:
        """Close the connections."""
        for server in self._servers:
            server.close()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _only(self, remedy: str = "write to the one that has the items, by its own client") -> "_Server":
        if len(self._servers) > 1:
            raise InvalidInput(f"several servers are only searched by distance, got {len(self._servers)}: {remedy}")
        return self._servers[0]

    def _each(self, request: Callable[["_Server"], Result]) -> list[Result]:
        """Return the answers of all servers, which work at the same time."""
        if len(self._servers) == 1:
            return [request(self._servers[0])]
        return list(self._pool.get().map(request, self._servers))

    def _read_about(self) -> dict[str, Any]:
        """Return the servers' descriptions of their index."""
        about = self._each(_Server.info)
        if any((one.get("width"), one.get("coder")) != (about[0].get("width"), about[0].get("coder")) for one in about):
            raise InvalidInput(
                "the servers of one index must have the same width and coder, unlike "
                f"{', '.join(server.url for server in self._servers)}: build one of their indexes again"
            )
        limits = [one.get("limits") or {} for one in about]
        least = {name: min(one.get(name, most) for one in limits) for name, most in (("rows", ROWS), ("body", BODY))}
        least["k"] = min(one.get("k", HITS_OF_A_QUERY) for one in limits)
        least["json"] = min(least["body"], *(one.get("json", BODY) for one in limits))
        return about[0] | {"limits": least}

    def _with_rows(self, queries: Codes | ArrayLike, request: Callable[["_Rows"], Result]) -> Result:
        """Return the answer to a request; if servers have another index since, make the request for that one."""
        before = self._about
        try:
            return request(_Rows.of(queries, before))
        except (InvalidInput, Changed):
            self._about = self._read_about()
            if self._about.get("tag") == before.get("tag"):
                raise
            if isinstance(queries, Codes):
                raise InvalidInput(
                    "the server now has an index of another width or coder, so these codes may not fit it: encode again"
                ) from None
        return request(_Rows.of(queries, self._about))


@dataclass(frozen=True)
class _Rows:
    """Queries or items as a server takes them.

    Args:
        kind: their media type.
        body: their bytes.
        count: how many there are.
        width: bits of the codes of the index that they are made for.
        tag: its entity tag.

    """

    kind: str
    body: bytes
    count: int
    width: int
    tag: str | None

    @classmethod
    def of(cls, queries: Codes | ArrayLike, about: dict[str, Any]) -> Self:
        """Return rows for an index that is described so."""
        width, coder, tag = _width_of(about), about.get("coder"), about.get("tag")
        if isinstance(queries, Codes):
            if queries.width != width:
                raise InvalidInput(
                    f"codes must have the index's width {width}, got {queries.width}: take prefix({width})"
                )
            return cls(CODES, queries.packed.tobytes(), len(queries), width, tag)
        if coder is None:
            raise InvalidInput(f"a server without a coder takes Codes, got {type(queries).__name__}: encode them first")
        rows = np.asarray(queries)
        rows = check_rows(rows[None] if rows.ndim == 1 else rows, features=coder["features"])
        return cls(FLOAT32, rows.astype("<f4").tobytes(), len(rows), width, tag)

    def split(self, about: dict[str, Any], joined: dict[str, Any] | None = None, each: int = 0) -> Iterator[Self]:
        """Yield the rows of each request to servers that are described so.

        Args:
            about: the description.
            joined: other keys of a request in JSON, such as a filter; None sends bytes.
            each: bytes of JSON beside each row.

        """
        size, limits = len(self.body) // max(self.count, 1), about["limits"]
        room = max(1, int(limits["body"]) // (size + 8))  # and an id
        if joined is not None:
            limit = int(limits["json"])
            taken = len(json.dumps(joined)) + len('"vectors": [], "ids": [], "attributes": []')
            room = (limit - taken) // (TEXT[self.kind] * size + 8 + each)
            if room < 1:
                raise InvalidInput(
                    f"a request to this server has at most {limit:,} bytes of JSON, but {_name_of(joined)} takes "
                    f"{taken + each:,}, and each row some more: give fewer ids, values or texts"
                )
        most = min(_most_rows(about), room)
        for first in range(0, self.count, most):
            count = min(most, self.count - first)
            yield replace(self, body=self.body[size * first : size * (first + count)], count=count)

    def as_json(self) -> dict[str, Any]:
        """Return the rows as a part of a body in JSON."""
        if self.kind == CODES:
            return {
                "codes": [row.tobytes().hex() for row in np.frombuffer(self.body, np.uint8).reshape(self.count, -1)]
            }
        return {"vectors": np.frombuffer(self.body, "<f4").reshape(self.count, -1).astype(np.float64).tolist()}


def _width_of(about: dict[str, Any]) -> int:
    if about.get("width") is None:
        raise InvalidInput("the server has no index: start it with nestcode serve INDEX")
    return int(about["width"])


def _most_rows(about: dict[str, Any]) -> int:
    return max(1, int(about["limits"]["rows"]))


@contextmanager
def _counting(count: int, what: str) -> Iterator[list[int]]:
    """Add the number of items in the list, which the caller extends, to an error: they were written."""
    done: list[int] = []
    try:
        yield done
    except (InvalidInput, Unavailable) as error:
        if not done:
            raise
        raise type(error)(f"{error}; the first {sum(done):,} of {count:,} items were {what}") from error


class _Server:
    """One server: requests, and errors as those of an index."""

    def __init__(self, url: str, headers: dict[str, bytes], timeout: float) -> None:
        self.url = check_address(url)
        make = partial(httpx.Client, base_url=url, headers=headers, timeout=timeout)
        self._http = PerProcess(make, httpx.Client.close)

    def info(self) -> dict[str, Any]:
        """Return the server's description of itself."""
        about: dict[str, Any] = self._checked(lambda: self._http.get().get("/v1/info")).json()
        return about

    def search(self, rows: _Rows, k: int, missing: dict[str, str], **request: Any) -> Hits:
        """Search with binary bodies, or with one in JSON, which can hold a filter; add the parts that are missing."""
        answer = self._post("/v1/search", rows=rows, accept=HITS, **request)
        for name in unpack_names(answer.headers.get(MISSING, "")):
            missing[name] = f"did not answer: the log of {self.url} says why"
        try:
            return unpack_hits(answer.content, rows.count, k)
        except ValueError as error:
            raise Unavailable(
                f"{self.url} did not answer as a server of Nestcode ({error}): check its address"
            ) from None

    def attributes(self, request: dict[str, Any]) -> tuple[Ids, Any]:
        """Return which of some items the server has, and their attributes."""
        body = self.post("/v1/attributes", json=request, accept=ARROW)
        try:
            return unpack_table(body)
        except ValueError as error:
            raise Unavailable(
                f"{self.url} did not answer as a server of Nestcode ({error}): check its address"
            ) from None

    def post(self, *arguments: Any, **named: Any) -> bytes:
        """Return the body of the answer to a request."""
        body: bytes = self._post(*arguments, **named).content
        return body

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(
        self,
        path: str,
        query: dict[str, Any] | None = None,
        *,
        rows: _Rows | None = None,
        json: Any = None,
        content: bytes | None = None,
        accept: str = "application/json",
    ) -> Any:
        """Return an answer; a body without `json` is the rows, or `content` that was made of them."""
        headers = {"Accept": accept}
        if rows is not None:
            headers |= {} if rows.tag is None else {"If-Match": rows.tag}
            if json is None:
                headers["Content-Type"], content = rows.kind, rows.body if content is None else content
        http = self._http.get()
        return self._checked(lambda: http.post(path, params=query, json=json, content=content, headers=headers))

    def _checked(self, request: Callable[[], Any]) -> Any:
        try:
            answer = request()
        except UnicodeEncodeError as error:
            near = error.object[max(error.start - 20, 0) : error.end + 20]
            raise InvalidInput(f"texts must be Unicode, got a lone surrogate in {near!r}: decode it again") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self.url} does not answer ({reason}): check the address, or try again") from error
        if answer.status_code == 200:
            return answer
        raise error_of(self.url, answer)


def _wanted(given: Any) -> dict[str, Any]:
    """Return a filter as a part of a body in JSON."""
    if isinstance(given, str):
        return {"filter": given}
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        if len(given) != 2 or isinstance(given[1], str | bytes) or not isinstance(given[1], Iterable):
            raise InvalidInput(
                f"a condition with parameters must be a text and a list, as in ('year > ?', [2020]), got {given!r:.80}"
            )
        return {"filter": given[0], "parameters": [_json_value(value) for value in given[1]]}
    if type(given).__module__ == "pyarrow._compute":
        raise InvalidInput(f"a server takes conditions as texts, got {given}: write it so, as in 'year > 2020'")
    return {"filter": _ids_of(given)}


def _text_of(text: Any) -> str | dict[str, str]:
    """Return a text as JSON has it."""
    if isinstance(text, str) or (isinstance(text, Mapping) and all(isinstance(one, str) for one in text.values())):
        return text if isinstance(text, str) else dict(text)
    raise InvalidInput(
        f"a server takes one text for all queries, or {{column: text}}, got {text!r:.80}: search each query by itself"
    )


def _json_value(value: Any) -> Any:
    """Return a parameter of a condition as JSON has it; dates and times are texts in ISO 8601."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise InvalidInput(
        f"a value must be a text, a finite number, a date or a list of them, got {value!r:.80}: convert it"
    )


def _names_of(columns: Sequence[str] | str) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _name_of(joined: dict[str, Any]) -> str:
    """Return the name of the large part of a request, for an error."""
    wanted = joined.get("filter")
    return "attributes" if wanted is None else "this filter" + (f" of {len(wanted):,} ids" * isinstance(wanted, list))


def _rows_of(attributes: Any, count: int) -> list[dict[str, Any]]:
    """Return attributes as JSON has them, a dictionary for each item."""
    from nestcode.search.attributes import Attributes

    rows = Attributes.read(attributes, count).table().to_pylist()
    return [{name: _json_value(value) for name, value in row.items() if value is not None} for row in rows]


def _ids_of(given: ArrayLike | Iterable[int]) -> list[int]:
    """Return a filter as ids: it may also be a mask by id."""
    allowed = check_allowed(given)
    ids = np.flatnonzero(allowed) if allowed.dtype == bool else allowed
    return [*map(int, ids)]
