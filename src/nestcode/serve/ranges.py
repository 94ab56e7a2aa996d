"""The header Range of RFC 9110: a malformed range is ignored, an unsatisfiable one is refused in JSON."""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ONE = re.compile(r"bytes=(?:([0-9]{1,99})-([0-9]{0,99})|-[0-9]{1,99})")


def is_range(header: str) -> bool:
    """Return whether a header names one range of bytes; several are ignored, as servers may.

    >>> is_range("bytes=0-99"), is_range("bytes=-5"), is_range("bytes=9-5"), is_range("bytes=0-1,4-5"), is_range("x")
    (True, True, False, False, False)
    """
    found = ONE.fullmatch(header.strip())
    return found is not None and not (found[2] and int(found[1]) > int(found[2]))


class Ranges:
    """Middleware that lets only valid ranges through, and gives status 416 a body with the reason."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        given = Headers(scope=scope).get("range") if scope["type"] == "http" else None
        if given is None:
            await self._app(scope, receive, send)
            return
        if not is_range(given):
            del MutableHeaders(scope=scope)["range"]
        refusal: JSONResponse | None = None

        async def explained(message: Message) -> None:
            nonlocal refusal
            if message["type"] == "http.response.start" and message["status"] == 416:
                span = Headers(raw=message["headers"])["content-range"]
                error = f"Range must begin within the file of {span.rpartition('/')[2]} bytes, got {given[:40]}"
                refusal = JSONResponse({"error": f"{error}: request earlier bytes"}, 416, {"Content-Range": span})
                await refusal(scope, receive, send)
            elif refusal is None:
                await send(message)

        await self._app(scope, receive, explained)
