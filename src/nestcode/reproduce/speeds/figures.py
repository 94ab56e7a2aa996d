"""Figures of the experiment `speeds`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Doubles
from nestcode.report import BLACK, COLORS, GREEN
from nestcode.reproduce.drawing import add_grid, set_ticks

SIZES, RADII = (2, 32, 512), (1, 2, 3)
PROBES = 50_000  # lookups that are timed for semantic hashing; larger Hamming balls are extrapolated
PAPER_SECONDS = 200e-6
BLUES, ORANGES = ("#08306b", "#0072b2", "#7fb8e0"), ("#f0a860", "#d55e00", "#7f3300")


def ball_size(width: int, radius: int) -> int:
    """Return the number of codes in a Hamming ball.

    >>> ball_size(16, 2)     # the center, 16 codes with one bit flipped, 120 with two
    137
    """
    return sum(math.comb(width, flips) for flips in range(radius + 1))


def figure_time(count: int, widths: Sequence[int], found: Mapping[str, Any]) -> Figure:
    """Draw time per query by code width."""
    figure = Figure(figsize=(9.5, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(widths, 1e6 * found["scan"], "ko-", linewidth=2, markersize=4, label="linear scan")
    for i, (radius, shade) in enumerate(zip(RADII, ORANGES, strict=True)):
        times = 1e6 * found["hashing"][:, i]
        measured = np.array([ball_size(width, radius) <= PROBES for width in widths])
        axes.plot(widths, times, "--", color=shade, label=f"semantic hashing, radius {radius}")
        axes.plot(np.array(widths)[measured], times[measured], "o", color=shade, markersize=4)
    for i, (size, shade) in enumerate(zip(SIZES, BLUES, strict=True)):
        axes.plot(widths, 1e6 * found["ordered"][:, i], "o-", color=shade, linewidth=2, markersize=4,
                  label=f"ordered retrieval, R = {size}")  # fmt: skip
    for i, (size, shade) in enumerate(zip(SIZES, BLUES, strict=True)):
        axes.plot(widths, 1e6 * found["walk"][:, i], ":", color=shade, label=f"the same bit by bit, R = {size}")
    axes.axhline(1e6 * PAPER_SECONDS, color="0.5", linewidth=1, label="the paper's 200 µs, R not given")
    axes.set(xscale="log", yscale="log", xlabel="code width (bits)", ylabel="µs per query",
             title=f"Query time by code width ({count:,} codes)")  # fmt: skip
    set_ticks(axes.xaxis, widths, [str(width) for width in widths])
    add_grid(axes)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def figure_scan(counts: Sequence[float], widths: Sequence[int], seconds: Doubles) -> Figure:
    """Draw the CPU time of a scan by number of items, (widths, counts), beside lines proportional to it."""
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for width, own, color in zip(widths, seconds, COLORS, strict=False):
        axes.plot(counts, 1e3 * own, "o", color=color, label=f"{width} bits")
        axes.plot(counts, 1e3 * own.max() * np.array(counts) / max(counts), "-", color=color, linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="codes scanned", ylabel="CPU milliseconds", title="Linear scan")
    set_ticks(axes.xaxis, counts, [f"{count:,.0f}" for count in counts])
    axes.yaxis.set_major_formatter("{x:g}")
    add_grid(axes)
    axes.legend(frameon=False)
    return figure


def figure_recall(widths: Sequence[int], found: Mapping[str, Any]) -> Figure:
    """Draw the share of empty Hamming balls, and recall by time."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for radius, shade, style in zip(RADII, ORANGES, ("o-", "s--", "D:"), strict=True):
        left.plot(widths, 100 * (found["nearest"] > radius).mean(axis=1), style, color=shade, label=f"radius {radius}")
    left.set(xscale="log", xlabel="code width (bits)", ylabel="empty Hamming balls (%)", ylim=(-3, 103),
             title="Semantic hashing of long codes")  # fmt: skip
    set_ticks(left.xaxis, widths, [str(width) for width in widths])
    left.legend(frameon=False)
    names = [*(f"R = {size}" for size in SIZES), "linear scan", "Index.search"]
    seconds = [*found["alone"][:3], found["scan"][-1], found["alone"][3]]
    colors = [*BLUES, BLACK, GREEN]
    for name, time, share, color in zip(names, seconds, found["found"], colors, strict=True):
        right.plot(1e6 * time, share, "o", color=color, markersize=8)
        beside = (-8, "right") if name == "linear scan" else (8, "left")
        right.annotate(name, (1e6 * time, share), xytext=(beside[0], 0), textcoords="offset points", fontsize=9,
                       ha=beside[1], va="center")  # fmt: skip
    right.set(xscale="log", xlabel="µs per query", ylabel="recall@10 by L2 of pixels", ylim=(-0.03, 1.09),
              title="Recall by time")  # fmt: skip
    right.margins(x=0.25)
    add_grid(left, right)
    return figure
