"""Recall@10 of default searches as an index grows: no setting is given, vectors are stored as float16.

    python benchmarks/recall_curve.py --vectors words.npy --vectors patches.npy:l2 --figure curve.png

Items are patches of the sample images, and rows of each .npy file (--vectors FILE[:metric], the cosine by default). The
coder is fitted once, on the largest size; items are then added to one index, which is searched at each size after its
background work is done. Recall and `compared` are means over the queries of one batch; times are CPU microseconds of
single queries, one thread. The last table names the sizes where recall is below 0.95, and where `compared` falls
although items were added. Graphs are built up to --graph-items only: their builds take long.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from _engine_task import Task, add_options, cpu_seconds, read_digits, read_given, read_patches
from _recall_findings import TARGET, K, Row, findings
from _report import save, show
from nestcode import Index, fit
from nestcode.arrays import Floats

SIZES = (
    1, 10, 100, 500, 1000, 2000, 4000, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 10_000, 10_205, 12_000, 20_000, 50_000,
    100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
)  # fmt: skip
QUERIES, SINGLE_QUERIES = 200, 40
ROUNDS = 3
LIST_BITS, GRAPH_BITS = 256, 320


def main() -> None:
    """Measure, print, draw and save."""
    options = parse()
    rows: list[Row] = []
    with threadpool_limits(1):
        for task in tasks(options):
            for kind, most in (("lists", None), ("graph", options.graph_items)):
                found = list(curve(task, kind, most, options))
                show(f"{task}: {kind}", found, "us: CPU time of a single query.")
                rows += [{"data": str(task), "index": kind, **row} for row in found]
    show("Findings", list(findings(rows)), f"low: sizes whose recall@{K} is below {TARGET}. falls: of `compared`.")
    if options.figure is not None:
        from _recall_figure import draw_curves  # only here: Matplotlib is loaded for it

        draw_curves(rows, TARGET).savefig(options.figure, dpi=130)
    save(options.json, rows, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--vectors", action="append", default=[], metavar="FILE[:METRIC]", help="a .npy file")
    parser.add_argument("--no-patches", action="store_true", help="only the files")
    parser.add_argument("--graph-items", type=int, default=50_000, metavar="N", help="the largest graph")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the curves")
    return parser.parse_args()


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Yield the data sets."""
    if options.quick:
        yield read_digits()
        return
    if not options.no_patches:
        yield read_patches(options.items)
    for given in options.vectors:
        yield read_given(given, options.items)


def curve(task: Task, kind: str, most: int | None, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the figures of one index at each of its sizes."""
    count = min(len(task.base), most or len(task.base))
    sizes = [size for size in SIZES if size < count] + [count]
    base = task.base[:count]
    if kind == "graph":
        index = Index(fit(base, GRAPH_BITS, metric=task.metric, goal="graph"), vectors="float16", graph=True)
    else:
        index = Index(fit(base, LIST_BITS, metric=task.metric), vectors="float16")
    queries = task.queries[:QUERIES]
    singles = [partial(index.search, query, K) for query in queries[:SINGLE_QUERIES]]
    nearest = np.empty((len(queries), 0))  # squared distances of the exact neighbors so far
    for before, size in pairwise([0, *sizes]):
        index.add(base[before:size])
        index.wait()
        nearest = merged(nearest, task, queries, base[before:size])
        hits = index.search(queries, K)
        seconds = cpu_seconds(singles, 1 if options.quick else ROUNDS)
        yield {
            "items": size,
            f"recall@{K}": round(task.recall(queries, hits.ids, nearest[:, -1], nearest.shape[1]), 4),
            "compared": round(float(np.mean(hits.compared))),
            "us": round(1e6 * sum(seconds) / len(singles), 1),
        }


def merged(nearest: NDArray[np.float64], task: Task, queries: Floats, items: Floats) -> NDArray[np.float64]:
    """Return the smallest distances, ascending, after items were added."""
    every = np.concatenate([nearest, task.distances(queries, items)], axis=1)
    return np.sort(every, axis=1)[:, :K] if every.shape[1] <= K else np.sort(np.partition(every, K, axis=1)[:, :K])


if __name__ == "__main__":
    main()
