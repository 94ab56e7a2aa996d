"""Nested dropout in a classifier: accuracy by the number of units kept.

Three copies of one model are trained on scikit-learn's digits. Only their losses differ:

    nested      a random prefix for each example: NestedLoss(loss, LogUniform())
    Matryoshka  a fixed set of lengths at every step: NestedLoss(loss, Empirical(...), draws=None)
    ordinary    the whole code, truncated after training

Run it with `python examples/classifier.py`; it takes about half a minute.
"""

import argparse

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nestcode.data import digits
from nestcode.lengths import Empirical, Full, Lengths, LogUniform
from nestcode.nn import NestedLoss, keep_prefix

WIDTH = 64
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MATRYOSHKA = (4, 8, 16, 32, 64)


METHODS: dict[str, tuple[Lengths, int | None]] = {  # distribution of lengths, and samples per step (None: all)
    "nested": (LogUniform(), 1),
    "Matryoshka": (Empirical([1] * len(MATRYOSHKA), lengths=MATRYOSHKA), None),
    "ordinary": (Full(), None),
}


def split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training and test digits: X, labels, X, labels."""
    X, labels = digits()
    order = np.random.default_rng(0).permutation(len(X))
    train, test = torch.from_numpy(order[:1300]), torch.from_numpy(order[1300:])
    rows, classes = torch.from_numpy(X), torch.from_numpy(labels)
    return rows[train], classes[train], rows[test], classes[test]


def accuracy_by_length(lengths: Lengths, draws: int | None, *, epochs: int, seed: int) -> list[float]:
    """Train one model, and return its test accuracy at each of the SHOWN lengths."""
    X, labels, X_test, labels_test = split()
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, WIDTH))
    head = nn.Linear(WIDTH, 10)
    # Two lines add nested dropout to a model: wrap the loss ...
    loss = NestedLoss(lambda code, label: cross_entropy(head(code), label), lengths, draws=draws)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            loss(encoder(X[batch]), labels[batch]).backward()  # ... and pass it the code.
            optimizer.step()
    with torch.no_grad():
        code = encoder(X_test)
        correct = [(head(keep_prefix(code, k)).argmax(dim=1) == labels_test).float() for k in SHOWN]
    return [hits.mean().item() for hits in correct]


def main() -> None:
    """Train each method with a few seeds and print the mean accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    table = Table(title="Test accuracy by number of units kept", title_justify="left")
    table.add_column("units kept", justify="right")
    columns = []
    for name, (lengths, draws) in METHODS.items():
        table.add_column(name, justify="right")
        runs = [accuracy_by_length(lengths, draws, epochs=options.epochs, seed=seed) for seed in range(options.seeds)]
        columns.append(np.mean(runs, axis=0))
    for row, length in enumerate(SHOWN):
        table.add_row(str(length), *(f"{column[row]:.3f}" for column in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
