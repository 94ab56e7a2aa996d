"""Validated images: pixels, shape and the target of their coding."""

import math
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.images.bitplanes import CHANNELS

Image = NDArray[np.uint8 | np.uint16]
Tune = Literal["psnr", "ssim"]
SCALES = {np.dtype(np.uint8): 1, np.dtype(np.uint16): 257}  # of pixel values, relative to 0 to 255


def check_image(image: Any) -> Image:
    """Return the image, or raise if it is not an image."""
    if not isinstance(image, np.ndarray) or image.dtype not in SCALES:
        remedy = "np.asarray(image), or np.rint(255 * x).astype(np.uint8) for values in [0, 1]"
        if isinstance(image, np.ndarray) and image.dtype in (np.dtype(bool), np.dtype(">u2")):
            remedy = "255 * x.astype(np.uint8)" if image.dtype == bool else "x.astype(np.uint16)"
        raise InvalidInput(
            f"an image must be a uint8 or uint16 array, got {type_of(image)}: convert it, as with {remedy}"
        )
    check_shape(image.shape)
    return image


def scaled_shape(shape: tuple[int, ...], scale: float) -> tuple[int, ...]:
    """Return the shape of an image that is decoded at a scale.

    >>> scaled_shape((100, 33, 3), 1 / 4)
    (25, 9, 3)
    """
    return (*(math.ceil(size * scale) for size in shape[:2]), *shape[2:])


def check_tune(tune: Any) -> Tune:
    """Return the metric that images are coded for, or raise if it is none."""
    if not isinstance(tune, str) or tune not in get_args(Tune):
        raise InvalidInput(f"tune must be 'psnr' or 'ssim', got {tune!r}: 'ssim' spends fewer bits on colors")
    return cast("Tune", tune)


def check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape, or raise if it is not the shape of an image."""
    sizes = tuple(check_int(size, "a side of an image", least=0) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes) < 1 or (len(sizes) == 3 and sizes[2] not in CHANNELS):
        raise InvalidInput(
            f"an image must be (height, width) or (height, width, channels) with 1 to 4 channels, got shape {sizes}: "
            "channels come last, as in X.transpose(1, 2, 0)"
        )
    return sizes


def type_of(value: Any) -> str:
    """Describe a value, for an error."""
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
