"""The figures of `complexity.py`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles

BETAS = (0.1, 0.2, 0.3, 0.4, 0.5)
SIZES = (2, 32, 512)
FRACTION = 0.01
COLORS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#d4b106")  # viridis, its yellow darkened to be seen on white


def entropy(beta: ArrayLike) -> Doubles:
    """Of a bit that is 1 with probability beta, in bits.

    >>> entropy([0.1, 0.5]).round(3)
    array([0.469, 1.   ])
    """
    p = np.clip(np.asarray(beta, dtype=np.float64), 1e-12, 1 - 1e-12)
    return np.asarray(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def expected_depth(counts: Sequence[int], bits: float) -> Doubles:
    """The paper's estimate, log2(N / R) / H, (counts, sizes)."""
    return np.asarray(np.log2(np.array(counts)[:, None] / np.array(SIZES)) / bits)


def figure_depth(counts: Sequence[int], drawn: Mapping[str, Any], real: Mapping[str, Any]) -> Figure:
    """Depth on the paper's line, and sizes that decay."""
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    top = float(expected_depth(counts, float(entropy(BETAS[0]))).max())
    left.plot([0, top], [0, top], "k--", linewidth=1, label="log2(N/R) / H(β)")
    for i, (beta, color) in enumerate(zip(BETAS, COLORS, strict=True)):
        expected = expected_depth(counts, float(entropy(beta)))
        for column, marker in enumerate("osD"):
            positive = expected[:, column] > 0
            left.plot(expected[positive, column], drawn["depth"][i, positive, column], marker, color=color,
                      label=f"β = {beta}" if column == 0 else None)  # fmt: skip
        lengths = np.arange(drawn["sizes"].shape[1])
        seen = drawn["sizes"][i] > 0.1
        right.semilogy(lengths[seen], drawn["sizes"][i][seen], "o", color=color, markersize=4, label=f"β = {beta}")
        law = counts[-2] * (beta**2 + (1 - beta) ** 2) ** lengths
        right.semilogy(lengths[law > 0.1], law[law > 0.1], "-", color=color, linewidth=1)
    expected = expected_depth(real["counts"].tolist(), float(real["entropy"].mean()))
    left.plot(expected[expected > 0], real["depth"][expected > 0], "k*", markersize=8, label="codes of images")
    left.set(
        xlabel="log2(N/R) / H(β); circles R = 2, squares 32, diamonds 512",
        ylabel="mean depth, bits",
        title="A query goes log(N/R) / H(β) bits deep",
    )
    right.set(xlabel="length b of the prefix", ylabel="mean size of the neighborhood",
              title="Neighborhoods shrink exponentially")  # fmt: skip
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
    return figure


def figure_independence(
    counts: Sequence[int], widths: Sequence[int], drawn: Mapping[str, Any], by_width: Mapping[str, Any]
) -> Figure:
    """What stays the same."""
    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(widths, by_width["depth"], "o-", color="#0072b2", linewidth=2)
    left.set(xscale="log", xlabel="bits K of a code", ylabel="mean depth, bits",
             ylim=(0, 1.3 * by_width["depth"].max()), title="Depth does not depend on K")  # fmt: skip
    left.set_xticks(widths, [str(width) for width in widths])
    left.minorticks_off()
    right.plot(counts, drawn["depth"][-1, :, 1], "o-", color="#d55e00", linewidth=2, label="32 items")
    right.plot(counts, drawn["fraction"][-1], "s-", color="#0072b2", linewidth=2, label=f"{FRACTION:.0%} of all items")
    right.set(xscale="log", xlabel="items N", ylabel="mean depth, bits", ylim=(0, None),
              title="A fixed share costs the same at every N")  # fmt: skip
    right.legend(frameon=False, title="retrieved, β = 0.5")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure
