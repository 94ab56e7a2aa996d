"""Figures and tables of the experiment `pca`."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLUE, GREEN, ORANGE, VERMILLION
from nestcode.reproduce.drawing import add_grid

Row = dict[str, Any]
Curves = dict[str, Doubles]

COLORS = (BLUE, ORANGE, GREEN, VERMILLION)


def figure_t(rows: list[Row]) -> Figure:
    """Draw |T| of several optima."""
    shown = ["nested, exact loss", "nested, sampled", "standard", "nested, sigmoid encoder",
             "nested, centered sigmoid encoder", "nested, tanh encoder"]  # fmt: skip
    figure = Figure(figsize=(8.5, 6.2), layout="constrained")
    for axes, name in zip(figure.subplots(2, len(shown) // 2).flat, shown, strict=True):
        row = next(row for row in rows if row["model"] == name)
        axes.imshow(np.array(row["t"]), cmap="Blues", vmin=0, vmax=1)
        axes.set_title(name, fontsize=10)
        axes.set(xticks=[], yticks=[], xlabel="eigenvector", ylabel="unit")
    return figure


def figure_eigenvectors(rows: list[Row]) -> Figure:
    """Draw 1 − |cos| by component."""
    figure = Figure(figsize=(7.5, 3.8))
    axes = figure.subplots()
    for row, color in zip(rows, COLORS, strict=False):
        error = np.maximum(1 - np.array(row["cosines"]), 1e-16)
        axes.semilogy(np.arange(1, len(error) + 1), error, label=f"width {row['width']}", linewidth=1, color=color)
    axes.axhline(1e-3, color="k", linestyle=":", linewidth=1, label="0.001")
    axes.set(xlabel="component", ylabel="1 − |cos| with the eigenvector", ylim=(1e-16, 1))
    add_grid(axes)
    axes.legend(frameon=False, ncols=3, fontsize=9)
    return figure


def figure_sweeping(gradients: Curves, coupling: Curves) -> Figure:
    """Draw why sweeping is needed and why it works: gradients vanish with the index, and so does coupling."""
    figure = Figure(figsize=(9, 3.5))
    left, right = figure.subplots(1, 2)
    for (name, magnitude), color, style in zip(gradients.items(), COLORS, ("-", "--", "-."), strict=False):
        left.semilogy(np.arange(1, len(magnitude) + 1), magnitude, style, color=color, label=name)
    left.set(xlabel="unit", ylabel="gradient magnitude")
    left.legend(frameon=False, fontsize=9)
    styles = (("o", BLUE), (":", "black"), ("s-", VERMILLION))
    for (name, share), (style, color) in zip(coupling.items(), styles, strict=True):
        right.semilogy(share, style, color=color, label=name, markersize=4)
    right.set(xlabel="distance |i − j| of two units", xticks=range(0, 16, 3))
    right.legend(frameon=False, fontsize=9)
    add_grid(left, right)
    figure.tight_layout()
    return figure


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headers and cells, without the columns that hold lists or mappings."""
    headers = [name for name, value in rows[0].items() if not isinstance(value, list | dict)]
    cells = [
        [f"{row[name]:.3g}" if isinstance(row[name], float) else str(row[name]) for name in headers] for row in rows
    ]
    return headers, cells
