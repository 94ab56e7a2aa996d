"""The plain twin of the decoder's reconstruction (cpp/nestcode/image_reconstruction.hpp), in NumPy."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.images.bitplanes import CHANNELS, UNWEIGHTED
from nestcode.images.codec import ImageDecoder
from nestcode.images.color import GRAY, OPAQUE, color_matrix
from nestcode.images.lapped_dct import (
    BLOCK,
    DC_PREFILTER,
    DC_TRANSFORMS,
    DCT,
    MACROBLOCK,
    PREFILTER,
    filter_borders,
    transform_macroblocks,
)

# Where in its interval a magnitude is reconstructed: once its first bit is known, and once more bits are.
FIRST_BIT, LATER_BITS = 0.4, 0.48
Filter = Callable[[Floats, Floats], Floats]
GRADIENT = 0.11  # the lowest AC coefficients, as a share of the difference of the DC coefficients on both sides


def known_values(decoder: ImageDecoder) -> NDArray[np.int32]:
    """What a decoder knows of each coefficient, (channels, rows, columns, 16, 16)."""
    rows, columns = (-(-size // BLOCK) for size in decoder.shape[:2])
    known = np.array(decoder._decoder.known, dtype=np.int32)
    return known.reshape(-1 if known.size else 0, rows, columns, BLOCK, BLOCK)


def pixel_values(
    decoder: ImageDecoder, data: bytes, step: float, plane: int, reduction: int = 1, filtered: Filter | None = None
) -> Floats:
    """Pixels before they are rounded, from what a decoder knows after `data`; planes down to `plane` are complete.

    With a reduction, means of squares of pixels, of the lowest frequencies of each block. With a filter, what it makes
    of the channels and the weights of their steps.
    """
    coefficients = reconstruct(known_values(decoder))
    assert len(coefficients) == len(CHANNELS[(*decoder.shape, 1)[2]])
    predict_gradients(coefficients, 2**plane)
    at, count = 4 if data[0] & 0x80 else 1, len(coefficients)
    coded = data[at : at + count] if data[0] & 0x20 else bytes([UNWEIGHTED] * count)
    weights = np.frombuffer(coded, dtype=np.uint8).astype(np.float32) / np.float32(UNWEIGHTED)
    side = BLOCK // reduction
    coefficients[..., side:, :] = coefficients[..., side:] = 0
    channels = inverse_lapped_dct(coefficients * (np.float32(step) * weights).reshape(-1, 1, 1, 1, 1))
    if filtered is not None:
        channels = filtered(channels, weights)
    squares = channels.reshape(count, channels.shape[1] // reduction, reduction, -1, reduction)
    height, width, *_ = (-(-size // reduction) for size in decoder.shape)
    values = np.moveaxis(squares.mean((2, 4)), 0, 2)[:height, :width].copy()
    if count >= 3:
        values[..., :3] = values[..., :3] @ color_matrix(data[1:4] if data[0] >> 7 else b"")
    values += GRAY
    if count in (2, 4):
        values[..., -1] += OPAQUE - GRAY
    pixels: Floats = np.clip(values, 0, 255).reshape(height, width, *decoder.shape[2:])
    return pixels


def reconstruct(known: NDArray[np.int32]) -> Floats:
    """Estimate coefficients, in steps: (2 m + 1) 2^p stands for a magnitude in [m 2^p, (m + 1) 2^p)."""
    doubled = np.abs(known)
    interval = doubled & -doubled
    low = doubled - interval >> 1
    place = np.where(low == interval, np.float32(FIRST_BIT), np.float32(LATER_BITS))
    return np.asarray(np.copysign(low + interval * place, known), dtype=np.float32)


def inverse_lapped_dct(coefficients: Floats) -> Floats:
    """(channels, rows, columns, 16, 16) -> (channels, height, width)."""
    count, rows, columns = coefficients.shape[:3]
    coefficients = coefficients.copy()
    coefficients[..., 0, 0] = dc_subband(coefficients)
    blocks: Floats = (DCT.T @ coefficients @ DCT).astype(np.float32)
    filtered: Floats = np.ascontiguousarray(blocks.swapaxes(2, 3)).reshape(count, rows * BLOCK, columns * BLOCK)
    for axis in (2, 1):
        filter_borders(filtered, axis, BLOCK, np.linalg.inv(PREFILTER))
    return filtered


def dc_subband(coefficients: Floats) -> Floats:
    """Return the DC coefficient of each block, the second stage undone: (channels, rows, columns)."""
    dc = coefficients[..., 0, 0].astype(np.float64)
    for axis in (2, 1):
        transform_macroblocks(dc, axis, [matrix.T for matrix in DC_TRANSFORMS])
        filter_borders(dc, axis, MACROBLOCK, np.linalg.inv(DC_PREFILTER))
    return dc.astype(np.float32)


def predict_gradients(coefficients: Floats, bound: int) -> None:
    """Predict the lowest AC coefficients that are still 0 from the DC coefficients of the neighbors, in place."""
    dc = np.pad(dc_subband(coefficients), [(0, 0), (1, 1), (1, 1)], mode="edge")
    for lowest, difference in (
        (coefficients[..., 0, 1], dc[:, 1:-1, :-2] - dc[:, 1:-1, 2:]),
        (coefficients[..., 1, 0], dc[:, :-2, 1:-1] - dc[:, 2:, 1:-1]),
    ):
        lowest[lowest == 0] = np.clip(GRADIENT * difference, -bound / 2, bound / 2)[lowest == 0]
