"""The ordered autoencoder: its layers against plain twins, and what stays when units are frozen or added."""

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nestcode.errors import InvalidInput
from nestcode.lengths import Uniform
from nestcode.nn import Binarize, LengthSchedule, NestedDropout, OrderedAutoencoder, keep_prefix
from nestcode.nn.layers import Block, Encoder, MirrorDecoder
from nestcode.training import Run, Training, errors_by_length, train


def make(features: Any = 12, width: Any = 6, layers: Any = (8,), **settings: Any) -> OrderedAutoencoder:
    torch.manual_seed(0)
    return OrderedAutoencoder(features, width, layers, **settings)


def first_block(model: OrderedAutoencoder) -> Block:
    assert isinstance(model.encoder, Encoder)
    return model.encoder.code_blocks()[0]


def rows(n: int = 20, features: int = 12) -> Tensor:
    return torch.randn(n, features, generator=torch.Generator().manual_seed(1)) * 3 + 5


def quiet(**settings: Any) -> OrderedAutoencoder:
    return make(corruption=0.0, dropout=0.0, **settings)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("sizes", [(2, 16, 32), (12, 6), (12, 10, 8, 4)])
def test_the_decoder_mirrors_any_layers(sizes: tuple[int, ...], tied: bool) -> None:
    features, *layers, width = sizes
    model = make(features, width, tuple(layers), tied=tied).eval()
    X = rows(features=features)
    assert model(X).shape == X.shape
    weights = sum(a * b for a, b in pairwise(sizes))
    biases = sum(sizes[1:]) + sum(sizes[:-1])
    assert sum(p.numel() for p in model.parameters()) == (1 if tied else 2) * weights + biases


def test_the_papers_network_has_its_size() -> None:
    with torch.device("meta"):
        model = OrderedAutoencoder(3072, 512, (2048, 1024))
    assert sum(p.numel() for p in model.parameters()) > 17_000_000


def test_tied_weights_are_the_encoders_transposed() -> None:
    model = make(tied=True).eval()
    encoder, decoder = model.encoder, model.decoder
    assert isinstance(encoder, Encoder)
    assert isinstance(decoder, MirrorDecoder)
    for bias in decoder.biases:
        nn.init.normal_(bias)
    first, code, biases = encoder.hidden[0], first_block(model), decoder.biases
    assert isinstance(first, nn.Linear)
    X = rows()
    h = torch.relu(X @ first.weight.T + first.bias)
    units = torch.relu(h @ code.weight.T + code.bias)
    back = torch.relu(units @ code.weight + biases[0]) @ first.weight + biases[1]
    assert torch.allclose(model.encode(X), units, atol=1e-5)
    assert torch.allclose(model(X), back, atol=1e-4)


def test_inputs_are_corrupted_in_training_only() -> None:
    model = make(corruption=0.1)
    z = torch.ones(1000, 12)
    torch.manual_seed(0)
    assert abs(float((model.corrupt(z) == 0).float().mean()) - 0.1) < 0.01
    assert torch.equal(model.eval().corrupt(z), z)


def test_dropout_spares_the_code() -> None:
    model = make(corruption=0.0, dropout=0.5)
    nn.init.constant_(first_block(model).bias, 100.0)
    assert (model.units(model.encoder(rows())) > 0).all()
    hidden = make(corruption=0.0, dropout=0.5, tied=True)
    assert not torch.equal(hidden(rows(), kept=6), hidden(rows(), kept=6))  # and not the other layers


@pytest.mark.parametrize("bits", [False, True])
def test_truncated_codes_are_what_the_decoder_gets(bits: bool) -> None:
    model = quiet(binarize=Binarize(6) if bits else None).eval()
    X = rows()
    kept = torch.arange(20) % 7
    whole = model.encode(X)
    for k in range(7):
        assert torch.equal(model(X, kept)[kept == k], model.decode(keep_prefix(whole, k))[kept == k])
        assert torch.equal(model.decode(whole[:, :k]), model.decode(keep_prefix(whole, k)))


def test_lengths_are_drawn_for_each_example_in_training() -> None:
    model = quiet(lengths=Uniform())
    seen: list[Tensor] = []
    model.nested.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    nn.init.constant_(first_block(model).bias, 100.0)
    model(rows(500))
    lengths = (seen[0] != 0).sum(dim=1)
    assert set(lengths.tolist()) == set(range(1, 7))


