"""What `Index.build` chooses, against the best of a sweep of settings.

    python benchmarks/choice.py --vectors words.npy:l2 --vectors words.npy --sizes 5000 20000 --k 10

Items are patches of the sample images, and rows of each .npy file (--vectors FILE[:metric], the cosine by default; give
a file twice for both). Half of the queries tune each setting of the sweep to the target; `Index.build` sees neither
half. Of the other half are the recalls, and the times of single queries: CPU time, one thread, interleaved. The best
of the sweep is the fastest setting whose recall on that half is at most a standard error below the target. `speed` is
its time over the choice's. `choosing` is the CPU time that `Index.build` adds, over that of building the same index.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from _engine_task import Task, cpu_seconds, read_digits, read_given, read_patches
from _report import save, show
from nestcode import CellCoder, Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.index.autotune import Choice
from nestcode.index.autotune.candidates import Candidate
from nestcode.index.compaction import MIN_GRAPH
from nestcode.search.planner import Effort

Row = dict[str, Any]
TARGET = 0.95
SIZES, NEIGHBORS = (5_000, 20_000, 100_000), (10, 100)
SINGLE_QUERIES, ROUNDS = 40, 3
SWEEP = (
    Candidate("scan", LinearCoder, 64, "float16"),
    *(Candidate("lists", kind, bits, "float16") for kind in (LinearCoder, CellCoder) for bits in (64, 128, 256, 512)),
    *(Candidate("graph", LinearCoder, bits, "float16") for bits in (160, 320, 512)),
)


def main() -> None:
    """Measure, print and save."""
    options = parse()
    rows: list[Row] = []
    warnings.simplefilter("ignore")  # of missed targets, which the table shows, and of unallocated bits
    with threadpool_limits(1):
        for task in tasks(options):
            sizes = sorted({min(size, len(task.base)) for size in options.sizes})
            some = [task.first(size) for size in sizes]
            found = [{"items": len(one.base)} | compare(one, k, options.quick) for one in some for k in options.k]
            show(f"{task}: recall {TARGET}", found, "us: CPU time of a query. recall: of queries that chose nothing.")
            rows += [{"data": task.name, "metric": task.metric} | row for row in found]
    save(options.json, rows, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", action="append", default=[], metavar="FILE[:METRIC]", help="a .npy file")
    parser.add_argument("--no-patches", action="store_true", help="only the files")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="how many items")
    parser.add_argument("--k", type=int, nargs="+", default=NEIGHBORS, help="how many neighbors recall counts")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    return parser.parse_args()


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Yield the data sets."""
    if options.quick:
        options.sizes, options.k = SIZES[:1], NEIGHBORS[:1]
        yield read_digits()
        return
    if not options.no_patches:
        yield read_patches(max(options.sizes))
    for given in options.vectors:
        yield read_given(given, max(options.sizes))


def compare(task: Task, k: int, quick: bool) -> Row:
    """Return the figures of the choice and of the best of the sweep."""
    half = len(task.queries) // 2
    tuning, others = task.queries[:half], task.queries[half:]
    start = time.process_time()
    index = Index.build(task.base, metric=task.metric, recall=TARGET, k=k)
    total = time.process_time() - start
    choice = index.choice
    assert isinstance(choice, Choice)
    start = time.process_time()
    _build(choice.chosen, task)
    building = time.process_time() - start
    sweep = {
        one: _tuned(one, task, tuning, k)
        for one in (SWEEP[:2] if quick else SWEEP)
        if one.structure != "graph" or len(task.base) >= MIN_GRAPH
    }
    indexes = [index, *sweep.values()]
    found = [one.evaluate(others, k, exact=task.base) for one in indexes]
    us = [1e6 * seconds for seconds in _seconds_each(indexes, others[:SINGLE_QUERIES], k, 1 if quick else ROUNDS)]
    reaching = [i for i in range(1, len(indexes)) if found[i].recall + found[i].standard_error >= TARGET]
    best = min(reaching, key=lambda i: us[i])  # a scan of all items reaches any target
    return {
        "k": k,
        "chosen": str(choice.chosen).removesuffix(" vectors"),
        "recall": round(found[0].recall, 3),
        "±": round(found[0].standard_error, 3),
        "us": round(us[0], 1),
        "best of the sweep": str([*sweep][best - 1]).removesuffix(" vectors"),
        "its recall": round(found[best].recall, 3),
        "its us": round(us[best], 1),
        "speed": round(us[best] / us[0], 2),
        "choosing": round((total - building) / building, 2),
    }


def _build(candidate: Candidate, task: Task) -> Index:
    index = candidate.index(candidate.coder(task.metric, 0).fit(task.base))
    index.add(task.base)
    index.compact()
    return index


def _tuned(candidate: Candidate, task: Task, queries: Floats, k: int) -> Index:
    """Return an index whose effort reaches the target on these queries, or comes near the best recall."""
    index, count = _build(candidate, task), len(task.base)
    if candidate.structure == "scan":
        index.effort = Effort(count, count, k, k)
    else:
        index.tune(queries, k, target_recall=TARGET, exact=task.base)
    return index


def _seconds_each(indexes: list[Index], queries: Floats, k: int, rounds: int) -> list[float]:
    """Return the CPU seconds of a query in each index; the calls of all are interleaved."""
    calls = [partial(one.search, query, k) for query in queries for one in indexes]
    best = cpu_seconds(calls, rounds)
    return [sum(best[i :: len(indexes)]) / len(queries) for i in range(len(indexes))]


if __name__ == "__main__":
    main()
