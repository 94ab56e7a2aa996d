"""The QPS table of the search benchmark: QPS by recall@10 against other indexes."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from _report import show
from _search_fronts import SHOWN, TARGETS, Measured, measure, reaching
from _search_methods import Exact, Kind, Method, Nestcode, NestcodeGraph, NestcodeScan
from _search_peers import LEADING, peers
from _search_task import Row, Task, read_tasks, wanted

GRAPH_WIDTHS: dict[Kind, int] = {"with vectors": 320, "compressed": 1536}
WIDTHS: dict[Kind, tuple[int, ...]] = {"with vectors": (256,), "compressed": (384, 512, 768, 1536)}


def recall_by_speed(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure, yield the rows of each method to save, print and draw."""
    deadline = time.perf_counter() + options.total
    tasks = read_tasks(options, 1000 if options.quick else options.base)
    results: list[Measured] = []
    missing: dict[str, str] = {}  # why, by method
    every = list(methods(tasks[0], options))
    for start in range(0, len(every), options.at_once):
        group = every[start : start + options.at_once]
        found = measure(group, tasks, options.limit, options.most, deadline, options.rounds)
        for method, measured in zip(group, found, strict=True):
            if isinstance(measured, str):
                missing[method.name] = measured
                print(f"{method.name}: not measured, {measured}", file=sys.stderr, flush=True)
                continue
            results += measured
            yield [row for result in measured for row in saved(result)]
    for task in tasks:
        own = [result for result in results if result.task is task]
        print_methods(task, own)
        print_comparison(task, own)
    first = [result for result in results if result.task is tasks[0]]
    print_choice(tasks[0], first)
    for name, reason in missing.items():
        print(f"Not measured: {name}: {reason}")
    if options.figure is not None:
        from _search_figure import draw_fronts  # only here: Matplotlib is loaded for it

        draw_fronts(str(tasks[0]), first).savefig(options.figure, dpi=130)
    yield [{"method": name, "missing": reason} for name, reason in missing.items()]


def methods(task: Task, options: argparse.Namespace) -> Iterator[Method]:
    """Yield the methods to measure; the strongest peers unless --peers names others."""
    lists = [Nestcode(width, kind) for kind, widths in WIDTHS.items() for width in widths]
    graphs = [NestcodeGraph(width, kind) for kind, width in GRAPH_WIDTHS.items()]
    ours = [*graphs, NestcodeScan(GRAPH_WIDTHS["compressed"]), *lists]
    yield from (own for own in ours if wanted(own.name, options.ours))
    chosen = LEADING if options.peers is None else options.peers
    yield from (peer for peer in [Exact(), *peers(task)] if wanted(peer.name, chosen) or isinstance(peer, Exact))


def of_kind(results: Sequence[Measured], kind: Kind, ours: bool) -> list[Measured]:
    """Return the results of one class."""
    return [result for result in results if result.method.kind == kind and result.method.ours == ours]


def print_methods(task: Task, results: Sequence[Measured]) -> None:
    """Print the cost and the QPS of each method, one table per class."""
    for kind in get_args(Kind):
        chosen = of_kind(results, kind, ours=True) + of_kind(results, kind, ours=False)
        show(
            f"QPS by recall@{task.k}, one thread, {kind}: {task}",
            [method_row(result) for result in chosen],
            "build: seconds on all cores, with training. B/item: bytes of the index per item; of which our graph's."
            "\nhighest: recall; …: the time limit ended the sweep. QPS: queries per CPU second in one batch, "
            "interpolated on the front."
            "\nsetting: the fastest that reaches it; µs: per single query.",
        )


def method_row(result: Measured) -> Row:
    """Return a method's costs and QPS."""
    row: Row = {
        "method": result.method.name,
        "build": f"{result.build:.1f}",
        "B/item": f"{result.size:.0f}" + (f", graph {result.graph_size:.0f}" if result.graph_size else ""),
        "highest": f"{max(point.recall for point in result.points):.3f}" + ("" if result.whole else "…"),
    }
    for target in SHOWN:
        point = reaching(result.points, target)
        row[f"QPS {target:.2f}"] = number(result.qps(target))
        row[f"setting {target:.2f}"] = str(point) if point else "–"
        row[f"µs {target:.2f}"] = number(result.single.get(target))
    return row


