"""Accuracy and time of k-nearest-neighbor classification on nested codes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode import Codes, Index, LinearCoder
from nestcode.arrays import Doubles
from nestcode.data import digits
from nestcode.index import PrefixTree
from nestcode.lengths import Beyond, LogUniform
from nestcode.metrics import exact_neighbors
from nestcode.nn import Binarize, OrderedClassifier
from nestcode.reproduce.knn.figures import METHODS, Results, figure_results
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.reproduce.lab.verdicts import is_logarithmic
from nestcode.training import Training, train

Labels = NDArray[np.int64]
Found = tuple[list[Labels], float]  # ids found for each query, and seconds per query

K = 10  # neighbors that vote


@dataclass(frozen=True)
class Task:
    """Items with labels, and queries to classify."""

    name: str
    X: NDArray[Any]
    labels: Labels
    queries: NDArray[Any]
    query_labels: Labels
    candidates: int  # candidate budget of a search


@dataclass(frozen=True)
class Coded:
    """Codes of items and queries; with a coder, queries are compared by asymmetric distances."""

    items: Codes
    queries: Codes
    coder: LinearCoder | None = None


def run(lab: Lab) -> None:
    """Classify by codes of many lengths, and among growing numbers of items."""
    for task in tasks(lab):
        width = code_width(lab, task)
        lengths = [2**power for power in range(3, width.bit_length())]
        seeds = lab.progress(lab.seeds, f"{task.name}, supervised")
        supervised = [supervised_codes(lab, task, width, seed) for seed in seeds]
        coded = {"supervised": supervised, "unsupervised": [unsupervised_codes(task, width)]}
        accuracies: dict[str, dict[str, Doubles]] = {}
        seconds: dict[str, dict[str, list[float]]] = {}
        for kind, runs in coded.items():
            found = [[classify(task, one, length) for length in lengths]
                     for one in lab.progress(runs, f"{task.name}, {kind}")]  # fmt: skip
            accuracies[kind] = {
                name: np.array([[accuracy(by[name][0], task) for by in each] for each in found]) for name in METHODS
            }
            seconds[kind] = {name: [by[name][1] for by in found[0]] for name in METHODS}
        counts = [len(task.X) // 16, len(task.X) // 4, len(task.X)]
        by_count = [classify(task, supervised[0], width, count) for count in counts]
        growth = {name: [by[name][1] for by in by_count] for name in METHODS}
        results = Results(lengths, accuracies, seconds, counts, growth)
        add_findings(lab, task, results)
        lab.figure(
            f"knn-{task.name.lower()}",
            figure_results(f"{task.name}, k = {K}", results),
            f"{task.name}: votes of {K} neighbors, {len(task.query_labels):,} queries among {len(task.X):,} items. "
            "Left: accuracy, with the range over seeds for supervised codes. Middle and right: time per query on one "
            "core, right for supervised codes of full width.",
        )
        lab.measured[task.name] = {
            "lengths": lengths,
            "accuracy": {kind: {name: each.tolist() for name, each in by.items()} for kind, by in accuracies.items()},
            "seconds": seconds, "counts": counts, "seconds by count": growth,
        }  # fmt: skip
    if lab.data is None:
        lab.departure("Without --data only digits are classified.")
    lab.departure("The paper has no experiment on this; we chose the coders and networks.")


def code_width(lab: Lab, task: Task) -> int:
    """Return the bits of a task's codes."""
    return lab.pick(toy=32, quick=256 if task.name == "digits" else 512, full=1024)


def train_seed(lab: Lab, seed: int) -> None:
    """Train the classifiers of a seed."""
    for task in tasks(lab):
        supervised_codes(lab, task, code_width(lab, task), seed)


