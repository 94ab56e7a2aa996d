"""Unit sweeping in a deep tied network: hidden layers frozen with the first units, or trained to the end."""

from typing import Any

from matplotlib.figure import Figure

from _technique import curves, digits, errors, fit_network
from nestcode.lengths import Geometric
from nestcode.nn import Binarize
from nestcode.training import Sweep, Training

WIDTH, LENGTHS = 32, [1, 2, 4, 8, 16, 24, 32]
SWEEPS = {
    "no sweeping": None,
    "hidden layers frozen after the first block": Sweep(hidden=1.0),
    "trained to the end": Sweep(),
}


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Train the paper's kind of bits, through tied weights only, with each kind of sweep."""
    X, test = digits()
    rows, found = [], {}
    for name, sweep in SWEEPS.items():
        training = Training(steps=4 if quick else 1500, batch_size=128, learning_rate=3e-3, sweep=sweep)
        network = fit_network(
            X, training, width=WIDTH, layers=(48,), lengths=Geometric(0.75), tied=True,
            binarize=Binarize(WIDTH, gradient="none"), corruption=0.0, dropout=0.0, spread="common",
        )  # fmt: skip
        found[name] = LENGTHS, errors(network, test, LENGTHS)
        values = {f"at {k}": float(e) for k, e in zip(LENGTHS, found[name][1], strict=True)}
        rows.append({"": name, **values})
    return rows, curves(found, "test MSE")
