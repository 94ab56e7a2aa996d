"""What coders are trained on: uniform samples, principal directions."""

import tracemalloc

import numpy as np
import pytest

from nestcode import pca
from nestcode.arrays import Doubles
from nestcode.coders import AdaptiveCoder, CellCoder, LinearCoder, ResidualCoder, sampling
from nestcode.coders.sampling import FEW_ROWS, Reservoir, add_synthetic_rows, principal_directions, summarize
from nestcode.errors import OutOfMemory
from nestcode.pca import Moments


def test_the_sample_is_uniform_and_does_not_depend_on_the_pieces() -> None:
    X = np.arange(5000, dtype=np.float32)[:, None]
    samples = []
    for size in (5000, 77, 4096):
        parts = (X[i : i + size] for i in range(0, len(X), size))
        reservoir = Reservoir(np.random.default_rng(0), 500, 1 << 28)
        samples.append(summarize(parts, normalize=False, reservoir=reservoir).sample)
    assert np.array_equal(samples[0], samples[1])
    assert np.array_equal(samples[0], samples[2])
    assert len(samples[0]) == 500
    assert abs(samples[0].mean() - 2500) < 200


def test_directions_by_subspace_iteration_are_those_of_the_full_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    X = rng.laplace(size=(3000, 60)) * np.arange(1, 61) ** -1.5 @ mixing
    exact = principal_directions(moments_of(X).any_covariance(), 12, np.random.default_rng(0))
    monkeypatch.setattr(sampling, "DENSE", 10)
    directions = principal_directions(moments_of(X).any_covariance(), 12, np.random.default_rng(0))
    assert np.abs((directions * exact).sum(axis=1)).min() > 1 - 1e-4
    np.testing.assert_allclose(directions @ directions.T, np.eye(12), atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 9, 30])
def test_directions_in_the_span_of_few_rows_are_those_of_the_covariance(rows: int) -> None:
    X = 5 + np.random.default_rng(0).standard_normal((rows, 60)) * np.arange(1, 61) ** -1.5
    directions = principal_directions(moments_of(X).any_covariance(), 12, np.random.default_rng(0))
    rank = min(rows - 1, 12)  # the covariance has no other direction
    exact = principal_directions(moments_of(X).covariance(), 12, np.random.default_rng(0))
    assert directions.shape == (min(rows, 12), 60)
    np.testing.assert_allclose(np.abs((directions * exact[: len(directions)]).sum(axis=1))[:rank], 1, atol=1e-6)
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=1e-6)


def test_few_rows_of_many_features_take_the_memory_of_the_rows() -> None:
    """And not that of a covariance, which is 2 GiB here."""
    X = np.random.default_rng(0).standard_normal((20, 1 << 14), dtype=np.float32)
    tracemalloc.start()
    try:
        for coder in (LinearCoder(64), CellCoder(64, cells=2), AdaptiveCoder(64), ResidualCoder(64)):
            coder.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * X.nbytes


def test_a_covariance_that_exceeds_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pca, "physical_memory", lambda: 10_000)
    with pytest.raises(OutOfMemory, match=r"of 60 features takes .* fit on fewer features"):
        LinearCoder(8).fit(np.random.default_rng(0).random((31, 60)))
    LinearCoder(8).fit(np.random.default_rng(0).random((30, 60)))


def test_two_rows_of_many_features_are_coded_exactly() -> None:
    X = np.random.default_rng(0).random((2, 3072), dtype=np.float32)
    with pytest.warns(UserWarning, match="bits"):
        coder = LinearCoder(256).fit(X)
    np.testing.assert_allclose(coder.decode(coder.encode(X)), X, atol=1e-5)


def test_synthetic_rows_mix_the_coefficients_of_neighbors_and_keep_clusters_apart() -> None:
    rng = np.random.default_rng(0)
    centers = 10 * rng.standard_normal((5, 6), dtype=np.float32)
    rows = (centers[rng.integers(0, 5, 200)] + rng.standard_normal((200, 6))).astype(np.float32)
    found = add_synthetic_rows(rows, rng)
    assert found.shape == (FEW_ROWS, 6)
    assert all(np.isin(found[:, k], rows[:, k]).all() for k in range(6))
    assert (np.unique(found, axis=0)[:, None] == rows).all(axis=2).any(axis=0).all()  # all rows stay
    assert len(np.unique(found, axis=0)) > FEW_ROWS // 2
    nearest = ((found[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    assert 4 < nearest.mean() < 7  # the variance within a cluster is 6, of neighbors a little less
    for kept in (rows[:5], found):  # too few to have neighbors, and enough
        assert add_synthetic_rows(kept, rng) is kept


def moments_of(X: Doubles) -> Moments:
    moments = Moments()
    moments.add(X)
    return moments
