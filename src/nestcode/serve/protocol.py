"""HTTP as uvicorn speaks it, with limits on what one connection may occupy, which uvicorn's fast parser lacks."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nestcode.serve.acceptor import HEAD
from nestcode.serve.fair import FairQueue, client_of

PIPELINED = 8  # requests of a connection that are unanswered
FIRST_SECONDS = 1.0  # a client that is silent for longer may lose its connection to another client
LAST_SECONDS = 5.0  # the same, of a server that ends


class TooManyRequests(Exception):
    """Stops the parser: the rest of what arrived is not looked at."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose request line and headers are too large or too slow, before they cost memory.

    A connection that sends requests without waiting for answers is answered `PIPELINED` of them and closed. Requests
    begin in turns, client by client. If too many connections are open, the protocol looks at the larger of two groups
    (waiting for a request or the reading of an answer, for a body) and closes its longest waiting connection. So many
    connections of one kind close each other, and lock nobody out. The connection has `FIRST_SECONDS` left, because its
    request may be on its way, unless twice the limit are open.
    """

    seconds = 30.0  # in which a head must arrive, and something of an answer be read
    most = 1024  # connections that may wait
    turns: FairQueue  # of all that clients wait for
    idle: "OrderedDict[LimitedProtocol, None]"  # waiting for a request, or for the client to read, longest first
    uploading: "OrderedDict[LimitedProtocol, None]"  # waiting for a body
    _head = 0  # bytes of the head that is arriving; of pipelined requests, at most those
    _received = 0  # bytes in all
    _arriving = True
    _ended = False  # whether a request ended within the latest bytes, which then are not all of a head
    _has_turn = False  # whether a request may begin at once
    _full = False  # whether there were too many requests
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, early: bytes = b"", **named: Any) -> None:
        super().__init__(*given, **named)
        self._early = early  # bytes that arrived before
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._client: Hashable = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read what has arrived."""
        super().connection_made(transport)
        self._client = client_of(self.client[0]) if self.client else None
        self.loop.call_soon(self._begin)  # once asyncio reads from it, which a request may stop
        self._expect()
        self._note()
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and answering."""
        self._cancel()
        self._read_on()
        for queue in (self.idle, self.uploading):
            queue.pop(self, None)
        for one in self._unanswered:  # of these uvicorn tells the latest alone
            one.disconnected = True
            one.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._note()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Continue the answer."""
        self._read_on()
        super().resume_writing()
        self._note()

    def data_received(self, data: bytes) -> None:
        """Take the next bytes."""
        self._received += len(data)
        if self._full:
            return
        self._ended = False
        super().data_received(data)
        if self._arriving and not self._ended:
            self._head += len(data)
            if self._head > HEAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        """Wait for the rest of a head."""
        if len(self._unanswered) >= PIPELINED:
            self._full = True
            self._cancel()
            self._unanswered[-1].keep_alive = False  # which closes the connection
            raise TooManyRequests
        super().on_message_begin()
        self._expect()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        if not self._full:  # else the parser was stopped, and answers are under way
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        """Continue with the body."""
        self._cancel()
        self._arriving, self._head = False, 0
        super().on_headers_complete()
        if self.cycle is not None:
            self._unanswered.append(self.cycle)
        self._note()

    def on_message_complete(self) -> None:
        """Continue with the next request."""
        self._arriving = self._ended = True
        super().on_message_complete()
        self._note()

    def on_response_complete(self) -> None:
        """Continue with the next answer, or wait for a request."""
        self._unanswered.popleft()
        super().on_response_complete()
        self._note()
        if not self._unanswered and not self._arriving:  # a refused body is not read for longer than a head
            self._expect()

    def shutdown(self) -> None:
        """Finish the request that has begun, as long as its client does."""
        super().shutdown()
        self._expect_sign(LAST_SECONDS, again=True)

    def _begin(self) -> None:
        if not self.transport.is_closing():
            early, self._early = self._early, b""
            self._has_turn = True
            self.data_received(early)
            self._has_turn = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Let a request wait for its turn; the first one of a connection has waited with it."""

        def start() -> None:
            if not cycle.disconnected:
                super(LimitedProtocol, self)._start_asgi_task(cycle, app)

        if self._has_turn:
            self._has_turn = False
            start()
        else:
            self.turns.put(self._client, start)

    def _note(self) -> None:
        """Note whether the connection waits for its client, from now on."""
        for queue in (self.idle, self.uploading):
            queue.pop(self, None)
        if not self._unanswered or self.flow.write_paused:
            self.idle[self] = None
        elif self._unanswered[0].more_body:
            self.uploading[self] = None

    def _expect(self) -> None:
        self._cancel()
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

    def _expect_sign(self, seconds: float, *, again: bool = False) -> None:
        """Close the connection unless its client sends or reads something in time, and then `again`."""
        before = self._received, self.transport.get_write_buffer_size()

        def check() -> None:
            if self not in self.connections:
                return
            waits = not self._unanswered or self.flow.write_paused or self._unanswered[0].more_body
            if waits and before == (self._received, self.transport.get_write_buffer_size()):
                self.transport.abort()
            elif again:
                self._expect_sign(seconds, again=True)

        self.loop.call_later(seconds, check)  # the loop reads what has arrived before it looks at the time

    def _make_room(self) -> None:
        """Close the connection that has waited longest in the larger group."""
        queue = max(self.idle, self.uploading, key=len)
        oldest = next(iter(queue), self)
        if oldest is not self:
            del queue[oldest]  # the next connection closes another
            if len(self.connections) > 2 * self.most:
                oldest.transport.abort()
            else:
                oldest._expect_sign(FIRST_SECONDS)

    def _close(self, *_: Any) -> None:
        self.transport.close()


def limited(seconds: float, connections: int) -> type[LimitedProtocol]:
    """Return the protocol of one server, with limits of seconds for a head to arrive and of connections."""
    return type(
        "LimitedProtocol",
        (LimitedProtocol,),
        {
            "seconds": seconds,
            "most": connections,
            "turns": FairQueue(),
            "idle": OrderedDict(),
            "uploading": OrderedDict(),
        },
    )
