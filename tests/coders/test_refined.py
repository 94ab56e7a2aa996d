"""The refined coder is never worse than its base on held-out items, and better than a linear coder."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import TensorDataset

import nestcode as nc
from nestcode import AdaptiveCoder, Codes, LinearCoder, ResidualCoder
from nestcode.coders import RefinedCoder
from nestcode.coders.refined import MLP, UNet
from nestcode.coders.refined.model import octaves
from nestcode.data import digits
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.nn.refine import ImageRefiner, VectorRefiner
from nestcode.search import asymmetric_distances
from nestcode.storage import Record, write_record
from nestcode.training import Sweep, Training
from nestcode.training.runtime.sampler import split_holdout
from tests import twins

Rows = NDArray[np.float32]
QUICK = Training(steps=60, batch_size=32, learning_rate=3e-3, holdout=0.1)
SHORT = QUICK.but(steps=2)
SMALL: dict[str, Any] = {"network": UNet(channels=(8,))}


@cache
def shuffled() -> Rows:
    return np.random.default_rng(0).permutation(digits()[0].astype(np.float32))


@pytest.fixture
def data() -> Rows:
    return shuffled()[:1000]


@pytest.fixture
def unseen() -> Rows:
    return shuffled()[1000:]


def either(width: int, metric: Any = "l2") -> tuple[AdaptiveCoder, ResidualCoder]:
    return AdaptiveCoder(width, metric, beams=1), ResidualCoder(width, metric, beams=1)


@cache
def fitted() -> RefinedCoder:
    return RefinedCoder(either(68), training=QUICK).fit(shuffled()[:1000], progress=False)


@cache
def short() -> LinearCoder:
    return LinearCoder(width=20).fit(shuffled()[:300])


@pytest.fixture
def coder() -> RefinedCoder:
    return fitted()


def mse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


def test_the_better_of_several_bases_makes_the_bits(coder: RefinedCoder, data: Rows) -> None:
    assert isinstance(coder.base_, AdaptiveCoder | ResidualCoder)
    assert isinstance(coder.network_, VectorRefiner)
    assert coder.encode(data) == coder.base_.encode(data)
    assert coder.n_features_in_ == 64


def test_it_is_never_worse_than_its_base(coder: RefinedCoder, data: Rows) -> None:
    """On the held-out items that its shrinkage was fitted on; errors are measured at all of the first 64 lengths."""
    held_out, _ = split_holdout(len(data), QUICK)
    rows, base = data[held_out], coder.base_
    codes = coder.encode(rows)
    expected = [coder.expected_error(length) for length in range(69)]
    assert all(longer <= shorter for shorter, longer in pairwise(expected))
    for length in (*range(65), 68):
        own, other = (mse(one.decode(codes.prefix(length)), rows) for one in (coder, base))
        assert own <= other * (1 + 1e-5)
        assert own == pytest.approx(coder.expected_error(length), rel=1e-3)


def test_it_is_better_than_its_base_and_a_linear_coder(coder: RefinedCoder, data: Rows, unseen: Rows) -> None:
    linear = LinearCoder(width=64).fit(data)
    own, other = coder.encode(unseen), linear.encode(unseen)
    for length in (8, 16, 32, 64):
        error = mse(coder.decode(own.prefix(length)), unseen)
        assert error < mse(linear.decode(other.prefix(length)), unseen)
        assert error < 1.01 * mse(coder.base_.decode(own.prefix(length)), unseen)
    refined = [mse(coder.decode(own.prefix(k)), unseen) for k in range(8, 65, 8)]
    assert np.mean(refined) < np.mean([mse(coder.base_.decode(own.prefix(k)), unseen) for k in range(8, 65, 8)])


def test_length_0_is_about_the_mean(coder: RefinedCoder, data: Rows) -> None:
    decoded = coder.decode(coder.encode(data[:3]).prefix(0))
    assert np.abs(decoded - data.mean(axis=0)).max() < 0.1


def test_decoding_equals_its_plain_twin(coder: RefinedCoder, unseen: Rows) -> None:
    """The plain twin: centered, in units of the scale, times the shrinkage."""
    codes, fit = coder.encode(unseen[:20]), coder._fitted()
    scale = np.float32(fit.scale)
    mean = coder.base_.decode(codes[:1].prefix(0))
    for length in (3, 8, 30, 66):
        kept = int(fit.decode_at[length])
        plain = coder.base_.decode(codes.prefix(kept))
        with torch.inference_mode():
            x = torch.from_numpy((plain - mean) / scale)
            refined = coder.network_(x, torch.full((20,), kept)).numpy() * scale + mean
        expected = plain + fit.shrinkage[kept] * (refined - plain)
        assert np.allclose(coder.decode(codes.prefix(length)), expected, atol=1e-5)


# Files


@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_save_then_load_is_the_identity(kind: str, coder: RefinedCoder, data: Rows, tmp_path: Path) -> None:
    if kind == "images":
        images = data[:300].reshape(-1, 8, 8)
        coder = RefinedCoder(short(), training=SHORT, **SMALL).fit(images, progress=False)
    coder.save(tmp_path / "deep.coder")
    again = nc.load_coder(tmp_path / "deep.coder")
    assert isinstance(again, RefinedCoder)
    assert again.fingerprint == coder.fingerprint
    codes = coder.encode(data[:99])
    assert again.encode(data[:99]) == codes
    for length in (0, 7, 11, codes.width):
        assert np.array_equal(again.decode(codes.prefix(length)), coder.decode(codes.prefix(length)))
    assert [again.expected_error(k) for k in range(21)] == [coder.expected_error(k) for k in range(21)]
    assert again.training == coder.training
    assert again.base_.fingerprint == coder.base_.fingerprint
    assert again.network in (coder.network, MLP(), UNet((8,), (8, 8)))


@pytest.mark.parametrize("channels", [(24,), (16, 16, 16), (512, 512)])
def test_the_mlp_has_the_layers_of_its_settings(channels: tuple[int, ...], data: Rows, tmp_path: Path) -> None:
    network = MLP(channels[0], len(channels))
    coder = RefinedCoder(short(), network, training=QUICK.but(steps=4)).fit(data[:300], progress=False)
    assert sizes(coder) == channels
    coder.save(tmp_path / "sized.coder")
    again = nc.load_coder(tmp_path / "sized.coder")
    assert isinstance(again, RefinedCoder)
    assert sizes(again) == channels
    assert again.fingerprint == coder.fingerprint
    codes = coder.encode(data[:50])
    assert np.array_equal(again.decode(codes), coder.decode(codes))
    assert again.fit(data[:300], progress=False).fingerprint == coder.fingerprint


def test_the_default_mlp_keeps_its_settings_in_files(coder: RefinedCoder, tmp_path: Path) -> None:
    """Indexes and streams know coders by their fingerprints: what is written for the usual sizes must not change."""
    record = coder.to_record()
    assert record.settings["refiner"] == {"shape": None, "channels": [16, 32], "mirrored": False}
    write_record(tmp_path / "old.coder", record)
    again = nc.load_coder(tmp_path / "old.coder")
    assert isinstance(again, RefinedCoder)
    assert sizes(again) == sizes(coder) == (512, 512)
    assert (again.network, again.fingerprint) == (MLP(), record.fingerprint)


def sizes(coder: RefinedCoder) -> tuple[int, ...]:
    assert isinstance(coder.network_, VectorRefiner)
    return tuple(block[1].out_features for block in coder.network_.blocks)  # type: ignore[index]


def broken(array: NDArray[Any], value: Any) -> NDArray[Any]:
    copy = array.copy()
    copy.reshape(-1)[-1] = value
    return copy


DAMAGE: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "width": lambda settings, _: settings.update(width=67),
    "base's width": lambda settings, _: settings["base"]["settings"].update(width=60),
    "base's kind": lambda settings, _: settings["base"].update(kind="RefinedCoder"),
    "no base": lambda settings, _: settings.update(base={}),
    "scale": lambda settings, _: settings.update(scale=0.0),
    "negative scale": lambda settings, _: settings.update(scale=-1.0),
    "no scale": lambda settings, _: settings.update(scale="1"),
    "refiner": lambda settings, _: settings["refiner"].update(shape=[8, 8], channels=[8]),
    "other shape": lambda settings, _: settings["refiner"].update(shape=[8, 9]),
    "other layers": lambda settings, _: settings["refiner"].update(channels=[512, 512, 512]),
    "unequal layers": lambda settings, _: settings["refiner"].update(channels=[512, 256]),
    "wide layers": lambda settings, _: settings["refiner"].update(channels=[3000, 3000]),
    "many layers": lambda settings, _: settings["refiner"].update(channels=[512] * 100_000),
    "useful": lambda _, arrays: arrays.update(useful=arrays["useful"] + 1),
    "errors": lambda _, arrays: arrays.update(errors=arrays["errors"][1:]),
    "trust": lambda _, arrays: arrays.update(trust=broken(arrays["trust"], 1.5)),
    "trust is nan": lambda _, arrays: arrays.update(trust=broken(arrays["trust"], np.nan)),
    "weights": lambda _, arrays: arrays.update({"end.bias": arrays["end.bias"][:5]}),
    "weights are nan": lambda _, arrays: arrays.update({"end.bias": broken(arrays["end.bias"], np.nan)}),
    "no weights": lambda _, arrays: arrays.pop("end.bias"),
    "base's mean": lambda _, arrays: arrays.update({"base.mean": arrays["base.mean"][:5]}),
    "no mean": lambda _, arrays: arrays.pop("base.mean"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused(damage: str, coder: RefinedCoder, tmp_path: Path) -> None:
    record = coder.to_record()
    settings = {name: dict(value) if isinstance(value, dict) else value for name, value in record.settings.items()}
    settings["base"]["settings"] = dict(settings["base"]["settings"])
    arrays = dict(record.arrays)
    DAMAGE[damage](settings, arrays)
    write_record(tmp_path / "bad.coder", Record(record.kind, record.version, settings, arrays))
    with pytest.raises(DamagedFile, match="is not a RefinedCoder as it should be"):
        nc.load_coder(tmp_path / "bad.coder")


# The base


def test_a_fitted_base_stays_as_it_is(data: Rows) -> None:
    before, state = short().fingerprint, vars(short()).copy()
    coder = RefinedCoder(short(), training=SHORT).fit(data, progress=False)
    assert coder.width == 20
    assert coder.base_.fingerprint == before
    assert coder.base_ is not short()  # so that fitting it again changes no codes
    assert short().fingerprint == before
    assert vars(short()) == state
    assert coder.encode(data) == short().encode(data)


def test_an_unfitted_base_is_fitted_as_a_copy_on_training_items(data: Rows) -> None:
    base = LinearCoder(width=20)
    coder = RefinedCoder(base, training=SHORT).fit(data, progress=False)
    assert not base.__sklearn_is_fitted__()
    assert isinstance(coder.base_, LinearCoder)
    _, train = split_holdout(len(data), SHORT)
    assert coder.base_.fingerprint == LinearCoder(20).fit([data[train]]).fingerprint  # not on held-out items


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "base": (lambda: RefinedCoder("linear"), "base must be one of LinearCoder, .*, got 'linear'"),  # type: ignore[arg-type]
    "no base": (lambda: RefinedCoder(()), "base must be one of LinearCoder"),
    "refined base": (lambda: RefinedCoder(RefinedCoder(short())), "base must be one of LinearCoder"),  # type: ignore[arg-type]
    "widths": (lambda: RefinedCoder((short(), LinearCoder(24))), "must agree in width and metric"),
    "network": (lambda: RefinedCoder(short(), (16, 32)), r"network must be MLP\(…\) or UNet\(…\), got \(16, 32\)"),  # type: ignore[arg-type]
    "trained_at": (
        lambda: RefinedCoder(short(), trained_at=[30]),
        r"trained_at must be from 1 to the width 20, got \[30\]",
    ),
    "shape": (
        lambda: RefinedCoder(short(), UNet(shape=(8, 9)), training=SHORT).fit(shuffled()[:99], progress=False),
        r"shape must be that of 64 features, got \(8, 9\)",
    ),
    "no images": (
        lambda: RefinedCoder(short(), UNet(), training=SHORT).fit(shuffled()[:99], progress=False),
        "a U-Net needs images",
    ),
    "dimensions": (
        lambda: RefinedCoder(short(), UNet(shape=(64,)), training=SHORT).fit(shuffled()[:99], progress=False),
        r"shape must be \(height, width\)",
    ),
    "channels": (
        lambda: RefinedCoder(short(), UNet((12,), (8, 8)), training=SHORT).fit(shuffled()[:99], progress=False),
        r"channels must be multiples of 8, .*got \(12,\)",
    ),
    "technique": (
        lambda: RefinedCoder(short(), training=Training(sweep=Sweep())).fit(shuffled()[:99], progress=False),
        "a refined coder is trained by Adam",
    ),
    "features": (
        lambda: RefinedCoder(short(), training=SHORT).fit(np.eye(5), progress=False),
        "base was fitted on 64 features, the data has 5",
    ),
    "other features": (lambda: fitted().encode(np.ones((3, 5))), "must have the 64 features"),
    "not a number": (lambda: fitted().encode(np.full((3, 64), np.nan)), "finite"),
    "long codes": (lambda: fitted().decode(Codes.from_bits(np.zeros((1, 99), dtype=bool))), "at most the coder's"),
    "length": (lambda: fitted().expected_error(69), "between 0 and the coder's width 68, got 69"),
    "run": (lambda: RefinedCoder(short()).fit(shuffled(), epochs=3), "fit takes checkpoint, .*, got epochs"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_coder_must_be_fitted() -> None:
    with pytest.raises(NotFitted, match="this RefinedCoder is not fitted"):
        RefinedCoder(LinearCoder(8)).encode(shuffled())


# Data


def test_images_and_rows_with_a_shape_agree(data: Rows) -> None:
    rows = data[:300]
    one = RefinedCoder(short(), UNet((8,), (8, 8)), training=SHORT).fit(rows, progress=False)
    other = RefinedCoder(short(), training=SHORT, **SMALL).fit(rows.reshape(-1, 8, 8), progress=False)
    tensor = torch.from_numpy(rows.reshape(-1, 8, 8))
    third = RefinedCoder(short(), training=SHORT, **SMALL).fit(tensor, progress=False)
    assert isinstance(one.network_, ImageRefiner)
    assert one.fingerprint == other.fingerprint == third.fingerprint
    assert other.encode(rows.reshape(-1, 8, 8)) == one.encode(rows)


@pytest.mark.parametrize("shape", [(16, 2, 2), (2, 2, 16), (4, 16)])
def test_images_of_other_layouts_train(shape: tuple[int, ...], data: Rows) -> None:
    coder = RefinedCoder(short(), UNet((8,), shape, flip=True), training=SHORT).fit(data[:99], progress=False)
    assert coder.decode(coder.encode(data[:9])).shape == (9, 64)


def test_fit_resumes_from_a_checkpoint(data: Rows, tmp_path: Path) -> None:
    whole = RefinedCoder(LinearCoder(16), training=SHORT).fit(data[:200], progress=False)
    RefinedCoder(LinearCoder(16), training=SHORT).fit(data[:200], progress=False, checkpoint=tmp_path / "run.ckpt")
    again = RefinedCoder(LinearCoder(16), training=SHORT)
    again.fit(data[:200], progress=False, checkpoint=tmp_path / "run.ckpt", resume=True)
    assert again.fingerprint == whole.fingerprint


@pytest.mark.parametrize(
    "rows",
    [np.full((30, 4), 1e6 + 1 / 3), np.zeros((1, 3)), np.arange(60.0)[:, None], np.full((40, 2), 7, dtype=np.uint8)],
    ids=["all alike", "one", "one feature", "bytes"],
)
def test_degenerate_data(rows: NDArray[Any]) -> None:
    coder = RefinedCoder(either(12), training=SHORT).fit(rows, progress=False)
    error = np.abs(coder.decode(coder.encode(rows)) - rows.astype(np.float64)).max()
    assert error <= 0.5 + np.abs(coder.base_.decode(coder.encode(rows)) - rows.astype(np.float64)).max()
    assert len(coder.encode(rows[:0])) == 0


def test_the_scale_of_data_does_not_matter(data: Rows) -> None:
    rows, training = data[:200], QUICK.but(steps=8)
    plain = RefinedCoder(LinearCoder(16), training=training).fit(rows, progress=False)
    for scale in (1e-12, 1e12):
        coder = RefinedCoder(LinearCoder(16), training=training).fit(rows * np.float32(scale), progress=False)
        for length in (4, 16):
            assert coder.expected_error(length) / scale**2 == pytest.approx(plain.expected_error(length), rel=0.05)


def test_a_base_of_much_smaller_data_does_not_overflow(data: Rows) -> None:
    coder = RefinedCoder(short(), training=SHORT).fit(1e9 * data[:200], progress=False)
    assert np.isfinite(coder.decode(coder.encode(1e9 * data[:200]))).all()


# Distances, search, protocol


def test_the_cosine_metric_ignores_norms(data: Rows, tmp_path: Path) -> None:
    rows = data[:400] * np.random.default_rng(0).uniform(0.5, 2, (400, 1)).astype(np.float32)
    coder = RefinedCoder(either(16, "cosine"), training=SHORT).fit(rows, progress=False)
    codes = coder.encode(rows)
    assert coder.encode(4 * rows) == codes
    assert coder.expected_error(16) < 0.5 * coder.expected_error(0)
    slow = twins.distances(rows[:5], coder.decode(codes), "cosine")
    assert np.allclose(asymmetric_distances(coder, 3 * rows[:5], codes), slow, atol=1e-4)
    coder.save(tmp_path / "angle.coder")
    assert nc.load_coder(tmp_path / "angle.coder").encode(2 * rows) == codes


def test_asymmetric_distances_are_to_decoded_codes(coder: RefinedCoder, data: Rows) -> None:
    codes = coder.encode(data[:50]).prefix(11)
    slow = twins.distances(data[:5], coder.decode(codes), "l2")
    assert np.allclose(asymmetric_distances(coder, data[:5], codes), slow, atol=1e-4)


@pytest.mark.parametrize(("metric", "width"), [("l2", 68), ("l2", 20), ("cosine", 68), ("inner", 68)])
def test_exhaustive_search_ranks_by_decoded_items(
    metric: Any, width: int, coder: RefinedCoder, data: Rows, unseen: Rows, tmp_path: Path
) -> None:
    data = data[:300]
    index = nc.Index(coder, width=width)
    index.add(data)
    truth = twins.distances(unseen[:9], index.reconstruct(index.ids), metric)
    hits = index.search(unseen[:9], k=7, candidates=len(data), metric=metric)
    twins.check_all(hits, truth, index.ids, 1e-4)
    few = index.search(unseen[:9], k=7, candidates=len(data) // 3, metric=metric)
    twins.check_hits(few, truth, index.ids, 1e-4)
    assert np.isin(few.ids, hits.ids).mean() > 0.6
    index.save(tmp_path / "deep.index")
    with nc.Index.open(tmp_path / "deep.index") as opened:
        again = opened.search(unseen[:9], k=7, candidates=len(data), metric=metric)
        assert np.array_equal(again.ids, hits.ids)


def test_it_is_an_estimator(coder: RefinedCoder, data: Rows) -> None:
    from sklearn.base import clone

    assert repr(clone(coder)) == repr(coder)
    assert coder.transform(data[:5]).shape == (5, 68)
    assert np.array_equal(coder.inverse_transform(coder.transform(data[:5])), coder.decode(coder.encode(data[:5])))
    own = RefinedCoder(short(), UNet(shape=(8, 8)))
    copy = clone(own)
    assert copy.get_params()["network"] == UNet(shape=(8, 8))
    assert copy.get_params()["base__width"] == short().get_params()["width"]
    own.set_params(network=None)
    assert (own.network, own.base) == (None, short())
    with pytest.raises(InvalidInput, match=r"settings must be among base, .*, got depth"):
        own.set_params(depth=3)


def test_settings_changed_after_fitting_wait_for_the_next_fit(data: Rows) -> None:
    coder = RefinedCoder(LinearCoder(16), training=SHORT).fit(data[:200], progress=False)
    before, codes = coder.fingerprint, coder.encode(data)
    coder.set_params(base__width=12, network=MLP(8, 1))
    assert (coder.width, coder.width_, coder.metric_) == (12, 16, "l2")
    assert (coder.fingerprint, coder.encode(data)) == (before, codes)


def test_it_trains_at_the_lengths_given(data: Rows, tmp_path: Path) -> None:
    coder = RefinedCoder(short(), trained_at=[20], training=SHORT).fit(data[:200], progress=False)
    coder.save(tmp_path / "one.coder")
    again = nc.load_coder(tmp_path / "one.coder")
    assert isinstance(again, RefinedCoder)
    assert (again.trained_at, again.fingerprint) == ([20], coder.fingerprint)


def test_lengths_of_every_octave_are_trained_at() -> None:
    for width in range(1, 200):
        lengths = octaves(width)
        assert (lengths[0], lengths[-1]) == (1, width)
        assert all(a < b <= 2 * a for a, b in pairwise(lengths))


def test_images_are_recognized_in_every_source(data: Rows, tmp_path: Path) -> None:
    images = data[:60].reshape(-1, 8, 8)
    for number, image in enumerate(images):
        Image.fromarray((image * 15).astype(np.uint8)).save(tmp_path / f"{number}.png")
    folder = nc.data.ImageFolder(tmp_path, size=8, color=False)
    dataset = TensorDataset(torch.from_numpy(images), torch.zeros(60))
    for given in (images, list(images), torch.from_numpy(images), dataset, folder):
        coder = RefinedCoder(LinearCoder(8), training=Training(steps=2)).fit(given, progress=False)
        assert isinstance(coder.network_, ImageRefiner)
        assert coder.network_.shape == (1, 8, 8)


def test_images_of_another_layout_are_refused(data: Rows) -> None:
    planes = np.repeat(data[:40].reshape(-1, 1, 8, 8), 3, axis=1)
    coder = RefinedCoder(LinearCoder(8), training=Training(steps=2)).fit(planes, progress=False)
    with pytest.raises(InvalidInput, match=r"images must have the shape \(3, 8, 8\) .* got \(8, 8, 3\)"):
        coder.encode(planes.transpose(0, 2, 3, 1))


def test_a_float16_file_decodes_nearly_the_same(coder: RefinedCoder, data: Rows, tmp_path: Path) -> None:
    coder.save(tmp_path / "whole.coder")
    coder.save(tmp_path / "half.coder", dtype="float16")
    assert (tmp_path / "half.coder").stat().st_size < 0.7 * (tmp_path / "whole.coder").stat().st_size
    codes = coder.encode(data)
    assert np.abs(nc.load_coder(tmp_path / "half.coder").decode(codes) - coder.decode(codes)).max() < 0.01
