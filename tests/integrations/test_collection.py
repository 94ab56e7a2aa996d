"""Documents in a folder: what was acknowledged survives a kill, while an index replaces another too."""

import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Index
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.collection import FILE, Collection, Row
from nestcode.storage import read_record

X = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
SETTINGS = {"width": 48, "rows_to_fit": 40, "vectors": "float16", "coder": None}
Fields = dict[str, Any]


def collection(path: Path | None, mode: Any = "a", **settings: Any) -> Collection[Fields]:
    def dump(one: Fields) -> Row:
        return Row(one["name"], one, one.items(), one.get("text"))

    return Collection("Tested", dump, lambda _name, _text, rest: rest, SETTINGS | settings, path, mode)


def put(store: Collection[Fields], step: int) -> None:
    """Make the change of a step: some without embeddings, then with, new keys, deletions, and enough for a coder."""
    if step == 0:
        store.put({"bare": {"name": "bare"}}, [None])
    elif step == 3:
        store.delete(["1"])
    elif step == 4:
        store.update({"2": {"name": "2", "late": "key"}})
    else:
        some = range(10 * step, 10 * step + 10) if step > 1 else range(1, 10)
        store.put({str(i): {"name": str(i), f"key {step}": i} for i in some}, [X[i % 60] for i in some])


def held(store: Collection[Fields]) -> list[Fields]:
    return store.select()


STEPS = 7


def states() -> list[list[Fields]]:
    """Return what a store holds after each step."""
    store, found = collection(None), [[]]  # type: ignore[var-annotated]
    for step in range(STEPS):
        put(store, step)
        found.append(held(store))
    return found


def counting_fsync(sync: Callable[[Any], None], left: list[int], file: Any) -> None:
    """Kill the process instead of the last of some calls."""
    left[0] -= 1
    if not left[0]:
        os._exit(9)
    sync(file)


def test_what_was_acknowledged_survives_a_kill_at_any_sync(tmp_path: Path) -> None:
    expected, kill_at, finished, seen = states(), 1, False, set()
    while not finished:
        folder = tmp_path / str(kill_at)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.fsync = partial(counting_fsync, os.fsync, [kill_at])
            store = collection(folder)
            for step in range(STEPS):
                put(store, step)
                os.write(writer, b".")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as acknowledged:
            done = len(acknowledged.read())
        finished = os.waitpid(child, 0)[1] == 0
        if (folder / FILE).exists():
            store = collection(folder)
            found = held(store)
            assert found in (expected[done], expected[min(done + 1, STEPS)])
            if found:
                store.put({"more": {"name": "more"}}, [None])
                assert len(store) == len(found) + 1
            store.close()
            assert sorted(one.name for one in folder.iterdir()) == [
                Path(folder / read_record(folder / FILE).settings["index"]).name,
                FILE,
            ]
            seen.add(done)
        else:
            assert done == 0
        kill_at += 23
    assert len(seen) > 3


def test_one_process_writes_and_readers_see_what_was_there(tmp_path: Path) -> None:
    store = collection(tmp_path / "store")
    for step in range(3):
        put(store, step)
    with pytest.raises(InvalidInput, match="written by"):
        collection(tmp_path / "store")
    reader = collection(tmp_path / "store", mode="r")
    for step in range(3, STEPS):
        put(store, step)  # another index takes the place of the one that is read
    assert held(reader) == states()[3]
    assert held(collection(tmp_path / "store", mode="r")) == held(store) == states()[STEPS]
    for change in (lambda: put(reader, 0), lambda: reader.delete(["2"]), lambda: put(reader, 4)):
        with pytest.raises(InvalidInput, match='opened to read: open it with mode="a"'):
            change()
    del store
    gc.collect()
    again = collection(tmp_path / "store", rows_to_fit=5)  # a folder keeps its settings
    assert again.settings["rows_to_fit"] == 40


def test_refused_changes_leave_a_folder_as_it_was(tmp_path: Path) -> None:
    store = collection(tmp_path)
    for step in range(3):
        put(store, step)
    before = held(store)
    for embedding in ([np.nan] * 6, [1e300] * 6, [1.0] * 5):
        with pytest.raises(InvalidInput):
            store.put({"2": {"name": "2", "unseen": 1}, "new": {"name": "new"}}, [None, embedding])
    with pytest.raises(InvalidInput, match="at most 995 different keys"):
        store.put({"many": {"name": "many", **{f"k{i}": i for i in range(1000)}}}, [None])
    assert held(store) == before
    store.close()
    assert held(collection(tmp_path, mode="r")) == before


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="holds other files"):
        collection(tmp_path)
    store = collection(tmp_path / "a")
    put(store, 0)
    store.close()
    with pytest.raises(DamagedFile, match="holds a Tested of version 1, not a Other"):
        Collection.read_settings(tmp_path / "a", "Other")
    folder = tmp_path / "a" / "index-000001"
    with Index.open(folder, mode="a") as index:
        index.update(index.codes([0]), [0], attributes=[{"name": "bare", "document": "{", "embedded": False}])
        index.commit()
    with pytest.raises(DamagedFile, match=r"the documents in .* are damaged"):
        held(collection(tmp_path / "a", mode="r"))
    Index(width=8).save(tmp_path / "plain")
    for path in folder.iterdir():
        path.unlink()
    for path in (tmp_path / "plain").iterdir():
        path.rename(folder / path.name)
    with pytest.raises(DamagedFile, match="is not the index of a store"):
        collection(tmp_path / "a")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(DamagedFile, match="is missing: restore a copy"):
        collection(tmp_path / "a")
