"""Quantile thresholds: the share of ones, how thresholds follow data, and which gradients pass."""

import copy
import pickle
import re
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nestcode.errors import InvalidInput
from nestcode.nn import Binarize
from nestcode.nn import binarize as module
from nestcode.nn.binarize import Anchor, Gradient, anchored_bits, sample_bits, straight_through, threshold_bits

WIDTH = 16


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(n: int, generator: torch.Generator, width: int = WIDTH) -> Tensor:
    return torch.randn(n, width, generator=generator)


def skewed(n: int, generator: torch.Generator) -> Tensor:
    return normal(n, generator).exp()


def heavy(n: int, generator: torch.Generator) -> Tensor:
    """Student's t with 2 degrees of freedom: its variance is infinite."""
    return normal(n, generator) / (-torch.rand(n, WIDTH, generator=generator).log()).sqrt()


KINDS = [normal, skewed, heavy]
Draw = Callable[[int, torch.Generator], Tensor]


def placed(draw: Draw, n: int, generator: torch.Generator) -> Tensor:
    """Each unit with a mean and a scale of its own."""
    return 3 * torch.linspace(-1, 1, WIDTH) + torch.logspace(-2, 2, WIDTH) * draw(n, generator)


def share(binarize: Binarize, pre: Tensor) -> Tensor:
    bits: Tensor = copy.deepcopy(binarize).eval()(pre)
    return bits.mean(dim=0)


# The share of ones


@pytest.mark.parametrize("draw", KINDS)
@pytest.mark.parametrize("beta", [0.1, 0.2, 0.5])
def test_held_out_data_have_the_share_of_ones(draw: Draw, beta: float) -> None:
    n, generator = 20_000, seeded()
    binarize = Binarize(WIDTH, beta)
    binarize.finalize(placed(draw, n, generator).split(3000))
    off = (share(binarize, placed(draw, n, generator)) - beta).abs()
    noise = (beta * (1 - beta) * (1 / n + 1 / n)) ** 0.5  # of the data that set thresholds, and of those held out
    assert off.mean() <= 0.01
    assert off.max() <= 4.5 * noise


@pytest.mark.parametrize("beta", [0.1, 0.37, 0.5])
@pytest.mark.parametrize("n", [2, 7, 100])
def test_the_data_have_the_share_of_ones_exactly(n: int, beta: float) -> None:
    binarize, pre = Binarize(WIDTH, beta), normal(n, seeded())
    binarize.initialize(pre)
    ones = share(binarize, pre) * n
    torch.testing.assert_close(ones, torch.full((WIDTH,), float(n - max(1, round((1 - beta) * n)))))
    assert (binarize.threshold <= pre.max(dim=0).values).all()


@pytest.mark.parametrize("draw", KINDS)
@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_running_thresholds_come_near_the_quantiles(draw: Draw, beta: float) -> None:
    binarize, generator = Binarize(WIDTH, beta), seeded()
    for _ in range(300):
        binarize(placed(draw, 200, generator))
    off = (share(binarize, placed(draw, 10_000, generator)) - beta).abs()
    assert off.mean() <= 0.02
    assert off.max() <= 0.05


@pytest.mark.parametrize("beta", [0.2, 0.5])
def test_running_thresholds_follow_drifting_data(beta: float) -> None:
    binarize, generator = Binarize(WIDTH, beta), seeded()
    mean, scale = torch.zeros(WIDTH), torch.ones(WIDTH)
    for _ in range(500):  # half a deviation, and to twice the size
        mean, scale = mean + 0.001 * scale, scale * 2 ** (1 / 500)
        binarize(mean + scale * normal(200, generator))
    assert (share(binarize, mean + scale * normal(10_000, generator)) - beta).abs().mean() <= 0.03


def test_exact_thresholds_equal_a_plain_sort() -> None:
    pre = normal(1001, seeded(), width=300)
    binarize = Binarize(300, 0.3)
    binarize.initialize(pre)
    ordered = pre.sort(dim=0).values
    torch.testing.assert_close(binarize.threshold, (ordered[700] + ordered[701]) / 2)


def test_rectified_units_have_no_threshold_with_that_share() -> None:
    pre = normal(10_000, seeded()) - 1  # 0 in 84 of 100 examples
    half = pre.relu().quantile(0.5, dim=0)
    assert ((pre.relu() > half).float().mean(dim=0) < 0.2).all()


