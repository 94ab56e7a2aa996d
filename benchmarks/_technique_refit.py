"""Refit of a linear decoder on fixed codes: one solve of the expected loss, against column after column."""

from copy import deepcopy
from typing import Any

import torch
from matplotlib.figure import Figure

from _technique import curves, errors, fit_network, patches
from nestcode.arrays import Floats
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.training import Sweep, Training, refit

WIDTH = 64


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Refit the decoder of the paper's kind of bits, swept, on patches."""
    X, test = patches(quick, size=8)
    width, lengths = (8, [1, 4, 8]) if quick else (WIDTH, [1, 4, 16, 32, 48, 64])
    training = Training(steps=4 if quick else 1500, batch_size=256, learning_rate=2e-3, sweep=Sweep())
    trained = fit_network(
        X, training, width=width, lengths=Geometric(0.95), tied=True, binarize=Binarize(width, gradient="none"),
        corruption=0.1, spread="common",
    )  # fmt: skip
    whole, staged = deepcopy(trained), deepcopy(trained)
    refit(whole, X)
    fit_columns(staged, X)
    rows, shown = [], {}
    for name, network in (("as trained", trained), ("column after column", staged), ("one solve", whole)):
        shown[name] = lengths, errors(network, test, lengths)
        for data, values in (("train", errors(network, X, lengths)), ("test", shown[name][1])):
            rows.append({"": name, "data": data} | {f"at {k}": float(e) for k, e in zip(lengths, values, strict=True)})
    return rows, curves(shown, "test MSE")


def fit_columns(network: OrderedAutoencoder, X: Floats) -> None:
    """Fit the mean, then each column to what its predecessors leave, by least squares."""
    with torch.no_grad():
        left = network.standardize(torch.from_numpy(X)).double()
        code = network.encode(torch.from_numpy(X)).double()
        bias, columns = left.mean(dim=0), []
        left = left - bias
        for unit in code.T:
            columns.append(unit @ left / unit.square().sum().clamp(min=1e-12))
            left -= torch.outer(unit, columns[-1])
    network.set_linear_decoder(torch.stack(columns, dim=1), bias)
