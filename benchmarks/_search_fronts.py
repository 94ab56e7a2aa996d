"""How the QPS table of the search benchmark measures a method: a sweep over its settings, and the Pareto front."""

import itertools
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from threadpoolctl import threadpool_limits

from _search_methods import Method, Setting
from _search_task import Budget, Task
from nestcode import metrics
from nestcode.arrays import Floats, Ids

TARGETS = (0.8, 0.9, 0.95, 0.98)  # recall at which single queries are timed
ENOUGH = 0.99  # recall at which a sweep ends
GAIN = 0.002  # recall that more effort must gain
LEAST, SAMPLE = 0.75, 100  # recall from which settings are measured, and the queries that estimate it
SINGLE = 300  # queries timed one at a time
SHARES = (0.5, 0.25, 0.25)  # of the time limit, by task


@dataclass(frozen=True)
class Point:
    """One setting of a method."""

    setting: Setting
    recall: float
    qps: float  # queries per second in one batch
    compared: float | None  # items per query

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.setting.items())


@dataclass(frozen=True)
class Measured:
    """A method and its measurements on a task."""

    method: Method
    task: Task
    build: float  # seconds, all cores
    size: float  # bytes/item
    points: list[Point]
    whole: bool  # whether the sweep ended within the time limit
    single: dict[float, float]  # µs/query of single queries, by target recall

    @property
    def front(self) -> list[Point]:
        """Its Pareto front."""
        return front(self.points)

    def qps(self, target: float) -> float | None:
        """Return the QPS at this recall, or None if it is not reached."""
        return qps_at(self.points, target)


def front(points: Sequence[Point]) -> list[Point]:
    """Return the Pareto front of recall and QPS, by ascending recall.

    >>> [point.qps for point in front([Point({}, 0.5, 90, None), Point({}, 0.8, 70, None), Point({}, 0.7, 60, None)])]
    [90, 70]
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.recall, -point.qps)):
        if not best or point.qps > best[-1].qps:
            best.append(point)
    return best[::-1]


def reaching(points: Sequence[Point], target: float) -> Point | None:
    """Return the fastest point with at least this recall."""
    return max((point for point in points if point.recall >= target), key=lambda point: point.qps, default=None)


def qps_at(points: Sequence[Point], target: float) -> float | None:
    """Return the QPS at this recall, interpolated on the front in log(QPS).

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


def measure(method: Method, tasks: Sequence[Task], limit: float, most: float) -> list[Measured] | str:
    """Measure a method on tasks that share their items, or return why it could not be measured.

    It runs in a process of its own: a peer that crashes or takes too long does not end the run.
    """
    context = multiprocessing.get_context("fork")  # the items are shared
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_measurements, args=(sender, method, tasks, limit))
    process.start()
    sender.close()
    try:
        if not receiver.poll(most):
            process.kill()
            return f"it took more than {most:g} s"
        results: list[_Results] | str = receiver.recv()
    except EOFError:
        return "its process crashed"
    finally:
        process.join()
    if isinstance(results, str):
        return results
    return [Measured(method, task, *result) for task, result in zip(tasks, results, strict=True)]


_Results = tuple[float, float, list[Point], bool, dict[float, float]]  # the fields of Measured


def _send_measurements(sender: Connection, method: Method, tasks: Sequence[Task], limit: float) -> None:
    try:
        sender.send(_measure_all(method, tasks, limit))
    except Exception as error:  # whatever a peer raises
        sender.send(f"{type(error).__name__}: {error}")


def _measure_all(method: Method, tasks: Sequence[Task], limit: float) -> list[_Results]:
    """Build a method, sweep its settings, and time single queries at the target recalls."""
    start = time.perf_counter()
    method.build(tasks[0])
    build, size = time.perf_counter() - start, method.nbytes() / len(tasks[0].base)
    log(f"{method.name}, {method.kind}: built in {build:.1f} s, {size:.0f} bytes/item")
    results = []
    with threadpool_limits(1):  # FAISS and BLAS
        for task, share in zip(tasks, SHARES, strict=False):
            points, whole = sweep(method, task, Budget(share * limit, growth=2, clock=time.process_time))
            reached = {target: reaching(points, target) for target in TARGETS}
            single = {target: time_single(method, task, point) for target, point in reached.items() if point}
            results.append((build, size, points, whole, single))
    return results


def sweep(method: Method, task: Task, budget: Budget) -> tuple[list[Point], bool]:
    """Try all combinations of the other settings with ascending effort, until recall saturates or time is up."""
    grid = method.grid(task.k)
    *others, effort = grid
    points: list[Point] = []
    setting = {name: values[0] for name, values in grid.items()}
    lines = dict.fromkeys(itertools.product(*(grid[name] for name in others)), -1.0)  # their recall
    for value in grid[effort]:
        for values, before in list(lines.items()):
            if not budget.allows():
                return points or [try_out(method, task, setting)], False
            setting = dict(zip(others, values, strict=True)) | {effort: value}
            method.set(setting)
            if sample_recall(method, task) < LEAST and value != grid[effort][-1]:
                continue
            point = try_out(method, task, setting)
            log(f"  {point}: recall {point.recall:.3f}, {point.qps:,.0f} QPS")
            points.append(point)
            lines[values] = point.recall
            if point.recall > ENOUGH or point.recall < before + GAIN:
                del lines[values]
    return points, True


def sample_recall(method: Method, task: Task) -> float:
    """Return the recall of a part of the queries: settings far below the targets need no exact figures."""
    return metrics.recall(method.search(task.queries[:SAMPLE], task.k), task.exact[:SAMPLE])


def try_out(method: Method, task: Task, setting: Setting) -> Point:
    """Measure one setting with all queries in one batch."""
    method.set(setting)
    runs = [timed(method, [task.queries], task.k) for _ in range(2)]
    best, found = min(seconds for seconds, _ in runs), runs[0][1]
    return Point(setting, task.recall(found), len(task.queries) / best, method.compared(task.queries[:SAMPLE], task.k))


def time_single(method: Method, task: Task, point: Point) -> float:
    """Return the µs/query of single queries."""
    method.set(point.setting)
    queries = [task.queries[i : i + 1] for i in range(min(SINGLE, len(task.queries)))]
    return 1e6 * timed(method, queries, task.k)[0] / len(queries)


def timed(method: Method, batches: Sequence[Floats], k: int) -> tuple[float, Ids]:
    """Return the CPU seconds of searching all batches, and the ids of the last one.

    On one thread of a quiet machine, CPU time is wall time. On a busy machine it ignores other processes, and a method
    that starts more threads than one gains nothing.
    """
    start = time.process_time()
    for batch in batches:
        found = method.search(batch, k)
    return time.process_time() - start, found


def log(line: str) -> None:
    """Print progress to standard error."""
    print(line, file=sys.stderr, flush=True)