def test_many_rows_are_subsampled_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    rows = torch.arange(1003.0)[:, None]
    one, other = Binarize(1, 0.25), Binarize(1, 0.25)
    one.finalize(rows.split(37))
    other.finalize([rows])
    assert torch.equal(one.threshold, other.threshold)  # however they are cut into batches
    assert abs(one.threshold - 750) <= 16
    reused = torch.empty(37, 1)
    one.finalize(reused.copy_(part) for part in rows[:999].split(37))  # batches may be written over
    other.finalize([rows[:999]])
    assert torch.equal(one.threshold, other.threshold)


# Following


def follow_twin(batches: list[Tensor], beta: float, rate: float) -> tuple[Tensor, Tensor]:
    """One batch after the other, straight from the definition."""
    z = NormalDist().inv_cdf(1 - beta)
    first, *others = (batch.double() for batch in batches)
    spread = first.std(dim=0, correction=0)
    threshold = first.mean(dim=0) + z * spread
    for batch in others:
        square = (batch - threshold).square().mean(dim=0) / (1 + z * z)
        threshold = threshold + rate * spread * ((batch > threshold).double().mean(dim=0) - beta)
        spread = ((1 - rate) * spread.square() + rate * square).sqrt()
    return threshold.float(), spread.float()


def test_updates_equal_their_definition() -> None:
    generator = seeded()
    batches = [2 + 3 * normal(50, generator) for _ in range(8)]
    binarize = Binarize(WIDTH, 0.3, rate=0.1)
    for t, batch in enumerate(batches):
        before = binarize.threshold.clone()
        bits = binarize(batch)
        assert torch.equal(bits, threshold_bits(batch, binarize.threshold if t == 0 else before))
    threshold, spread = follow_twin(batches, 0.3, 0.1)
    torch.testing.assert_close(binarize.threshold, threshold)
    torch.testing.assert_close(binarize.spread, spread)


def test_micro_batches_add_up_to_the_batch() -> None:
    generator = seeded()
    whole, pieces = Binarize(WIDTH, 0.2), Binarize(WIDTH, 0.2, deferred=True)
    for _ in range(5):
        batch = normal(60, generator)
        whole(batch)
        for piece in batch.split([7, 33, 20]):
            pieces(piece)
        pieces.update()
    torch.testing.assert_close(pieces.threshold, whole.threshold)
    torch.testing.assert_close(pieces.spread, whole.spread)


def test_frozen_thresholds_stay_when_units_are_added() -> None:
    binarize, generator = Binarize(WIDTH, 0.2), seeded()
    binarize.initialize(normal(100, generator))
    old = binarize.threshold.clone()
    binarize.frozen = 5
    binarize.grow(3)
    binarize.initialize(1 + normal(100, generator, WIDTH + 3), last=10)
    assert torch.equal(binarize.threshold[:5], old[:5])
    assert (binarize.threshold[5:10] != old[5:10]).all()
    assert torch.equal(binarize.threshold[10:WIDTH], old[10:])
    assert binarize(1 + normal(100, generator, WIDTH + 3)).shape == (100, WIDTH + 3)
    assert torch.equal(binarize.threshold[:5], old[:5])
    assert (binarize.threshold[5:] != 0).all()


def test_the_statistics_of_a_batch_can_be_discarded() -> None:
    binarize, generator = Binarize(WIDTH, deferred=True), seeded()
    binarize.initialize(normal(50, generator))
    before = binarize.threshold.clone()
    binarize(1 + normal(50, generator))
    binarize.discard()
    binarize.update()
    assert torch.equal(binarize.threshold, before)


def test_exact_quantiles_discard_earlier_statistics() -> None:
    binarize, generator = Binarize(WIDTH, deferred=True), seeded()
    binarize(normal(50, generator))
    binarize.initialize(normal(50, generator))
    before = binarize.threshold.clone()
    binarize.update()
    assert torch.equal(binarize.threshold, before)


def test_evaluation_changes_nothing() -> None:
    binarize = Binarize(WIDTH).eval()
    before = copy.deepcopy(binarize.state_dict())
    binarize(normal(50, seeded()))
    for name, value in binarize.state_dict().items():
        assert torch.equal(value, before[name])


# Gradients


def pass_twin(pre: Tensor, threshold: Tensor, spread: Tensor, steepness: float) -> Tensor:
    """The soft bit with a threshold that moves as a quantile does: with the mean of the examples near it."""
    soft = torch.sigmoid(steepness * (pre - threshold) / spread).detach()
    near = soft * (1 - soft)
    follows = (near * pre).sum(dim=0) / near.sum(dim=0)
    return torch.sigmoid(steepness * (pre - threshold - follows + follows.detach()) / spread)


