"""The lapped transform: a DCT of blocks, with filters across their borders against blocking artifacts.

The time-domain lapped transform of Tran, Liang and Tu (2003): a pre-filter mixes the pixels on both sides of each block
border before the DCT, a post-filter undoes it after the inverse DCT, so that the quantization error of a block fades
into its neighbors. No pixel is coded twice. As in JPEG XR a second stage transforms the DC coefficients of 4 x 4
blocks, a macroblock, in the same way.

This file knows nothing of colors, quantization or bits.
"""

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats

BLOCK = 16  # pixels on a side
MACROBLOCK = 4  # blocks on a side
OVERLAP, DC_OVERLAP = 6, 2  # pixels, and DC coefficients, on each side of a border that the filters mix
SCALING = 1.5  # of the pre-filter's lowest odd basis function, for coding gain on smooth images
GRADIENT = 0.11  # the lowest AC coefficients, as a share of the difference of the DC coefficients on both sides


def lapped_dct(channels: Floats) -> Floats:
    """Return the coefficients of all blocks.

    (channels, height, width), multiples of 16 -> (channels, rows, columns, 16, 16)
    """
    filtered: Floats = channels.astype(np.float32)
    for axis in (1, 2):
        _filter_borders(filtered, axis, PREFILTER)
    count, height, width = filtered.shape
    blocks: Floats = filtered.reshape(count, height // BLOCK, BLOCK, width // BLOCK, BLOCK).swapaxes(2, 3)
    columns: Floats = DCT @ blocks
    out: Floats = columns @ DCT.T
    out[..., 0, 0] = _dc_transform(height // BLOCK) @ out[..., 0, 0] @ _dc_transform(width // BLOCK).T
    return out


def inverse_lapped_dct(coefficients: Floats) -> Floats:
    """Return the channels of all blocks' coefficients.

    (channels, rows, columns, 16, 16) -> (channels, height, width)
    """
    count, rows, columns = coefficients.shape[:3]
    coefficients = coefficients.copy()
    coefficients[..., 0, 0] = dc_subband(coefficients)
    vertical: Floats = DCT.T @ coefficients
    blocks: Floats = vertical @ DCT
    filtered: Floats = np.ascontiguousarray(blocks.swapaxes(2, 3)).reshape(count, rows * BLOCK, columns * BLOCK)
    for axis in (2, 1):
        _filter_borders(filtered, axis, POSTFILTER)
    return filtered


def dc_subband(coefficients: Floats) -> Floats:
    """Return the DC coefficient of each block, the second stage undone: (channels, rows, columns)."""
    vertical, horizontal = (np.linalg.inv(_dc_transform(size)) for size in coefficients.shape[1:3])
    subband: Floats = (vertical @ coefficients[..., 0, 0] @ horizontal.T).astype(np.float32)
    return subband


def predict_gradients(coefficients: Floats, bound: int) -> None:
    """Predict the lowest AC coefficients that are still 0 from the DC coefficients of the neighbors, in place.

    The block smoothing of JPEG (annex K.8): a block of which only the DC is known continues the gradient around it. No
    prediction exceeds `bound` / 2, since a larger coefficient would already be significant.
    """
    dc = np.pad(dc_subband(coefficients), [(0, 0), (1, 1), (1, 1)], mode="edge")
    for lowest, difference in (
        (coefficients[..., 0, 1], dc[:, 1:-1, :-2] - dc[:, 1:-1, 2:]),
        (coefficients[..., 1, 0], dc[:, :-2, 1:-1] - dc[:, 2:, 1:-1]),
    ):
        lowest[lowest == 0] = np.clip(GRADIENT * difference, -bound / 2, bound / 2)[lowest == 0]


def _dc_transform(count: int) -> Floats:
    """Return the matrix of the second stage for a row of `count` blocks: pre-filter, then DCT of macroblocks."""
    prefilter, dct = np.eye(count), np.zeros((count, count))
    for first in range(0, count, MACROBLOCK):
        last = min(count, first + MACROBLOCK)
        dct[first:last, first:last] = _dct(last - first, 0)
        if first and first + DC_OVERLAP <= count:
            near = slice(first - DC_OVERLAP, first + DC_OVERLAP)
            prefilter[near, near] = _prefilter(DC_OVERLAP)
    out: Floats = (dct @ prefilter).astype(np.float32)
    return out


def _filter_borders(channels: Floats, axis: int, matrix: Floats) -> None:
    """Apply a filter across all block borders along an axis, in place."""
    for border in range(BLOCK, channels.shape[axis], BLOCK):
        near = slice(border - OVERLAP, border + OVERLAP)
        if axis == 1:
            channels[:, near] = matrix @ channels[:, near]
        else:
            channels[:, :, near] = channels[:, :, near] @ matrix.T


def _dct(count: int, shift: float) -> NDArray[np.float64]:
    """Return an orthonormal DCT, basis functions as rows: type II for shift 0, type IV for shift 1/2."""
    frequencies, places = np.arange(count)[:, None] + shift, np.arange(count) + 0.5
    rows = np.cos(np.pi / count * frequencies * places)
    out: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return out


def _prefilter(overlap: int) -> NDArray[np.float64]:
    """Return the pre-filter for `overlap` values on each side of a border, (2 overlap, 2 overlap).

    A butterfly separates even from odd parts; the even part stays, the odd part is multiplied by
    V = J C_II' S C_IV J, with S the scaling.
    """
    same, none = np.eye(overlap), np.zeros((overlap, overlap))
    flip = same[::-1]
    scaling = np.diag([SCALING] + [1] * (overlap - 1))
    odd = flip @ _dct(overlap, 0).T @ scaling @ _dct(overlap, 0.5) @ flip
    butterfly = np.block([[same, flip], [flip, -same]]) / np.sqrt(2)
    out: NDArray[np.float64] = butterfly @ np.block([[same, none], [none, odd]]) @ butterfly
    return out


DCT: Floats = _dct(BLOCK, 0).astype(np.float32)
PREFILTER: Floats = _prefilter(OVERLAP).astype(np.float32)
POSTFILTER: Floats = np.linalg.inv(_prefilter(OVERLAP)).astype(np.float32)
