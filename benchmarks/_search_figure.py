"""The figure of the search benchmark: the Pareto front of every method, QPS by recall."""

import textwrap
from collections.abc import Sequence
from typing import Any, get_args

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from _search_fronts import Measured
from _search_methods import Kind

# Color by the first family word in a method's name; shades, then line styles, for its members.
FAMILIES = {
    "nestcode": ("#c1121f", "#ef5d60", "#f7a1a3"),
    "binary": ("#8d8d8d",),
    "rabitq": ("#5a189a", "#a663d6", "#cda5ea"),
    "pq": ("#b35900", "#f0941f", "#f7c67f"),
    "ivf": ("#0b7a75", "#6bbdb8"),
    "hnsw": ("#1b5e20", "#4caf50", "#a5d6a7"),
    "usearch": ("#1565c0",),
    "annoy": ("#6b4226",),
    "symphonyqg": ("#111111",),
    "vsag": ("#00838f",),
    "scann": ("#ad1457",),
    "turbovec": ("#827717", "#c0ca33"),
    "numpy": ("#9e9e9e",),
}
LINES = ("-", "--", ":")
TITLES: dict[Kind, str] = {
    "compressed": "Codes only",
    "with vectors": "Codes and vectors",
}
LEAST = 0.7  # the least recall drawn
WIDE = 60  # characters per line of a legend


def draw_fronts(title: str, results: Sequence[Measured]) -> Figure:
    """Return a figure with one panel per class that was measured."""
    kinds = [kind for kind in get_args(Kind) if any(result.method.kind == kind for result in results)]
    figure = Figure(figsize=(2 + 5 * len(kinds), 6.2), layout="constrained")
    figure.suptitle(f"{title}; one thread, queries in one batch", fontsize=12)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        draw_panel(axes, [result for result in results if result.method.kind == kind])
        axes.set_title(TITLES[kind], fontsize=11)
    panels[0].set_ylabel("QPS")
    return figure


def draw_panel(axes: Any, results: Sequence[Measured]) -> None:
    """Draw all fronts of a class; ours last, on top."""
    seen = dict.fromkeys(FAMILIES, 0)
    low = []
    for result in sorted(results, key=lambda result: result.method.ours):
        points = [point for point in result.front if point.recall >= LEAST]
        if not points:
            low.append(result.method.name.removeprefix("FAISS "))
            continue
        family = next(word for word in FAMILIES if word in result.method.name.lower())
        line, shade = divmod(seen[family], len(FAMILIES[family]))
        seen[family] += 1
        ours = result.method.ours
        axes.plot(
            [point.recall for point in points],
            [point.qps for point in points],
            color=FAMILIES[family][shade],
            linestyle=LINES[line % len(LINES)],
            linewidth=3.4 if ours else 1.4,
            marker="o",
            markersize=6 if ours else 3,
            label=f"{result.method.name} ({result.size:,.0f} B per item)",
        )
    axes.set(xlim=(LEAST, 1.005), yscale="log", xlabel="recall@10")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if low:
        note = textwrap.fill(f"recall below {LEAST}: {', '.join(low)}", 60)
        axes.text(0.02, 0.02, note, transform=axes.transAxes, fontsize=8, color="#555555")
    lines, names = reordered(axes)
    half = (len(names) + 1) // 2
    letters = sum(max(map(len, part), default=0) for part in (names[:half], names[half:]))
    columns = 2 if letters <= WIDE else 1  # longer names do not fit
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12)}
    axes.legend(lines, names, fontsize=9, ncols=columns, frameon=False, **place)


def reordered(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of the legend, ours first."""
    lines, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: not names[i].startswith("Nestcode"))
    return [lines[i] for i in order], [names[i] for i in order]
