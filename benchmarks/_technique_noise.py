"""Input corruption and dropout help when a network is large for its data."""

from typing import Any

from matplotlib.figure import Figure

from _technique import curves, digits, errors, fit_network
from nestcode.training import Training


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure training and test MSE of a wide network on few digits, with and without noise."""
    X, test = digits()
    X = X[:200]
    lengths = [1, 2, 4, 8, 16, 32]
    training = Training(steps=4 if quick else 3000, batch_size=100, holdout=0.0)
    rows, found = [], {}
    for name, corruption, dropout in (("without noise", 0.0, 0.0), ("with noise", 0.1, 0.2)):
        network = fit_network(
            X, training, width=32, layers=(256,), corruption=corruption, dropout=dropout, spread="common"
        )
        found[f"{name}, test digits"] = lengths, errors(network, test, lengths)
        rows += [
            {
                "noise": name,
                "digits": which,
                **{f"at {k}": float(e) for k, e in zip(lengths, errors(network, part, lengths), strict=True)},
            }
            for which, part in (("training", X), ("test", test))
        ]
    return rows, curves(found, "MSE")
