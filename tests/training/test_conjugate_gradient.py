"""Conjugate gradients: every step satisfies the strong Wolfe conditions, and the loss never rises."""

import io
import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nestcode.errors import InvalidInput
from nestcode.training.conjugate_gradient import ConjugateGradient, Step
from nestcode.training.strong_wolfe import Trial, Wolfe, line_search

Problem = tuple[list[Tensor], Callable[[], Tensor]]  # parameters, and their loss
Activation = Callable[[Tensor], Tensor]

F64 = torch.float64


def draw(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def system(n: int, seed: int, condition: float = 10.0) -> tuple[Tensor, Tensor, Tensor]:
    """A symmetric matrix with that condition number, a right-hand side and a place to start."""
    rotation = torch.linalg.qr(draw(n, n, seed=seed))[0]
    eigenvalues = condition ** torch.linspace(0, 1, n, dtype=F64)
    return (rotation * eigenvalues) @ rotation.T, draw(n, seed=seed + 1), draw(n, seed=seed + 2)


def quadratic(n: int, seed: int, condition: float = 10.0, scale: float = 1.0) -> Problem:
    matrix, right, x = system(n, seed, condition)
    x.requires_grad_()
    return [x], lambda: scale * (x @ matrix @ x / 2 - right @ x)


def rosenbrock(n: int, seed: int) -> Problem:
    x = draw(n, seed=seed).requires_grad_()
    return [x], lambda: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def log_sum_exp(n: int, seed: int) -> Problem:
    a, b, x = draw(3 * n, n, seed=seed), draw(3 * n, seed=seed + 1), draw(n, seed=seed + 2).requires_grad_()
    return [x], lambda: torch.logsumexp(a @ x + b, dim=0) + x.square().sum() / 20


def network(
    n: int, seed: int, dtype: torch.dtype = F64, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> Problem:
    inputs, targets = draw(30, 3, seed=seed, dtype=dtype), draw(30, 2, seed=seed + 1, dtype=dtype)
    shapes = [(3, n), (n,), (n, 2), (2,)]
    w, b, v, c = params = [draw(*s, seed=seed + 2 + i, dtype=dtype).requires_grad_() for i, s in enumerate(shapes)]
    return params, lambda: (activation(inputs @ w + b) @ v + c - targets).square().mean()


def closure_of(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def place(params: list[Tensor], loss: Callable[[], Tensor]) -> tuple[Tensor, float, Tensor]:
    """The parameters as one vector, the loss there and its gradient, anew."""
    value = loss()
    grads = torch.autograd.grad(value, params, allow_unused=True, materialize_grads=True)
    x = torch.cat([p.detach().flatten() for p in params])
    return x, value.item(), torch.cat([grad.flatten() for grad in grads])


def gradients_are(params: list[Tensor], loss: Tensor) -> bool:
    """Whether the parameters hold exactly the gradients of the loss."""
    grads = torch.autograd.grad(loss, params)
    return all(p.grad is not None and torch.equal(p.grad, grad) for p, grad in zip(params, grads, strict=True))


def last(optimizer: ConjugateGradient) -> Step:
    assert optimizer.last_step is not None
    return optimizer.last_step


SMOOTH = {
    **{f"Rosenbrock in {n} dimensions": (rosenbrock, n) for n in (2, 3, 10, 50)},
    **{f"log-sum-exp in {n} dimensions": (log_sum_exp, n) for n in (2, 10, 40)},
    **{f"a network of {n} units": (network, n) for n in (1, 5, 20)},
}


@pytest.mark.parametrize("c2", [0.001, 0.1, 0.4])
@pytest.mark.parametrize("name", SMOOTH)
def test_every_accepted_step_satisfies_both_strong_wolfe_conditions(name: str, c2: float) -> None:
    make, n = SMOOTH[name]
    checked = 0
    for seed in (0, 10):
        params, loss = make(n, seed)
        optimizer = ConjugateGradient(params, c1=1e-4, c2=c2)
        closure = closure_of(optimizer, loss)
        for _ in range(20):
            x, value, grad = place(params, loss)
            optimizer.step(closure)
            moved, lower, after = place(params, loss)
            way = moved - x
            promised, left = float(grad @ way), float(after @ way)
            if -promised < 1e-10 * abs(value) or way.norm() < 1e-6 * x.norm():
                break  # converged: from here on rounding decides
            assert last(optimizer).wolfe
            assert promised < 0
            assert lower <= value + 1e-4 * promised + 1e-14 * abs(value)
            assert abs(left) <= c2 * abs(promised) * (1 + 1e-6)
            checked += 1
    assert checked >= 6


@given(
    n=st.integers(2, 60),
    seed=st.integers(0, 10**6),
    condition=st.floats(1, 10),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(max_examples=60)
def test_quadratics_converge_within_twice_as_many_steps_as_dimensions(
    n: int, seed: int, condition: float, scale: float
) -> None:
    params, loss = quadratic(n, seed, condition, scale)
    assert steps_until(1e-6, params, loss, limit=2 * n) <= 2 * n


def steps_until(tolerance: float, params: list[Tensor], loss: Callable[[], Tensor], limit: int, **options: Any) -> int:
    """How many steps bring the gradient down to `tolerance` of what it was; limit + 1 if more."""
    optimizer = ConjugateGradient(params, **options)
    closure = closure_of(optimizer, loss)
    goal = tolerance * place(params, loss)[2].norm()
    for steps in range(limit + 1):
        if place(params, loss)[2].norm() <= goal:
            return steps
        optimizer.step(closure)
    return limit + 1


def linear_twin(matrix: Tensor, right: Tensor, x: Tensor, steps: int) -> list[Tensor]:
    """Conjugate gradients of Hestenes & Stiefel for a linear system, with the exact step."""
    residual = direction = right - matrix @ x
    path = []
    for _ in range(steps):
        size = (residual @ residual) / (direction @ matrix @ direction)
        x, smaller = x + size * direction, residual - size * (matrix @ direction)
        direction = smaller + (smaller @ smaller) / (residual @ residual) * direction
        residual = smaller
        path.append(x)
    return path


@pytest.mark.parametrize(("n", "steps"), [(2, 2), (5, 5), (30, 8)])
def test_on_quadratics_the_path_is_that_of_linear_conjugate_gradients(n: int, steps: int) -> None:
    (x,), loss = quadratic(n, seed=n)
    optimizer = ConjugateGradient([x], c2=1e-3)
    for expected in linear_twin(*system(n, seed=n), steps):
        optimizer.step(closure_of(optimizer, loss))
        assert torch.allclose(x, expected, rtol=1e-5, atol=1e-7)


def test_beta_is_of_the_previous_function_and_the_gradient_of_the_new_one() -> None:
    (x,), loss = quadratic(6, seed=1)
    optimizer = ConjugateGradient([x])
    before = place([x], loss)[2]
    optimizer.step(closure_of(optimizer, loss))
    after = place([x], loss)[2]
    beta = after @ (after - before) / (before @ before)
    other = lambda: loss() + x.square().sum()  # noqa: E731
    expected = -place([x], other)[2] - beta * before
    optimizer.step(closure_of(optimizer, other))
    assert not last(optimizer).restarted
    assert torch.allclose(optimizer.state[x]["direction"], expected, rtol=1e-12)


def test_it_restarts_where_beta_is_negative_or_gradients_are_far_from_orthogonal() -> None:
    reasons = set()
    for params, loss in [rosenbrock(4, seed=2), network(3, seed=1), network(3, seed=6)]:
        optimizer = ConjugateGradient(params, c2=0.4)
        before = place(params, loss)[2]
        optimizer.step(closure_of(optimizer, loss))
        for _ in range(30):
            after = place(params, loss)[2]
            negative, shared = bool(after @ (after - before) <= 0), bool((after @ before).abs() >= 0.5 * after @ after)
            optimizer.step(closure_of(optimizer, loss))
            assert last(optimizer).restarted == (negative or shared)
            reasons.add((negative, shared))
            before = after
    assert reasons == {(False, False), (False, True), (True, True)}  # β ≤ 0 is the worst case of the other


def test_clearing_the_state_restarts() -> None:
    params, loss = network(3, seed=1)
    optimizer = ConjugateGradient(params)
    for _ in range(4):
        optimizer.step(closure_of(optimizer, loss))
    assert not last(optimizer).restarted
    optimizer.state.clear()
    optimizer.step(closure_of(optimizer, loss))
    assert last(optimizer).restarted


@pytest.mark.parametrize("searches", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_training_resumes_bit_for_bit_from_a_state_dict(dtype: torch.dtype, searches: int) -> None:
    params, loss = network(5, seed=0, dtype=dtype)
    optimizer = ConjugateGradient(params, searches=searches, c2=0.2)
    for _ in range(7):
        optimizer.step(closure_of(optimizer, loss))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    copies, loss_of_copies = network(5, seed=0, dtype=dtype)
    for copy, p in zip(copies, params, strict=True):
        copy.data.copy_(p)
    resumed = ConjugateGradient(copies)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(7):
        assert resumed.last_step == optimizer.last_step
        assert resumed.evaluations == optimizer.evaluations
        optimizer.step(closure_of(optimizer, loss))
        resumed.step(closure_of(resumed, loss_of_copies))
        for copy, p in zip(copies, params, strict=True):
            assert torch.equal(copy, p)
    assert not last(optimizer).restarted


def test_several_searches_are_several_steps_with_fewer_evaluations() -> None:
    (one, loss_of_one), (three, loss_of_three) = network(5, seed=0), network(5, seed=0)
    single, triple = ConjugateGradient(one), ConjugateGradient(three, searches=3)
    for _ in range(4):
        triple.step(closure_of(triple, loss_of_three))
        for _ in range(3):
            single.step(closure_of(single, loss_of_one))
        assert all(torch.equal(p, q) for p, q in zip(one, three, strict=True))
    assert triple.evaluations == single.evaluations - 8


def relu_twice(x: Tensor) -> Tensor:
    return torch.relu(x) + torch.relu(x - 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("activation", [torch.tanh, relu_twice])
@pytest.mark.parametrize("limit", [1, 2, 25])
def test_the_loss_never_rises_and_gradients_match_the_parameters(
    dtype: torch.dtype, activation: Activation, limit: int
) -> None:
    params, loss = network(8, seed=3, dtype=dtype, activation=activation)
    optimizer = ConjugateGradient(params, limit=limit)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return closure_of(optimizer, loss)()

    previous = math.inf
    for _ in range(40):
        counted = optimizer.evaluations
        value = optimizer.step(closure).item()
        assert value <= previous * (1 + 10 * torch.finfo(dtype).eps)
        previous = value
        assert (last(optimizer).before, last(optimizer).after) == (value, loss().item())
        assert gradients_are(params, loss())
        assert optimizer.evaluations == calls == counted + 1 + last(optimizer).evaluations
        assert last(optimizer).evaluations <= 2 * limit + 1  # two directions, and back to the better trial
    assert previous < 0.9 * network(8, seed=3, dtype=dtype, activation=activation)[1]().item()


def rough(n: int, seed: int) -> Problem:
    """A quadratic whose value, but not its gradient, is lost in rounding: cos² + sin² is 1 up to the last place."""
    (x,), loss = quadratic(n, seed)

    def value() -> Tensor:
        angle = 1e3 * x.detach().sum()
        return loss() + 1e10 * (angle.cos() ** 2 + angle.sin() ** 2)

    return [x], value


def test_slopes_decide_where_decreases_are_below_rounding() -> None:
    assert all(steps_until(1e-6, *rough(10, seed), limit=20) <= 20 for seed in range(4))
    assert any(steps_until(1e-6, *rough(10, seed), limit=20, rounding=0.0) > 20 for seed in range(2))


@pytest.mark.parametrize("outside", [math.nan, math.inf, -math.inf])
def test_trials_with_infinite_or_nan_loss_are_too_long(outside: float) -> None:
    x = torch.tensor([50.0, 2.0], dtype=F64, requires_grad=True)
    met = 0

    def loss() -> Tensor:
        nonlocal met
        if (x > 0).all():
            return (x - x.log()).sum()
        met += 1
        return x.sum() * outside

    optimizer = ConjugateGradient([x])
    while place([x], loss)[2].norm() > 1e-6 and optimizer.evaluations < 100:
        optimizer.step(closure_of(optimizer, loss))
        assert last(optimizer).wolfe
    assert met
    assert torch.allclose(x, torch.ones(2, dtype=F64), atol=1e-5)


def test_a_nan_loss_at_the_start_moves_nothing() -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    optimizer = ConjugateGradient([x])
    assert optimizer.step(closure_of(optimizer, lambda: x.log().sum())).isnan()
    assert x.tolist() == [-1, 2]
    assert (last(optimizer).size, last(optimizer).wolfe, optimizer.evaluations) == (0, False, 1)


@pytest.mark.parametrize("warm", [0, 3])
def test_a_failed_line_search_leaves_the_parameters(warm: int) -> None:
    params, loss = network(5, seed=0)
    params[1].data[0] = -0.0
    optimizer = ConjugateGradient(params, limit=10)
    honest = closure_of(optimizer, loss)
    for _ in range(warm):
        optimizer.step(honest)
    before = [p.detach().clone() for p in params]

    def lying() -> Tensor:
        value = honest()
        for p in params:
            p.grad.neg_()  # type: ignore[union-attr]
        return value

    optimizer.step(lying)
    assert all(torch.equal(p, q) and torch.equal(p.signbit(), q.signbit()) for p, q in zip(params, before, strict=True))
    assert (last(optimizer).size, last(optimizer).wolfe, last(optimizer).restarted) == (0, False, True)
    assert gradients_are(params, -loss())
    optimizer.step(honest)
    assert last(optimizer).wolfe
    assert last(optimizer).restarted


def test_steepest_descent_takes_over_where_the_conjugate_direction_fails() -> None:
    (x,), loss = quadratic(5, seed=0)
    optimizer = ConjugateGradient([x])
    optimizer.step(closure_of(optimizer, loss))
    start, _, grad = place([x], loss)

    def only_downhill() -> Tensor:
        way = x.detach() - start
        return loss() if -grad @ way >= (1 - 1e-9) * grad.norm() * way.norm() else loss() * math.nan

    optimizer.step(closure_of(optimizer, only_downhill))
    assert last(optimizer).restarted
    assert last(optimizer).wolfe
    assert last(optimizer).evaluations > 25
    assert loss() < last(optimizer).before


def test_steps_at_kinks_still_lower_the_loss() -> None:
    x = torch.tensor([3.0, -1.0], dtype=F64, requires_grad=True)
    optimizer = ConjugateGradient([x])
    optimizer.step(closure_of(optimizer, lambda: (x * torch.tensor([1.0, 0.3])).abs().sum()))
    assert not last(optimizer).wolfe
    assert 0 <= last(optimizer).after < 0.4


def test_frozen_and_unused_parameters_stay() -> None:
    params, loss = network(5, seed=0)
    unused, frozen = torch.ones(3, requires_grad=True), params[1]
    optimizer = ConjugateGradient([*params, unused])
    optimizer.step(closure_of(optimizer, loss))
    frozen.requires_grad_(False)
    kept = frozen.clone()
    for _ in range(3):
        optimizer.step(closure_of(optimizer, loss))
        assert last(optimizer).wolfe
    assert torch.equal(frozen, kept)
    frozen.requires_grad_(True)
    optimizer.step(closure_of(optimizer, loss))
    assert last(optimizer).wolfe
    assert not torch.equal(frozen, kept)
    assert unused.tolist() == [1, 1, 1]


def test_parameters_of_several_dtypes_share_one_line() -> None:
    a = torch.full((2, 3), 2.0, requires_grad=True)
    b = torch.full((4,), -1.0, dtype=F64, requires_grad=True)
    c = torch.tensor(5.0, requires_grad=True)
    optimizer = ConjugateGradient([a, b, c])
    for _ in range(10):
        optimizer.step(closure_of(optimizer, lambda: a.square().sum() + 3 * (b - 1).square().sum() + 2 * (c * c)))
    assert (a.dtype, b.dtype, c.dtype) == (torch.float32, F64, torch.float32)
    assert max(a.abs().max(), (b - 1).abs().max(), c.abs()) < 1e-3


def test_at_a_minimum_one_evaluation_is_enough() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = ConjugateGradient([x], searches=4)
    optimizer.step(closure_of(optimizer, lambda: x.square().sum()))
    assert (optimizer.evaluations, last(optimizer).size, last(optimizer).wolfe) == (1, 0, True)


def test_an_interrupt_leaves_the_parameters_where_the_step_began() -> None:
    params, loss = network(5, seed=0)
    optimizer = ConjugateGradient(params)
    before = [p.detach().clone() for p in params]

    def closure() -> Tensor:
        if optimizer.evaluations == 2:
            raise KeyboardInterrupt
        return closure_of(optimizer, loss)()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert all(torch.equal(p, q) for p, q in zip(params, before, strict=True))


# The functions of Moré & Thuente (1994) that are smooth, with c1 and c2 as they tried them.
LINES: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "flat beyond its minimum": (lambda a: -a / (a * a + 2), 1e-3, 0.1),
    "narrow": (lambda a: (a + 0.004) ** 5 - 2 * (a + 0.004) ** 4, 0.1, 0.1),
    "steep at both ends": (lambda a: 0.1 * (a * a + 1e-4).sqrt() + 0.9 * ((a - 1) ** 2 + 0.01).sqrt(), 1e-3, 1e-3),
    "a wall": (lambda a: torch.cosh(3 * (a - 2)) - a, 1e-4, 0.1),
}


@pytest.mark.parametrize("exponent", range(-3, 4))
@pytest.mark.parametrize("name", LINES)
def test_line_searches_succeed_from_first_steps_of_all_sizes(name: str, exponent: int) -> None:
    function, c1, c2 = LINES[name]
    tried = []

    def line(step: float) -> Trial:
        tried.append(step)
        a = torch.tensor(step, dtype=F64, requires_grad=True)
        value = function(a)
        return Trial(step, value.item(), torch.autograd.grad(value, a)[0].item())

    start, wolfe = line(0.0), Wolfe(c1, c2)
    found = line_search(line, start, first=10.0**exponent, wolfe=wolfe, limit=25)
    assert found is not None
    assert found.value <= start.value + c1 * found.step * start.slope
    assert abs(found.slope) <= c2 * abs(start.slope)
    assert len(tried) <= 20


def test_an_unbounded_line_ends_at_the_limit() -> None:
    found = line_search(lambda step: Trial(step, -step, -1.0), Trial(0.0, 0.0, -1.0), 1.0, Wolfe(1e-4, 0.1), limit=5)
    assert found == Trial(1e4, -1e4, -1.0)


X = torch.ones(2, requires_grad=True)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no closure": (lambda: ConjugateGradient([X]).step(), "need a closure, got none"),
    "no loss": (lambda: ConjugateGradient([X]).step(lambda: None), "the closure must return the loss"),  # type: ignore[arg-type, return-value]
    "many losses": (lambda: ConjugateGradient([X]).step(lambda: X), "a scalar tensor, got tensor([1., 1.]"),
    "c2 below c1": (lambda: ConjugateGradient([X], c1=0.2), "0 < c1 < c2 < 0.5 must hold, got c1=0.2 and c2=0.1"),
    "c2 too large": (lambda: ConjugateGradient([X], c2=0.9), "got c1=0.0001 and c2=0.9"),
    "no searches": (lambda: ConjugateGradient([X], searches=0), "searches must be an integer of at least 1, got 0"),
    "no trials": (lambda: ConjugateGradient([X], limit=0), "limit must be an integer of at least 1, got 0"),
    "rounding": (lambda: ConjugateGradient([X], rounding=-1e-6), "rounding must be at least 0 and below 1, got -1e-06"),
    "two groups": (lambda: ConjugateGradient([{"params": [X]}, {"params": [X.detach()]}]), "must be in one group"),  # type: ignore[list-item]
    "complex": (lambda: ConjugateGradient([X.detach() * 1j]), "must have floating dtypes, got {torch.complex64}"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_last_step_is_none_at_first_and_frozen_later() -> None:
    x = torch.ones(2, requires_grad=True)
    optimizer = ConjugateGradient([x])
    assert optimizer.last_step is None
    optimizer.step(closure_of(optimizer, lambda: x.square().sum()))
    with pytest.raises(FrozenInstanceError):
        last(optimizer).size = 1.0  # type: ignore[misc]
