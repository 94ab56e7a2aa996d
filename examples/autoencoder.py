"""Nested dropout in your own autoencoder: MSE by the number of units kept.

Two copies of one model are trained on scikit-learn's digits. One has an additional layer, `NestedDropout`, which keeps
a random prefix of each example's code during training; afterwards every prefix is a code. Its cost shows at full width.
Principal components are the best linear model of each width.

Run it with `python examples/autoencoder.py`; it takes about half a minute.
"""

import argparse

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from nestcode.data import digits
from nestcode.lengths import LogUniform
from nestcode.nn import NestedDropout, keep_prefix

WIDTH = 32
SHOWN = (1, 2, 4, 8, 16, 32)


def split() -> tuple[Tensor, Tensor]:
    """Return centered training and test digits, (n, 64)."""
    X, _ = digits()
    X = X[np.random.default_rng(0).permutation(len(X))]
    rows = torch.from_numpy(X - X[:1300].mean(axis=0))
    return rows[:1300], rows[1300:]


def errors_by_length(*, nested: bool, epochs: int, seed: int = 0) -> list[float]:
    """Train one model, and return its test MSE at each of the SHOWN lengths."""
    X, X_test = split()
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, WIDTH))
    decoder = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 64))
    # The layer that orders the code; nothing else changes.
    drop = NestedDropout(LogUniform()) if nested else nn.Identity()
    model = nn.Sequential(encoder, drop, decoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            mse_loss(model(X[batch]), X[batch]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        code = encoder(X_test)
        return [mse_loss(decoder(keep_prefix(code, k)), X_test).item() for k in SHOWN]


def errors_of_components() -> list[float]:
    """Return the test MSE of the first principal components at each of the SHOWN lengths."""
    X, X_test = split()
    _, _, directions = torch.linalg.svd(X, full_matrices=False)
    return [mse_loss(X_test @ directions[:k].T @ directions[:k], X_test).item() for k in SHOWN]


def main() -> None:
    """Train both models and print their MSE."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=150)
    options = parser.parse_args()
    columns = {
        "nested": errors_by_length(nested=True, epochs=options.epochs),
        "ordinary, truncated": errors_by_length(nested=False, epochs=options.epochs),
        "principal components": errors_of_components(),
    }
    table = Table("units kept", *columns, title="MSE of test digits", title_justify="left")
    for row, length in enumerate(SHOWN):
        table.add_row(str(length), *(f"{column[row]:.4f}" for column in columns.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
