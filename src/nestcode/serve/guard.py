"""Access to the server: allowed hosts, tokens and origins; counters of requests."""

import hmac
import ipaddress
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nestcode.errors import InvalidInput
from nestcode.serve.metrics import Metrics

OPEN = ("/", "/healthz", "/readyz")  # without a token: they tell nothing about the data
OPEN_FOLDER = "/static/"
WRITES = "/v1/items"  # what is posted there changes the index
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")


def is_loopback(host: str) -> bool:
    """Return whether a host to bind to is reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_origins(origins: Sequence[str]) -> None:
    """Raise if one of these is not a web site as browsers name it: a scheme and a host, without a path.

    >>> check_origins(["https://example.org", "http://localhost:8000", "*"])
    """
    for origin in origins:
        if origin not in ("*", "null") and not ORIGIN.fullmatch(origin):
            raise InvalidInput(f"a web site must be like https://example.org, without a path, or *, got {origin!r}")


class Guard:
    """Middleware that checks the Host header and the bearer token, and counts requests.

    Args:
        app: the application.
        metrics: where requests are counted.
        token: the bearer token that requests must have; None admits every request.
        local: admit only requests to a name of the loopback interface. Otherwise a page on the web could reach the
            server through a visitor's browser, by a domain that resolves to 127.0.0.1 (DNS rebinding).
        origins: web sites whose pages may write, besides those of this server; "*" are all.

    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, token: str | None, *, local: bool, origins: Sequence[str] = ()
    ) -> None:
        self._app, self._metrics, self._local, self._origins = app, metrics, local, origins
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        refusal = self._refusal(scope)

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.seconds.labels(route_of(scope)).observe(time.perf_counter() - start)
            await send(message)

        self._metrics.active.inc()
        try:
            await (refusal or self._app)(scope, receive, observed)
        finally:
            self._metrics.active.dec()
            self._metrics.requests.labels(route_of(scope), str(status)).inc()

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) > 1:
            return _refuse(400, f"a request must have one Host header, got {len(hosts)}: send one")
        if self._local and not is_loopback(_name(headers.get("host", ""))):
            return _refuse(421, "this server answers requests to localhost only: name another --host and a token")
        path, origin = scope["path"], headers.get("origin")
        writes = scope["method"] == "POST" and path.startswith(WRITES)
        if writes and origin is not None and not self._may_write(origin, headers):
            remedy = "serve them from a web site, and name it with" if origin == "null" else "name that web site with"
            return _refuse(403, f"pages of {origin[:80]} may not write: {remedy} --cors")
        if self._token is None or path in OPEN or path.startswith(OPEN_FOLDER):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            return None
        refusal = _refuse(401, "this server needs a token: send the header Authorization: Bearer TOKEN")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    def _may_write(self, origin: str, headers: Headers) -> bool:
        """Return whether a page may write: one of this server, or of a named web site; programs send no Origin."""
        if origin == "null":  # any sandboxed frame or local file
            return False
        own = origin.partition("://")[2] == headers.get("host")
        return own or origin in self._origins or "*" in self._origins


def _refuse(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)


def _name(host: str) -> str:
    """Return the Host header without its port and the brackets of an IPv6 address."""
    name, colon, port = host.rpartition(":")
    name = name if colon and port.isdigit() else host
    return (name[1:-1] if name[:1] == "[" and name[-1:] == "]" else name).lower()


def route_of(scope: Scope) -> str:
    """Return the pattern of the route, so that requests cannot add labels."""
    return str(getattr(scope.get("route"), "path", "other"))
