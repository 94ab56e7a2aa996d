"""The sample images and the patches cut out of them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestcode.data import digits, patches, photographs
from nestcode.errors import InvalidInput


def test_digits_are_pixels_between_0_and_1() -> None:
    X, labels = digits()
    assert X.dtype == np.float32
    assert (X.min(), X.max()) == (0, 1)
    assert sorted(set(labels.tolist())) == list(range(10))


def test_patches_are_cut_out_of_the_images() -> None:
    image = np.arange(6 * 7 * 2, dtype=np.uint8).reshape(6, 7, 2)
    cut = patches([image, image + 100], size=3, n=200, rng=np.random.default_rng(0))
    assert cut.shape == (200, 3, 3, 2)
    corners = {tuple(patch[0, 0]) for patch in cut}
    assert len(corners) == 2 * 4 * 5  # every place of both images
    for patch in cut[:20]:
        source = image if patch[0, 0, 0] < 100 else image + 100
        row, column = np.argwhere((source == patch[0, 0]).all(axis=2))[0]
        assert np.array_equal(patch, source[row : row + 3, column : column + 3])


def test_the_same_seed_cuts_the_same_patches() -> None:
    photos = list(photographs().values())
    first, second = (patches(photos, 8, 50, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no images": (lambda: patches([], 8, 1, np.random.default_rng()), "one or more arrays (height, width, channels)"),
    "grey": (lambda: patches([np.zeros((9, 9), np.uint8)], 8, 1, np.random.default_rng()), "(height, width, channels)"),
    "mixed types": (
        lambda: patches([np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9, 1), np.uint8)], 8, 1, np.random.default_rng()),
        "images must agree in type and channels, got [('uint8', 1), ('uint8', 3)]",
    ),
    "too large": (
        lambda: patches([np.zeros((9, 8, 3), np.uint8)], 9, 1, np.random.default_rng()),
        "size must be between 1 and the smallest side 8, got 9",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
