"""Micro-batching: concurrent searches share calls, and nobody waits for or suffers from another."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nestcode.errors import InvalidInput
from nestcode.search.hits import Hits
from nestcode.serve.batching import BATCH, Batcher, Busy, Options, Queries
from tests.serve.conftest import PATIENCE


class Echo:
    """A search that returns each query's first value as id; it can be held up, and refuses negative values."""

    def __init__(self, threads: int = 1, waiting: int = 1000) -> None:
        self.calls: list[int] = []
        self.open = threading.Event()
        self.open.set()
        self.started = threading.Semaphore(0)
        self.batcher = Batcher(self.search, ThreadPoolExecutor(threads), threads, waiting, lambda _: None)

    def search(self, queries: Queries, options: Options) -> Hits:
        self.started.release()
        assert self.open.wait(PATIENCE)
        values = np.asarray(queries)[:, 0]
        self.calls.append(len(values))
        if (values < 0).any():
            raise InvalidInput("negative")
        ids = np.repeat(values.astype(np.int64)[:, None], options.k, axis=1)
        return Hits(ids, ids.astype(np.float32), ids[:, 0])


def rows(*values: float) -> Any:
    return np.array(values, dtype=np.float32)[:, None]


async def started(echo: Echo) -> None:
    assert await asyncio.to_thread(echo.started.acquire, True, PATIENCE)


def test_a_lone_request_runs_at_once() -> None:
    echo = Echo()
    hits = asyncio.run(echo.batcher.search(rows(5), Options(2)))
    assert (hits.ids.tolist(), echo.calls) == ([[5, 5]], [1])


def test_what_arrives_meanwhile_is_one_batch_for_each_choice_of_options() -> None:
    echo = Echo()

    async def run() -> list[Any]:
        echo.open.clear()
        tasks = [asyncio.create_task(echo.batcher.search(rows(0), Options(1)))]
        await started(echo)
        for value in range(1, 9):
            options = Options(1 + value % 2)
            tasks.append(asyncio.create_task(echo.batcher.search(rows(value, value + 0.5), options)))
        await asyncio.sleep(0)
        echo.open.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(run())
    assert echo.calls == [1, 8, 8]
    assert [hits.ids.tolist() for hits in found[1:3]] == [[[1, 1], [1, 1]], [[2], [2]]]


def test_large_requests_are_split_and_joined_in_order() -> None:
    echo = Echo(threads=3)
    hits = asyncio.run(echo.batcher.search(rows(*range(150)), Options(1)))
    assert hits.ids[:, 0].tolist() == hits.compared.tolist() == list(range(150))
    assert sorted(echo.calls) == [150 - 2 * BATCH, BATCH, BATCH]


def test_a_bad_request_fails_alone() -> None:
    echo = Echo()

    async def run() -> list[Any]:
        echo.open.clear()
        first = asyncio.create_task(echo.batcher.search(rows(0), Options(1)))
        await started(echo)
        tasks = [asyncio.create_task(echo.batcher.search(rows(value), Options(1))) for value in (1, -1, 2)]
        await asyncio.sleep(0)
        echo.open.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert isinstance(found[2], InvalidInput)
    assert [hits.ids.tolist() for place, hits in enumerate(found) if place != 2] == [[[0]], [[1]], [[2]]]


def test_cancelled_requests_are_not_searched_and_too_many_are_refused() -> None:
    echo = Echo(waiting=10)

    async def run() -> Hits:
        echo.open.clear()
        first = asyncio.create_task(echo.batcher.search(rows(0), Options(1)))
        await started(echo)
        cancelled = asyncio.create_task(echo.batcher.search(rows(*range(7)), Options(1)))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await echo.batcher.search(rows(*range(4)), Options(1))
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        echo.open.set()
        await first
        return await echo.batcher.search(rows(*range(10)), Options(1))  # there is room again

    assert len(asyncio.run(run()).ids) == 10
    assert echo.calls == [1, 10]