def number(value: float | None) -> str:
    """Format an integer, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def print_comparison(task: Task, results: Sequence[Measured]) -> None:
    """Print ours against the best peers at each recall."""
    rows = [
        comparison_row(task, own, of_kind(results, kind, ours=False), target)
        for kind in get_args(Kind)
        for own in of_kind(results, kind, ours=True)
        for target in SHOWN
    ]
    show(
        f"Ours against the best peers of the same class, recall@{task.k}: {task}",
        rows,
        "x: our QPS over theirs, in one batch. no more memory: the best peer of at most our bytes/item.\n"
        "compared: codes, as a share of the items. x build: the fastest build of a graph over ours.",
    )


def comparison_row(task: Task, own: Measured, others: Sequence[Measured], target: float) -> Row:
    """Return a row: one of ours at one recall."""
    speed, point = own.qps(target), reaching(own.points, target)
    row: Row = {
        "class": own.method.kind,
        "ours": own.method.name.removeprefix("Nestcode "),
        "recall": f"{target:.2f}",
        "QPS": number(speed),
        "compared": f"{point.compared / len(task.base):.2%}" if point and point.compared else "–",
    }
    rivals = {"no more memory": [other for other in others if other.size <= own.size], "best of all": others}
    for (title, among), ratio in zip(rivals.items(), ("x", "x best"), strict=True):
        best = max(among, key=lambda other: other.qps(target) or 0, default=None)
        theirs = best.qps(target) if best else None
        row[title] = f"{best.method.name.replace(',', ', ')}: {theirs:,.0f}" if best and theirs else "–"
        row[ratio] = f"{speed / theirs:.2f}" if speed and theirs else "–"
    graphs = [other.build for other in others if other.method.graph]
    row["x build"] = f"{min(graphs) / own.build:.1f}" if graphs else "–"
    return row


def print_choice(task: Task, results: Sequence[Measured]) -> None:
    """Print which of our settings to choose for a recall."""
    lists = [own for own in results if type(own.method) is Nestcode]
    rows = [choice_row(task, own, target) for own in lists for target in TARGETS]
    show(
        f"Settings by recall@{task.k}: {task}",
        [row for row in rows if row] or [{"target recall": f"none of {', '.join(map(str, TARGETS))} is reached"}],
        "The fastest setting that reaches the recall; candidates as a share of the items, to transfer to other sizes.",
    )


def choice_row(task: Task, own: Measured, target: float) -> Row | None:
    """Return a row: one of ours at one recall, or None if it is not reached."""
    point = reaching(own.points, target)
    if point is None:
        return None
    return {
        "vectors": "stored" if own.method.kind == "with vectors" else "not stored",
        "code": own.method.name.removeprefix("Nestcode "),
        "B/item": f"{own.size:.0f}",
        "target recall": f"{target:.2f}",
        "candidates": f"{point.setting['candidates'] / len(task.base):.1%}",
        "rerank": point.setting["k_factor"] * task.k,
        "recall": f"{point.recall:.3f}",
        "QPS": number(point.qps),
        "µs/query": number(own.single[target]),
    }


def saved(result: Measured) -> list[Row]:
    """Return all measured points of a method."""
    kept = {id(point) for point in result.front}
    facts: dict[str, Any] = {"data": str(result.task), "class": result.method.kind, "method": result.method.name}
    facts["k"] = result.task.k
    facts |= {"build": result.build, "bytes": result.size, "bytes of the graph": result.graph_size}
    facts["whole"] = result.whole
    return [{**facts, **vars(point), "front": id(point) in kept} for point in result.points] + [
        {**facts, "target recall": target, "single query µs": microseconds}
        for target, microseconds in result.single.items()
    ]
