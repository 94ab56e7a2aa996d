"""The lapped transform: a DCT of blocks, with filters across their borders against blocking artifacts.

The time-domain lapped transform of Tran, Liang and Tu (2003): a pre-filter mixes the pixels on both sides of each block
border before the DCT, a post-filter undoes it after the inverse DCT, so that the quantization error of a block fades
into its neighbors. No pixel is coded twice. As in JPEG XR a second stage transforms the DC coefficients of 4 x 4
blocks, a macroblock, in the same way.

This file knows nothing of colors, quantization or bits. Its inverse is C++ (cpp/nestcode/image_reconstruction.hpp).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats

BLOCK = 16  # pixels on a side
MACROBLOCK = 4  # blocks on a side
OVERLAP, DC_OVERLAP = 6, 2  # pixels, and DC coefficients, on each side of a border that the filters mix
SCALING = 1.5  # of the pre-filter's lowest odd basis function, for coding gain on smooth images


def lapped_dct(channels: Floats) -> Floats:
    """Return the coefficients of all blocks.

    (channels, height, width), multiples of 16 -> (channels, rows, columns, 16, 16)
    """
    filtered: Floats = channels.astype(np.float32)
    for axis in (1, 2):
        filter_borders(filtered, axis, BLOCK, PREFILTER)
    count, height, width = filtered.shape
    blocks: Floats = filtered.reshape(count, height // BLOCK, BLOCK, width // BLOCK, BLOCK).swapaxes(2, 3)
    columns: Floats = DCT @ blocks
    out: Floats = columns @ DCT.T
    dc = out[..., 0, 0].astype(np.float64)
    for axis in (1, 2):
        filter_borders(dc, axis, MACROBLOCK, DC_PREFILTER)
        transform_macroblocks(dc, axis, DC_TRANSFORMS)
    out[..., 0, 0] = dc
    return out


def filter_borders(channels: NDArray[Any], axis: int, block: int, matrix: NDArray[Any]) -> None:
    """Apply a filter across all block borders along an axis, in place."""
    overlap = len(matrix) // 2
    near = _blocks(channels, axis, block - overlap, block)[:, :, : 2 * overlap]
    near[:] = matrix @ near


def transform_macroblocks(dc: NDArray[Any], axis: int, transforms: list[NDArray[Any]]) -> None:
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
DC_PREFILTER = _prefilter(DC_OVERLAP)
DC_TRANSFORMS = [_dct(size, 0) for size in range(1, MACROBLOCK + 1)]
