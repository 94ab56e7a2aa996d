"""Figures that several chapters draw."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nestcode.arrays import Bytes, Doubles, Floats, Ids
from nestcode.report import COLORS, VERMILLION


def patches_figure(image: Bytes, side: int, rows: Sequence[dict[str, Callable[[Floats], Floats]]]) -> Figure:
    """Draw an image after each of several functions on its patches, (patches, side * side * 3) in [0, 1]."""
    height, width = (size // side for size in image.shape[:2])
    tiles = image.reshape(height, side, width, side, 3).swapaxes(1, 2)
    X = tiles.reshape(height * width, -1).astype(np.float32) / np.float32(255)
    columns = len(rows[0]) + 1
    figure = Figure(figsize=(11, len(rows) * (11 / columns * height / width + 0.25)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for number, (axes_row, functions) in enumerate(zip(grid, rows, strict=True)):
        decoded = {title: decode(X) for title, decode in functions.items()}
        if number == 0:
            decoded["original"] = X
        for axes, (title, flat) in zip(axes_row, decoded.items(), strict=False):
            whole = flat.reshape(height, width, side, side, 3).swapaxes(1, 2).reshape(image.shape)
            axes.imshow(np.clip(whole, 0, 1))
            axes.set_title(title, fontsize=10)
    return figure


def error_figure(curves: dict[str, tuple[Ids, Doubles]], unit: str) -> Figure:
    """Draw MSE by length on a logarithmic scale; the last curve is a reference."""
    figure = Figure(figsize=(9, 3.6))
    axes = figure.subplots()
    colors = [*COLORS[: len(curves) - 1], "black"]
    for (name, (lengths, error)), color in zip(curves.items(), colors, strict=True):
        axes.plot(lengths, error, ":" if color == "black" else "-", color=color, label=name, linewidth=2)
    axes.set(xlabel=unit, ylabel="MSE", yscale="log")
    axes.margins(x=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def neighbors_figure(panels: Mapping[str, Sequence[tuple[Floats, Sequence[Floats], Sequence[bool]]]]) -> Figure:
    """Draw panels of rows: a query and its neighbors, (side, side) each, with wrong ones framed."""
    rows, shown = len(next(iter(panels.values()))), len(next(iter(panels.values()))[0][1])
    side = len(next(iter(panels.values()))[0][0])
    pitch = side + 2
    figure = Figure(figsize=(10, 10 / len(panels) * rows / (shown + 1.5)), layout="constrained")
    for axes, (title, found) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        canvas = np.full((rows * pitch, int((shown + 1.5) * pitch)), np.nan)
        for row, (query, neighbors, wrong) in enumerate(found):
            for column, (image, framed) in enumerate(zip([query, *neighbors], [False, *wrong], strict=True)):
                top, left = row * pitch, column * pitch + (pitch // 2 if column else 0)  # a gap after the query
                canvas[top : top + side, left : left + side] = image
                if framed:
                    corner = left - 1, top - 1
                    frame = Rectangle(corner, side + 1, side + 1, fill=False, edgecolor=VERMILLION, linewidth=1.5)
                    axes.add_patch(frame)
        axes.imshow(canvas, cmap="gray_r", interpolation="nearest")
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    return figure
