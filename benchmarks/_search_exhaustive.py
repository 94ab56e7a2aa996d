"""The exhaustive and settings tables of the search benchmark: ours against NumPy's matrix product and argpartition."""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import seconds_each, show
from _search_task import NEAREST, Metric, Row, read_task
from nestcode import AdaptiveCoder, CellCoder, Index, LinearCoder, ResidualCoder
from nestcode.arrays import Floats
from nestcode.coders import Coder
from nestcode.search.scorer import SearchMetric

WIDTHS = 256, 1536
COUNTS = 1, 8, 256  # queries
Indexes = dict[tuple[int, SearchMetric], Index]  # by width
ROUNDS = 10  # at least: short jobs are repeated more often
METRICS: dict[Metric, tuple[SearchMetric, ...]] = {
    "l2": ("l2", "cosine", "inner"),
    "cosine": ("cosine",),
}  # by coder
FORMATS: tuple[Any, ...] = (None, "float16", "int8", "float32")
FILTERS = 0.01, 0.5, 0.99  # of all ids
FITTED = 10_000  # rows
NEAR = 0.9  # ratios beyond it are measured again, longer
WORST = 20  # settings shown at least


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


def settings_ratios(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure every combination of settings, print those slower than NumPy, and yield the rows to save."""
    sizes = (300, 1000) if options.quick else (1000, 4000, 8000, 40_000)
    task = read_task(options, max(sizes))
    base, queries = (np.ascontiguousarray(part, dtype=np.float32) for part in (task.base, task.queries[: COUNTS[-1]]))
    rows: list[Row] = []
    for name, coder in _coders(base[:FITTED], quick=options.quick):
        own = []
        for stored, items in product(FORMATS, sizes):
            index, vectors = Index(coder, vectors=stored), base[:items]
            index.add(vectors)
            for count, metric in product(COUNTS, METRICS[coder.metric_]):
                some = queries[0] if count == 1 else queries[:count]
                setting = {"coder": name, "vectors": stored or "none", "items": items, "queries": count}
                setting["metric"] = f"{metric} by {coder.metric_}"
                for kind, ratio in _ratios(index, vectors, some, metric, quick=options.quick):
                    own.append(setting | {"search": kind, "over NumPy": ratio})
        rows += own
        yield own
    rows.sort(key=lambda row: -row["over NumPy"])
    slower = sum(row["over NumPy"] > 1 for row in rows)
    show(
        f"Settings that take longest, {slower} of {len(rows)} longer than NumPy, one thread: {task}",
        rows[: max(slower, WORST)],
        "over NumPy: CPU time over that of the matrix product of queries and all vectors, both float32, then "
        "argpartition.\nmetric: of the search by a coder of that metric. search: by default, of all items, or of those "
        "that a filter leaves.",
    )


def _coders(rows: Floats, *, quick: bool) -> Iterator[tuple[str, Coder]]:
    for metric in METRICS:
        kinds: dict[str, Coder] = {
            "Linear 256": LinearCoder(256, metric=metric),
            "Linear 1536": LinearCoder(1536, metric=metric),
            "Cell 256": CellCoder(256, metric=metric),
            "Residual 256": ResidualCoder(256, metric=metric),
            "Adaptive 256": AdaptiveCoder(256, metric=metric),
        }
        for name, coder in kinds.items():
            if not quick or "Linear" in name:
                yield name, coder.fit(rows)
        if not quick:
            yield "nc.fit 256", nc.fit(rows, width=256, metric=metric)


def _ratios(
    index: Index, vectors: Floats, queries: Floats, metric: SearchMetric, *, quick: bool
) -> Iterator[tuple[str, float]]:
    search, rng = partial(index.search, queries, NEAREST, metric=metric), np.random.default_rng(0)
    kinds: dict[str, Callable[[], object]] = {"default": search, "all": partial(search, candidates=len(index))}
    for share in FILTERS:
        some = np.sort(rng.choice(len(index), int(share * len(index)), replace=False))
        kinds[f"filter of {share:.0%}"] = partial(search, filter=some)
    by_numpy = partial(_by_numpy, queries, vectors)
    for kind, job in kinds.items():
        rounds = 1 if quick else max(3, min(10**9 // (vectors.size * len(np.atleast_2d(queries))), 50))
        for longer in (1, 5):
            times = seconds_each({"NumPy": by_numpy, "ours": job}, longer * rounds, time.process_time)
            ratio = times["ours"] / times["NumPy"]
            if quick or ratio < NEAR or ratio > 2:
                break
        yield kind, ratio


def _by_numpy(queries: Floats, vectors: Floats) -> object:
    return np.argpartition(-(np.atleast_2d(queries) @ vectors.T), NEAREST, axis=1)[:, :NEAREST]


def _jobs(
    indexes: Indexes, queries: NDArray[np.float32], vectors: NDArray[np.float32]
) -> dict[str, Callable[[], object]]:
    def by_index(index: Index, metric: SearchMetric, rows: NDArray[np.float32] | None) -> Callable[[], object]:
        return lambda: index.search(queries, NEAREST, candidates=len(index), metric=metric, vectors=rows)

    jobs: dict[str, Callable[[], object]] = {"NumPy": partial(_by_numpy, queries, vectors)}
    for (width, metric), index in indexes.items():
        jobs[f"{width} {metric}"] = by_index(index, metric, None)
        if width == WIDTHS[0]:
            jobs[f"vectors {metric}"] = by_index(index, metric, vectors)
    return jobs
