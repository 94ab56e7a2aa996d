"""Distortion by bits: torch-free coders, and what a learned decoder (RefinedCoder) adds.

Every coder is fitted once, at the largest width; shorter codes are prefixes. MSE of pixel values in [0, 1] on test
images.

    linear      LinearCoder: ordered bit planes of principal components
    residual    ResidualCoder: residual quantization
    adaptive    AdaptiveCoder: codebooks for the components of largest remaining variance
    deep        RefinedCoder: the better of the last two with a decoder network trained with nested dropout
    full only   the same network trained at full length only
    bound       the Gaussian rate-distortion bound for these principal variances

Data: CIFAR-10 at 8 to 1024 bits with --data DIR; else, in minutes on a CPU, digits and patches of the sample images,
gray and in color, at 8 to 128 bits.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import save, show
from nestcode import data
from nestcode.coders import AdaptiveCoder, Coder, LinearCoder, ResidualCoder
from nestcode.coders.refined import RefinedCoder, UNet
from nestcode.metrics import distortion
from nestcode.storage import read_record

Images = NDArray[Any]
METHODS = ("linear", "residual", "adaptive", "deep", "full only")


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    rows = []
    for name, train, test, lengths in tasks(options):
        found = [row for row in measure(train, test, lengths, options) if row]
        note = f"{len(train):,} training images of {train.shape[1:]}, {len(test):,} test images."
        show(f"MSE by bits: {name}", found, note)
        rows += [{"data": name, **row} for row in found]
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--width", type=int, metavar="K", help="bits of a code (1024 for CIFAR-10, 128 for the others)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="which methods (all)")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps, instead of the default")
    parser.add_argument("--batch-size", type=int, metavar="N", help="batch size, instead of the default")
    parser.add_argument("--channels", nargs="+", type=int, default=[16, 32], metavar="C", help="of the convolutions")
    parser.add_argument("--mirrored", action="store_true", help="augment by mirrored images")
    parser.add_argument("--learning-rate", type=float, metavar="R", help="learning rate, instead of the default")
    parser.add_argument("--beams", type=int, default=8, metavar="N", help="beams of the adaptive coder (8)")
    parser.add_argument("--base", type=Path, metavar="FILE", help="a fitted base coder, instead of a new one")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the RefinedCoder to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.steps = 3
    return options


def tasks(options: argparse.Namespace) -> Iterator[tuple[str, Images, Images, list[int]]]:
    """Yield a name, training images, test images and lengths."""
    if options.data is not None:
        cifar = data.cifar10(options.data)
        both = [part.reshape(-1, 3, 32, 32).astype(np.float32) / 255 for part in (cifar.train, cifar.test)]
        yield "CIFAR-10", both[0], both[1], [8, 16, 32, 64, 128, 256, 512, 1024]
        return
    rng, lengths = np.random.default_rng(0), [8, 16, 32, 64, 128]
    digits = rng.permutation(data.digits()[0].reshape(-1, 8, 8))
    if options.quick:
        yield "digits", digits[:300], digits[300:400], lengths
        return
    yield "digits", digits[:1400], digits[1400:], lengths
    samples = list(data.sample_images().values())
    for name, size in (("gray image patches", 28), ("color image patches", 16)):
        cut = data.patches(samples, size=size, n=12_000, rng=rng).astype(np.float32) / 255
        cut = cut.mean(axis=3) if "gray" in name else cut
        yield name, cut[:10_000], cut[10_000:], lengths


def measure(train: Images, test: Images, lengths: list[int], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the MSE of each method by length."""
    width = options.width or (32 if options.quick else lengths[-1])
    lengths = [length for length in lengths if length <= width]
    flat = train.reshape(len(train), -1)
    network = UNet(options.channels, flip=options.mirrored)
    training = network.TRAINING
    for name in ("steps", "batch_size", "learning_rate"):
        if getattr(options, name) is not None:
            training = training.but(**{name: getattr(options, name)})
    adaptive = AdaptiveCoder(width, beams=options.beams)
    simple: dict[str, Coder] = {"linear": LinearCoder(width), "residual": ResidualCoder(width), "adaptive": adaptive}
    for name in [name for name in simple if name in options.methods]:
        start = time.perf_counter()
        coder = simple[name].fit(flat)
        yield describe(name, coder, test, lengths, time.perf_counter() - start)
    fitted: Any = adaptive if options.data is not None and "adaptive" in options.methods else None
    if options.base is not None:
        record = read_record(options.base)  # a fitted coder keeps its settings: its record takes other beams
        fitted = AdaptiveCoder.from_record(
            replace(record, settings={**record.settings, "beams": options.beams}), options.base
        )
    start = time.perf_counter()
    base: Any = (AdaptiveCoder(width), ResidualCoder(width)) if fitted is None else fitted
    deep = RefinedCoder(base, network, training=training)
    if "deep" in options.methods:
        deep.fit(train)
        yield describe("deep", deep, test, lengths, time.perf_counter() - start)
        if options.save is not None:
            deep.save(options.save)
    if "full only" in options.methods:
        own = deep.base_ if "deep" in options.methods else fitted or adaptive.fit(flat)
        once = RefinedCoder(own, network, [width], training).fit(train)
        yield describe("full only", once, test, lengths, 0.0)
    variances = np.linalg.eigvalsh(np.cov(flat, rowvar=False))
    yield {"method": "bound", **{str(length): bound(variances, length) for length in lengths}, "fit": ""}


def describe(name: str, coder: Coder, test: Images, lengths: list[int], seconds: float) -> dict[str, Any]:
    """Return a row of the table."""
    flat = test.reshape(len(test), -1)
    codes = coder.encode(test if isinstance(coder, RefinedCoder) else flat)
    errors = {str(length): round(distortion(flat, coder.decode(codes.prefix(length))), 5) for length in lengths}
    row = {"method": name, **errors, "fit": f"{seconds:.0f} s"}
    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def bound(variances: NDArray[Any], bits: int) -> float:
    """Return the Gaussian rate-distortion bound (reverse water-filling) for these principal variances."""
    variances = np.maximum(variances, 1e-12)
    low, high = 1e-12, float(variances.max())
    for _ in range(100):
        level = float(np.sqrt(low * high))
        rate = 0.5 * np.log2(np.maximum(variances / level, 1)).sum()
        low, high = (level, high) if rate > bits else (low, level)
    return round(float(np.minimum(variances, high).mean()), 5)


if __name__ == "__main__":
    main()
