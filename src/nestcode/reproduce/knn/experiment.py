"""Section 7 of the paper: nearest neighbours on long codes tell classes, in logarithmic time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from nestcode import Codes, Index, LinearCoder, PrefixTree
from nestcode.data import digits
from nestcode.lengths import Beyond, LogUniform
from nestcode.nn import Binarize, OrderedClassifier
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.networks import QUIET
from nestcode.training import Training, train

Labels = NDArray[np.int64]
Found = tuple[list[Labels], float]  # the ids found for each query, and the seconds of a query

K = 10  # neighbours that vote
METHODS = {"scan": ("#000000", "s"), "search": ("#0072B2", "o"), "neighborhood": ("#D55E00", "^")}
KINDS = {"with labels": "-", "without labels": "--"}


@dataclass(frozen=True)
class Task:
    """Items with classes, and queries to classify."""

    name: str
    X: NDArray[Any]
    labels: Labels
    queries: NDArray[Any]
    asked: Labels
    candidates: int  # items that a search looks at


@dataclass(frozen=True)
class Coded:
    """Items and queries as codes; with a coder, queries are compared with what codes decode to."""

    items: Codes
    queries: Codes
    coder: LinearCoder | None = None


def tasks(lab: Lab) -> list[Task]:
    """Digits, and CIFAR-10 where it is given."""
    X, y = digits()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    found = [Task("digits", X[300:], y[300:], X[:300], y[:300], candidates=150)]
    if lab.data is not None:
        few = lab.pick(toy=100, quick=500, full=10_000)
        images = lab.images(test=few)
        assert images.labels is not None
        assert images.test_labels is not None
        labels, asked = images.labels.astype(np.int64), images.test_labels.astype(np.int64)
        found.append(Task("CIFAR-10", images.train, labels, images.test, asked, candidates=1000))
    return found


def with_labels(lab: Lab, task: Task, width: int, seed: int) -> Coded:
    """Codes of a classifier, or what was kept of it."""
    large = len(task.X) > 5000
    training = Training(
        steps=lab.pick(toy=60, quick=500, full=20_000), batch_size=128, weight_decay=0.05 if large else 0.0, seed=seed
    )
    layers = lab.pick(toy=(32,), quick=(256,), full=(2048, 1024))

    def make() -> dict[str, NDArray[Any]]:
        torch.manual_seed(seed)
        model = OrderedClassifier(
            task.X.shape[1], width, classes=10, layers=layers, lengths=Beyond(LogUniform(), 3),
            binarize=Binarize(width, signed=True),
        )  # fmt: skip
        train(model, task.X, training, QUIET, labels=task.labels)
        model.eval()
        return {"items": packed_bits(model, task.X), "queries": packed_bits(model, task.queries)}

    about = {"task": task.name, "items": len(task.X), "queries": len(task.queries), "width": width, "layers": layers}
    kept = lab.cached("knn", make, training=training.to_json(), **about)
    return Coded(Codes(kept["items"], width), Codes(kept["queries"], width))


def packed_bits(model: OrderedClassifier, X: NDArray[Any]) -> NDArray[np.uint8]:
    """The codes of items, packed."""
    with torch.inference_mode():
        parts = [model.encode(rows.to(model.mean.device)) > 0 for rows in torch.from_numpy(X.copy()).split(2000)]
    return np.packbits(torch.cat(parts).cpu().numpy(), axis=1)


def without_labels(task: Task, width: int) -> Coded:
    """Codes of principal directions."""
    coder = LinearCoder(width=width).fit(task.X)
    return Coded(coder.encode(task.X), coder.encode(task.queries), coder)


def accuracy(ids: list[Labels], task: Task) -> float:
    """How often most of the items found are of the query's class."""
    votes = [np.bincount(task.labels[own]).argmax() for own in ids]
    return float(np.mean(np.array(votes) == task.asked))


def timed(answer: Callable[[], list[Labels]], queries: int) -> Found:
    """What it finds, and the best of three times; once is enough for what takes seconds."""
    seconds: list[float] = []
    while len(seconds) < 3 and sum(seconds) < 2:
        start = time.perf_counter()
        found = answer()
        seconds.append(time.perf_counter() - start)
    return found, min(seconds) / queries


