"""The invariance penalty: noise flips fewer bits, at some cost in MSE."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from _technique import digits, errors, fit_network
from nestcode.arrays import Floats
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.report import COLORS
from nestcode.training import Invariance, Training

NOISE = (0.02, 0.05, 0.1, 0.2, 0.4)


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure how many bits of digits flip when noise is added."""
    X, test = digits()
    rows, shares = [], {}
    for weight in (0.0, 0.1, 1.0):
        training = Training(steps=4 if quick else 2000, batch_size=200, invariance=Invariance(weight))
        network = fit_network(
            X, training, width=32, layers=(128,), binarize=Binarize(32, signed=True), corruption=0.0, dropout=0.0,
            spread="common",
        )  # fmt: skip
        flipped = [flips(network, test, noise) for noise in NOISE]
        shares[weight] = flipped
        rows.append(
            {"weight": weight, "MSE": float(errors(network, test, [32])[0])}
            | {f"noise {noise:g}": float(share) for noise, share in zip(NOISE, flipped, strict=True)}
        )
    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    for (weight, flipped), color, style in zip(shares.items(), COLORS, ("-", "--", "-."), strict=False):
        axes.plot(NOISE, flipped, style, color=color, marker="o", linewidth=2, label=f"weight {weight:g}")
    axes.set(xlabel="standard deviation of the noise (pixels in [0, 1])", ylabel="share of bits that flip")
    axes.set_xticks(NOISE[::2], [f"{noise:g}" for noise in NOISE[::2]])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="invariance penalty")
    return rows, figure


def flips(network: OrderedAutoencoder, X: Floats, deviation: float) -> float:
    """Return the share of bits that noise flips."""
    noise = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32) * np.float32(deviation)
    with torch.inference_mode():
        clean, noisy = (network.encode(torch.from_numpy(rows)) for rows in (X, X + noise))
    return float((clean != noisy).float().mean())
