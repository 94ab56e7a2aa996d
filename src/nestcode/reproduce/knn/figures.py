"""Figures of the experiment `knn`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLACK, BLUE, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks

METHODS = {"scan": (BLACK, "s"), "search": (BLUE, "o"), "neighborhood": (VERMILLION, "^")}  # colors and markers
KINDS = {"supervised": "-", "unsupervised": "--"}


@dataclass(frozen=True)
class Results:
    """Accuracy and time of each method on one task."""

    lengths: list[int]
    accuracies: dict[str, dict[str, Doubles]]  # by kind of code and method, (seeds, lengths)
    seconds: dict[str, dict[str, list[float]]]  # by kind of code and method, per query and length
    counts: list[int]
    seconds_by_count: dict[str, list[float]]  # by method, per query and count


def figure_results(title: str, results: Results) -> Figure:
    """Draw accuracy and time by length, and time by number of items."""
    figure = Figure(figsize=(12.5, 4.2), layout="constrained")
    left, middle, last = figure.subplots(1, 3)
    for kind, style in KINDS.items():
        for name, (color, marker) in METHODS.items():
            line: dict[str, Any] = {"marker": marker, "markersize": 5}
            band(left, results.lengths, results.accuracies[kind][name], style, color, label=f"{name}, {kind}", **line)
            middle.plot(results.lengths, np.array(results.seconds[kind][name]) * 1e6, style, color=color, **line)
            if kind == "supervised":
                last.plot(results.counts, np.array(results.seconds_by_count[name]) * 1e6, style, color=color, **line)
    left.set(title=title, xlabel="code length (bits)", ylabel="accuracy")
    middle.set(title="time by length", xlabel="code length (bits)", ylabel="µs per query", yscale="log")
    last.set(title="time by number of items", xlabel="items", ylabel="µs per query", yscale="log")
    _powers_of_two(left, results.lengths)
    _powers_of_two(middle, results.lengths)
    _powers_of_two(last, results.counts)
    for axes in (middle, last):
        low, high = np.log10(axes.get_ylim())
        axes.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))
    add_grid(left, middle, last)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure


def _powers_of_two(axes: Axes, ticks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    set_ticks(axes.xaxis, ticks, [f"{tick:,}" for tick in ticks])
