"""The retrieval network 3072-2048-1024-512 of section 5.2, trained by Adam or by conjugate gradients."""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.arrays import Doubles
from nestcode.index import PrefixTree
from nestcode.metrics import exact_neighbors, recall
from nestcode.nn import OrderedAutoencoder, RandomViews
from nestcode.reproduce.lab.base import Lab
from nestcode.reproduce.lab.decoder import with_own_decoder
from nestcode.reproduce.lab.images import Images, Pixels, as_rows
from nestcode.reproduce.lab.networks import BATCH, curve, in_pieces, to_unit_range, trained_network
from nestcode.reproduce.lab.recipes import (
    CENTER,
    FULL_RATE,
    RECIPES,
    SIZES,
    Outcome,
    Recipe,
    choose,
)
from nestcode.training import Run, Training, errors_by_length, train
from nestcode.training.presets import Preset, find_preset

Method = Literal["adam", "conjugate"]

METHODS: tuple[Method, ...] = ("adam", "conjugate")
PAPER_EXAMPLES = 158_604_034  # two epochs of 79,302,017 images
NEAREST = 10  # images that a neighborhood should contain
# Of the search for a recipe: one part in SEARCH_SHARE of the budget, and of the training images for queries.
SEARCH_SHARE = 10
SEARCH_SEED = 0
SEARCH_QUERIES = 2000
SEARCH_REPORTS = 20


@dataclass(frozen=True)
class Retrieval:
    """Codes of a trained retrieval network, and how it was trained."""

    codes: Codes  # of the training images
    queries: Codes  # of the test images
    lengths: NDArray[np.int64]
    errors: Doubles  # (2, lengths): MSE of training and test images
    own_errors: Doubles  # (2, lengths): the same with a decoder of its own, trained on the codes
    curve: Doubles  # (2, reports): steps and losses
    searches: dict[str, Any]  # counts of line searches; empty for Adam
    examples: int  # seen in training


def retrieval_images(lab: Lab) -> Images:
    """Return the images that the retrieval network is trained on and retrieves."""
    images = lab.images(lab.pick(toy=600, quick=10_000, full=None), lab.pick(toy=100, quick=1000, full=10_000))
    return images.downsampled(lab.pick(toy=8, quick=16, full=32))


