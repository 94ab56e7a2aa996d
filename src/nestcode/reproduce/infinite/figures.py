"""Figures of `infinite.py`: what is shown, apart from what is measured."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, ScalarFormatter

from nestcode.arrays import Doubles
from nestcode.training import Growth

Errors = Mapping[str, Mapping[float, list[Doubles]]]  # by name and decay, one for each seed: (width + 1,)

MOST = 200  # % of the variance: what starved units do beyond tells no more
LOOKS = {"LogUniform at once": ("#000000", "^:"), "at once": ("#D55E00", "s--"), "grown": ("#0072B2", "o-")}


def figure_width(errors: Errors, limits: dict[float, int], limit: str) -> Figure:
    """Width and error against the mean length, beside limits that the lengths alone would set."""
    made = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = made.subplots(1, 2)
    means = [1 / (1 - decay) for decay in limits]
    widths = np.array([[len(one) - 1 for one in runs] for runs in errors["grown"].values()])
    color = LOOKS["grown"][0]
    for column in widths.T:
        left.plot(means, column, "o", color=color, alpha=0.5)
    left.plot(means, widths.mean(axis=1), "-", color=color, linewidth=2, label="width reached")
    left.plot(means, list(limits.values()), "--", color="#CC79A7", linewidth=2, label=limit)
    left.plot(means, means, ":", color="#555555", linewidth=2, label="mean of p_B")
    left.set(title="the width a code grows to", ylabel="units", yscale="log")
    for name, by_decay in errors.items():
        color, style = LOOKS[name]
        ends = 100 * np.array([[one[-1] for one in runs] for runs in by_decay.values()])
        right.plot(means, ends.mean(axis=1), style, color=color, label=name)
        right.fill_between(means, ends.min(axis=1), ends.max(axis=1), color=color, alpha=0.15, linewidth=0)
    right.set(title="error with all units", ylabel="% of the variance", yscale="log")
    _cut(right)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="mean length 1/(1 − decay), above the decay")
        axes.set_xticks(means, [f"{mean:.0f}\n{decay}" for mean, decay in zip(means, limits, strict=True)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        _plain_numbers(axes)
    return made


def figure_lengths(errors: Errors, growth: Growth) -> Figure:
    """Errors by length, a panel for each decay."""
    decays = list(errors["grown"])
    made = Figure(figsize=(3.1 * len(decays), 3.9), layout="constrained")
    panels = made.subplots(1, len(decays), sharex=True, sharey=True, squeeze=False)[0]
    for axes, decay in zip(panels, decays, strict=True):
        for name, (color, style) in LOOKS.items():
            for number, one in enumerate(errors[name][decay]):
                ends = range(growth.start - 1, len(one) - 1, growth.step) if name == "grown" else []
                label = name if number == 0 and axes is panels[0] else None
                axes.plot(range(1, len(one)), 100 * one[1:], style, color=color, label=label, markevery=list(ends),
                          markersize=5, linewidth=1.2)  # fmt: skip
        axes.set(title=f"decay {decay}", xlabel="length: units kept", yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("error (% of the variance)")
    _cut(panels[0])
    _plain_numbers(panels[0])
    made.legend(loc="outside lower center", ncols=len(LOOKS), frameon=False)
    return made


def _cut(axes: Axes) -> None:
    """Leave out what is above the most that is drawn."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, min(high, MOST))


def _plain_numbers(axes: Axes) -> None:
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
