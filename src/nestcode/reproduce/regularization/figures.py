"""Figures of the experiment `regularization`."""

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLACK, BLUE, ORANGE, PURPLE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.reproduce.regularization.measures import METHODS, NOISES, QUERIES, RATIO, Measured, precision

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


def figure_invariance(by_recipe: dict[str, dict[float, list[Measured]]]) -> Figure:
    """Draw flipped bits by noise, and precision by weight of the invariance penalty."""
    figure = Figure(figsize=(12.5, 4), layout="constrained")
    left, *others = figure.subplots(1, 3)
    paper = next(iter(by_recipe.values()))
    for (by, each), color, style in zip(paper.items(), COLORS, ("-", "--", "-.", ":"), strict=False):
        band(left, NOISES, [100 * one.flips for one in each], style, color, label=f"weight {by:g}", marker="o")
    left.set(title=f"bits flipped: {next(iter(by_recipe))}", xlabel="noise (standard deviations of a pixel)",
             ylabel="flipped bits (%)", xscale="log", ylim=(0, None))  # fmt: skip
    set_ticks(left.xaxis, NOISES)
    left.legend(frameon=False, title="invariance")
    for axes, (recipe, runs) in zip(others, by_recipe.items(), strict=True):
        places = np.arange(len(runs))
        for method, (name, color) in enumerate(zip(METHODS, COLORS[1::2], strict=True)):
            for query, style, marker in ((0, "-", "o"), (2, "--", "s")):
                values = np.array([precision(each, query, method, 0) for each in runs.values()]).T
                band(axes, places, values, style, color, label=f"{name}, {QUERIES[query]}", marker=marker)
        axes.set(
            title=f"precision: {recipe}", xlabel="weight of invariance", ylabel="share of near items", ylim=(0, None)
        )
        axes.set_xticks(places, ["off", *(f"{by:g}" for by in list(runs)[1:])])
    figure.legend(*others[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    add_grid(left, *others)
    return figure


def smooth(values: Doubles, window: int = 8) -> Doubles:
    """Return the moving average over units."""
    kernel = np.ones(window)
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same"))
