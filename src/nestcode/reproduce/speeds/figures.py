"""The figures of `speeds.py`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

SIZES, RADII = (2, 32, 512), (1, 2, 3)
PROBES = 50_000  # looked up to time semantic hashing; what a ball has beyond them is extrapolated
PAPER_SECONDS = 200e-6
BLUES, ORANGES = ("#08306b", "#0072b2", "#7fb8e0"), ("#f0a860", "#d55e00", "#7f3300")


def ball(width: int, radius: int) -> int:
    """How many codes lie within a radius.

    >>> ball(16, 2)     # itself, 16 with one bit flipped, 120 with two
    137
    """
    return sum(math.comb(width, flips) for flips in range(radius + 1))


def figure_time(count: int, widths: Sequence[int], found: Mapping[str, Any]) -> Figure:
    """Time against code length."""
    figure = Figure(figsize=(9.5, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(widths, 1e6 * found["scan"], "ko-", linewidth=2, markersize=4, label="linear scan")
    for i, (radius, shade) in enumerate(zip(RADII, ORANGES, strict=True)):
        times = 1e6 * found["hashing"][:, i]
        measured = np.array([ball(width, radius) <= PROBES for width in widths])
        axes.plot(widths, times, "--", color=shade, label=f"semantic hashing, radius {radius}")
        axes.plot(np.array(widths)[measured], times[measured], "o", color=shade, markersize=4)
    for i, (size, shade) in enumerate(zip(SIZES, BLUES, strict=True)):
        axes.plot(widths, 1e6 * found["ordered"][:, i], "o-", color=shade, linewidth=2, markersize=4,
                  label=f"ordered retrieval, R = {size}")  # fmt: skip
    for i, (size, shade) in enumerate(zip(SIZES, BLUES, strict=True)):
        axes.plot(widths, 1e6 * found["walk"][:, i], ":", color=shade, label=f"the same bit by bit, R = {size}")
    axes.axhline(1e6 * PAPER_SECONDS, color="0.5", linewidth=1, label="the paper's 200 µs, R unsaid")
    axes.set(xscale="log", yscale="log", xlabel="bits of a code", ylabel="microseconds a query",
             title=f"Ordered retrieval costs the same at every code length ({count:,} codes)")  # fmt: skip
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def figure_worth(widths: Sequence[int], found: Mapping[str, Any]) -> Figure:
    """Empty balls, and recall against time."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for radius, shade, style in zip(RADII, ORANGES, ("o-", "s--", "D:"), strict=True):
        left.plot(widths, 100 * (found["nearest"] > radius).mean(axis=1), style, color=shade, label=f"radius {radius}")
    left.set(xscale="log", xlabel="bits of a code", ylabel="empty Hamming balls, %", ylim=(-3, 103),
             title="Long codes: semantic hashing finds nothing")  # fmt: skip
    left.set_xticks(widths, [str(width) for width in widths])
    left.tick_params(axis="x", which="minor", bottom=False)
    left.legend(frameon=False)
    names = [*(f"R = {size}" for size in SIZES), "scan, Hamming", "Index.search"]
    seconds = [*found["alone"][:3], found["scan"][-1], found["alone"][3]]
    colors = [*BLUES, "k", "#009e73"]
    for name, time, share, color in zip(names, seconds, found["found"], colors, strict=True):
        right.plot(1e6 * time, 100 * share, "o", color=color, markersize=8)
        right.annotate(
            name, (1e6 * time, 100 * share), xytext=(0, 8), textcoords="offset points", fontsize=9, ha="center"
        )
    right.set(xscale="log", xlabel="microseconds a query", ylabel="ten nearest by pixels found, %",
              ylim=(-3, 109), title="Speed alone finds little; ranking finds more")  # fmt: skip
    right.margins(x=0.25)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure
