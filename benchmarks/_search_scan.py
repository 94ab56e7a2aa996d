"""The scan table of the search benchmark: what one full scan of codes finds that need no training, and how fast."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import show
from _search_task import NEAREST, Row, Task, read_task

BITS = (1, 2, 4)  # per dimension
SAMPLE = 2048  # rows that means and calibrations are taken from
ROUNDS = 5
Search = Callable[[], NDArray[Any]]


def full_scans(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure, print, and yield the rows to save."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    task = read_task(options, 600 if options.quick else options.base)
    if task.metric != "cosine":
        print("the scan table is by cosine: give --sentences, --embeddings or --glove")
        return
    searches: dict[str, tuple[Search, float]] = rotations(task)
    if find_spec("turbovec") is not None:
        searches |= turbovecs(task)
    searches |= rabitqs(task)
    found = {name: search() for name, (search, _) in searches.items()}
    times: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(1 if options.quick else ROUNDS):  # one after the other, so that a busy machine slows all of them
        for name, (search, _) in searches.items():
            start = time.process_time()
            search()
            times[name].append(time.process_time() - start)
    rows: list[Row] = [
        {
            "method": name,
            "recall@1": f"{np.mean(found[name][:, 0] == task.exact[:, 0]):.3f}",
            f"recall@{NEAREST}": f"{task.recall(found[name]):.3f}",
            "bytes an item": f"{size:.0f}",
            "CPU µs a query": f"{1e6 * float(np.median(times[name])) / len(task.queries):.0f}",
        }
        for name, (_, size) in searches.items()
    ]
    show(
        f"One full scan, batches on one thread: {task}",
        rows,
        "RotationCoder: fast-scan of the first plane, then the best 100 by all planes; one code, read at three lengths."
        "\nMeans and calibrations are those of 2,048 items. RaBitQ: FAISS's, one list.",
    )
    yield rows


def rotations(task: Task) -> dict[str, tuple[Search, float]]:
    """Return searches of one coder's codes at each length."""
    features = task.base.shape[1]
    coder = nc.RotationCoder(BITS[-1] * features, "cosine").fit(task.base[:SAMPLE])
    searches: dict[str, tuple[Search, float]] = {}
    for bits in BITS:
        index = nc.Index(coder, width=bits * features)
        index.add(task.base)

        def search(index: nc.Index = index) -> NDArray[Any]:
            return np.asarray(index.search(task.queries, NEAREST, threads=1).ids)

        searches[f"RotationCoder, {bits} bits"] = search, bits * features / 8
    return searches


def turbovecs(task: Task) -> dict[str, tuple[Search, float]]:
    """Return searches of TurboQuant codes, which begin at 2 bits."""
    searches: dict[str, tuple[Search, float]] = {}
    features = task.base.shape[1]
    padding = ((0, 0), (0, -features % 8))  # it takes multiples of 8 features
    base, queries = np.pad(task.base, padding), np.pad(task.queries, padding)
    for bits in BITS[1:]:
        index = import_module("turbovec").TurboQuantIndex(dim=base.shape[1], bit_width=bits)
        index.calibrate(base[:SAMPLE])
        index.add(base)
        index.prepare()

        def search(index: Any = index) -> NDArray[Any]:
            return np.asarray(index.search(queries, NEAREST)[1], dtype=np.int64)

        searches[f"turbovec, {bits} bits"] = search, bits * base.shape[1] / 8 + 4  # a norm
    return searches


def rabitqs(task: Task) -> dict[str, tuple[Search, float]]:
    """Return searches of FAISS's RaBitQ, after a random rotation."""
    searches: dict[str, tuple[Search, float]] = {}
    features = task.base.shape[1]
    for bits in BITS:
        codes: Any = faiss.IndexRaBitQFastScan(features, faiss.METRIC_L2, 32, bits)
        index = faiss.IndexPreTransform(faiss.RandomRotationMatrix(features, features), codes)
        index.train(task.base[:SAMPLE])
        index.add(task.base)

        def search(index: Any = index) -> NDArray[Any]:
            return np.asarray(index.search(task.queries, NEAREST)[1])

        searches[f"FAISS RaBitQ, {bits} bits"] = search, codes.code_size
    return searches
