"""Figures that several chapters draw."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def photograph_figure(
    photo: NDArray[np.uint8], side: int, rows: Sequence[dict[str, Callable[[Floats], Floats]]]
) -> Figure:
    """A photograph after each of several treatments of its patches, (patches, side * side * 3) in [0, 1]."""
    height, width = (size // side for size in photo.shape[:2])
    tiles = photo.reshape(height, side, width, side, 3).swapaxes(1, 2)
    X = tiles.reshape(height * width, -1).astype(np.float32) / np.float32(255)
    figure = Figure(figsize=(11, 1.95 * len(rows) if len(rows) > 1 else 2.6))
    grid = figure.subplots(len(rows), len(rows[0]) + 1, squeeze=False)
    for axes_row, treatments in zip(grid, rows, strict=True):
        pictures = {title: treat(X) for title, treat in treatments.items()} | {"original": X}
        for axes, (title, flat) in zip(axes_row, pictures.items(), strict=True):
            image = flat.reshape(height, width, side, side, 3).swapaxes(1, 2).reshape(photo.shape)
            axes.imshow(np.clip(image, 0, 1))
            axes.set_title(title, fontsize=9)
            axes.set_axis_off()
    figure.tight_layout()
    return figure


def error_figure(curves: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]], unit: str) -> Figure:
    """Errors by length on a logarithmic scale; the last curve is the bound."""
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    for place, (name, (lengths, error)) in enumerate(curves.items()):
        axes.plot(lengths, error, "k:" if place == len(curves) - 1 else "-", label=name, linewidth=2)
    axes.set(xlabel=unit, ylabel="mean squared error", yscale="log")
    axes.margins(x=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def found_figure(rows: Sequence[tuple[Floats, Sequence[Floats]]], title: str, height: float, gap: float) -> Figure:
    """Queries, framed in red, each beside what was found for it; images are (side, side) or (side, side, 3)."""
    figure = Figure(figsize=(7, height))
    grid = figure.subplots(len(rows), len(rows[0][1]) + 1, gridspec_kw={"wspace": gap, "hspace": gap})
    for axes_row, (query, found) in zip(grid, rows, strict=True):
        for axes, image in zip(axes_row, [query, *found], strict=True):
            axes.imshow(image, cmap="gray_r")
            axes.set(xticks=[], yticks=[])
        for spine in axes_row[0].spines.values():
            spine.set(edgecolor="tab:red", linewidth=2)
    grid[0][0].set_title("query", fontsize=10)
    grid[0][1].set_title(title, fontsize=10, loc="left")
    return figure
