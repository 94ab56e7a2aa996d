"""Shared by the tables of the search benchmark: items, queries, exact neighbors, and a time budget."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import nestcode as nc
from _report import images
from _sentences import SENTENCES, keywords, read_embeddings, read_sentences
from nestcode import metrics
from nestcode.arrays import Floats, Ids

NEAREST, MANY = 10, 100  # neighbors
CROPS = 1_000_000  # if --base is not given
Metric = Literal["l2", "cosine"]
Rows = tuple[str, Metric, NDArray[Any], NDArray[Any]]  # name, metric, items, queries
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Items, queries and the exact neighbors."""

    name: str
    metric: Metric
    base: Floats
    queries: Floats
    exact: Ids  # (queries, k)
    train: Floats | None = None  # other rows to train on

    @property
    def training(self) -> Floats:
        """The rows to train on: the items themselves unless others are held out for it."""
        return self.base if self.train is None else self.train

    def halves(self) -> "Task":
        """Return the task of finding half of the items, where the other half, drawn at random, is to train on."""
        order = np.random.default_rng(0).permutation(len(self.base))
        train, base = self.base[order[: len(order) // 2]], self.base[order[len(order) // 2 :]]
        exact = metrics.exact_neighbors(self.queries, base, self.k)
        return replace(self, base=base, exact=exact, train=train)

    @property
    def k(self) -> int:
        """The number of neighbors."""
        return int(self.exact.shape[1])

    def recall(self, found: Ids) -> float:
        """Return recall@k of the ids that a search found."""
        return metrics.recall(found, self.exact)

    def __str__(self) -> str:
        return f"{self.name}, {len(self.base):,} items, {len(self.queries):,} queries"


class Budget:
    """A time budget for steps of growing cost: the next step is expected to take `growth` times as long as the last.

    >>> budget = Budget(1.0, growth=4)
    >>> budget.allows()  # no step was taken yet
    True
    >>> time.sleep(0.4)
    >>> budget.allows()
    False
    """

    def __init__(self, seconds: float, growth: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds, self.growth, self.clock = seconds, growth, clock
        self.start = self.last = clock()

    def allows(self) -> bool:
        """Return whether the next step is expected to end in time."""
        now = self.clock()
        cost, self.last = now - self.last, now
        return now - self.start + self.growth * cost <= self.seconds


def read_task(options: argparse.Namespace, most: int | None) -> Task:
    """Return at most `most` items, queries that are not among them, and the exact neighbors."""
    chosen = [read for name, read in READERS.items() if getattr(options, name) is not None]
    name, metric, *parts = (chosen[0] if chosen else read_images)(options, most)
    base, queries = (part.astype(np.float32) for part in parts)
    if metric == "cosine":
        base, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (base, queries))
    return Task(name, metric, base, queries, metrics.exact_neighbors(queries, base, NEAREST))


def read_tasks(options: argparse.Namespace, most: int | None) -> list[Task]:
    """Return the task, the same with more neighbors, and for sentences with queries of another kind."""
    task = read_task(options, most)
    tasks = [task]
    if not options.quick:
        exact = metrics.exact_neighbors(task.queries, task.base, MANY)
        tasks.append(replace(task, exact=exact))
    if options.sentences is not None:
        queries = read_keywords(options)
        exact = metrics.exact_neighbors(queries, task.base, NEAREST)
        tasks.append(replace(task, name=f"{task.name}, keywords as queries", queries=queries, exact=exact))
    return tasks


def read_glove(options: argparse.Namespace, most: int | None) -> Rows:
    """Return word vectors in random order; the queries are other words."""
    rows = nc.data.glove(options.glove).vectors
    count = min(most or len(rows), len(rows) - options.queries)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[: count + options.queries]]
    return "GloVe, cosine", "cosine", rows[:count], rows[count:]


def read_crops(options: argparse.Namespace, most: int | None) -> Rows:
    """Return 8 x 8 crops of training images, and of test images as queries."""
    cifar, rng = nc.data.cifar10(options.crops), np.random.default_rng(0)
    parts = []
    for rows, count in ((cifar.train, most or CROPS), (cifar.test, options.queries)):
        whole = list(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        parts.append(nc.data.patches(whole, size=8, n=count, rng=rng).reshape(count, -1))
    return "8x8 crops of CIFAR-10, L2", "l2", parts[0], parts[1]


def read_hdf5(options: argparse.Namespace, most: int | None) -> Rows:
    """Return the items and queries of a file of ann-benchmarks."""
    import h5py  # only here: other data needs no such package

    with h5py.File(options.hdf5) as file:
        distance = str(file.attrs["distance"])
        if distance not in ("angular", "euclidean"):
            raise SystemExit(
                f'distance must be angular or euclidean, got "{distance}" in {options.hdf5}: give another file'
            )
        metric: Metric = "cosine" if distance == "angular" else "l2"
        base, queries = file["train"][:most], file["test"][: options.queries]
    return f"{options.hdf5.stem}, {distance}", metric, base, queries


def read_embedded(options: argparse.Namespace, most: int | None) -> Rows:
    """Return sentence embeddings; the queries are the last sentences."""
    file = embeddings_file(options)
    if options.sentences is None and not file.is_file():
        raise SystemExit(f"there is no file {file}: give a text file to --sentences, and it is made")
    texts = [] if file.is_file() else read_sentences(options.sentences)
    rows = read_embeddings(file, texts, options.model)
    count = min(most or len(rows), len(rows) - options.queries)
    return "sentences, cosine", "cosine", rows[:count], rows[len(rows) - options.queries :]


def read_keywords(options: argparse.Namespace) -> Floats:
    """Return L2-normalized embeddings of the keywords of the query sentences."""
    file = embeddings_file(options)
    count = len(np.load(file, mmap_mode="r"))
    texts = [keywords(text) for text in read_sentences(options.sentences)[count - options.queries : count]]
    rows = read_embeddings(file.with_name(f"{file.stem}-keywords-{options.queries}.npy"), texts, options.model)
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def embeddings_file(options: argparse.Namespace) -> Path:
    """Return where the embeddings are kept: --embeddings, or beside the sentences."""
    if options.embeddings is not None:
        return Path(options.embeddings)
    file = options.sentences / SENTENCES if options.sentences.is_dir() else options.sentences
    return Path(file.with_suffix(".npy"))


def read_images(options: argparse.Namespace, most: int | None) -> Rows:
    """Return pixels of CIFAR-10 with --data DIR, else patches of the sample images."""
    name, train, test = images(options)
    step = 4 if options.quick else 1
    return f"{name}, L2", "l2", train[:most, ::step], test[: options.queries, ::step]


READERS: dict[str, Callable[[argparse.Namespace, int | None], Rows]] = {  # by option
    "glove": read_glove,
    "crops": read_crops,
    "hdf5": read_hdf5,
    "sentences": read_embedded,
    "embeddings": read_embedded,
}


def first(distances: NDArray[Any]) -> Ids:
    """Return the ids of the 10 smallest distances in each row."""
    return np.argpartition(distances, NEAREST, axis=1)[:, :NEAREST]


def wanted(name: str, words: Sequence[str] | None) -> bool:
    """Return whether a method's name contains one of the words; ["all"] and None select all."""
    return words is None or list(words) == ["all"] or any(word.lower() in name.lower() for word in words)