def retrieval_preset(lab: Lab, by: Method, seed: int) -> Preset:
    """Return the network 3072-2048-1024-512 of section 5.2: tied, geometric, β = 0.2, swept, with both penalties.

    At full scale Adam trains the recipe that the search chooses on as many examples as two epochs of 80 Million Tiny
    Images. Conjugate gradients train the recipe that the search starts from, and evaluate about as many examples.
    """
    start = base_preset(lab, steps=PAPER_EXAMPLES // BATCH, seed=seed)
    if by == "adam":
        recipe = chosen_recipe(lab)
        made = recipe.applied_to(start)
        return replace(made, training=made.training.but(learning_rate=FULL_RATE * recipe.rate)) if full(lab) else made
    made = CENTER.applied_to(start)
    steps, batch = lab.pick(toy=(6, 300), quick=(40, 2000), full=(2 * PAPER_EXAMPLES // BATCH // 5, BATCH))
    training = made.training.but(
        optimizer="conjugate", searches=1, steps=steps, batch_size=batch, precision="tensorfloat32"
    )
    return replace(made, training=training)


def base_preset(lab: Lab, steps: int, seed: int) -> Preset:
    """Return the paper's network and penalties at a scale, trained by Adam for so many steps at full scale."""
    paper = find_preset("paper-retrieval")
    count, batch = lab.pick(toy=(60, 100), quick=(600, 250), full=(steps, BATCH))
    training = paper.training.but(
        epochs=None, steps=count, batch_size=batch, optimizer="adam", seed=seed, holdout=0.0,
        invariance=replace(paper.training.invariance, share=0.25),
    )  # fmt: skip
    return replace(
        paper,
        width=lab.pick(toy=64, quick=256, full=512),
        layers=lab.pick(toy=(32,), quick=(128,), full=paper.layers),
        training=training,
    )


def full(lab: Lab) -> bool:
    """Return whether this is a run at the paper's sizes."""
    return lab.scale == "full"


def recipe_outcome(lab: Lab, recipe: Recipe) -> Outcome:
    """Train a recipe on the first nine tenths of the training images, and measure it on the last; or read the cache."""
    preset = recipe.applied_to(base_preset(lab, steps=PAPER_EXAMPLES // SEARCH_SHARE // BATCH, seed=SEARCH_SEED))

    def compute() -> dict[str, NDArray[Any]]:
        images = retrieval_images(lab)
        held_out = len(images.train) // SEARCH_SHARE
        rows, queries = images.train[:-held_out], images.train[-held_out:]
        torch.manual_seed(SEARCH_SEED)
        network = preset.build(rows.shape[1])
        every = Run(progress=False, report_every=max(preset.training.steps // SEARCH_REPORTS, 1))
        reports = train(network, rows, preset.training, every, augment=views(images))
        to_unit_range(network)
        codes, found = (encode(network, pixels, preset.width) for pixels in (rows, queries))
        nearest = exact_neighbors(as_rows(queries[:SEARCH_QUERIES]), as_rows(rows), NEAREST)
        tree = PrefixTree(codes)
        return {
            "errors": errors_by_length(
                network, torch.from_numpy(as_rows(queries)).to(network.mean.device), powers_of_two(preset.width)
            ),
            "recall": np.array([
                recall([hood.ids for hood in tree.neighborhoods(found[:SEARCH_QUERIES], size=size)], nearest)
                for size in SIZES
            ]),
            "curve": curve(reports),
        }  # fmt: skip

    stored = lab.cached("recipe", compute, preset=preset)
    return Outcome(stored["errors"], stored["recall"], float(stored["curve"][1, -1]))


def search_recipes(lab: Lab) -> dict[Recipe, Outcome]:
    """Return the outcome of each recipe; below full scale there is no search, and only the center."""
    if not full(lab):
        return {}
    return {recipe: recipe_outcome(lab, recipe) for recipe in lab.progress(RECIPES, "recipes")}


def chosen_recipe(lab: Lab) -> Recipe:
    """Return the recipe that the rule of `recipes.py` chooses; below full scale the center, at a rate for few steps."""
    found = search_recipes(lab)
    return choose(found) if found else replace(CENTER, rate=lab.pick(toy=5e-3, quick=2e-3, full=CENTER.rate))


def adam_runs(lab: Lab) -> dict[int, Retrieval]:
    """Return the networks trained by Adam by seed."""
    return {seed: retrieval(lab, "adam", seed) for seed in lab.seeds}


def views(images: Images) -> RandomViews:
    """Return the augmentation: shifts of up to an eighth of the side, and mirror images."""
    return RandomViews((3, images.side, images.side), crop=images.side // 8)


def encode(network: OrderedAutoencoder, pixels: Pixels, width: int) -> Codes:
    """Return the codes of images."""
    bits = in_pieces(network.encode, pixels, network.mean.device).numpy() > 0
    return Codes(np.packbits(bits, axis=1), width)


def powers_of_two(width: int) -> list[int]:
    """Return the powers of two up to the width."""
    return [2**power for power in range(width.bit_length())]


def decoder_training(lab: Lab, preset: Preset, seed: int) -> Training:
    """Return how a decoder is trained on fixed codes: on a fifth of the paper's examples."""
    steps = lab.pick(toy=20, quick=100, full=PAPER_EXAMPLES // BATCH // 5)
    batch = preset.training.batch_size
    return Training(steps=steps, batch_size=batch, seed=seed, holdout=0.0, compile=False)


def retrieval(lab: Lab, by: Method = "adam", seed: int | None = None) -> Retrieval:
    """Train the retrieval network on augmented images, and encode the images as they are; or read the cache."""
    seed = lab.seeds[0] if seed is None else seed
    preset = retrieval_preset(lab, by, seed)
    lengths = np.array(powers_of_two(preset.width))

    def compute() -> dict[str, NDArray[Any]]:
        images = retrieval_images(lab)
        network, reports = trained_network(
            lab, f"retrieval-{by}", preset, images.train, augment=views(images), resumable=full(lab)
        )
        device = network.mean.device
        codes, queries = (encode(network, pixels, preset.width) for pixels in (images.train, images.test))
        own = with_own_decoder(network, preset, images.train, decoder_training(lab, preset, seed), views(images))
        errors, own_errors = (
            [
                errors_by_length(one, torch.from_numpy(as_rows(pixels)).to(device), lengths.tolist())
                for pixels in (images.train[: len(images.test)], images.test)
            ]
            for one in (network, own)
        )
        return {
            "codes": codes.packed, "queries": queries.packed, "errors": np.array(errors),
            "own errors": np.array(own_errors), "curve": curve(reports),
            "searches": np.array(json.dumps(reports[-1].get("line_search", {}))),
        }  # fmt: skip

    stored = lab.cached(f"retrieval-{by}", compute, preset=preset)
    return Retrieval(
        Codes(stored["codes"], preset.width),
        Codes(stored["queries"], preset.width),
        lengths,
        stored["errors"],
        stored["own errors"],
        stored["curve"],
        json.loads(str(stored["searches"])),
        int(stored["curve"][0, -1]) * preset.training.batch_size,
    )
