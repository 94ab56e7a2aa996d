"""Bit-plane coding: quantized coefficients as an embedded bitstream, and back from any prefix of it.

A dead-zone quantizer makes integers of the coefficients. Their magnitudes are coded plane by plane, each plane in a
significance, a refinement and a cleanup pass over all blocks, as in JPEG 2000; contexts of neighboring coefficients,
blocks and channels give each bit a probability, which a range coder spends. The passes and contexts are C++
(cpp/nestcode/image_bitplanes.hpp); encoder and decoder share them, in integers only, so that their
adaptive models agree on every machine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Doubles, Floats
from nestcode.images.color import GRAY, OPAQUE
from nestcode.storage import Arrays, check_arrays

MAX_PLANES = 15
PASSES = 3 * MAX_PLANES  # significance, refinement and cleanup of each plane
CHANNELS = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}  # luma, two chroma channels, alpha: by their number
LEAST = 1e-9  # squared error that is divided by
Sizes = NDArray[np.int64]  # bytes, of passes
UNLIMITED = 1 << 62  # bytes
UNWEIGHTED = 32  # the weight 1 of a step
# The arrays of a context model in files, by its version: probabilities, counts and mixing weights; additive weights.
MODEL_TYPES: dict[int, dict[str, type[Any]]] = {
    1: {"chances": np.uint16, "seen": np.uint8, "weights": np.int32},
    2: {"weights": np.int16},
}


@dataclass(frozen=True)
class Bitstream:
    """The bitstream of an image with its rate-distortion curve: after each pass, from plane 15 on, rate and error."""

    data: bytes
    sizes: tuple[int, ...]  # (PASSES,) bytes
    errors: tuple[float, ...]  # (PASSES,) mean squared error of a pixel value in [0, 255]; empty if not measured
    complete: int = PASSES  # passes, unless encoding stopped at a limit


def encode_planes(
    model: _core.ImageModel,
    channels: Iterable[Floats],
    step: float,
    rotation: bytes,
    limit: int,
    original: NDArray[np.uint8 | np.uint16] | None,
    weights: Sequence[int],
    *,
    adapt: bool,
) -> Bitstream:
    """Return the coefficients of channels, (rows, columns, 16, 16) each, as an embedded bitstream with its curve.

    It begins with the number of planes, the `rotation` of the colors and the `weights` of the step, by channel and in
    units of 1/32; none are all 1. Encoding stops at `limit` bytes: they are the first of the whole bitstream. If
    `original`, (height, width, channels), is given, the decoded image is compared with it after each pass and at the
    limit. With `adapt` the model keeps its adaptation to this image.
    """
    quantized, noise = _quantize(channels, step, weights)
    compared = np.empty((0, 0, 0), dtype=np.uint8) if original is None else np.ascontiguousarray(original)
    turned = np.frombuffer(rotation, dtype=np.int8).tolist()
    data, planes, whole, passes = _core.encode_image(
        model, CHANNELS[len(quantized)], quantized, limit, adapt, compared, step, turned, list(weights)
    )
    empty = 3 * (MAX_PLANES - planes)  # passes over planes that are all zeros
    coded = np.array([0] * empty + [size for size, _, _ in passes])  # bytes; the last pass may be incomplete
    if whole:
        coded[-1] = len(data)  # with the range coder's flush
    sizes = np.minimum(np.pad(coded, (0, PASSES - len(coded)), mode="edge"), limit)
    complete = len(coded) - (not whole or len(data) > limit)
    errors = np.empty(0)
    if original is not None:
        errors = np.full(PASSES, _gray_error(original))
        table = np.array(passes, dtype=np.float64).reshape(-1, 3)
        errors[empty:] = _pixel_errors(sizes[empty:], coded[empty:], table[:, 1] + noise, table[:, 2])
    return Bitstream(data[:limit], tuple(sizes.tolist()), tuple(errors.tolist()), complete)


def _quantize(channels: Iterable[Floats], step: float, weights: Sequence[int]) -> tuple[NDArray[np.int16], float]:
    """Return the coefficients of all channels as integers, and the squared error in steps."""
    quantized, noise = [], 0.0
    for k, coefficients in enumerate(channels):
        weight = weights[k] / UNWEIGHTED if weights else 1.0
        out = np.empty(coefficients.shape, dtype=np.int16)
        noise += weight**2 * _core.quantize_coefficients(coefficients, step, weight, out)
        quantized.append(out)
    return np.stack(quantized), noise


def _pixel_errors(sizes: Sizes, coded: Sizes, coefficients: Doubles, pixels: Doubles) -> Doubles:
    """Return the errors of pixels at some sizes, from those of coefficients, and those of pixels where not negative.

    The ratio of both is interpolated: it changes slowly with the rate, by filters, predicted gradients and clipping.
    """
    if not len(coded):
        return np.empty(0)
    known, total = pixels >= 0, np.maximum(coefficients, LEAST)
    ratios = np.interp(np.log(coded), np.log(coded[known]), pixels[known] / total[known])
    return np.interp(sizes, coded, total * ratios)


def _gray_error(original: NDArray[np.uint8 | np.uint16]) -> float:
    """Return the mean squared error of an image before any byte has arrived: gray and opaque."""
    scale, channels = np.iinfo(original.dtype).max / 255, original.shape[2]
    shown = np.array([GRAY] * (channels - 1 + channels % 2) + [OPAQUE] * (1 - channels % 2), dtype=np.float32)
    return float(np.mean(np.square(original / np.float32(scale) - shown), dtype=np.float64))


def model_arrays(model: _core.ImageModel) -> dict[str, NDArray[Any]]:
    """Return a context model as arrays, under the names that files have."""
    types = MODEL_TYPES[model.version]
    sizes = _core.image_model_sizes(model.version)
    arrays = {name: np.empty(size, dtype) for (name, dtype), size in zip(types.items(), sizes, strict=True)}
    model.save(*arrays.values())
    return arrays


def set_model(model: _core.ImageModel, version: int, arrays: Arrays) -> None:
    """Set a context model to the arrays of `model_arrays`; raise if they are not such arrays."""
    types = MODEL_TYPES[version]
    sizes = _core.image_model_sizes(version)
    check_arrays(arrays, {name: (dtype, (size,)) for (name, dtype), size in zip(types.items(), sizes, strict=True)})
    model.load(*(arrays[name] for name in types))