@pytest.mark.parametrize("spread", ["deviation", "variance"])
def test_features_are_standardized_by_the_stored_moments(spread: str) -> None:
    model = make(spread=spread)
    X = rows(5000)
    X[:, 3] = 7.0  # constant
    variance = X.var(dim=0, correction=0)
    variance[3] = 0.0
    model.set_moments(X.mean(dim=0), variance)
    z = model.standardize(X)
    assert z.mean(dim=0).abs().max() < 1e-3
    expected = torch.ones(12) if spread == "deviation" else 1 / variance
    expected[3] = 0.0
    assert torch.allclose(z.var(dim=0, correction=0), expected, rtol=1e-3, atol=1e-6)
    again = make(spread=spread)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.standardize(X), z)


def test_a_common_spread_keeps_the_shape_of_the_data() -> None:
    model = make(spread="common")
    X = rows(1000) * torch.arange(1, 13)
    model.set_moments(X.mean(dim=0), X.var(dim=0, correction=0))
    z = model.standardize(X)
    assert abs(float(z.square().mean()) - 1) < 1e-4
    ratio = z.std(dim=0) / X.std(dim=0)
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio))


@pytest.mark.parametrize("tied", [False, True])
def test_frozen_units_get_no_gradient_and_others_keep_theirs(tied: bool) -> None:
    free = quiet(tied=tied, layers=())
    model = deepcopy(free)
    model.freeze(4)
    for one in (free, model):
        one(rows(), kept=6).square().mean().backward()
    for name, parameter in model.named_parameters():
        own, plain = parameter.grad, free.get_parameter(name).grad
        assert plain is not None
        if "decoder" in name:  # the output bias, which reconstructions of frozen units depend on
            assert own is None
            continue
        assert own is not None
        if name.endswith("columns"):
            own, plain = own.T, plain.T
        if "blocks" in name:
            assert not own[:4].any()
            own, plain = own[4:], plain[4:]
        assert torch.allclose(own, plain, rtol=1e-4, atol=1e-6), name


def first_units(model: OrderedAutoencoder) -> list[Tensor]:
    """Return copies of the parameters of the first three units."""
    block = first_block(model)
    parts = [block.weight[:3], block.bias[:3], *([] if block.columns is None else [block.columns[:, :3]])]
    return [part.detach().clone() for part in parts]


def test_gradients_reach_hidden_layers_through_frozen_units() -> None:
    free = quiet()
    model = deepcopy(free)
    model.freeze(3)
    for one in (free, model):
        one(rows(), kept=3).square().mean().backward()
    for name, parameter in model.encoder.named_parameters():
        if "hidden" in name:
            plain = free.encoder.get_parameter(name).grad
            assert parameter.grad is not None
            assert plain is not None
            assert torch.equal(parameter.grad, plain), name


@pytest.mark.parametrize("tied", [False, True])
def test_codes_and_reconstructions_of_frozen_units_never_change_once_the_hidden_layers_are_frozen(tied: bool) -> None:
    binarize = Binarize(6)
    model = quiet(tied=tied, binarize=binarize)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)

    def learn() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            model(rows()).square().mean().backward()
            optimizer.step()
            model.restore_frozen()

    learn()  # so that there is momentum
    model.freeze(3)
    own, threshold = first_units(model), binarize.threshold.clone()
    learn()
    assert all(torch.equal(one, other) for one, other in zip(own, first_units(model), strict=True))
    assert not torch.equal(threshold[:3], binarize.threshold[:3])
    model.freeze_hidden()
    before = model.eval().encode(rows()), model.preactivations(rows())
    decoded = model.decode(before[0][:, :3])
    learn()
    model.train()
    learn()
    model.eval()
    assert torch.equal(model.encode(rows())[:, :3], before[0][:, :3])
    assert torch.equal(model.preactivations(rows())[:, :3], before[1][:, :3])
    assert torch.equal(model.decode(before[0][:, :3]), decoded)
    assert not torch.equal(model.preactivations(rows())[:, 3:], before[1][:, 3:])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bits", [False, True])
def test_growth_keeps_old_prefixes_and_reconstructions_bit_for_bit(tied: bool, bits: bool) -> None:
    model = quiet(tied=tied, layers=(8, 7), binarize=Binarize(6) if bits else None).eval()
    X = rows()
    code = model.encode(X)
    decoded = model.decode(code[:, :5]), model.decode(code)
    for _ in range(2):
        model.train()
        model.grow(3)
        learning = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=0.1, weight_decay=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
            model.restore_frozen()
    model.eval()
    assert model.width == 12
    assert model.encode(X).shape == (20, 12)
    assert torch.equal(model.encode(X)[:, :6], code)
    assert torch.equal(model.decode(code[:, :5]), decoded[0])
    assert torch.equal(model.decode(code), decoded[1])


