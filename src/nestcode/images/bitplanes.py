"""Bit-plane coding: quantized coefficients as an embedded bitstream, and back from any prefix of it.

A dead-zone quantizer makes integers of the coefficients. Their magnitudes are coded plane by plane, each plane in a
significance, a refinement and a cleanup pass over all blocks, as in JPEG 2000; contexts of neighboring coefficients,
blocks and channels give each bit a probability, which a range coder spends. The passes and contexts are C++
(cpp/nestcode/image_bitplanes.hpp); encoder and decoder share them, in integers only, so that their
adaptive models agree on every machine.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.storage import Arrays, check_arrays

MAX_PLANES = 15
PASSES = 3 * MAX_PLANES  # significance, refinement and cleanup of each plane
CHANNELS = {1: [0], 2: [0, 3], 3: [0, 1, 2], 4: [0, 1, 2, 3]}  # luma, two chroma channels, alpha: by their number
UNLIMITED = 1 << 62  # bytes
LATER_BITS = 0.48  # where in its interval a magnitude of which several bits are known is reconstructed
PIXEL_SHARE = 0.8  # of the squared error of coefficients that reaches pixels, after post-filter and prediction


@dataclass(frozen=True)
class Bitstream:
    """The bitstream of an image with its rate-distortion curve: after each pass, from plane 15 on, rate and error."""

    data: bytes
    sizes: tuple[int, ...]  # (PASSES,) bytes
    errors: tuple[float, ...]  # (PASSES,) estimated squared error of a pixel value in [0, 255]


def encode_planes(
    model: _core.ImageModel, coefficients: Floats, step: float, header: bytes, limit: int, *, adapt: bool
) -> Bitstream:
    """Return coefficients, (channels, rows, columns, 16, 16), as an embedded bitstream with its rate-distortion curve.

    It begins with the number of planes and the few bytes of `header`. Encoding stops after about `limit` bytes. With
    `adapt` the model keeps what it learns from this image. The coefficients are overwritten, to save memory.
    """
    coefficients /= np.float32(step)
    quantized = np.empty(coefficients.shape, dtype=np.int32)
    largest = (1 << MAX_PLANES) - 1
    np.clip(coefficients, -largest, largest, out=quantized, casting="unsafe")  # a dead zone: truncated toward 0
    error = float(np.vdot(coefficients, coefficients)) * step**2 / quantized.size
    floor = sum(map(_quantization_error, coefficients, quantized)) * step**2 / quantized.size
    del coefficients
    planes = max(int(quantized.max()), -int(quantized.min())).bit_length()
    data, passes = _core.encode_image(model, CHANNELS[len(quantized)], quantized, planes, limit, adapt)
    start = bytes([planes | bool(header) << 7]) + header
    empty = 3 * (MAX_PLANES - planes)  # passes over planes that are all zeros
    sizes = [0] * empty + [len(start) + size for size, _ in passes]
    errors = [PIXEL_SHARE * error] * empty
    errors += [floor + PIXEL_SHARE * left * step**2 / quantized.size for _, left in passes]
    rest = PASSES - len(sizes)  # passes beyond the limit
    sizes, errors = sizes + [0] * rest, errors + errors[-1:] * rest
    sizes[len(sizes) - rest - 1 :] = [len(start) + len(data)] * (rest + 1)
    return Bitstream(start + data, tuple(sizes), tuple(errors))


def _quantization_error(scaled: Floats, quantized: NDArray[np.int32]) -> float:
    """Return the squared error of a channel that all planes together leave, in squared steps."""
    error: Floats = np.abs(scaled) - np.abs(quantized)
    error[quantized != 0] -= np.float32(LATER_BITS)
    return float(np.vdot(error, error))


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
