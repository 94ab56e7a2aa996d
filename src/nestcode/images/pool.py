"""Several images at once: C++ codes each on one thread, without the GIL."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    memory: Callable[[Item], int],
    limit: int,
) -> Iterator[Result]:
    """Return the results of a function in the order of its items, computed by several threads.

    Items are drawn one by one, as long as the running ones need at most `limit` bytes by `memory`; one always runs.

    >>> list(map_in_order(abs, [-3, 2, -1], 2, lambda item: 1, limit=2))
    [3, 2, 1]
    """
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads)
    working: deque[tuple[Future[Result], int]] = deque()
    try:
        for item in items:
            need = memory(item)
            while working and (len(working) == threads or need + sum(used for _, used in working) > limit):
                yield working.popleft()[0].result()
            working.append((pool.submit(function, item), need))
        while working:
            yield working.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)
