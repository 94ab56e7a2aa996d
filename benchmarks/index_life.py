"""The life cycle of an index of binary codes compared with usearch's HNSW graph: build, insert, memory, open, search.

Both hold the same random codes. usearch builds on every core; items are then inserted into both on one thread, in
batches and one at a time. Search is the paper's neighborhood of at least 32 items. The graph returns the nearest items
by Hamming distance instead, so search times are not compared here.
"""

import gc
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from usearch.index import Index as Graph

from _report import arguments, save, seconds_each, show
from nestcode import Codes, Index

BATCH = 1000


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    count, width = (3000, 128) if options.quick else (1_000_000, 2048)
    extra, ones = (500, 50) if options.quick else (100_000, 2000)
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (count + extra + 2 * ones, width // 8), dtype=np.uint8)
    packed.flags.writeable = False
    codes = Codes(packed, width)
    queries = codes[: 50 if options.quick else BATCH]

    graph = Graph(ndim=width, metric="hamming", dtype="b1")
    index = Index(width=width)
    rows: list[dict[str, Any]] = []

    def row(what: str, ours: float, theirs: float | None, more_is_better: bool = True) -> None:
        ratio = None if theirs is None else (ours / theirs if more_is_better else theirs / ours)
        rows.append({"": what, "nestcode": ours, "usearch": "" if theirs is None else theirs, "x": ratio or ""})

    ours = timed(lambda: index.add(codes[:count]))
    theirs = timed(lambda: graph.add(np.arange(count), packed[:count], threads=0))
    row(f"build {count:,} x {width} bits, s", ours, theirs, more_is_better=False)
    per_item = index.nbytes / count
    row("memory, bytes per item", per_item, graph.memory_usage / count, more_is_better=False)
    row("memory beside the code itself, bytes per item", per_item - width / 8, None)
    compact = search_times(index, queries)

    added = codes[count : count + extra]
    ours = timed(lambda: add_in_batches(index, added))
    few = min(extra, 2 * BATCH)  # the graph takes a millisecond per item
    theirs = timed(lambda: graph.add(np.arange(count, count + few), added.packed[:few], threads=1))
    row(f"inserts per second, batches of {BATCH}", extra / ours, few / theirs)
    inserted = search_times(index, queries)
    single = codes[count + extra : count + extra + ones]
    ours = timed(lambda: add_in_batches(index, single, batch=1))
    few = min(ones, 500)
    theirs = timed(lambda: [graph.add(2 * count + i, single[i].packed[0], threads=1) for i in range(few)])
    row("inserts per second, one at a time", ones / ours, few / theirs)

    index.wait()
    for state, times in {
        "after inserting": inserted,
        "after background compaction": search_times(index, queries),
    }.items():
        for name in compact:
            row(f"neighborhood {state} / compacted, {name}", times[name] / compact[name], None)
    index.compact()
    index.remove(np.arange(0, count, 10))
    removed = search_times(index, queries)
    for name in compact:
        row(f"neighborhood with 10 % tombstones / compacted, {name}", removed[name] / compact[name], None)

    folder = Path(tempfile.mkdtemp())
    try:
        ours = timed(lambda: index.save(folder / "ours"))
        theirs = timed(lambda: graph.save(str(folder / "theirs")))
        row("save (ours with fsync), s", ours, theirs, more_is_better=False)
        mapped = {
            "ours": lambda: Index.open(folder / "ours"),
            "theirs": lambda: Graph.restore(str(folder / "theirs"), view=True),
        }
        opened = seconds_each(mapped, rounds=5)
        row("open memory-mapped, ms", 1e3 * opened["ours"], 1e3 * opened["theirs"], more_is_better=False)
        ours = timed(lambda: Index.open(folder / "ours").verify())
        row("verify every byte, s", ours, None)
    finally:
        shutil.rmtree(folder)
    show("The life cycle of an index", rows, "x: ratio to usearch, above 1 is better.")
    save(options.json, rows, ["nestcode", "numpy", "usearch"])


def timed(job: Callable[[], object]) -> float:
    """Return the seconds that one run takes."""
    gc.collect()
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def add_in_batches(index: Index, codes: Codes, batch: int = BATCH) -> None:
    """Insert codes batch by batch."""
    for start in range(0, len(codes), batch):
        index.add(codes[start : start + batch])


def search_times(index: Index, queries: Codes) -> dict[str, float]:
    """Return the seconds per query, one at a time and in batches."""
    single = list(queries)

    def each() -> None:
        for query in single:
            _ = index.neighborhood(query, size=32).ids

    best = seconds_each({"one at a time": each, "batches": lambda: index.neighborhood(queries, size=32).ids}, rounds=5)
    return {name: seconds / len(queries) for name, seconds in best.items()}


if __name__ == "__main__":
    main()
