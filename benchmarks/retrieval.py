"""Images found by their class from short codes, learnt from pixels alone and with labels.

Two tables of CIFAR-10 with --data DIR, else of scikit-learn's digits. The database are the training images, queries the
test images, and distances those of Hamming.

    precision   without labels: mean average precision of the 1,000 nearest, by class. LSH, signs of principal
                components and ITQ are trained for each length; ours are prefixes of one code:
                "autoencoder" with nested dropout, "invariant" also with the paper's invariance penalty, "views" by a
                convolutional encoder that asks prefixes of two random views of an image to agree
    labels      with labels: how often most of the nearest in an index are of the query's class, for some seeds

Each model is one run of `nestcode.training.train`; --logs DIR keeps what it reports on the way.
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
from nestcode.nn import Binarize, ImageEncoder, OrderedAutoencoder, OrderedClassifier, RandomViews
from nestcode.training import Run, Training, train
from nestcode.training.runtime.accelerator import pick_device

PARTS = ("labels", "peers", "views", "autoencoder", "invariant")
LENGTHS = (16, 32, 64, 128)
K = 50  # neighbours that vote
SMALL = 8  # bits; shorter prefixes than half of it are not asked for, and take no part in training


@dataclass(frozen=True)
class Task:
    """Images with their classes, to search in and to ask for."""

    name: str
    shape: tuple[int, int, int]
    base: NDArray[Any]
    labels: NDArray[np.int64]
    queries: NDArray[Any]
    asked: NDArray[np.int64]


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
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny networks, to see that it runs")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the reports of each run there")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which codes (all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the codes with labels (0 1 2)")
    parser.add_argument("--channels", type=int, default=64, help="of the first convolution (64)")
    parser.add_argument("--label-epochs", type=float, default=30, help="(30)")
    parser.add_argument("--label-batch", type=int, default=512, help="(512)")
    parser.add_argument("--label-rate", type=float, default=2e-3, help="learning rate (0.002)")
    parser.add_argument("--view-epochs", type=float, default=60, help="(60)")
    parser.add_argument("--view-batch", type=int, default=1024, help="images of a batch, two views of each (1024)")
    parser.add_argument("--view-rate", type=float, default=2e-3, help="learning rate (0.002)")
    parser.add_argument("--temperature", type=float, default=0.3, help="of similarities of views (0.3)")
    parser.add_argument("--autoencoder-steps", type=int, default=4000, help="(4000)")
    parser.add_argument("--images", type=int, help="only so many training images")
    options = parser.parse_args()
    if options.quick:
        options.channels, options.seeds, options.autoencoder_steps = 8, options.seeds[:1], 50
        options.label_epochs = options.view_epochs = 1
        options.label_batch = options.view_batch = 128
    return options


def read_task(options: argparse.Namespace) -> Task:
    """CIFAR-10, or digits."""
    if options.data is None:
        X, y = data.digits()
        return Task("digits", (1, 8, 8), X[:1500], y[:1500], X[1500:], y[1500:])
    cifar = data.cifar10(options.data)
    labels, asked = cifar.train_labels.astype(np.int64), cifar.test_labels.astype(np.int64)
    some = slice(options.images)
    return Task("CIFAR-10", (3, 32, 32), cifar.train[some].copy(), labels[some], cifar.test.copy(), asked)


def label_rows(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Accuracy of nearest neighbours by length, of all seeds."""
    lengths = [SMALL, *LENGTHS]
    found = []
    for seed in options.seeds:
        code, seconds = coded(f"labels, seed {seed}", label_model(task, options, seed), task, options)
        start = time.perf_counter()
        accuracy = [
            knn_accuracy(code["base"][:, :bits], task.labels, code["queries"][:, :bits], task.asked, K)
            for bits in lengths
        ]
        found.append(accuracy)
        say(f"  accuracy {dict(zip(lengths, accuracy, strict=True))}, searched in {time.perf_counter() - start:.0f} s")
    table = np.array(found)
    rows = [
        {"table": "labels", "data": task.name, "bits": bits, "accuracy": float(column.mean()),
         "spread": float(np.ptp(column)), **{f"seed {s}": float(a) for s, a in zip(options.seeds, column, strict=True)}}
        for bits, column in zip(lengths, table.T, strict=True)
    ]  # fmt: skip
    show(f"Classes of the {K} nearest, {task.name}", rows, f"Codes learnt with labels, {seconds:.0f} s a seed.")
    return rows


