"""Colors of a picture, turned so that most of what there is to say is in the first channel.

Lightness and two differences of colors do well for every picture; a large one says in three bytes which turn of them
does best for it: towards the directions in which its neighbouring pixels differ.
"""

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.images.lapped_dct import TILE

MIDDLE, OPAQUE = 128, 255  # what channels are counted from
TURN = 3  # bytes
WORTH = 1 << 14  # pixels that make them worth it
SAMPLE = 1 << 20  # pixels that are looked at
USUAL = np.array([[1, 1, 1], [1, 0, -1], [-1, 2, -1]]) / np.sqrt([[3], [2], [6]])  # lightness, red to blue, green


def find_turn(picture: NDArray[np.uint8]) -> bytes:
    """The bytes that say how colors are turned, or none where the usual ones do."""
    if picture.ndim == 2 or picture.shape[2] < 3 or picture.shape[0] * picture.shape[1] < WORTH:
        return b""
    some = picture[:: 1 + picture.shape[0] * picture.shape[1] // SAMPLE, :, :3]
    steps = np.diff(some.astype(np.float32), axis=1).reshape(-1, 3)
    directions = np.linalg.eigh(steps.T @ steps)[1][:, ::-1].T
    turn = directions @ USUAL.T
    turn *= np.where(np.diag(turn) < 0, -1, 1)[:, None]  # towards the usual ones
    if np.linalg.det(turn) < 0:
        turn[2] *= -1
    quaternion = np.array([1 + np.trace(turn), *(turn[j, i] - turn[i, j] for i, j in ((1, 2), (2, 0), (0, 1)))])
    length = np.linalg.norm(quaternion)
    if length < 1e-3:  # half a turn: as good as none
        return b""
    return bytes(np.rint(127 * quaternion[1:] / length).astype(np.int8))


def colors_of(turn: bytes) -> Floats:
    """The channels as directions of red, green and blue, (3, 3).

    >>> np.round(colors_of(b"").astype(float), 2).tolist()
    [[0.58, 0.58, 0.58], [0.71, 0.0, -0.71], [-0.41, 0.82, -0.41]]
    """
    vector = np.frombuffer(turn or bytes(TURN), dtype=np.int8) / 127
    square = min(float(vector @ vector), 1.0)
    w, (x, y, z) = np.sqrt(1 - square), vector / max(1.0, float(np.linalg.norm(vector)))
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation = np.eye(3) + 2 * w * cross + 2 * cross @ cross
    return np.ascontiguousarray(rotation @ USUAL, dtype=np.float32)


def to_channels(picture: NDArray[np.uint8], colors: Floats) -> Floats:
    """(height, width[, channels]) bytes -> (channels, height, width) around 0, filled up to whole tiles."""
    planes = picture[..., None] if picture.ndim == 2 else picture
    fill = [(0, -size % TILE) for size in planes.shape[:2]]
    numbers = np.pad(planes, [*fill, (0, 0)], mode="symmetric").astype(np.float32)
    count = numbers.shape[2]
    if count in (2, 4):
        numbers[..., -1] -= OPAQUE
        numbers[..., :-1] -= MIDDLE
    else:
        numbers -= MIDDLE
    if count >= 3:
        numbers[..., :3] = numbers[..., :3] @ colors.T
    return np.ascontiguousarray(np.moveaxis(numbers, 2, 0))


def to_pixels(channels: Floats, colors: Floats, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """What `to_channels` was given, as far as the channels know."""
    numbers = np.moveaxis(channels, 0, 2)[: shape[0], : shape[1]].copy()
    count = numbers.shape[2]
    if count >= 3:
        numbers[..., :3] = numbers[..., :3] @ colors
    numbers += MIDDLE
    if count in (2, 4):
        numbers[..., -1] += OPAQUE - MIDDLE
    pixels: NDArray[np.uint8] = np.clip(np.rint(numbers), 0, 255).astype(np.uint8).reshape(shape)
    return pixels
