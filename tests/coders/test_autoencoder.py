"""The autoencoder coder: errors never rise with the length, bits are balanced, files round-trip."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import nestcode as nc
from nestcode.coders import AutoencoderCoder
from nestcode.data import digits
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.lengths import Beyond, Empirical, Geometric, LogUniform, Mixture, Uniform
from nestcode.nn import Groups, OrderedAutoencoder, Tree
from nestcode.search import asymmetric_distances
from nestcode.storage import Record, write_record
from nestcode.training import AdaptivePenalty, Growth, Network, Training
from nestcode.training.presets import PRESETS, Preset

QUICK = Training(steps=120, learning_rate=0.02)


def data() -> NDArray[np.float32]:
    return digits()[0].astype(np.float32)


@pytest.fixture(scope="module")
def coder() -> AutoencoderCoder:
    return AutoencoderCoder(width=24, layers=(), training=QUICK).fit(data(), progress=False)


def test_codes_decode_at_every_length_and_errors_never_rise(coder: AutoencoderCoder) -> None:
    codes = coder.encode(data())
    assert (len(codes), codes.width) == (1797, 24)
    errors = [float(np.mean((data() - coder.decode(codes.prefix(k))) ** 2)) for k in range(25)]
    assert errors[24] < 0.6 * errors[0]
    expected = [coder.expected_error(k) for k in range(25)]
    assert all(a >= b for a, b in pairwise(expected))
    assert np.allclose(errors, expected, rtol=0.15)


def test_length_0_is_the_mean(coder: AutoencoderCoder) -> None:
    decoded = coder.decode(coder.encode(data()[:3]).prefix(0))
    assert isinstance(coder.network_, OrderedAutoencoder)
    assert np.allclose(decoded, coder.network_.mean.numpy())
    assert np.abs(decoded[0] - data().mean(axis=0)).max() < 0.05


def test_bits_that_raise_the_error_are_ignored(coder: AutoencoderCoder) -> None:
    codes = coder.encode(data())
    fit = coder._fitted()
    for length in range(25):
        assert np.array_equal(
            coder.decode(codes.prefix(length)), coder.decode(codes.prefix(int(fit.decode_at[length])))
        )


@pytest.mark.parametrize("beta", [0.2, 0.5])
def test_bits_are_1_with_probability_beta(beta: float) -> None:
    X = np.random.default_rng(0).standard_normal((20_000, 16)).astype(np.float32)
    coder = AutoencoderCoder(width=16, network=Network(beta=beta), training=QUICK.but(holdout=0.0)).fit(
        X[:10_000], progress=False
    )
    share = coder.encode(X[10_000:]).bits().mean(axis=0)
    noise = np.sqrt(2 * beta * (1 - beta) / 10_000)
    assert np.abs(share - beta).mean() <= 0.01
    assert np.abs(share - beta).max() < 4.5 * noise


def test_save_then_load_is_the_identity(coder: AutoencoderCoder, tmp_path: Path) -> None:
    coder.save(tmp_path / "deep.coder")
    again = nc.load_coder(tmp_path / "deep.coder")
    assert isinstance(again, AutoencoderCoder)
    codes = coder.encode(data())
    assert again.encode(data()) == codes
    assert np.array_equal(again.decode(codes.prefix(11)), coder.decode(codes.prefix(11)))
    assert again.fingerprint == coder.fingerprint
    assert [again.expected_error(k) for k in range(25)] == [coder.expected_error(k) for k in range(25)]
    assert again.training == QUICK


def test_a_coder_that_stopped_growing_is_padded_with_zeros(tmp_path: Path) -> None:
    training = QUICK.but(growth=Growth(start=4, step=4, most=12, least=0.0), steps=40)
    with pytest.warns(UserWarning, match="growth stopped at 12 of 20 bits"):
        coder = AutoencoderCoder(width=20, training=training).fit(data(), progress=False)
    codes = coder.encode(data())
    assert codes.width == 20
    assert not codes.bits()[:, 12:].any()
    assert np.array_equal(coder.decode(codes), coder.decode(codes.prefix(12)))
    index = nc.Index(coder)
    index.add(data())
    assert index.search(data()[:3], k=2).ids.shape == (3, 2)
    coder.save(tmp_path / "grown.coder")
    assert nc.load_coder(tmp_path / "grown.coder").encode(data()) == codes


def test_a_code_never_grows_beyond_its_width() -> None:
    training = QUICK.but(growth=Growth(start=16, step=16, most=64, least=0.0), steps=20)
    coder = AutoencoderCoder(width=32, training=training).fit(data(), progress=False)
    assert coder.encode(data()).width == coder.network_.width == 32


def test_settings_changed_after_fitting_wait_for_the_next_fit(tmp_path: Path) -> None:
    coder = AutoencoderCoder(width=12, layers=(), training=QUICK).fit(data(), progress=False)
    codes, decoded = coder.encode(data()), coder.decode(coder.encode(data()))
    changed: dict[str, Any] = {"width": 16, "network": Network(signed=False, beta=0.2), "layers": (7,)}
    coder.set_params(**changed)
    assert coder.encode(data()) == codes
    coder.save(tmp_path / "kept.coder")
    again = nc.load_coder(tmp_path / "kept.coder")
    assert again.encode(data()) == codes
    assert np.array_equal(again.decode(codes), decoded)


def test_asymmetric_distances_are_to_decoded_codes(coder: AutoencoderCoder) -> None:
    codes = coder.encode(data()[:50]).prefix(11)
    plain = ((data()[:5, None] - coder.decode(codes)) ** 2).sum(axis=2)
    assert np.allclose(asymmetric_distances(coder, data()[:5], codes), plain, atol=1e-4)


def test_no_items_encode_to_no_codes(coder: AutoencoderCoder) -> None:
    assert len(coder.encode(data()[:0])) == 0
    assert coder.decode(coder.encode(data()[:0])).shape == (0, 64)


@pytest.mark.parametrize("what", ["settings", "arrays", "useful"])
def test_damaged_files_are_refused(coder: AutoencoderCoder, what: str, tmp_path: Path) -> None:
    record = coder.to_record()
    settings, arrays = dict(record.settings), dict(record.arrays)
    if what == "settings":
        settings["width"] = 23
    elif what == "arrays":
        arrays["mean"] = arrays["mean"][:5]
    else:
        arrays["useful"] = arrays["useful"] + 1
    write_record(tmp_path / "bad.coder", Record(record.kind, record.version, settings, arrays))
    with pytest.raises(DamagedFile, match="is not a AutoencoderCoder as it should be"):
        nc.load_coder(tmp_path / "bad.coder")


FORGED: dict[str, Callable[[int], dict[str, Any]]] = {  # of the number of values in the file
    "wide layers": lambda held: {"layers": [held, held]},
    "many layers": lambda _: {"layers": [1] * 100_000},
    "many blocks": lambda _: {"blocks": [1] * 100_000},
    "wide blocks": lambda held: {"blocks": [held, held]},
    "features": lambda held: {"features": held},
    "size": lambda held: {"features": held + 1},
}


@pytest.mark.parametrize("what", FORGED)
def test_networks_larger_than_their_file_are_never_allocated(
    coder: AutoencoderCoder, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, build = [], Preset.build

    def recorded(self: Preset, features: int) -> OrderedAutoencoder:
        network = build(self, features)
        built.append(network.mean.device.type)
        return network

    monkeypatch.setattr(Preset, "build", recorded)
    record = coder.to_record()
    changes = FORGED[what](sum(array.size for array in record.arrays.values()))
    forged = Record(record.kind, record.version, {**record.settings, **changes}, record.arrays)
    write_record(tmp_path / "forged.coder", forged)
    with pytest.raises(DamagedFile, match=r"is not a AutoencoderCoder as it should be: its (settings|network|decod)"):
        nc.load_coder(tmp_path / "forged.coder")
    assert set(built) <= {"meta"}
    write_record(tmp_path / "good.coder", record)
    nc.load_coder(tmp_path / "good.coder")
    assert built[-2:] == ["meta", "cpu"]


def test_an_index_searches_its_codes(coder: AutoencoderCoder, tmp_path: Path) -> None:
    X = data()
    index = nc.Index(coder)
    index.add(X)
    codes = coder.encode(X)
    decoded = coder.decode(codes)
    hits = index.search(X[:20], k=5, candidates=len(X))
    truth = ((X[:20, None] - decoded[None]) ** 2).sum(axis=2)
    assert np.allclose(hits.distances, np.sort(truth, axis=1)[:, :5], rtol=1e-3, atol=1e-3)
    few = index.search(X[:20], k=5, candidates=400, vectors=X)
    assert (few.ids[:, 0] == np.arange(20)).mean() > 0.9
    assert index.neighborhood(X[0], size=3).count >= 3
    index.save(tmp_path / "deep.index")
    with nc.Index.open(tmp_path / "deep.index") as opened:
        assert np.array_equal(opened.search(X[:20], k=5, candidates=len(X)).ids, hits.ids)


def test_the_cosine_metric_ignores_norms(tmp_path: Path) -> None:
    X = data() * np.random.default_rng(0).uniform(0.5, 2, (1797, 1)).astype(np.float32)
    coder = AutoencoderCoder(width=16, layers=(), metric="cosine", training=QUICK).fit(X, progress=False)
    assert coder.encode(X) == coder.encode(4 * X)
    coder.save(tmp_path / "angle.coder")
    assert nc.load_coder(tmp_path / "angle.coder").encode(2 * X) == coder.encode(X)


def test_modules_of_the_user_work(tmp_path: Path) -> None:
    class Convolutions(nn.Sequential):
        def __init__(self) -> None:
            parts = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()
            super().__init__(*parts, nn.Linear(64, 12))

    torch.manual_seed(0)
    modules: dict[str, Any] = {"encoder": Convolutions(), "decoder": nn.Linear(12, 64)}
    before = modules["decoder"].weight.clone()
    coder = AutoencoderCoder(width=12, network=Network(**modules), training=QUICK).fit(
        data().reshape(-1, 8, 8), progress=False
    )
    assert torch.equal(modules["decoder"].weight, before)  # copies are trained
    assert coder.expected_error(12) < 0.8 * coder.expected_error(0)
    coder.save(tmp_path / "own.coder")
    with pytest.raises(InvalidInput, match="give load_coder the decoder and encoder too"):
        nc.load_coder(tmp_path / "own.coder")
    assert nc.load_coder(tmp_path / "own.coder", **modules).encode(data()) == coder.encode(data())
    index = nc.Index(coder)
    index.add(data())
    with pytest.raises(
        InvalidInput, match="an index loads its coder from a file, which cannot hold modules of your own"
    ):
        index.save(tmp_path / "own.index")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"encoder": nn.Linear(64, 12), "decoder": nn.Linear(12, 1)}, "the decoder must return 64 values per row"),
        ({"encoder": nn.Linear(64, 12), "decoder": nn.Linear(11, 64)}, "the decoder does not take rows of shape"),
        ({"encoder": nn.Linear(64, 11), "decoder": nn.Linear(12, 64)}, "the encoder must return 12 values per row"),
        ({"encoder": nn.LSTM(64, 12), "decoder": nn.Linear(12, 64)}, "the encoder does not take rows of shape"),
    ],
)
def test_modules_with_wrong_shapes_are_named(modules: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AutoencoderCoder(width=12, network=Network(**modules), training=QUICK).fit(data(), progress=False)


def test_techniques_that_act_on_layers_need_the_built_in_ones() -> None:
    modules: dict[str, Any] = {"encoder": nn.Linear(64, 12), "decoder": nn.Linear(12, 64)}
    training = QUICK.but(penalty=AdaptivePenalty("l1", 0.1))
    with pytest.raises(InvalidInput, match="penalty, sweep and growth act on the built-in layers"):
        AutoencoderCoder(width=12, network=Network(**modules), training=training).fit(data(), progress=False)


def test_the_papers_presets_are_the_papers() -> None:
    retrieval = AutoencoderCoder(preset="paper-retrieval").settings()
    assert (retrieval.width, retrieval.layers, retrieval.network.beta) == (512, (2048, 1024), 0.2)
    assert retrieval.lengths == Geometric(0.97)
    assert (retrieval.network.tied, retrieval.network.corruption, retrieval.network.dropout) == (True, 0.1, 0.2)
    assert (retrieval.training.batch_size, retrieval.training.optimizer) == (10_000, "conjugate")
    assert retrieval.training.penalty is not None
    assert retrieval.training.invariance.weight > 0
    compression = AutoencoderCoder(preset="paper-compression").settings()
    assert (compression.width, compression.layers) == (1024, ())
    assert set(PRESETS) == {"default", "paper-retrieval", "paper-compression"}
    changed = AutoencoderCoder(preset="paper-retrieval", layers=(9,)).settings()
    assert (changed.layers, changed.width) == ((9,), 512)


def test_a_small_paper_network_trains() -> None:
    X = data()
    training = PRESETS["paper-retrieval"].training.but(batch_size=500, epochs=None, steps=10, searches=2)
    coder = AutoencoderCoder(width=32, layers=(48,), preset="paper-retrieval", training=training).fit(X, progress=False)
    assert coder.expected_error(32) < coder.expected_error(0)


@pytest.mark.parametrize(
    "lengths",
    [Geometric(0.5), Uniform(), LogUniform(), Empirical([1, 2], [4, 8]), Beyond(Uniform(), 3),
     Mixture([Uniform(), Geometric(0.9)], [1, 2]), Groups([2, 3], Uniform()), Tree([-1, 0, 0], units=2)],
)  # fmt: skip
def test_lengths_survive_json(lengths: object) -> None:
    from nestcode.nn.serialization import lengths_from_json, lengths_to_json

    assert lengths_from_json(json.loads(json.dumps(lengths_to_json(lengths)))) == lengths


def test_other_nestings_train_too() -> None:
    coder = AutoencoderCoder(width=8, lengths=Groups([4, 4], Uniform()), training=QUICK).fit(data(), progress=False)
    assert coder.expected_error(8) < coder.expected_error(4) < coder.expected_error(0)


def test_it_is_an_estimator(coder: AutoencoderCoder) -> None:
    from sklearn.base import clone

    assert clone(coder).get_params() == coder.get_params()
    assert coder.transform(data()[:5]).shape == (5, 24)
    assert np.array_equal(coder.inverse_transform(coder.transform(data()[:5])), coder.decode(coder.encode(data()[:5])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width must be an integer of at least 1"),
        ({"preset": "paper"}, "preset must be one of default, paper-retrieval, paper-compression, got 'paper'"),
        ({"metric": "l1"}, 'metric must be "l2" or "cosine"'),
        ({"layers": 5}, "layers must be a sequence of integers"),
        ({"training": {"steps": 3}}, r"training must be Training\(…\)"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AutoencoderCoder(**{"width": 8, **wrong})


def test_wrong_use_is_named(coder: AutoencoderCoder) -> None:
    with pytest.raises(NotFitted, match="this AutoencoderCoder is not fitted"):
        AutoencoderCoder(width=8).encode(data())
    with pytest.raises(InvalidInput, match="must have the 64 features"):
        coder.encode(np.ones((3, 5)))
    with pytest.raises(InvalidInput, match="at most the coder's width 24, got 32"):
        coder.decode(nc.Codes.from_bits(np.zeros((1, 32), dtype=bool)))
    with pytest.raises(InvalidInput, match=r"fit takes checkpoint, .*, got epochs"):
        AutoencoderCoder(width=8).fit(data(), epochs=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="beta must"):
        AutoencoderCoder(width=8, network=Network(beta=1.5)).fit(data(), progress=False)


def test_networks_are_frozen_settings() -> None:
    assert Network() == Network(tied=False)
    with pytest.raises(AttributeError):
        Network().tied = True  # type: ignore[misc]


def test_files_of_earlier_versions_keep_their_fingerprint(coder: AutoencoderCoder, tmp_path: Path) -> None:
    """They have the kind of the class that had this algorithm among others."""
    record = coder.to_record()
    assert record.kind == "AutoencoderCoder"
    old = Record("DeepCoder", record.version, record.settings, record.arrays)
    write_record(tmp_path / "old.coder", old)
    again = nc.load_coder(tmp_path / "old.coder")
    assert isinstance(again, AutoencoderCoder)
    assert again.fingerprint == old.fingerprint
    assert again.encode(data()) == coder.encode(data())
