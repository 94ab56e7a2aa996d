"""Bits at quantiles: each is 1 as often as asked for, whatever the distribution, and gradients pass as promised."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

from nestcode.errors import InvalidInput
from nestcode.nn import Binarize
from nestcode.nn.binarize import threshold_bits


def draw(kind: str, n: int, width: int = 64, seed: int = 0) -> Tensor:
    normal = torch.randn(n, width, generator=torch.Generator().manual_seed(seed))
    shapes = {"normal": normal, "skewed": normal.exp(), "heavy": normal / normal.roll(1, 0).abs().clamp(min=1e-3)}
    return shapes[kind] * torch.arange(1, width + 1) - 3.0


@pytest.mark.parametrize("kind", ["normal", "skewed", "heavy"])
@pytest.mark.parametrize("beta", [0.1, 0.2, 0.5])
def test_on_unseen_data_bits_are_1_as_often_as_asked_for(kind: str, beta: float) -> None:
    n = 10_000
    binarize = Binarize(64, beta)
    binarize.finalize(draw(kind, n).split(999))
    share = binarize.eval()(draw(kind, n, seed=1)).mean(dim=0)
    assert (share - beta).abs().mean() <= 0.01
    assert (share - beta).abs().max() <= 4.5 * (2 * beta * (1 - beta) / n) ** 0.5  # both samples are random


@pytest.mark.parametrize("beta", [0.2, 0.5])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_thresholds_follow_the_data_while_training(beta: float, drift: float) -> None:
    binarize = Binarize(64, beta)
    for step in range(300):
        binarize(draw("skewed", 200, seed=step) + drift * step)
    share = binarize.eval()(draw("skewed", 10_000, seed=999) + drift * 300).mean(dim=0)
    assert (share - beta).abs().mean() < 0.03


def test_rectified_units_could_not_have_such_a_threshold() -> None:
    pre = draw("normal", 10_000)
    pre[:, 0] -= pre[:, 0].quantile(0.9)
    half = pre[:, 0].relu().quantile(0.5)
    assert abs(float((pre[:, 0].relu() > half).float().mean()) - 0.5) > 0.3


def test_exact_thresholds_equal_a_plain_sort() -> None:
    pre = draw("heavy", 1001, width=300)
    binarize = Binarize(300, 0.3)
    binarize.initialize(pre)
    ordered = pre.sort(dim=0).values
    assert torch.allclose(binarize.threshold, (ordered[700] + ordered[701]) / 2)


def test_many_rows_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestcode.nn.binarize.MOST_ROWS", 500)
    pre = torch.arange(10_000.0)[:, None]
    binarize = Binarize(1, 0.25)
    binarize.finalize(pre.split(333))
    assert abs(float(binarize.threshold) - 7500) < 40


@pytest.mark.parametrize("signed", [False, True])
def test_bits_are_two_values(signed: bool) -> None:
    bits = Binarize(64, signed=signed)(draw("normal", 100))
    assert set(bits.unique().tolist()) == ({-1.0, 1.0} if signed else {0.0, 1.0})


def test_the_papers_threshold_lets_no_gradient_pass() -> None:
    pre = draw("normal", 50).requires_grad_()
    assert not Binarize(64, gradient="none")(pre).requires_grad


def test_straight_through_is_the_slope_of_a_ramp() -> None:
    pre = draw("normal", 500).requires_grad_()
    binarize = Binarize(64)
    binarize.initialize(pre)
    threshold, spread = binarize.threshold.clone(), binarize.spread.clone()
    binarize(pre).sum().backward()
    near = ((pre - threshold) / spread).abs() <= 1
    expected = torch.where(near, 1 / (2 * spread), 0.0)
    assert pre.grad is not None
    assert torch.allclose(pre.grad, expected.detach())


def test_stochastic_bits_have_their_probability() -> None:
    pre = torch.full((100_000, 1), 0.3, requires_grad=True)
    torch.manual_seed(0)
    bits = threshold_bits(pre, torch.zeros(1), torch.ones(1), "stochastic")
    expected = float(torch.sigmoid(torch.tensor(4 * 0.3)))
    assert abs(float(bits.detach().mean()) - expected) < 0.01
    bits.mean().backward()
    assert pre.grad is not None
    assert torch.allclose(pre.grad.sum(), torch.tensor(4 * expected * (1 - expected)), rtol=1e-3)
    module = Binarize(1, gradient="stochastic").eval()
    assert torch.equal(module(pre), torch.ones(100_000, 1))  # no chance in evaluation


def test_deferred_pieces_move_thresholds_as_one_batch_does() -> None:
    whole, pieces = Binarize(64, deferred=True), Binarize(64, deferred=True)
    for module in (whole, pieces):
        module.initialize(draw("normal", 500))
    pre = draw("normal", 300, seed=1) + 1
    before = whole.threshold.clone()
    whole(pre)
    for part in pre.split(100):
        pieces(part)
    assert torch.equal(whole.threshold, before)
    whole.update()
    pieces.update()
    assert not torch.equal(whole.threshold, before)
    assert torch.allclose(whole.threshold, pieces.threshold)
    assert torch.allclose(whole.spread, pieces.spread)
    whole(pre)
    whole.forget()
    kept = whole.threshold.clone()
    whole.update()
    assert torch.equal(whole.threshold, kept)


def work(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    binarize = Binarize(64)
    for step in range(3):
        binarize(draw("skewed", 200, seed=step)[rank::2])
    torch.save(binarize.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without torch.distributed")
def test_processes_share_what_they_see(tmp_path: Path) -> None:
    start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    alone = Binarize(64)
    for step in range(3):
        alone(draw("skewed", 200, seed=step))
    for rank in range(2):
        got = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(got["threshold"], alone.threshold)
        torch.testing.assert_close(got["spread"], alone.spread)


def test_fixed_thresholds_stay() -> None:
    binarize = Binarize(64)
    binarize(draw("normal", 500))
    binarize.fixed = 10
    before = binarize.threshold.clone()
    binarize(draw("normal", 500) + 5)
    binarize.finalize([draw("normal", 500) + 5])
    assert torch.equal(binarize.threshold[:10], before[:10])
    assert (binarize.threshold[10:] > before[10:]).all()


def test_growing_keeps_old_thresholds() -> None:
    binarize = Binarize(64)
    binarize(draw("normal", 500))
    before = binarize.threshold.clone()
    binarize.grow(6)
    assert binarize(draw("normal", 50, width=70)).shape == (50, 70)
    assert torch.equal(Binarize(64).threshold, torch.zeros(64))
    assert binarize.threshold.shape == (70,)
    assert before.shape == (64,)


def test_what_is_no_number_never_reaches_the_thresholds() -> None:
    binarize = Binarize(64)
    binarize(draw("normal", 500))
    spoilt = draw("normal", 500)
    spoilt[3, 5], spoilt[4, 6] = float("nan"), float("inf")
    binarize(spoilt)
    assert binarize.threshold.isfinite().all()
    assert binarize.spread.isfinite().all()


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_and_constant_batches(n: int) -> None:
    binarize = Binarize(3)
    bits = binarize(torch.ones(n, 3).requires_grad_())
    bits.sum().backward()
    assert binarize.spread.isfinite().all()
    assert (binarize.spread > 0).all()


def test_it_is_a_module_like_others() -> None:
    binarize = Binarize(64, 0.2)
    binarize(draw("normal", 500))
    again = Binarize(64, 0.2)
    again.load_state_dict(binarize.state_dict())
    for other in (again, deepcopy(binarize)):
        assert torch.equal(other.eval()(draw("normal", 50)), binarize.eval()(draw("normal", 50)))
    with torch.autocast("cpu", torch.bfloat16):
        bits = binarize.train()(draw("normal", 50).bfloat16())
    assert bits.dtype == torch.bfloat16
    assert binarize.threshold.dtype == torch.float32
    assert "beta=0.2" in repr(binarize)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beta": 0.0}, "beta must lie strictly between 0 and 1, got 0.0"),
        ({"beta": 1.5}, "beta must lie strictly between 0 and 1, got 1.5"),
        ({"rate": 2}, "rate must lie strictly between 0 and 1, got 2"),
        ({"gradient": "ste"}, "gradient must be one of none, straight-through, stochastic, got 'ste'"),
        ({"width": 0}, "width must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Binarize(**{"width": 4, **wrong})


def test_wrong_data_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"pre-activations must be \(n, 4\), got shape \(3, 5\)"):
        Binarize(4)(torch.ones(3, 5))
    with pytest.raises(InvalidInput, match="finalize needs pre-activations of at least one item"):
        Binarize(4).finalize([])
