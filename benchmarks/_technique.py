"""Shared by the ablations: data, training, curves."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from nestcode import data
from nestcode.arrays import Doubles, Floats
from nestcode.nn import OrderedAutoencoder
from nestcode.report import COLORS
from nestcode.training import Run, Training, errors_by_length, train


def patches(quick: bool, size: int = 12) -> tuple[Floats, Floats]:
    """Return training and test patches of the sample images, (n, size * size * 3), in [0, 1]."""
    count = 1000 if quick else 20_000
    cut = data.patches(list(data.sample_images().values()), size=size, n=count, rng=np.random.default_rng(0))
    rows = np.divide(cut.reshape(count, -1), 255, dtype=np.float32)
    return rows[: -count // 10], rows[-count // 10 :]


def digits() -> tuple[Floats, Floats]:
    """Return training and test digits."""
    rows = data.digits()[0].astype(np.float32)
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order[300:]], rows[order[:300]]


def fit_network(X: Floats, training: Training, seed: int = 0, **model: Any) -> OrderedAutoencoder:
    """Return a trained network."""
    torch.manual_seed(seed)
    network = OrderedAutoencoder(X.shape[1], **model)
    train(network, X, training, Run(progress=False, report_every=10**9))
    return network


def errors(network: OrderedAutoencoder, X: Floats, lengths: list[int]) -> Doubles:
    """Return the MSE at each length."""
    return errors_by_length(network, torch.from_numpy(X), lengths)


def curves(by_name: dict[str, tuple[list[int], Doubles]], ylabel: str) -> Figure:
    """Return a figure of errors by length on logarithmic axes."""
    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    for (name, (lengths, values)), color, style in zip(by_name.items(), COLORS, ("-", "--", "-.", ":"), strict=False):
        axes.plot(lengths, values, style, color=color, label=name, linewidth=2)
    axes.set(xlabel="length: units kept", ylabel=ylabel, xscale="log", yscale="log")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    return figure
