"""Fair queuing: what clients ask for is begun a little at a time, one client after the other."""

import asyncio
import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

EACH = 2  # calls of one turn of the event loop: between them it sends, reads and accepts


def client_of(host: str) -> Hashable:
    """Return what connections of one client share: an address, or the /64 network of an IPv6 address.

    >>> client_of("192.0.2.1"), client_of("2001:db8::1") == client_of("2001:db8::2")
    ('192.0.2.1', True)
    >>> client_of("::ffff:192.0.2.1") == client_of("::ffff:192.0.2.2")  # IPv4, as a socket of both shows it
    False
    """
    if ":" not in host:
        return host
    packed = ipaddress.IPv6Address(host).packed
    return packed[:8] if any(packed[:8]) else packed


class FairQueue:
    """Calls that wait for the event loop; of clients that have several, each gets one at a time.

    So a client with one request waits for one of each other client, and not for all that came before.
    """

    def __init__(self) -> None:
        self._calls: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()
        self._runs = False

    def put(self, client: Hashable, call: Callable[[], object]) -> None:
        """Let a client wait for a call."""
        self._calls.setdefault(client, deque()).append(call)
        if not self._runs:
            self._runs = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        for _ in range(EACH):
            if not self._calls:
                break
            client, calls = self._calls.popitem(last=False)
            call = calls.popleft()
            if calls:
                self._calls[client] = calls  # behind the others
            call()
        self._runs = bool(self._calls)
        if self._runs:
            asyncio.get_running_loop().call_soon(self._run)
