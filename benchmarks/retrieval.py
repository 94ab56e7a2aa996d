"""Retrieval of images of the same class by short codes, trained without and with labels.

Two tables, on CIFAR-10 with --data DIR, else on scikit-learn's digits. The training images are the database, the test
images the queries, and items are ranked by Hamming distance.

    precision   without labels: mAP@1000 by class. LSH, sign PCA and ITQ are trained for each length; ours are prefixes
                of one code: "autoencoder" with nested dropout, "invariant" also with the paper's invariance penalty,
                "views" by a convolutional encoder with a contrastive loss on prefixes of two random views of an image
    labels      with labels: accuracy of a k-nearest-neighbor vote in an index, for several seeds

Each model is one run of `nestcode.training.train`; --logs DIR keeps its reports.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from _report import save, show
from _retrieval_codes import PEERS, knn_accuracy, peer_precision, precision_of
from nestcode import data
from nestcode.lengths import Beyond, Lengths, LogUniform
from nestcode.nn import Binarize, ImageEncoder, OrderedAutoencoder, OrderedClassifier, OrderedNetwork, RandomViews
from nestcode.training import Contrastive, Invariance, Run, Training, train
from nestcode.training.runtime.accelerator import pick_device

PARTS = ("labels", "peers", "views", "autoencoder", "invariant")
LENGTHS = (16, 32, 64, 128)
K = 50  # neighbors that vote
SMALL = 8  # bits of the shortest code; prefixes below half of it are not trained


@dataclass(frozen=True)
class Task:
    """A database of images and queries, with their classes."""

    name: str
    shape: tuple[int, int, int]
    base: NDArray[Any]
    labels: NDArray[np.int64]
    queries: NDArray[Any]
    query_labels: NDArray[np.int64]


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    task = read_task(options)
    rows: list[dict[str, Any]] = []
    if "labels" in options.parts:
        rows += label_rows(task, options)
    rows += precision_rows(task, options)
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny networks, as a smoke test")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="write the reports of each run there")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which codes (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the codes with labels (0 1 2)")
    parser.add_argument("--channels", type=int, default=64, help="of the first convolution (64)")
    parser.add_argument("--label-epochs", type=float, default=30, help="(30)")
    parser.add_argument("--label-batch", type=int, default=512, help="(512)")
    parser.add_argument("--label-rate", type=float, default=2e-3, help="learning rate (0.002)")
    parser.add_argument("--view-epochs", type=float, default=60, help="(60)")
    parser.add_argument("--view-batch", type=int, default=1024, help="images per batch, two views of each (1024)")
    parser.add_argument("--view-rate", type=float, default=2e-3, help="learning rate (0.002)")
    parser.add_argument("--temperature", type=float, default=0.3, help="of the contrastive loss (0.3)")
    parser.add_argument("--autoencoder-steps", type=int, default=4000, help="(4000)")
    parser.add_argument("--images", type=int, help="use only the first N training images", metavar="N")
    options = parser.parse_args()
    if options.quick:
        options.channels, options.seeds, options.autoencoder_steps = 8, options.seeds[:1], 5
        options.images = 300
        options.label_epochs = options.view_epochs = 1
        options.label_batch = options.view_batch = 128
    return options


def read_task(options: argparse.Namespace) -> Task:
    """Return CIFAR-10, or the digits."""
    if options.data is None:
        X, y = data.digits()
        first = slice(options.images or 1500)
        return Task("digits", (1, 8, 8), X[first], y[first], X[1500:], y[1500:])
    cifar = data.cifar10(options.data)
    labels, query_labels = cifar.train_labels.astype(np.int64), cifar.test_labels.astype(np.int64)
    first = slice(options.images)
    return Task("CIFAR-10", (3, 32, 32), cifar.train[first].copy(), labels[first], cifar.test.copy(), query_labels)


def label_rows(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the accuracy of the vote by length, for all seeds."""
    lengths = [SMALL, *LENGTHS]
    accuracies = []
    for seed in options.seeds:
        code, seconds = train_and_encode(f"labels, seed {seed}", label_model(task, options, seed), task, options)
        start = time.perf_counter()
        accuracy = [
            knn_accuracy(code["base"][:, :bits], task.labels, code["queries"][:, :bits], task.query_labels, K)
            for bits in lengths
        ]
        accuracies.append(accuracy)
        log(f"  accuracy {dict(zip(lengths, accuracy, strict=True))}, searched in {time.perf_counter() - start:.0f} s")
    table = np.array(accuracies)
    rows = [
        {"table": "labels", "data": task.name, "bits": bits, "accuracy": float(column.mean()),
         "spread": float(np.ptp(column)), **{f"seed {s}": float(a) for s, a in zip(options.seeds, column, strict=True)}}
        for bits, column in zip(lengths, table.T, strict=True)
    ]  # fmt: skip
    show(f"Accuracy of the {K}-nearest-neighbor vote, {task.name}", rows, f"Training takes {seconds:.0f} s per seed.")
    return rows


