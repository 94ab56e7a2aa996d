"""Figures of the experiment `complexity`, and the paper's estimate that they compare with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles
from nestcode.report import BLUE, VERMILLION
from nestcode.reproduce.drawing import add_grid, set_ticks

BETAS = (0.1, 0.2, 0.3, 0.4, 0.5)
SIZES = (2, 32, 512)
FRACTION = 0.01
BETA_COLORS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d4b106")  # viridis with a darker yellow


def entropy(beta: ArrayLike) -> Doubles:
    """Return the entropy of a bit that is 1 with probability β, in bits.

    >>> entropy([0.1, 0.5]).round(3)
    array([0.469, 1.   ])
    """
    p = np.clip(np.asarray(beta, dtype=np.float64), 1e-12, 1 - 1e-12)
    return np.asarray(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def expected_depth(counts: Sequence[int], bits: float) -> Doubles:
    """Return the paper's estimate log2(N/R) / H, (counts, sizes)."""
    return np.asarray(np.log2(np.array(counts)[:, None] / np.array(SIZES)) / bits)


def figure_depth(counts: Sequence[int], random: Mapping[str, Any], images: Mapping[str, Any]) -> Figure:
    """Draw depth against the paper's estimate, and the size of neighborhoods by length."""
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    top = float(expected_depth(counts, float(entropy(BETAS[0]))).max())
    left.plot([0, top], [0, top], "k--", linewidth=1, label="log2(N/R) / H(β)")
    for i, (beta, color) in enumerate(zip(BETAS, BETA_COLORS, strict=True)):
        expected = expected_depth(counts, float(entropy(beta)))
        for column, marker in enumerate("osD"):
            positive = expected[:, column] > 0
            left.plot(expected[positive, column], random["depth"][i, positive, column], marker, color=color,
                      label=f"β = {beta}" if column == 0 else None)  # fmt: skip
        lengths = np.arange(random["sizes"].shape[1])
        seen = random["sizes"][i] > 0.1
        right.semilogy(lengths[seen], random["sizes"][i][seen], "o", color=color, markersize=4, label=f"β = {beta}")
        law = counts[-2] * (beta**2 + (1 - beta) ** 2) ** lengths
        right.semilogy(lengths[law > 0.1], law[law > 0.1], "-", color=color, linewidth=1)
    expected = expected_depth(images["counts"].tolist(), float(images["entropy"].mean()))
    left.plot(expected[expected > 0], images["depth"][expected > 0], "k*", markersize=8, label="retrieval network")
    apart = expected > 0
    left.plot(expected[apart], images["apart"][apart], "k+", markersize=8, label="its bits, made independent")
    lengths = np.flatnonzero(images["sizes"] > 0.1)
    right.semilogy(lengths, images["sizes"][lengths], "k*", markersize=5, label="retrieval network")
    left.set(
        xlabel="log2(N/R) / H(β); circles R = 2, squares 32, diamonds 512",
        ylabel="mean depth (bits)",
        title="Depth of a query",
    )
    right.set(xlabel="length b of the prefix", ylabel="mean size of the neighborhood", title="Size of neighborhoods")
    add_grid(left, right)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
    return figure


def figure_independence(
    counts: Sequence[int], widths: Sequence[int], random: Mapping[str, Any], by_width: Mapping[str, Any]
) -> Figure:
    """Draw depth by code width and by number of items."""
    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(widths, by_width["depth"], "o-", color=BLUE, linewidth=2)
    left.set(xscale="log", xlabel="code width K (bits)", ylabel="mean depth (bits)",
             ylim=(0, 1.3 * by_width["depth"].max()), title="Depth is independent of K")  # fmt: skip
    set_ticks(left.xaxis, widths, [str(width) for width in widths])
    right.plot(counts, random["depth"][-1, :, 1], "o-", color=VERMILLION, linewidth=2, label="32 items")
    right.plot(counts, random["fraction"][-1], "s-", color=BLUE, linewidth=2, label=f"{FRACTION:.0%} of the items")
    right.set(xscale="log", xlabel="items N", ylabel="mean depth (bits)", ylim=(0, None),
              title="A fixed fraction costs the same at every N")  # fmt: skip
    right.legend(frameon=False, title="retrieved, β = 0.5")
    add_grid(left, right)
    return figure
