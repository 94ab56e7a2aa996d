"""`nestcode index` and `nestcode search`: they are the library's, and a mistake changes nothing."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nestcode
from nestcode.cli import index as cli_index
from nestcode.index import compaction, store
from nestcode.index.autotune import build as autotune
from nestcode.index.autotune.trials import run_trials
from tests.cli.test_streams import fine, misused, refused, run, vectors


def lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in fine(*arguments, "--json").splitlines()]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder with vectors, a coder and an index of them."""
    path, coder, _ = vectors(tmp_path)
    facts = json.loads(fine("index", "build", path, "--coder", coder, "-o", tmp_path / "my.index", "--json"))
    assert facts == {"path": str(tmp_path / "my.index"), "count": 400, "added": 400}
    return tmp_path


def test_an_index_is_not_taken_for_items(built: Path) -> None:
    message = refused("index", "build", built / "my.index", "-o", built / "again")
    assert "items must be vectors or images, got the index" in message
    assert not (built / "again").exists()


def test_an_index_that_trials_choose_is_the_librarys(built: Path) -> None:
    items, path = np.load(built / "v.npy"), built / "chosen.index"
    np.save(built / "names.npy", 3 * np.arange(400)[::-1])
    np.save(built / "q.npy", items[:40] + np.float32(0.01))
    options = ("--metric", "cosine", "--recall", 0.9, "-k", 3, "--max-bytes", 60, "--queries", built / "q.npy")
    result = run("index", "build", built / "v.npy", "-o", path, *options, "--ids", built / "names.npy", "--json")
    facts = json.loads(result.stdout)
    wish: dict[str, Any] = {"metric": "cosine", "recall": 0.9, "k": 3, "max_bytes": 60}
    own = nestcode.Index.build(items, 3 * np.arange(400)[::-1], queries=np.load(built / "q.npy"), **wish)
    choice: Any = own.choice
    assert facts["count"] == 400
    assert (facts["choice"]["chosen"], facts["choice"]["recall"]) == (str(choice.chosen), choice.reached)
    assert facts["choice"]["tried"] == list(map(str, choice.tried))
    assert "building" in result.stderr
    found = lines("search", path, built / "q.npy", "-k", 3)
    assert [line["ids"] for line in found] == own.search(np.load(built / "q.npy"), 3).ids.tolist()
    assert run("--quiet", "index", "build", built / "v.npy", "-o", built / "quiet").output == f"{built / 'quiet'}\n"


def test_health_is_that_of_the_index(built: Path) -> None:
    fine("index", "build", built / "v.npy", "-o", built / "sound")
    assert fine("index", "health", built / "sound", "-k", 5).startswith("400 items, recall@5 1.000 ± 0.000: healthy")
    found = json.loads(fine("index", "health", built / "sound", "--json"))
    assert (found["ok"], found["recall"], found["problems"]) == (True, 1.0, [])
    assert "target_recall must be above 0" in refused("index", "health", built / "sound", "-t", 2)


