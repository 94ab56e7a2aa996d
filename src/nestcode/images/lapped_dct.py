"""The lapped transform: a DCT of blocks, with filters across their borders against blocking artifacts.

The time-domain lapped transform of Tran, Liang and Tu (2003): a pre-filter mixes the pixels on both sides of each block
border before the DCT, a post-filter undoes it after the inverse DCT, so that the quantization error of a block fades
into its neighbors. No pixel is coded twice. As in JPEG XR a second stage transforms the DC coefficients of 4 x 4
blocks, a macroblock, in the same way.

This file knows nothing of colors, quantization or bits.
"""

from typing import Any

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
        _filter_borders(filtered, axis, BLOCK, PREFILTER)
    count, height, width = filtered.shape
    blocks: Floats = filtered.reshape(count, height // BLOCK, BLOCK, width // BLOCK, BLOCK).swapaxes(2, 3)
    columns: Floats = DCT @ blocks
    out: Floats = columns @ DCT.T
    dc = out[..., 0, 0].astype(np.float64)
    for axis in (1, 2):
        _filter_borders(dc, axis, MACROBLOCK, DC_PREFILTER)
        _transform_macroblocks(dc, axis, DC_TRANSFORMS)
    out[..., 0, 0] = dc
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
        _filter_borders(filtered, axis, BLOCK, POSTFILTER)
    return filtered


def dc_subband(coefficients: Floats) -> Floats:
    """Return the DC coefficient of each block, the second stage undone: (channels, rows, columns)."""
    dc = coefficients[..., 0, 0].astype(np.float64)
    for axis in (2, 1):
        _transform_macroblocks(dc, axis, [matrix.T for matrix in DC_TRANSFORMS])
        _filter_borders(dc, axis, MACROBLOCK, DC_POSTFILTER)
    return dc.astype(np.float32)


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


def _filter_borders(channels: NDArray[Any], axis: int, block: int, matrix: NDArray[Any]) -> None:
    """Apply a filter across all block borders along an axis, in place."""
    overlap = len(matrix) // 2
    near = _blocks(channels, axis, block - overlap, block)[:, :, : 2 * overlap]
    near[:] = matrix @ near


def _transform_macroblocks(dc: NDArray[Any], axis: int, transforms: list[NDArray[Any]]) -> None:
    """Transform all macroblocks along an axis, in place, also a last one of fewer blocks."""
    whole = _blocks(dc, axis, 0, MACROBLOCK)
    whole[:] = transforms[-1] @ whole
    rest = dc.swapaxes(1, axis)[:, MACROBLOCK * whole.shape[1] :]
    if rest.size:
        rest[:] = transforms[rest.shape[1] - 1] @ rest


def _blocks(channels: NDArray[Any], axis: int, start: int, block: int) -> NDArray[Any]:
    """Return the complete blocks along an axis from `start` on, as a view: (channels, blocks, block, other axis)."""
    lines = channels.swapaxes(1, axis)[:, start:]
    count = lines.shape[1] // block
    return lines[:, : count * block].reshape(len(lines), count, block, lines.shape[2])


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
DC_PREFILTER = _prefilter(DC_OVERLAP)
DC_POSTFILTER = np.linalg.inv(DC_PREFILTER)
DC_TRANSFORMS = [_dct(size, 0) for size in range(1, MACROBLOCK + 1)]
