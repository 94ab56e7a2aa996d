"""The supervised coder: neighbors share the class, and codes decode to items."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

import nestcode as nc
from nestcode.coders import AutoencoderCoder, SupervisedCoder
from nestcode.data import digits
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import Record, read_record, write_record
from nestcode.training import Network, Training

QUICK = Training(steps=200, learning_rate=5e-3)


def split() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    X, y = digits()
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:1300]], y[order[:1300]], X[order[1300:]], y[order[1300:]]


@pytest.fixture(scope="module")
def coder() -> SupervisedCoder:
    X, y, _, _ = split()
    return SupervisedCoder(width=24, layers=(64,), training=QUICK).fit(X, y, progress=False)


def accuracy(coder: nc.coders.Coder, length: int) -> float:
    """Of the most frequent class among the 9 nearest in an index."""
    X, y, others, classes = split()
    index = nc.Index(width=length)
    index.add(coder.encode(X).prefix(length))
    hits = index.search(coder.encode(others).prefix(length), k=9, candidates=len(X))
    votes = np.array([np.bincount(row).argmax() for row in y[hits.ids]])
    return float((votes == classes).mean())


def test_neighbors_share_the_class_more_often_than_without_labels(coder: SupervisedCoder) -> None:
    X, _, _, _ = split()
    without = AutoencoderCoder(width=24, layers=(64,), training=QUICK).fit(X, progress=False)
    for length in (8, 16, 24):
        assert accuracy(coder, length) > accuracy(without, length) + 0.02
    assert accuracy(coder, 24) > 0.94


def test_each_prefix_decodes_as_the_least_squares_decoder(coder: SupervisedCoder) -> None:
    X, _, others, _ = split()
    codes = coder.encode(X)
    for length in (1, 5, 24):
        bits = np.column_stack([codes.prefix(length).bits(), np.ones(len(X))])
        best = bits @ np.linalg.lstsq(bits, X, rcond=None)[0]
        left = float(np.mean((X - best) ** 2))
        assert float(np.mean((X - coder.decode(codes.prefix(length))) ** 2)) == pytest.approx(left, rel=0.02)
    seen = coder.encode(others)
    errors = [float(np.mean((others - coder.decode(seen.prefix(k))) ** 2)) for k in range(25)]
    assert np.allclose(errors, [coder.expected_error(k) for k in range(25)], rtol=0.15)
    assert np.allclose(coder.decode(seen.prefix(0))[0], X.mean(axis=0), atol=0.03)


def test_labels_may_be_strings() -> None:
    X, y, others, classes = split()
    names = np.array([f"digit {value}" for value in y])
    by_name = SupervisedCoder(width=8, layers=(64,), training=QUICK.but(steps=20)).fit(X, names, progress=False)
    by_number = SupervisedCoder(width=8, layers=(64,), training=QUICK.but(steps=20)).fit(X, y, progress=False)
    assert by_name.encode(others) == by_number.encode(others)
    assert by_name.classes_.tolist() == [f"digit {value}" for value in range(10)]
    assert len(classes) == len(others)


def test_save_then_load_is_the_identity(coder: SupervisedCoder, tmp_path: Path) -> None:
    coder.save(tmp_path / "a.coder")
    again = nc.load_coder(tmp_path / "a.coder")
    X = split()[2]
    assert again.encode(X) == coder.encode(X)
    assert np.array_equal(again.decode(again.encode(X)), coder.decode(coder.encode(X)))
    assert again.fingerprint == coder.fingerprint


def test_an_encoder_of_the_user_is_loaded_too(tmp_path: Path) -> None:
    X, y, others, _ = split()
    encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    coder = SupervisedCoder(width=8, network=Network(encoder=encoder), training=QUICK.but(steps=20)).fit(
        X, y, progress=False
    )
    coder.save(tmp_path / "own.coder")
    with pytest.raises(InvalidInput, match="give load_coder the encoder too"):
        nc.load_coder(tmp_path / "own.coder")
    with pytest.raises(InvalidInput, match="must be read with the modules it was saved with, got encoder: "):
        nc.load_coder(tmp_path / "own.coder", encoder=nn.Linear(64, 8))
    assert nc.load_coder(tmp_path / "own.coder", encoder=encoder).encode(others) == coder.encode(others)


@pytest.mark.parametrize("what", ["steps", "apart"])
def test_damaged_files_are_refused(coder: SupervisedCoder, what: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.coder"
    coder.save(path)
    record = read_record(path)
    arrays: dict[str, Any] = dict(record.arrays)
    arrays[f"decoder.{what}"] = arrays[f"decoder.{what}"][:, :-1]
    write_record(path, Record(record.kind, record.version, record.settings, arrays))
    with pytest.raises(DamagedFile, match="its decoder has an array of shape"):
        nc.load_coder(path)


def test_wrong_labels_are_named() -> None:
    X, y, _, _ = split()
    with pytest.raises(InvalidInput, match="y must have a label for each of the 1300 items"):
        SupervisedCoder(width=8).fit(X, y[:-1], progress=False)
    with pytest.raises(InvalidInput, match="at least 2 classes"):
        SupervisedCoder(width=8).fit(X, np.zeros(len(X)), progress=False)


def test_files_of_earlier_versions_keep_their_fingerprint(coder: SupervisedCoder, tmp_path: Path) -> None:
    """They have the kind of the class that had this algorithm among others."""
    record = coder.to_record()
    assert record.kind == "SupervisedCoder"
    old = Record("DeepCoder", record.version, record.settings, record.arrays)
    write_record(tmp_path / "old.coder", old)
    again = nc.load_coder(tmp_path / "old.coder")
    assert isinstance(again, SupervisedCoder)
    assert again.fingerprint == old.fingerprint
    assert again.encode(split()[2]) == coder.encode(split()[2])


def test_a_file_of_an_earlier_version_may_leave_the_layers_out(tmp_path: Path) -> None:
    X, y, others, _ = split()
    coder = SupervisedCoder(width=8, training=QUICK.but(steps=5)).fit(X, y, progress=False)
    record = coder.to_record()
    old = Record("DeepCoder", record.version, {**record.settings, "layers": []}, record.arrays)
    write_record(tmp_path / "old.coder", old)
    again = nc.load_coder(tmp_path / "old.coder")
    assert isinstance(again, SupervisedCoder)
    assert (again.layers, again.fingerprint) == ((256,), old.fingerprint)
    assert again.encode(others) == coder.encode(others)
