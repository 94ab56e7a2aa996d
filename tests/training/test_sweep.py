"""Unit sweeping: units are frozen first to last, their codes never change again, and late units are trained."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from nestcode.data import digits
from nestcode.errors import InvalidInput
from nestcode.lengths import Beyond, Empirical, Geometric, Mixture
from nestcode.nn import Binarize, Groups, OrderedAutoencoder, OrderedNetwork
from nestcode.nn.layers import Block, Encoder
from nestcode.nn.modes import evaluation_mode
from nestcode.training import Run, Sweep, Training, train
from nestcode.training.sweep import Sweeper
from tests.training.runs import assert_same, learn, network, settings, state


def first_block(model: OrderedAutoencoder) -> Block:
    assert isinstance(model.encoder, Encoder)
    return model.encoder.code_blocks()[0]


def probe() -> torch.Tensor:
    return torch.from_numpy(digits()[0][:100]).float()


def sweeper_of(model: OrderedAutoencoder, **changes: Any) -> Sweeper:
    own = {"after": 0.0, "blocks": 4, "checks": 1000, **changes}
    return Sweeper(model, Sweep(**own), probe(), steps=1000)


@pytest.mark.parametrize("bits", [True, False])
def test_blocks_that_stop_changing_are_frozen_one_after_the_other(bits: bool) -> None:
    model = network(layers=(), binarize=Binarize(8) if bits else None)
    torch.nn.init.ones_(first_block(model).bias)
    if model.binarize is not None:
        model.binarize.initialize(model.preactivations(probe()))
    sweeper = sweeper_of(model, tolerance=0.01)
    assert sweeper.check(0)  # the first block is due
    with torch.no_grad():
        first_block(model).weight[5] *= -1
        first_block(model).bias[5] *= -0.5
    assert sweeper.check(1)
    assert model.frozen == 4
    assert model.nested.lengths == Beyond(Geometric(0.9), 4)
    assert sweeper.check(2)  # and once it has stopped
    assert model.frozen == 6


def test_blocks_share_the_steps_that_remain_and_the_last_is_never_frozen() -> None:
    model = network(layers=(), binarize=None)
    sweeper = Sweeper(model, Sweep(after=0.5, blocks=4, checks=3, tolerance=0.0), probe(), steps=100)
    frozen = []
    for step in range(101):
        sweeper.check(step)
        frozen.append(model.frozen)
        with torch.no_grad():
            first_block(model).weight[model.frozen :].add_(1.0)
    assert [frozen.count(units) for units in (0, 2, 4, 6)] == [50, 20, 15, 16]
    model = network(layers=(), binarize=None)
    sweeper = sweeper_of(model)
    for step in range(9):
        sweeper.check(step)
    assert model.frozen == 6


class _Watched(Sweeper):
    """Records, after every step, what frozen units encode and decode to, and whether hidden layers are frozen."""

    seen: list[tuple[bool, int, Tensor, Tensor]]

    def check(self, step: int) -> bool:
        changed, model = super().check(step), self.model
        if model.frozen:
            self.seen.append((model.hidden_frozen, model.frozen, *prefix(model, model.frozen)))
        return changed


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int, Tensor, Tensor]]:
    seen: list[tuple[bool, int, Tensor, Tensor]] = []
    monkeypatch.setattr(_Watched, "seen", seen, raising=False)
    monkeypatch.setattr("nestcode.training.autoencoder.Sweeper", _Watched)
    return seen


def prefix(model: OrderedNetwork, units: int) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), evaluation_mode(model):
        code = model.encode(probe())[:, :units]
        return code, model.decode(code)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("unit", ["real", "0 and 1", "-1 and 1"])
@pytest.mark.parametrize("kind", ["adam", "conjugate"])
@pytest.mark.parametrize("layers", [(), (24,)])
def test_a_swept_prefix_keeps_its_reconstruction_bit_for_bit_to_the_end_of_training(
    watched: list[tuple[bool, int, Tensor, Tensor]], layers: tuple[int, ...], kind: str, unit: str, tied: bool
) -> None:
    """From when its last unit was frozen on; with hidden layers, from when these were frozen too."""
    bits = None if unit == "real" else Binarize(8, 0.3, signed=unit == "-1 and 1")
    model = network(layers=layers, tied=tied, binarize=bits)
    sweep = Sweep(after=0.2, blocks=4, hidden=1.0)
    learn(settings(kind, sweep=sweep, steps=16, weight_decay=0.1), digits()[0][:400], model)
    assert {frozen for held, frozen, _, _ in watched if held} == {2, 4, 6}
    for held, frozen, code, decoded in watched:
        last_code, last_decoded = prefix(model, frozen)
        assert torch.equal(code, last_code) or not held
        assert torch.equal(decoded, last_decoded) or not held


@pytest.mark.parametrize("tied", [True, False])
def test_hidden_layers_that_are_trained_to_the_end_still_change_swept_prefixes(
    watched: list[tuple[bool, int, Tensor, Tensor]], tied: bool
) -> None:
    model = network(tied=tied)
    learn(settings(sweep=Sweep(after=0.2, blocks=4, hidden=0.0), steps=16), digits()[0][:400], model)
    held, frozen, _, decoded = watched[0]
    assert not held
    assert not torch.equal(decoded, prefix(model, frozen)[1])


@pytest.mark.parametrize(("hidden", "when"), [(0.0, None), (0.1, 3), (1.0, 1)])
def test_hidden_layers_are_frozen_once_the_codes_of_frozen_units_stop_changing(hidden: float, when: int | None) -> None:
    model = network(layers=(24,))
    sweeper = sweeper_of(model, tolerance=0.0, hidden=hidden)
    changes = [1.0, 1.0, 0.0, 0.0, 0.0]
    frozen = None
    for step, change in enumerate(changes):
        sweeper.check(step)
        frozen = step if frozen is None and model.hidden_frozen else frozen
        with torch.no_grad():
            for parameter in model.encoder.get_submodule("hidden").parameters():
                parameter.add_(change * torch.randn_like(parameter))
    assert frozen == when
    assert model.frozen > 0
    beyond = Beyond(Geometric(0.9), model.frozen)
    assert model.nested.lengths == (Mixture([Geometric(0.9), beyond]) if when is None else beyond)


def test_a_sweep_trains_the_hidden_layers_and_decoder_of_a_deep_tied_network() -> None:
    """In the first step after the first block was frozen, whose weights stay."""
    models = []
    for steps in (12, 13):
        model, reports = learn(settings("sweep", steps=steps, sweep=Sweep(after=11 / 12, blocks=2, hidden=0.0)))
        assert reports[-1]["frozen"] == 4
        models.append(model)
    one, other = (dict(model.named_parameters()) for model in models)
    assert not torch.equal(one["encoder.hidden.0.weight"], other["encoder.hidden.0.weight"])


def test_frozen_units_keep_their_share_of_ones() -> None:
    model, reports = learn(settings("sweep", steps=60), model=network(binarize=Binarize(8, beta=0.3)))
    X = torch.from_numpy(digits()[0][:600]).float()
    assert reports[-1]["frozen"] > 0
    assert (model.encode(X).mean(dim=0) - 0.3).abs().max() < 0.1


def test_a_starved_unit_is_trained_only_when_units_are_swept() -> None:
    """Geometric lengths with decay 0.3 reach unit 12 once in half a million draws."""
    X = digits()[0]
    gains = {}
    for sweep in (None, Sweep(after=0.1, blocks=12)):
        torch.manual_seed(0)
        model = OrderedAutoencoder(64, 12, lengths=Geometric(0.3), corruption=0.0, dropout=0.0, spread="common")
        training = Training(steps=250, learning_rate=0.02, sweep=sweep, schedule="constant")
        errors = train(model, X, training, Run(progress=False))[-1]["errors"]
        gains[sweep is not None] = (errors[4] - errors[12]) / errors[4]
    assert gains[True] > 0.15
    assert gains[True] > 3 * gains[False]


def test_what_a_sweep_froze_belongs_to_its_run() -> None:
    """The next run trains all units, and what was frozen before both runs stays."""
    model = network(layers=())
    first_block(model).bias.requires_grad_(False)
    bias = first_block(model).bias.clone()
    _, reports = learn(settings("sweep"), model=model)
    assert reports[-1]["frozen"] > 0
    assert model.frozen == 0
    assert torch.equal(first_block(model).bias, bias)
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {"encoder.blocks.0.bias"}
    swept = deepcopy(model)
    again = network(layers=(), seed=1)
    again.load_state_dict(model.state_dict())
    first_block(again).bias.requires_grad_(False)
    assert_same(state(learn(settings(), model=swept)[0]), state(learn(settings(), model=again)[0]))


def test_units_that_the_user_froze_stay_at_the_values_loaded_since() -> None:
    model, other = network(), network(seed=1)
    model.freeze(3)
    model.load_state_dict(other.state_dict())
    learn(settings("sweep"), model=model)
    assert model.frozen == 3
    assert torch.equal(first_block(model).weight[:3], first_block(other).weight[:3])
    assert not torch.equal(first_block(model).weight[3:], first_block(other).weight[3:])
    model.unfreeze()
    learn(settings(), model=model)
    assert not torch.equal(first_block(model).weight[:3], first_block(other).weight[:3])


def test_only_chains_are_swept() -> None:
    model = network(lengths=Groups([4, 4], Geometric(0.5)))
    with pytest.raises(InvalidInput, match="units are swept along a chain"):
        learn(settings("sweep"), model=model)
    with pytest.raises(InvalidInput, match="lengths must go beyond the first 7 of 8"):  # before the first step
        Sweeper(network(lengths=Empirical([1, 1], [2, 4])), Sweep(), probe(), steps=1000)
    with pytest.raises(InvalidInput, match="tolerance must be a share, from 0 to 1, got 2"):
        Sweep(tolerance=2)
    with pytest.raises(InvalidInput, match="checks must be an integer of at least 1, got 0"):
        Sweep(checks=0)
