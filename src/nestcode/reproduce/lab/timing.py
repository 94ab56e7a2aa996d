"""Fair timing of several jobs."""

import time
from collections.abc import Callable, Mapping

import numpy as np

EVICTING_BYTES = 1 << 29  # more than the caches of a processor hold


def seconds_each(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the best time of each job in seconds; the jobs take turns, so that a busy moment affects all alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds + 1):  # one round more, to warm up caches
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def cold_cpu_seconds_each(
    jobs: Mapping[str, Callable[[], object]], rounds: int, evicting: int = EVICTING_BYTES
) -> dict[str, float]:
    """Return the least CPU time of each job in seconds, with its data in memory and not in a cache.

    So many bytes, more than caches hold, are written before each job: small jobs would otherwise find their data in a
    cache, and large ones would not. Time that the processor gives to other processes does not count.
    """
    best, buffer = dict.fromkeys(jobs, float("inf")), np.zeros(evicting, dtype=np.uint8)
    for _ in range(rounds):
        for name, job in jobs.items():
            buffer += 1
            start = time.process_time()
            job()
            best[name] = min(best[name], time.process_time() - start)
    return best
