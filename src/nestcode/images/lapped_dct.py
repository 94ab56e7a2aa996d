"""Lapped cosines: tiles of a picture that do not know their borders.

Before a picture is cut into tiles, what lies on both sides of a border is mixed; after tiles are put together it is
mixed back, and errors of one tile fade into the next. So there are no seams, and no pixel is coded twice. The mixing is
that of the time-domain lapped transform (Tran, Liang and Tu 2003): the sum of two pixels at equal distances from the
border stays, their differences are turned by V. Means of 4 x 4 tiles are transformed once more, as they are much alike.
"""

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats

TILE, SPAN = 16, 4  # pixels, and tiles, on a side
REACH, SPAN_REACH = 6, 2  # pixels, and means, on each side of a border that are mixed
STRETCH = 1.5  # of the slowest difference, for what it gains on smooth pictures


def to_tiles(channels: Floats) -> Floats:
    """(channels, height, width), multiples of 16 -> cosines of its tiles, (channels, rows, columns, 16, 16)."""
    mixed: Floats = channels.astype(np.float32)
    for axis in (1, 2):
        _mix(mixed, axis, MIX)
    count, height, width = mixed.shape
    tiles: Floats = mixed.reshape(count, height // TILE, TILE, width // TILE, TILE).swapaxes(2, 3)
    down: Floats = COSINES @ tiles
    out: Floats = down @ COSINES.T
    out[..., 0, 0] = _spans(height // TILE) @ out[..., 0, 0] @ _spans(width // TILE).T
    return out


def from_tiles(cosines: Floats) -> Floats:
    """What `to_tiles` was given."""
    count, rows, columns = cosines.shape[:3]
    cosines = cosines.copy()
    cosines[..., 0, 0] = means_of(cosines)
    down: Floats = COSINES.T @ cosines
    tiles: Floats = down @ COSINES
    mixed: Floats = np.ascontiguousarray(tiles.swapaxes(2, 3)).reshape(count, rows * TILE, columns * TILE)
    for axis in (2, 1):
        _mix(mixed, axis, UNMIX)
    return mixed


def means_of(cosines: Floats) -> Floats:
    """The first cosine of each tile before spans were transformed, (channels, rows, columns)."""
    down, right = (np.linalg.inv(_spans(size)) for size in cosines.shape[1:3])
    means: Floats = (down @ cosines[..., 0, 0] @ right.T).astype(np.float32)
    return means


def _spans(count: int) -> Floats:
    """The matrix that mixes `count` numbers across the borders of spans, and transforms spans by cosines."""
    mixed, cosines = np.eye(count), np.zeros((count, count))
    for first in range(0, count, SPAN):
        last = min(count, first + SPAN)
        cosines[first:last, first:last] = _cosines(last - first, 0)
        if first and first + SPAN_REACH <= count:
            near = slice(first - SPAN_REACH, first + SPAN_REACH)
            mixed[near, near] = _mixing(SPAN_REACH)
    out: Floats = (cosines @ mixed).astype(np.float32)
    return out


def _mix(channels: Floats, axis: int, matrix: Floats) -> None:
    """Mix across all borders along an axis, in place."""
    for border in range(TILE, channels.shape[axis], TILE):
        near = slice(border - REACH, border + REACH)
        if axis == 1:
            channels[:, near] = matrix @ channels[:, near]
        else:
            channels[:, :, near] = channels[:, :, near] @ matrix.T


def _cosines(count: int, shift: float) -> NDArray[np.float64]:
    """Cosines as rows, from the slowest; shift 0 is the DCT-II, 1/2 the DCT-IV."""
    speeds, places = np.arange(count)[:, None] + shift, np.arange(count) + 0.5
    rows = np.cos(np.pi / count * speeds * places)
    out: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return out


def _mixing(reach: int) -> NDArray[np.float64]:
    """The matrix that mixes so many numbers on each side of a border."""
    same, none = np.eye(reach), np.zeros((reach, reach))
    flip = same[::-1]
    stretch = np.diag([STRETCH] + [1] * (reach - 1))
    turn = flip @ _cosines(reach, 0).T @ stretch @ _cosines(reach, 0.5) @ flip
    sums = np.block([[same, flip], [flip, -same]]) / np.sqrt(2)
    out: NDArray[np.float64] = sums @ np.block([[same, none], [none, turn]]) @ sums
    return out


COSINES: Floats = _cosines(TILE, 0).astype(np.float32)
MIX: Floats = _mixing(REACH).astype(np.float32)
UNMIX: Floats = np.linalg.inv(_mixing(REACH)).astype(np.float32)