def test_an_interrupt_of_the_trials_builds_the_best_so_far(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of(*arguments: Any) -> Iterator[Any]:
        yield next(run_trials(*arguments))
        raise KeyboardInterrupt

    build = ("index", "build", built / "v.npy", "--max-bytes", 60, "-o")
    monkeypatch.setattr(autotune, "run_trials", first_of)
    result = run(*build, built / "best", "--json")
    assert "before the interruption" in json.loads(result.stdout)["choice"]["reason"]
    assert json.loads(fine("index", "verify", built / "best", "--json"))["count"] == 400

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(autotune, "fit_coder", interrupted)
    assert run(*build, built / "none").exit_code == 130
    assert not (built / "none").exists()


def test_search_equals_the_library(built: Path) -> None:
    items = np.load(built / "v.npy")
    queries = items[:15] + np.float32(0.01)
    np.save(built / "q.npy", queries)
    with nestcode.Index.open(built / "my.index") as index:
        own, exact = index.search(queries, 4, candidates=100), index.search(queries, 4, vectors=items)
        bits = index.search(index.coder.encode(queries), 4)  # type: ignore[union-attr]
        inner = index.search(queries, 4, metric="inner")
    found = lines("search", built / "my.index", built / "q.npy", "--k", 4, "--candidates", 100)
    assert [line["ids"] for line in found] == own.ids.tolist()
    assert np.allclose([line["distances"] for line in found], own.distances)
    assert [line["compared"] for line in found] == own.compared.tolist()
    found = lines("search", built / "my.index", built / "q.npy", "-k", 4, "--vectors", built / "v.npy")
    assert [line["ids"] for line in found] == exact.ids.tolist()
    found = lines("search", built / "my.index", built / "q.npy", "-k", 4, "--metric", "inner")
    assert [line["ids"] for line in found] == inner.ids.tolist()
    fine("encode", built / "q.npy", "-c", built / "v.coder", "-o", built / "qc.npy")
    found = lines("search", built / "my.index", built / "qc.npy", "-k", 4, "--codes", "--threads", 1)
    assert [line["ids"] for line in found] == bits.ids.tolist()
    out = built / "hits.npz"
    assert fine("search", built / "my.index", built / "q.npy", "-k", 4, "--candidates", 100, "-o", out) == f"{out}\n"
    with np.load(out) as saved:
        assert np.array_equal(saved["ids"], own.ids)
        assert np.array_equal(saved["distances"], own.distances)
        assert np.array_equal(saved["compared"], own.compared)
    shown = run("search", built / "my.index", built / "q.npy", "-k", 4)
    assert len(shown.stdout.splitlines()) == 1 + 4 * 10
    assert "and 5 more queries" in shown.stderr


def test_parts_are_searched_as_one_index(built: Path) -> None:
    items, parts = np.load(built / "v.npy"), [built / "a.index", built / "b.index"]
    for part, ids in zip(parts, (np.arange(150), np.arange(150, 400)), strict=True):
        np.save(built / "ids.npy", ids)
        np.save(built / "rows.npy", items[ids])
        fine("index", "build", built / "rows.npy", "-c", built / "v.coder", "-o", part, "--ids", built / "ids.npy")
    np.save(built / "q.npy", items[::40] + np.float32(0.01))
    whole, exact = built / "my.index", ("--exact", built / "v.npy", "--json")
    options = built / "q.npy", "-k", 4, "--candidates", 400
    assert lines("search", *parts, *options) == lines("search", whole, *options)
    own, other = (json.loads(fine("evaluate", *paths, *options, *exact)) for paths in (parts, [whole]))
    assert own | {"seconds": 0} == other | {"seconds": 0}
    facts, one = (json.loads(fine("info", *paths, "--json")) for paths in (parts, [whole]))
    assert (facts["folders"], facts["segments"], facts["count"]) == (2, 2, 400)
    assert "folders" not in one
    assert {name: facts[name] for name in one if name not in ("segments", "bytes")} == {
        name: one[name] for name in one if name not in ("segments", "bytes")
    }
    assert json.loads(fine("index", "verify", *parts, "--json")) == {
        "paths": list(map(str, parts)), "count": 400, "intact": True
    }  # fmt: skip
    assert fine("index", "verify", *parts).splitlines() == list(map(str, parts))
    assert "ids must be distinct among all folders, but 0, 1, 2, … are not" in refused("index", "verify", *parts, whole)
    for command in (("search", whole, whole, built / "q.npy"), ("info", whole, whole)):
        assert f"must be distinct, got {whole} twice: name each once" in refused(*command)
    fine("index", "truncate", parts[1], 8)
    for name in (("info",), ("index", "verify")):
        assert f"but {parts[1]} and {parts[0]} differ in width: build" in refused(*name, *parts)
    assert "there is no index in" in refused("info", *parts, built / "v.npy")


def test_vectors_are_stored_and_searched(built: Path) -> None:
    path, items = built / "stored.index", np.load(built / "v.npy")
    np.save(built / "more.npy", items[:2] + 1)
    fine("index", "build", built / "v.npy", "--coder", built / "v.coder", "-o", path, "--vectors", "float32")
    fine("index", "add", path, built / "more.npy")
    assert json.loads(fine("info", path, "--json"))["vectors"] == "float32"
    with nestcode.Index.open(path) as index:
        assert np.array_equal(index.vectors(index.ids), np.concatenate([items, items[:2] + 1]))
    found = lines("search", path, built / "v.npy", "-k", 1, "--rank", "exact")
    assert [line["ids"] for line in found] == [[i] for i in range(400)]
    fine("index", "truncate", path, 8)
    with nestcode.Index.open(path) as index:
        assert (index.width, index.vector_type) == (8, "float32")
    assert "truncate shortens codes of 8 bits" in refused("index", "truncate", path, 9)
    fine("encode", built / "more.npy", "-c", built / "v.coder", "-o", built / "codes.npy")
    assert "takes Codes together with their vectors" in refused("index", "add", path, built / "codes.npy", "--codes")
    again = "index", "build", built / "codes.npy", "-c", built / "v.coder", "-o", built / "x", "--codes"
    assert "leave one of them out" in misused(*again, "--vectors", "int8")


def test_tuning_is_kept_with_the_index(built: Path) -> None:
    folder, items = built / "my.index", np.load(built / "v.npy")
    np.save(built / "q.npy", items[:30] + np.float32(0.01))
    given = folder, built / "q.npy", "-k", 3
    (tuned,) = lines("tune", *given, "--target-recall", 0.8, "--vectors", built / "v.npy")
    assert tuned["recall"] >= 0.8
    (found,) = lines("evaluate", *given, "--vectors", built / "v.npy")
    assert [found[name] for name in ("k", "recall", "candidates", "rerank")] == [
        tuned[name] for name in ("k", "recall", "candidates", "rerank")
    ]
    with nestcode.Index.open(folder) as index:
        assert index.effort is not None
        assert index.effort.candidates == tuned["candidates"]
        expected = index.evaluate(np.load(built / "q.npy"), 3, candidates=50, exact=items)
    assert f"candidates={tuned['candidates']}, items=400" in fine("info", folder)
    (found,) = lines("evaluate", *given, "--candidates", 50, "--exact", built / "v.npy")
    assert found["recall"] == expected.recall
    assert f"recall@3 {expected.recall:.3f}" in fine("evaluate", *given, "--candidates", 50, "--exact", built / "v.npy")
    fine("encode", built / "q.npy", "-c", built / "v.coder", "-o", built / "qc.npy")
    (found,) = lines("evaluate", folder, built / "qc.npy", "--codes", "--candidates", 400)
    assert found["recall"] == 1
    assert "give one of them" in misused("tune", *given, "--vectors", built / "v.npy", "--exact", built / "v.npy")
    assert "by codes (--exact measures against vectors): " in fine("evaluate", *given)
    assert "leave out --codes" in misused("evaluate", *given, "--codes", "--exact", built / "v.npy")
    assert "target_recall must be above 0" in refused("tune", *given, "--target-recall", 2)


def test_missing_items_are_left_out(built: Path) -> None:
    np.save(built / "few.npy", np.load(built / "v.npy")[:2])
    fine("index", "build", built / "few.npy", "-c", built / "v.coder", "-o", built / "few.index", "--width", 9)
    assert [len(line["ids"]) for line in lines("search", built / "few.index", built / "few.npy")] == [2, 2]


def test_hits_have_names(tmp_path: Path) -> None:
    (tmp_path / "photos" / "below").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("b.png", "a.png", "below/c.png"):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    index = tmp_path / "photos.index"
    fine("index", "build", tmp_path / "photos", "-o", index)
    found = lines("search", index, tmp_path / "photos", "-k", 1, "--names", tmp_path / "photos")
    assert [line["names"] for line in found] == [["a.png"], ["b.png"], ["below/c.png"]]
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    found = lines("search", index, tmp_path / "photos", "-k", 1, "--names", tmp_path / "names.txt")
    assert [line["names"] for line in found] == [["one"], ["two"], [None]]
    note = run("search", index, tmp_path / "photos", "--names", tmp_path / "names.txt").stderr
    assert "names.txt has 2 items and the index 3" in note
    assert not run("search", index, tmp_path / "photos", "--names", tmp_path / "photos").stderr
    assert "below/c.png" in fine("search", index, tmp_path / "photos", "--names", tmp_path / "photos")
    assert "there is no file" in refused("search", index, tmp_path / "photos", "--names", tmp_path / "no")
    (tmp_path / "names.txt").write_bytes("odd\u2028\x0b\x0c\x1c\x85\r one\r\n\ntwo".encode())
    found = lines("search", index, tmp_path / "photos", "-k", 1, "--names", tmp_path / "names.txt")
    assert [line["names"] for line in found] == [["odd\u2028\x0b\x0c\x1c\x85\r one"], [""], ["two"]]
    (tmp_path / "names.txt").write_bytes(b"caf\xe9")
    assert "must be UTF-8 text" in refused("search", index, tmp_path / "photos", "--names", tmp_path / "names.txt")


def test_add_remove_and_compact(built: Path) -> None:
    index, items = built / "my.index", np.load(built / "v.npy")
    np.save(built / "more.npy", items[:3] + 1)
    np.save(built / "ids.npy", np.array([7, 5000, 9]))
    assert json.loads(fine("index", "add", index, built / "more.npy", "--json"))["count"] == 403
    again = ("index", "add", index, built / "more.npy", "--ids", built / "ids.npy")
    assert "7, which is in use: give other ids, or --replace" in refused(*again)
    fine(*again, "--replace")
    with nestcode.Index.open(index) as opened:
        assert opened.coder is not None
        assert opened.codes([400, 5000]) == opened.coder.encode(items[:2] + 1)
        assert len(opened) == 404
    fine("index", "remove", index, 0, 1)
    assert "but 0 is not" in refused("index", "remove", index, 2, 0)
    assert json.loads(fine("index", "remove", index, "--ids", built / "ids.npy", "--json"))["removed"] == 3
    facts = json.loads(fine("info", index, "--json"))
    assert (facts["count"], facts["width"], facts["largest_id"]) == (399, 64, 5000)
    assert facts["removed"] > 0
    facts = json.loads(fine("index", "compact", index, "--json"))
    assert facts["bytes"] < facts["bytes_before"]
    facts = json.loads(fine("info", index, "--json"))
    assert (facts["count"], facts["segments"], facts["removed"]) == (399, 1, 0)
    assert json.loads(fine("index", "verify", index, "--json"))["intact"] is True
    assert facts["file"] == "index"
    shown = fine("info", index)
    assert "LinearCoder(version=1" in shown
    assert facts["coder"]["fingerprint"] in "".join(shown.split())  # nothing is cut off
    assert "bits  expected error" in shown


def test_an_index_of_bare_codes(built: Path) -> None:
    fine("encode", built / "v.npy", "-c", built / "v.coder", "-o", built / "codes.npy", "--length", 32)
    index = built / "bare.index"
    fine("index", "build", built / "codes.npy", "--codes", "-o", index)
    assert json.loads(fine("info", index, "--json"))["width"] == 32
    found = lines("search", index, built / "codes.npy", "--codes", "-k", 1)
    assert [line["distances"] for line in found] == [[0.0]] * 400
    for arguments in (("index", "add", index, built / "v.npy"), ("search", index, built / "v.npy")):
        assert "without a coder takes packed codes: add --codes" in refused(*arguments)
    assert "coder" not in json.loads(fine("info", index, "--json"))


@pytest.mark.parametrize("coder", [True, False])
def test_width_shortens_codes(coder: bool, built: Path) -> None:
    items, own = np.load(built / "v.npy"), nestcode.load_coder(built / "v.coder")
    fine("encode", built / "v.npy", "-c", built / "v.coder", "-o", built / "codes.npy")
    given, index = (["-c", built / "v.coder"] if coder else []), built / "short.index"
    fine("index", "build", built / "codes.npy", "--codes", *given, "--width", 19, "-o", index)
    fine("index", "add", index, built / "codes.npy", "--codes")
    with nestcode.Index.open(index) as opened:
        assert opened.codes([3, 403]) == own.encode(items[[3, 3]]).prefix(19)
    found = lines("search", index, built / "codes.npy", "--codes", "-k", 1)
    assert [line["distances"] for line in found] == [[0.0]] * 400
    np.save(built / "short.npy", np.zeros((3, 2), np.uint8))
    for command in (("index", "add"), ("search",)):
        said = refused(*command, index, built / "short.npy", "--codes")
        assert "must hold codes of at least 19 bits, got 16" in said


def test_damage_is_an_error(built: Path) -> None:
    index = built / "my.index"
    part = next(index.glob("*.codes.npy"))
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    assert "is damaged" in refused("index", "verify", index)
    result = run("index", "verify", index, "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert facts == {"path": str(index), "intact": False, "error": str(result.exception)}
    assert "is damaged" in refused("search", index, built / "v.npy")
    part.write_bytes(data[:-1])
    assert "is damaged" in refused("index", "verify", index)
    (index / "manifest.json").write_text("{}")
    for command in (("index", "verify"), ("index", "compact"), ("info",)):
        assert "is damaged or was not written by Nestcode" in refused(*command, index)


def test_errors_leave_the_index_unchanged(built: Path) -> None:
    index = built / "my.index"
    before = {path.name: path.read_bytes() for path in index.iterdir()}
    np.save(built / "narrow.npy", np.zeros((3, 5)))
    np.save(built / "ids.npy", np.arange(3))
    (built / "other").mkdir()
    (built / "other" / "note.txt").write_text("mine")
    coder = ("-c", built / "v.coder")
    for arguments, said in (
        (
            ("index", "build", built / "v.npy", *coder, "-o", index),
            "give --force to overwrite it, or use nestcode index add",
        ),
        (("index", "build", built / "v.npy", *coder, "-o", built / "v.npy"), "an index must be a folder"),
        (("index", "build", built / "v.npy", *coder, "-o", built / "other"), "without an index that holds other files"),
        (("index", "build", built / "v.npy", *coder, "--width", 99, "-o", built / "new"), "width must be at most 64"),
        (("index", "build", built / "narrow.npy", *coder, "-o", built / "new"), "the 12 features"),
        (("index", "build", built / "v.npy", *coder, "--ids", built / "ids.npy", "-o", built / "new"), "3 ids for 400"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--recall", 2), "recall must be above 0"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--max-bytes", 5), "max_bytes must be more than"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--ids", built / "ids.npy"), "3 ids for 400"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--queries", built / "narrow.npy"), "12 features"),
        (("index", "build", built / "v.npy", "-o", index), "give --force to overwrite it"),
        (("index", "add", index, built / "narrow.npy"), "the 12 features"),
        (("index", "add", index, built / "no.npy"), "there is no file"),
        (("index", "add", built / "no.index", built / "v.npy"), "there is no index in"),
        (("search", index, built / "narrow.npy"), "the 12 features"),
        (("search", built / "no.index", built / "v.npy"), "there is no index in"),
    ):
        assert said in refused(*arguments), arguments
    search = ("search", index, built / "v.npy")
    for mistaken, said in (
        (("index", "build", built / "v.npy", *coder, "-o", built / "new", "--recall", 0.9), "leave out --recall"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--codes", "--seed", 9), "leave out --seed"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--width", 9), "--width needs --coder"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--graph"), "--graph needs --coder"),
        (("index", "build", built / "v.npy", "-o", built / "new", "--ray", "local"), "--ray needs --coder"),
        (("index", "remove", index), "ids must be given as arguments or by --ids"),
        (("index", "remove", index, 3, "--ids", built / "ids.npy"), "ids must be given as arguments or by --ids"),
        (("search", index), "give the folder of an index, then the file of queries"),
        (("evaluate", index), "give the folder of an index, then the file of queries"),
        ((*search, "-o", "hits.txt"), "must be a .npz file"),
        ((*search, "--rank", "exact"), "give them by --vectors"),
        ((*search, "--rank", "hamming", "--vectors", built / "v.npy"), "need --rank exact"),
        ((*search, "--codes", "--rank", "asymmetric"), "ranked by Hamming distance"),
        ((*search, "--codes", "--vectors", built / "v.npy"), "ranked by Hamming distance"),
    ):
        assert said in misused(*mistaken), mistaken
    assert not (built / "new").exists()
    assert {path.name: path.read_bytes() for path in index.iterdir()} == before
    fine("index", "build", built / "v.npy", *coder, "-o", index, "--force", "--width", 8)
    facts = json.loads(fine("info", index, "--json"))
    assert facts["width"] == 8
    assert list(facts["expected_errors"]) == ["0", "1", "2", "4", "8"]


