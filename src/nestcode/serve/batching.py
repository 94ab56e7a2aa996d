"""Micro-batching: searches that arrive while all threads are busy are run together.

There is no timer: a request that finds an idle thread starts at once, and a batch is the queue at the time when a
thread becomes idle. Under load batches grow by themselves.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from nestcode.arrays import Floats
from nestcode.codes import Codes
from nestcode.search.hits import Hits, PartialHits

BATCH = 64  # queries of one call: a batch occupies a thread for a bounded time, and large requests share threads
Queries = Floats | Codes


@dataclass(frozen=True)
class Options:
    """The arguments of a search besides its queries; searches with equal options can share a batch."""

    k: int
    candidates: int | None = None
    rerank: int | None = None
    rank: str | None = None
    metric: str | None = None
    filter: bytes | str | None = None  # ids, int64; or a condition
    parameters: bytes = b""  # of the condition: JSON, in which 1 and true are not equal
    text: str = ""  # of a hybrid search, with its column if it names one: JSON
    allow_partial: bool = False  # answer without the parts of a cluster that do not

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as `Index.search` takes them."""
        own = ("parameters", "allow_partial")
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in own}
        if isinstance(self.filter, bytes):
            given["filter"] = np.frombuffer(self.filter, dtype=np.int64)
        elif self.filter is not None:
            given["filter"] = (self.filter, json.loads(self.parameters or b"[]"))
        given["text"] = json.loads(self.text) if self.text else None
        return given


class Busy(Exception):
    """More queries wait than the server accepts, or a write waited too long."""


Search = Callable[[Queries, Options], Hits]
Waiting = tuple[Queries, asyncio.Future[Hits]]


class Batcher:
    """Searches in a pool of threads; used from one event loop.

    Args:
        search: answers a batch, of any thread.
        pool: the threads.
        threads: how many there are.
        waiting: how many queries may wait.
        observe: called with the size of each batch.

    """

    def __init__(
        self, search: Search, pool: ThreadPoolExecutor, threads: int, waiting: int, observe: Callable[[int], None]
    ) -> None:
        self._search, self._pool, self._observe = search, pool, observe
        self._idle, self._room = threads, waiting
        self._queues: dict[Hashable, tuple[Options, deque[Waiting]]] = {}  # by what can share a batch; the oldest first

    async def search(self, queries: Queries, options: Options) -> Hits:
        """Return the hits of all queries, in arrays of two dimensions."""
        if len(queries) > self._room:
            raise Busy
        loop = asyncio.get_running_loop()
        _, queue = self._queues.setdefault((options, isinstance(queries, Codes)), (options, deque()))
        parts = []
        for first in range(0, len(queries), BATCH):
            part, answer = queries[first : first + BATCH], loop.create_future()
            self._room -= len(part)
            queue.append((part, answer))
            parts.append(answer)
        self._start()
        return _join(await asyncio.gather(*parts))

    def _start(self) -> None:
        """Give batches to idle threads."""
        while self._idle and self._queues:
            key = next(iter(self._queues))
            options, queue = self._queues.pop(key)
            batch: list[Waiting] = []
            rows = 0
            while queue and rows + len(queue[0][0]) <= BATCH:
                part, answer = queue.popleft()
                self._room += len(part)
                if not answer.done():  # its request may have been cancelled
                    batch.append((part, answer))
                    rows += len(part)
            if queue:
                self._queues[key] = options, queue  # behind the others
            if batch:
                self._idle -= 1
                self._observe(rows)
                queries = batch[0][0] if len(batch) == 1 else _concatenate([part for part, _ in batch])
                running = asyncio.get_running_loop().run_in_executor(self._pool, self._search, queries, options)
                running.add_done_callback(partial(self._finish, batch, options))

    def _finish(self, batch: list[Waiting], options: Options, done: asyncio.Future[Hits]) -> None:
        self._idle += 1
        error, start = done.exception(), 0
        for part, answer in batch:
            if error is not None and len(batch) > 1:  # it may be the fault of one of them: each alone
                self._room -= len(part)
                self._queues[answer] = options, deque([(part, answer)])
            elif not answer.done():
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(_rows(done.result(), slice(start, start + len(part))))
            start += len(part)
        self._start()


def _concatenate(parts: Sequence[Queries]) -> Queries:
    if isinstance(parts[0], Codes):
        return parts[0].concat(*parts[1:])  # type: ignore[arg-type]
    return np.concatenate(parts)


def _rows(hits: Hits, rows: slice) -> Hits:
    return _with_missing(Hits(hits.ids[rows], hits.distances[rows], hits.compared[rows]), [hits])


def _join(parts: Sequence[Hits]) -> Hits:
    if len(parts) == 1:
        return parts[0]
    ids, distances, compared = zip(*((hits.ids, hits.distances, hits.compared) for hits in parts), strict=True)
    return _with_missing(Hits(np.concatenate(ids), np.concatenate(distances), np.concatenate(compared)), parts)


def _with_missing(hits: Hits, parts: Sequence[Hits]) -> Hits:
    """Return joined hits with the missing parts of all hits that they were joined from."""
    missing = [part.missing for part in parts if isinstance(part, PartialHits)]
    if not missing:
        return hits
    return PartialHits(
        hits.ids, hits.distances, hits.compared, {name: why for one in missing for name, why in one.items()}
    )
