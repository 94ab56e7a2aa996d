"""Accept connections, and let in those whose first request has arrived."""

import asyncio
import contextlib
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial

from nestcode.serve.fair import FairQueue, client_of

HEAD = 64 << 10  # bytes of a request line and headers
PIECE = 4096  # of them, read at once
QUEUE = 2048  # connections that the system holds until they are accepted, and those accepted that wait for their turn
BATCH = 64  # connections that are accepted in one turn of the event loop
GROUPS = 64  # of clients, by a hash: the largest is found in constant time
PAUSE = 0.1  # seconds in which nothing is accepted after the system had no files left

Waiting = OrderedDict[int, "Newcomer"]  # by descriptor, the oldest first


class Newcomer:
    """A connection whose first request has not arrived."""

    __slots__ = ("client", "group", "head", "late", "socket")

    def __init__(self, accepted: socket.socket, client: Hashable, late: float, group: Waiting) -> None:
        self.socket, self.client, self.late, self.group = accepted, client, late, group
        self.head = bytearray()


class Acceptor:
    """Takes connections from a listening socket, and makes a protocol of each once it has sent the head of a request.

    Until then a connection costs a socket, a few bytes and constant work: silent and half-open ones are cheap. Where
    more than `most` wait, the oldest of the group of clients with the most is closed, so no client closes another's.
    Those whose heads have arrived come in by turns, client by client; while `QUEUE` of them wait, nothing is accepted.

    Args:
        listening: the socket.
        make: makes a protocol for a connection, given the bytes that have arrived.
        turns: the queue of all that clients wait for.
        most: how many connections may wait.
        seconds: in which a head must arrive.

    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[bytes], asyncio.Protocol],
        turns: FairQueue,
        most: int,
        seconds: float,
    ) -> None:
        listening.setblocking(False)
        self._listening, self._make, self._turns, self._most, self._seconds = listening, make, turns, most, seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: Waiting = OrderedDict()
        self._groups: list[Waiting] = [OrderedDict() for _ in range(GROUPS)]
        self._ready = 0  # connections whose heads have arrived, and that have not come in
        self._entering: set[asyncio.Task[None]] = set()
        self._open, self._sweep = True, self._loop.call_later(seconds, self._close_late)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accept nothing more, and close what waits."""
        self._open = False
        self._sweep.cancel()
        self._loop.remove_reader(self._listening)
        for one in list(self._waiting.values()):
            self._close(one)

    def _accept(self) -> None:
        """Accept some, and read what they have sent."""
        for _ in range(BATCH):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no files are left
                self._loop.remove_reader(self._listening)
                self._loop.call_later(PAUSE, self._go_on)
                return
            accepted.setblocking(False)
            client = client_of(address[0])
            group = self._groups[hash(client) % GROUPS]
            one = Newcomer(accepted, client, time.monotonic() + self._seconds, group)
            self._waiting[accepted.fileno()] = group[accepted.fileno()] = one
            self._read(one)
            if accepted.fileno() in group:
                self._loop.add_reader(accepted, self._read, one)
            if len(self._waiting) > self._most:
                self._close(next(iter(max(self._groups, key=len).values())))

    def _go_on(self) -> None:
        if self._open:
            self._loop.add_reader(self._listening, self._accept)

    def _read(self, one: Newcomer) -> None:
        """Take the next bytes of a head."""
        try:
            data = one.socket.recv(PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        start = max(0, len(one.head) - 3)
        one.head += data
        if not data:
            self._close(one)
        elif one.head.find(b"\r\n\r\n", start) >= 0 or not one.head[:1].isalpha():  # else it is no HTTP: say so
            self._leave(one)
            self._ready += 1
            if self._ready >= QUEUE:
                self._loop.remove_reader(self._listening)
            self._turns.put(one.client, partial(self._enter, one))
        elif len(one.head) > HEAD:
            self._close(one)

    def _enter(self, one: Newcomer) -> None:
        """Make a protocol of a connection."""
        if self._ready == QUEUE:
            self._go_on()
        self._ready -= 1
        if not self._open:
            one.socket.close()
            return
        entering = self._loop.create_task(self._connect(one))
        self._entering.add(entering)  # else it may be collected
        entering.add_done_callback(self._entering.discard)

    async def _connect(self, one: Newcomer) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            await self._loop.connect_accepted_socket(partial(self._make, bytes(one.head)), one.socket)

    def _leave(self, one: Newcomer) -> None:
        """Wait no longer for a head."""
        number = one.socket.fileno()
        self._loop.remove_reader(number)
        del self._waiting[number], one.group[number]

    def _close(self, one: Newcomer) -> None:
        self._leave(one)
        one.socket.close()

    def _close_late(self) -> None:
        """Close connections whose heads have not arrived in time."""
        now, next_time = time.monotonic(), time.monotonic() + self._seconds
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.late > now:
                next_time = oldest.late
                break
            self._close(oldest)
        self._sweep = self._loop.call_later(next_time - now, self._close_late)
