"""The figure of the compression benchmark: MSE by bits per image."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from nestcode.reproduce.lab.rate_distortion import Curve

# Colors by the first word that matches; curves without headers are dashed.
COLORS = {
    "Adaptive": "#c1121f",
    "Linear": "#ef5d60",
    "Deep": "#7a0010",
    "cifar10": "#f7a1a3",
    "truncated": "#8d8d8d",
    "repeated": "#3c3c3c",
    "OBD": "#606060",
    "nested": "#5a189a",
    "JPEG 2000": "#0b7a75",
    "JPEG": "#1565c0",
    "WebP": "#4caf50",
    "AVIF": "#f0941f",
    "bound": "#000000",
}
MOST = 4096  # bits per image, which all codecs reach


def draw(title: str, curves: Sequence[Curve]) -> Figure:
    """Draw all curves on logarithmic axes, ours on top."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots()
    ranks = {"bound": 0, "codec": 1, "network": 2, "ours": 3}
    for curve in sorted(curves, key=lambda curve: ranks[curve.kind]):
        some = (curve.bits > 0) & (curve.bits <= MOST)
        if some.any():
            axes.plot(curve.bits[some], curve.errors[some], label=curve.name, **style(curve))
    axes.set(xscale="log", yscale="log", xlabel="bits per image", ylabel="MSE", xlim=(16, MOST))
    axes.set_xticks([16, 32, 64, 128, 256, 512, 1024, 2048, 4096], minor=False)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_yticks([0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001])
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylim(0.0008, 0.15)
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11)
    lines, names = axes.get_legend_handles_labels()
    axes.legend(lines[::-1], names[::-1], fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def style(curve: Curve) -> dict[str, Any]:
    """Return the line style of a curve."""
    color = next(color for word, color in COLORS.items() if word in curve.name)
    dashed = "no headers" in curve.name or "(ours)" in curve.name
    line = ":" if curve.kind == "bound" else "--" if dashed else "-"
    return {"color": color, "linestyle": line, "linewidth": 2.8 if curve.kind == "ours" else 1.4}
