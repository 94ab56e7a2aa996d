"""Figures of the experiment `neighborhoods`."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nestcode import Codes
from nestcode.arrays import Doubles, Ids
from nestcode.index import PrefixTree
from nestcode.report import BLUE, COLORS, GREEN, ORANGE, VERMILLION
from nestcode.reproduce.drawing import add_grid
from nestcode.reproduce.lab import Images

SHOWN = 32  # members of a neighborhood
SIZES = (512, 128, 32, 8, 2)  # terminal sizes R


def figure_grids(images: Images, codes: Codes, lengths: Mapping[int, Sequence[int]]) -> Figure:
    """Draw a block of rows for each query: its neighborhoods of these lengths."""
    tree = PrefixTree(codes)
    rows = sum(len(own) for own in lengths.values()) + len(lengths) - 1  # with gaps between queries
    figure = Figure(figsize=(9.5, 0.34 * rows), layout="constrained")
    axes = iter(figure.subplots(rows, 1))
    for number, (query, own) in enumerate(lengths.items()):
        if number:
            next(axes).set_axis_off()
        family = tree.nested(codes[query])
        for length in own:
            label = f"$N_{{{length}}}$: {family.count[length]:,}"
            _draw_row(next(axes), images, query if length == own[0] else None, np.sort(family[length].ids), label)
    return figure


def _draw_row(axes: Axes, images: Images, query: int | None, ids: Ids, label: str) -> None:
    """Draw the first members of a neighborhood side by side, and on their left the query if it is given."""
    side = images.side
    strip = np.full((side, (SHOWN + 5) * side, 3), 255, dtype=np.uint8)  # with room for the query and a label
    for place, item in enumerate(ids[:SHOWN], start=5):
        strip[:, place * side : (place + 1) * side] = images.as_images(images.train[item])[0]
    if query is not None:
        strip[:, :side] = images.as_images(images.train[query])[0]
        axes.add_patch(Rectangle((-0.5, -0.5), side, side, fill=False, edgecolor=VERMILLION, linewidth=3))
    axes.imshow(strip, interpolation="nearest")
    axes.set_axis_off()
    axes.text(4.8 * side, side / 2, label, ha="right", va="center", fontsize=10)


def figure_training(curves: Mapping[str, tuple[Doubles, int]]) -> Figure:
    """Draw training losses: steps and losses, and the examples drawn in all."""
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for (name, (curve, examples)), color in zip(curves.items(), COLORS, strict=False):
        axes.plot(curve[0] / curve[0, -1] * examples, curve[1], color=color, label=name)
    axes.set(xscale="log", yscale="log", xlabel="examples", ylabel="loss")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend(frameon=False)
    add_grid(axes)
    return figure


def figure_similarity(
    by_size: Mapping[str, Doubles],
    by_length: Mapping[str, tuple[Ids, Doubles]],
    seeds: Sequence[tuple[Ids, Doubles]] = (),
) -> Figure:
    """Draw relative distances by terminal size, (queries, sizes), and by length, the first kind for each seed too."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    styles = zip(("o-", "^-.", "s--", "D:"), (VERMILLION, ORANGE, BLUE, GREEN), strict=True)
    for (name, values), (style, color) in zip(by_size.items(), styles, strict=False):
        spread = 2 * values.std(axis=0) / np.sqrt(len(values))
        left.errorbar(range(len(SIZES)), values.mean(axis=0), spread, fmt=style, color=color, label=name, capsize=3)
        right.plot(*by_length[name], style, color=color, markersize=4, label=name)
    for lengths, values in seeds:
        right.plot(lengths, values, color=VERMILLION, linewidth=0.8, alpha=0.6)
    for axes in (left, right):
        axes.axhline(1, color="0.5", linewidth=1)
        axes.set_ylim(0, 1.1)
    add_grid(left, right)
    left.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
    left.set(xlabel="terminal size R", ylabel="distance of members / of all images", title="Similarity by size")
    right.set(xlabel="length of the prefix (bits)", title="Similarity by length")
    left.legend(frameon=False)
    return figure
