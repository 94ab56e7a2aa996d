"""`Index.search` over HTTP: the client of `nestcode serve`, and streams read from any web server.

A `Client` has the methods of an `Index` that a server offers, with the same arguments, so code switches by one line. Of
several servers each holds a part of the items; their answers are merged to those of one index.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Floats, check_ids, check_int, check_rows
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput, Unavailable, import_extra
from nestcode.index.snapshot import OnDuplicate
from nestcode.search.hits import Hits
from nestcode.search.plan import Rank
from nestcode.search.scorer import SearchMetric
from nestcode.wire import CODES, FLOAT32, HITS, pack_items, unpack_hits

httpx: Any = import_extra("httpx", extra="client", purpose="nestcode.client")

__all__ = ["Client", "RemoteStream", "merge"]

TIMEOUT = 60.0  # seconds
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
    (array([7]), 1000)

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
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._servers = [_Server(address, headers, timeout) for address in addresses]
        self._pool = ThreadPoolExecutor(len(addresses)) if len(addresses) > 1 else None
        try:
            about = self._each(_Server.info)
            self._width, self._coder = about[0].get("width"), about[0].get("coder")
            if any((one.get("width"), one.get("coder")) != (self._width, self._coder) for one in about):
                raise InvalidInput(
                    f"the servers of one index must have the same width and coder, unlike {', '.join(addresses)}: "
                    "build one of their indexes again"
                )
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return sum(int(about.get("count", 0)) for about in self._each(_Server.info))

    @property
    def width(self) -> int:
        """Bits of each code."""
        if self._width is None:
            raise InvalidInput("the server has no index: start it with nestcode serve INDEX")
        return int(self._width)

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
        filter: ArrayLike | Iterable[int] | None = None,  # noqa: A002
        threads: int | None = 1,  # noqa: ARG002 (of the server)
    ) -> Hits:
        """Return the k nearest items of each query, as `Index.search` does.

        Each of several servers spends the budget `candidates` on its own items. A server reranks by the vectors that
        its index stores, so `vectors` cannot be given; `threads` has no effect, as servers have their own.
        """
        if vectors is not None:
            raise InvalidInput(
                "a server reranks by the vectors its index stores: leave vectors out, or build the index with "
                'vectors="float16"'
            )
        k, single = check_int(k, "k", least=1), _is_single(queries)
        options = {"k": k, "candidates": candidates, "rerank": rerank, "rank": rank, "metric": metric}
        kind, body, count = self._rows(queries)
        given = {name: value for name, value in options.items() if value is not None}
        if filter is None:
            found = self._each(lambda server: server.search(kind, body, count, given))
        else:
            rows = queries if isinstance(queries, Codes) else np.frombuffer(body, "<f4").reshape(count, -1)
            request = given | _as_json(rows) | {"filter": _ids_of(filter)}
            found = self._each(lambda server: server.search_json(request, count, k))
        hits = found[0] if len(found) == 1 else merge(found, k)
        return Hits(hits.ids[0], hits.distances[0], int(hits.compared[0])) if single else hits

    def add(self, items: Codes | ArrayLike, ids: ArrayLike, *, on_duplicate: OnDuplicate = "error") -> None:
        """Add items under ids, and return when they are durable; with the same ids this may be repeated."""
        kind, body, count = self._rows(items)
        content = pack_items(check_ids(ids, count), body)
        self._only().post("/v1/items", {"on_duplicate": on_duplicate}, content=content, kind=kind)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items, and return when that is durable."""
        self._only().post("/v1/items/delete", json={"ids": check_ids(ids).tolist()})

    def encode(self, X: ArrayLike) -> Codes:
        """Return the codes of vectors, of the index's width."""
        kind, body, count = self._rows(np.asarray(X))
        packed = self._servers[0].post("/v1/encode", content=body, kind=kind, accept=CODES)
        return Codes(np.frombuffer(packed, np.uint8).reshape(count, -1), self.width)

    def decode(self, codes: Codes, length: int | None = None) -> Floats:
        """Return what the first `length` bits of codes decode to, (n, features)."""
        kind, body, count = self._rows(codes)
        query = {} if length is None else {"length": length}
        rows = self._servers[0].post("/v1/decode", query, content=body, kind=kind, accept=FLOAT32)
        return np.frombuffer(rows, "<f4").reshape(count, -1).astype(np.float32)

    def close(self) -> None:
        """Close the connections."""
        for server in self._servers:
            server.close()
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _only(self) -> "_Server":
        if len(self._servers) > 1:
            raise InvalidInput(
                "several servers are only searched: write to the one that has the items, by its own client"
            )
        return self._servers[0]

    def _each(self, request: Callable[["_Server"], Result]) -> list[Result]:
        """Return the answers of all servers, which work at the same time."""
        if self._pool is None:
            return [request(self._servers[0])]
        return list(self._pool.map(request, self._servers))

    def _rows(self, queries: Codes | ArrayLike) -> tuple[str, bytes, int]:
        """Return the media type of queries, their bytes and their number."""
        if isinstance(queries, Codes):
            if queries.width != self.width:
                raise InvalidInput(
                    f"codes must have the index's width {self.width}, got {queries.width}: take prefix({self.width})"
                )
            return CODES, queries.packed.tobytes(), len(queries)
        if self._coder is None:
            raise InvalidInput(f"a server without a coder takes Codes, got {type(queries).__name__}: encode them first")
        rows = np.asarray(queries)
        rows = check_rows(rows[None] if rows.ndim == 1 else rows, features=self._coder["features"])
        return FLOAT32, rows.astype("<f4").tobytes(), len(rows)


