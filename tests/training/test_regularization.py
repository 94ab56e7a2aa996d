"""Adaptive coefficients keep the ratio of gradients at every unit; the invariance penalty."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Empirical, Geometric, Uniform
from nestcode.nn import Binarize, OrderedAutoencoder, keep_prefix
from nestcode.training import AdaptivePenalty, ConstantPenalty, Invariance, Training
from nestcode.training.autoencoder import AutoencoderLoss
from nestcode.training.regularization import Norm, Penalty, invariance_penalty

NORMS: list[Norm] = ["l1", "l2"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights(seed: int, width: int = 6, fan_in: int = 9) -> Tensor:
    return torch.randn(width, fan_in, generator=seeded(seed), dtype=torch.float64)


def norm_twin(penalty: Penalty, row: Tensor) -> Tensor:
    return row.abs().sum() if penalty.norm == "l1" else row.square().sum() / 2


# Adaptive coefficients


@given(
    norm=st.sampled_from(NORMS),
    ratio=st.floats(1e-3, 10),
    small=st.floats(-25, 10),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 1000),
)
def test_the_ratio_holds_at_every_active_unit(
    norm: Norm, ratio: float, small: float, dtype: torch.dtype, seed: int
) -> None:
    """Gradients of late units may be smaller by any power of ten."""
    penalty = AdaptivePenalty(norm, ratio)
    weight = weights(seed).to(dtype)
    gradient = (weights(seed + 1) * torch.logspace(0, small, 6, dtype=torch.float64)[:, None]).to(dtype)
    coefficients = penalty.coefficients(weight, gradient).double()
    for row, learned, coefficient in zip(weight.double(), gradient.double(), coefficients, strict=True):
        row.requires_grad_()
        (own,) = torch.autograd.grad(coefficient * norm_twin(penalty, row), row)
        assert float(own.norm() / learned.norm()) == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("norm", NORMS)
def test_units_with_zero_gradient_or_weights_get_no_penalty(norm: Norm) -> None:
    weight, gradient = weights(0).float(), weights(1).float()
    gradient[2] = 0
    weight[4] = 0
    parameter = nn.Parameter(weight)
    parameter.grad = gradient.clone()
    coefficients = AdaptivePenalty(norm, 0.5).add_(parameter)
    assert (coefficients == 0).tolist() == [False, False, True, False, True, False]
    assert torch.equal(parameter.grad[2], gradient[2])
    assert torch.equal(parameter.grad[4], gradient[4])
    assert (parameter.grad[[0, 1, 3, 5]] != gradient[[0, 1, 3, 5]]).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", [AdaptivePenalty, ConstantPenalty])
def test_adding_equals_the_gradient_of_the_penalty_with_held_coefficients(
    kind: Callable[[Norm, float], Penalty], norm: Norm
) -> None:
    penalty = kind(norm, 0.3)
    one, other = nn.Parameter(weights(0)), nn.Parameter(weights(0))
    x = torch.randn(20, 9, generator=seeded(2), dtype=torch.float64)

    def loss(weight: Tensor) -> Tensor:
        return torch.tanh(x @ weight.T).square().mean()

    loss(one).backward()
    held = penalty.add_(one)
    assert not held.requires_grad
    (loss(other) + penalty.value(other, held)).backward()
    torch.testing.assert_close(one.grad, other.grad)
    expected = sum(coefficient * norm_twin(penalty, row) for coefficient, row in zip(held, other, strict=True))
    torch.testing.assert_close(penalty.value(other, held), expected)


@pytest.mark.parametrize("kind", [AdaptivePenalty, ConstantPenalty])
def test_a_weight_without_gradient_gets_no_penalty(kind: Callable[[Norm, float], Penalty]) -> None:
    parameter = nn.Parameter(torch.ones(3, 2))
    assert kind("l1", 0.1).add_(parameter).tolist() == [0, 0, 0]
    assert parameter.grad is None


def test_ratio_zero_adds_nothing() -> None:
    parameter = nn.Parameter(weights(0))
    parameter.grad = weights(1)
    AdaptivePenalty("l2", 0).add_(parameter)
    assert torch.equal(parameter.grad, weights(1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_coefficients_need_no_device_synchronization() -> None:
    """A whole graph has no number that goes to the host."""
    torch._dynamo.reset()
    penalty, weight, gradient = AdaptivePenalty("l1", 0.1), weights(0), weights(1)
    compiled = torch.compile(penalty.coefficients, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(weight, gradient), penalty.coefficients(weight, gradient))


# One coefficient for all


@given(norm=st.sampled_from(NORMS), coefficient=st.floats(0, 10), small=st.floats(-25, 10), seed=st.integers(0, 1000))
def test_a_constant_penalty_ignores_the_gradient(norm: Norm, coefficient: float, small: float, seed: int) -> None:
    penalty, weight = ConstantPenalty(norm, coefficient), weights(seed)
    gradient = weights(seed + 1) * torch.logspace(0, small, 6, dtype=torch.float64)[:, None]
    found = penalty.coefficients(weight, gradient)
    torch.testing.assert_close(found, torch.full((6,), coefficient, dtype=torch.float64))


def test_a_constant_penalty_shrinks_a_unit_without_gradient() -> None:
    parameter = nn.Parameter(weights(0))
    parameter.grad = torch.zeros_like(parameter)
    ConstantPenalty("l1", 0.5).add_(parameter)
    torch.testing.assert_close(parameter.grad, 0.5 * weights(0).sign())


# Invariance


def test_invariance_of_a_linear_encoder_is_the_mean_square_of_its_weight() -> None:
    """‖Ω‖² / D, for any variance: the direction of the noise is uniform whatever its length."""
    omega = weights(0, width=4, fan_in=7)
    X = torch.zeros(50_000, 7, dtype=torch.float64)
    for variance in (1e-4, 1.0):
        noise = torch.randn(X.shape, generator=seeded(5), dtype=torch.float64)
        error = ((noise @ omega.T).square().sum(dim=1) / noise.square().sum(dim=1)).std() / len(X) ** 0.5
        value = invariance_penalty(lambda y: y @ omega.T, X, variance, generator=seeded(3))
        assert abs(value - omega.square().sum() / 7) < 4.5 * error


def test_invariance_of_a_smooth_encoder_is_that_of_its_jacobian() -> None:
    omega = weights(0, width=4, fan_in=7)

    def encode(y: Tensor) -> Tensor:
        return torch.tanh(y @ omega.T)

    item = torch.randn(7, generator=seeded(1), dtype=torch.float64)
    jacobian = torch.func.jacrev(encode)(item)
    noise = torch.randn(20_000, 7, generator=seeded(5), dtype=torch.float64)
    error = ((noise @ jacobian.T).square().sum(dim=1) / noise.square().sum(dim=1)).std() / 20_000**0.5
    value = invariance_penalty(encode, item.expand(20_000, 7), 1e-10, generator=seeded(3))
    assert abs(value - jacobian.square().sum() / 7) < 4.5 * error


def test_invariance_equals_its_definition_example_by_example() -> None:
    encoder, X = nn.Sequential(nn.Linear(3, 5), nn.Tanh()).double(), weights(0, 8, 3)
    noise = torch.randn(8, 3, generator=seeded(4), dtype=torch.float64) * 0.2
    terms = [
        (encoder(y + step) - encoder(y)).square().sum() / step.square().sum() for y, step in zip(X, noise, strict=True)
    ]
    value = invariance_penalty(encoder, X, 0.04, generator=seeded(4))
    torch.testing.assert_close(value, torch.stack(terms).mean())


class Truncate(nn.Module):
    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: Tensor) -> Tensor:
        return keep_prefix(x, self.kept)


def test_weighted_by_survival_it_is_the_mean_over_truncated_codes() -> None:
    encoder, X, lengths = nn.Sequential(nn.Linear(3, 5), nn.Tanh()).double(), weights(0, 8, 3), Geometric(0.7)
    each = []
    for kept in range(1, 6):
        truncated = nn.Sequential(encoder, Truncate(kept))
        each.append(invariance_penalty(truncated, X, 0.04, generator=seeded(4)))
    survival = torch.from_numpy(lengths.survival(5))
    value = invariance_penalty(encoder, X, 0.04, weights=survival, generator=seeded(4))
    torch.testing.assert_close(value, torch.stack(each) @ torch.from_numpy(lengths.pmf(5)))


@pytest.mark.parametrize("bits", [True, False])
def test_training_weights_invariance_by_the_probability_that_a_unit_is_kept(bits: bool) -> None:
    """Also once a sweep has changed the lengths: units are weighted as their reconstruction is."""
    torch.manual_seed(0)
    model = OrderedAutoencoder(6, 4, lengths=Uniform(), corruption=0.0, binarize=Binarize(4) if bits else None)
    gradients = []
    for lengths in (Empirical([1], lengths=[4]), Uniform(), Beyond(Uniform(), 2)):
        model.set_lengths(lengths)
        torch.manual_seed(0)
        model.zero_grad()
        AutoencoderLoss(model, Training(invariance=Invariance(1.0)))._invariance(weights(0, 50, 6).float()).backward()
        gradient = model.code_weights()[0].grad
        assert gradient is not None
        gradients.append(gradient)
    plain, uniform, beyond = gradients
    torch.testing.assert_close(uniform, plain * torch.tensor([1.0, 0.75, 0.5, 0.25])[:, None])
    torch.testing.assert_close(beyond, plain * torch.tensor([1.0, 1.0, 1.0, 0.5])[:, None])


def test_rectified_units_are_penalized_as_the_paper_prints_it() -> None:
    torch.manual_seed(0)
    model = OrderedAutoencoder(6, 4, lengths=Uniform(), corruption=0.0, binarize=Binarize(4))
    z, how = weights(0, 50, 6).float(), Invariance(1.0, units="rectified")
    torch.manual_seed(1)
    found = AutoencoderLoss(model, Training(invariance=how))._invariance(z)
    torch.manual_seed(1)
    expected = invariance_penalty(lambda y: torch.relu(model.encoder(y)), z, how.perturbation)
    torch.testing.assert_close(found, expected)


def test_given_clean_codes_are_not_recomputed_and_gradients_agree() -> None:
    encoder, X = nn.Linear(3, 5), weights(0, 8, 3).float()
    calls = 0

    def encode(y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        out: Tensor = encoder(y).square()
        return out

    gradients = []
    for clean in (None, encoder(X).square()):
        calls = 0
        value = invariance_penalty(encode, X, 0.1, clean=clean, generator=seeded())
        gradients.append(torch.autograd.grad(value, list(encoder.parameters())))
        assert calls == (2 if clean is None else 1)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
        assert (one != 0).all()


def test_bfloat16_codes_and_images() -> None:
    images = torch.randn(500, 3, 4, 4, generator=seeded())
    value = invariance_penalty(lambda y: (2 * y).bfloat16(), images, 1.0, generator=seeded(1))
    assert value.dtype == torch.float32
    assert value == pytest.approx(4, rel=0.01)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "norm": (lambda: AdaptivePenalty("l3", 0.1), 'norm must be "l1" or "l2", got \'l3\''),  # type: ignore[arg-type]
    "negative ratio": (lambda: AdaptivePenalty("l1", -1), "ratio must be a number of at least 0, got -1"),
    "ratio nan": (lambda: AdaptivePenalty("l1", float("nan")), "ratio must be a number of at least 0, got nan"),
    "negative coefficient": (lambda: ConstantPenalty("l1", -1), "coefficient must be a number of at least 0, got -1"),
    "norm of a constant": (lambda: ConstantPenalty("l3", 1), 'norm must be "l1" or "l2"'),  # type: ignore[arg-type]
    "constant bias": (
        lambda: ConstantPenalty("l1", 1).coefficients(torch.ones(3), torch.ones(3)),
        "must both be (width, fan_in), got (3,) and (3,)",
    ),
    "bias": (
        lambda: AdaptivePenalty("l1", 1).coefficients(torch.ones(3), torch.ones(3)),
        "must both be (width, fan_in), got (3,) and (3,)",
    ),
    "transposed": (
        lambda: AdaptivePenalty("l1", 1).coefficients(torch.ones(3, 2), torch.ones(2, 3)),
        "must both be (width, fan_in), got (3, 2) and (2, 3)",
    ),
    "no noise": (
        lambda: invariance_penalty(torch.tanh, torch.ones(2, 2), 0),
        "variance must be a number above 0, got 0",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()
