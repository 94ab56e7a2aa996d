"""Pixels, and how far apart two images are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from nestcode.arrays import Floats

Pixels = NDArray[np.uint8]


def as_rows(pixels: Pixels) -> Floats:
    """Pixels between 0 and 1."""
    return np.divide(pixels, 255, dtype=np.float32)


def as_pixels(rows: Floats) -> Pixels:
    """The nearest whole numbers from 0 to 255."""
    whole: Pixels = np.rint(255 * rows.clip(0, 1)).astype(np.uint8)
    return whole


def pixel_error(true: Pixels, made: Pixels) -> float:
    """The mean square of the difference of pixels between 0 and 1.

    >>> pixel_error(np.array([255, 0], dtype=np.uint8), np.array([0, 0], dtype=np.uint8))
    0.5
    """
    difference = np.subtract(true, made, dtype=np.int32)
    return float(np.mean(np.square(difference))) / 255**2


def decibels(error: float) -> float:
    """PSNR of a squared error of pixels between 0 and 1.

    >>> decibels(0.01)
    20.0
    """
    return round(float(-10 * np.log10(error)), 2)


def ssim(true: Pixels, made: Pixels) -> float:
    """Structural similarity of lightness (Wang et al. 2004), mean over images (n, height, width, 3).

    >>> flat = np.full((1, 32, 32, 3), 90, dtype=np.uint8)
    >>> ssim(flat, flat)
    1.0
    """
    x, y = (images.astype(np.float64) @ [0.299, 0.587, 0.114] for images in (true, made))
    mean_x, mean_y, xx, yy, xy = (_smooth(part) for part in (x, y, x * x, y * y, x * y))
    close, busy = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    alike = (2 * mean_x * mean_y + close) * (2 * (xy - mean_x * mean_y) + busy)
    most = (mean_x**2 + mean_y**2 + close) * (xx - mean_x**2 + yy - mean_y**2 + busy)
    return round(float(np.mean(alike / most)), 4)


def _smooth(images: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(gaussian_filter(images, (0, 1.5, 1.5), truncate=3.5))
