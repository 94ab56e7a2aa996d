"""The lapped transform: it inverts, its DC subband is that of the blocks, and blocks overlap without a seam."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode.images.lapped_dct import BLOCK, DC_PREFILTER, DC_TRANSFORMS, OVERLAP, lapped_dct
from tests.images.twins import dc_subband, inverse_lapped_dct, predict_gradients


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_the_inverse_transform_returns_the_channels(seed: int, rows: int, columns: int, channels: int) -> None:
    image = np.random.default_rng(seed).uniform(-128, 128, (channels, rows * BLOCK, columns * BLOCK))
    assert np.abs(inverse_lapped_dct(lapped_dct(image.astype(np.float32))) - image).max() < 1e-3


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 10, 13])
def test_the_second_stage_is_one_matrix_along_each_axis(count: int) -> None:
    """The plain twin: the matrix of the whole row, pre-filter, then DCT of macroblocks."""
    matrix = np.eye(count)
    for first in range(4, count - 1, 4):
        near = slice(first - 2, first + 2)
        matrix[near] = DC_PREFILTER @ matrix[near]
    for first in range(0, count, 4):
        matrix[first : first + 4] = DC_TRANSFORMS[min(4, count - first) - 1] @ matrix[first : first + 4]
    dc = np.random.default_rng(count).uniform(-1, 1, (2, count, 3))
    coefficients = np.zeros((2, count, 3, BLOCK, BLOCK), dtype=np.float32)
    coefficients[..., 0, 0] = matrix @ dc @ DC_TRANSFORMS[2].T
    assert dc_subband(coefficients) == pytest.approx(dc, abs=1e-6)
    assert dc_subband(coefficients.swapaxes(1, 2)) == pytest.approx(dc.swapaxes(1, 2), abs=1e-6)


def test_memory_of_long_images_is_proportional_to_their_size() -> None:
    """Blocks are filtered and transformed locally: a matrix of the whole row would be quadratic."""
    for shape in ((1, BLOCK, 4000 * BLOCK), (1, 4000 * BLOCK, BLOCK)):
        image = np.zeros(shape, dtype=np.float32)
        tracemalloc.start()
        lapped_dct(image)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5 * image.nbytes


def test_the_dc_subband_is_that_of_the_blocks() -> None:
    image = np.random.default_rng(0).uniform(-128, 128, (2, 5 * BLOCK, 7 * BLOCK)).astype(np.float32)
    blocks = lapped_dct(image)
    means = dc_subband(blocks).mean(axis=(1, 2)) / BLOCK
    assert np.abs(means - image.mean(axis=(1, 2))).max() < 5  # but for the overlap
    constant = lapped_dct(np.full((1, 4 * BLOCK, 4 * BLOCK), 10, dtype=np.float32))
    assert constant[0, 0, 0, 0, 0] == pytest.approx(10 * 4 * BLOCK, rel=1e-3)
    assert np.abs(constant).sum() == pytest.approx(10 * 4 * BLOCK, rel=0.05)


def test_basis_functions_overlap_the_borders_without_a_jump() -> None:
    coefficients = np.zeros((1, 3, 3, BLOCK, BLOCK), dtype=np.float32)
    coefficients[0, 1, 1, 0, 1] = 1
    basis = np.abs(inverse_lapped_dct(coefficients)[0])
    assert basis[BLOCK - OVERLAP : BLOCK].max() > 0.01 * basis.max()
    assert basis[: BLOCK - OVERLAP].max() < 1e-6
    steps = np.abs(np.diff(basis[BLOCK + BLOCK // 2]))
    assert steps[BLOCK - 1] < 2 * np.sort(steps)[-4]  # no jump at the border that is not elsewhere too


def test_gradients_are_predicted_only_where_nothing_is_known_and_within_the_bound() -> None:
    ramp = np.tile(np.arange(4 * BLOCK, dtype=np.float32), (4 * BLOCK, 1))[None]
    whole = lapped_dct(ramp)
    known = np.zeros_like(whole)
    known[..., 0, 0] = whole[..., 0, 0]
    known[0, 2, 2, 0, 1] = 7
    predicted = known.copy()
    predict_gradients(predicted, bound=10**6)
    assert predicted[0, 2, 2, 0, 1] == 7
    inside = slice(BLOCK, 2 * BLOCK), slice(BLOCK, -BLOCK)
    errors = [np.abs(inverse_lapped_dct(some)[0][inside] - ramp[0][inside]).mean() for some in (known, predicted)]
    assert errors[1] < errors[0]
    predict_gradients(known, bound=2)
    assert np.abs(np.delete(known[0, :, :, 0, 1].ravel(), 10)).max() <= 1
