"""Figures of the experiment `infinite`."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from nestcode.arrays import Doubles
from nestcode.report import BLACK, BLUE, PURPLE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.training import Growth

Errors = Mapping[str, Mapping[float, list[Doubles]]]  # by name and decay, one per seed: (width + 1,)

ERROR_LIMIT = 200  # % of the variance, the largest error drawn; starved units go far beyond
STYLES = {"LogUniform at once": (BLACK, "^:"), "at once": (VERMILLION, "s--"), "grown": (BLUE, "o-")}


def figure_width(errors: Errors, limits: dict[float, int], limit: str) -> Figure:
    """Draw width and error by mean length, beside the limits that the lengths alone would set."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    means = [1 / (1 - decay) for decay in limits]
    widths = np.array([[len(one) - 1 for one in runs] for runs in errors["grown"].values()])
    color = STYLES["grown"][0]
    for column in widths.T:
        left.plot(means, column, "o", color=color, alpha=0.5)
    left.plot(means, widths.mean(axis=1), "-", color=color, linewidth=2, label="width reached")
    left.plot(means, list(limits.values()), "--", color=PURPLE, linewidth=2, label=limit)
    left.plot(means, means, ":", color="#555555", linewidth=2, label="mean of p_B")
    left.set(title="width reached", ylabel="units", yscale="log")
    for name, by_decay in errors.items():
        color, style = STYLES[name]
        ends = 100 * np.array([[one[-1] for one in runs] for runs in by_decay.values()])
        band(right, means, ends.T, style, color, label=name)
    right.set(title="error at full width", ylabel="% of the variance", yscale="log")
    _limit_errors(right)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="mean length 1/(1 − decay), above the decay")
        set_ticks(axes.xaxis, means, [f"{mean:.0f}\n{decay}" for mean, decay in zip(means, limits, strict=True)])
        add_grid(axes)
        axes.legend(frameon=False)
        _plain_ticks(axes)
    return figure


def figure_lengths(errors: Errors, growth: Growth) -> Figure:
    """Draw errors by length, one panel per decay."""
    decays = list(errors["grown"])
    figure = Figure(figsize=(3.1 * len(decays), 3.9), layout="constrained")
    panels = figure.subplots(1, len(decays), sharex=True, sharey=True, squeeze=False)[0]
    for axes, decay in zip(panels, decays, strict=True):
        for name, (color, style) in STYLES.items():
            for number, one in enumerate(errors[name][decay]):
                ends = range(growth.start - 1, len(one) - 1, growth.step) if name == "grown" else []
                label = name if number == 0 and axes is panels[0] else None
                axes.plot(range(1, len(one)), 100 * one[1:], style, color=color, label=label, markevery=list(ends),
                          markersize=5, linewidth=1.2)  # fmt: skip
        axes.set(title=f"decay {decay}", xlabel="length (units)", yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("error (% of the variance)")
    _limit_errors(panels[0])
    _plain_ticks(panels[0])
    figure.legend(loc="outside lower center", ncols=len(STYLES), frameon=False)
    return figure


def _limit_errors(axes: Axes) -> None:
    """Cut the axis at the largest error drawn."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, min(high, ERROR_LIMIT))


def _plain_ticks(axes: Axes) -> None:
    """Write 1, 2, 5, 10, … on a logarithmic axis instead of powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
