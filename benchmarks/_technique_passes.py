"""Unit sweeping by how gradients reach the encoder: the paper's pass, straight-through, rectified units."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from _technique import curves, errors, fit_network, patches
from nestcode.lengths import Geometric
from nestcode.nn import Binarize
from nestcode.training import Sweep, Training

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Pass:
    """A kind of units, its training, and the share of the steps before the first unit is frozen."""

    name: str
    training: Training
    after: float
    tied: bool = False
    bits: dict[str, Any] | None = None


def passes(quick: bool) -> list[Pass]:
    """Return the recipes."""
    paper = Training(steps=4 if quick else 110, batch_size=250, searches=2, optimizer="conjugate", compile=False)
    ours = Training(steps=4 if quick else 800, batch_size=128, learning_rate=3e-3, schedule="constant", compile=False)
    return [
        Pass("the paper's pass: tied, no gradient", paper, 1 / 11, tied=True, bits={"gradient": "none"}),
        Pass("straight-through", ours, 1 / 4, bits={"signed": True}),
        Pass("rectified units", ours, 1 / 4),
    ]


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Train networks of 60 units on patches of 8 x 8 pixels, each with and without sweeping every unit."""
    X, test = patches(quick, 8)
    X, test, width = X[:4000], test[:1000], 10 if quick else 60
    lengths = [length for length in (1, 5, 10, 20, 30, 45, 60) if length <= width]
    rows, found = [], {}
    for kind in passes(quick):
        for sweep in (None, Sweep(after=kind.after, blocks=width)):
            runs = [
                errors(
                    fit_network(
                        X,
                        kind.training.but(sweep=sweep, seed=seed),
                        seed,
                        width=width,
                        tied=kind.tied,
                        lengths=Geometric(0.9),
                        binarize=None if kind.bits is None else Binarize(width, **kind.bits),
                        corruption=0.1 if kind.tied else 0.0,
                        dropout=0.0,
                        spread="deviation" if kind.tied else "common",
                    ),
                    test,
                    lengths,
                )
                for seed in SEEDS[: 1 if quick else None]
            ]
            name = f"{kind.name}, {'unswept' if sweep is None else 'swept'}"
            mean = np.mean(runs, axis=0)
            rows.append({"": name, **{f"at {k}": float(e) for k, e in zip(lengths, mean, strict=True)}})
            found[name] = lengths, mean
    return rows, curves(found, "test MSE, patches")
