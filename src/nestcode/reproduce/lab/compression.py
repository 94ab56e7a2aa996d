"""The compression network 3072-1024-3072 of section 6, its standard twin, and our coders on the same images.

The paper does not state whether this network was binarized: its text speaks of bits, and of a code of 1,024 units of a
"single-layer autoencoder", without the threshold of section 4.3. Both readings are trained.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nestcode import load_coder
from nestcode.arrays import Doubles
from nestcode.coders import AdaptiveCoder, Coder, LinearCoder
from nestcode.lengths import Geometric, Uniform
from nestcode.metrics import ssim
from nestcode.nn import OrderedAutoencoder, RandomViews
from nestcode.reproduce.lab.base import Lab
from nestcode.reproduce.lab.images import Images, Pixels, as_pixels, as_rows
from nestcode.reproduce.lab.networks import BATCH, RECIPES, Reports, curve, in_pieces, trained_network, unordered
from nestcode.reproduce.lab.optimal_brain_damage import errors_in_order, pruning_order, saliencies_of
from nestcode.training import Sweep, Training, refit
from nestcode.training.presets import Preset

Reading = Literal["bits", "real"]

READINGS: dict[Reading, str] = {"bits": "bits", "real": "real-valued units"}
ALIKE = Uniform()  # the decoder is refitted for all lengths alike
SHOWN_LENGTHS = (16, 64, 128, 256, 1024)  # of figure 5a
SHOWN = 8  # test images
SEEN, ROUNDS = 1000, 32  # images that saliencies are estimated on, and rounds of iterative pruning
REFITTED, ORDERED, OBD, ITERATIVE_OBD, TRUNCATED = (
    "nested dropout, decoder refitted", "nested dropout", "OBD", "OBD, iterative", "truncated",
)  # fmt: skip


@dataclass(frozen=True)
class Compressed:
    """Errors of a compression network by length, and images that it decodes."""

    errors: dict[str, Doubles]  # by order of the units, (width + 1,): MSE of test images, pixels from 0 to 1
    train: Doubles  # (width + 1,): of training images, nested dropout, decoder refitted
    saliency: Doubles  # (width,): of the units of the standard autoencoder
    shown: dict[int, Pixels]  # the first test images, by length
    ssim: dict[int, float]  # of test images, by length
    curve: Doubles  # (2, reports): steps and losses
    examples: int  # seen in training

    @property
    def width(self) -> int:
        """Return the units of the code."""
        return len(self.train) - 1


def reading_seeds(lab: Lab, reading: Reading) -> tuple[int, ...]:
    """Return the seeds that a reading is trained with: all for bits, which are judged, one for real-valued units."""
    return lab.seeds if reading == "bits" else lab.seeds[:1]


def compression_images(lab: Lab) -> Images:
    """Return the training and test images of the compression experiments."""
    return lab.images(lab.pick(toy=500, quick=10_000, full=None), lab.pick(toy=40, quick=500, full=10_000))


def compression_preset(lab: Lab, images: Images, seed: int, *, nested: bool = True) -> Preset:
    """Return the network of section 6, swept, or a standard autoencoder of the same architecture.

    At quick scale, images of 32 x 32 pixels have 256 units only.
    """
    width = lab.pick(toy=64, quick=256 if images.side == 32 else 1024, full=1024)
    steps, batch, rate = lab.pick(toy=(80, 64, 3e-3), quick=(400, 64, 3e-3), full=(12_000, BATCH, 1e-3))
    training = Training(
        steps=steps, batch_size=batch, learning_rate=rate, seed=seed, holdout=0.0, sweep=Sweep() if nested else None
    )
    lengths = Geometric(1 - 5 / width) if nested else unordered(width)  # the paper does not state its rate
    return replace(RECIPES["paper"], width=width, lengths=lengths, training=training)


def compression_network(
    lab: Lab, images: Images, reading: Reading, seed: int, *, nested: bool = True
) -> tuple[OrderedAutoencoder, Reports]:
    """Return the compression network, and the reports of its training."""
    preset = compression_preset(lab, images, seed, nested=nested)
    name = f"compression-{reading}-{'nested' if nested else 'standard'}"
    flips = RandomViews((3, images.side, images.side), crop=0)
    return trained_network(
        lab, name, preset, images.train, real=reading == "real", augment=flips, resumable=lab.scale == "full"
    )


def compression(lab: Lab, images: Images, reading: Reading, seed: int) -> Compressed:
    """Train the network with and without nested dropout, and measure both; or read the cache."""
    preset = compression_preset(lab, images, seed)

    def compute() -> dict[str, NDArray[Any]]:
        ordered, reports = compression_network(lab, images, reading, seed)
        standard, _ = compression_network(lab, images, reading, seed, nested=False)
        identity, seen = np.arange(standard.width), as_rows(images.train[:SEEN])
        errors = {ORDERED: errors_in_order(ordered, images.test, identity)}
        refit(ordered, as_rows(images.train), ALIKE)
        errors[REFITTED] = errors_in_order(ordered, images.test, identity)
        orders = {
            OBD: pruning_order(standard, seen),
            ITERATIVE_OBD: pruning_order(standard, seen, ROUNDS),
            TRUNCATED: identity,
        }
        errors |= {name: errors_in_order(standard, images.test, order) for name, order in orders.items()}
        decoded = {b: decode(ordered, images.test, b) for b in SHOWN_LENGTHS if b <= ordered.width}
        return {
            **{f"errors of {name}": each for name, each in errors.items()},
            **{f"shown {b}": rows[:SHOWN] for b, rows in decoded.items()},
            **{f"ssim {b}": np.array(ssim(images.as_images(images.test), images.as_images(rows)))
               for b, rows in decoded.items()},
            "saliency": saliencies_of(standard, seen),
            "train": errors_in_order(ordered, images.train[: len(images.test)], identity),
            "curve": curve(reports),
        }  # fmt: skip

    stored = lab.cached(f"compression-{reading}", compute, preset=preset, items=images.train.shape)
    lengths = [b for b in SHOWN_LENGTHS if b <= preset.width]
    return Compressed(
        {name: stored[f"errors of {name}"] for name in (REFITTED, ORDERED, OBD, ITERATIVE_OBD, TRUNCATED)},
        stored["train"],
        stored["saliency"],
        {b: stored[f"shown {b}"] for b in lengths},
        {b: round(float(stored[f"ssim {b}"]), 4) for b in lengths},
        stored["curve"],
        preset.training.steps * preset.training.batch_size,
    )


def decode(network: OrderedAutoencoder, pixels: Pixels, length: int) -> Pixels:
    """Return images decoded from prefixes of their codes."""
    return as_pixels(
        in_pieces(lambda rows: network.decode(network.encode(rows)[:, :length]), pixels, network.mean.device).numpy()
    )


def compression_coder(lab: Lab, images: Images, kind: type[LinearCoder | AdaptiveCoder]) -> Coder:
    """Return one of our coders with the paper's 1024 bits, fitted on the same images or read from the cache."""
    coder, rows = kind(lab.pick(toy=64, quick=1024, full=1024)), as_rows(images.train)
    if kind is AdaptiveCoder:
        rows = rows[: lab.pick(toy=500, quick=4000, full=4000)]
    if len(rows) < len(images.train):
        lab.departure(f"{kind.__name__} is fitted on the first {len(rows):,} images only, to save time at this scale.")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "coder"

        def compute() -> dict[str, NDArray[Any]]:
            coder.fit(rows).save(path)
            return {"coder": np.frombuffer(path.read_bytes(), dtype=np.uint8)}

        stored = lab.cached(f"networks/compression-{kind.__name__}", compute, width=coder.width, items=len(rows))
        path.write_bytes(stored["coder"].tobytes())
        return load_coder(path)
