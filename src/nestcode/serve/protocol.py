"""HTTP as uvicorn speaks it, with limits on the head of a request, which uvicorn's fast parser lacks."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD = 64 << 10  # bytes of a request line and headers


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose request line and headers are too large or too slow, before they cost memory.

    Where too many are open, it closes the one that has waited longest for a request, or for its client to read:
    silent ones lock nobody out.
    """

    seconds = 30.0  # in which a head must arrive, and something of an answer be read
    _since = 0.0  # when it was expected
    _head = 0  # bytes of the head that is arriving; of pipelined requests, at most those
    _arriving = True
    _ended = False  # whether a request ended within the latest bytes, which then are not all of a head
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _unanswered: tuple[RequestResponseCycle, ...] = ()  # of these uvicorn tells the latest alone of a lost connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._expect()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and answering."""
        self._cancel()
        self._read_on()
        for one in self._unanswered:
            one.disconnected = True
            one.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._since = self.loop.time()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._read_on()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take the next bytes."""
        self._ended = False
        super().data_received(data)
        if self._arriving and not self._ended:
            self._head += len(data)
            if self._head > HEAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        """Wait for the rest of a head."""
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        """Go on with the body."""
        self._cancel()
        self._arriving, self._head = False, 0
        super().on_headers_complete()
        requests = (*self._unanswered, self.cycle)
        self._unanswered = tuple(one for one in requests if one is not None and not one.response_complete)

    def on_message_complete(self) -> None:
        """Go on with the next request."""
        self._arriving = self._ended = True
        super().on_message_complete()

    def _expect(self) -> None:
        self._cancel()
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self.seconds, self._close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expect_reading(self) -> None:
        """Close the connection unless some of the answer is read in time; `close` would wait for all of it."""
        left = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < left:
                self._expect_reading()
            else:
                self.transport.abort()

        self._stalled = self.loop.call_later(self.seconds, check)

    def _read_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, LimitedProtocol) and one is not self]
        oldest = min((one for one in others if one._waits()), key=lambda one: one._since, default=None)
        if oldest is not None:
            oldest.transport.abort()

    def _waits(self) -> bool:
        """Return whether the client is to act: to send a request, or to read an answer, also one that is the last."""
        idle = self.cycle is None or self.cycle.response_complete or self.flow.write_paused
        return idle and (not self.transport.is_closing() or self.transport.get_write_buffer_size() > 0)

    def _close(self, *_: Any) -> None:
        self.transport.close()


def limited(seconds: float) -> type[LimitedProtocol]:
    """Return the protocol with a limit of seconds for a head to arrive."""
    return type("LimitedProtocol", (LimitedProtocol,), {"seconds": seconds})
