"""The figure of the experiment `rates`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from nestcode.reproduce.drawing import add_grid, band, set_ticks
from nestcode.reproduce.lab.rate_distortion import Curve

Errors = Mapping[str, Doubles]  # by order of the units, (seeds, width + 1)

ORDERS = {
    "nested dropout": ("-", VERMILLION),
    "OBD": ("--", BLUE),
    "OBD, iterative": ("-.", SKY),
    "truncated": (":", BLACK),
}
METHODS = {
    "LinearCoder": ORANGE, "AdaptiveCoder": VERMILLION, "JPEG": BLACK, "WebP": GREEN, "AVIF": PURPLE, "JPEG 2000": BLUE,
}  # fmt: skip
TITLES = {"paper": "The paper's recipe", "ours": "Repaired"}


def figure_rates(
    networks: Mapping[str, Errors], coders: Sequence[Curve], codecs: Mapping[str, tuple[Curve, Curve]]
) -> Figure:
    """Draw two panels of networks and one of codecs and coders."""
    figure = Figure(figsize=(15, 5.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (recipe, errors) in zip(panels, networks.items(), strict=False):
        for name, each in errors.items():
            band(axes, np.arange(1, each.shape[1]), each[:, 1:], *ORDERS[name], label=name, linewidth=2)
        _draw(axes, codecs["JPEG"][1], GRAY, "-")
        axes.set_title(TITLES[recipe])
    for coder in coders:
        _draw(panels[2], coder, METHODS[coder.name], "-", linewidth=3)
    for name, (files, bare) in codecs.items():
        _draw(panels[2], files, METHODS[name], "-")
        _draw(panels[2], bare, METHODS[name], "--", label=None)
    panels[2].set_title("Coders, and codecs (dashed: without headers)")
    panels[0].set_ylabel("MSE")
    for axes in panels:
        axes.set(xscale="log", yscale="log", xlim=(8, 4096), ylim=(0.001, 0.12), xlabel="bits per image")
        axes.axvline(1024, color="0.7", linewidth=1, zorder=0)
        set_ticks(axes.xaxis, (16, 64, 256, 1024, 4096))
        set_ticks(axes.yaxis, (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001))
        axes.legend(frameon=False, fontsize=9, loc="upper right" if axes is panels[2] else "lower left")
    add_grid(*panels)
    return figure


def _draw(axes: Axes, curve: Curve, color: str, line: str, **style: Any) -> None:
    """Draw one curve, labeled with its name unless another label is given."""
    axes.plot(curve.bits, curve.errors, line, color=color, **{"label": curve.name, "linewidth": 1.5, **style})
