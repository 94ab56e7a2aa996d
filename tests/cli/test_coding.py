"""`nestcode fit`, `encode` and `decode`: files of all kinds to codes and back."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import nestcode
from nestcode.cli import inputs
from nestcode.cli.app import app
from nestcode.coders import load_coder
from tests.cli.test_streams import fine, misused, refused, run, vectors


def table(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=150)
    return path


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all inputs in many small pieces."""
    monkeypatch.setattr(inputs, "PIECE", 1000)


@pytest.mark.parametrize("kind", ["auto", "linear", "residual", "adaptive", "cell", "rotation"])
def test_fit_equals_the_library(kind: str, tmp_path: Path) -> None:
    path, _, items = vectors(tmp_path)
    out = tmp_path / "my.coder"
    facts = json.loads(fine("fit", path, "-o", out, "--width", 20, "--kind", kind, "--seed", 3, "--json"))
    classes: dict[str, Any] = {
        "linear": nestcode.LinearCoder, "residual": nestcode.ResidualCoder, "adaptive": nestcode.AdaptiveCoder,
        "cell": nestcode.CellCoder, "rotation": nestcode.RotationCoder,
    }  # fmt: skip
    own = nestcode.fit(items, 20, seed=3) if kind == "auto" else classes[kind](20, seed=3).fit(items)
    assert load_coder(out).encode(items) == own.encode(items)
    assert (facts["kind"], facts["width"], facts["features"], facts["count"]) == (type(own).__name__, 20, 12, 400)
    assert facts["expected_error"] == pytest.approx(own.expected_error(20))


def test_fit_passes_the_metric_on(tmp_path: Path) -> None:
    path, _, items = vectors(tmp_path)
    fine("fit", path, "-o", tmp_path / "a.coder", "--width", 16, "--metric", "cosine", "--kind", "linear")
    own = load_coder(tmp_path / "a.coder")
    assert own.encode(items) == own.encode(3 * items) == nestcode.LinearCoder(16, "cosine").fit(items).encode(items)


@pytest.mark.usefixtures("small_pieces")
def test_encode_then_decode(tmp_path: Path) -> None:
    path, _, items = vectors(tmp_path)
    coder, codes, back = tmp_path / "odd.coder", tmp_path / "codes.npy", tmp_path / "back.npy"
    fine("fit", path, "-o", coder, "--width", 45, "--kind", "linear")
    assert fine("encode", path, "--coder", coder, "-o", codes) == f"{codes}\n"
    own = load_coder(coder)
    assert np.array_equal(np.load(codes), own.encode(items).packed)
    for length in (0, 7, 32, 45):
        fine("decode", codes, "--coder", coder, "--length", length, "-o", back, "--force")
        assert np.array_equal(np.load(back), own.decode(own.encode(items).prefix(length)))
    fine("decode", codes, "--coder", coder, "-o", back, "-f")  # all 45 bits, not 48
    assert np.array_equal(np.load(back), own.decode(own.encode(items)))
    fine("encode", path, "--coder", coder, "-o", codes, "--length", 24, "-f")
    facts = json.loads(fine("decode", codes, "--coder", coder, "-o", back, "-f", "--json"))
    assert facts == {"path": str(back), "count": 400, "features": 12, "length": 24}
    assert np.array_equal(np.load(back), own.decode(own.encode(items).prefix(24)))
    none = tmp_path / "none.npy"
    assert "a multiple of 8 below it, got 20" in refused("encode", path, "-c", coder, "-o", none, "--length", 20)
    assert "at most the 24 bits" in refused("decode", codes, "-c", coder, "-o", none, "--length", 25)


