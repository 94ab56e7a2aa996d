"""How the QPS table of the search benchmark measures a method: a sweep over its settings, and the Pareto front."""

import itertools
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from _search_methods import Method, Setting
from _search_task import Budget, Task
from nestcode import metrics
from nestcode.arrays import Floats, Ids

TARGETS = (0.8, 0.9, 0.95, 0.98)  # recall at which single queries are timed
SHOWN = (0.9, 0.95)  # recall at which methods are compared
ENOUGH = 0.99  # recall at which a sweep ends
GAIN = 0.002  # recall that more effort must gain
LEAST, SAMPLE = 0.75, 100  # recall from which settings are measured, and the queries that estimate it
CLOSE = 1.1  # times as fast as the sample says: so close to its front, settings are measured
ESTIMATES = 0.4  # share of a sweep's time for the sample
RUNS = 2  # of which the faster counts
SINGLE, SINGLE_SECONDS = 300, 2.0  # queries timed one at a time: at most so many, and for so long
SHARES = (0.4, 0.3, 0.3)  # of the time limit, by task


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
    graph_size: float  # of these, those of our graph
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


def nearest_below(points: Sequence[Point], target: float) -> Point | None:
    """Return the point of the front with the highest recall below this one."""
    return max((p for p in front(points) if p.recall < target), key=lambda point: point.recall, default=None)


def qps_at(points: Sequence[Point], target: float) -> float | None:
    """Return the QPS at this recall, interpolated on the front in log(QPS).

    >>> round(qps_at([Point({}, 0.8, 1000, None), Point({}, 1.0, 10, None)], 0.9))
    100
    """
    above = reaching(points, target)
    if above is None:
        return None
    below = nearest_below(points, target)
    if below is None:
        return above.qps
    part = (target - below.recall) / (above.recall - below.recall)
    return float(below.qps ** (1 - part) * above.qps**part)


def measure(
    methods: Sequence[Method], tasks: Sequence[Task], limit: float, most: float, deadline: float, rounds: int = 0
) -> list[list[Measured] | str]:
    """Build methods one after the other on all cores, then measure all of them at once, each on one core.

    Then they are measured again in turn, one at a time, so that a machine's load and clock affect all of them alike.

    Args:
        methods: to measure.
        tasks: that share their items.
        limit: CPU seconds of a method's sweeps.
        most: seconds of a build, and of the sweeps.
        deadline: by `time.perf_counter`, after which no build starts.
        rounds: of measuring the settings next to the recalls of the table again, of which the fastest count.

    Returns:
        The measurements of each method on each task, or why it could not be measured.

    """
    workers = []
    for method in methods:
        if time.perf_counter() < deadline:
            workers.append(Worker(method, tasks, limit))
            workers[-1].receive(most)  # that it was built
    for worker in workers:
        worker.start_sweep()
    results: list[list[Measured] | str] = []
    for worker in workers:
        found = worker.receive(most)
        if isinstance(found, str):
            results.append(found)
        else:
            results.append([Measured(worker.method, task, *part) for task, part in zip(tasks, found, strict=True)])
    for _ in range(rounds):
        for i, worker in enumerate(workers):
            before, again = results[i], worker.measure_again(most)
            if not isinstance(before, str) and not isinstance(again, str):
                results[i] = [
                    replace(own, points=fastest([*own.points, *points]))
                    for own, points in zip(before, again, strict=True)
                ]
    for worker in workers:
        worker.stop()
    return results + ["there was no time left"] * (len(methods) - len(workers))


_Results = tuple[float, float, float, list[Point], bool, dict[float, float]]  # the fields of Measured


class Worker:
    """A process that builds a method and measures it: one that crashes or takes too long does not end the run."""

    def __init__(self, method: Method, tasks: Sequence[Task], limit: float) -> None:
        context = multiprocessing.get_context("fork")  # the items are shared
        self.method = method
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_work, args=(child, method, tasks, limit), daemon=True)
        self._failure: str | None = None
        self._process.start()
        child.close()

    def start_sweep(self) -> None:
        """Let the process go on, which waits since it built or measured the method."""
        if self._failure is None:
            self._pipe.send(True)

    def measure_again(self, most: float) -> list[list[Point]] | str:
        """Return the points next to the recalls of the table, measured once more on each task."""
        self.start_sweep()
        found: list[list[Point]] | str = self.receive(most)
        return found

    def stop(self) -> None:
        """Let the process end."""
        if self._failure is None:
            self._pipe.send(False)
            self._process.join()

    def receive(self, most: float) -> Any:
        """Return what the process sends next, or why it failed."""
        if self._failure is None and not self._pipe.poll(most):
            self._process.kill()
            self._failure = f"it took more than {most:g} s"
        if self._failure is None:
            try:
                found = self._pipe.recv()
            except EOFError:
                found = "its process crashed"
            if not isinstance(found, str):
                return found
            self._failure = found
        self._process.join()
        return self._failure


def _work(pipe: Connection, method: Method, tasks: Sequence[Task], limit: float) -> None:
    """Build a method, report it, wait, then sweep its settings and send the results; or send what it raises."""
    try:
        start = time.perf_counter()
        method.build(tasks[0])
        build, count = time.perf_counter() - start, len(tasks[0].base)
        size, graph_size = method.nbytes() / count, method.graph_nbytes() / count
        log(f"{method.name}, {method.kind}: built in {build:.1f} s, {size:.0f} bytes/item")
        pipe.send([])
        pipe.recv()
        facts = build, size, graph_size
        found = [(*facts, *_measure(method, task, share * limit)) for task, share in zip(tasks, SHARES)]  # noqa: B905
        pipe.send(found)
        near = [next_to_targets(points) for *_, points, _, _ in found]
        with threadpool_limits(1):
            while pipe.recv():
                pipe.send(
                    [[measure_once(method, task, p) for p in points] for task, points in zip(tasks, near, strict=True)]
                )
    except Exception as error:  # whatever a peer raises
        pipe.send(f"{type(error).__name__}: {error}")


