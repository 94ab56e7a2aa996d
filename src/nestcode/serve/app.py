"""The routes of the service: thin, each the HTTP form of one call."""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles

import nestcode
from nestcode.arrays import Floats, Ids
from nestcode.codes import Codes
from nestcode.errors import InvalidInput, NestcodeError, Unavailable
from nestcode.index import Index
from nestcode.scale.ray import SearchCluster
from nestcode.search.hits import Hits, PartialHits
from nestcode.serve import schemas
from nestcode.serve.batching import Batcher, Busy, Options
from nestcode.serve.batching import Queries as Rows
from nestcode.serve.bodies import (
    JSON,
    answer,
    as_hex,
    check_count,
    codes_in,
    codes_of,
    condition_of,
    ids_of,
    is_given,
    media_type,
    only_in_body,
    only_one,
    parse,
    parse_query,
    read_body,
    rows_in,
    rows_of,
)
from nestcode.serve.budget import SMALL, Budget
from nestcode.serve.guard import Guard, check_origins, route_of
from nestcode.serve.metrics import Metrics
from nestcode.serve.ranges import Ranges
from nestcode.serve.service import Absent, Service
from nestcode.wire import ARROW, CODES, FLOAT32, HITS, MISSING, pack_hits, pack_names, pack_table, unpack_items

STATIC = Path(__file__).parent / "static"
SHOWN = 100  # ids of a neighborhood, where a request does not say how many
TEXT = 250_000  # ids of an answer in JSON: nothing else is answered while they are written
REFRESH = 1.0  # seconds between two looks for a new commit
REFUSALS = (400, 401, 403, 404, 405, 408, 412, 413, 415, 416, 421, 503)
Result = TypeVar("Result")
log = logging.getLogger("nestcode.serve")


POLICY = (  # of pages: nothing from elsewhere; WebAssembly may be compiled
    "default-src 'self'; img-src 'self' blob: data:; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(
    service: Service, *, token: str | None = None, local: bool = True, origins: tuple[str, ...] = ()
) -> FastAPI:
    """Return the ASGI application of a service, which closes the service when it ends.

    >>> import tempfile
    >>> service = Service(streams=tempfile.gettempdir())
    >>> [route for route in create_app(service).openapi()["paths"] if route.startswith("/v1/s")]
    ['/v1/search', '/v1/streams/{name}']
    >>> service.close()

    Args:
        service: the service.
        token: the bearer token that requests must have; None admits every request.
        local: admit requests to localhost only.
        origins: web sites whose pages may read answers and write (CORS); "*" allows all.

    """
    check_origins(origins)
    routes = Routes(service)
    app = FastAPI(
        title="Nestcode",
        version=nestcode.__version__,
        summary="Search by nested codes, and streams that can be cut anywhere.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=routes.lifespan,
        responses={status: _json(schemas.Error) for status in REFUSALS},
    )
    routes.register(app)
    app.mount("/static", routes.static, name="static")
    app.add_middleware(Ranges)
    app.add_middleware(Budget, service.limits.bodies)
    app.add_middleware(Guard, routes.metrics, token, local=local, origins=origins)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    for kind, status in ((InvalidInput, 400), (Absent, 404), (Busy, 503)):
        app.add_exception_handler(kind, _refusal(status))
    app.add_exception_handler(NestcodeError, routes.failure)
    app.add_exception_handler(OSError, routes.failure)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(Exception, _failure)
    return app


