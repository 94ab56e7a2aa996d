"""What is particular to the linear coder; the laws it shares are in `test_contract.py`."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import AdaptiveCoder, LinearCoder
from nestcode.coders import sampling
from tests.coders.cases import fitted, fresh_rows, mse, training_rows


def curved(n: int, features: int) -> NDArray[np.float32]:
    """Correlated data with a falling spectrum that is not Gaussian."""
    rng = np.random.default_rng(0)
    scales = np.arange(1, features + 1) ** -1.0
    mixing = np.linalg.qr(rng.standard_normal((features, features)))[0]
    X: NDArray[np.float32] = (3 + rng.laplace(size=(n, features)) * scales @ mixing).astype(np.float32)
    return X


def test_expected_errors_hold_where_rows_were_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 3000)
    X = curved(20_000, 5)
    coder = LinearCoder(width=24).fit(X)
    errors = [mse(X, coder.decode(coder.encode(X).prefix(length))) for length in (0, 8, 16, 24)]
    np.testing.assert_allclose([coder.expected_error(length) for length in (0, 8, 16, 24)], errors, rtol=0.4)
    assert LinearCoder(width=24, seed=1).fit(X).fingerprint != coder.fingerprint


def test_fresh_rows_have_about_the_expected_error() -> None:
    coder, fresh = fitted("linear"), fresh_rows("linear")
    assert mse(fresh, coder.decode(coder.encode(fresh))) < 1.5 * coder.expected_error(40)


def test_bit_planes_beat_one_sign_bit_per_direction() -> None:
    data = training_rows("linear")
    coder = LinearCoder(width=12).fit(data)
    mean = data.mean(axis=0)
    vectors = np.linalg.eigh(np.cov(data.T))[1]
    coefficients = (data - mean) @ vectors
    signs = np.where(coefficients > 0, 1, -1) * np.abs(coefficients).mean(axis=0)
    assert coder.expected_error(12) < 0.8 * mse(data, mean + signs @ vectors.T)


def test_a_direction_that_would_need_more_than_8_bits_is_warned_of_with_a_remedy() -> None:
    X = np.random.default_rng(0).standard_normal((2000, 2)) * [30_000, 1]
    with pytest.warns(
        UserWarning, match=r"fills 8 of 40 bits.*left, because a direction takes at most 8 bits.*Adaptive"
    ):
        coder = LinearCoder(width=40).fit(X)
    adaptive = AdaptiveCoder(width=40).fit(X)
    assert mse(X, adaptive.decode(adaptive.encode(X))) < 0.1 * mse(X, coder.decode(coder.encode(X)))
    with pytest.warns(UserWarning, match=r"fills 8 of 40 bits.* width 8 does as well$"):
        LinearCoder(width=40).fit(np.arange(256)[:, None])


def test_a_fit_in_pieces_gives_almost_the_same_bits() -> None:
    X = curved(9000, 5)
    whole = LinearCoder(width=20).fit(X)
    in_pieces = LinearCoder(width=20).fit(X[i : i + 1111] for i in range(0, len(X), 1111))
    assert np.mean(in_pieces.transform(X) == whole.transform(X)) > 0.999
    assert in_pieces.expected_error(20) == pytest.approx(whole.expected_error(20), rel=1e-4)


@pytest.mark.parametrize(
    ("X", "useful"),
    [
        (np.ones((50, 4)), 0),  # nothing varies
        (np.ones((1, 3)), 0),  # one item
        (np.array([[0.0, 5.0], [1.0, 5.0]]), 1),  # two items that differ in one feature
        (np.random.default_rng(0).standard_normal((3, 40)), 2),  # two bits tell three items apart
    ],
)
def test_bits_that_the_data_does_not_fill_are_unallocated(X: NDArray[np.float64], useful: int) -> None:
    with pytest.warns(UserWarning, match="unallocated"):
        coder = LinearCoder(width=30).fit(X)
    assert (coder._fitted().planes.allocation >= 0).sum() >= useful


def test_data_far_from_zero_is_centered_before_it_is_rounded() -> None:
    X = curved(500, 6).astype(np.float64)
    plain, far = LinearCoder(width=20).fit(X), LinearCoder(width=20).fit(X + 1e8)
    assert np.mean(plain.transform(X) == far.transform(X + 1e8)) > 0.99


def test_the_first_piece_may_be_unlike_the_rest() -> None:
    Y = (1000 + np.random.default_rng(0).standard_normal((20_000, 4)) * [1, 0.5, 0.2, 0.1]).astype(np.float32)
    with pytest.warns(UserWarning, match="row 0 lies"):
        first = LinearCoder(width=16).fit(iter([np.zeros((1, 4), np.float32), Y]))
    with pytest.warns(UserWarning, match="row 20000 lies"):
        last = LinearCoder(width=16).fit(iter([Y, np.zeros((1, 4), np.float32)]))
    errors = [mse(Y, coder.decode(coder.encode(Y))) for coder in (first, last)]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)


def test_constant_features_are_kept_exactly() -> None:
    X = curved(300, 6)
    X[:, 2] = 7
    coder = LinearCoder(width=20).fit(X)
    np.testing.assert_allclose(coder.decode(coder.encode(X).prefix(9))[:, 2], 7, atol=1e-4)
