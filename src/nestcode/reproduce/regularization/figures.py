"""Figures of the experiment `regularization`."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLACK, BLUE, ORANGE, PURPLE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.reproduce.regularization.design import RATIO, SIZES, Cell
from nestcode.reproduce.regularization.measures import Measured

COLORS = (BLACK, BLUE, ORANGE, VERMILLION, PURPLE)


def figure_penalty(by_penalty: dict[str, list[Measured]], lengths: list[int]) -> Figure:
    """Draw gradients, weights and MSE."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plain = next(iter(by_penalty.values()))
    units = np.arange(1, len(plain[0].weights) + 1)
    ratios = [RATIO * one.balance[0] / one.balance for one in plain]
    band(left, units, ratios, "--", VERMILLION, label="single coefficient")
    left.axhline(RATIO, color=BLUE, linewidth=2, label="adaptive")
    left.axhline(1, color="black", linewidth=0.8)
    left.text(units[-1], 0.8, "above: the penalty dominates", fontsize=8, ha="right", va="top")
    left.set(title="gradient of the penalty", xlabel="unit", ylabel="penalty / reconstruction gradient", yscale="log")
    left.legend(frameon=False, loc="upper left")
    styles = ("-", "-", "--", "-.", ":")
    for (name, runs), color, style in zip(by_penalty.items(), COLORS, styles, strict=True):
        band(middle, units, [smooth(one.weights) for one in runs], style, color, label=name)
        band(right, lengths, [one.errors for one in runs], style, color)
    middle.set(title="weights after training", xlabel="unit", ylabel="mean absolute weight", ylim=(0, None))
    right.set(title="MSE of test items", xlabel="code length (bits)", ylabel="MSE", xscale="log", ylim=(0, None))
    set_ticks(right.xaxis, lengths[::2])
    right.yaxis.set_minor_formatter("{x:.2g}")
    add_grid(left, middle, right)
    figure.legend(*middle.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def figure_table(table: Mapping[Cell, list[Measured]]) -> Figure:
    """Draw the recall of neighborhoods by combination, one panel per terminal size."""
    figure = Figure(figsize=(12.5, 3.8), layout="constrained")
    panels = figure.subplots(1, len(SIZES), sharey=True)
    cells = list(table)[::-1]
    for place, (axes, size) in enumerate(zip(panels, SIZES, strict=True)):
        for row, cell in enumerate(cells):
            values = [one.recall[place] for one in table[cell]]
            axes.plot(values, [row] * len(values), "o", color=BLUE, alpha=0.5, markersize=5)
            axes.plot(np.mean(values), row, "x", color=VERMILLION, markersize=8)
        axes.set(title=f"R = {size}", xlabel="recall of the nearest images")
    panels[0].set_yticks(range(len(cells)), [str(cell) for cell in cells])
    add_grid(*panels)
    return figure


def smooth(values: Doubles, window: int = 8) -> Doubles:
    """Return the moving average over units."""
    kernel = np.ones(window)
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same"))