def precision_rows(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Mean average precision by length, of all codes without labels."""
    device = pick_device("auto")
    labels, asked = (torch.from_numpy(part).to(device) for part in (task.labels, task.asked))
    rows: list[dict[str, Any]] = []

    def add(name: str, precision: dict[int, float], seconds: float) -> None:
        rows.append({"table": "precision", "data": task.name, "code": name, "seconds": seconds,
                     **{f"{bits} bits": precision.get(bits, "–") for bits in LENGTHS}})  # fmt: skip
        say(f"{name}: {precision}, {seconds:.0f} s")

    if "peers" in options.parts:
        X, queries = (torch.from_numpy(part).to(device).float() / 255 for part in (task.base, task.queries))
        lengths = [bits for bits in LENGTHS if bits <= X.shape[1]]
        for name in PEERS:
            start = time.perf_counter()
            add(name, peer_precision(name, X, labels, queries, asked, lengths), time.perf_counter() - start)
    for name in (part for part in ("autoencoder", "invariant", "views") if part in options.parts):
        model = view_model(task, options) if name == "views" else plain_model(task, options, name == "invariant")
        code, seconds = coded(name, model, task, options)
        add(f"ours, {name}", {bits: precision_of(code, labels, asked, bits) for bits in LENGTHS}, seconds)
    if rows:
        show(f"Mean average precision at 1,000, {task.name}", rows, "Ours are prefixes of one code.")
    return rows


Made = tuple[OrderedAutoencoder, Training]


def label_model(task: Task, options: argparse.Namespace, seed: int) -> Made:
    """A convolutional classifier whose bits are ordered."""
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


def view_model(task: Task, options: argparse.Namespace) -> Made:
    """Return the same encoder, trained by views only; the decoder is behind a stop-gradient."""
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
        contrastive=1.0,
        temperature=options.temperature,
        reconstruction=0.0,
        holdout=0.02,
        compile=False,  # PyTorch 2.11's compiler fails on the colours of views
    )
    return model, training


def plain_model(task: Task, options: argparse.Namespace, invariant: bool) -> Made:
    """The paper's retrieval network with bits that learn, with its invariance penalty or without."""
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
        steps=options.autoencoder_steps, batch_size=128 if options.quick else 1000, invariance=0.1 if invariant else 0.0
    )
    return model, training


def lengths() -> Lengths:
    """Equally often in every octave from half the shortest code that is asked for."""
    return Beyond(LogUniform(), SMALL // 2 - 1)


def coded(name: str, made: Made, task: Task, options: argparse.Namespace) -> tuple[dict[str, NDArray[np.bool_]], float]:
    """Codes of the database and of the queries, and how long training took."""
    model, training = made
    torch.compiler.reset()  # else the sizes of the model before would count as variable
    log = None if options.logs is None else options.logs / f"{name.replace(', ', '-').replace(' ', '-')}.jsonl"
    say(f"{name}: {training.total_steps(len(task.base))} steps of {training.batch_size}")
    start = time.perf_counter()
    labels = task.labels if isinstance(model, OrderedClassifier) else None
    reports = train(model, task.base, training, Run(log=log, report_every=200), labels=labels)
    seconds = time.perf_counter() - start
    last = reports[-1]
    say(
        f"  {seconds:.0f} s, {last['examples_per_second']:,} images/s, loss {last['loss']:.3f}, errors {last['errors']}"
    )
    return {"base": bits_of(model, task.base), "queries": bits_of(model, task.queries)}, seconds


def bits_of(model: OrderedAutoencoder, X: NDArray[Any]) -> NDArray[np.bool_]:
    """Codes as booleans, (n, width)."""
    parts: list[Tensor] = []
    with torch.inference_mode():
        for first in range(0, len(X), 2000):
            rows = torch.from_numpy(X[first : first + 2000]).to(model.mean.device)
            parts.append((model.encode(rows) > 0).cpu())
    bits: NDArray[np.bool_] = torch.cat(parts).numpy()
    return bits


def say(text: str) -> None:
    """Tell at once how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
