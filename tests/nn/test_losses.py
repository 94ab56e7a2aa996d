"""The exact expected loss against the average of all truncations, and NestedLoss against both."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, Full, Geometric, Lengths, LogUniform, Mixture, Uniform
from nestcode.nn import LengthSchedule, MatryoshkaLoss, NestedLoss, expected_loss, keep_prefix

CHOICES: list[Lengths] = [
    Geometric(0.7),
    Uniform(),
    LogUniform(),
    Empirical([0, 2, 0, 1]),
    Mixture([Uniform(), Geometric(0.5)]),
]


def problem(n: int, features: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(n, width), (features, width), (n, features), (features,)]
    code, weight, target, bias = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return code, weight, target, bias


def squared_error(code: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
    return (target - code @ weight.T - bias).square().sum(dim=1).mean()


def average_of_truncations(code: Tensor, weight: Tensor, target: Tensor, lengths: Lengths, bias: Tensor) -> Tensor:
    pmf = lengths.pmf(code.shape[1])
    terms = [share * squared_error(keep_prefix(code, k + 1), weight, target, bias) for k, share in enumerate(pmf)]
    return torch.stack(terms).sum()


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.sampled_from(CHOICES), st.integers(0, 99))
@settings(deadline=None)
def test_the_exact_loss_is_the_average_of_all_truncations(
    n: int, features: int, width: int, lengths: Lengths, seed: int
) -> None:
    code, weight, target, bias = problem(n, features, width, seed)
    exact = expected_loss(code, weight, target, lengths, bias)
    torch.testing.assert_close(
        exact, average_of_truncations(code, weight, target, lengths, bias), rtol=1e-10, atol=1e-10
    )
    without = expected_loss(code, weight, target, lengths)
    torch.testing.assert_close(without, expected_loss(code, weight, target, lengths, bias * 0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("lengths", CHOICES, ids=repr)
def test_gradients_are_right_to_the_second_order(lengths: Lengths) -> None:
    inputs = [tensor.requires_grad_() for tensor in problem(3, 4, 5)]

    def loss(code: Tensor, weight: Tensor, target: Tensor, bias: Tensor) -> Tensor:
        return expected_loss(code, weight, target, lengths, bias)

    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


def test_keeping_everything_is_the_ordinary_squared_error() -> None:
    code, weight, target, bias = problem(6, 5, 4)
    exact = expected_loss(code, weight, target, Empirical([0, 0, 0, 1]), bias)
    torch.testing.assert_close(exact, squared_error(code, weight, target, bias))


def test_a_linear_layer_tokens_and_reductions() -> None:
    code, weight, target, bias = problem(6, 5, 4)
    layer = nn.Linear(4, 5, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    exact = expected_loss(code, weight, target, Uniform(), bias)
    torch.testing.assert_close(expected_loss(code, layer, target, Uniform()), exact)
    each = expected_loss(code, layer, target, Uniform(), reduction="none")
    assert each.shape == (6,)
    for example, error in enumerate(each):
        one = slice(example, example + 1)
        torch.testing.assert_close(expected_loss(code[one], layer, target[one], Uniform()), error)
    torch.testing.assert_close(each.mean(), exact)
    torch.testing.assert_close(expected_loss(code, layer, target, Uniform(), reduction="sum"), each.sum())
    tokens = expected_loss(code.view(2, 3, 4), layer, target.view(2, 3, 5), Uniform(), reduction="none")
    torch.testing.assert_close(tokens, each.view(2, 3))
    plain = nn.Linear(4, 5, bias=False, dtype=torch.float64)
    without = expected_loss(code, plain.weight, target, Uniform())
    torch.testing.assert_close(expected_loss(code, plain, target, Uniform()), without)


def test_a_schedule_is_the_mixture_of_the_moment() -> None:
    code, weight, target, _ = problem(6, 5, 4)
    schedule = LengthSchedule(Full(), Uniform(), steps=4)
    schedule.step()
    mixed = Mixture([Full(), Uniform()], [3, 1])
    torch.testing.assert_close(
        expected_loss(code, weight, target, schedule), expected_loss(code, weight, target, mixed)
    )


def test_low_precision_is_computed_in_float32() -> None:
    code, weight, target, _ = problem(6, 5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = expected_loss(code.bfloat16(), weight.float(), target.bfloat16(), Uniform())
    assert loss.dtype == torch.float32
    rounded = expected_loss(code.bfloat16().double(), weight.float().double(), target.bfloat16().double(), Uniform())
    torch.testing.assert_close(loss.double(), rounded, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_the_exact_loss_compiles_without_graph_breaks() -> None:
    torch._dynamo.reset()
    code, weight, target, _ = problem(6, 5, 4)
    code.requires_grad_()
    compiled = torch.compile(
        lambda code: expected_loss(code, weight, target, Uniform()), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(code), expected_loss(code, weight, target, Uniform()))
    compiled(code).backward()
    assert code.grad is not None


def reconstruction(weight: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda code, target: (target - code @ weight.T).square().sum(dim=1).mean()


@pytest.mark.parametrize("lengths", CHOICES, ids=repr)
def test_nested_loss_over_every_length_is_the_exact_loss(lengths: Lengths) -> None:
    code, weight, target, _ = problem(6, 5, 4)
    nested = NestedLoss(reconstruction(weight), lengths, draws=None)
    torch.testing.assert_close(nested(code, target), expected_loss(code, weight, target, lengths))


@pytest.mark.parametrize("together", [False, True])
def test_sampled_nested_loss_is_unbiased(together: bool) -> None:
    code, weight, target, _ = problem(6, 5, 4)
    nested = NestedLoss(reconstruction(weight), Uniform(), draws=4000, together=together)
    drawn = nested(code, target, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn, expected_loss(code, weight, target, Uniform()), rtol=0.05, atol=0)


def test_together_draws_one_length_for_the_batch() -> None:
    lengths_seen: list[Tensor] = []

    def spy(code: Tensor) -> Tensor:
        lengths_seen.append(code.sum(dim=1))
        return code.sum()

    NestedLoss(spy, Uniform(), draws=20, together=True)(torch.ones(5, 30))
    assert all(len(kept.unique()) == 1 for kept in lengths_seen)
    assert len(torch.stack(lengths_seen).unique()) > 5
    NestedLoss(spy, Uniform())(torch.ones(50, 30))
    assert len(lengths_seen[-1].unique()) > 5


def test_a_wrapped_module_keeps_its_parameters_and_options_pass_through() -> None:
    head = nn.Linear(4, 2)
    nested = NestedLoss(nn.Sequential(head, nn.Flatten()), Uniform())
    assert list(nested.parameters()) == list(head.parameters())
    per_example = NestedLoss(mse_loss, Empirical([0, 1]), draws=None)
    out = per_example(torch.ones(3, 2), torch.zeros(3, 2), reduction="none")
    assert out.tolist() == [[1, 1]] * 3


def test_two_lines_are_enough_to_train() -> None:
    torch.manual_seed(0)
    X = torch.randn(64, 6)
    encoder, head = nn.Linear(6, 4), nn.Linear(4, 6)
    loss = NestedLoss(lambda code, target: mse_loss(head(code), target), LogUniform())
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.05)
    history = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(encoder(X), X)
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert sum(history[-5:]) < 0.8 * sum(history[:5])


CODE, WEIGHT, TARGET, BIAS = problem(3, 4, 5)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "transposed weight": (
        lambda: expected_loss(CODE, WEIGHT.T, TARGET, Uniform()),
        "got (3, 5), (5, 4), (3, 4): weight is laid out as in torch.nn.Linear",
    ),
    "other batch": (lambda: expected_loss(CODE[:2], WEIGHT, TARGET, Uniform()), "got (2, 5), (4, 5), (3, 4)"),
    "bias of the code": (lambda: expected_loss(CODE, WEIGHT, TARGET, Uniform(), CODE[0]), "(3, 4), (5,)"),
    "empty batch": (lambda: expected_loss(CODE[:0], WEIGHT, TARGET[:0], Uniform()), "needs at least one example"),
    "two biases": (lambda: expected_loss(CODE, nn.Linear(5, 4), TARGET, Uniform(), BIAS), "bias must be left out"),
    "deep decoder": (
        lambda: expected_loss(CODE, nn.Sequential(), TARGET, Uniform()),  # type: ignore[arg-type]
        "decoder must be an nn.Linear or its weight, got Sequential",
    ),
    "no reduction": (
        lambda: expected_loss(CODE, WEIGHT, TARGET, Uniform(), reduction="max"),  # type: ignore[arg-type]
        "reduction must be one of mean, sum, none, got 'max'",
    ),
    "lengths drawn": (lambda: expected_loss(CODE, WEIGHT, TARGET, 3), "must be a distribution from nestcode.lengths"),  # type: ignore[arg-type]
    "no draws": (lambda: NestedLoss(mse_loss, Uniform(), draws=0), "draws must be an integer of at least 1, got 0"),
    "no loss": (lambda: NestedLoss(None, Uniform()), "loss must be called as loss(code, …), got None"),  # type: ignore[arg-type]
    "no lengths": (lambda: NestedLoss(mse_loss, None), "must be a distribution from nestcode.lengths"),  # type: ignore[arg-type]
    "an array": (lambda: NestedLoss(mse_loss, Uniform())(CODE.numpy(), CODE), "must be a tensor, got ndarray"),
    "nothing returned": (
        lambda: NestedLoss(lambda *_: None, Uniform())(CODE),  # type: ignore[arg-type]
        "loss must return a tensor, got NoneType",
    ),
    "no such dim": (lambda: NestedLoss(mse_loss, Uniform(), dim=2)(CODE, CODE), "dim must be a dimension of x"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("lengths", "message"), [([], "at least one length to keep, got none"), ([0, 8], "a length to keep must .* got 0")]
)
def test_wrong_lengths_of_matryoshka_are_named(lengths: list[int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MatryoshkaLoss(torch.sum, lengths)


def test_matryoshka_refuses_codes_that_are_narrower_than_its_lengths() -> None:
    loss = MatryoshkaLoss(torch.sum, [8, 64])
    assert loss(torch.ones(2, 64)) == 2 * (8 + 64)
    with pytest.raises(InvalidInput, match="at most the code's width 32, got 64"):
        loss(torch.ones(2, 32))
