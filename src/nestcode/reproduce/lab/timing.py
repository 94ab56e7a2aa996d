"""Fair timing of several jobs."""

import time
from collections.abc import Callable, Mapping


def seconds_each(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the best time of each job in seconds; the jobs take turns, so that a busy moment affects all alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds + 1):  # one round more, to warm up caches
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
