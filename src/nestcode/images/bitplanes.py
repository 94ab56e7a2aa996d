"""Bit-plane coding: quantized coefficients as an embedded bitstream, and back from any prefix of it.

A dead-zone quantizer makes integers of the coefficients. Their magnitudes are coded plane by plane, each plane in a
significance, a refinement and a cleanup pass over all blocks, as in JPEG 2000; contexts of neighboring coefficients,
blocks and channels give each bit a probability, which a range coder spends. The passes and contexts are C++
(cpp/nestcode/image_bitplanes.hpp); encoder and decoder share them, in integers only, so that their
adaptive models agree on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.images.color import GRAY, OPAQUE
from nestcode.storage import Arrays, check_arrays

MAX_PLANES = 15
PASSES = 3 * MAX_PLANES  # significance, refinement and cleanup of each plane
CHANNELS = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}  # luma, two chroma channels, alpha: by their number
UNLIMITED = 1 << 62  # bytes
UNWEIGHTED = 32  # the weight 1 of a step


@dataclass(frozen=True)
class Bitstream:
    """The bitstream of an image with its rate-distortion curve: after each pass, from plane 15 on, rate and error."""

    data: bytes
    sizes: tuple[int, ...]  # (PASSES,) bytes
    errors: tuple[float, ...]  # (PASSES,) mean squared error of a pixel value in [0, 255]; empty if not measured


def encode_planes(
    model: _core.ImageModel,
    coefficients: Floats,
    step: float,
    rotation: bytes,
    limit: int,
    original: NDArray[np.uint8 | np.uint16] | None,
    weights: Sequence[int],
    *,
    adapt: bool,
) -> Bitstream:
    """Return coefficients, (channels, rows, columns, 16, 16), as an embedded bitstream with its rate-distortion curve.

    It begins with the number of planes, the `rotation` of the colors and the `weights` of the step, by channel and in
    units of 1/32; none are all 1. Encoding stops after about `limit` bytes. What a receiver shows after each pass is
    compared with `original`, (height, width, channels), if that is given. With `adapt` the model keeps what it learns
    from this image. The coefficients are overwritten, to save memory.
    """
    coefficients /= np.float32(step)
    if weights:
        coefficients /= (np.array(weights, dtype=np.float32) / UNWEIGHTED).reshape(-1, 1, 1, 1, 1)
    quantized = np.empty(coefficients.shape, dtype=np.int32)
    largest = (1 << MAX_PLANES) - 1
    np.clip(coefficients, -largest, largest, out=quantized, casting="unsafe")  # a dead zone: truncated toward 0
    del coefficients
    compared = np.empty((0, 0, 0), dtype=np.uint8) if original is None else np.ascontiguousarray(original)
    turned = np.frombuffer(rotation, dtype=np.int8).tolist()
    data, planes, passes = _core.encode_image(
        model, CHANNELS[len(quantized)], quantized, limit, adapt, compared, step, turned, list(weights)
    )
    empty = 3 * (MAX_PLANES - planes)  # passes over planes that are all zeros
    sizes = [0] * empty + [size for size, _ in passes]
    rest = PASSES - len(sizes)  # passes beyond the limit
    sizes += [0] * rest
    sizes[len(sizes) - rest - 1 :] = [len(data)] * (rest + 1)
    if original is None:
        return Bitstream(data, tuple(sizes), ())
    errors = np.array([_gray_error(original)] * empty + [error for _, error in passes])
    known = np.flatnonzero(errors >= 0)
    filled = np.interp(sizes, np.array(sizes)[known], errors[known])
    return Bitstream(data, tuple(sizes), tuple(filled.tolist()))


def _gray_error(original: NDArray[np.uint8 | np.uint16]) -> float:
    """Return the mean squared error of an image of which nothing arrived: gray, and opaque."""
    scale, channels = np.iinfo(original.dtype).max / 255, original.shape[2]
    shown = np.array([GRAY] * (channels - 1 + channels % 2) + [OPAQUE] * (1 - channels % 2), dtype=np.float32)
    return float(np.mean(np.square(original / np.float32(scale) - shown), dtype=np.float64))


def model_arrays(model: _core.ImageModel) -> dict[str, NDArray[Any]]:
    """Return a context model as arrays, under the names that files have: probabilities, confidences, mixing weights."""
    contexts, weights = _core.image_model_sizes()
    arrays: dict[str, NDArray[Any]] = {
        "chances": np.empty(contexts, np.uint16),
        "seen": np.empty(contexts, np.uint8),
        "weights": np.empty(weights, np.int32),
    }
    model.save(arrays["chances"], arrays["seen"], arrays["weights"])
    return arrays


def set_model(model: _core.ImageModel, arrays: Arrays) -> None:
    """Set a context model to the arrays of `model_arrays`; raise if they are not such arrays."""
    contexts, weights = _core.image_model_sizes()
    expected = {
        "chances": (np.uint16, (contexts,)),
        "seen": (np.uint8, (contexts,)),
        "weights": (np.int32, (weights,)),
    }
    check_arrays(arrays, expected)
    model.load(arrays["chances"], arrays["seen"], arrays["weights"])
