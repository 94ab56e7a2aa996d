"""The color transform: opponent colors, rotated toward the KLT of the image.

Ohta's opponent channels I1 I2 I3 (luma, red against blue, green against magenta), orthonormal, decorrelate the colors
of most images. A large image spends three bytes on a rotation from there toward its own KLT: the principal axes of
the differences between horizontal neighbors. Gray and alpha channels stay as they are. The decoder's inverse is C++
(cpp/nestcode/image_reconstruction.hpp).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.images.lapped_dct import BLOCK

GRAY, OPAQUE = 128, 255  # the values that color and alpha channels are centered on
ROTATION_BYTES = 3  # the vector part of a unit quaternion
MIN_PIXELS = 1 << 14  # of an image for which a rotation pays
STRIP = 64  # lines that are transformed at once
SAMPLE = 1 << 20  # pixels that the KLT is estimated on, roughly
OHTA = np.array([[1, 1, 1], [1, 0, -1], [-1, 2, -1]]) / np.sqrt([[3], [2], [6]])


def find_rotation(image: NDArray[Any], scale: int = 1) -> bytes:
    """Return the rotation from Ohta's channels to the image's KLT as three bytes, or none where it does not pay."""
    if image.ndim == 2 or image.shape[2] < 3 or image.shape[0] * image.shape[1] < MIN_PIXELS:
        return b""
    sample = image[:: 1 + image.shape[0] * image.shape[1] // SAMPLE, :, :3]
    differences = np.diff(sample / np.float32(scale), axis=1).reshape(-1, 3)
    principal = np.linalg.eigh(differences.T @ differences)[1][:, ::-1].T
    rotation = principal @ OHTA.T
    rotation *= np.where(np.diag(rotation) < 0, -1, 1)[:, None]  # signs of axes are free: the nearest to Ohta's
    if np.linalg.det(rotation) < 0:
        rotation[2] *= -1
    quaternion = np.array(
        [1 + np.trace(rotation), *(rotation[j, i] - rotation[i, j] for i, j in ((1, 2), (2, 0), (0, 1)))]
    )
    norm = np.linalg.norm(quaternion)
    if norm < 1e-3:  # a rotation by 180 degrees, whose axis this formula loses
        return b""
    return bytes(np.rint(127 * quaternion[1:] / norm).astype(np.int8))


def color_matrix(rotation: bytes) -> Floats:
    """Return the channels as directions of red, green and blue, (3, 3), orthonormal.

    >>> np.round(color_matrix(b"").astype(float), 2).tolist()
    [[0.58, 0.58, 0.58], [0.71, 0.0, -0.71], [-0.41, 0.82, -0.41]]
    """
    vector = np.frombuffer(rotation or bytes(ROTATION_BYTES), dtype=np.int8) / 127
    square = min(float(vector @ vector), 1.0)
    w, (x, y, z) = np.sqrt(1 - square), vector / max(1.0, float(np.linalg.norm(vector)))
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    matrix = np.eye(3) + 2 * w * cross + 2 * cross @ cross
    return np.ascontiguousarray(matrix @ OHTA, dtype=np.float32)


def to_channels(image: NDArray[Any], colors: Floats, scale: int = 1) -> Floats:
    """Return the channels of an image with values up to 255 times `scale`, centered and padded to complete blocks.

    (height, width[, channels]) -> (channels, height, width), multiples of 16
    """
    pixels = image[..., None] if image.ndim == 2 else image
    padding = [(0, -size % BLOCK) for size in pixels.shape[:2]]
    padded = np.pad(pixels, [*padding, (0, 0)], mode="symmetric")
    height, width, count = padded.shape
    out = np.empty((count, height, width), dtype=np.float32)
    for top in range(0, height, STRIP):  # the whole image as floats would take memory twice
        values = padded[top : top + STRIP] / np.float32(scale)
        if count in (2, 4):
            values[..., -1] -= OPAQUE
            values[..., :-1] -= GRAY
        else:
            values -= GRAY
        if count >= 3:
            values[..., :3] = values[..., :3] @ colors.T
        out[:, top : top + STRIP] = np.moveaxis(values, 2, 0)
    return out
