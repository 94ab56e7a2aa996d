"""Bit planes: what is known of a coefficient is reconstructed inside its interval."""

import numpy as np
import pytest

from nestcode.images.bitplanes import FIRST_BIT, LATER_BITS, reconstruct


def test_coefficients_are_reconstructed_inside_their_interval() -> None:
    for magnitude in range(1, 200):
        for plane in range(magnitude.bit_length()):
            low = magnitude >> plane
            known = np.array([[(2 * low + 1) << plane, -((2 * low + 1) << plane), 0]], dtype=np.int32)
            place = FIRST_BIT if low == 1 else LATER_BITS
            expected = [(low + place) * 2**plane, -(low + place) * 2**plane, 0]
            assert reconstruct(known)[0].tolist() == pytest.approx(expected)