def tasks(lab: Lab) -> list[Task]:
    """Return digits, and CIFAR-10 if it is given."""
    X, y = digits()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    found = [Task("digits", X[300:], y[300:], X[:300], y[:300], candidates=150)]
    if lab.data is not None:
        images = lab.images(test=lab.pick(toy=100, quick=500, full=10_000))
        assert images.labels is not None
        assert images.test_labels is not None
        labels, query_labels = images.labels.astype(np.int64), images.test_labels.astype(np.int64)
        found.append(Task("CIFAR-10", images.train, labels, images.test, query_labels, candidates=1000))
    return found


def supervised_codes(lab: Lab, task: Task, width: int, seed: int) -> Coded:
    """Return the codes of a classifier trained with nested dropout, or read them from the cache."""
    large = len(task.X) > 5000
    training = Training(
        steps=lab.pick(toy=60, quick=500, full=20_000), batch_size=128, weight_decay=0.05 if large else 0.0, seed=seed
    )
    layers = lab.pick(toy=(32,), quick=(256,), full=(2048, 1024))

    def compute() -> dict[str, NDArray[Any]]:
        torch.manual_seed(seed)
        model = OrderedClassifier(
            task.X.shape[1], width, classes=10, layers=layers, lengths=Beyond(LogUniform(), 3),
            binarize=Binarize(width, signed=True),
        )  # fmt: skip
        train(model, task.X, training, QUIET, labels=task.labels)
        model.eval()
        return {"items": packed_bits(model, task.X), "queries": packed_bits(model, task.queries)}

    sizes = {"task": task.name, "items": len(task.X), "queries": len(task.queries), "width": width, "layers": layers}
    stored = lab.cached("knn", compute, training=training.to_json(), **sizes)
    return Coded(Codes(stored["items"], width), Codes(stored["queries"], width))


