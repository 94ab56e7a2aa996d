"""Nestings beyond the chain: the subsets of units that are kept together, and their MSE."""

from typing import Any

import torch
from matplotlib.figure import Figure

from _technique import digits, fit_network
from nestcode.lengths import Uniform
from nestcode.nn import Chain, Groups, Tree
from nestcode.training import Training

WIDTH = 28


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Measure the MSE of every subset of three nestings."""
    X, test = digits()
    nestings = {
        "chain": Chain(Uniform()),
        "groups of 4": Groups([4] * 7, Uniform()),
        "tree of 7 nodes": Tree.binary(3, Uniform(), units=4),
    }
    figure = Figure(figsize=(10, 3.2))
    rows = []
    for axes, (name, nesting) in zip(figure.subplots(1, 3), nestings.items(), strict=True):
        training = Training(steps=4 if quick else 2000, batch_size=200)
        network = fit_network(X, training, width=WIDTH, lengths=nesting, corruption=0.0, dropout=0.0, spread="common")
        masks = nesting.masks(WIDTH)
        with torch.inference_mode():
            rows_of = torch.from_numpy(test)
            found = [float((network(rows_of, mask.expand(len(test), -1)) - rows_of).square().mean()) for mask in masks]
        axes.imshow(masks, cmap="Blues", aspect="auto", vmin=0, vmax=1.5, interpolation="nearest")
        axes.set(title=name, xlabel="unit", ylabel="subset")
        if len(masks) < 10:
            for row, error in enumerate(found):
                axes.text(WIDTH + 0.2, row, f"{error:.3f}", va="center", fontsize=8)
        rows.append({"nesting": name, "subsets": len(masks), "smallest": found[0], "largest": found[-1]})
    figure.tight_layout()
    return rows, figure
