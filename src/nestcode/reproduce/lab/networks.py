"""Networks and coders that several experiments use, trained once and then read from the cache."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestcode import load_coder
from nestcode.arrays import Floats
from nestcode.coders import AdaptiveCoder, Coder, LinearCoder
from nestcode.lengths import Empirical, LogUniform
from nestcode.nn import OrderedAutoencoder
from nestcode.reproduce.lab.base import Lab
from nestcode.reproduce.lab.images import Images, as_rows
from nestcode.training import Preset, Run, find_preset, train

QUIET = Run(progress=False, report_every=10**9)  # experiments have progress bars of their own

# The paper's bits are 0 or 1 and train through tied weights alone. Ours are -1 or 1, 0 where they are dropped, have
# straight-through gradients, and lengths whose distribution does not starve the tail.
RECIPES = {"paper": find_preset("paper-compression"), "ours": Preset(width=1024, lengths=LogUniform())}


def unordered(width: int) -> Empirical:
    """Return the lengths of a standard autoencoder: all units, always."""
    return Empirical([1], lengths=[width])


def trained_network(lab: Lab, name: str, preset: Preset, rows: Floats) -> OrderedAutoencoder:
    """Return a network trained on rows, on the CPU, with weights from the cache if they are there.

    Args:
        lab: its cache keeps the weights.
        name: of the cache file.
        preset: the network and its training, which holds the seed.
        rows: training items, (n, features).

    """
    torch.manual_seed(preset.training.seed)
    network = preset.build(rows.shape[1])

    def compute() -> dict[str, NDArray[Any]]:
        train(network, rows, preset.training, QUIET)
        return {key: value.cpu().numpy() for key, value in network.state_dict().items()}

    weights = lab.cached(name, compute, preset=preset, items=len(rows), features=rows.shape[1])
    network.cpu().load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
    return network.eval()


def compression_images(lab: Lab) -> Images:
    """Return the training and test images of the compression experiments."""
    return lab.images(lab.pick(toy=500, quick=10_000, full=None), lab.pick(toy=40, quick=500, full=10_000))


def compression_network(lab: Lab, images: Images, recipe: str, seed: int, *, nested: bool = True) -> OrderedAutoencoder:
    """Return an autoencoder with one layer of bits, 3072-1024-3072 in the paper, with or without nested dropout.

    It is on the GPU if there is one. At quick scale, images of 32 x 32 pixels have 256 bits only.
    """
    width = lab.pick(toy=64, quick=256 if images.side == 32 else 1024, full=1024)
    preset = RECIPES[recipe]
    sweep = preset.training.sweep if nested else None
    training = preset.training.but(seed=seed, epochs=None, compile=False, sweep=sweep)
    if training.optimizer == "conjugate":
        steps, batch, searches = lab.pick(toy=(1, 200, 8), quick=(2, 1000, 8), full=(20, 10_000, 10))
        training = training.but(steps=steps, batch_size=batch, searches=searches)
    else:
        steps, batch, rate = lab.pick(toy=(80, 64, 3e-3), quick=(400, 64, 3e-3), full=(6000, 512, 1e-3))
        training = training.but(steps=steps, batch_size=batch, learning_rate=rate)
    lengths = preset.lengths if nested else unordered(width)
    name = f"compression-{recipe}-{'nested' if nested else 'plain'}"
    preset = replace(preset, width=width, lengths=lengths, training=training)
    network = trained_network(lab, name, preset, as_rows(images.train))
    return network.to("cuda" if torch.cuda.is_available() else "cpu")


def compression_coder(lab: Lab, images: Images, kind: type[LinearCoder | AdaptiveCoder]) -> Coder:
    """Return one of our coders with the paper's 1024 bits, fitted on the same images or read from the cache."""
    coder, rows = kind(lab.pick(toy=64, quick=1024, full=1024)), as_rows(images.train)
    if kind is AdaptiveCoder:
        rows = rows[: lab.pick(toy=500, quick=4000, full=50_000)]
    if len(rows) < len(images.train):
        lab.departure(f"{kind.__name__} is fitted on the first {len(rows):,} images only, to save time at this scale.")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "coder"

        def compute() -> dict[str, NDArray[Any]]:
            coder.fit(rows).save(path)
            return {"coder": np.frombuffer(path.read_bytes(), dtype=np.uint8)}

        stored = lab.cached(f"compression-{kind.__name__}", compute, width=coder.width, items=len(rows))
        path.write_bytes(stored["coder"].tobytes())
        return load_coder(path)
