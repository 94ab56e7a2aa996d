"""Limits on requests, so that no request can exhaust the server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The largest request that is answered.

    >>> Limits(k=100).k
    100
    """

    body: int = 64 << 20  # bytes of a request
    json: int = 4 << 20  # bytes of a JSON body, which costs more to read
    rows: int = 4096  # queries or items of a request
    k: int = 1000  # hits of a query, and ids of a neighborhood
    condition: int = 4096  # characters of a condition; its parameters are a part of the JSON
    comparisons: int = 100  # of a condition: each looks at all items once
    columns: int = 16 << 20  # bytes of the attributes of an answer
    seconds: float = 30  # to send a head, to send a body, and to wait for an answer
    waiting: int = 32768  # queries of all requests that wait for a thread
    connections: int = 1024

    @property
    def bodies(self) -> int:
        """Bytes of all bodies that are held at the same time."""
        return 4 * self.body
