"""Image data sets as rows of pixels."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.metrics import distortion

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """Training and test images, one row of bytes each: planes of red, green and blue, (n, 3 * side * side)."""

    name: str
    side: int
    train: Pixels
    test: Pixels
    labels: Pixels | None  # of the training images
    test_labels: Pixels | None

    def as_images(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows as images, (n, features) -> (n, side, side, 3)."""
        return rows.reshape(-1, 3, self.side, self.side).transpose(0, 2, 3, 1)

    def downsampled(self, side: int) -> "Images":
        """Return the images with at most `side` pixels a side, each the mean of a square of pixels."""
        factor = self.side // min(side, self.side)

        def downsample(rows: Pixels) -> Pixels:
            squares = rows.reshape(-1, 3, self.side // factor, factor, self.side // factor, factor)
            return np.asarray(squares.mean(axis=(3, 5)).round().astype(np.uint8).reshape(len(rows), -1))

        return replace(self, side=self.side // factor, train=downsample(self.train), test=downsample(self.test))


def as_rows(pixels: Pixels) -> Floats:
    """Return 8-bit pixels as float32 from 0 to 1."""
    return np.divide(pixels, 255, dtype=np.float32)


def as_pixels(rows: Floats) -> Pixels:
    """Return values from 0 to 1 as 8-bit pixels, clipped and rounded."""
    pixels: Pixels = np.rint(255 * rows.clip(0, 1)).astype(np.uint8)
    return pixels


def pixel_mse(original: Pixels, decoded: Pixels) -> float:
    """Return the mean squared error of 8-bit pixels on the scale from 0 to 1.

    >>> pixel_mse(np.array([255, 0], dtype=np.uint8), np.array([0, 0], dtype=np.uint8))
    0.5
    """
    return distortion(original, decoded) / 255**2
