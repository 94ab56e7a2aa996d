"""Bit planes: what is known of a coefficient is reconstructed inside its interval, and pixels are the twin's."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode.images import ImageCodec
from nestcode.images.codec import ImageDecoder
from nestcode.images.image import Tune, scaled_shape
from tests.images.samples import SHAPES, codec, crop
from tests.images.twins import FIRST_BIT, LATER_BITS, known_values, pixel_values, reconstruct


def test_coefficients_are_reconstructed_inside_their_interval() -> None:
    for magnitude in range(1, 200):
        for plane in range(magnitude.bit_length()):
            low = magnitude >> plane
            known = np.array([[(2 * low + 1) << plane, -((2 * low + 1) << plane), 0]], dtype=np.int32)
            place = FIRST_BIT if low == 1 else LATER_BITS
            expected = [(low + place) * 2**plane, -(low + place) * 2**plane, 0]
            assert reconstruct(known)[0].tolist() == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([*SHAPES, (130, 140, 3), (16, 16, 3), (17, 97)]),
    st.integers(0, 99), st.floats(0, 1), st.sampled_from(get_args(Tune)),
)  # fmt: skip
def test_pixels_are_those_of_the_twin_rounded(shape: tuple[int, ...], seed: int, share: float, tune: Tune) -> None:
    """After whole planes, whose number the twin must know to bound its predictions."""
    encoded = codec().encode_passes(crop(shape, seed), tune=tune)
    passes = [3 * plane + 2 for plane in range(15) if encoded.sizes[3 * plane + 2]]
    last = passes[int(share * (len(passes) - 1))]
    data = encoded.data[: encoded.sizes[last]]
    _check_pixels(codec(), data, shape, range(14 - last // 3, 16 - last // 3))


def test_pixels_of_all_bits_are_those_of_the_twin_rounded() -> None:
    for step in (1.0, 7.3, 1000.0):
        own = ImageCodec(step).fit([crop((40, 40, 3))])
        for shape in SHAPES:
            _check_pixels(own, own.encode(crop(shape)), shape, range(1))


def _check_pixels(own: ImageCodec, data: bytes, shape: tuple[int, ...], planes: range) -> None:
    decoder = ImageDecoder(own, shape)
    decoder.feed(data)
    assert known_values(decoder).any() or len(data) < 40
    for reduction in (1, 2, 4, 8):
        image = decoder.image(scale=1 / reduction, filtered=False)
        assert image.shape == scaled_shape(shape, 1 / reduction)
        assert reduction == 1 or np.array_equal(image, decoder.image(scale=1 / reduction))
        twins = [pixel_values(decoder, data, own.step, plane, reduction) for plane in planes]
        assert min(np.abs(image - twin).max() for twin in twins) < 0.501  # rounded either way halfway between integers
