"""The second table of the search benchmark: recall against queries a second, beside other indexes."""

import argparse
from collections.abc import Sequence
from typing import Any, get_args

from _report import show
from _search_figure import draw_fronts
from _search_fronts import TARGETS, Measured, measure, reaching
from _search_methods import Kind, Method, Nestcode
from _search_peers import peers
from _search_task import NEAREST, Row, Task, read_task, wanted

SHOWN = (0.9, 0.95)  # recalls at which methods are compared
WIDTHS: dict[Kind, tuple[int, ...]] = {"compressed": (384, 512, 768), "with rescoring": (256,)}


def recall_by_speed(options: argparse.Namespace) -> list[Row]:
    """Measure, print, draw, and return what is saved."""
    task = read_task(options, 1000 if options.quick else options.base)
    ours: list[Method] = [Nestcode(width, kind, len(task.base)) for kind in WIDTHS for width in WIDTHS[kind]]
    results: list[Measured] = []
    for method in ours + [peer for peer in peers(task) if wanted(peer.name, options)]:
        results.append(measure(method, task, options.limit))
        method.release()
    print_methods(task, results)
    print_comparison(task, results)
    print_choice(task, results)
    if options.figure is not None:
        draw_fronts(str(task), results).savefig(options.figure, dpi=130)
    return [row for result in results for row in saved(task, result)]


def of_kind(results: Sequence[Measured], kind: Kind, ours: bool) -> list[Measured]:
    """Those of one class."""
    return [result for result in results if result.method.kind == kind and result.method.ours == ours]


def print_methods(task: Task, results: Sequence[Measured]) -> None:
    """What each method costs and gives: a table for each class."""
    for kind in get_args(Kind):
        chosen = of_kind(results, kind, ours=True) + of_kind(results, kind, ours=False)
        show(
            f"Recall@{NEAREST} against queries a second, one thread, {kind}: {task}",
            [method_row(result) for result in chosen],
            "build: seconds on all cores, training with it. B/item: all that the index holds. highest: recall; …: more "
            "effort may find\nmore, but the time was up. QPS: queries a processor second in one batch, at this recall "
            "between the points of the front.\nsetting: the first that reaches it; µs: of a query that is asked alone.",
        )


def method_row(result: Measured) -> Row:
    """Costs, and what is reached."""
    row: Row = {
        "method": result.method.name,
        "build": f"{result.build:.1f}",
        "B/item": f"{result.size:.0f}",
        "highest": f"{max(point.recall for point in result.points):.3f}" + ("" if result.whole else "…"),
    }
    for target in SHOWN:
        point = reaching(result.points, target)
        row[f"QPS {target:.2f}"] = number(result.qps(target))
        row[f"setting {target:.2f}"] = str(point) if point else "–"
        row[f"µs {target:.2f}"] = number(result.single.get(target))
    return row


def number(value: float | None) -> str:
    """A whole number, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def print_comparison(task: Task, results: Sequence[Measured]) -> None:
    """Ours against the best peers, at each of the recalls."""
    rows = [
        comparison_row(task, own, of_kind(results, kind, ours=False), target)
        for kind in get_args(Kind)
        for own in of_kind(results, kind, ours=True)
        for target in SHOWN
    ]
    show(
        f"Ours against the best peers of the same class: {task}",
        rows,
        "x: our queries a second over theirs, in one batch. no more memory: the best of those that hold no more "
        "bytes an item.\ncompared: codes, as a share of the items. x build: the quickest build of a graph over ours.",
    )


def comparison_row(task: Task, own: Measured, others: Sequence[Measured], target: float) -> Row:
    """One of ours at one recall."""
    speed, point = own.qps(target), reaching(own.points, target)
    row: Row = {
        "class": own.method.kind,
        "ours": own.method.name.removeprefix("Nestcode, "),
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
    """Which of our settings to take, by what they cost and give."""
    rows = [choice_row(task, own, target) for own in results if own.method.ours for target in TARGETS]
    show(
        f"Which setting to choose: {task}",
        [row for row in rows if row] or [{"recall": "none of ours reached any"}],
        "The fastest setting that reaches the recall; candidates as a share of the items, as they would be chosen for "
        "other numbers of them.",
    )


def choice_row(task: Task, own: Measured, target: float) -> Row | None:
    """One of ours at one recall, if it gets there."""
    point = reaching(own.points, target)
    if point is None:
        return None
    return {
        "raw vectors": "kept" if own.method.kind == "with rescoring" else "not kept",
        "code": own.method.name.removeprefix("Nestcode, "),
        "B/item": f"{own.size:.0f}",
        "recall wanted": f"{target:.2f}",
        "candidates": f"{point.setting['candidates'] / len(task.base):.1%}",
        "rerank": point.setting["rerank"],
        "recall": f"{point.recall:.3f}",
        "QPS": number(point.qps),
        "µs alone": number(own.single[target]),
    }


def saved(task: Task, result: Measured) -> list[Row]:
    """All points of a method."""
    kept = {id(point) for point in result.front}
    facts: dict[str, Any] = {"data": str(task), "class": result.method.kind, "method": result.method.name}
    facts |= {"build": result.build, "bytes": result.size, "whole": result.whole}
    return [{**facts, **vars(point), "front": id(point) in kept} for point in result.points] + [
        {**facts, "recall wanted": target, "alone": microseconds} for target, microseconds in result.single.items()
    ]
