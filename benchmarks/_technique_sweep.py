"""Unit sweeping: with Geometric(0.9), unit 100 is kept once in 34,000 samples."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from _technique import errors, fit_network, patches
from nestcode.arrays import Floats
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.report import COLORS
from nestcode.training import Sweep, Training

SIDE = 12


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Train a tied binary network of 100 units on color patches with and without sweeping."""
    X, test = patches(quick, SIDE)
    width = 10 if quick else 100
    lengths = [length for length in (1, 2, 5, 10, 20, 40, 60, 80, 100) if length <= width]
    rows, networks = [], {}
    for name, sweep in (("without sweeping", None), ("with sweeping", Sweep(after=1 / 3, blocks=100))):
        training = Training(steps=6 if quick else 3000, batch_size=500, sweep=sweep, schedule="constant")
        network = fit_network(
            X,
            training,
            width=width,
            lengths=Geometric(0.9),
            binarize=Binarize(width, signed=True),
            corruption=0.0,
            dropout=0.0,
            spread="common",
        )
        found = errors(network, test, lengths)
        rows.append({"": name, **{f"at {k}": float(e) for k, e in zip(lengths, found, strict=True)}})
        networks[name] = network, found
    return rows, draw(networks, lengths)


def draw(networks: dict[str, tuple[OrderedAutoencoder, Any]], lengths: list[int]) -> Figure:
    """Return a figure of the decoder's filters and the MSE by length."""
    figure = Figure(figsize=(10.5, 3.8))
    left, middle, right = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1, 1, 1.15]})
    for axes, (name, (network, _)) in zip((left, middle), networks.items(), strict=True):
        axes.imshow(mosaic(network.encoder.get_parameter("blocks.0.columns").detach().numpy().T))
        axes.set_title(f"filters {name}", fontsize=10)
        axes.axis("off")
    for (name, (_, found)), color, style in zip(networks.items(), COLORS, ("--", "-"), strict=False):
        right.plot(lengths, found, style, color=color, linewidth=2, label=name)
    right.set(xlabel="length: bits kept", ylabel="MSE", yscale="log")
    right.grid(alpha=0.3, which="both")
    right.legend(frameon=False)
    figure.tight_layout()
    return figure


def mosaic(filters: Floats) -> Floats:
    """Return an image of the filters in rows of ten, each scaled to the full range."""
    side = SIDE + 1
    count = len(filters)
    sheet = np.ones((side * -(-count // 10), side * 10, 3), dtype=np.float32)
    for i, one in enumerate(filters):
        shown = 0.5 + 0.5 * one.reshape(SIDE, SIDE, 3) / max(np.abs(one).max(), 1e-9)
        row, column = divmod(i, 10)
        sheet[row * side : row * side + SIDE, column * side : column * side + SIDE] = shown
    return sheet
