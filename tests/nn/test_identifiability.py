"""The paper's motivation: an autoencoder's units are not identifiable, nested dropout makes them so."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestcode.data import digits
from nestcode.lengths import Empirical, Lengths, Uniform
from nestcode.nn import expected_loss

WIDTH = 4


def decoder_columns(lengths: Lengths, seed: int, steps: int) -> NDArray[np.float64]:
    """Minimise the expected loss of a linear autoencoder of digits from a random start: (features, WIDTH)."""
    X, _ = digits()
    data = torch.from_numpy(np.linalg.qr((X - X.mean(axis=0)).astype(np.float64), mode="r"))
    generator = torch.Generator().manual_seed(seed)
    encoder = torch.randn(WIDTH, 64, generator=generator, dtype=torch.float64).mul_(0.1).requires_grad_()
    decoder = torch.randn(64, WIDTH, generator=generator, dtype=torch.float64).mul_(0.1).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [encoder, decoder], max_iter=steps, history_size=30, line_search_fn="strong_wolfe",
        tolerance_grad=1e-9, tolerance_change=0,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = expected_loss(data @ encoder.T, decoder, data, lengths)
        loss.backward()
        return loss

    optimizer.step(closure)
    columns: NDArray[np.float64] = decoder.detach().numpy()
    columns /= np.linalg.norm(columns, axis=0)
    return columns


def agreement(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """|cosine| of each unit with the unit of the same number."""
    cosines: NDArray[np.float64] = np.abs(np.sum(a * b, axis=0))
    return cosines


@pytest.fixture(scope="module")
def principal() -> NDArray[np.float64]:
    X, _ = digits()
    vectors: NDArray[np.float64] = np.linalg.eigh(np.cov(X.T.astype(np.float64)))[1][:, ::-1][:, :WIDTH]
    return vectors


def test_nested_dropout_gives_the_same_ordered_units_from_two_seeds(principal: NDArray[np.float64]) -> None:
    first, second = (decoder_columns(Uniform(), seed, steps=250) for seed in (0, 1))
    assert agreement(first, second).min() > 0.9999
    assert agreement(first, principal).min() > 0.9999


def test_an_ordinary_autoencoder_finds_the_subspace_only(principal: NDArray[np.float64]) -> None:
    ordinary = Empirical([0] * (WIDTH - 1) + [1])
    first, second = (decoder_columns(ordinary, seed, steps=100) for seed in (0, 1))
    assert agreement(first, second).max() < 0.99
    assert agreement(first, principal).max() < 0.99
    inside = [np.linalg.norm(principal.T @ np.linalg.qr(columns)[0]) ** 2 for columns in (first, second)]
    np.testing.assert_allclose(inside, WIDTH, atol=1e-4)  # both span the principal subspace