def classify(task: Task, coded: Coded, length: int, count: int | None = None) -> dict[str, Found]:
    """Neighbours of all queries by prefixes of so many bits, among the first `count` items, by every method."""
    items, asked = coded.items[:count].prefix(length), coded.queries.prefix(length)
    index = Index(width=length) if coded.coder is None else Index(coded.coder, width=length)
    index.add(items)
    index.compact()
    queries = asked if coded.coder is None else task.queries
    tree = PrefixTree(items)

    def search(candidates: int) -> Callable[[], list[Labels]]:
        return lambda: list(index.search(queries, K, candidates=candidates).ids)

    answers = {
        "scan": search(len(items)),
        "search": search(min(task.candidates, len(items))),
        "neighborhood": lambda: [hood.ids for hood in tree.neighborhoods(asked, size=K)],
    }
    return {name: timed(answer, len(asked)) for name, answer in answers.items()}


def run(lab: Lab) -> None:
    """Classify by codes of many lengths, and among more and more items."""
    for task in tasks(lab):
        width = lab.pick(toy=32, quick=256 if task.name == "digits" else 512, full=1024)
        lengths = [2**power for power in range(3, width.bit_length())]
        labelled = [with_labels(lab, task, width, seed) for seed in lab.progress(lab.seeds, f"labels of {task.name}")]
        coded = {"with labels": labelled, "without labels": [without_labels(task, width)]}
        right: dict[str, dict[str, NDArray[np.float64]]] = {}
        seconds: dict[str, dict[str, list[float]]] = {}
        for kind, runs in coded.items():
            found = [[classify(task, one, length) for length in lengths]
                     for one in lab.progress(runs, f"{task.name} {kind}")]  # fmt: skip
            right[kind] = {name: np.array([[accuracy(by[name][0], task) for by in each] for each in found])
                           for name in METHODS}  # fmt: skip
            seconds[kind] = {name: [by[name][1] for by in found[0]] for name in METHODS}
        counts = [len(task.X) // 16, len(task.X) // 4, len(task.X)]
        by_count = [classify(task, labelled[0], width, count) for count in counts]
        growth = {name: [by[name][1] for by in by_count] for name in METHODS}
        say(lab, task, lengths, right, seconds, counts, growth)
        lab.figure(
            f"knn-{task.name.lower()}",
            figure(task, lengths, right, seconds, counts, growth),
            f"{task.name}: votes of {K} neighbours, {len(task.asked):,} queries among {len(task.X):,} items. Left: "
            "accuracy, a range over seeds where training is random. Middle and right: time of a query on one core, "
            "right for codes learnt with labels at full length.",
        )
        lab.measured[task.name] = {
            "lengths": lengths,
            "accuracy": {kind: {name: each.tolist() for name, each in by.items()} for kind, by in right.items()},
            "seconds": seconds, "counts": counts, "seconds by count": growth,
        }  # fmt: skip
    if lab.data is None:
        lab.departure("Without --data only digits are classified.")
    lab.departure("The paper has no experiment on this; coders and networks are chosen here.")


def say(
    lab: Lab, task: Task, lengths: list[int], right: dict[str, dict[str, NDArray[np.float64]]],
    seconds: dict[str, dict[str, list[float]]], counts: list[int], growth: dict[str, list[float]],
) -> None:  # fmt: skip
    """What was found on one task."""
    end = {kind: {name: float(each[:, -1].mean()) for name, each in by.items()} for kind, by in right.items()}
    labelled, plain = end["with labels"], end["without labels"]
    start = float(right["with labels"]["scan"][:, 0].mean()), float(right["without labels"]["scan"][:, 0].mean())
    lab.finding(
        f"{task.name}: long codes classify better than short ones",
        paper="short codes have diminished quality",
        ours=f"{lengths[0]} to {lengths[-1]} bits: {start[0]:.1%} to {labelled['scan']:.1%} with labels, "
        f"{start[1]:.1%} to {plain['scan']:.1%} without",
        holds=labelled["scan"] > start[0] and plain["scan"] > start[1],
    )
    lab.finding(
        f"{task.name}: neighbours found without a scan classify as well, within 2 points",
        paper="kNN on very long codes",
        ours=f"{lengths[-1]} bits, {task.candidates:,} of {len(task.X):,} items compared: {labelled['search']:.1%} "
        f"(scan {labelled['scan']:.1%}) with labels, {plain['search']:.1%} (scan {plain['scan']:.1%}) without",
        holds=labelled["search"] > labelled["scan"] - 0.02 and plain["search"] > plain["scan"] - 0.02,
    )
    lab.finding(
        f"{task.name}: the one neighborhood that the tree gives classifies as well, within 2 points",
        paper="ordered retrieval allows kNN",
        ours=f"{labelled['neighborhood']:.1%} with labels, {plain['neighborhood']:.1%} without",
        holds=labelled["neighborhood"] > labelled["scan"] - 0.02 and plain["neighborhood"] > plain["scan"] - 0.02,
    )
    times = {name: each[-1] / each[0] for name, each in growth.items()}
    lab.finding(
        f"{task.name}: time is logarithmic in the number of items",
        paper="logarithmic in their cardinality",
        ours=f"{counts[-1] / counts[0]:.0f}x the items take {times['neighborhood']:.1f}x the time by the tree, "
        f"{times['search']:.1f}x by search, {times['scan']:.1f}x by a scan",
        holds=times["neighborhood"] < 0.5 * times["scan"],
    )
    middle = len(lengths) // 2
    longer = {name: each[-1] / each[middle] for name, each in seconds["with labels"].items()}
    lab.finding(
        f"{task.name}: time is independent of the code's length",
        paper="independent",
        ours=f"{lengths[middle]} to {lengths[-1]} bits: {longer['neighborhood']:.1f}x the time by the tree, "
        f"{longer['scan']:.1f}x by a scan",
        holds=longer["neighborhood"] < 1.5,
    )
    margin = 2 * np.sqrt(plain["scan"] * (1 - plain["scan"]) / len(task.asked))  # two standard errors
    lab.finding(
        f"{task.name}: codes without labels fall short of supervised ones",
        paper="not competitive with supervised methods",
        ours=f"{plain['scan']:.1%} against {labelled['scan']:.1%}, {margin:.1%} being chance",
        holds=plain["scan"] < labelled["scan"] - margin,
    )


def figure(
    task: Task, lengths: list[int], right: dict[str, dict[str, NDArray[np.float64]]],
    seconds: dict[str, dict[str, list[float]]], counts: list[int], growth: dict[str, list[float]],
) -> Figure:  # fmt: skip
    """Accuracy and time by length, time by number of items."""
    made = Figure(figsize=(12.5, 4.2), layout="constrained")
    left, middle, last = made.subplots(1, 3)
    for kind, style in KINDS.items():
        for name, (color, marker) in METHODS.items():
            look = {"color": color, "marker": marker, "linestyle": style, "markersize": 5}
            each = right[kind][name]
            left.plot(lengths, each.mean(axis=0), label=f"{name}, {kind}", **look)
            left.fill_between(lengths, each.min(axis=0), each.max(axis=0), color=color, alpha=0.15, linewidth=0)
            middle.plot(lengths, np.array(seconds[kind][name]) * 1e6, **look)
            if kind == "with labels":
                last.plot(counts, np.array(growth[name]) * 1e6, **look)
    left.set(title=f"{task.name}: votes of {K} neighbours", xlabel="code length (bits)", ylabel="share right")
    middle.set(title="time by length", xlabel="code length (bits)", ylabel="µs a query", yscale="log")
    last.set(title="time by number of items", xlabel="items", ylabel="µs a query", yscale="log")
    _powers(left, lengths)
    _powers(middle, lengths)
    _powers(last, counts)
    for axes in (middle, last):
        low, high = np.log10(axes.get_ylim())
        axes.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))
    made.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return made


def _powers(axes: Axes, ticks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)


EXPERIMENT = Experiment(
    "knn",
    "section 7",
    "Nearest neighbours on long codes",
    "Ordered retrieval allows k-nearest-neighbours on very long codes in time logarithmic in the number of items. The "
    "purely unsupervised codes are not competitive with supervised methods; combining nested dropout with labels is "
    "future work.",
    run,
)