def _refusal(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(_: Request, error: Exception) -> Response:
        message = str(error) or "too many queries are waiting: try again later"
        return JSONResponse({"error": message}, status, {"Retry-After": "1"} if status == 503 else None)

    return handle


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    message = error.detail
    if message == HTTPStatus(error.status_code).phrase:  # of the router
        message = f"there is no {request.method} {request.url.path[:80]} here: /openapi.json lists all routes"
    return JSONResponse({"error": message}, error.status_code, error.headers)


def _check_text(queries: int, each: int, remedy: str) -> None:
    """Raise if an answer in JSON would be too long."""
    if queries * each > TEXT:
        raise InvalidInput(f"JSON has at most {TEXT:,} ids, got {queries:,} queries of {each:,}: {remedy}")


async def _failure(_: Request, __: Exception) -> Response:
    """Answer 500 to a request that met a bug; uvicorn logs the traceback."""
    return JSONResponse({"error": "the server failed: its log says why"}, 500)


class ItemConvertor(Convertor[int]):
    """The id of an item in a path; Starlette's own convertor of integers fails on thousands of digits."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        """Return an id."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return an id as part of a path."""
        return str(value)


register_url_convertor("item", ItemConvertor())


class Routes:
    """The handlers of one application, with their shared state."""

    def __init__(self, service: Service) -> None:
        self.metrics, self.static = Metrics(), StaticFiles(directory=STATIC)
        self._service, self._limits = service, service.limits
        self._ready = False
        self._batcher = Batcher(
            service.search, service.pool, service.threads, service.limits.waiting, self.metrics.batches.observe
        )
        # Apart from searches, which would wait behind an encoding of thousands of rows.
        self._others = ThreadPoolExecutor(service.threads, thread_name_prefix="nestcode-other")
        # One, so that those who send large bodies wait for each other.
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="nestcode-parser")

    @contextlib.asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Look for new commits while the server runs; at the end, finish running requests."""
        await run_in_threadpool(lambda: None)  # loads what the first file or refusal would wait for
        refreshing = asyncio.create_task(self._refresh())
        try:
            yield
        finally:
            self._ready = False
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)
            self._others.shutdown()
            self._parser.shutdown()
            await asyncio.to_thread(self._service.close)

    async def _refresh(self) -> None:
        said = ""
        while True:
            try:
                if await self._call(self._service.refresh):
                    self.metrics.refreshes.labels("new").inc()
                if not self._ready:
                    await self._call(self._service.warm)
                self._ready, said = True, ""
                self.metrics.items.set(len(self._service.index))
            except Absent:  # there are only streams
                self._ready = True
            except Exception as error:  # the last good state is served on
                self._service.note(error)
                self.metrics.refreshes.labels("failed").inc()
                if str(error) != said:
                    log.warning("the index was not refreshed: %s", error)
                said = str(error)
            await asyncio.sleep(REFRESH)

    async def failure(self, request: Request, error: Exception) -> Response:
        """Answer 500 to a request that met a damaged file or a full disk; only the log names paths."""
        self._service.note(error)
        log.error("%s failed: %s", route_of(request.scope), error)
        if isinstance(error, Unavailable):
            message = "a part of the index does not answer: try again later, or search with allow_partial"
            return JSONResponse({"error": message}, 503, {"Retry-After": "1"})
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        return JSONResponse({"error": f"the server failed ({why}): its log says more"}, 500)

    def register(self, app: FastAPI) -> None:
        """Add all routes."""
        post = app.post
        post("/v1/search", **_about(schemas.SearchRequest, schemas.SearchAnswer, HITS, query=schemas.SearchOptions))(
            self.search
        )
        post("/v1/attributes", **_about(schemas.AttributesRequest, schemas.AttributesAnswer, ARROW))(self.attributes)
        post("/v1/neighborhood", **_about(schemas.NeighborhoodRequest, schemas.NeighborhoodAnswer))(self.neighborhood)
        post("/v1/nested", **_about(schemas.NestedRequest, schemas.NestedAnswer))(self.nested)
        post("/v1/encode", **_about(schemas.EncodeRequest, schemas.Codes, CODES, query=schemas.EncodeOptions))(
            self.encode
        )
        post("/v1/decode", **_about(schemas.Codes, schemas.Vectors, FLOAT32, query=schemas.DecodeOptions))(self.decode)
        if self._service.writer is not None:
            post("/v1/items", **_about(schemas.AddRequest, schemas.Written, query=schemas.AddOptions))(self.add)
            post("/v1/items/delete", **_about(schemas.RemoveRequest, schemas.Written))(self.remove)
        else:
            app.add_api_route("/v1/items", self.read_only, methods=["POST"], include_in_schema=False)
            app.add_api_route("/v1/items/delete", self.read_only, methods=["POST"], include_in_schema=False)
        app.get("/v1/items/{item:item}", **_sends("text/plain", "image/png"))(self.item)
        app.get("/v1/info")(self.info)
        app.get("/v1/coder")(self.coder)
        app.get("/v1/streams/{name}", **_sends("application/octet-stream"))(self.stream)
        app.head("/v1/streams/{name}", include_in_schema=False)(self.stream)
        app.get("/healthz", **_sends("text/plain"))(self.health)
        app.get("/readyz", **_sends("text/plain"))(self.readiness)
        app.get("/metrics", **_sends("text/plain"))(self.prometheus)
        app.get("/", include_in_schema=False)(self.explorer)

    # retrieval

    async def search(self, request: Request) -> Response:
        """Find the k nearest items of each query (`Index.search`)."""
        kind, body = await self._body(request, JSON, FLOAT32, CODES)
        allowed: bytes | str | None = None
        columns, parameters, text = None, b"", ""
        if kind == JSON:
            only_in_body(request)
            asked = await self._parsed(body, parse, schemas.SearchRequest, body)
            queries, given, columns = await self._queries(asked), asked.filter, asked.columns
            if is_given(given) and bytes(given).startswith(b'"'):
                allowed, parameters = condition_of(given, asked.parameters, self._limits.condition)
                await self._within(self._call(self._service.check_condition, allowed, parameters))
            elif asked.parameters is not None:
                raise InvalidInput("parameters belong to a condition, but filter is not a condition: leave them out")
            elif is_given(given):
                allowed = (await self._parsed(given, ids_of, given, "filter")).tobytes()
            if asked.text is not None:
                await self._within(self._call(self._service.check_text, asked.text))
                text = json.dumps(asked.text)
            options: schemas.SearchOptions = asked
        else:
            options = parse_query(schemas.SearchOptions, request)
            queries = await self._binary(kind, body)
        if options.k > self._limits.k:
            raise InvalidInput(f"k must be at most {self._limits.k:,}, got {options.k:,}: request fewer neighbors")
        packed = HITS in request.headers.get("accept", "")
        if not packed:
            _check_text(len(queries), options.k, f"send fewer queries, or accept {HITS}")
        if packed and columns is not None:
            raise InvalidInput(f"columns are sent in JSON, but {HITS} is accepted: leave columns out, or accept JSON")
        chosen = Options(
            options.k, options.candidates, options.rerank, options.rank, options.metric, allowed, parameters,
            text, options.allow_partial,
        )  # fmt: skip
        start = time.perf_counter()
        hits = await self._within(self._batcher.search(queries, chosen))
        headers = {"Server-Timing": f"search;dur={1e3 * (time.perf_counter() - start):.3f}"}
        missing = self._missing(hits)
        if packed:
            if missing:
                headers[MISSING] = pack_names(missing)
            return Response(pack_hits(hits), media_type=HITS, headers=headers)
        found = _as_lists(hits) | ({"missing": missing} if options.allow_partial else {})
        if columns is not None:
            ids, table = await self._within(self._call(self._service.attributes, hits.ids, columns))
            rows = dict(zip(ids.tolist(), table.to_pylist(), strict=bool(columns)))  # no columns, no rows
            nothing = dict.fromkeys(columns)  # of an item that was removed meanwhile
            found["attributes"] = [[rows.get(item, nothing) for item in row] for row in found["ids"]]
        return answer(found, headers)

    async def attributes(self, request: Request) -> Response:
        """Return attributes of items (`Index.attributes`), in JSON or as an Arrow stream whose first column is ids."""
        _, body = await self._body(request, JSON)
        only_in_body(request)
        asked = await self._parsed(body, parse, schemas.AttributesRequest, body)
        wanted = await self._parsed(asked.ids, ids_of, asked.ids, "ids")
        if len(wanted) > TEXT:
            raise InvalidInput(f"attributes are sent of at most {TEXT:,} ids, got {len(wanted):,}: send fewer")
        ids, table = await self._within(self._call(self._service.attributes, wanted, asked.columns))
        if ARROW in request.headers.get("accept", ""):
            return Response(await self._call(pack_table, ids, table), media_type=ARROW)
        return answer({"ids": ids.tolist(), "rows": table.to_pylist()})

    async def neighborhood(self, request: Request) -> Response:
        """Find the smallest neighborhood of each query that has enough members (`Index.neighborhood`)."""
        _, body = await self._body(request, JSON)
        only_in_body(request)
        asked = await self._parsed(body, parse, schemas.NeighborhoodRequest, body)
        limit = self._limit(asked.limit)
        queries, index = await self._queries(asked), self._service.index
        _check_text(len(queries), limit, "send fewer queries")

        def find() -> dict[str, Any]:
            hoods: Any = index.neighborhood(queries, size=asked.size, fraction=asked.fraction)
            return {
                "length": hoods.length.tolist(),
                "count": hoods.count.tolist(),
                "ids": [hood.ids[:limit].tolist() for hood in hoods],
            }

        return answer(await self._within(self._call(find)))

    async def nested(self, request: Request) -> Response:
        """Return the size of every neighborhood of one query, and the members at one length (`Index.nested`)."""
        _, body = await self._body(request, JSON)
        only_in_body(request)
        asked = await self._parsed(body, parse, schemas.NestedRequest, body)
        limit = self._limit(asked.limit)
        queries, index = await self._queries(asked), self._service.index
        if len(queries) != 1:
            raise InvalidInput(f"nested neighborhoods are for one query, got {len(queries)}: send one query")

        def find() -> dict[str, Any]:
            codes = self._encode(queries, index)
            hoods = index.nested(codes)
            longest = len(hoods) - 1
            length = longest if asked.length is None else asked.length
            if length > index.width:
                raise InvalidInput(f"length must be at most the index's width {index.width}, got {length}")
            ids = hoods[length].ids[:limit].tolist() if length <= longest else []
            return {"code": as_hex(codes)[0], "count": hoods.count.tolist(), "length": length, "ids": ids}

        return answer(await self._within(self._call(find)))

    # coding

    async def encode(self, request: Request) -> Response:
        """Encode vectors or texts; codes have the width of the index, or the length that is given."""
        length = parse_query(schemas.EncodeOptions, request).length
        kind, body = await self._body(request, JSON, FLOAT32)
        coder = self._service.coder
        if kind == JSON:
            asked = await self._parsed(body, parse, schemas.EncodeRequest, body)
            kind = only_one(asked, "vectors", "texts")
            rows = await self._vectors(kind, getattr(asked, kind))
        else:
            rows = await self._parsed(body, rows_in, body, coder.n_features_in_)
            check_count(len(rows), self._limits.rows, "rows")
        kept = self._width() if length is None else length
        codes = await self._within(self._call(lambda: coder.encode(rows).prefix(kept)))
        if CODES in request.headers.get("accept", ""):
            return Response(codes.packed.tobytes(), media_type=CODES)
        return answer({"codes": as_hex(codes)})

    async def decode(self, request: Request) -> Response:
        """Decode the first `length` bits of codes; codes have the width of the index."""
        length = parse_query(schemas.DecodeOptions, request).length
        kind, body = await self._body(request, JSON, CODES)
        coder, width = self._service.coder, self._width()
        given = (await self._parsed(body, parse, schemas.Codes, body)).codes if kind == JSON else None
        codes = codes_in(body, width) if given is None else codes_of(given, width)
        check_count(len(codes), self._limits.rows, "codes")
        kept = codes if length is None else codes.prefix(length)
        rows: Floats = await self._within(self._call(coder.decode, kept))
        if FLOAT32 in request.headers.get("accept", ""):
            return Response(rows.astype("<f4").tobytes(), media_type=FLOAT32)
        return answer({"vectors": rows.tolist()})

    # items

    async def add(self, request: Request) -> Response:
        """Add items; the answer comes when they are durable (`Index.add`). In a binary body each row follows its id."""
        kind, body = await self._body(request, JSON, FLOAT32, CODES)
        rows, columns = b"", None
        if kind == JSON:
            only_in_body(request)
            asked = await self._parsed(body, parse, schemas.AddRequest, body)
            columns = await self._call(self._service.attributes_to_add, asked.attributes)
            items = await self._queries(asked)
            ids: Ids = ids_of(asked.ids, "ids", self._limits.rows)
            duplicate = asked.on_duplicate
        else:
            row = -(-self._service.index.width // 8) if kind == CODES else 4 * self._service.coder.n_features_in_
            try:
                ids, rows = await self._parsed(body, unpack_items, body, row)
            except ValueError as error:
                raise InvalidInput(str(error)) from None
            items, duplicate = await self._binary(kind, rows), parse_query(schemas.AddOptions, request).on_duplicate
        return await self._write(lambda index: index.add(items, ids, attributes=columns, on_duplicate=duplicate))

    async def remove(self, request: Request) -> Response:
        """Remove items; the answer comes when that is durable (`Index.remove`)."""
        _, body = await self._body(request, JSON)
        only_in_body(request)
        given = (await self._parsed(body, parse, schemas.RemoveRequest, body)).ids
        ids = ids_of(given, "ids", self._limits.rows)
        return await self._write(lambda index: index.remove(ids))

    async def _write(self, edit: Callable[[Index], None]) -> Response:
        writer = self._service.writer
        assert writer is not None
        await writer.write(edit, self._limits.seconds)
        self.metrics.items.set(len(self._service.index))
        return answer({"count": len(self._service.index)})

    async def read_only(self) -> Response:
        """Refuse to write."""
        raise HTTPException(403, f"this server only reads its index: {self._service.how_to_write}")

    async def item(self, item: int) -> Response:
        """Show an item: an image or a text."""
        items = self._service.items
        if items is None or not 0 <= item < len(items):
            why = "it was started without --items" if items is None else f"it has {len(items):,} of them"
            raise Absent(f"this server cannot show item {item}: {why}")
        try:
            content, kind = await self._call(items.show, item)
        except (NestcodeError, OSError) as error:  # which says nothing of the index
            log.error("item %d cannot be shown: %s", item, error)
            raise HTTPException(500, f"item {item} cannot be shown: the server's log says why") from None
        return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=600"})

    # the rest

    async def info(self) -> Response:
        """Describe what is served."""
        return answer(await self._call(self._service.describe))

    async def coder(self) -> Response:
        """Return the mean squared error of a feature by length, and the first directions of the coder."""
        coder = self._service.coder

        def look() -> dict[str, Any]:
            width, projection = self._width(), coder.projection()
            lengths = sorted({round(step) for step in np.linspace(0, width, min(width, 128) + 1)})
            directions = None if projection is None else np.asarray(projection.directions[:16], np.float64).tolist()
            mean = None if projection is None else np.asarray(projection.mean, np.float64).tolist()
            errors = [float(coder.expected_error(length)) for length in lengths]
            return {"lengths": lengths, "errors": errors, "directions": directions, "mean": mean}

        return answer(await self._call(look))

    async def stream(self, name: str, request: Request) -> Response:
        """Send a stream, or the bytes that the header Range names: a prefix is a coarser version of all items."""
        path = (await self._call(self._service.streams)).get(name)
        if path is None:
            raise Absent(f"there is no stream {name[:80]!r}: /v1/info lists them")
        about = await self._call(os.stat, path)
        whole = FileResponse(path, media_type="application/octet-stream", stat_result=about)
        known = self.static.is_not_modified(whole.headers, request.headers)
        return NotModifiedResponse(whole.headers) if known else whole

    async def health(self) -> Response:
        """Answer as long as the process runs."""
        return PlainTextResponse("ok\n")

    async def readiness(self) -> Response:
        """Answer 200 once searches are prepared, 503 before that."""
        return PlainTextResponse("ready\n") if self._ready else PlainTextResponse("not ready yet\n", 503)

    async def prometheus(self) -> Response:
        """Return counters in the text format of Prometheus."""
        parts = await self._call(self._service.parts)
        return Response(self.metrics.text(parts), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def explorer(self) -> Response:
        """Send the explorer page."""
        return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY})

    # what several need

    def _missing(self, hits: Hits) -> list[str]:
        """Return the names of the parts that are not in hits; only the log names paths, and says why."""
        missing = hits.missing if isinstance(hits, PartialHits) else {}
        for path, why in missing.items():
            log.warning("hits without %s: %s", path, why)
        return sorted(Path(path).name for path in missing)

    async def _body(self, request: Request, *accepted: str) -> tuple[str, bytes]:
        kind = media_type(request, *accepted)
        most = min(self._limits.json, self._limits.body) if kind == JSON else self._limits.body
        body = await read_body(request, self._limits, most)
        if request.headers.get("if-match", "*") not in ("*", self._service.tag):
            raise HTTPException(412, "this server has an index of another width or coder now: read /v1/info again")
        return kind, body

    async def _within(self, work: Awaitable[Result]) -> Result:
        """Wait for an answer as long as the limits allow."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await work
        except TimeoutError:
            message = f"there was no answer within {self._limits.seconds:g} s: send fewer queries, or try again later"
            raise HTTPException(503, message, {"Retry-After": "1"}) from None

    async def _parsed(self, body: Sized, function: Callable[..., Result], *arguments: Any) -> Result:
        """Read a large body in its own thread, so that other requests are answered meanwhile."""
        if len(body) <= SMALL:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._parser, function, *arguments)

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._others, function, *arguments)

    def _width(self) -> int:
        with contextlib.suppress(Absent):
            return self._service.index.width
        return self._service.coder.width_

    def _limit(self, asked: int | None) -> int:
        """Return how many ids to send."""
        limit = min(SHOWN, self._limits.k) if asked is None else asked
        if limit > self._limits.k:
            raise InvalidInput(f"limit must be at most {self._limits.k:,}, got {limit:,}: request fewer ids")
        return limit

    def _encode(self, queries: Rows, index: Index | SearchCluster) -> Codes:
        return queries if isinstance(queries, Codes) else self._service.coder.encode(queries).prefix(index.width)

    async def _queries(self, asked: schemas.Queries | schemas.SearchRequest | schemas.AddRequest) -> Rows:
        """Return the queries of a JSON body as the index takes them."""
        adding = isinstance(asked, schemas.AddRequest)
        kind = only_one(asked, "vectors", "codes") if adding else only_one(asked, "vectors", "codes", "texts", "ids")
        given = getattr(asked, kind)
        if kind == "codes":
            check_count(len(given), self._limits.rows, kind)
            return codes_of(given, self._service.index.width)
        if kind == "ids":
            return await self._call(self._service.items_as_queries, ids_of(given, kind, self._limits.rows))
        return await self._call(self._service.as_queries, await self._vectors(kind, given))

    async def _vectors(self, kind: str, given: Any) -> Floats:
        """Return the vectors of a JSON body, or those of its texts."""
        if kind == "vectors":
            return await self._parsed(given, rows_of, given, self._service.coder.n_features_in_, self._limits.rows)
        check_count(len(given), self._limits.rows, kind)
        if self._service.embed is None:
            raise InvalidInput("this server has no model of text: start it with --model, or send vectors")
        return await self._within(self._call(self._service.embed, given))

    async def _binary(self, kind: str, body: bytes) -> Rows:
        index = self._service.index
        if kind == CODES:
            rows: Rows = codes_in(body, index.width)
        else:
            rows = await self._parsed(body, rows_in, body, self._service.coder.n_features_in_)
        check_count(len(rows), self._limits.rows, "rows")
        return rows if index.coder is not None else await self._call(self._as_queries, rows)

    def _as_queries(self, rows: Rows) -> Rows:
        return rows if isinstance(rows, Codes) else self._service.as_queries(rows)


