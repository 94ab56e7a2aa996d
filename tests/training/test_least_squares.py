"""The refit of a linear decoder equals plain least squares over all truncations, and never raises the expected loss."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Geometric, Lengths, Uniform
from nestcode.nn import Binarize, Groups, OrderedAutoencoder, expected_loss, keep_prefix
from nestcode.nn.layers import Block, Encoder
from nestcode.training import errors_by_length, refit

X = torch.from_numpy(digits()[0][:400]).float()


def model_of(lengths: Lengths | Groups, **changes: Any) -> OrderedAutoencoder:
    torch.manual_seed(0)
    model = OrderedAutoencoder(64, 12, lengths=lengths, corruption=0.5, **changes)
    model.set_moments(X.mean(dim=0), X.var(dim=0))
    if model.binarize is not None:
        model.binarize.finalize([model.preactivations(X)])
    return model


def by_truncations(model: OrderedAutoencoder, lengths: Lengths) -> Tensor:
    """Return the twin: least squares on the rows of every truncation, weighted by its probability."""
    code, z = model.encode(X).double(), model.standardize(X).double()
    parts = [
        (p**0.5 * torch.nn.functional.pad(keep_prefix(code, k), (1, 0), value=1.0), p**0.5 * z)
        for k, p in enumerate(lengths.pmf(model.width).tolist(), start=1)
    ]
    left, right = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    solution: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution
    return solution


def loss_of(model: OrderedAutoencoder, lengths: Lengths) -> float:
    """Return the expected loss of the decoder over lengths."""
    weight, bias = decoder_of(model)
    code, z = model.encode(X).detach().double(), model.standardize(X).double()
    return float(expected_loss(code, weight, z, lengths, bias))


def block_of(model: OrderedAutoencoder) -> Block:
    assert isinstance(model.encoder, Encoder)
    return model.encoder.code_blocks()[0]


def decoder_of(model: OrderedAutoencoder) -> tuple[Tensor, Tensor]:
    block = block_of(model)
    columns = block.weight.T if block.columns is None else block.columns
    return columns.detach().double(), model.decoder.get_parameter("biases.0").detach().double()


@pytest.mark.parametrize("lengths", [Geometric(0.8), Uniform(), Empirical([1, 2], lengths=[3, 12])], ids=str)
@pytest.mark.parametrize("binarize", [None, "0/1", "±1"])
def test_it_is_the_least_squares_solution_over_all_truncations(lengths: Lengths, binarize: str | None) -> None:
    model = model_of(lengths, tied=True, binarize=binarize and Binarize(12, beta=0.3, signed=binarize == "±1")).eval()
    code, before = model.encode(X), loss_of(model, lengths)
    refit(model, X)
    expected = by_truncations(model, lengths)
    weight, bias = decoder_of(model)
    assert torch.allclose(weight, expected[1:].T, atol=1e-4)
    assert torch.allclose(bias, expected[0], atol=1e-4)
    assert torch.equal(model.encode(X), code)
    assert loss_of(model, lengths) < before
    errors = errors_by_length(model, X, [0, 12])
    assert errors[1] < errors[0]


def test_lengths_of_many_orders_of_magnitude_do_not_spoil_it() -> None:
    """Unit 12 is kept once in 10^33 draws: no column can change the loss of the first by more than rounding."""
    model = model_of(Geometric(0.001)).eval()
    refit(model, X)
    one = model_of(Empirical([1], lengths=[1])).eval()
    refit(one, X)
    assert np.isfinite(errors_by_length(model, X, range(13))).all()
    assert errors_by_length(model, X, [1]) == pytest.approx(errors_by_length(one, X, [1]), rel=1e-5)
    assert (np.diff(errors_by_length(model, X, range(1, 13))) <= 1e-6).all()  # nearly column by column


def test_dead_and_equal_units_are_harmless() -> None:
    model = model_of(Uniform()).eval()
    with torch.no_grad():
        block = block_of(model)
        block.bias[3] = -1e6  # never active
        block.weight[5], block.bias[5] = block.weight[4], block.bias[4]
    before = loss_of(model, Uniform())
    refit(model, X)
    weight, _ = decoder_of(model)
    assert not weight[:, 3].any()
    assert weight.isfinite().all()
    assert loss_of(model, Uniform()) < before


def test_pieces_add_up_and_the_mode_of_the_model_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = model_of(Uniform()), model_of(Uniform())
    refit(one, X)
    monkeypatch.setattr("nestcode.training.least_squares.PIECE", 7)
    refit(other, X.numpy(), Uniform())
    assert one.training
    for a, b in zip(decoder_of(one), decoder_of(other), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidInput, match=re.escape("no hidden layers, got (64, 12) for 64 features")):
        refit(model_of(Uniform(), layers=(5,)), X)
    with pytest.raises(InvalidInput, match=r"lengths must be a distribution .* got Groups"):
        refit(model_of(Groups([6, 6], Uniform())), X)
