"""Rate-distortion on small images: MSE by bits per image of coders, networks, codecs and the Gaussian bound."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from _compression_figure import draw
from _compression_task import Task
from _report import show
from distortion import gaussian_bound
from nestcode.coders import Coder
from nestcode.coders.network import NetworkCoder
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab.codecs import CODECS
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.networks import RECIPES, unordered
from nestcode.reproduce.lab.optimal_brain_damage import errors_in_order, pruning_order
from nestcode.reproduce.lab.rate_distortion import Curve, codec_curves
from nestcode.training import Run, Training, train

SHOWN = (64, 128, 256, 512, 742, 1024, 1108)  # bits per image; WebP's smallest files have 742
SEEN = 1000  # images that Optimal Brain Damage is estimated on
ROUNDS = 32  # of repeated estimates


def measure(task: Task) -> list[dict[str, Any]]:
    """Print the curves and comparisons, draw the figure, and return rows for the JSON file."""
    curves = []
    for curve in all_curves(task):
        log(f"{curve.name}: {curve.errors[-1]:.5f} at {curve.bits[-1]:.0f} bits")
        curves.append(curve)
    title = f"MSE by bits per image, {task.name}"
    note = f"Trained on {len(task.train):,} images, measured on {len(task.test):,} others."
    show(title, [table_row(curve) for curve in curves], note)
    best = min((curve for curve in curves if curve.kind == "ours"), key=lambda curve: curve.errors[-1])
    verdicts = [verdict(best, rival) for rival in curves if rival.kind in ("codec", "network")]
    show(
        f"{best.name} against each, at all of its rates up to {best.bits[-1]:.0f} bits",
        verdicts,
        sentence(verdicts),
    )
    if task.options.figure is not None:
        draw(title, curves).savefig(task.options.figure, dpi=130)
    saved = [{"method": curve.name, "bits": curve.bits.tolist(), "errors": curve.errors.tolist()} for curve in curves]
    return [*saved, *verdicts]


def all_curves(task: Task) -> Iterator[Curve]:
    """Yield the curve of every method."""
    for name, coder in task.coders.items():
        yield coder_curve(task, name, coder)
    lengths = network_lengths(task.width)
    for kind in task.options.networks:
        yield from network_curves(task, kind, lengths)
    for name in ("JPEG", "WebP", "AVIF", "JPEG 2000"):
        codec = CODECS[name]
        yield from codec_curves(codec, task.images, codec.qualities[:: 12 if task.options.quick else 1])
    bits = sorted({*lengths, *(size for size in SHOWN if not task.options.quick)})
    yield Curve.of("Gaussian bound", "bound", bits, gaussian_bound(task.train, bits))


def network_lengths(width: int) -> list[int]:
    """Return lengths to measure at, denser where they are short.

    >>> network_lengths(64)
    [8, 16, 24, 32, 40, 48, 56, 64]
    """
    short = range(8, min(width, 128) + 1, 8)
    return sorted({*short, *range(128, width + 1, 32), *(size for size in SHOWN if size <= width), width})


def coder_curve(task: Task, name: str, coder: Coder) -> Curve:
    """Return the curve of one of our coders."""
    rows = as_rows(task.test)
    codes = coder.encode(rows)
    lengths = [0, *(network_lengths(coder.width) if isinstance(coder, NetworkCoder) else range(8, coder.width + 1, 8))]
    return Curve.of(name, "ours", lengths, [task.error(coder.decode(codes.prefix(length))) for length in lengths])


def network_curves(task: Task, kind: str, lengths: list[int]) -> Iterator[Curve]:
    """Yield an autoencoder truncated in the order of its units and by OBD, and one trained with nested dropout."""
    plain = train_autoencoder(task, kind, nested=False)
    as_it_is = np.arange(task.width)
    orders = {
        "truncated": as_it_is,
        "OBD": pruning_order(plain, task.rows[:SEEN]),
        "OBD, repeated": pruning_order(plain, task.rows[:SEEN], ROUNDS),
    }
    made = [(f"autoencoder ({kind}), {name}", plain, order) for name, order in orders.items()]
    if task.options.nested:
        ordered = train_autoencoder(task, kind, nested=True)
        made.append((f"nested dropout ({kind})", ordered, as_it_is))
    for name, model, order in made:
        yield Curve.of(name, "network", lengths, errors_in_order(model, task.test, order)[lengths])


def train_autoencoder(task: Task, kind: str, *, nested: bool) -> OrderedAutoencoder:
    """Train an autoencoder with binary units, with nested dropout or without."""
    training = Training(epochs=task.options.epochs, batch_size=min(256, len(task.rows)), device=task.options.device)
    recipe = RECIPES[kind]
    lengths = recipe.lengths if nested else unordered(task.width)
    torch.manual_seed(training.seed)
    model = replace(recipe, width=task.width, lengths=lengths).build(task.rows.shape[1])
    train(model, task.rows, training, Run(progress=False, report_every=10**9))
    return model.eval()


def table_row(curve: Curve) -> dict[str, Any]:
    """Return the MSE at the rates that are shown, and the range of the method's rates."""
    at = {str(bits): curve.at(bits) for bits in SHOWN}
    return {
        "method": curve.name,
        **{bits: "-" if error is None else f"{error:.5f}" for bits, error in at.items()},
        "from": f"{curve.bits[0]:,.0f}",
        "to bits": f"{curve.bits[-1]:,.0f}",
        "MSE there": f"{curve.errors[-1]:.5f}",
    }


def verdict(ours: Curve, rival: Curve) -> dict[str, Any]:
    """Count the rates of a rival where ours has the smaller MSE, and find where the rival is nearest."""
    pairs = [(bits, error, ours.at(bits)) for bits, error in zip(rival.bits, rival.errors, strict=True)]
    ratios = {float(bits): float(error / own) for bits, error, own in pairs if own is not None and bits > 0}
    if not ratios:
        return {"rival": rival.name, "rates": 0, "lower MSE at": "-", "smallest MSE ratio": "-", "at bits": "-"}
    nearest = min(ratios, key=lambda bits: ratios[bits])
    below = sum(ratio > 1 for ratio in ratios.values())
    return {
        "rival": rival.name,
        "rates": len(ratios),
        "lower MSE at": "all" if below == len(ratios) else below,
        "smallest MSE ratio": ratios[nearest],
        "at bits": nearest,
    }


def sentence(verdicts: list[dict[str, Any]]) -> str:
    """Summarize the verdicts."""
    lost = [row["rival"] for row in verdicts if row["lower MSE at"] not in ("all", "-")]
    none = [row["rival"] for row in verdicts if row["lower MSE at"] == "-"]
    text = f"Ours is not lower everywhere: {', '.join(lost)}." if lost else "Ours is lower than all of them everywhere."
    return text + (f" Too large to compare: {', '.join(none)}." if none else "")


def log(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)
