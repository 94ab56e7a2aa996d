"""Quantile thresholds give any share of ones on pre-activations, but not on rectified units."""

from typing import Any

import torch
from matplotlib.figure import Figure

from _technique import fit_network, patches
from nestcode.nn import Binarize
from nestcode.report import COLORS
from nestcode.training import Training

BETAS = (0.2, 0.5)


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure the share of ones of each bit on test patches."""
    X, test = patches(quick, size=8)
    figure = Figure(figsize=(7.5, 3.2))
    rows = []
    for axes, beta in zip(figure.subplots(1, len(BETAS), sharey=True), BETAS, strict=True):
        training = Training(steps=4 if quick else 500, batch_size=200, holdout=0.0)
        network = fit_network(
            X, training, width=64, layers=(128,), binarize=Binarize(64, beta, signed=True), spread="common"
        )
        with torch.inference_mode():
            seen, unseen = (network.preactivations(torch.from_numpy(part)) for part in (X, test))
        rectified = (unseen.relu() > seen.relu().quantile(1 - beta, dim=0)).float().mean(dim=0)
        assert network.binarize is not None
        own = (unseen > network.binarize.threshold).float().mean(dim=0)
        for name, share, color, marker in (
            ("of rectified units", rectified, COLORS[1], "x"),
            ("of pre-activations", own, COLORS[0], "o"),
        ):
            axes.plot(torch.arange(1, 65), share, marker, color=color, markersize=4, label=f"quantiles {name}")
            off = (share - beta).abs()
            rows.append(
                {"beta": beta, "quantiles": name, "mean deviation": float(off.mean()), "largest": float(off.max())}
            )
        axes.axhline(beta, color="black", linewidth=0.8)
        axes.set(xlabel="bit", title=f"β = {beta}", ylim=(0, 0.7))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("share of ones")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return rows, figure