def test_encode_and_decode_work_in_pipes(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    command = f'"{sys.executable}" -m nestcode'
    line = f'{command} encode - -c "{coder}" -o - < "{path}" | {command} decode - -c "{coder}" --length 9 -o -'
    ended = subprocess.run(line, shell=True, capture_output=True, check=True)
    own = load_coder(coder)
    assert np.array_equal(np.load(io.BytesIO(ended.stdout)), own.decode(own.encode(items).prefix(9)))
    given = ["encode", "-", "-c", str(coder), "-o", str(tmp_path / "a.npy")]
    result = CliRunner().invoke(app, given, input=b"no array")
    assert "standard input must be a .npy file" in str(result.exception)
    assert "leave out --json, or give -o a name" in misused("encode", path, "-c", coder, "-o", "-", "--json")


@pytest.mark.usefixtures("small_pieces")
def test_items_are_read_from_archives_and_tables(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    np.savez(tmp_path / "one.npz", items)
    np.savez(tmp_path / "two.npz", items=items, others=items[:5])
    lists = table(tmp_path / "lists.parquet", name=[str(i) for i in range(400)], vector=list(items))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(items.ravel()), 12)
    expected = nestcode.LinearCoder(16).fit(items).expected_error(16)
    numbers = {f"c{i:02}": items[:, i] for i in range(12)}
    for given in (
        [tmp_path / "one.npz"],
        [tmp_path / "two.npz", "--array", "items"],
        [lists],
        [lists, "--array", "vector"],
        [table(tmp_path / "fixed.parquet", vector=fixed)],
        [table(tmp_path / "large.parquet", vector=pa.array(list(items), pa.large_list(pa.float32())))],
        [table(tmp_path / "numbers.parquet", **numbers)],
    ):
        fine("encode", *given, "-c", coder, "-o", tmp_path / "codes.npy", "--force")
        assert np.array_equal(np.load(tmp_path / "codes.npy"), load_coder(coder).encode(items).packed), given
        fine("fit", *given, "-o", tmp_path / "own.coder", "--force", "--width", 16, "--kind", "linear")
        assert load_coder(tmp_path / "own.coder").expected_error(16) == pytest.approx(expected)
    for given, said in (
        ([tmp_path / "two.npz"], "holds 2 arrays: give --array one of items, others"),
        ([tmp_path / "two.npz", "--array", "no"], "has no array no: give --array one of items, others"),
        ([path, "--array", "items"], "which has one array: leave it out"),
        ([lists, "--array", "no"], "has no column no: give --array one of name, vector"),
        ([lists, "--array", "name"], "got name of string in "),
        ([lists, "--array", "name"], "lists.parquet: give --array one of vector"),
        ([table(tmp_path / "words.parquet", a=["b", "c"])], "words.parquet: write numbers"),
        ([table(tmp_path / "0.parquet", a=[1.0, None])], "got nulls"),
        ([table(tmp_path / "1.parquet", a=[[1.0, 2.0], None])], "got nulls"),
        ([table(tmp_path / "2.parquet", a=[[1.0, 2.0], [3.0, None]])], "equally long without nulls"),
        ([table(tmp_path / "3.parquet", a=[[1.0, 2.0], [3.0]])], "equally long without nulls"),
        ([table(tmp_path / "4.parquet", a=[[1.0] * 2] * 500 + [[1.0] * 3])], "must have 2 values each, got 3"),
        ([table(tmp_path / "5.parquet", a=pa.array([], pa.float32()))], "at least one item"),
    ):
        assert said in refused("fit", *given, "-o", tmp_path / "none", "--kind", "linear"), given
    for name in ("a.parquet", "a.npz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 and so on")
        assert f"it is damaged or not a {Path(name).suffix} file" in refused(
            "fit", tmp_path / name, "-o", tmp_path / "none"
        )
    assert not (tmp_path / "none").exists()


def test_booleans_of_tables_are_numbers_as_those_of_arrays_are(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).random((20, 3)) < 0.5
    for number, columns in enumerate([{"a": bits.tolist()}, {f"c{i}": bits[:, i] for i in range(3)}]):
        found = inputs.open_rows(table(tmp_path / f"{number}.parquet", **columns)).whole()
        assert np.array_equal(found, bits)
        assert found.dtype == bits.dtype


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117) + b"\n"


