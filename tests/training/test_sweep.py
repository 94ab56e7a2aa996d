"""Unit sweeping: units are frozen first to last, their codes never change again, and late units are trained."""

import pytest
import torch

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Geometric
from nestcode.nn import Binarize, Groups, OrderedAutoencoder
from nestcode.nn.layers import Block, Encoder
from nestcode.training import Run, Sweep, Training, train
from nestcode.training.sweep import Sweeper
from tests.training.runs import learn, network, settings


def first_block(model: OrderedAutoencoder) -> Block:
    assert isinstance(model.encoder, Encoder)
    return model.encoder.code_blocks()[0]


def probe() -> torch.Tensor:
    return torch.from_numpy(digits()[0][:100]).float()


@pytest.mark.parametrize("bits", [True, False])
def test_units_that_stop_changing_are_frozen_and_others_are_not(bits: bool) -> None:
    model = network(layers=(), binarize=Binarize(8) if bits else None)
    torch.nn.init.ones_(first_block(model).bias)
    if model.binarize is not None:
        model.binarize.initialize(model.preactivations(probe()))
    sweeper = Sweeper(model, Sweep(tolerance=0.01, patience=3), probe())
    assert sweeper.check() == 0  # nothing to compare with yet
    with torch.no_grad():
        first_block(model).weight[3] *= -1
        first_block(model).bias[3] *= -0.5
    assert sweeper.check() == 3
    assert model.frozen == 3
    assert model.nested.lengths == Beyond(Geometric(0.9), 3)


def test_one_more_unit_is_frozen_when_patience_ends() -> None:
    model = network(layers=(), binarize=None)
    sweeper = Sweeper(model, Sweep(tolerance=0.0, patience=3), probe())
    frozen = []
    for _ in range(8):
        frozen.append(sweeper.check())
        with torch.no_grad():
            first_block(model).weight[model.frozen :].add_(1.0)
    assert frozen == [0, 0, 0, 1, 0, 0, 1, 0]


def test_the_last_unit_is_never_frozen() -> None:
    model = network(layers=(), binarize=None)
    sweeper = Sweeper(model, Sweep(), probe())
    for _ in range(3):
        sweeper.check()
    assert model.frozen == 7


def test_frozen_units_keep_their_share_of_ones() -> None:
    model, _ = learn(settings("sweep", steps=60), model=network(binarize=Binarize(8, beta=0.3)))
    X = torch.from_numpy(digits()[0][:600]).float()
    assert model.frozen > 0
    assert (model.encode(X).mean(dim=0) - 0.3).abs().max() < 0.1


def test_a_starved_unit_is_trained_only_when_units_are_swept() -> None:
    """Geometric lengths with decay 0.3 reach unit 12 once in half a million draws."""
    X = digits()[0]
    gains = {}
    for sweep in (None, Sweep(every=10, patience=1)):
        torch.manual_seed(0)
        model = OrderedAutoencoder(64, 12, lengths=Geometric(0.3), corruption=0.0, dropout=0.0, spread="common")
        training = Training(steps=250, learning_rate=0.02, sweep=sweep, schedule="constant")
        errors = train(model, X, training, Run(progress=False))[-1]["errors"]
        gains[sweep is not None] = (errors[4] - errors[12]) / errors[4]
    assert gains[True] > 0.15
    assert gains[True] > 3 * gains[False]


def test_only_chains_are_swept() -> None:
    model = network(lengths=Groups([4, 4], Geometric(0.5)))
    with pytest.raises(InvalidInput, match="units are swept along a chain"):
        learn(settings("sweep"), model=model)
    with pytest.raises(InvalidInput, match="tolerance must be at least 0 and below 1, got 2"):
        Sweep(tolerance=2)
    with pytest.raises(InvalidInput, match="every must be an integer of at least 1, got 0"):
        Sweep(every=0)
