"""Unit sweeping at the paper's size, by the gradient that bits pass: test MSE by length, with and without sweeping.

    nestcode data cifar10 --to DIR
    python benchmarks/sweeping.py --data DIR           # figure 1's network, three seeds: minutes on a GPU
    python benchmarks/sweeping.py --data DIR figure5   # figure 5's network, one seed

The first half of the training images of CIFAR-10 train, the first 1,500 test images measure. `techniques.py passes` has
small networks.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from _report import save, show
from nestcode import data
from nestcode.arrays import Floats
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder, RandomViews
from nestcode.training import Run, Sweep, Training, errors_by_length, train

TEST_IMAGES = 1500


@dataclass(frozen=True)
class Recipe:
    """A network and its training, without sweeping.

    Args:
        name: of the gradient that its units pass.
        width: its units.
        model: arguments of `OrderedAutoencoder`.
        training: settings.
        sweep: how it is swept.
        lengths: at which errors are measured.
        views: augmentation.

    """

    name: str
    width: int
    model: dict[str, Any]
    training: Training
    sweep: Sweep
    lengths: tuple[int, ...]
    views: RandomViews | None = None


def main() -> None:
    """Train, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=("figure1", "figure5"), default="figure1")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where CIFAR-10 is")
    parser.add_argument("--seeds", type=int, help="how many (3 of figure 1, 1 of figure 5)")
    parser.add_argument("--quick", action="store_true", help="tiny networks of digits: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.data is None and not options.quick:
        parser.error("give --data DIR, where `nestcode data cifar10 --to DIR` put CIFAR-10")
    images, test = digits() if options.quick else cifar10(options.data)
    recipes = figure1(quick=options.quick) if options.network == "figure1" else figure5(quick=options.quick)
    seeds = options.seeds or (3 if options.network == "figure1" and not options.quick else 1)
    rows = [row for recipe in recipes for row in measure(recipe, images, test, seeds)]
    show(f"Sweeping: {options.network}", rows, f"MSE of {len(test):,} test images, mean over {seeds} seed(s).")
    save(options.json, rows, ["nestcode", "torch"])


def figure1(*, quick: bool) -> Iterator[Recipe]:
    """Yield the network of figure 1 by each gradient: linear, 100 bits."""
    width, report = (8, (2, 8)) if quick else (100, (1, 5, 10, 25, 50, 75, 100))
    paper = {"tied": True, "corruption": 0.1, "dropout": 0.2, "spread": "deviation", "lengths": Geometric(0.9)}
    conjugate = Training(
        steps=4 if quick else 120,
        batch_size=10_000,
        searches=2,
        optimizer="conjugate",
        precision="float32",
        compile=False,
    )
    unsigned = Binarize(width, gradient="none")
    yield Recipe(
        "the paper's: no gradient, tied, conjugate gradients",
        width,
        {**paper, "binarize": unsigned},
        conjugate,
        Sweep(after=1 / 6, blocks=width),
        report,
    )
    ours = {"corruption": 0.0, "dropout": 0.0, "spread": "common", "lengths": Geometric(0.9)}
    adam = Training(steps=10 if quick else 5000, batch_size=512, learning_rate=1e-3, schedule="constant", compile=False)
    for name, bits in (("bits of 0 and 1", Binarize(width)), ("bits of -1 and 1", Binarize(width, signed=True))):
        sweep = Sweep(after=0.2, blocks=width)
        yield Recipe(f"straight-through, {name}", width, {**ours, "binarize": bits}, adam, sweep, report)


def figure5(*, quick: bool) -> Iterator[Recipe]:
    """Yield the network of figure 5, of bits and of real values: linear, 1,024 units."""
    width, report = (8, (2, 8)) if quick else (1024, (1, 4, 16, 64, 128, 256, 512, 1024))
    training = Training(steps=10 if quick else 1200, batch_size=10_000, learning_rate=1e-3, holdout=0.0)
    model = {
        "tied": True,
        "corruption": 0.1,
        "dropout": 0.2,
        "lengths": Geometric(1 - 5 / width),
        "spread": "deviation",
    }
    views = None if quick else RandomViews((3, 32, 32), crop=0)
    for name, bits in (("bits", Binarize(width, gradient="none")), ("real values", None)):
        sweep = Sweep(after=0.5, blocks=min(32, width))
        yield Recipe(name, width, {**model, "binarize": bits}, training, sweep, report, views)


def measure(recipe: Recipe, images: Floats, test: Floats, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the mean errors of a recipe without sweeping and with it."""
    for name, sweep in (("no", None), ("yes", recipe.sweep)):
        found = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            network = OrderedAutoencoder(images.shape[1], recipe.width, **recipe.model)
            training = recipe.training.but(sweep=sweep, seed=seed)
            train(network, images, training, Run(progress=False, report_every=10**9), augment=recipe.views)
            rows = torch.from_numpy(test).to(network.mean.device)
            found.append(errors_by_length(network.eval(), rows, list(recipe.lengths)))
        means = np.mean(found, axis=0)
        columns = {f"at {length}": float(error) for length, error in zip(recipe.lengths, means, strict=True)}
        yield {"units": recipe.name, "swept": name, **columns}


def cifar10(folder: Path) -> tuple[Floats, Floats]:
    """Return half of the training images and some test images, (n, 3072), in [0, 1]."""
    found = data.cifar10(folder)
    return scaled(found.train[: len(found.train) // 2]), scaled(found.test[:TEST_IMAGES])


def digits() -> tuple[Floats, Floats]:
    """Return training and test digits."""
    rows = data.digits()[0].astype(np.float32)
    return rows[300:], rows[:300]


def scaled(pixels: NDArray[np.uint8]) -> Floats:
    """Return pixels as floats in [0, 1]."""
    return np.divide(pixels, 255, dtype=np.float32)


if __name__ == "__main__":
    main()
