"""A large index built in steps, each in a process of its own and measured; a build that was interrupted goes on.

    base rows ──mix──▶ items ──encode_shard──▶ shards ──find_splitters, merge_range──▶ parts ──▶ searches

Items of any number are made of few real ones: item i is real row i mod n plus 0.4 times another, which differs from
round to round. The queries are real rows that no item is made of.
"""

import json
import multiprocessing
import resource
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nestcode import Codes, Index, LinearCoder, load_coder, metrics
from nestcode.arrays import Floats, Ids
from nestcode.scale import encode_shard, find_splitters, merge_range
from nestcode.scale.shards import part_path
from nestcode.storage import make_folder, write_atomic

MIX = 0.4  # of the other row, in an item
# The 99th percentile of 200 queries in 3 rounds was mostly the time of other programs.
QUERIES, JUDGED, K = 1000, 50, 10  # queries that are timed, those whose recall is measured, and neighbors
ROUNDS = 5
LOCK = threading.Lock()  # of the file of figures
Figures = dict[str, Any]


@dataclass(frozen=True)
class Build:
    """An index of `count` items in shards and parts of some size, in a folder that keeps what is done."""

    vectors: Path  # real rows, a .npy file
    folder: Path
    count: int
    shard: int
    part: int
    width: int
    workers: int = 1  # processes at a time

    def run(self) -> None:
        """Take all steps that were not taken."""
        make_folder(self.folder)
        if not (self.folder / "coder").exists():
            LinearCoder(self.width, metric="cosine").fit(read_rows(self.vectors)[0]).save(self.folder / "coder")
        with ThreadPoolExecutor(self.workers) as pool:
            starts = range(0, self.count, self.shard)
            wait(pool.submit(self.step, f"encode {i}", encode, self, i, starts[i]) for i in range(len(starts)))
            self.step("split", split, self)
            parts = len(np.load(self.folder / "splitters.npy")) + 1
            wait(pool.submit(self.step, f"merge {part}", merge, self, part) for part in range(parts))

    def search(self, budget: int, turn: int) -> Figures:
        """Return the figures of searches with a candidate budget."""
        return self.step(f"search {budget} {turn}", search, self, budget)

    def figures(self, name: str, figure: str) -> list[float]:
        """Return a figure of all steps of a name."""
        return [one[figure] for step, one in self._steps().items() if step.split()[0] == name]

    @property
    def shards(self) -> list[Path]:
        """The folders of shards."""
        return [self.folder / f"shard-{number:04d}" for number in range(-(-self.count // self.shard))]

    @property
    def parts(self) -> list[Path]:
        """The folders of the index."""
        return sorted(self.folder.glob("part-*"))

    def _steps(self) -> dict[str, Figures]:
        path = self.folder / "steps.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def step(self, name: str, job: Callable[..., Figures], *arguments: Any) -> Figures:
        """Return the figures of a step, which is taken unless it was."""
        known = self._steps().get(name)
        if known is not None:
            return known
        figures = in_a_process(job, *arguments)
        with LOCK:
            write_atomic(self.folder / "steps.json", json.dumps({**self._steps(), name: figures}, indent=1).encode())
        return figures


def wait(futures: Iterable[Future[Figures]]) -> None:
    """Wait for all, and raise what one of them raised."""
    for future in list(futures):
        future.result()


def in_a_process(job: Callable[..., Figures], *arguments: Any) -> Figures:
    """Return the figures of a job that runs in a process of its own, as a worker of a cluster would run it."""
    context = multiprocessing.get_context("fork")
    listen, report = context.Pipe(duplex=False)
    child = context.Process(target=lambda: report.send(job(*arguments)))
    child.start()
    report.close()
    try:
        figures: Figures = listen.recv()
    except EOFError:
        raise SystemExit(f"{job.__name__} failed: see above, then run the same command again") from None
    finally:
        child.join()
    return figures


def measured(job: Callable[[], Any]) -> Figures:
    """Return the processor seconds and the wall-clock seconds of a job, and by how many bytes the peak memory grew."""
    before, used, start = sum(resident()), time.process_time(), time.perf_counter()
    job()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"CPU": time.process_time() - used, "wall": time.perf_counter() - start, "peak": max(peak - before, 0)}


def resident() -> tuple[int, int]:
    """Return the bytes of this process in memory: its own, and of mapped files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (1024 * int(status[name].split()[0]) for name in ("RssAnon", "RssFile"))
    return own, mapped


def read_rows(path: Path) -> tuple[Floats, Floats]:
    """Return base rows and queries, L2-normalized."""
    rows = np.load(path)
    rows = rows[np.random.default_rng(0).permutation(len(rows))].astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held = min(QUERIES, len(rows) // 10)
    return rows[held:], rows[:held]


def make_items(base: Floats, first: int, last: int) -> Floats:
    """Return items `first` to `last`."""
    items = np.empty((last - first, base.shape[1]), dtype=np.float32)
    for turn in range(first // len(base), -(-last // len(base))):
        begin, end = max(first, turn * len(base)), min(last, (turn + 1) * len(base))
        at = np.arange(begin, end)
        items[begin - first : end - first] = base[at % len(base)] + MIX * base[(at + turn + 1) % len(base)]
    return items


def encode(build: Build, number: int, first: int) -> Figures:
    """Write a shard, and the exact neighbors of queries in it."""
    last = min(first + build.shard, build.count)
    coder, (base, queries) = load_coder(build.folder / "coder"), read_rows(build.vectors)
    items = make_items(base, first, last)
    figures = measured(lambda: encode_shard(items, np.arange(first, last), build.shards[number], coder))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    near = -(queries[:JUDGED] @ items.T)
    best = np.argpartition(near, K, axis=1)[:, :K]
    np.savez(
        build.folder / f"exact-{number:04d}.npz", ids=first + best, distances=np.take_along_axis(near, best, axis=1)
    )
    return figures


def split(build: Build) -> Figures:
    """Write the bounds of parts."""
    parts = max(1, round(build.count / build.part))
    found: list[Codes] = []
    figures = measured(lambda: found.append(find_splitters(build.shards, parts)))
    np.save(build.folder / "splitters.npy", found[0].packed)
    return figures


def merge(build: Build, part: int) -> Figures:
    """Write a part."""
    splitters = Codes(np.load(build.folder / "splitters.npy"), build.width)
    out = part_path(build.folder, part)
    return {**measured(lambda: merge_range(build.shards, splitters, part, out)), "items": len(Index.open(out))}


def search(build: Build, budget: int) -> Figures:
    """Open all parts, mapped, and search them: the processor seconds of opening and a first search, and then more."""
    queries, exact = read_rows(build.vectors)[1], exact_neighbors(build)

    def open_and_search() -> Index:
        index = Index.open(build.parts)
        index.search(queries[0], K, candidates=budget)
        return index

    index = open_and_search()  # imports modules
    first = min(measured(open_and_search)["CPU"] for _ in range(ROUNDS))
    return {"first": first, **timed(index, queries, budget), "recall": recall(index, queries, exact, budget)}


def memory_of_all(build: Build) -> Figures:
    """Return the bytes in memory of an index, mapped, when all of its pages were touched."""
    query = read_rows(build.vectors)[1][0]
    before = sum(resident())
    index = Index.open(build.parts)
    index.search(query, K)
    index.verify()
    return {"memory": sum(resident()) - before}


def timed(index: Index, queries: Floats, budget: int) -> Figures:
    """Return the latency of single queries in seconds: of each the best of some rounds, in processor and wall time."""
    best = np.full((2, len(queries)), np.inf)
    for _ in range(ROUNDS):
        for place, query in enumerate(queries):
            used, start = time.process_time(), time.perf_counter()
            index.search(query, K, candidates=budget)
            spent = time.process_time() - used, time.perf_counter() - start
            best[:, place] = np.minimum(best[:, place], spent)
    (p50, p99), (wall50, wall99) = np.percentile(best, [50, 99], axis=1).T
    return {"p50": p50, "p99": p99, "wall p50": wall50, "wall p99": wall99}


def recall(index: Index, queries: Floats, exact: Ids, budget: int) -> float:
    """Return recall@10 of searches by codes alone."""
    return metrics.recall(index.search(queries[: len(exact)], K, candidates=budget).ids, exact)


def exact_neighbors(build: Build) -> Ids:
    """Return the ids of the nearest items of the first queries, of all shards."""
    found = [np.load(path) for path in sorted(build.folder.glob("exact-*.npz"))]
    ids = np.concatenate([one["ids"] for one in found], axis=1)
    order = np.argsort(np.concatenate([one["distances"] for one in found], axis=1), axis=1)
    nearest: Ids = np.take_along_axis(ids, order[:, :K], axis=1)
    return nearest
