"""Search in CPU time: figures that a change of the engine has to hold, by index, batch, k and filter.

    python benchmarks/engine.py --json old.json                  before a change
    python benchmarks/engine.py --json new.json                  after it
    python benchmarks/engine.py --compare old.json new.json      ratios, worst first; a.json,b.json: the best of runs

Items are patches of the sample images, or rows of a .npy file (--vectors). Indexes have inverted lists, a graph, or are
scanned with `candidates=len(index)`; nothing else is set. Filters allow random items, the items nearest to the query
or those farthest from it, as a mask by id and as ids. Times are of one thread: the least of interleaved rounds for
each call. Recall counts the exact neighbors among the allowed items; k = 100 has recall@10 of its first ten hits too.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from _engine_compare import Row, compared, print_comparison, read_runs
from _engine_task import Task, add_options, cpu_seconds, read_digits, read_patches, read_vectors
from _engine_workloads import Workload, workloads
from _report import save, show
from nestcode import CellCoder, Coder, Index, LinearCoder, fit
from nestcode.search import Hits
from nestcode.search.vectors import VectorType

ITEMS, SMALL_ITEMS = 40_000, 1000
LIST_BITS, GRAPH_BITS = 256, 320
ROUNDS = 16
LIMIT_S = 1.5  # CPU seconds after which a call is not repeated
SHOWN = 10  # neighbors of the recall that every setting has


def main() -> None:
    """Measure, print and save; or compare two files."""
    options = parse()
    if options.compare:
        rows = compared(*(read_runs(names) for names in options.compare))
        print_comparison(rows)
    else:
        task = read(options)
        with threadpool_limits(1):
            rows = measured(task, options)
        shown = [{name: cell for name, cell in row.items() if name != "data"} for row in rows]
        show(f"Search: {task}", shown, "us: CPU time per query. compared: items or visited nodes per query.")
    save(options.json, rows, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file: items, and 1,000 queries")
    parser.add_argument("--metric", choices=("cosine", "l2"), default="cosine", help="of --vectors (default: cosine)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only indexes whose names contain one of the words")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="compare two JSON files")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def read(options: argparse.Namespace) -> Task:
    """Return the items and queries."""
    if options.quick:
        return read_digits()
    count = options.items or ITEMS
    return read_patches(count) if options.vectors is None else read_vectors(options.vectors, options.metric, count)


def measured(task: Task, options: argparse.Namespace) -> list[Row]:
    """Return a row for each index and workload; the rounds of all are interleaved."""
    small = task.first(SMALL_ITEMS)
    loads = {len(part.base): list(workloads(part)) for part in (task, small)}
    settings: list[tuple[str, Task, Workload, list[Callable[[], Hits]]]] = []
    for name, part, index, fixed in indexes(task, small, options.only):
        for load in loads[len(part.base)]:
            calls: list[Callable[[], Hits]] = [
                partial(index.search, **arguments, **fixed) for arguments in load.arguments()
            ]
            settings.append((name, part, load, calls))
    every = [call for _, _, _, calls in settings for call in calls]
    seconds = iter(cpu_seconds(every, options.rounds, LIMIT_S))
    return [
        row(name, part, load, [call() for call in calls], sum(next(seconds) for _ in calls))
        for name, part, load, calls in settings
    ]


def indexes(task: Task, small: Task, only: list[str] | None) -> Iterator[tuple[str, Task, Index, dict[str, Any]]]:
    """Yield the name, the items, the index and the fixed arguments of searches."""
    coders: dict[str, Coder] = {
        "cells": CellCoder(LIST_BITS, metric=task.metric).fit(task.base),
        "linear": LinearCoder(LIST_BITS, metric=task.metric).fit(task.base),
        "graph": fit(task.base, GRAPH_BITS, metric=task.metric, goal="graph"),
    }
    stored: VectorType = "float16"
    for name, part, vectors, scan in (
        ("cells, float16", task, stored, False),
        ("linear, float16", task, stored, False),
        ("cells, codes", task, None, False),
        ("linear, codes", task, None, False),
        ("graph, float16", task, stored, False),
        ("linear, float16, scan", task, stored, True),
        ("cells, codes, scan", task, None, True),
        ("linear, codes, scan", task, None, True),
        ("linear, float16, small", small, stored, False),
        ("cells, codes, small", small, None, False),
        ("linear, codes, small", small, None, False),
    ):
        if only and not any(word in name for word in only):
            continue
        kind = name.partition(",")[0]
        index = Index(coders[kind], vectors=vectors, graph=kind == "graph")
        index.add(part.base)
        index.compact()
        index.wait()
        yield name, part, index, {"candidates": len(index)} if scan else {}


def row(name: str, task: Task, load: Workload, hits: list[Hits], seconds: float) -> Row:
    """Return the figures of a setting."""
    return {
        "data": str(task),
        "index": name,
        "batch": load.batch,
        "k": load.k,
        "filter": load.filter,
        "us": 1e6 * seconds / len(load.queries),
        "recall@10": round(load.recall(task, hits, SHOWN), 4),
        "recall@k": round(load.recall(task, hits, load.k), 4),
        "compared": round(float(np.mean(np.concatenate([np.ravel(hit.compared) for hit in hits])))),
    }


if __name__ == "__main__":
    main()
