"""The color transform: orthonormal, and rotated toward the image's KLT where that pays."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode.images.color import OHTA, color_matrix, find_rotation


@given(st.binary(min_size=3, max_size=3))
def test_channels_are_orthonormal(rotation: bytes) -> None:
    colors = color_matrix(rotation).astype(np.float64)
    assert np.abs(colors @ colors.T - np.eye(3)).max() < 1e-5


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_the_rotation_compacts_the_energy_of_the_image(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(3, 3)) * [4, 2, 1]
    pixels = np.clip(128 + 8 * rng.normal(size=(130, 130, 3)) @ mix.T, 0, 255).astype(np.uint8)
    rotation = find_rotation(pixels)
    differences = np.diff(pixels.astype(np.float64), axis=1).reshape(-1, 3)

    def first_share(colors: NDArray[np.float64]) -> float:
        energies: NDArray[np.float64] = np.sum((differences @ colors.T) ** 2, axis=0)
        return float(energies[0] / energies.sum())

    assert first_share(color_matrix(rotation).astype(np.float64)) >= first_share(OHTA) - 0.01
    assert find_rotation(pixels[:20]) == b""
    assert find_rotation(pixels[..., 0]) == b""
