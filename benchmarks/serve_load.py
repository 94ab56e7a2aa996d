"""A server under load, on loopback: throughput, latency at half of it, errors and memory, beside the index itself.

The server is `nestcode serve` in a process of its own, pinned to two cores; generators run on the others and send one
query per request as float32. First 64 connections send as fast as they are answered. Then requests are due at fixed
times, half as many as before, and latency counts from when a request was due: a server that stalls is not spared
(no coordinated omission). "alone" is one connection; the baseline is `Index.search` called for one query in a process,
as HTTP can only add to that. The memory is the server's resident set at the end of a load; with --minutes the last load
goes on for so long, and a row tells the memory after each minute.

Items are 1,000,000 synthetic vectors of 128 features with the falling spectrum of embeddings, coded with 256 bits.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from _report import save, show
from _serve_requests import generate
from nestcode import Index, LinearCoder
from nestcode.arrays import Floats

FEATURES, WIDTH, QUERIES = 128, 256, 2000


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--items", type=int, default=1_000_000, metavar="N", help="items in the index (1,000,000)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="of each load (20)")
    parser.add_argument("--minutes", type=int, default=0, metavar="M", help="of a last load, watched by the minute (0)")
    parser.add_argument("--candidates", type=int, metavar="N", help="candidate budget (the index's default)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.items, options.seconds = 3000, 0.3
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        queries = build(folder, options.items)
        server, others = cores()
        rows.append(baseline(folder, queries, options.candidates, options.seconds))
        with subprocess.Popen(
            [sys.executable, "-m", "nestcode", "serve", folder, "--port", "0", "--threads", "2"],
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, server),
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                wait_until_ready(url)
                rows += loads(url, process.pid, queries, others, options)
            finally:
                process.terminate()
    note = f"{options.items:,} x {WIDTH} bits, k = 10; server on cores {sorted(server)}, load from {sorted(others)}"
    show("One query per request", rows, note)
    save(options.json, rows, ["nestcode", "numpy", "fastapi", "uvicorn", "httptools"])


def build(folder: str, count: int) -> Floats:
    """Save an index of synthetic vectors, and return queries that are not in it."""
    rng = np.random.default_rng(0)
    scale = (1 / np.sqrt(1 + np.arange(FEATURES))).astype(np.float32)
    rotation = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0].astype(np.float32)
    rows = (rng.standard_normal((count + QUERIES, FEATURES), dtype=np.float32) * scale) @ rotation
    index = Index(LinearCoder(WIDTH).fit(rows[:50_000]))
    index.add(rows[:count])
    index.save(folder)
    return np.ascontiguousarray(rows[count:])


def cores() -> tuple[set[int], set[int]]:
    """Return the cores of the server and of the load; they share them where there are only two."""
    known = sorted(os.sched_getaffinity(0))
    return set(known[:2]), set(known[2:10]) or set(known)


def baseline(folder: str, queries: Floats, candidates: int | None, seconds: float) -> dict[str, Any]:
    """Return the row of single searches in this process."""
    index = Index.open(folder)
    index.search(queries[0], candidates=candidates)
    times: list[float] = []
    end = time.perf_counter() + seconds / 2
    while time.perf_counter() < end:
        start = time.perf_counter()
        index.search(queries[len(times) % QUERIES], candidates=candidates)
        times.append(time.perf_counter() - start)
    return row("Index.search, in process", times, 0, sum(times), None)


def wait_until_ready(url: str) -> None:
    """Wait until the server has prepared its index."""
    with httpx.Client(base_url=url) as http:
        while http.get("/readyz").status_code != 200:
            time.sleep(0.05)


def loads(url: str, pid: int, queries: Floats, others: set[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of all loads."""
    port, processes = int(url.rstrip("/").rpartition(":")[2]), min(4, len(others))
    query = "" if options.candidates is None else f"&candidates={options.candidates}"
    found = []
    with ProcessPoolExecutor(processes, get_context("spawn"), os.sched_setaffinity, (0, others)) as pool:

        def load(name: str, connections: int, rate: float | None, seconds: float) -> dict[str, Any]:
            share, used = max(connections // processes, 1), min(processes, connections)
            each = None if rate is None else rate / (used * share)
            jobs = [pool.submit(generate, port, query, queries, share, seconds, each) for _ in range(used)]
            answers = [job.result() for job in jobs]
            times = [one for part, _, _ in answers for one in part]
            failed, taken = sum(failed for _, failed, _ in answers), max(taken for _, _, taken in answers)
            return row(name, times, failed, taken, resident(pid))

        found.append(load("alone", 1, None, options.seconds))
        found.append(load("as fast as possible", 64, None, options.seconds))
        half = found[-1]["requests/s"] / 2
        found.append(load("at half of that", 64, half, options.seconds))
        found.append(load("at 1,000 requests/s", 64, 1000, options.seconds))
        found += [load(f"at half, minute {number + 1}", 64, half, 60) for number in range(options.minutes)]
    return found


def resident(pid: int) -> float:
    """Return the resident set of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def row(name: str, times: list[float], failed: int, seconds: float, memory: float | None) -> dict[str, Any]:
    """Return the figures of one load."""
    p50, p99 = np.percentile(times, (50, 99)) * 1e3 if times else (0.0, 0.0)
    return {
        "": name,
        "requests/s": round(len(times) / seconds),
        "p50, ms": float(p50),
        "p99, ms": float(p99),
        "errors": failed,
        "memory, MB": "" if memory is None else round(memory),
    }


if __name__ == "__main__":
    main()
