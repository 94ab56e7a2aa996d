"""Regularization keeps its ratio at every unit that learns, and the invariance penalty is the Jacobian's norm."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from nestcode.errors import InvalidInput
from nestcode.training import AdaptivePenalty, invariance_penalty


def unit_weights(scale: float = 1.0, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(20, 30, generator=generator).to(dtype))
    decay = 0.5 ** torch.arange(20.0)[:, None]  # as late units have it
    weight.grad = (scale * decay * torch.randn(20, 30, generator=generator)).to(dtype)
    return weight


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("scale", "dtype"), [(1.0, torch.float32), (1e-12, torch.float32), (1.0, torch.float64)])
def test_the_ratio_holds_for_every_unit_that_learns(norm: Any, scale: float, dtype: torch.dtype) -> None:
    weight = unit_weights(scale, dtype)
    assert weight.grad is not None
    weight.grad[7] = 0.0
    with torch.no_grad():
        weight[9] = 0.0
    before = weight.grad.clone()
    coefficients = AdaptivePenalty(norm, ratio=0.05).add_(weight)
    added = weight.grad.double() - before.double()
    active = torch.ones(20, dtype=torch.bool)
    active[[7, 9]] = False
    computed = coefficients[:, None] * (weight.sign() if norm == "l1" else weight).detach()
    ratios = computed.double().norm(dim=1) / before.double().norm(dim=1)
    assert torch.allclose(ratios[active], torch.tensor(0.05, dtype=torch.float64), rtol=0.01)
    assert torch.allclose(added, computed.double(), rtol=0.01, atol=float(1e-6 * before.abs().max()))
    assert not coefficients[~active].any()
    assert torch.equal(weight.grad[~active], before[~active])


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_adding_is_the_gradient_of_the_penalty_with_coefficients_held(norm: Any) -> None:
    penalty, weight = AdaptivePenalty(norm, ratio=0.3), unit_weights()
    assert weight.grad is not None
    before = weight.grad.clone()
    coefficients = penalty.coefficients(weight, before)
    penalty.value(weight, coefficients).backward()
    by_autograd = weight.grad.clone()
    weight.grad = before.clone()
    penalty.add_(weight)
    assert torch.allclose(weight.grad, by_autograd, rtol=1e-5)


def test_a_weight_without_a_gradient_is_left_alone() -> None:
    weight = nn.Parameter(torch.ones(3, 4))
    assert not AdaptivePenalty("l1", 0.1).add_(weight).any()
    assert weight.grad is None


def test_it_compiles_whole() -> None:
    weight, gradient = unit_weights().detach(), unit_weights().grad
    assert gradient is not None
    penalty = AdaptivePenalty("l1", 0.1)
    compiled = torch.compile(penalty.coefficients, fullgraph=True, backend="eager")
    assert torch.equal(compiled(weight, gradient), penalty.coefficients(weight, gradient))


def test_of_a_linear_encoder_the_invariance_penalty_is_its_norm_over_the_features() -> None:
    generator = torch.Generator().manual_seed(0)
    omega = torch.randn(7, 12, generator=generator, dtype=torch.float64)
    X = torch.randn(20_000, 12, generator=generator, dtype=torch.float64)
    draws = [float(invariance_penalty(lambda y: y @ omega.T, part, 0.3, generator=generator)) for part in X.split(500)]
    mean, error = torch.tensor(draws).mean(), torch.tensor(draws).std() / len(draws) ** 0.5
    expected = omega.square().sum() / 12
    assert abs(float(mean - expected)) < 4 * float(error)
    assert float(error) < 0.02 * float(expected)


def test_of_a_smooth_encoder_and_little_noise_it_is_the_jacobians() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).double()
    X = torch.randn(200, 6, dtype=torch.float64)

    def encode(y: Tensor) -> Tensor:
        out: Tensor = encoder(y)
        return out

    jacobians = vmap(jacrev(encode))(X)
    expected = float(jacobians.square().sum(dim=(1, 2)).mean() / 6)
    generator = torch.Generator().manual_seed(1)
    draws = [float(invariance_penalty(encode, X, 1e-8, clean=encode(X), generator=generator)) for _ in range(300)]
    assert abs(sum(draws) / 300 - expected) < 0.03 * expected


def test_its_gradient_reaches_the_encoder() -> None:
    encoder = nn.Linear(5, 3)
    invariance_penalty(encoder, torch.randn(10, 5), 0.01).backward()
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.any()


@pytest.mark.parametrize(
    ("norm", "ratio", "message"),
    [("l3", 0.1, 'norm must be "l1" or "l2"'), ("l1", -1, "ratio must be a number of at least 0, got -1")],
)
def test_wrong_settings_are_named(norm: Any, ratio: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AdaptivePenalty(norm, ratio)
    with pytest.raises(InvalidInput, match="variance must be a number above 0, got 0"):
        invariance_penalty(lambda y: y, torch.ones(2, 2), 0)
