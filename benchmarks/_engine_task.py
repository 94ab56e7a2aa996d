"""Shared by the benchmarks of the search engine: items and queries, exact recall on a subset, CPU time of calls."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nestcode import data
from nestcode.arrays import Floats, Ids
from nestcode.search import Hits

Metric = Literal["l2", "cosine"]
QUERIES = 1000
PATCH_PIXELS = 8  # on a side: 192 features
PATCHES = 200_000
ROUNDING = 1e-6  # of the squared norms, by which equal distances differ in float32
ROW_BLOCK = 64  # queries whose hits are compared at once


@dataclass(frozen=True)
class Task:
    """Items in random order, and queries that are not among them; L2-normalized for the cosine.

    >>> task = Task("line", "l2", np.arange(4, dtype=np.float32)[:, None], np.full((1, 1), 0.5, dtype=np.float32))
    >>> kth = task.kth_distances(task.queries, 1)
    >>> [task.recall(task.queries, np.array([[found]]), kth, 1) for found in range(3)]  # 0 and 1 are equally near
    [1.0, 1.0, 0.0]
    """

    name: str
    metric: Metric
    base: Floats
    queries: Floats

    def __str__(self) -> str:
        return f"{self.name}, {self.metric}, {len(self.base):,} x {self.base.shape[1]}"

    def first(self, count: int) -> "Task":
        """Return the task of searching the first items only."""
        return replace(self, base=self.base[:count])

    def distances(self, queries: Floats, items: Floats) -> NDArray[np.float64]:
        """Return the squared distances of queries to items, (queries, items)."""
        mean = self.base[:1].astype(np.float64)  # shifts both, so that less cancels
        left, right = queries - mean, items - mean
        squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)
        distances: NDArray[np.float64] = np.maximum(squares - 2 * (left @ right.T), 0)
        return distances

    def kth_distances(self, queries: Floats, k: int, allowed: Ids | None = None) -> NDArray[np.float64]:
        """Return the squared distance of each query's k-th nearest allowed item, or of the farthest of fewer."""
        items = self.base if allowed is None else self.base[allowed]
        last = min(k, len(items)) - 1
        blocks = [queries[first : first + ROW_BLOCK] for first in range(0, len(queries), ROW_BLOCK)]
        return np.concatenate([np.partition(self.distances(block, items), last, axis=1)[:, last] for block in blocks])

    def recall(self, queries: Floats, found: Ids, kth: NDArray[np.float64], count: int) -> float:
        """Return the share of the `count` nearest items found: ids (queries, k) no farther than the exact k-th one.

        Items at equal distance stand for each other.
        """
        right = 0
        for query, ids, bound in zip(queries, found, kth, strict=True):
            own = self.base[np.unique(ids[ids >= 0])].astype(np.float64) - query
            slack = ROUNDING * float(np.square(query, dtype=np.float64).sum())
            right += min(int((np.square(own).sum(axis=1) <= bound + slack).sum()), count)
        return right / (count * len(queries))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every benchmark of the engine takes."""
    parser.add_argument("--items", type=int, metavar="N", help="how many items")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")


def read_vectors(file: Path, metric: Metric, items: int | None) -> Task:
    """Return the rows of a .npy file in random order: the first are the items, the last 1,000 the queries."""
    rows = np.load(file, mmap_mode="r", allow_pickle=False)
    if rows.ndim != 2 or len(rows) <= QUERIES:
        raise SystemExit(f"{file} must hold more than {QUERIES:,} rows, got shape {rows.shape}: give a larger file")
    order = np.random.default_rng(0).permutation(len(rows))
    count = min(items or len(rows), len(rows) - QUERIES)
    return Task(file.stem, metric, *(prepared(rows[part], metric) for part in (order[:count], order[-QUERIES:])))


def read_given(given: str, items: int | None) -> Task:
    """Return the task of a `--vectors FILE[:METRIC]`; the metric is the cosine by default."""
    name, _, metric = given.partition(":")
    if metric not in ("", *get_args(Metric)):
        raise SystemExit(f"the metric must be cosine or l2, got {metric!r}: give FILE.npy:l2")
    return read_vectors(Path(name), "l2" if metric == "l2" else "cosine", items)


def read_patches(items: int | None) -> Task:
    """Return patches of the sample images."""
    count, rng = items or PATCHES, np.random.default_rng(0)
    cut = data.patches(list(data.sample_images().values()), size=PATCH_PIXELS, n=count + QUERIES, rng=rng)
    rows = cut.reshape(len(cut), -1).astype(np.float32)
    return Task("patches", "l2", rows[:count], rows[count:])


def read_digits(metric: Metric = "l2") -> Task:
    """Return scikit-learn's digits, some of them and few queries: the smoke test."""
    rows = prepared(data.digits()[0], metric)
    return Task("digits", metric, rows[:1200], rows[-24:])


def prepared(rows: NDArray[Any], metric: Metric) -> Floats:
    """Return rows as float32, L2-normalized for the cosine."""
    floats = np.ascontiguousarray(rows, dtype=np.float32)
    return floats / np.linalg.norm(floats, axis=1, keepdims=True) if metric == "cosine" else floats


def cpu_seconds(calls: Sequence[Callable[[], Hits]], rounds: int, limit: float = float("inf")) -> list[float]:
    """Return the least CPU seconds of each call. Rounds are interleaved; a call that spent `limit` is not repeated.

    The first round, which is not counted, warms up the caches.
    """
    best, spent = [float("inf")] * len(calls), [0.0] * len(calls)
    for counted in range(rounds + 1):
        for i, call in enumerate(calls):
            if counted > 1 and spent[i] > limit:
                continue
            start = time.process_time()
            call()
            seconds = time.process_time() - start
            spent[i] += seconds
            best[i] = min(best[i], seconds) if counted else best[i]
    return best