def test_damaged_inputs_are_named(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    np.savez(tmp_path / "v.npz", items)
    table(tmp_path / "v.parquet", vector=list(items))
    shape = "{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}"
    strange = {
        "nothing.npy": b"", "magic.npy": path.read_bytes()[:6], "header.npy": path.read_bytes()[:50],
        "cut.npy": path.read_bytes()[:1000], "version.npy": b"\x93NUMPY\x09" + path.read_bytes()[7:],
        "large.npy": header(shape.format((10**25, 12))), "negative.npy": header(shape.format((-3, 12))),
        "brackets.npy": header("{'descr': [('a'"), "nothing.npz": b"", "nothing.parquet": b"",
        "long.npy": b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20),
    }  # fmt: skip
    for name in ("v.npz", "v.parquet"):
        data = (tmp_path / name).read_bytes()
        strange |= {f"cut-{name}": data[:5000], f"changed-{name}": data[:-200] + bytes(150) + data[-50:]}
    for name, data in strange.items():
        (tmp_path / name).write_bytes(data)
        said = refused("encode", tmp_path / name, "-c", coder, "-o", tmp_path / "none.npy")
        assert f"it is damaged or not a {(tmp_path / name).suffix} file: " in said
        assert name in said
    with zipfile.ZipFile(tmp_path / "note.npz", "w") as archive:
        archive.writestr("note.txt", "no array")
    assert "does not hold arrays" in refused("fit", tmp_path / "note.npz", "-o", tmp_path / "none.npy")
    np.savez(tmp_path / "no.npz")
    assert "holds 0 arrays: write one with np.savez" in refused("fit", tmp_path / "no.npz", "-o", tmp_path / "none.npy")
    for name in ("v.npy", "nothing.npy", "cut.npy"):
        assert "damaged or not a Nestcode file: " in refused("encode", path, "-c", tmp_path / name, "-o", "none.npy")
    assert "but it is a folder" in refused("encode", path, "-c", tmp_path, "-o", tmp_path / "none.npy")
    assert not (tmp_path / "none.npy").exists()


def test_tables_name_the_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "6.parquet", a=[1.0, 2.0])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install 'nestcode[arrow]'" in refused("fit", path, "-o", tmp_path / "none")


def test_folders_of_images_are_rows_of_pixels(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "photos" / f"{number}.png")
    rows = images.transpose(0, 3, 1, 2).reshape(6, -1).astype(np.float32) / np.float32(255)
    fine("fit", tmp_path / "photos", "--size", 4, "--width", 8, "--kind", "linear", "-o", tmp_path / "a.coder")
    fine("encode", tmp_path / "photos", "--size", 4, "-c", tmp_path / "a.coder", "-o", tmp_path / "codes.npy")
    assert np.array_equal(np.load(tmp_path / "codes.npy"), load_coder(tmp_path / "a.coder").encode(rows).packed)


