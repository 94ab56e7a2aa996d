"""The exhaustive table of the search benchmark: ours against NumPy's matrix product and argpartition."""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from _report import seconds_each, show
from _search_task import NEAREST, Row, read_task
from nestcode import Index, LinearCoder
from nestcode.search.scorer import SearchMetric

WIDTHS = 256, 1536
COUNTS = 1, 8, 256  # queries
Indexes = dict[tuple[int, SearchMetric], Index]  # by width
ROUNDS = 10  # at least: short jobs are repeated more often


def exhaustive_ratios(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure, print, and yield the rows to save."""
    sizes = (300, 1000) if options.quick else (1000, 40_000)
    task = read_task(options, max(sizes))
    base, queries = (np.ascontiguousarray(part, dtype=np.float32) for part in (task.base, task.queries[: COUNTS[-1]]))
    coders = {width: (LinearCoder(width).fit(base), LinearCoder(width, metric="cosine").fit(base)) for width in WIDTHS}
    rows = []
    for items in sizes:
        vectors = base[:items]
        indexes: Indexes = {}
        for width, (plain, angular) in coders.items():
            indexes |= {(width, "l2"): Index(plain), (width, "cosine"): Index(angular), (width, "inner"): Index(plain)}
        for index in indexes.values():
            index.add(vectors)
        for count in COUNTS:
            own = queries[0] if count == 1 else queries[:count]
            rounds = 1 if options.quick else max(ROUNDS, min(10**7 // (items * count), 3000))
            times = seconds_each(_jobs(indexes, own, vectors), rounds, time.process_time)
            row: Row = {"items": items, "queries": count, "NumPy ms": 1e3 * times["NumPy"]}
            rows.append(row | {name: times[name] / times["NumPy"] for name in times if name != "NumPy"})
    show(
        f"Exhaustive search, one thread: {task}",
        rows,
        "NumPy: the matrix product of queries and vectors, both float32, then argpartition: ids in no order, without "
        "distances.\nOthers: CPU time over NumPy's, by codes of so many bits. vectors: exact distances to the same.",
    )
    yield rows


def _jobs(
    indexes: Indexes, queries: NDArray[np.float32], vectors: NDArray[np.float32]
) -> dict[str, Callable[[], object]]:
    def by_numpy() -> object:
        return np.argpartition(-(np.atleast_2d(queries) @ vectors.T), NEAREST, axis=1)[:, :NEAREST]

    def by_index(index: Index, metric: SearchMetric, rows: NDArray[np.float32] | None) -> Callable[[], object]:
        return lambda: index.search(queries, NEAREST, candidates=len(index), metric=metric, vectors=rows)

    jobs: dict[str, Callable[[], object]] = {"NumPy": by_numpy}
    for (width, metric), index in indexes.items():
        jobs[f"{width} {metric}"] = by_index(index, metric, None)
        if width == WIDTHS[0]:
            jobs[f"vectors {metric}"] = by_index(index, metric, vectors)
    return jobs
