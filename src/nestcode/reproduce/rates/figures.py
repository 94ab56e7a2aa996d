"""The figure of the experiment `rates`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nestcode.report import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.reproduce.lab.compression import READINGS, Compressed, Reading
from nestcode.reproduce.lab.rate_distortion import Curve

ORDERS = {
    "nested dropout": ("-", VERMILLION),
    "nested dropout, decoder refitted": ("--", ORANGE),
    "OBD": ("--", BLUE),
    "OBD, iterative": ("-.", SKY),
    "truncated": (":", BLACK),
}
METHODS = {
    "LinearCoder": ORANGE, "AdaptiveCoder": VERMILLION, "JPEG": BLACK, "WebP": GREEN, "AVIF": PURPLE, "JPEG 2000": BLUE,
}  # fmt: skip


def figure_rates(
    networks: Mapping[Reading, Sequence[Compressed]], coders: Sequence[Curve], codecs: Mapping[str, tuple[Curve, Curve]]
) -> Figure:
    """Draw two panels of networks, with bands over their seeds, and one of codecs and coders."""
    figure = Figure(figsize=(12, 5), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (reading, runs) in zip(panels, networks.items(), strict=False):
        units = np.arange(1, runs[0].width + 1)
        for name, (style, color) in ORDERS.items():
            band(axes, units, np.array([one.errors[name][1:] for one in runs]), style, color, label=name)
        _draw(axes, codecs["JPEG"][1], GRAY, "-")
        axes.set_title(f"{runs[0].width:,} {READINGS[reading]}")
    for coder in coders:
        _draw(panels[2], coder, METHODS[coder.name], "-", linewidth=3)
    for name, (files, bare) in codecs.items():
        _draw(panels[2], files, METHODS[name], "-")
        _draw(panels[2], bare, METHODS[name], "--", label=None)
    panels[2].set_title("Coders, and codecs (dashed: without headers)")
    panels[0].set_ylabel("MSE")
    for axes in panels:
        axes.set(xscale="log", yscale="log", xlim=(8, 4096), ylim=(0.0004, 0.12), xlabel="code length")
        axes.axvline(1024, color="0.7", linewidth=1, zorder=0)
        set_ticks(axes.xaxis, (16, 64, 256, 1024, 4096))
        set_ticks(axes.yaxis, (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005))
        axes.legend(frameon=False, fontsize=8.5, loc="upper right" if axes is panels[2] else "lower left")
    add_grid(*panels)
    return figure


def figure_training(runs: Mapping[Reading, Sequence[Compressed]]) -> Figure:
    """Draw the training loss by examples seen."""
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for (reading, each), color in zip(runs.items(), (BLUE, VERMILLION), strict=True):
        for number, one in enumerate(each):
            seen = one.curve[0] / one.curve[0, -1] * one.examples
            axes.plot(seen, one.curve[1], color=color, linewidth=1 if number else 2,
                      label=None if number else READINGS[reading])  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="examples", ylabel="loss")
    axes.legend(frameon=False)
    add_grid(axes)
    return figure


def _draw(axes: Axes, curve: Curve, color: str, line: str, **style: Any) -> None:
    """Draw one curve, labeled with its name unless another label is given."""
    axes.plot(curve.bits, curve.errors, line, color=color, **{"label": curve.name, "linewidth": 1.5, **style})