@pytest.mark.parametrize("steepness", [1.0, 4.0])
def test_the_straight_through_gradient_is_of_a_sigmoid_at_a_moving_threshold(steepness: float) -> None:
    generator = seeded()
    pre = normal(30, generator).double().requires_grad_()
    threshold, spread = torch.linspace(-1, 1, WIDTH).double(), torch.linspace(0.5, 3, WIDTH).double()
    weight = normal(30, generator).double()
    bits = straight_through(threshold_bits(pre, threshold), pre, threshold, spread, steepness)
    assert torch.equal(bits, (pre > threshold).double())
    (got,) = torch.autograd.grad((bits * weight).sum(), pre)
    (expected,) = torch.autograd.grad((pass_twin(pre, threshold, spread, steepness) * weight).sum(), pre)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got.sum(dim=0), torch.zeros(WIDTH).double())  # a shift of all changes no bit


@pytest.mark.parametrize("gradient", ["none", "straight-through", "stochastic"])
def test_which_gradients_pass(gradient: Gradient) -> None:
    binarize = Binarize(WIDTH, gradient=gradient)
    pre = normal(50, seeded()).requires_grad_()
    bits = binarize(pre)
    assert bits.requires_grad == (gradient != "none")
    assert not binarize.eval()(pre).requires_grad
    if gradient != "none":
        bits.square().sum().backward()
        assert pre.grad is not None
        assert (pre.grad[:, 0] != 0).all()


@pytest.mark.parametrize("deferred", [False, True])
def test_the_backward_pass_may_come_after_an_update(deferred: bool) -> None:
    generator = seeded()
    binarize = Binarize(WIDTH, deferred=deferred)
    binarize.initialize(normal(50, generator))
    pre, weight = normal(50, generator).requires_grad_(), normal(50, generator)
    (expected,) = torch.autograd.grad((copy.deepcopy(binarize)(pre) * weight).sum(), pre)
    bits = binarize(pre)
    binarize(5 + normal(50, generator))
    binarize.update()
    (got,) = torch.autograd.grad((bits * weight).sum(), pre)
    assert torch.equal(got, expected)


def test_stochastic_bits_are_sampled_in_training_only() -> None:
    binarize = Binarize(WIDTH, gradient="stochastic", deferred=True)
    pre = torch.linspace(-2, 2, WIDTH).expand(20_000, WIDTH)
    chance = torch.sigmoid(module.SAMPLED_STEEPNESS * pre[0])
    drawn = binarize(pre, generator=seeded(1))
    noise = (chance * (1 - chance) / len(pre)).sqrt()
    assert ((drawn.mean(dim=0) - chance).abs() <= 4.5 * noise + 1e-6).all()
    assert torch.equal(drawn, binarize(pre, generator=seeded(1)))
    assert not torch.equal(drawn, binarize(pre, generator=seeded(2)))
    assert torch.equal(binarize.eval()(pre), (pre > 0).float())


def test_rare_ones_are_learned() -> None:
    """Units that gain by more ones than they may have do not run from their thresholds."""
    torch.manual_seed(0)
    encoder, binarize = nn.Linear(4, 4), Binarize(4, beta=0.1)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    for _ in range(150):
        x = torch.randn(200, 4)
        loss = -(binarize(encoder(x)) * (10 + x[:, :1])).mean()  # all gain, those with much of the first more
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x = torch.randn(5000, 4)
    bits = binarize.eval()(encoder(x))
    assert (bits.mean(dim=0) - 0.1).abs().max() < 0.05
    assert (x[:, 0] @ bits / bits.sum(dim=0) > 1.5).all()  # 1.75 in the upper tenth


# Odd inputs


@pytest.mark.parametrize("gradient", ["none", "straight-through", "stochastic"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e30, 1e6])
@pytest.mark.parametrize("first", [True, False])
def test_nan_and_infinity_stay_out_of_thresholds(gradient: Gradient, bad: float, first: bool) -> None:
    binarize, generator = Binarize(WIDTH, 0.3, gradient), seeded()
    if not first:
        binarize(normal(200, generator))
    pre = normal(200, generator)
    pre[7, 3] = bad
    bits = binarize(pre)
    assert bits.isnan().sum() == (bad != bad)
    assert torch.equal(bits[7, 3].isnan(), torch.tensor(bad != bad))
    for _ in range(30):
        binarize(normal(200, generator))
    assert binarize.threshold.isfinite().all()
    if not first:
        assert (share(binarize, normal(5000, generator)) - 0.3).abs().max() < 0.06
    pre[:] = torch.nan
    before = binarize.threshold.clone()
    binarize.finalize([pre])
    assert torch.equal(binarize.threshold, before)


