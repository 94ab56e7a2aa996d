"""The store: what a writer writes to its folder, and what it leaves alone."""

import copy
import errno
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Codes, Index
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.search.planner import Effort


def codes(count: int, seed: int = 0) -> Codes:
    return Codes(np.random.default_rng(seed).integers(0, 256, (count, 8), dtype=np.uint8), 64)


def saved(path: Path, count: int = 100) -> Path:
    index = Index(width=64)
    index.add(codes(count))
    index.save(path)
    return path


def test_a_writer_keeps_its_folder_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    saved(tmp_path / "one" / "x")
    saved(tmp_path / "two" / "x", count=50)
    monkeypatch.chdir(tmp_path / "one")
    index = Index.open("x", mode="a")
    index.add(codes(3, seed=1))
    monkeypatch.chdir(tmp_path / "two")
    index.commit()
    index.close()
    assert len(Index.open(tmp_path / "one" / "x")) == 103
    assert len(Index.open(tmp_path / "two" / "x")) == 50


def test_a_folder_that_is_not_writable_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "x")
    monkeypatch.setattr(os, "access", lambda *_: False)  # permissions do not bind everybody who runs tests
    with pytest.raises(PermissionError, match="x is not writable: open it to read, or change its permissions"):
        Index.open(tmp_path / "x", mode="a")
    assert len(Index.open(tmp_path / "x")) == 100


@pytest.mark.parametrize("replaced", [False, True])
def test_a_writer_whose_folder_is_gone_writes_nothing(replaced: bool, tmp_path: Path) -> None:
    index = Index.open(saved(tmp_path / "x"), mode="a")
    index.add(codes(3, seed=1))
    shutil.rmtree(tmp_path / "x")
    if replaced:
        saved(tmp_path / "x", count=7)
    with pytest.raises(InvalidInput, match="moved, removed or replaced"):
        index.commit()
    if replaced:
        assert len(Index.open(tmp_path / "x")) == 7
    index.save(tmp_path / "y")  # nothing is lost
    index.close()
    assert len(Index.open(tmp_path / "y")) == 103


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


def test_who_may_not_write_a_folder_reads_it(reachable: Path) -> None:
    """As another user, where this one may do anything."""
    folder = saved(reachable / "x")
    for one in (*folder.iterdir(), folder):
        one.chmod(0o555 if one.is_dir() else 0o444)
    Index.open(folder).verify()  # imports what the other user may not read
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            before = sorted(folder.iterdir())
            index = Index.open(folder)
            index.verify()
            refused = []
            for write in (partial(Index.open, folder, mode="a"), partial(index.save, folder)):
                try:
                    write()
                except (PermissionError, InvalidInput) as error:
                    refused.append(str(error))
            code = 0 if len(refused) == 2 and sorted(folder.iterdir()) == before else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("moment", [0, 4 * 10**9])
def test_the_clock_of_files_means_nothing(tmp_path: Path, moment: int) -> None:
    """After a jump of the clock a reader still sees each commit, and a writer goes on."""
    folder = saved(tmp_path / "x")
    reader = Index.open(folder)
    count = len(reader)
    with Index.open(folder, mode="a") as writer:
        for step in range(1, 4):
            for path in folder.iterdir():
                os.utime(path, (moment + step % 2, moment + step % 2))
            writer.add(codes(1, seed=step))
            writer.commit()
            for path in folder.iterdir():
                os.utime(path, (moment, moment))
            assert reader.refresh()
            assert len(reader) == count + step
    assert len(Index.open(folder)) == count + 3


@pytest.mark.parametrize("fails", ["the folder", "everything since"])
def test_a_commit_that_fails_once_its_manifest_was_replaced_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Where the folder cannot be synced, and the disk syncs nothing from then on."""
    index = Index.open(saved(tmp_path / "x"), mode="a")
    before, manifest, sync = index.ids, (tmp_path / "x" / "manifest.json").read_bytes(), os.fsync

    def fail(handle: int) -> None:
        replaced = (tmp_path / "x" / "manifest.json").read_bytes() != manifest
        if replaced or (failed and fails == "everything since"):
            failed.append(True)
            raise OSError(errno.EIO, "Input/output error")
        sync(handle)

    failed: list[bool] = []
    index.add(codes(3, seed=1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            index.commit()
    assert failed
    assert Index.open(tmp_path / "x").ids.tolist() == before.tolist()
    index.commit()
    index.close()
    assert len(Index.open(tmp_path / "x")) == len(before) + 3


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Where it points to nothing, opening it would make a file there."""
    folder, elsewhere = saved(tmp_path / "x"), tmp_path / "elsewhere"
    for target in (elsewhere, tmp_path / "file"):
        (tmp_path / "file").write_bytes(b"")
        (folder / "lock").unlink()
        (folder / "lock").symlink_to(target)
        with pytest.raises(DamagedFile, match="lock is not a file: remove it"):
            Index.open(folder, mode="a")
        assert not elsewhere.exists()
    assert len(Index.open(folder)) > 0


