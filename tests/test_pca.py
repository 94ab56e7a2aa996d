"""PCA by Chebyshev-filtered subspace iteration against a full eigendecomposition; moments in pieces."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode.arrays import Doubles
from nestcode.lengths import Geometric, Lengths, LogUniform, Uniform
from nestcode.pca import Moments, solve


def covariance_of(spectrum: NDArray[Any], seed: int = 0) -> Doubles:
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(spectrum),) * 2))[0]
    return np.asarray(basis * spectrum @ basis.T)


@pytest.mark.parametrize("steep", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_solve_finds_the_leading_eigenvectors_in_order(steep: float, width: int) -> None:
    covariance = covariance_of(np.arange(1, 201) ** -steep)
    values, vectors = (part[..., ::-1] for part in np.linalg.eigh(covariance))
    solution = solve(covariance, width, np.random.default_rng(1))
    np.testing.assert_allclose(solution.variances, values[:width], rtol=1e-8)
    assert (1 - np.abs((solution.decoder * vectors[:, :width]).sum(axis=0))).max() < 1e-6
    np.testing.assert_allclose(solution.decoder.T @ solution.decoder, np.eye(width), atol=1e-10)


@pytest.mark.parametrize("lengths", [Uniform(), LogUniform(), Geometric(0.9)], ids=repr)
def test_the_nested_objective_falls_in_every_round(lengths: Lengths) -> None:
    """The objective is the total variance less what each unit captures, weighted by its survival."""
    covariance = covariance_of(np.arange(1, 301) ** -1.0)
    history = solve(covariance, 20, np.random.default_rng(1)).history
    objective = [np.trace(covariance) - lengths.survival(20) @ captured for captured in history]
    assert len(objective) > 2
    assert (np.diff(objective) <= 1e-12).all()


def test_the_solution_does_not_depend_on_the_start() -> None:
    covariance = covariance_of(np.arange(1, 101) ** -1.0)
    first, second = (solve(covariance, 10, np.random.default_rng(seed)).decoder for seed in (1, 2))
    assert np.abs((first * second).sum(axis=0)).min() > 1 - 1e-9


def test_degenerate_and_zero_spectra() -> None:
    flat = solve(np.eye(50), 5, np.random.default_rng(0))
    np.testing.assert_allclose(flat.variances, 1)
    nothing = solve(np.zeros((50, 50)), 5, np.random.default_rng(0))
    np.testing.assert_allclose(nothing.variances, 0, atol=1e-12)
    assert np.isfinite(nothing.decoder).all()
    few = solve(np.diag([3.0, 2.0] + [0.0] * 48), 5, np.random.default_rng(0))
    np.testing.assert_allclose(few.variances, [3, 2, 0, 0, 0], atol=1e-10)


def test_full_width_is_the_full_decomposition() -> None:
    covariance = covariance_of(np.arange(1, 11) ** -1.0)
    np.testing.assert_allclose(solve(covariance, 10, np.random.default_rng(0)).variances, np.arange(1, 11) ** -1.0)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 15), st.floats(-1e3, 1e3), st.integers(0, 99))
@settings(deadline=None)
def test_moments_do_not_depend_on_the_pieces(n: int, features: int, size: int, offset: float, seed: int) -> None:
    X = np.random.default_rng(seed).standard_normal((n, features)) + offset
    moments = Moments()
    for first in range(0, n, size):
        moments.add(X[first : first + size])
    np.testing.assert_allclose(moments.mean(), X.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(moments.covariance(), np.cov(X.T, bias=True).reshape(features, features), atol=1e-8)