def test_a_batch_of_nan_does_not_initialize_thresholds() -> None:
    binarize = Binarize(WIDTH)
    binarize(torch.full((5, WIDTH), torch.nan))
    binarize(100 + normal(50, seeded()))
    assert (binarize.threshold - 100).abs().max() < 1


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("width", [1, 3])
def test_small_batches(rows: int, width: int) -> None:
    binarize, generator = Binarize(width), seeded()
    for _ in range(200):
        pre = (5 + normal(rows, generator, width)).requires_grad_()
        binarize(pre).sum().backward()
        assert pre.grad is not None
        assert pre.grad.isfinite().all()
    assert binarize.threshold.isfinite().all()
    if rows:
        assert (share(binarize, 5 + normal(5000, generator, width)) - 0.5).abs().max() < 0.25


def test_constant_units() -> None:
    binarize = Binarize(2, 0.2)
    pre = torch.tensor([[3.0, 0.0]]).repeat(10, 1).requires_grad_()
    for _ in range(300):
        (binarize(pre) * torch.arange(10.0)[:, None]).sum().backward()
    assert pre.grad is not None
    assert pre.grad.isfinite().all()
    torch.testing.assert_close(binarize.threshold, torch.tensor([3.0, 0.0]), atol=1e-3, rtol=0)
    for generator in [seeded()] * 200:  # they wake up
        binarize(10 + normal(100, generator, 2))
    assert (share(binarize, 10 + normal(5000, seeded(1), 2)) - 0.2).abs().max() < 0.05


# Life in a model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_bits_keep_the_dtype_and_thresholds_stay_float32(dtype: torch.dtype) -> None:
    binarize = Binarize(WIDTH, 0.2)
    binarize.initialize(normal(1000, seeded()))
    before = binarize.threshold.clone()
    binarize.to(dtype)
    assert torch.equal(binarize.threshold, before)
    pre = normal(1000, seeded(1)).to(dtype).requires_grad_()
    bits = binarize(pre)
    bits.sum().backward()
    assert pre.grad is not None
    assert (bits.dtype, pre.grad.dtype, binarize.threshold.dtype) == (dtype, dtype, torch.float32)
    assert abs(float(bits.detach().float().mean()) - 0.2) < 0.02