def _measure(method: Method, task: Task, limit: float) -> tuple[list[Point], bool, dict[float, float]]:
    """Sweep the settings of a method, and time single queries at the target recalls."""
    with threadpool_limits(1):  # FAISS and BLAS
        points, whole = sweep(method, task, limit)
        reached = {target: reaching(points, target) for target in TARGETS}
        chosen = {id(point): point for point in reached.values() if point}
        single = {key: time_single(method, task, point) for key, point in chosen.items()}
    return points, whole, {target: single[id(point)] for target, point in reached.items() if point}


def sweep(method: Method, task: Task, limit: float) -> tuple[list[Point], bool]:
    """Estimate all settings on a sample of the queries, then measure those near its front that there is time for.

    Those nearest to the recalls of the table come first. Returns the points, and whether all were measured; where there
    was no time for any, as for exact search, the estimates.
    """
    settings = promising(estimate(method, task, Budget(ESTIMATES * limit, growth=2, clock=time.process_time)))
    settings.sort(key=lambda point: min(abs(point.recall - target) for target in SHOWN))
    end = time.process_time() + (1 - ESTIMATES) * limit
    points: list[Point] = []
    for point in settings:
        if time.process_time() + RUNS * len(task.queries) / point.qps < end:
            points.append(try_out(method, task, point.setting))
            log(f"  {method.name}, {points[-1]}: recall {points[-1].recall:.3f}, {points[-1].qps:,.0f} QPS")
    return points or settings, len(points) == len(settings)


def estimate(method: Method, task: Task, budget: Budget) -> list[Point]:
    """Try all combinations of the other settings with ascending effort on a sample, until recall saturates.

    The largest of the others comes first: where its recall is low, that of all others is. What caches hold after the
    first search does not count, or the least effort would seem the slowest.
    """
    grid = method.grid(task.k)
    *others, effort = grid
    points: list[Point] = []
    combinations = list(itertools.product(*(grid[name] for name in others)))[::-1]
    method.set(dict(zip(others, combinations[0], strict=True)) | {effort: grid[effort][0]})
    method.search(task.queries[:SAMPLE], task.k)
    lines = dict.fromkeys(combinations, -1.0)  # their recall
    for value in grid[effort]:
        for values, before in list(lines.items()):
            if points and not budget.allows():
                return points
            setting = dict(zip(others, values, strict=True)) | {effort: value}
            method.set(setting)
            seconds, found = timed(method, [task.queries[:SAMPLE]], task.k)
            recall = metrics.recall(found, task.exact[:SAMPLE])
            points.append(Point(setting, recall, len(found) / max(seconds, 1e-9), None))
            lines[values] = recall
            if recall < LEAST and values == combinations[0]:
                break
            if recall > ENOUGH or LEAST < recall < before + GAIN:
                del lines[values]
    return points


def promising(points: Sequence[Point]) -> list[Point]:
    """Return the points of enough recall close to the front; the best one if none has it.

    >>> points = [Point({}, 0.7, 99, None), Point({}, 0.8, 10, None), Point({}, 0.9, 20, None)]
    >>> [point.recall for point in promising(points)], [point.recall for point in promising(points[:1])]
    ([0.9], [0.7])
    """
    above = [point for point in points if point.recall >= LEAST]
    near = [
        point
        for point in above
        if not any(other.recall >= point.recall and other.qps > CLOSE * point.qps for other in above)
    ]
    return near or [max(points, key=lambda point: point.recall)]


def try_out(method: Method, task: Task, setting: Setting) -> Point:
    """Measure one setting with all queries in one batch."""
    method.set(setting)
    runs = [timed(method, [task.queries], task.k) for _ in range(RUNS)]
    best, found = min(seconds for seconds, _ in runs), runs[0][1]
    return Point(setting, task.recall(found), len(task.queries) / best, method.compared(task.queries[:SAMPLE], task.k))


def next_to_targets(points: Sequence[Point]) -> list[Point]:
    """Return the points that the QPS of the table are interpolated from."""
    chosen = [p for target in SHOWN for p in (reaching(points, target), nearest_below(points, target)) if p]
    return list({id(point): point for point in chosen}.values())


def measure_once(method: Method, task: Task, point: Point) -> Point:
    """Measure the QPS of a setting once more."""
    method.set(point.setting)
    return replace(point, qps=len(task.queries) / timed(method, [task.queries], task.k)[0])


def fastest(points: Sequence[Point]) -> list[Point]:
    """Return the fastest measurement of each setting.

    >>> [point.qps for point in fastest([Point({"ef": 8}, 0.5, 90, None), Point({"ef": 8}, 0.5, 95, None)])]
    [95]
    """
    return list({str(point): point for point in sorted(points, key=lambda point: point.qps)}.values())


def time_single(method: Method, task: Task, point: Point) -> float:
    """Return the µs/query of single queries."""
    method.set(point.setting)
    seconds, count = 0.0, 0
    while count < min(SINGLE, len(task.queries)) and seconds < SINGLE_SECONDS:
        seconds += timed(method, [task.queries[count : count + 1]], task.k)[0]
        count += 1
    return 1e6 * seconds / count


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
