"""The figures of `regularization.py`."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles
from nestcode.reproduce.regularization.measures import METHODS, NOISES, QUERIES, RATIO, Measured, precision

COLORS = ("#000000", "#0072B2", "#E69F00", "#D55E00", "#CC79A7")


def figure_penalty(by_penalty: dict[str, list[Measured]], lengths: list[int]) -> Figure:
    """Gradients, weights and errors."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plain = next(iter(by_penalty.values()))
    units = np.arange(1, len(plain[0].weights) + 1)
    band(left, units, [RATIO * one.balance[0] / one.balance for one in plain], COLORS[3], "one for all units", "--")
    left.axhline(RATIO, color=COLORS[1], linewidth=2, label="adaptive")
    left.axhline(1, color="black", linewidth=0.8)
    left.text(units[-1], 0.8, "above: the penalty outweighs", fontsize=8, ha="right", va="top")
    left.set(title="pull of the penalty", xlabel="unit", ylabel="penalty / reconstruction gradient", yscale="log")
    left.legend(frameon=False, loc="upper left")
    styles = ("-", "-", "--", "-.", ":")
    for (name, runs), color, style in zip(by_penalty.items(), COLORS, styles, strict=True):
        band(middle, units, [smooth(one.weights) for one in runs], color, name, style)
        band(right, lengths, [one.errors for one in runs], color, name, style)
    middle.set(title="weights after training", xlabel="unit", ylabel="mean absolute weight", ylim=(0, None))
    right.set(
        title="error", xlabel="code length (bits)", ylabel="squared error of a pixel", xscale="log", ylim=(0, None)
    )
    right.set_xticks(lengths[::2], [str(length) for length in lengths[::2]])
    right.xaxis.set_minor_locator(NullLocator())
    right.yaxis.set_minor_formatter("{x:.2g}")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    figure.legend(*middle.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def figure_invariance(by_recipe: dict[str, dict[float, list[Measured]]]) -> Figure:
    """Bits that flip by noise, and what is found by weight."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, *others = figure.subplots(1, 3)
    paper = next(iter(by_recipe.values()))
    for (by, each), color, style in zip(paper.items(), COLORS, ("-", "--", "-.", ":"), strict=False):
        band(left, NOISES, [100 * one.flips for one in each], color, f"weight {by:g}", style, marker="o")
    left.set(title=f"bits flipped: {next(iter(by_recipe))}", xlabel="noise (deviations of a pixel)",
             ylabel="bits that change (%)", xscale="log", ylim=(0, None))  # fmt: skip
    left.set_xticks(NOISES, [f"{noise:g}" for noise in NOISES])
    left.minorticks_off()
    left.legend(frameon=False, title="invariance")
    for axes, (recipe, runs) in zip(others, by_recipe.items(), strict=True):
        places = np.arange(len(runs))
        for method, (name, color) in enumerate(zip(METHODS, COLORS[1::2], strict=True)):
            for query, style, marker in ((0, "-", "o"), (2, "--", "s")):
                values = np.array([precision(each, query, method, 0) for each in runs.values()]).T
                band(axes, places, list(values), color, f"{name}, {QUERIES[query]}", style, marker=marker)
        axes.set(title=f"near items found: {recipe}", xlabel="weight of invariance", ylabel="share", ylim=(0, None))
        axes.set_xticks(places, ["off", *(f"{by:g}" for by in list(runs)[1:])])
    figure.legend(*others[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    for axes in (left, *others):
        axes.grid(alpha=0.3)
    return figure


def band(
    axes: Axes, x: ArrayLike, values: Sequence[Doubles], color: str, label: str, style: str, marker: str = ""
) -> None:
    """A mean with the range over seeds."""
    table = np.array(values)
    axes.plot(x, table.mean(axis=0), style, color=color, label=label, marker=marker, markersize=5, linewidth=1.8)
    axes.fill_between(x, table.min(axis=0), table.max(axis=0), color=color, alpha=0.15, linewidth=0)


def smooth(values: Doubles, window: int = 8) -> Doubles:
    """Means over neighbouring units."""
    kernel = np.ones(window)
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same"))