def test_autocast() -> None:
    model = nn.Sequential(nn.Linear(6, WIDTH), Binarize(WIDTH, signed=True), nn.Linear(WIDTH, 6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(torch.randn(20, 6))
        out.square().sum().backward()
    assert out.dtype == torch.bfloat16
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_signed_bits_differ_from_dropped_ones() -> None:
    pre = torch.tensor([[1.0, -1.0]])
    assert Binarize(2, signed=True).eval()(pre).tolist() == [[1, -1]]
    assert Binarize(2).eval()(pre).tolist() == [[1, 0]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
@pytest.mark.parametrize(("gradient", "deferred"), [("straight-through", False), ("stochastic", True), ("none", True)])
def test_it_compiles_without_graph_breaks(gradient: Gradient, deferred: bool) -> None:
    torch._dynamo.reset()
    plain = nn.Sequential(nn.Linear(6, WIDTH), Binarize(WIDTH, 0.2, gradient, deferred=deferred), nn.Linear(WIDTH, 1))
    other = copy.deepcopy(plain)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        x = normal(40, seeded(seed), 6)
        for model in (plain, compiled):
            torch.manual_seed(seed)
            model(x).sum().backward()
    for one, two in zip(plain.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, two)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(parameter.grad, other.get_parameter(name).grad)


def test_it_prints_pickles_copies_and_loads() -> None:
    binarize = Binarize(WIDTH, 0.2, "stochastic", signed=True)
    assert str(binarize) == f"Binarize({WIDTH}, beta=0.2, gradient='stochastic', signed=True)"
    binarize(normal(50, seeded()))
    loaded = Binarize(WIDTH, 0.2)
    loaded.load_state_dict(binarize.state_dict())
    for other in (pickle.loads(pickle.dumps(binarize)), copy.deepcopy(binarize), loaded):
        assert torch.equal(other.threshold, binarize.threshold)
        assert torch.equal(other.spread, binarize.spread)
        assert other.seen == 1


# Bits held fixed, for line searches


def test_anchored_bits_begin_as_bits_with_the_straight_through_gradient() -> None:
    origin, downstream = normal(50, seeded()).double(), normal(50, seeded(1)).double()
    threshold, spread = torch.linspace(-1, 1, WIDTH).double(), torch.linspace(0.5, 2, WIDTH).double()
    bits = threshold_bits(origin, threshold)
    gradients = []
    for make in (straight_through, lambda bits, pre, *rest: anchored_bits(bits, origin, pre, *rest)):
        pre = origin.clone().requires_grad_()
        out = make(bits, pre, threshold, spread)
        assert torch.equal(out, bits)
        gradients.append(torch.autograd.grad((out * downstream).sum(), pre)[0])
    torch.testing.assert_close(*gradients)


def test_anchored_bits_have_a_true_gradient_everywhere() -> None:
    origin, pre = normal(5, seeded()).double(), normal(5, seeded(1)).double().requires_grad_()
    bits, zero, one = (
        threshold_bits(origin, torch.zeros(WIDTH)),
        torch.zeros(WIDTH).double(),
        torch.ones(WIDTH).double(),
    )
    assert torch.autograd.gradcheck(lambda pre: anchored_bits(bits, origin, pre, zero, one), pre)


@pytest.mark.parametrize("gradient", ["none", "straight-through", "stochastic"])
def test_an_anchor_holds_the_bits_of_the_first_evaluation(gradient: Gradient) -> None:
    binarize = Binarize(WIDTH, 0.3, gradient, deferred=True)
    pre = normal(100, seeded())
    binarize.initialize(pre)
    plain, held = binarize(pre, seeded(2)), Anchor()
    binarize.anchor = held
    assert torch.equal(binarize(pre, seeded(2)), plain)
    moved = binarize(pre + 0.01 * normal(100, seeded(3)), seeded(2))
    assert torch.equal(moved, plain) == (gradient == "none")
    assert (moved - plain).abs().max() < 0.2
    binarize.anchor = None
    assert set(binarize(pre + 1, seeded(2)).unique().tolist()) <= {0.0, 1.0}


PRE = torch.ones(3, 4)
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "beta 0": (lambda: Binarize(4, beta=0), "beta must lie strictly between 0 and 1, got 0"),
    "beta 1": (lambda: Binarize(4, beta=1.0), "beta must lie strictly between 0 and 1, got 1.0"),
    "beta nan": (lambda: Binarize(4, beta=float("nan")), "beta must lie strictly between 0 and 1, got nan"),
    "rate 0": (lambda: Binarize(4, rate=0), "rate must lie strictly between 0 and 1, got 0"),
    "width 0": (lambda: Binarize(0), "width must be an integer of at least 1, got 0"),
    "gradient": (lambda: Binarize(4, gradient="sign"), "gradient must be one of none, straight-through, stochastic"),  # type: ignore[arg-type]
    "width": (lambda: Binarize(5)(PRE), "must be floats (n, 5), got torch.float32 of shape (3, 4)"),
    "one example": (lambda: Binarize(4)(PRE[0]), "must be floats (n, 4), got torch.float32 of shape (4,)"),
    "integers": (lambda: Binarize(4)(PRE.long()), "must be floats (n, 4), got torch.int64"),
    "width at the end": (lambda: Binarize(5).finalize([PRE]), "must be floats (n, 5)"),
    "nothing": (lambda: Binarize(4).finalize([]), "at least one item, got none"),
    "no rows": (lambda: Binarize(4).initialize(PRE[:0]), "at least one item, got none"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_sampled_bits_keep_nan() -> None:
    pre = torch.tensor([[torch.nan, 9.0]])
    bits = sample_bits(pre, torch.zeros(2), torch.ones(2))
    assert bits[0, 0].isnan()
    assert bits[0, 1] == 1


def test_deferred_thresholds_move_once_under_activation_checkpointing() -> None:
    pre = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    plain, recomputed = Binarize(4, deferred=True), Binarize(4, deferred=True)
    for binarize in (plain, recomputed):
        binarize.initialize(pre + 1)
    plain(pre).sum().backward()
    checkpoint(recomputed, pre, use_reentrant=False).sum().backward()
    for binarize in (plain, recomputed):
        binarize.update()
    assert torch.equal(plain.threshold, recomputed.threshold)
    assert torch.equal(plain.spread, recomputed.spread)