def test_errors_leave_no_output(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    out, codes = tmp_path / "none.npy", tmp_path / "codes.npy"
    bad = {
        "nan": np.where(np.arange(12) == 3, np.nan, items), "words": np.array([["a"], ["b"]]), "flat": items[0],
        "empty": items[:0], "narrow": items[:, :5], "objects": np.array([[{}]]), "complex": items + 1j,
    }  # fmt: skip
    for name, array in bad.items():
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
    fine("encode", path, "-c", coder, "-o", codes)
    np.save(tmp_path / "wide.npy", np.zeros((3, 99), np.uint8))
    for arguments, said in (
        (("fit", tmp_path / "no.npy"), "there is no file"),
        (("fit", tmp_path / "nan.npy"), "must be finite"),
        (("fit", tmp_path / "words.npy"), "must be numeric"),
        (("fit", tmp_path / "complex.npy"), "must be numeric"),
        (("fit", tmp_path / "flat.npy"), "must hold an array (n, …)"),
        (("fit", tmp_path / "empty.npy"), "at least one item"),
        (("fit", tmp_path / "objects.npy"), "is not an array of numbers; it is damaged or not a .npy file"),
        (("encode", path, "-c", tmp_path / "no.coder"), "no.coder"),
        (("encode", path, "-c", path), "not a Nestcode file"),
        (("encode", path, "-c", "photos"), "there is no file photos"),
        (("encode", tmp_path / "narrow.npy", "-c", coder), "the 12 features the coder was fitted on, got 5"),
        (("encode", tmp_path / "nan.npy", "-c", coder), "must be finite"),
        (("decode", path, "-c", coder), "must hold packed codes (uint8), got float32"),
        (("decode", tmp_path / "wide.npy", "-c", coder), "codes of 64 bits must have 8 bytes, got 99"),
    ):
        assert said in refused(*arguments, "-o", out), arguments
        assert not out.exists()
    for command in (("fit", path), ("encode", path, "-c", coder), ("decode", codes, "-c", coder)):
        (tmp_path / "mine.npy").write_text("mine")
        assert "give --force to overwrite it" in refused(*command, "-o", tmp_path / "mine.npy")
        assert (tmp_path / "mine.npy").read_text() == "mine"
    for mistaken, said in (
        (("encode", path, "-c", coder, "-o", "codes.bin"), "must be a .npy file"),
        (("fit", path, "-o", out, "--kind", "supervised"), "--kind supervised needs labels, got none: add"),
        (("fit", path, "-o", out, "--labels", path), "--labels is for --kind supervised, got --kind auto"),
        (
            ("fit", path, "-o", out, "--resume"),
            "--resume is for PyTorch coders, got --kind auto: add --kind autoencoder",
        ),
        (
            ("fit", path, "-o", out, "--steps", 3),
            "--steps is for PyTorch coders, got --kind auto: add --kind autoencoder",
        ),
        (("fit", path, "-o", "-", "--kind", "refined", "--resume"), "give -o a name"),
    ):
        assert said in misused(*mistaken), mistaken
    assert run("fit", path).exit_code == 2  # without --out
    assert run("fit", path, "-o", out, "--kind", "best").exit_code == 2


@pytest.mark.usefixtures("small_pieces")
def test_an_interrupt_leaves_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, coder, items = vectors(tmp_path)
    codes = tmp_path / "codes.npy"
    np.save(codes, load_coder(coder).encode(items).packed)
    np.save(tmp_path / "there.npy", items)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    for name in ("fit", "encode", "decode"):
        whole = getattr(nestcode.LinearCoder, name)
        calls: list[int] = []

        def second(self: Any, *given: Any, whole: Any = whole, calls: list[int] = calls) -> Any:
            calls.append(1)
            if len(calls) > 1 or whole.__name__ == "fit":
                raise KeyboardInterrupt
            return whole(self, *given)

        monkeypatch.setattr(nestcode.LinearCoder, name, second)
    for command in (("fit", path, "--kind", "linear"), ("encode", path, "-c", coder), ("decode", codes, "-c", coder)):
        for out in ("new.npy", "there.npy"):
            result = run(*command, "-o", tmp_path / out, "--force")
            assert (result.exit_code, result.stderr) == (130, "interrupted\n")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def test_resume_continues_an_interrupted_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nestcode.coders import RefinedCoder

    path, _, _ = vectors(tmp_path)
    train = ("fit", path, "--kind", "refined", "--width", 8, "--steps", 4, "--seed", 1)
    whole, resumed = tmp_path / "whole.coder", tmp_path / "resumed.coder"
    first = run(*train, "-o", whole, "--resume")
    assert first.exit_code == 0
    assert f"there is no checkpoint {whole}.ckpt: training starts anew" in first.stderr
    assert not (tmp_path / "whole.coder.ckpt").exists()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RefinedCoder, "save", interrupted)
        assert run(*train, "-o", resumed).exit_code == 130
    kept = tmp_path / "resumed.coder.ckpt"
    assert (kept.exists(), resumed.exists()) == (True, False)
    assert json.loads(fine("info", kept, "--json"))["file"] == "checkpoint"
    assert "give --resume to continue it, or --force to restart" in refused(*train, "-o", resumed)
    assert "starts anew" not in run(*train, "-o", resumed, "--resume").stderr
    assert (kept.exists(), resumed.read_bytes()) == (False, whole.read_bytes())
    facts = json.loads(fine("info", resumed, "--json"))
    assert (facts["kind"], facts["width"], facts["features"]) == ("RefinedCoder", 8, 12)
    own = load_coder(resumed)
    assert facts["expected_errors"] == {str(k): pytest.approx(own.expected_error(k)) for k in (0, 1, 2, 4, 8)}