def test_a_forked_process_does_not_write_and_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    index = Index.open(saved(tmp_path / "x"), mode="a")
    child = os.fork()
    if child == 0:
        try:
            index.commit()
        except InvalidInput:
            index.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(InvalidInput, match="is being written"):
        Index.open(tmp_path / "x", mode="a")
    index.add(codes(3, seed=1))
    index.commit()
    index.close()
    assert len(Index.open(tmp_path / "x")) == 103


def test_verify_reads_again_what_was_read_before(tmp_path: Path) -> None:
    index = Index.open(saved(tmp_path / "x"))
    index.verify()
    assert index.neighborhood(codes(100)[5], size=1).ids.tolist() == [5]
    with (tmp_path / "x" / "000001.ids.npy").open("r+b") as file:
        file.seek(200)
        file.write(b"damage")
    with pytest.raises(DamagedFile, match=r"000001\.ids\.npy is damaged.*restore a copy"):
        index.verify()


def test_a_symbolic_link_in_the_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    saved(tmp_path / "x")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "x" / "000002.codes.npy").symlink_to(tmp_path / "precious")
    index = Index(width=64)
    index.add(codes(9))
    index.save(tmp_path / "x", overwrite=True)
    assert (tmp_path / "precious").read_text() == "mine"
    assert len(Index.open(tmp_path / "x")) == 9


def test_a_folder_of_other_files_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match=r"other files, such as 'notes\.txt'"):
        saved(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_another_index_is_replaced_only_on_request(tmp_path: Path) -> None:
    first, second = Index(width=64), Index(width=64)
    first.add(codes(600))
    second.add(codes(7))
    first.save(tmp_path / "it")
    for index in (second, Index.open(tmp_path / "it")):
        with pytest.raises(InvalidInput, match=r"it holds another index, of 600 items: .* or replace it by save"):
            index.save(tmp_path / "it")
    first.add(codes(1), ids=[1000])
    first.save(tmp_path / "it")  # its own
    second.save(tmp_path / "it", overwrite=True)
    with pytest.raises(InvalidInput, match="another index, of 7 items"):
        first.save(tmp_path / "it")
    with Index.open(tmp_path / "it", mode="a") as writer:
        writer.remove(0)
        writer.save(tmp_path / "it")  # which commits
    with pytest.raises(InvalidInput, match="another index, of 6 items"):
        second.save(tmp_path / "it")  # what it saved was changed since
    assert len(Index.open(tmp_path / "it")) == 6


def test_copying_and_pickling_are_refused_with_the_remedy() -> None:
    index = Index(width=64)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidInput, match="not copied or pickled: save"):
            way(index)
        for hood in (index.neighborhood(codes(2), size=1), index.neighborhood(codes(2)[0], size=1)):
            with pytest.raises(InvalidInput, match="not copied or pickled: keep their ids"):
                way(hood)


