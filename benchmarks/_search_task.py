"""What both tables of the search benchmark share: what is searched, the exact answer, and a limit to the time."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import images
from nestcode import metrics

NEAREST = 10
CROPS = 1_000_000  # as many as are cut where no number is given
Metric = Literal["l2", "cosine"]
Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Rows = tuple[str, Metric, NDArray[Any], NDArray[Any]]  # a name, and what is searched, and for what
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What is searched, for what, and what is right."""

    name: str
    metric: Metric
    base: Floats
    queries: Floats
    true: Ids  # (queries, 10)

    def recall(self, found: Ids) -> float:
        """The share of the nearest items that were found."""
        return metrics.recall(found, self.true)

    def __str__(self) -> str:
        return f"{self.name}, {len(self.base):,} items, {len(self.queries):,} queries"


class Budget:
    """Seconds that a method may take: asked before each step, it takes this one for `growth` times as long as the last.

    >>> budget = Budget(1.0, growth=4)
    >>> budget.allows()  # no step was taken that could have been too slow
    True
    >>> time.sleep(0.4)
    >>> budget.allows()
    False
    """

    def __init__(self, seconds: float, growth: float) -> None:
        self.seconds, self.growth = seconds, growth
        self.start = self.last = time.perf_counter()

    def allows(self) -> bool:
        """Whether another step is likely to end in time."""
        now = time.perf_counter()
        cost, self.last = now - self.last, now
        return now - self.start + self.growth * cost <= self.seconds


def read_task(options: argparse.Namespace, most: int | None) -> Task:
    """Items that are searched, at most so many, others as queries, and the exact answer."""
    chosen = [read for name, read in READERS.items() if getattr(options, name) is not None]
    name, metric, *parts = (chosen[0] if chosen else read_images)(options, most)
    base, queries = (part.astype(np.float32) for part in parts)
    if metric == "cosine":
        base, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (base, queries))
    return Task(name, metric, base, queries, metrics.exact_neighbors(queries, base, NEAREST))


def read_glove(options: argparse.Namespace, most: int | None) -> Rows:
    """Word vectors in random order; the queries are other words."""
    rows = nc.data.glove(options.glove).vectors
    count = min(most or len(rows), len(rows) - options.queries)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[: count + options.queries]]
    return "GloVe, cosine", "cosine", rows[:count], rows[count:]


def read_crops(options: argparse.Namespace, most: int | None) -> Rows:
    """Squares of 8 x 8 pixels: of training images, and of test images as queries."""
    cifar, rng = nc.data.cifar10(options.crops), np.random.default_rng(0)
    parts = []
    for rows, count in ((cifar.train, most or CROPS), (cifar.test, options.queries)):
        whole = list(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        parts.append(nc.data.patches(whole, size=8, n=count, rng=rng).reshape(count, -1))
    return "8x8 crops of CIFAR-10, L2", "l2", parts[0], parts[1]


def read_hdf5(options: argparse.Namespace, most: int | None) -> Rows:
    """A file of ann-benchmarks."""
    with h5py.File(options.hdf5) as file:
        distance = str(file.attrs["distance"])
        if distance not in ("angular", "euclidean"):
            raise SystemExit(f'{options.hdf5} is for "{distance}" distance: take one that is angular or euclidean')
        metric: Metric = "cosine" if distance == "angular" else "l2"
        base, queries = file["train"][:most], file["test"][: options.queries]
    return f"{options.hdf5.stem}, {distance}", metric, base, queries


def read_images(options: argparse.Namespace, most: int | None) -> Rows:
    """CIFAR-10 by pixels with --data DIR, else patches of two photographs."""
    name, train, test = images(options)
    step = 4 if options.quick else 1
    return f"{name}, L2", "l2", train[:most, ::step], test[: options.queries, ::step]


READERS: dict[str, Callable[[argparse.Namespace, int | None], Rows]] = {  # by option
    "glove": read_glove,
    "crops": read_crops,
    "hdf5": read_hdf5,
}


def first(distances: NDArray[Any]) -> Ids:
    """The ids of the 10 smallest numbers of each row."""
    return np.argpartition(distances, NEAREST, axis=1)[:, :NEAREST]


def wanted(name: str, options: argparse.Namespace) -> bool:
    """Whether a peer was asked for: all are, unless words are given, of which its name must contain one."""
    return options.peers is None or any(word.lower() in name.lower() for word in options.peers)
