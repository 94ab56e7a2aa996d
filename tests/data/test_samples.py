"""The sample images, the patches cut out of them, and the pinwheel."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from nestcode.data import digits, patches, pinwheel, sample_images
from nestcode.errors import InvalidInput


def test_digits_are_pixels_between_0_and_1() -> None:
    X, labels = digits()
    assert X.dtype == np.float32
    assert (X.min(), X.max()) == (0, 1)
    assert sorted(set(labels.tolist())) == list(range(10))


def test_the_samples_are_what_scikit_learn_loads() -> None:
    X, labels = digits()
    bunch = datasets.load_digits()
    assert np.array_equal(16 * X, bunch.data)
    assert np.array_equal(labels, bunch.target)
    for name, image in sample_images().items():
        assert image.dtype == np.uint8
        assert np.array_equal(image, datasets.load_sample_image(f"{name}.jpg"))


def test_patches_are_cut_out_of_the_images() -> None:
    image = np.arange(6 * 7 * 2, dtype=np.uint8).reshape(6, 7, 2)
    cut = patches([image, image + 100], size=3, n=200, rng=np.random.default_rng(0))
    assert cut.shape == (200, 3, 3, 2)
    corners = {tuple(patch[0, 0]) for patch in cut}
    assert len(corners) == 2 * 4 * 5  # every position in both images
    for patch in cut[:20]:
        source = image if patch[0, 0, 0] < 100 else image + 100
        row, column = np.argwhere((source == patch[0, 0]).all(axis=2))[0]
        assert np.array_equal(patch, source[row : row + 3, column : column + 3])


def test_the_same_seed_cuts_the_same_patches() -> None:
    images = list(sample_images().values())
    first, second = (patches(images, 8, 50, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)


def test_arms_of_a_pinwheel_are_rotations_of_one_arm() -> None:
    X, arm = pinwheel(3000, 3, np.random.default_rng(0))
    assert X.dtype == np.float32
    angles = -2 * np.pi * arm / 3
    c, s = np.cos(angles), np.sin(angles)
    aligned = np.stack([c * X[:, 0] - s * X[:, 1], s * X[:, 0] + c * X[:, 1]], axis=1)  # all on the first arm
    radius = np.hypot(*aligned.T)
    offset = radius * np.sin(np.arctan2(aligned[:, 1], aligned[:, 0]) - radius)  # from the curve of the arm
    assert np.abs(np.median(offset)) < 0.01
    assert np.std(offset) < 0.3 * np.std(radius)
    assert [np.abs(aligned[arm == a].mean(axis=0) - aligned.mean(axis=0)).max() < 0.05 for a in range(3)] == [True] * 3
    assert np.array_equal(X, pinwheel(3000, 3, np.random.default_rng(0))[0])


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no images": (lambda: patches([], 8, 1, np.random.default_rng()), "one or more arrays (height, width, channels)"),
    "gray": (lambda: patches([np.zeros((9, 9), np.uint8)], 8, 1, np.random.default_rng()), "(height, width, channels)"),
    "mixed types": (
        lambda: patches([np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9, 1), np.uint8)], 8, 1, np.random.default_rng()),
        "images must agree in dtype and channels, got [('uint8', 1), ('uint8', 3)]",
    ),
    "too large": (
        lambda: patches([np.zeros((9, 8, 3), np.uint8)], 9, 1, np.random.default_rng()),
        "size must be between 1 and the smallest side 8, got 9",
    ),
    "no arms": (lambda: pinwheel(5, 0, np.random.default_rng()), "arms must be"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
