"""Adaptive regularization: a constant coefficient dominates the gradient of late units, an adaptive one does not."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from _technique import digits, fit_network
from nestcode.lengths import Geometric
from nestcode.report import COLORS
from nestcode.training import AdaptivePenalty, Training
from nestcode.training.autoencoder import AutoencoderLoss

RATIO = 0.05


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure the ratio of regularization to reconstruction gradients by unit in a half-trained network."""
    X, _ = digits()
    width = 32
    training = Training(steps=4 if quick else 300, batch_size=200)
    network = fit_network(X, training, width=width, layers=(64,), lengths=Geometric(0.8), spread="common").train()
    weight = network.code_weights()[0]
    torch.manual_seed(0)
    for _ in range(50):  # the average of many samples, as late units are rarely kept
        AutoencoderLoss(network, training)(torch.from_numpy(X)).backward()
    assert weight.grad is not None
    gradient = weight.grad / 50
    weight.grad = gradient.clone()
    reconstruction = gradient.norm(dim=1)
    coefficients = AdaptivePenalty("l1", ratio=RATIO).add_(weight)
    adaptive = (weight.grad - gradient).norm(dim=1)
    one = coefficients[0] * weight.detach().sign().norm(dim=1)  # suits the first unit
    ratios = {"constant coefficient": one / reconstruction, "adaptive": adaptive / reconstruction}
    rows = [
        {"": name, **{f"unit {k}": float(ratio[k - 1]) for k in (1, 4, 8, 16, 24, 32)}}
        for name, ratio in ratios.items()
    ]
    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    for (name, ratio), color, style in zip(ratios.items(), COLORS[1::-1], ("--", "-"), strict=True):
        axes.plot(np.arange(1, width + 1), ratio, style, color=color, linewidth=2, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.text(32, 0.62, "above: regularization outweighs reconstruction", fontsize=8, ha="right")
    axes.set(xlabel="unit", ylabel="regularization / reconstruction gradient", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return rows, figure
