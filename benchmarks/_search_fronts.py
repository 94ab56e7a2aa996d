"""How the second table of the search benchmark measures a method: swept over its settings, of which the best count."""

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from _search_methods import Method, Setting
from _search_task import Budget, Floats, Ids, Task

TARGETS = (0.8, 0.9, 0.95, 0.98)  # recalls that single queries are timed at
ENOUGH = 0.99  # recall past which more effort is not of interest
GAIN = 0.002  # recall that more effort must bring
SINGLE = 300  # queries that are asked one at a time


@dataclass(frozen=True)
class Point:
    """One setting of a method."""

    setting: Setting
    recall: float
    qps: float  # queries a second, all in one batch
    compared: float | None  # items for a query

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.setting.items())


@dataclass(frozen=True)
class Measured:
    """A method with all that was measured of it."""

    method: Method
    build: float  # seconds, all cores
    size: float  # bytes an item
    points: list[Point]
    whole: bool  # whether the time sufficed for all that was worth trying
    single: dict[float, float]  # microseconds of a query that is asked alone, by target

    @property
    def front(self) -> list[Point]:
        """Its best points."""
        return front(self.points)

    def qps(self, target: float) -> float | None:
        """Queries a second at this recall, if it gets there."""
        return qps_at(self.points, target)


def front(points: Sequence[Point]) -> list[Point]:
    """Points than which no other finds more and is faster, by rising recall.

    >>> [point.qps for point in front([Point({}, 0.5, 90, None), Point({}, 0.8, 70, None), Point({}, 0.7, 60, None)])]
    [90, 70]
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.recall, -point.qps)):
        if not best or point.qps > best[-1].qps:
            best.append(point)
    return best[::-1]


def reaching(points: Sequence[Point], target: float) -> Point | None:
    """The fastest point with at least this recall."""
    return max((point for point in points if point.recall >= target), key=lambda point: point.qps, default=None)


def qps_at(points: Sequence[Point], target: float) -> float | None:
    """Queries a second at this recall, between the points of the front on a logarithmic scale.

    >>> round(qps_at([Point({}, 0.8, 1000, None), Point({}, 1.0, 10, None)], 0.9))
    100
    """
    above = reaching(points, target)
    if above is None:
        return None
    below = max((p for p in front(points) if p.recall < target), key=lambda point: point.recall, default=above)
    if below is above:
        return above.qps
    part = (target - below.recall) / (above.recall - below.recall)
    return float(below.qps ** (1 - part) * above.qps**part)


def measure(method: Method, task: Task, limit: float) -> Measured:
    """Build it, sweep it, and time single queries where they matter."""
    start = time.perf_counter()
    method.build(task)
    build, size = time.perf_counter() - start, method.nbytes() / len(task.base)
    say(f"{method.name}, {method.kind}: built in {build:.1f} s, {size:.0f} bytes an item")
    with threadpool_limits(1):  # FAISS and the matrix products of NumPy and FAISS
        points, whole = sweep(method, task, Budget(limit, growth=2))
        single = {}
        for target in TARGETS:
            point = reaching(points, target)
            if point is not None:
                single[target] = time_single(method, task, point)
    return Measured(method, build, size, points, whole, single)


def sweep(method: Method, task: Task, budget: Budget) -> tuple[list[Point], bool]:
    """Every combination of the other settings, with rising effort for as long as that is worth it, and time is left."""
    *others, effort = method.grid
    points: list[Point] = []
    lines = dict.fromkeys(itertools.product(*(method.grid[name] for name in others)), -1.0)  # their recall
    for value in method.grid[effort]:
        for values, before in list(lines.items()):
            if not budget.allows():
                return points, False
            point = try_out(method, task, dict(zip(others, values, strict=True)) | {effort: value})
            say(f"  {point}: recall {point.recall:.3f}, {point.qps:,.0f} queries a second")
            points.append(point)
            lines[values] = point.recall
            if point.recall > ENOUGH or point.recall < before + GAIN:
                del lines[values]
    return points, True


def try_out(method: Method, task: Task, setting: Setting) -> Point:
    """One setting, with the whole batch of queries."""
    method.set(setting)
    answers = [timed(method, [task.queries]) for _ in range(2)]
    best, found = min(seconds for seconds, _ in answers), answers[0][1]
    return Point(setting, task.recall(found), len(task.queries) / best, method.compared(task.queries))


def time_single(method: Method, task: Task, point: Point) -> float:
    """Microseconds of a query that is asked alone."""
    method.set(point.setting)
    queries = [task.queries[i : i + 1] for i in range(min(SINGLE, len(task.queries)))]
    return 1e6 * timed(method, queries)[0] / len(queries)


def timed(method: Method, batches: Sequence[Floats]) -> tuple[float, Ids]:
    """Processor seconds of searching for all batches, and what the last one found.

    On one thread of a quiet machine they are those of the clock. On a busy one they do not count what others do, and
    a method that took more threads than it should would gain nothing.
    """
    start = time.process_time()
    for batch in batches:
        found = method.search(batch)
    return time.process_time() - start, found


def say(line: str) -> None:
    """Show that it goes on: it takes minutes."""
    print(line, file=sys.stderr, flush=True)
