"""What each memory tier of an index costs: memory, and the latency of single queries, cold and warm.

The index stores codes and float16 vectors of Gaussian clusters. Every tier is opened in a process of its own. "Cold"
means that before each query all mapped files are dropped from memory: what a tier holds in memory stays. "Warm" are the
same queries again, with the files in the page cache. Searches rerank by vectors, or by all bits of the codes.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import arguments, save, show
from nestcode import CellCoder, Index, metrics
from nestcode.index.memory import drop_pages

TIERS = (None, "all", "codes")
QUERIES, K = 100, 10
BATCH = 100_000
CENTERS = 2000


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    sizes, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options = arguments(f"{__doc__}\n--items, --features and --width set the size: 1,000,000, 128 and 256 by default.")
    count = 300 if options.quick else sizes.items
    features, width = (32, 160) if options.quick else (sizes.features, sizes.width)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        queries, true = build(path, count, features, width)
        start = "fork" if options.quick else "spawn"  # which starts with empty memory
        rows = [measured(start, path, tier, queries, true) for tier in TIERS]
    title = f"Memory tiers: {count:,} items of {width} bits with {features} float16 features, k = {K}"
    show(
        title, rows, "Memory: MB of the process beyond its start, of its own and of mapped files. Latency: µs, median."
    )
    save(options.json, rows, ["nestcode", "numpy"])


def items(batch: int, count: int, features: int) -> NDArray[np.float32]:
    """Return a batch of rows around centers that all batches share."""
    spread = np.arange(1, features + 1) ** -0.5
    centers = np.random.default_rng(1).standard_normal((CENTERS, features)) * spread
    rng = np.random.default_rng((2, batch))
    rows = centers[rng.integers(0, CENTERS, count)] + 0.5 * spread * rng.standard_normal((count, features))
    return rows.astype(np.float32)


def build(path: Path, count: int, features: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Save an index, and return queries with the ids of their true neighbors."""
    queries = items(10**6, min(QUERIES, count // 10), features)
    index = Index(CellCoder(width).fit(items(10**6 + 1, min(count, BATCH), features)), vectors="float16")
    near, ids = np.full((len(queries), K), np.inf), np.full((len(queries), K), -1)
    for batch, first in enumerate(range(0, count, BATCH)):
        rows = items(batch, min(BATCH, count - first), features)
        index.add(rows)
        distances = np.sum(rows**2, axis=1) - 2 * queries @ rows.T
        both = np.concatenate([near, distances], axis=1)
        named = np.concatenate([ids, np.broadcast_to(np.arange(first, first + len(rows)), distances.shape)], axis=1)
        best = np.argpartition(both, K, axis=1)[:, :K]
        near, ids = np.take_along_axis(both, best, axis=1), np.take_along_axis(named, best, axis=1)
    index.compact()
    index.save(path)
    return queries, ids


def measured(start: str, *arguments: Any) -> dict[str, Any]:
    """Return the row of a tier, measured in another process."""
    context: Any = multiprocessing.get_context(start)
    listen, report = context.Pipe(duplex=False)
    child = context.Process(target=measure, args=(report, *arguments))
    child.start()
    row: dict[str, Any] = listen.recv()
    child.join()
    return row


def measure(
    report: Connection, path: Path, tier: str | None, queries: NDArray[np.float32], true: NDArray[np.int64]
) -> None:
    """Open an index and search it, cold and warm; report the figures."""
    gc.collect()
    evict(path)
    own, mapped = resident()
    start = time.perf_counter()
    index = Index.open(path, memory=tier)
    opened = time.perf_counter()
    index.search(queries[0], K)
    ready = time.perf_counter()
    row: dict[str, Any] = {"memory": tier or "(mapped)", "open, ms": 1e3 * (opened - start)}
    row["first query, ms"] = 1e3 * (ready - opened)
    for name, rank in (("vectors", "exact"), ("codes", "asymmetric")):
        found = []
        for state in ("cold", "warm"):
            times = []
            if state == "warm":
                for query in queries[1:]:
                    index.search(query, K, rank=rank)  # type: ignore[arg-type]
            for query in queries[1:]:
                if state == "cold":
                    evict(path, index)
                begin = time.perf_counter()
                hits = index.search(query, K, rank=rank)  # type: ignore[arg-type]
                times.append(time.perf_counter() - begin)
                found.append(hits.ids)
            row[f"by {name}, {state}"] = 1e6 * float(np.median(times))
        row[f"recall by {name}"] = metrics.recall(np.array(found[: len(queries) - 1]), true[1:])
        if name == "vectors":
            now_own, now_mapped = resident()
    row["own MB"], row["mapped MB"] = now_own - own, now_mapped - mapped
    report.send(row)


def evict(path: Path, index: Index | None = None) -> None:
    """Drop the files of an index from memory: the pages that it has mapped, and then the page cache."""
    if index is not None:
        drop_pages(index)
    for file in path.iterdir():
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def resident() -> tuple[float, float]:
    """Return the megabytes of this process in memory: its own, and of mapped files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (int(status[name].split()[0]) / 1e3 for name in ("RssAnon", "RssFile"))
    return own, mapped


if __name__ == "__main__":
    main()
