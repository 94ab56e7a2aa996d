"""The figure of `rates.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nestcode.reproduce.lab.rate_distortion import Curve

Errors = Mapping[str, NDArray[np.float64]]  # (seeds, width + 1) of each order

ORDERS = {
    "nested dropout": ("#d55e00", "-"),
    "OBD": ("#0072b2", "--"),
    "OBD, repeated": ("#56b4e9", "-."),
    "truncated": ("#000000", ":"),
}
METHODS = {
    "LinearCoder": "#e69f00", "AdaptiveCoder": "#d55e00", "JPEG": "#000000", "WebP": "#009e73", "AVIF": "#cc79a7",
    "JPEG 2000": "#0072b2",
}  # fmt: skip
TITLES = {"paper": "The paper's recipe", "ours": "Repaired"}
TICKS = (16, 64, 256, 1024, 4096)


def figure_rates(
    networks: Mapping[str, Errors], coders: Sequence[Curve], codecs: Mapping[str, tuple[Curve, Curve]]
) -> Figure:
    """Two panels of networks and one of codecs and coders."""
    figure = Figure(figsize=(15, 5.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (recipe, errors) in zip(panels, networks.items(), strict=False):
        for name, each in errors.items():
            draw_order(axes, name, each)
        draw(axes, codecs["JPEG"][1], "#999999", "-")
        axes.set_title(TITLES[recipe])
    for coder in coders:
        draw(panels[2], coder, METHODS[coder.name], "-", linewidth=3)
    for name, (files, bare) in codecs.items():
        draw(panels[2], files, METHODS[name], "-")
        draw(panels[2], bare, METHODS[name], "--", label=None)
    panels[2].set_title("Coders, and codecs (dashed: without headers)")
    panels[0].set_ylabel("squared error of a pixel")
    for axes in panels:
        axes.set(xscale="log", yscale="log", xlim=(8, 4096), ylim=(0.001, 0.12), xlabel="bits of an image")
        axes.axvline(1024, color="0.7", linewidth=1, zorder=0)
        axes.set_xticks(TICKS, [f"{bits:,}" for bits in TICKS])
        axes.set_yticks([0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001], labels=["0.1", "0.05", "0.02", "0.01", "0.005",
                                                                              "0.002", "0.001"])  # fmt: skip
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=9, loc="upper right" if axes is panels[2] else "lower left")
    return figure


def draw_order(axes: Axes, name: str, errors: NDArray[np.float64]) -> None:
    """The mean over seeds, and a band from the least to the most."""
    color, line = ORDERS[name]
    bits = np.arange(1, errors.shape[1])
    axes.plot(bits, errors[:, 1:].mean(axis=0), line, color=color, label=name, linewidth=2)
    axes.fill_between(bits, errors[:, 1:].min(axis=0), errors[:, 1:].max(axis=0), color=color, alpha=0.2, linewidth=0)


def draw(axes: Axes, curve: Curve, color: str, line: str, **style: Any) -> None:
    """One curve, with its name unless another is given."""
    axes.plot(curve.bits, curve.errors, line, color=color, **{"label": curve.name, "linewidth": 1.5, **style})
