"""Figures of the experiment `filters`."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nestcode.arrays import Doubles
from nestcode.report import BLUE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks

WIDTH = 100
KINDS = {"without sweeping": ("--", VERMILLION), "with sweeping": ("-", BLUE)}  # line styles and colors


def figure_filters(by_kind: dict[str, NDArray[np.floating]]) -> Figure:
    """Draw mosaics of ten by ten filters, side by side: filters are (WIDTH, side, side, 3)."""
    figure = Figure(figsize=(11, 5.9), layout="constrained")
    for axes, (kind, filters) in zip(figure.subplots(1, 2), by_kind.items(), strict=True):
        sheet = mosaic(filters)
        axes.imshow(sheet, interpolation="nearest")
        axes.axhline(len(sheet) / 2 - 0.5, color="black", linewidth=1.5)
        axes.set_title(kind, fontsize=13)
        ticks = (np.arange(10) + 0.5) * len(sheet) / 10 - 0.5
        axes.set_yticks(ticks, [f"{first}-{first + 9}" for first in range(1, WIDTH, 10)])
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    figure.supylabel("units")
    return figure


def mosaic(filters: NDArray[np.floating]) -> NDArray[np.floating]:
    """Arrange (100, side, side, 3) in rows of ten with white gaps, each scaled to its largest absolute value."""
    size = np.abs(filters).max(axis=(1, 2, 3), keepdims=True)
    shown = 0.5 + 0.5 * filters / np.where(size > 0, size, 1)
    framed = np.pad(shown, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=1)
    side = framed.shape[1]
    return framed.reshape(10, 10, side, side, 3).swapaxes(1, 2).reshape(10 * side, 10 * side, 3)


def figure_curves(
    fineness: dict[str, Doubles], moved: dict[str, Doubles], errors: dict[str, Doubles], noise: float
) -> Figure:
    """Draw fineness and movement by unit and MSE by length; each is (seeds, …) by kind."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    units = np.arange(1, WIDTH + 1)
    for kind, (style, color) in KINDS.items():
        band(left, units, fineness[kind], style, color, label=kind)
        band(middle, units, moved[kind], style, color)
        band(right, np.arange(WIDTH + 1), errors[kind], style, color)
    left.axhline(noise, color="0.4", linewidth=1, linestyle=":")
    left.text(1, noise * 0.985, "white noise", va="top", color="0.3")
    left.set(title="fineness of filters", xlabel="unit", ylabel="cycles per pixel", ylim=(0, None))
    middle.set(title="distance from the start", xlabel="unit", ylabel="distance / norm of the start", yscale="log")
    middle.set_ylim(bottom=0.1)  # units that were never sampled did not move at all
    set_ticks(middle.yaxis, [0.1, 0.3, 1, 3, 10, 30])
    right.set(title="MSE of test images", xlabel="length (bits)", ylabel="MSE")
    add_grid(left, middle, right)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure
