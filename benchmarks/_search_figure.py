"""The figure of the search benchmark: the front of every method, recall against queries a second."""

from collections.abc import Sequence
from typing import Any, get_args

from matplotlib.figure import Figure

from _search_fronts import Measured
from _search_methods import Kind

# Families of methods, told apart by colour, their members by the kind of line; the first word that fits counts.
FAMILIES = {
    "Nestcode": "#c1121f",
    "Binary": "#9a9a9a",
    "RaBitQ": "#7b4fa6",
    "PQ": "#e08a1e",
    "IVF": "#b5a100",
    "HNSW": "#2a7f3f",
    "hnswlib": "#2a7f3f",
    "usearch": "#2176c7",
    "annoy": "#8d5a3b",
}
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
TITLES: dict[Kind, str] = {
    "compressed": "compressed: no raw vectors kept",
    "with rescoring": "with rescoring: raw vectors kept",
}
LEAST = 0.5  # recall below which nothing is drawn


def draw_fronts(title: str, results: Sequence[Measured]) -> Figure:
    """A panel for each class."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    figure.suptitle(f"{title}; one thread, queries in one batch", fontsize=11)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, kind in zip(panels, get_args(Kind), strict=True):
        draw_panel(axes, [result for result in results if result.method.kind == kind])
        axes.set_title(TITLES[kind], fontsize=10)
    panels[0].set_ylabel("queries a second")
    return figure


def draw_panel(axes: Any, results: Sequence[Measured]) -> None:
    """All fronts of a class; ours last, so that they lie on top."""
    seen = dict.fromkeys(FAMILIES.values(), 0)
    for result in sorted(results, key=lambda result: result.method.ours):
        family = next(word for word in FAMILIES if word in result.method.name)
        color, ours = FAMILIES[family], result.method.ours
        points = [point for point in result.front if point.recall >= LEAST]
        axes.plot(
            [point.recall for point in points],
            [point.qps for point in points],
            linestyle=LINES[seen[color] % len(LINES)],
            color=color,
            linewidth=3.2 if ours else 1.3,
            marker="o",
            markersize=5 if ours else 2.5,
            label=f"{result.method.name} ({result.size:,.0f} B)",
        )
        seen[color] += 1
    axes.set(xlim=(LEAST, 1.0), yscale="log", xlabel="recall@10")
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2, frameon=False)
