"""The figure of the recall curves: recall and compared items by the size of an index."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

COLORS = {"lists": "#1565c0", "graph": "#c1121f"}
PANELS = ("recall@10", "compared", "us")


def draw_curves(rows: Sequence[dict[str, Any]], target: float) -> Figure:
    """Return a figure with a column per data set: recall, compared items and CPU time, each by size."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(1 + 4.5 * len(names), 9), layout="constrained")
    panels = figure.subplots(len(PANELS), len(names), sharex="col", sharey="row", squeeze=False)
    for column, name in enumerate(names):
        for axes, value in zip(panels[:, column], PANELS, strict=True):
            for kind, color in COLORS.items():
                points = [row for row in rows if row["data"] == name and row["index"] == kind]
                axes.plot(
                    [row["items"] for row in points], [row[value] for row in points], "o-", color=color, label=kind
                )
            axes.set(xscale="log", yscale="linear" if value == "recall@10" else "log")
            axes.grid(alpha=0.3, which="both", linewidth=0.5)
        panels[0, column].axhline(target, color="#555555", linewidth=1, linestyle="--")
        panels[0, column].set_title(name, fontsize=10)
        panels[-1, column].set_xlabel("items")
    for axes, value in zip(panels[:, 0], ("recall@10", "compared items or nodes", "CPU µs of a query"), strict=True):
        axes.set_ylabel(value)
    panels[0, 0].legend(frameon=False)
    return figure