def test_force_does_not_overwrite_inputs(built: Path) -> None:
    index = built / "my.index"
    (own_coder,) = index.glob("coder-*")
    (own_codes,) = index.glob("*.codes.npy")
    np.savez(built / "queries.npz", np.load(built / "v.npy"))
    before = {path: path.read_bytes() for path in (*index.iterdir(), built / "queries.npz")}
    for data, options in ((built / "v.npy", ("-c", own_coder)), (own_codes, ("--codes",)), (index, ("--codes",))):
        said = refused("index", "build", data, *options, "-o", index, "--force")
        assert "the index must not overwrite an input, got" in said
    for more in ((), ("--vectors", built / "queries.npz"), ("--names", built / "queries.npz")):
        said = refused("search", index, built / "queries.npz", *more, "-o", built / "queries.npz", "--force")
        assert "the output must not overwrite an input" in said
    assert {path: path.read_bytes() for path in before} == before


def test_an_index_that_appears_during_a_build_is_kept(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, out, add = nestcode.Index.open(built / "my.index"), built / "new", cli_index._add
    build = ("index", "build", built / "v.npy", "-c", built / "v.coder", "-o", out)

    def add_late(*arguments: Any, **options: Any) -> int:
        other.save(out)
        return add(*arguments, **options)

    monkeypatch.setattr(cli_index, "_add", add_late)
    assert "holds another index, of " in refused(*build)
    with monkeypatch.context() as patch, nestcode.Index.open(out, mode="a"):
        patch.setattr(cli_index, "_add", add)
        assert "is being written by another Index" in refused(*build, "--force")
    assert len(nestcode.Index.open(out)) == 400
    shutil.rmtree(out)
    monkeypatch.setattr(cli_index, "_add", lambda *_, **__: writers.append(store.Store(out, write=True)))
    writers: list[store.Store] = []
    assert "is being written by another Index" in refused(*build)
    with writers.pop() as own:
        assert own.path.exists()  # its folder was left to it


def test_nothing_is_written_into_an_index(built: Path) -> None:
    index = built / "my.index"
    before = {file: file.read_bytes() for file in index.rglob("*") if file.is_file()}
    (built / "link").symlink_to(index)
    for out in (index, index / "below", built / "link"):
        for command in (
            ("search", index, built / "v.npy", "-o", out / "x.npz"),
            ("encode", built / "v.npy", "-c", built / "v.coder", "-o", out / "x.npy"),
            ("index", "build", built / "v.npy", "-c", built / "v.coder", "-o", out / "x.index"),
        ):
            assert f"is inside of the index {index}" in refused(*command, "--force")
    assert {file: file.read_bytes() for file in index.rglob("*") if file.is_file()} == before
    (built / "manifest.json").write_text('{"name": "a web page"}')  # is no index
    fine("search", index, built / "v.npy", "-o", built / "x.npz")


def test_an_interrupt_leaves_the_index_unchanged(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    index = built / "my.index"
    with monkeypatch.context() as patched:
        patched.setattr(store, "write_manifest", interrupted)
        for command in (("build", built / "v.npy", "-c", built / "v.coder", "-o", built / "new"),
                        ("add", index, built / "v.npy"), ("remove", index, 3)):  # fmt: skip
            assert run("index", *command).exit_code == 130
    assert not (built / "new").exists()
    assert json.loads(fine("index", "verify", index, "--json"))["count"] == 400
    assert lines("search", index, built / "v.npy", "-k", 1)[3]["ids"] == [3]


def test_a_graph_is_built_saved_and_searched(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MIN_GRAPH", 300)
    fine("index", "build", built / "v.npy", "--coder", built / "v.coder", "-o", built / "by.graph", "--graph")
    assert json.loads(fine("info", built / "by.graph", "--json"))["graphs"] == 1
    found = lines("search", built / "by.graph", built / "v.npy", "-k", 1, "--candidates", 20)
    assert np.mean([line["ids"] == [i] for i, line in enumerate(found)]) > 0.9
    fine("index", "add", built / "by.graph", built / "v.npy")
    assert json.loads(fine("info", built / "by.graph", "--json"))["graphs"] == 1
    fine("index", "compact", built / "by.graph")
    assert json.loads(fine("info", built / "by.graph", "--json"))["segments"] == 1
    monkeypatch.undo()
    told = run("index", "build", built / "v.npy", "--coder", built / "v.coder", "-o", built / "few", "--graph").stderr
    assert "no graph: 4,096 items or more get one" in told


def test_a_cluster_is_served_by_its_folder_of_parts(built: Path) -> None:
    parts = ("--parts", built)
    assert "--ray and --parts belong together" in misused("serve", *parts)
    assert "--ray and --parts belong together" in misused("serve", built / "sound", "--ray", "local")
    assert "leave out INDEX" in misused("serve", built / "sound", "--ray", "local", *parts)
    assert "--writable is for one machine" in misused("serve", "--ray", "local", *parts, "--writable")
