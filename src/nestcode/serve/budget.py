"""The memory that the bodies of all requests take together."""

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALL = 64 << 10  # bytes of a body that are always taken: connections are bounded, so these are too


class Budget:
    """Middleware that refuses a large body while other bodies fill the memory that is set aside for them.

    Small bodies are taken at any time, so a client that sends a large body slowly does not lock other clients out.

    Args:
        app: the application.
        room: bytes of all bodies beyond the first `SMALL` of each.

    """

    def __init__(self, app: ASGIApp, room: int) -> None:
        self._app, self._room = app, room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whose body is held until then."""
        arrived = held = 0

        async def counted() -> Message:
            nonlocal arrived, held
            message = await receive()
            arrived += len(message.get("body", b""))
            more = max(0, arrived - SMALL) - held
            if more > self._room:
                raise HTTPException(
                    503,
                    "the bodies of other requests take all memory set aside for them: try again later, or send "
                    f"bodies of at most {SMALL:,} bytes",
                    {"Retry-After": "1", "Connection": "close"},
                )
            held += more
            self._room -= more
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._room += held