def _as_lists(hits: Hits) -> dict[str, Any]:
    """Return hits as lists, without missing hits."""
    found = [ids >= 0 for ids in hits.ids]
    return {
        "ids": [ids[there].tolist() for ids, there in zip(hits.ids, found, strict=True)],
        "distances": [row[there].tolist() for row, there in zip(hits.distances, found, strict=True)],
        "compared": hits.compared.tolist(),
    }


def _about(
    takes: type[schemas.Body], gives: type[schemas.Body], *binary: str, query: type[schemas.Body] | None = None
) -> dict[str, Any]:
    """Return the description of a route for OpenAPI; routes with parameters take binary bodies too."""
    rows = {"schema": {"type": "string", "format": "binary"}}
    kinds = [
        kind for kind, name in ((FLOAT32, "vectors"), (CODES, "codes")) if query and name in takes.__struct_fields__
    ]
    parameters = {} if query is None else schemas.schema_of(query)["properties"]
    return {
        "openapi_extra": {
            "parameters": [{"name": name, "in": "query", "schema": schema} for name, schema in parameters.items()],
            "requestBody": {
                "required": True,
                "content": {JSON: {"schema": schemas.schema_of(takes)}, **dict.fromkeys(kinds, rows)},
            },
        },
        "responses": {200: _json(gives, dict.fromkeys(binary, rows))},
        "response_class": Response,
    }


def _json(gives: type[schemas.Body], others: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the description of an answer in JSON for OpenAPI, which may come in other types too."""
    about = (gives.__doc__ or "").partition("\n")[0]
    return {"description": about, "content": {JSON: {"schema": schemas.schema_of(gives)}, **(others or {})}}


def _sends(*kinds: str) -> dict[str, Any]:
    """Return the description of an answer that is not JSON."""
    content: dict[str, Any] = {kind: {"schema": {"type": "string"}} for kind in kinds}
    return {"response_class": Response, "responses": {200: {"content": content}}}