def test_coders_of_pytorch_are_trained(tmp_path: Path) -> None:
    path, _, _ = vectors(tmp_path)
    X = np.load(path)
    np.save(tmp_path / "labels.npy", np.arange(len(X)) % 2)
    for kind, name, more in (
        ("autoencoder", "AutoencoderCoder", ()),
        ("implicit", "ImplicitCoder", ()),
        ("supervised", "SupervisedCoder", ("--labels", tmp_path / "labels.npy")),
    ):
        out = tmp_path / f"{kind}.coder"
        fine("fit", path, "--kind", kind, "--width", 8, "--steps", 3, *more, "-o", out)
        coder = load_coder(out)
        assert (type(coder).__name__, coder.width_, coder.n_features_in_) == (name, 8, X.shape[1])


def test_threads_are_limited_for_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, _ = vectors(tmp_path)
    before, whole = os.sched_getaffinity(0), nestcode.LinearCoder.fit
    seen = []

    def watched(*given: Any) -> Any:
        seen.append(os.sched_getaffinity(0))
        return whole(*given)

    monkeypatch.setattr(nestcode.LinearCoder, "fit", watched)
    fine("fit", path, "-o", tmp_path / "a.coder", "--kind", "linear", "--threads", 1, "--width", 16)
    assert len(seen[0]) == 1
    assert os.sched_getaffinity(0) == before


def test_force_does_not_overwrite_inputs(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    codes, own = tmp_path / "codes.npy", tmp_path / "coder.npy"
    fine("encode", path, "-c", coder, "-o", codes)
    coder.rename(own)
    (tmp_path / "link.npy").hardlink_to(path)
    (tmp_path / "images").mkdir()
    for number, image in enumerate(np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)):
        Image.fromarray(image).save(tmp_path / "images" / f"{number}.png")
    before = {entry: entry.read_bytes() for entry in tmp_path.rglob("*.*")}
    for *command, out in (
        ("fit", path, path),
        ("fit", path, tmp_path / "link.npy"),
        ("fit", tmp_path / "images", tmp_path / "images" / "0.png"),
        ("fit", path, "--kind", "supervised", "--labels", codes, codes),
        ("encode", path, "-c", own, path),
        ("encode", path, "-c", own, own),
        ("decode", codes, "-c", own, codes),
        ("decode", codes, "-c", own, own),
    ):
        assert f"the output must not overwrite an input, got {out}" in refused(*command, "-o", out, "--force")
    (tmp_path / "a.ckpt").write_bytes(path.read_bytes())  # the checkpoint of a
    assert "must not overwrite an input" in refused(
        "fit", tmp_path / "a.ckpt", "--kind", "refined", "-o", tmp_path / "a", "--force"
    )
    assert {entry: entry.read_bytes() for entry in before} == before
    fine("fit", tmp_path / "images", "--kind", "linear", "--width", 1, "-o", tmp_path / "images" / "my.coder")


def test_two_arrays_in_one_file_are_refused(tmp_path: Path) -> None:
    path, coder, _ = vectors(tmp_path)
    path.write_bytes(2 * path.read_bytes())
    assert "has data after its array" in refused("encode", path, "--coder", coder, "-o", tmp_path / "codes.npy")
    assert not (tmp_path / "codes.npy").exists()


def test_torchrun_is_for_coders_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for data, kind in ((tmp_path / "x.npy", "linear"), ("-", "refined")):
        error = misused("fit", data, "-o", tmp_path / "x.coder", "--kind", kind)
        assert "torchrun trains PyTorch coders, and every process reads the items" in error
