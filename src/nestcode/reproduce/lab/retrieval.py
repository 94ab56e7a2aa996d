"""The retrieval network 3072-2048-1024-512 of section 5.2, trained by Adam or by conjugate gradients."""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.arrays import Doubles
from nestcode.nn import RandomViews
from nestcode.reproduce.lab.base import Lab
from nestcode.reproduce.lab.images import Images, as_rows
from nestcode.reproduce.lab.networks import BATCH, curve, in_pieces, trained_network
from nestcode.training import errors_by_length
from nestcode.training.presets import Preset, find_preset

Method = Literal["adam", "conjugate"]

PAPER_EXAMPLES = 158_604_034  # two epochs of 79,302,017 images


@dataclass(frozen=True)
class Retrieval:
    """Codes of a trained retrieval network, and how it was trained."""

    codes: Codes  # of the training images
    queries: Codes  # of the test images
    lengths: NDArray[np.int64]
    errors: Doubles  # (2, lengths): MSE of training and test images
    curve: Doubles  # (2, reports): steps and losses
    searches: dict[str, Any]  # counts of line searches; empty for Adam
    examples: int  # seen in training


def retrieval_images(lab: Lab) -> Images:
    """Return the images that the retrieval network is trained on and retrieves."""
    images = lab.images(lab.pick(toy=600, quick=10_000, full=None), lab.pick(toy=100, quick=1000, full=10_000))
    return images.downsampled(lab.pick(toy=8, quick=16, full=32))


def retrieval_preset(lab: Lab, by: Method, seed: int, *, short: bool = False) -> Preset:
    """Return the network 3072-2048-1024-512 of section 5.2: tied, geometric, β = 0.2, swept, with both penalties.

    Conjugate gradients evaluate each batch about two and a half times: at full scale both methods evaluate as many
    examples as two epochs of 80 Million Tiny Images.
    """
    paper = find_preset("paper-retrieval")
    steps, batch = lab.pick(toy=(60, 100), quick=(600, 250), full=(PAPER_EXAMPLES // BATCH, BATCH))
    if short:
        steps //= 4
    rate = lab.pick(toy=5e-3, quick=2e-3, full=1e-3)
    if by == "conjugate":
        steps, batch = lab.pick(toy=(6, 300), quick=(40, 2000), full=(2 * steps // 5, BATCH))
    elif lab.scale == "full" and not short:
        rate /= 4  # at 1e-3 hidden units die in so many steps, and the loss rises from 0.56 to 0.74
    training = paper.training.but(
        epochs=None, steps=steps, batch_size=batch, optimizer=by, searches=1, seed=seed, holdout=0.0,
        learning_rate=rate, invariance=replace(paper.training.invariance, share=0.25),
    )  # fmt: skip
    return replace(
        paper,
        width=lab.pick(toy=64, quick=256, full=512),
        layers=lab.pick(toy=(32,), quick=(128,), full=paper.layers),
        training=training,
    )


def adam_runs(lab: Lab) -> dict[int, Retrieval]:
    """Return the networks trained by Adam by seed: the first with the full budget, the others with a quarter of it."""
    return {seed: retrieval(lab, "adam", seed, short=seed != lab.seeds[0]) for seed in lab.seeds}


def retrieval(lab: Lab, by: Method = "adam", seed: int | None = None, *, short: bool = False) -> Retrieval:
    """Train the retrieval network on augmented images, and encode the images as they are; or read the cache."""
    seed = lab.seeds[0] if seed is None else seed
    preset = retrieval_preset(lab, by, seed, short=short)
    lengths = 2 ** np.arange(preset.width.bit_length())

    def compute() -> dict[str, NDArray[Any]]:
        images = retrieval_images(lab)
        name = f"retrieval-{by}{'-short' if short else ''}"
        views = RandomViews((3, images.side, images.side), crop=images.side // 8)
        network, reports = trained_network(
            lab, name, preset, images.train, augment=views, resumable=lab.scale == "full"
        )
        device = network.mean.device
        codes, queries = (
            np.packbits(in_pieces(network.encode, pixels, device).numpy() > 0, axis=1)
            for pixels in (images.train, images.test)
        )
        errors = [
            errors_by_length(network, torch.from_numpy(as_rows(pixels)).to(device), lengths.tolist())
            for pixels in (images.train[: len(images.test)], images.test)
        ]
        return {
            "codes": codes, "queries": queries, "errors": np.array(errors), "curve": curve(reports),
            "searches": np.array(json.dumps(reports[-1].get("line_search", {}))),
        }  # fmt: skip

    stored = lab.cached(f"retrieval-{by}", compute, preset=preset)
    return Retrieval(
        Codes(stored["codes"], preset.width),
        Codes(stored["queries"], preset.width),
        lengths,
        stored["errors"],
        stored["curve"],
        json.loads(str(stored["searches"])),
        int(stored["curve"][0, -1]) * preset.training.batch_size,
    )
