"""Figures of the experiment `pinwheel`."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from nestcode import Codes
from nestcode.arrays import Doubles, Floats, Ids
from nestcode.index import PrefixTree
from nestcode.report import BLUE, VERMILLION
from nestcode.reproduce.drawing import add_grid

DEPTHS = 7  # neighborhoods shown: at least 1/2, 1/4, … 1/128 of all points
SIDE = 240  # of the grid that samples the plane
BLUES = ("#eef3fa", "#cfdff0", "#a6c8e4", "#75abd3", "#4689c0", "#2166a8", "#0d4a8a", "#08306b")
RED = "#D00000"


def plane(points: Floats) -> Floats:
    """Return a grid over a square around all points, row by row."""
    edge = np.linspace(-1.05, 1.05, SIDE) * np.abs(points).max()
    return np.stack(np.meshgrid(edge, edge), axis=-1).reshape(-1, 2).astype(np.float32)


def figure_neighborhoods(points: Floats, codes: Codes, grid: Codes, queries: Ids) -> Figure:
    """Draw the data, then the neighborhoods of each query in the plane."""
    figure = Figure(figsize=(10, 6.9), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    reach = float(np.abs(points).max()) * 1.05
    panels[0].plot(*points.T, ".", markersize=1.5, color="#333333", alpha=0.6)
    panels[0].set_title("the data", fontsize=11)
    tree = PrefixTree(codes)
    for axes, query, number in zip(panels[1:], queries, range(1, len(queries) + 1), strict=True):
        code = codes[query]
        hoods = [tree.neighborhood(code, fraction=0.5**depth) for depth in range(1, DEPTHS + 1)]
        shared = grid.common_prefix(code)[:, 0]
        depth = sum((shared >= hood.length).astype(int) for hood in hoods)
        shown = axes.imshow(
            np.reshape(depth, (SIDE, SIDE)), origin="lower", extent=(-reach, reach, -reach, reach),
            cmap=ListedColormap(BLUES), vmin=-0.5, vmax=DEPTHS + 0.5, interpolation="nearest",
        )  # fmt: skip
        axes.plot(*points.T, ".", markersize=1, color="black", alpha=0.35)
        axes.plot(*points[query], "o", color=RED, markersize=8, markeredgecolor="white")
        axes.set_title(f"query {number}: {hoods[0].count:,} to {hoods[-1].count:,} points", fontsize=11)
    for axes in panels:
        axes.set(xticks=[], yticks=[], xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    bar = figure.colorbar(shown, ax=panels.tolist(), ticks=range(DEPTHS + 1), shrink=0.8)
    bar.ax.set_yticklabels(["all", *(f"1/{2**depth}" for depth in range(1, DEPTHS + 1))])
    bar.set_label("the smallest neighborhood with at least this share of all points")
    return figure


def figure_angles(best: Doubles, trained: Sequence[Doubles], untrained: Sequence[Doubles]) -> Figure:
    """Draw the cumulative share of boundary points by angle; (pairs, 2) each: bit and degrees."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    runs = [*((one, BLUE, 0.8, None) for one in trained), *((one, "#666666", 0.8, None) for one in untrained)]
    pooled = np.concatenate(untrained)
    for angles, color, width, label in [
        *runs,
        (best, BLUE, 2.5, "best restart"),
        (pooled, "#666666", 2.5, "untrained"),
    ]:
        axes.plot(np.sort(angles[:, 1]), np.linspace(0, 1, len(angles)), color=color, linewidth=width, label=label,
                  alpha=1 if label else 0.3)  # fmt: skip
    axes.plot([0, 90], [0, 1], "--", color=VERMILLION, linewidth=1, label="by chance")
    axes.set(xlabel="angle between normal and tangent (degrees)", ylabel="share of boundary points", xlim=(0, 90))
    axes.legend(frameon=False)
    add_grid(axes)
    return figure
