"""Line searches on bits: held fixed within a search, or flipping inside it; Adam as the control."""

from typing import Any

import torch
from matplotlib.figure import Figure

from _technique import curves, digits, errors
from nestcode.lengths import Geometric
from nestcode.nn import Binarize, OrderedAutoencoder
from nestcode.training import Run, Training
from nestcode.training.autoencoder import AutoencoderObjective
from nestcode.training.loop import minimize

QUIET = Run(progress=False, report_every=10**9)


class Flipping(AutoencoderObjective):
    """Makes bits anew in every evaluation."""

    def begin_search(self) -> None:
        """Hold nothing."""


def measure(quick: bool) -> tuple[list[dict[str, Any]], Figure]:
    """Train the paper's kind of bits, through tied weights only, with about as many evaluations each."""
    X, test = digits()
    width, lengths = 32, [1, 2, 4, 8, 16, 32]
    steps, searches = (2, 2) if quick else (30, 4)
    conjugate = Training(optimizer="conjugate", steps=steps, searches=searches, batch_size=500)
    adam = Training(steps=3 * steps * searches, learning_rate=5e-3, batch_size=500)
    rows, shown = [], {}
    for name, kind, training in (
        ("bits flip", Flipping, conjugate),
        ("bits held", AutoencoderObjective, conjugate),
        ("Adam", AutoencoderObjective, adam),
    ):
        torch.manual_seed(0)
        network = OrderedAutoencoder(
            X.shape[1], width, (48,), lengths=Geometric(0.9), tied=True, binarize=Binarize(width, gradient="none"),
            spread="common",
        )  # fmt: skip
        report = minimize(kind(network, X, training), training, QUIET)[-1]
        counts = report.get("line_search", {"evaluations": adam.steps})
        shown[name] = lengths, errors(network, test, lengths)
        done = counts.get("searches", 0)
        rows.append(
            {
                "": name,
                "searches": done,
                "strong Wolfe, %": 100 * counts["strong_wolfe"] / done if done else "",
                "zero steps": counts.get("zero_steps", ""),
                "evaluations": counts["evaluations"],
            }
            | {f"at {k}": float(e) for k, e in zip(lengths, shown[name][1], strict=True)}
        )
    return rows, curves(shown, "test MSE")