@pytest.mark.parametrize("tied", [False, True])
def test_a_linear_decoder_can_be_replaced(tied: bool) -> None:
    model = quiet(layers=(), tied=tied).eval()
    code = model.encode(rows())
    weight, bias = torch.randn(12, 6), torch.randn(12)
    model.set_linear_decoder(weight, bias)
    assert torch.equal(model.encode(rows()), code)
    assert torch.allclose(model.decode(code[:, :4]), code[:, :4] @ weight[:, :4].T + bias, atol=1e-5)
    assert len(model.state_dict()) == len(make(layers=(), tied=False).state_dict())
    with pytest.raises(InvalidInput, match=r"weights \(features, width\) and no hidden layers, got \(12, 5\)"):
        model.set_linear_decoder(weight[:, :5], bias)
    with pytest.raises(InvalidInput, match=r"no hidden layers, .* and layers \(8,\)"):
        make().set_linear_decoder(weight, bias)


def test_a_grown_model_can_be_rebuilt() -> None:
    model = make(binarize=Binarize(6))
    model.grow(4)
    again = make(binarize=Binarize(6))
    again.grow(4)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval().encode(rows()), model.eval().encode(rows()))
    assert model.blocks() == [6, 4]


def test_modules_of_the_user_work() -> None:
    modules = {"encoder": nn.Linear(12, 6), "decoder": nn.Linear(6, 12)}
    model = make(**modules)
    assert model(rows()).shape == (20, 12)
    assert model.frozen == 0
    with pytest.raises(InvalidInput, match="only the built-in layers"):
        model.freeze(2)
    with pytest.raises(InvalidInput, match="come together"):
        make(encoder=modules["encoder"])
    with pytest.raises(InvalidInput, match="come together"):
        make(tied=True, **modules)


def test_modules_without_parameters_work() -> None:
    model = make(features=6, encoder=nn.Identity(), decoder=nn.Identity()).eval()
    torch.testing.assert_close(model(rows(features=6)), rows(features=6).clamp(min=0))
    with pytest.raises(InvalidInput, match="a model must have parameters to train, got none"):
        train(model, rows(features=6), Training(steps=1), Run(progress=False))


def test_measurements_leave_the_mode_of_each_part() -> None:
    norm = nn.BatchNorm1d(12)
    model = make(encoder=nn.Sequential(norm, nn.Linear(12, 6)), decoder=nn.Linear(6, 12))
    norm.eval()  # the user's frozen statistics
    model.preactivations(rows())
    errors_by_length(model, rows(), [0, 6])
    with pytest.raises(InvalidInput, match="data must be"):
        model.preactivations(rows(features=5))
    with pytest.raises(InvalidInput, match="a length must be an integer of at least 0, got -2"):
        errors_by_length(model, rows(), [-2])
    assert model.training
    assert not norm.training


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_dtypes_are_trained(dtype: torch.dtype) -> None:
    model = make(binarize=Binarize(6)).to(dtype)
    train(model, rows(), Training(steps=2), Run(progress=False))
    assert model(rows()).dtype == dtype


def test_deep_copies_are_independent() -> None:
    model = make(tied=True)
    copy = deepcopy(model)
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.zero_()
    assert not copy.eval()(rows()).any()
    assert model.eval()(rows()).any()
    assert len({id(p) for p in copy.parameters()}) == len(list(copy.state_dict())) - 2  # mean and spread are buffers


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width must be an integer of at least 1, got 0"),
        ({"layers": (8, 0)}, "a layer's width must be an integer of at least 1, got 0"),
        ({"corruption": 1.0}, "corruption must be at least 0 and below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1"),
        ({"spread": "std"}, "spread must be one of deviation, variance, common, got 'std'"),
        ({"lengths": 3}, "lengths must be a distribution"),
        ({"lengths": LengthSchedule(Uniform(), Uniform(), 3)}, "a schedule is for NestedDropout and NestedLoss"),
        ({"binarize": Binarize(5)}, r"binarize must be a Binarize of the code's width 6, got Binarize\(5"),
        ({"binarize": True}, "binarize must be a Binarize of the code's width 6, got True"),
        ({"layers": 8}, r"layers must be the widths of hidden layers, such as \(128,\), got 8"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**wrong)


def test_wrong_data_is_named() -> None:
    model = make()
    with pytest.raises(InvalidInput, match=r"data must be \(n, 12\), got shape \(3, 5\)"):
        model(torch.ones(3, 5))
    with pytest.raises(InvalidInput, match=r"a code must be \(n, up to 6\), got shape \(3, 7\)"):
        model.decode(torch.ones(3, 7))
    model.freeze(4)
    with pytest.raises(InvalidInput, match="units must be from 4, frozen before, to 6, got 2"):
        model.freeze(2)


def test_the_nested_layer_is_the_public_one() -> None:
    assert isinstance(make().nested, NestedDropout)
