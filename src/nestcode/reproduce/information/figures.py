"""Figures of the experiment `information`."""

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.lengths import Lengths
from nestcode.report import BLACK, BLUE, GRAY, GREEN, PURPLE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band

HOLE = 3  # the length without support
NO_SUPPORT = f"Uniform without {HOLE}"
STYLES = {
    "Geometric(0.5)": ("o-", BLUE),
    "Uniform": ("s-", GREEN),
    "LogUniform": ("^-", PURPLE),
    NO_SUPPORT: ("D--", VERMILLION),
    "all on K": ("x:", BLACK),
}


def figure_gains(
    lengths: dict[str, Lengths], gains: dict[str, Doubles], excess: dict[str, Doubles], values: Doubles
) -> Figure:
    """Draw weights, gains of a linear encoder, and errors of a sigmoid encoder above those of PCA."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    units = np.arange(1, len(values) + 1)
    for name, distribution in lengths.items():
        style, color = STYLES[name]
        left.plot(units, distribution.survival(len(units)), style, color=color, label=name)
        middle.plot(units, gains[name][0], style, color=color, markersize=5)
        band(right, units, np.maximum(excess[name], 1e-4), style, color, markersize=5)
    middle.plot(units, values, color=GRAY, linewidth=6, alpha=0.5, zorder=0, label="eigenvalues")
    left.set(title="weight of unit b", ylabel="P(length ≥ b)")
    middle.set(title="gain of unit b, linear encoder", ylabel="Δ_b: fall of the squared error")
    right.set(title="error of b units, sigmoid encoder", ylabel="relative excess over PCA", yscale="log")
    for axes in (left, middle, right):
        axes.set(xlabel="unit b", xticks=units[:: max(1, len(units) // 8)])
    add_grid(left, middle, right)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    middle.legend(frameon=False, fontsize=9)
    return figure


def figure_swaps(costs: dict[str, Doubles]) -> Figure:
    """Draw the cost of swapping by pair of units."""
    figure = Figure(figsize=(7.5, 3.9), layout="constrained")
    axes = figure.subplots()
    for name, each in costs.items():
        style, color = STYLES[name]
        pairs = np.arange(1, each.shape[1] + 1)
        axes.plot(pairs, np.maximum(each.mean(axis=0), 1e-16), style, color=color, label=name)
    axes.set_yscale("log")
    axes.set_xticks(pairs, [f"{b}, {b + 1}" for b in pairs])
    axes.set(xlabel="units that swap", ylabel="relative rise of the loss", ylim=(1e-17, 10))
    axes.axhspan(1e-17, 1e-12, color=GRAY, alpha=0.2)
    axes.text(pairs[-1], 3e-14, "rounding: exchangeable", ha="right", fontsize=9)
    add_grid(axes)
    axes.legend(frameon=False, fontsize=8, loc="center right")
    return figure