@pytest.mark.parametrize("shared", [3, 7, 8])
def test_codes_in_clusters_take_no_more_memory(shared: int) -> None:
    """Rows that share most of their first 64 bits, where prefix tables separate little."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (500, 64), dtype=np.uint8).repeat(40, axis=0)
    packed[:, shared:] = rng.integers(0, 256, (20_000, 64 - shared), dtype=np.uint8)
    index = Index(width=512)
    index.add(Codes(packed, 512))
    assert index.nbytes <= 20_000 * (1.15 * 64 + 32) + 1024 * (64 + 20)
    hoods = index.neighborhood(Codes(packed[:50], 512), size=2)
    assert (hoods.length >= 8 * shared).all()


def test_neighborhoods_can_be_sliced() -> None:
    index = Index(width=64)
    index.add(codes(100))
    hoods = index.neighborhood(codes(100), size=1)
    assert [hood.ids.tolist() for hood in hoods[10:13]] == [[10], [11], [12]]


def test_a_reader_sees_its_snapshot_until_it_refreshes(tmp_path: Path) -> None:
    index = Index(width=64)
    index.add(codes(3000), ids=np.arange(3000))
    index.save(tmp_path)
    reader = Index.open(tmp_path)
    hood = reader.neighborhood(codes(3000)[7], size=5)
    assert not reader.refresh()
    with Index.open(tmp_path, mode="a") as writer:
        writer.remove(np.arange(0, 100))
        writer.add(codes(40, seed=1), ids=np.arange(9000, 9040))
        assert not writer.refresh()
        assert not reader.refresh()  # nothing is committed
        writer.commit()
        before = reader._live.current.segments
        assert (len(reader), reader.refresh(), len(reader), reader.refresh()) == (3000, True, 2940, False)
        assert np.array_equal(reader.ids, writer.ids)
        assert reader.codes(reader.ids) == writer.codes(writer.ids)
        assert reader._live.current.segments[0].segment is before[0].segment  # with what was prepared of it
        writer.compact()
        writer.commit()
    assert hood.count == len(hood.ids)  # of the snapshot that it was found in
    assert reader.refresh()
    assert len(reader._live.current.segments) == 1
    reader.verify()
    with pytest.raises(InvalidInput, match="was closed: open it again to see later commits"):
        writer.refresh()
    with pytest.raises(InvalidInput, match="in memory, where nobody else changes it"):
        index.refresh()


def test_a_reader_follows_the_effort_of_commits_until_it_chooses_its_own(tmp_path: Path) -> None:
    saved(tmp_path / "x")
    one, other, own = (Effort(candidates=n, items=100, rerank=10, k=5) for n in (10, 20, 30))
    reader = Index.open(tmp_path / "x")
    with Index.open(tmp_path / "x", mode="a") as writer:
        for effort in (one, other):
            writer.effort = effort
            writer.commit()
            assert reader.refresh()
            assert reader.effort == effort
        reader.effort = own
        for later in (one, None):
            writer.effort = later
            writer.commit()
            assert reader.refresh()
            assert reader.effort == own


def test_a_reader_does_not_refresh_to_another_index(tmp_path: Path) -> None:
    index = Index(width=64)
    index.add(codes(10))
    index.save(tmp_path)
    reader = Index.open(tmp_path)
    other = Index(width=24)
    other.add(codes(5).prefix(24))
    other.save(tmp_path, overwrite=True)
    for _ in range(2):
        with pytest.raises(
            InvalidInput, match="holds another index now, of another width, coder, vectors or attributes"
        ):
            reader.refresh()
    assert reader.codes(reader.ids) == codes(10)


def test_heads_and_places_are_in_memory_once_they_are_used(tmp_path: Path) -> None:
    index, plain = Index(width=64), Index(width=64)
    for one in (index, plain):
        one.add(codes(3000))
    index.search(codes(3), k=2)
    index.save(tmp_path / "x")
    index.compact()
    assert {"heads", "places"}.isdisjoint(index.nbytes_by_part())
    index.neighborhood(codes(3), size=2)
    assert index.nbytes_by_part()["heads"] == 8 * 3000
    assert "places" not in index.nbytes_by_part()
    assert 7 in index
    assert index.nbytes_by_part()["places"] == 4 * 3000
    plain.neighborhood(codes(1), size=1)
    assert 7 in plain
    plain.save(tmp_path / "y")  # files hold both, whether they were used or not
    assert contents(tmp_path / "x") == contents(tmp_path / "y")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def restore(folder: Path, copied: dict[str, bytes]) -> None:
    for name in contents(folder):
        (folder / name).unlink()
    for name, data in copied.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("later", [False, True])
def test_a_commit_never_replaces_another_than_its_writers_last(later: bool, tmp_path: Path) -> None:
    """Neither an older copy that was restored, nor one with files of the same names that the writer would write."""
    folder = saved(tmp_path / "x")
    other = shutil.copytree(folder, tmp_path / "other")
    if later:
        with Index.open(other, mode="a") as branch:
            branch.add(codes(7, seed=2))
            branch.commit()
    with Index.open(folder, mode="a") as writer:
        if not later:
            writer.add(codes(10, seed=1))
            writer.commit()
        restore(folder, contents(other))
        writer.add(codes(3, seed=3), ids=[500, 501, 502])
        for _ in range(2):  # it is not forgotten either
            with pytest.raises(InvalidInput, match=r"x holds another now.*save .* another folder .*refresh\(\)"):
                writer.commit()
        with pytest.raises(InvalidInput, match=r"this writer's last one, and the writer has changes: .*rollback\(\)"):
            writer.refresh()
        assert contents(folder) == contents(other)
        assert writer.codes([500, 501, 502]) == codes(3, seed=3)  # what was pending is still there
        writer.save(tmp_path / "kept")
        assert len(Index.open(tmp_path / "kept")) == len(writer)
        writer.rollback()
        assert (writer.refresh(), writer.refresh()) == (True, False)
        assert np.array_equal(writer.ids, Index.open(other).ids)
        writer.add(codes(2, seed=4))
        writer.commit()
    found = Index.open(folder)
    found.verify()
    assert len(found) == len(Index.open(other)) + 2


def test_an_add_while_a_writer_refreshes_comes_before_or_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "x")
    before = contents(folder)
    with Index.open(folder, mode="a") as writer:
        writer.add(codes(10, seed=1))
        writer.commit()
        restore(folder, before)
        store = writer._store
        assert store is not None
        read, thread = store.read, threading.Thread(target=writer.add, args=(codes(5, seed=2), range(9000, 9005)))

        def slow() -> Any:
            thread.start()
            thread.join(0.05)
            return read()

        monkeypatch.setattr(store, "read", slow)
        assert writer.refresh()
        thread.join()
        writer.commit()
    assert 9004 in Index.open(folder)


def test_a_commit_whose_manifest_is_gone_writes_nothing(tmp_path: Path) -> None:
    with Index.open(saved(tmp_path), mode="a") as writer:
        (tmp_path / "manifest.json").unlink()
        before = contents(tmp_path)
        with pytest.raises(InvalidInput, match="holds none now"):
            writer.commit()
        assert contents(tmp_path) == before