def packed_bits(model: OrderedClassifier, X: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the packed codes of items."""
    with torch.inference_mode():
        parts = [model.encode(rows.to(model.mean.device)) > 0 for rows in torch.from_numpy(X.copy()).split(2000)]
    return np.packbits(torch.cat(parts).cpu().numpy(), axis=1)


def unsupervised_codes(task: Task, width: int) -> Coded:
    """Return the codes of a LinearCoder."""
    coder = LinearCoder(width=width).fit(task.X)
    return Coded(coder.encode(task.X), coder.encode(task.queries), coder)


def classify(task: Task, coded: Coded, length: int, count: int | None = None) -> dict[str, Found]:
    """Find neighbors of all queries by each method, with prefixes of this length, among the first `count` items."""
    items, query_codes = coded.items[:count].prefix(length), coded.queries.prefix(length)
    index = Index(width=length) if coded.coder is None else Index(coded.coder, width=length)
    index.add(items)
    index.compact()
    queries = query_codes if coded.coder is None else task.queries
    tree = PrefixTree(items)

    def search(candidates: int) -> Callable[[], list[Labels]]:
        return lambda: list(index.search(queries, K, candidates=candidates).ids)

    answers = {
        "scan": search(len(items)),
        "search": search(min(task.candidates, len(items))),
        "neighborhood": lambda: [hood.ids for hood in tree.neighborhoods(query_codes, size=K)],
    }
    return {name: timed(answer, len(query_codes)) for name, answer in answers.items()}


def timed(answer: Callable[[], list[Labels]], queries: int) -> Found:
    """Return the answer and the best of three times per query; slow answers are timed once."""
    seconds: list[float] = []
    while len(seconds) < 3 and sum(seconds) < 2:
        start = time.perf_counter()
        found = answer()
        seconds.append(time.perf_counter() - start)
    return found, min(seconds) / queries


def accuracy(ids: list[Labels], task: Task) -> float:
    """Return the share of queries whose label has the majority among the items found."""
    votes = [np.bincount(task.labels[own]).argmax() for own in ids]
    return float(np.mean(np.array(votes) == task.query_labels))


def add_findings(lab: Lab, task: Task, results: Results) -> None:
    """Report accuracy and time on one task."""
    lengths, counts = results.lengths, results.counts
    end = {kind: {name: float(each[:, -1].mean()) for name, each in by.items()}
           for kind, by in results.accuracies.items()}  # fmt: skip
    supervised, plain = end["supervised"], end["unsupervised"]
    start = [float(results.accuracies[kind]["scan"][:, 0].mean()) for kind in ("supervised", "unsupervised")]
    lab.finding(
        f"{task.name}: long codes classify better than short ones",
        paper="short codes have diminished quality",
        where="abstract",
        ours=f"{lengths[0]} to {lengths[-1]} bits: {start[0]:.1%} to {supervised['scan']:.1%} supervised, "
        f"{start[1]:.1%} to {plain['scan']:.1%} unsupervised",
        holds=supervised["scan"] > start[0] and plain["scan"] > start[1],
    )
    lab.finding(
        f"{task.name}: index search is as accurate as a scan",
        ours=f"{lengths[-1]} bits, {task.candidates:,} of {len(task.X):,} items scored: {supervised['search']:.1%} "
        f"(scan {supervised['scan']:.1%}) supervised, {plain['search']:.1%} (scan {plain['scan']:.1%}) unsupervised",
        holds=all(by["search"] > by["scan"] - margin(by["scan"], task) for by in end.values()),
    )
    lab.finding(
        f"{task.name}: one neighborhood of the tree is as accurate as a scan",
        ours=f"{supervised['neighborhood']:.1%} supervised, {plain['neighborhood']:.1%} unsupervised; two standard "
        f"errors are {margin(supervised['scan'], task):.1%} and {margin(plain['scan'], task):.1%}",
        holds=all(by["neighborhood"] > by["scan"] - margin(by["scan"], task) for by in end.values()),
    )
    times = {name: each[-1] / each[0] for name, each in results.seconds_by_count.items()}
    lab.finding(
        f"{task.name}: time is logarithmic in the number of items",
        paper="logarithmic in their cardinality",
        ours=f"{counts[-1] / counts[0]:.0f}x the items take {times['neighborhood']:.1f}x the time by the tree, "
        f"{times['search']:.1f}x by search, {times['scan']:.1f}x by a scan",
        holds=is_logarithmic(results.seconds_by_count["neighborhood"], counts, K),
    )
    middle = len(lengths) // 2
    longer = {name: each[-1] / each[middle] for name, each in results.seconds["supervised"].items()}
    lab.finding(
        f"{task.name}: time is independent of the code length",
        ours=f"{lengths[middle]} to {lengths[-1]} bits: {longer['neighborhood']:.1f}x the time by the tree, "
        f"{longer['scan']:.1f}x by a scan",
        holds=longer["neighborhood"] < 1.5,
    )
    error = margin(plain["scan"], task)
    lab.finding(
        f"{task.name}: unsupervised codes are less accurate than supervised ones",
        paper="not competitive with supervised methods",
        ours=f"{plain['scan']:.1%} and {supervised['scan']:.1%}, two standard errors are {error:.1%}; by the pixels "
        f"themselves, without a code, {pixel_accuracy(lab, task):.1%}",
        holds=plain["scan"] < supervised["scan"] - error,
    )


def pixel_accuracy(lab: Lab, task: Task) -> float:
    """Return the accuracy of the nearest items by L2 of pixels: what there is to gain for any code."""
    stored = lab.cached(
        "knn-pixels",
        lambda: {"accuracy": np.array(accuracy(list(exact_neighbors(task.queries, task.X, K)), task))},
        task=task.name, items=len(task.X), queries=len(task.queries),
    )  # fmt: skip
    return float(stored["accuracy"])


def margin(share: float, task: Task) -> float:
    """Return two standard errors of an accuracy on a task's queries."""
    return float(2 * np.sqrt(share * (1 - share) / len(task.query_labels)))


EXPERIMENT = Experiment(
    "knn",
    "section 7",
    "Nearest neighbors on long codes",
    "Ordered retrieval allows k-nearest-neighbors on very long codes in time logarithmic in the number of items. The "
    "purely unsupervised codes are not competitive with supervised methods; combining nested dropout with labels is "
    "future work.",
    run,
)