def merge(parts: Sequence[Hits], k: int) -> Hits:
    """Return the k nearest items of all parts, for each query: (n, …) of each part -> (n, k).

    >>> near = Hits(np.array([[4, 9]]), np.array([[0.5, 2]], dtype=np.float32), np.array([10]))
    >>> far = Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]], dtype=np.float32), np.array([1]))
    >>> merge([near, far], k=3)
    Hits(1 queries)
    >>> merge([near, far], k=3).ids
    array([[3, 4, 9]])
    """
    ids = np.concatenate([hits.ids for hits in parts], axis=1)
    distances = np.concatenate([hits.distances for hits in parts], axis=1)
    missing = np.where(ids < 0, np.int64(2**63 - 1), ids)
    order = np.lexsort((missing, distances), axis=1)[:, :k]  # ties by ascending id, as in one index
    compared = np.sum([hits.compared for hits in parts], axis=0)
    return Hits(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1), compared)


class _Server:
    """One server: requests, and errors as those of an index."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float) -> None:
        self._url = url
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InvalidInput(f"{url!r} is not the address of a server ({error}): give http://HOST:PORT") from error

    def info(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        about: dict[str, Any] = self._checked(lambda: self._http.get("/v1/info")).json()
        return about

    def search(self, kind: str, body: bytes, count: int, options: dict[str, Any]) -> Hits:
        """Search with binary bodies."""
        found = self.post("/v1/search", options, content=body, kind=kind, accept=HITS)
        return self._hits(found, count, options["k"])

    def search_json(self, request: dict[str, Any], count: int, k: int) -> Hits:
        """Search with a body in JSON, which can hold a filter."""
        return self._hits(self.post("/v1/search", json=request, accept=HITS), count, k)

    def post(
        self,
        path: str,
        query: dict[str, Any] | None = None,
        *,
        json: Any = None,
        content: bytes | None = None,
        kind: str | None = None,
        accept: str = "application/json",
    ) -> bytes:
        """Return the body of an answer."""
        headers = {"Accept": accept} | ({} if kind is None else {"Content-Type": kind})
        answer = self._checked(lambda: self._http.post(path, params=query, json=json, content=content, headers=headers))
        body: bytes = answer.content
        return body

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _hits(self, body: bytes, count: int, k: int) -> Hits:
        try:
            return unpack_hits(body, count, k)
        except ValueError as error:
            raise Unavailable(
                f"{self._url} did not answer as a server of Nestcode ({error}): check its address"
            ) from None

    def _checked(self, request: Callable[[], Any]) -> Any:
        try:
            answer = request()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self._url} does not answer ({reason}): check the address, or try again") from error
        if answer.status_code == 200:
            return answer
        raise _error(self._url, answer)


def _error(url: str, answer: Any) -> Exception:
    """Return the error of an answer that is none."""
    try:
        message = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        message = f"status {answer.status_code}, which is not an answer of nestcode serve"
    kind = InvalidInput if 400 <= answer.status_code < 500 else Unavailable
    return kind(f"{url}: {message}")


def _is_single(queries: Codes | ArrayLike) -> bool:
    return len(queries) == 1 if isinstance(queries, Codes) else np.ndim(queries) == 1


def _as_json(rows: Codes | Floats) -> dict[str, Any]:
    if isinstance(rows, Codes):
        return {"codes": [row.tobytes().hex() for row in rows.packed]}
    return {"vectors": rows.astype(np.float64).tolist()}


def _ids_of(given: ArrayLike | Iterable[int]) -> list[int]:
    """Return a filter as ids: it may also be a mask by id."""
    array = np.asarray(given if hasattr(given, "__len__") else [*given])  # type: ignore[misc]
    if array.dtype == bool:
        return np.flatnonzero(array).tolist()
    return check_ids(array, distinct=False).tolist() if array.size else []


class RemoteStream:
    """A stream on a web server, read as far as it is wanted.

    Each `read` requests the next bytes. A server that ignores the header Range and sends the whole file is read as far
    as wanted, and the connection closed.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import nestcode as nc
    >>> from nestcode.serve import Service, create_app, in_thread
    >>> data = nc.compress_images([nc.data.sample_images()["china"][:96, :96]])
    >>> decoder = nc.ImageStreamDecoder()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "china.nest").write_bytes(data)
    ...     with in_thread(create_app(Service(streams=folder))) as url:
    ...         with RemoteStream(f"{url}/v1/streams/china.nest") as stream:
    ...             decoder.feed(stream.read(200))
    ...             decoder.feed(stream.read(300))
    ...             stream.position, decoder.images()[0].shape
    (500, (96, 96, 3))

    Args:
        url: the address of a file.
        token: the bearer token, if the server needs one.
        timeout: seconds to wait for an answer.

    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self._url, self.position = url, 0
        headers = {"Accept-Encoding": "identity"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._http = httpx.Client(headers=headers, timeout=timeout, follow_redirects=True)
        self._tag: str | None = None  # of the version that was read first

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes, fewer at the end of the stream."""
        first = self.position
        last = first + check_int(count, "count", least=1) - 1
        try:
            with self._http.stream("GET", self._url, headers={"Range": f"bytes={first}-{last}"}) as answer:
                data = self._take(answer, first, count)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self._url} does not answer ({reason}): check the address, or try again") from error
        self.position += len(data)
        return data

    def _take(self, answer: Any, first: int, count: int) -> bytes:
        if answer.status_code == 416:  # nothing follows
            return b""
        if answer.status_code not in (200, 206):
            answer.read()
            raise _error(self._url, answer)
        self._check_version(answer.headers.get("etag") or answer.headers.get("last-modified"))
        skipped = first
        if answer.status_code == 206:
            start = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
            if start != str(first):
                raise Unavailable(
                    f"{self._url} sent bytes from {start or '?'} on instead of {first}: its server is broken"
                )
            skipped = 0
        data = bytearray()
        for chunk in answer.iter_raw():  # leaving the loop early closes the connection
            data += chunk
            if len(data) >= skipped + count:
                break
        return bytes(data[skipped : skipped + count])

    def _check_version(self, tag: str | None) -> None:
        if self.position and tag != self._tag:
            raise DamagedFile(f"{self._url} changed since its first bytes were read: read it again from the start")
        self._tag = tag

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
