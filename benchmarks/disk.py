"""Graphs whose nodes stay in their file (`Index.open(path, memory="codes")`): recall, reads, time and memory.

Items are rows of a .npy file (--vectors), and perturbed copies where --items wants more; its last rows are the queries.
Without a file, items are clustered random vectors. Before each query all files of the index are dropped from memory.
Reads are what the system counts for the process (`/proc/self/io`), in pages of 4 KiB. Memory is what the process gains
by opening the index and by all searches. Warm searches find the files in the page cache. --folder keeps the index and
the true neighbors, and a later run goes on with them.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from _report import save, show
from graph import K, read
from nestcode import Index, LinearCoder, metrics
from nestcode.index.memory import drop_pages
from nestcode.storage import PAGE

FITTED = 200_000  # rows that the coder is fitted on
COLUMNS = ("queries.npy", "true.npy")


def main() -> None:
    """Build, measure, print and save."""
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if not all((folder / column).exists() for column in COLUMNS):
            build(folder, options)
        rows = measured(folder, options.ef, options.tier)
    title = f"{options.items:,} items, {options.bits} bits, {options.vector_type} vectors, k = {K}"
    show(title, rows, "Cold but for the last columns. Times: ms a query, one thread; memory: MB beyond the start.")
    save(options.json, rows, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of vectors, L2-normalized here")
    parser.add_argument("--items", type=int, default=100_000, metavar="N")
    parser.add_argument("--queries", type=int, default=200, metavar="N")
    parser.add_argument("--bits", type=int, default=320, help="width of the codes that navigate")
    parser.add_argument("--vector-type", default="float16", choices=["float32", "float16", "int8"])
    parser.add_argument("--ef", type=int, nargs="+", default=[20, 30, 40, 60, 80])
    parser.add_argument("--tier", default="codes", choices=["codes", "all"])
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for the index; a temporary one by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.items, options.queries, options.ef = 5000, 20, [20]
    return options


def build(folder: Path, options: argparse.Namespace) -> None:
    """Save an index, its queries and their true neighbors; print the times."""
    base, queries = read(options, options.items)
    start = time.perf_counter()
    true = metrics.exact_neighbors(queries, base, K)
    found = time.perf_counter()
    index = Index(
        LinearCoder(options.bits, metric="cosine").fit(base[:FITTED]), vectors=options.vector_type, graph=True
    )
    index.add(base)
    index.compact()
    built = time.perf_counter()
    index.save(folder / "index", memory="codes")
    print(f"neighbors {found - start:.0f} s, build {built - found:.0f} s, save {time.perf_counter() - built:.0f} s")
    np.save(folder / COLUMNS[0], queries)
    np.save(folder / COLUMNS[1], true)


def measured(folder: Path, efs: list[int], tier: str) -> list[dict[str, Any]]:
    """Return the rows, measured in another process, whose memory is its own."""
    context = multiprocessing.get_context("spawn")
    listen, report = context.Pipe(duplex=False)
    child = context.Process(target=measure, args=(report, folder, efs, tier))
    child.start()
    report.close()
    rows: list[dict[str, Any]] = listen.recv()
    child.join()
    return rows


def measure(report: Connection, folder: Path, efs: list[int], tier: str) -> None:
    """Search with each effort, cold and warm, and report the figures."""
    queries, true = (np.load(folder / column) for column in COLUMNS)
    few = Index(LinearCoder(8, metric="cosine").fit(queries))  # loads code that is not of the index
    few.add(queries)
    few.search(queries, K)
    path, before = folder / "index", resident()
    evict(path)
    index, rows = Index.open(path, memory=tier), []
    index.search(queries[0], K, candidates=efs[0])
    held = resident()
    for ef in efs:
        found, reads, wall, cpu = [], [], [], []
        for query in queries:
            drop_pages(index)
            evict(path)
            pages, spent, start = pages_read(), time.process_time(), time.perf_counter()
            found.append(index.search(query, K, candidates=ef).ids)
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - spent)
            reads.append(pages_read() - pages)
        for query in queries:
            index.search(query, K, candidates=ef)
        spent = time.process_time()
        hits = index.search(queries, K, candidates=ef, threads=1)
        rows.append(
            {
                "ef": ef,
                f"recall@{K}": metrics.recall(np.array(found), true),
                "reads": float(np.mean(reads)),
                "reads, 95 %": float(np.percentile(reads, 95)),
                "nodes": float(np.mean(hits.compared)),
                "ms": 1e3 * float(np.median(wall)),
                "CPU ms": 1e3 * float(np.mean(cpu)),
                "warm CPU ms": 1e3 * (time.process_time() - spent) / len(queries),
                "open MB": (held - before) / 1e6,
                "MB": (resident() - before) / 1e6,
            }
        )
    report.send(rows)


def pages_read() -> int:
    """Return how many pages the system has read for this process."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"]) // PAGE


def resident() -> int:
    """Return the memory of this process, pages of mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def evict(path: Path) -> None:
    """Drop the files of an index from the page cache."""
    for file in path.iterdir():
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


if __name__ == "__main__":
    main()
