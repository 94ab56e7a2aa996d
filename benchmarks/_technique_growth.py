"""Growing width: each stage adds units and freezes the earlier ones; growth stops when units gain little."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from _technique import errors, fit_network, patches
from nestcode.lengths import LogUniform
from nestcode.nn import Binarize
from nestcode.report import COLORS
from nestcode.training import Growth, Training


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure the MSE by length of codes that stop growing at three thresholds."""
    X, test = patches(quick, size=8)
    start = 4 if quick else 16
    figure = Figure(figsize=(6.5, 3.8))
    axes = figure.subplots()
    rows = []
    widths = 9, 5, 2  # of lines, which overlap at first
    for least, color, linewidth in zip((5e-3, 3e-4, 1e-4), COLORS, widths, strict=False):
        growth = Growth(start=start, step=start, most=12 * start, least=least)
        training = Training(steps=4 if quick else 800, batch_size=250, learning_rate=3e-3, growth=growth)
        network = fit_network(
            X, training, width=start, lengths=LogUniform(), binarize=Binarize(start, signed=True), corruption=0.0,
            dropout=0.0, spread="common",
        )  # fmt: skip
        lengths = list(range(network.width + 1))
        found = errors(network, test, lengths)
        ends = np.cumsum(network.blocks())
        name = f"least gain {least:g}: {network.width}"
        axes.plot(lengths[1:], found[1:], color=color, linewidth=linewidth, label=name)
        axes.plot(ends, found[ends], "o", color=color)
        rows.append({"least gain of a unit": least, "width reached": network.width, "MSE": float(found[-1])})
    axes.set(xlabel="length: bits kept (dots: ends of stages)", ylabel="MSE", yscale="log")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, title="stopped at")
    return rows, figure