def precision_rows(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the mAP@1000 by length of all codes trained without labels."""
    device = pick_device("auto")
    labels, query_labels = (torch.from_numpy(part).to(device) for part in (task.labels, task.query_labels))
    rows: list[dict[str, Any]] = []

    def add(name: str, precision: dict[int, float], seconds: float) -> None:
        rows.append({"table": "precision", "data": task.name, "code": name, "seconds": seconds,
                     **{f"{bits} bits": precision.get(bits, "–") for bits in LENGTHS}})  # fmt: skip
        log(f"{name}: {precision}, {seconds:.0f} s")

    if "peers" in options.parts:
        X, queries = (torch.from_numpy(part).to(device).float() / 255 for part in (task.base, task.queries))
        lengths = [bits for bits in LENGTHS if bits <= X.shape[1]]
        for name in PEERS:
            start = time.perf_counter()
            add(name, peer_precision(name, X, labels, queries, query_labels, lengths), time.perf_counter() - start)
    for name in (part for part in ("autoencoder", "invariant", "views") if part in options.parts):
        model = view_model(task, options) if name == "views" else paper_model(task, options, name == "invariant")
        code, seconds = train_and_encode(name, model, task, options)
        add(f"ours, {name}", {bits: precision_of(code, labels, query_labels, bits) for bits in LENGTHS}, seconds)
    if rows:
        show(f"mAP@1000, {task.name}", rows, "Ours are prefixes of one code.")
    return rows


ModelAndTraining = tuple[OrderedNetwork, Training]


def label_model(task: Task, options: argparse.Namespace, seed: int) -> ModelAndTraining:
    """Return a convolutional classifier with ordered bits."""
    torch.manual_seed(seed)
    small = task.shape[1] < 32
    encoder = nn.Sequential(
        RandomViews(task.shape, crop=1 if small else 4, flip=not small),
        ImageEncoder(task.shape, LENGTHS[-1], options.channels),
    )
    model = OrderedClassifier(
        task.base.shape[1],
        LENGTHS[-1],
        int(task.labels.max()) + 1,
        lengths=lengths(),
        binarize=Binarize(LENGTHS[-1], signed=True),
        encoder=encoder,
        smoothing=0.1,
    )
    training = Training(
        epochs=options.label_epochs,
        batch_size=options.label_batch,
        learning_rate=options.label_rate,
        weight_decay=0.05,
        holdout=0.02,
        seed=seed,
    )
    return model, training


def view_model(task: Task, options: argparse.Namespace) -> ModelAndTraining:
    """Return the same encoder with a contrastive loss on views; the decoder is behind a stop-gradient."""
    torch.manual_seed(0)
    colors = {"color": 0.5, "gray": 0.2} if task.shape[0] == 3 else {}
    views = RandomViews(task.shape, crop=0, flip=task.shape[1] >= 32, zoom=0.25, **colors)
    model = OrderedAutoencoder(
        task.base.shape[1],
        LENGTHS[-1],
        lengths=lengths(),
        binarize=Binarize(LENGTHS[-1], signed=True),
        corruption=0.0,
        spread="common",
        encoder=nn.Sequential(views, ImageEncoder(task.shape, LENGTHS[-1], options.channels)),
        decoder=nn.Linear(LENGTHS[-1], task.base.shape[1]),
    )
    training = Training(
        epochs=options.view_epochs,
        batch_size=options.view_batch,
        learning_rate=options.view_rate,
        weight_decay=0.01,
        contrastive=Contrastive(1.0, options.temperature),
        reconstruction=0.0,
        holdout=0.02,
        compile=False,  # PyTorch 2.11's compiler fails on the color jitter
    )
    return model, training


def paper_model(task: Task, options: argparse.Namespace, invariant: bool) -> ModelAndTraining:
    """Return the paper's retrieval network with straight-through bits, with or without its invariance penalty."""
    torch.manual_seed(0)
    model = OrderedAutoencoder(
        task.base.shape[1],
        LENGTHS[-1],
        (64,) if options.quick else (2048, 1024),
        lengths=lengths(),
        binarize=Binarize(LENGTHS[-1], signed=True),
        spread="common",
    )
    training = Training(
        steps=options.autoencoder_steps,
        batch_size=128 if options.quick else 1000,
        invariance=Invariance(0.1 if invariant else 0.0),
    )
    return model, training


def lengths() -> Lengths:
    """Return lengths that are equally likely in every octave from half the shortest code on."""
    return Beyond(LogUniform(), SMALL // 2 - 1)


def train_and_encode(
    name: str, made: ModelAndTraining, task: Task, options: argparse.Namespace
) -> tuple[dict[str, NDArray[np.bool_]], float]:
    """Return the codes of the database and of the queries, and the seconds that training took."""
    model, training = made
    torch.compiler.reset()  # otherwise shapes that differ from the previous model's become dynamic
    path = None if options.logs is None else options.logs / f"{name.replace(', ', '-').replace(' ', '-')}.jsonl"
    log(f"{name}: {training.total_steps(len(task.base))} steps of {training.batch_size}")
    start = time.perf_counter()
    labels = None if model.classes is None else task.labels
    reports = train(model, task.base, training, Run(log=path, report_every=200), labels=labels)
    seconds = time.perf_counter() - start
    last = reports[-1]
    log(
        f"  {seconds:.0f} s, {last['examples_per_second']:,} images/s, loss {last['loss']:.3f}, errors {last['errors']}"
    )
    return {"base": bits_of(model, task.base), "queries": bits_of(model, task.queries)}, seconds


def bits_of(model: OrderedNetwork, X: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the codes of images as booleans, (n, width)."""
    parts: list[Tensor] = []
    with torch.inference_mode():
        for first in range(0, len(X), 2000):
            rows = torch.from_numpy(X[first : first + 2000]).to(model.mean.device)
            parts.append((model.encode(rows) > 0).cpu())
    bits: NDArray[np.bool_] = torch.cat(parts).numpy()
    return bits


def log(text: str) -> None:
    """Print progress to the standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
