"""Durability: after a crash, a failure or a kill at any step, the folder holds the last commit."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from nestcode import Index, LinearCoder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import compaction, store
from nestcode.index.store import GRAPH_ARRAYS
from tests.index.disk import Disk, Files, Recorder, Step, files_in, lay_out, torn
from tests.index.writer import (
    WIDTH,
    Held,
    begin,
    codes_of,
    empty,
    held,
    held_after,
    last_commit,
    make_commit,
    put,
    vectors_of,
)

ROOT = Path(__file__).parents[2]


def index_of(*ids: int) -> Index:
    index = empty()
    put(index, ids, ids)
    return index


def with_coder(*ids: int, graph: bool = False) -> Index:
    X = np.arange(400.0).reshape(100, 4) ** 2 % 97
    index = Index(LinearCoder(width=WIDTH // 8).fit(X), graph=graph)
    index.add(X[: len(ids)], ids=ids)
    return index


def made(folder: Path) -> None:
    """An index of three segments with tombstones."""
    index_of(*range(100), 299).save(folder)
    with Index.open(folder, mode="a") as index:
        put(index, range(300, 320), range(300, 320))
        index.remove([0, 5, 299, 310])
        index.commit()
        put(index, range(400, 403), range(400, 403))
        index.commit()


def held_in(folder: Path) -> Held | None:
    """What a reader finds, or None where no index is."""
    try:
        with Index.open(folder) as index:
            return held(index)
    except FileNotFoundError:
        return None


def strays(folder: Path) -> set[str]:
    """Files that the manifest does not name."""
    manifest = json.loads((folder / "manifest.json").read_text())
    named = {"manifest.json", "lock", (manifest["coder"] or {}).get("name")}
    for entry in manifest["segments"]:
        named |= {f"{entry['name']}.{array}.npy" for array in (*entry["arrays"], "sums")}
        named |= {f"{entry['removed']['name']}.removed.npy"} if entry["removed"] else set()
        graph = entry.get("graph", {}).get("name")
        named |= {f"{graph}.{array}.npy" for array in GRAPH_ARRAYS} if graph else set()
    return {path.name for path in folder.iterdir()} - named


# Writes to an index; each yield follows a complete commit


def commit(folder: Path) -> Iterator[Index]:
    with Index.open(folder, mode="a") as index:
        put(index, range(500, 530), range(500, 530))
        index.remove([7, 311, 401, 501])
        index.commit()
        yield index


def commit_twice(folder: Path) -> Iterator[Index]:
    with Index.open(folder, mode="a") as index:
        for number in range(2):
            put(index, [600 + number], [600 + number])
            index.update(codes_of([700 + number]), ids=[300 + number], vectors=vectors_of([700 + number]))
            index.commit()
            yield index


def compact_and_commit(folder: Path) -> Iterator[Index]:
    with Index.open(folder, mode="a") as index:
        put(index, [800], [800])
        index.compact()
        index.commit()
        yield index


def remove_everything(folder: Path) -> Iterator[Index]:
    with Index.open(folder, mode="a") as index:
        index.remove(index.ids)
        index.commit()
        yield index


def save_over_it(folder: Path) -> Iterator[Index]:
    for index in (with_coder(3, 1, 4), index_of(1, 5, 9)):
        index.save(folder, overwrite=True)
        yield index


def save_a_graph(folder: Path) -> Iterator[Index]:
    index = with_coder(*range(70), graph=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MIN_GRAPH", 64)
        index.compact()
    assert index._live.current.segments[0].graph is not None
    index.save(folder, overwrite=True)
    yield index


def save_once(folder: Path) -> Iterator[Index]:
    index = with_coder(2, 7, 1)
    index.save(folder)
    yield index


def clean_up(folder: Path) -> Iterator[Index]:
    for name in (
        "000777.vectors.npy",
        "000778.removed.npy",
        ".manifest.json.0123456789abcdef",
        "coder-0123456789abcdef",
    ):
        (folder / name).write_bytes(b"what an earlier crash left")
    with Index.open(folder, mode="a") as index:
        yield index


Doing = Callable[[Path], Iterator[Index]]
CHANGES: list[Doing] = [
    commit,
    commit_twice,
    compact_and_commit,
    remove_everything,
    save_over_it,
    save_a_graph,
    clean_up,
]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync the real disk, and keep background compaction from adding steps."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(compaction, "pick_segments", lambda _: [])


# Crashes


def record(doing: Doing, root: Path, folder: Path) -> tuple[Recorder, list[tuple[int, Held | None]]]:
    """The steps made, and what commits hold with how many steps each had taken when it was complete."""
    before = held_in(folder)
    with Recorder(root) as recorder:
        commits = [(len(list(torn(recorder.steps))), held(index)) for index in doing(folder)]
    return recorder, [(0, before), *commits]


def crashes_of(steps: list[Step], disk: Disk, complete: list[int]) -> Iterator[tuple[int, str, Files]]:
    """What a crash after each number of steps leaves; equal ones once for each commit.

    On the strictest disk, and after every third step on another kind, by turns: the torture tries all of them.
    """
    random, seen = Random(0), set()
    for done in range(len(steps) + 1):
        if done:
            disk.make(steps[done - 1])
        kinds = list(disk.crashes(random))
        for kind, files in (kinds[1], *([kinds[done // 3 % len(kinds)]] if done % 3 == 0 else [])):
            case = (frozenset(files.items()), sum(number <= done for number in complete))
            if case not in seen:
                seen.add(case)
                yield done, kind, files


def check_crashes(doing: Doing, root: Path, folder: Path, again: Path) -> Counter[str]:
    disk = Disk.of(root)
    recorder, commits = record(doing, root, folder)
    steps = list(torn(recorder.steps))
    crashes = list(crashes_of(steps, disk, [done for done, _ in commits]))
    # Every change was noted, for the steps lead to what the real disk holds.
    assert disk.left(lambda: True, lambda file: file.data) == files_in(root)
    for done, kind, files in crashes:
        lay_out(files, again)
        check_recovery(again / folder.relative_to(root), commits, done, f"after {done} steps on a disk that {kind}")
        shutil.rmtree(again)
    return Counter(step.kind for step in recorder.steps) + Counter(crashes=len(crashes))


def check_recovery(folder: Path, commits: list[tuple[int, Held | None]], done: int, when: str) -> None:
    """One of the commits is there, none that was complete is lost, and writing goes on."""
    complete = max(i for i, (steps, _) in enumerate(commits) if steps <= done)
    found = held_in(folder)
    assert found in [what for _, what in commits[complete : complete + 2]], when
    if found is None:
        index_of(1).save(folder)
        found = held_in(folder)
        assert found == held(index_of(1)), when
    with Index.open(folder, mode="a") as index:
        assert strays(folder) == set(), when
        assert held(index) == found, when
        index.verify()
        one_more = codes_of([90_000]).prefix(index.width)
        index.add(one_more, [90_000], vectors=None if index.vector_type is None else vectors_of([90_000]))
        index.commit()
        found = held(index)
    assert 90_000 in found, when
    assert held_in(folder) == found, when
    assert strays(folder) == set(), when


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("doing", CHANGES, ids=lambda doing: doing.__name__)
def test_a_crash_at_any_step_leaves_a_complete_commit(doing: Doing, tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "index"
    made(folder)
    counts = check_crashes(doing, tmp_path / "disk", folder, tmp_path / "again")
    assert counts["unlink"] > 0
    if doing is not clean_up:
        for kind in ("create", "write", "sync", "rename", "sync folder"):
            assert counts[kind] > 0, kind
        assert counts["sync"] == counts["create"]  # every file that was made
        assert counts["crashes"] > counts["write"] // 2


@pytest.mark.usefixtures("simulated")
def test_a_crash_at_any_step_of_a_first_save_leaves_the_index_or_none(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    counts = check_crashes(save_once, root, root / "new" / "index", tmp_path / "again")
    assert counts["make folder"] == 2


def test_the_simulated_disk_loses_what_was_not_synced(tmp_path: Path) -> None:
    """The test of the tests: without its syncs a commit does not survive, so they are what is tested."""
    folder = tmp_path / "disk" / "index"
    made(folder)
    disk = Disk.of(tmp_path / "disk")
    recorder, _ = record(commit, tmp_path / "disk", folder)
    for step in recorder.steps:
        if step.kind not in ("sync", "unlink"):
            disk.make(step)
    lay_out(disk.left(lambda: False, lambda file: file.synced), tmp_path / "again")
    with pytest.raises(DamagedFile):
        Index.open(tmp_path / "again" / "index")


# A disk that is full, and Ctrl-C


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("compact", [False, True])
def test_a_commit_that_fails_at_any_step_can_be_tried_again(compact: bool, tmp_path: Path) -> None:
    made(tmp_path / "index")
    before = held_in(tmp_path / "index")
    for step in itertools.count():
        failure = KeyboardInterrupt() if step % 2 else OSError(errno.ENOSPC, "disk full")
        folder = tmp_path / f"copy {step}"
        shutil.copytree(tmp_path / "index", folder)
        with Index.open(folder, mode="a") as index:
            put(index, range(500, 530), range(500, 530))
            index.remove([7, 311, 401, 501])
            if compact:
                index.compact()
            after = held(index)
            possible: list[Held | None] = [after]
            with Recorder(folder, step, failure) as recorder:
                try:
                    index.commit()
                except type(failure):
                    assert recorder.failed
                    possible = [before] if isinstance(failure, OSError) else [before, after]
            assert held_in(folder) in possible
            assert held(index) == after
            put(index, [1000], [1000])
            index.commit()
            assert held_in(folder) == held(index) == {**after, **held(index_of(1000))}
            assert strays(folder) == set()
        shutil.rmtree(folder)
        if not recorder.failed:
            break
    assert step > 40


def test_a_folder_that_is_exchanged_under_a_commit_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy takes the name of the folder after the files of the commit are written, before its manifest."""
    folder, copied, moved = tmp_path / "index", tmp_path / "copy", tmp_path / "moved"
    made(folder)
    shutil.copytree(folder, copied)
    before = held_in(folder)

    def exchange(_: Path) -> None:
        folder.rename(moved)
        copied.rename(folder)

    with Index.open(folder, mode="a") as index:
        put(index, [1000], [1000])
        with monkeypatch.context() as patch:
            patch.setattr(store, "sync_folder", exchange)
            with pytest.raises(InvalidInput, match="was moved, removed or replaced"):
                index.commit()
        index.save(tmp_path / "elsewhere")
    for one in (folder, moved):
        assert held_in(one) == before
        with Index.open(one) as opened:
            opened.verify()
    assert held_in(tmp_path / "elsewhere") == {**(before or {}), **held(index_of(1000))}


def test_a_rollback_is_the_last_commit(tmp_path: Path) -> None:
    """Whatever was written since, merged or not: as if the index were opened again."""
    made(tmp_path)
    before = held_in(tmp_path)
    with Index.open(tmp_path, mode="a") as index:
        put(index, range(500, 530), range(500, 530))
        index.rollback()
        assert held(index) == before
        index.remove([7, 311, 401])
        index.compact()  # without what was removed
        put(index, [10**6], [10**6])
        index.truncate(WIDTH // 2)
        index.rollback()
        assert held(index) == before
        index.commit()
        assert held_in(tmp_path) == before
        assert strays(tmp_path) == set()
        index.add(codes_of([1]), vectors=vectors_of([1]))
        assert index.ids.max() == 403  # ids that were rolled back are not used
    with pytest.raises(InvalidInput, match="mode='a'"):
        Index.open(tmp_path).rollback()
    with pytest.raises(InvalidInput, match="in memory"):
        empty().rollback()


@pytest.mark.usefixtures("simulated")
def test_a_save_that_fails_at_any_step_can_be_tried_again(tmp_path: Path) -> None:
    made(tmp_path / "index")
    before, index = held_in(tmp_path / "index"), with_coder(2, 7, 1)
    for step in itertools.count():
        folder = tmp_path / f"copy {step}"
        shutil.copytree(tmp_path / "index", folder)
        with Recorder(folder, step) as recorder:
            try:
                index.save(folder, overwrite=True)
            except OSError:
                assert recorder.failed
        assert held_in(folder) in ((before, held(index)) if recorder.failed else (held(index),))
        index.save(folder, overwrite=True)
        assert held_in(folder) == held(index)
        assert strays(folder) == set()
        shutil.rmtree(folder)
        if not recorder.failed:
            break
    assert step > 40


# Processes that are killed


def start_writer(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.index.writer", str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # it forks, which is sound without threads
    )


def test_a_killed_writer_leaves_its_last_commit(tmp_path: Path) -> None:
    begin(tmp_path / "index")
    out, err = start_writer(tmp_path / "index", "25").communicate()
    assert err == b""
    counts = json.loads(out)
    assert counts["kills"] == 25
    assert counts["commits"] > 7
    assert counts["midway"] > 1  # files were found that no manifest names


def test_a_writer_killed_at_any_step_leaves_a_complete_segment_with_its_graph(tmp_path: Path) -> None:
    out, err = start_writer(tmp_path / "index", "graph").communicate()
    assert err == b""
    counts = json.loads(out)
    assert counts["before"] > 30  # each array of the segment is created, written and synced
    assert counts["after"] > 0  # files of the segment before are deleted


def test_readers_always_find_a_complete_commit(tmp_path: Path) -> None:
    begin(tmp_path)
    with start_writer(tmp_path) as writer:
        found: list[int] = []
        try:
            start = time.monotonic()
            while (spent := time.monotonic() - start) < 2 or (len(set(found)) <= 10 and spent < 600):
                with Index.open(tmp_path) as index:
                    found.append(last_commit(index))
                    assert held(index) == held_after(found[-1])
        finally:
            writer.kill()
        assert writer.stderr is not None
        assert writer.stderr.read() == b""
    assert found == sorted(found)
    assert len(set(found)) > 10


# The lock


def refused(folder: Path) -> bool:
    """Whether a second writer is refused, with what to do about it."""
    try:
        Index.open(folder, mode="a").close()
    except InvalidInput as error:
        remedy = "close that one first, or open this one to read"
        return str(folder) in str(error) and str(error).endswith(remedy)
    return False


def test_one_writer_at_a_time_and_any_number_of_readers(tmp_path: Path) -> None:
    begin(tmp_path)
    writer = Index.open(tmp_path, mode="a")
    assert refused(tmp_path)
    with pytest.raises(InvalidInput, match="close that one first"):
        index_of(1).save(tmp_path)
    readers = [Index.open(tmp_path) for _ in range(5)]
    for reader in readers:
        assert held(reader) == held_after(1)
        reader.close()
    assert refused(tmp_path)  # a reader that closes frees nothing
    writer.close()
    assert not refused(tmp_path)
    with Index.open(tmp_path, mode="a"):
        assert refused(tmp_path)
    assert not refused(tmp_path)


def test_the_death_of_a_writer_frees_the_lock(tmp_path: Path) -> None:
    begin(tmp_path)
    with start_writer(tmp_path) as writer:
        assert writer.stdout is not None
        writer.stdout.read(8)  # it has committed
        assert refused(tmp_path)
        assert held_in(tmp_path) is not None
        writer.kill()
    assert not refused(tmp_path)


def test_an_error_in_opening_frees_the_lock(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "000001.codes.npy").rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"000001\.codes\.npy is missing"):
            Index.open(tmp_path, mode="a")
    (tmp_path / "elsewhere").rename(tmp_path / "000001.codes.npy")
    assert not refused(tmp_path)


def test_a_reader_and_a_closed_writer_change_nothing(tmp_path: Path) -> None:
    begin(tmp_path)
    before = files_in(tmp_path)
    closed = Index.open(tmp_path, mode="a")
    closed.close()
    for index in (Index.open(tmp_path), closed):
        for change in (lambda index: put(index, [9], [9]), lambda index: index.remove([0]), Index.commit):
            with pytest.raises(InvalidInput, match="mode='a'"):
                change(index)
        assert held(index) == held_after(1)
    assert files_in(tmp_path) == before


# Snapshots and threads


def test_a_reader_keeps_its_snapshot(tmp_path: Path) -> None:
    begin(tmp_path)
    old_files = set(files_in(tmp_path))
    early, unread = Index.open(tmp_path), Index.open(tmp_path)
    assert held(early) == held_after(1)
    with Index.open(tmp_path, mode="a") as writer:
        for number in range(2, 30):
            make_commit(writer, number)
    kept = {name for name in old_files & set(files_in(tmp_path)) if not name.startswith("coder-")}
    assert kept == {"manifest.json", "lock"}
    late = Index.open(tmp_path)
    index_of(1, 2, 3).save(tmp_path, overwrite=True)
    for index in (early, unread):  # also where nothing was read before the files went
        assert held(index) == held_after(1)
        index.verify()
    assert held(late) == held_after(29)
    assert held_in(tmp_path) == held(index_of(1, 2, 3))


def test_threads_may_commit_at_once(tmp_path: Path) -> None:
    begin(tmp_path)
    failures: list[BaseException] = []

    def add_some(index: Index, start: int) -> None:
        try:
            for number in range(start, start + 12):
                put(index, [number], [number])
                index.commit()
                with Index.open(tmp_path) as reader:
                    assert number in reader
        except BaseException as error:
            failures.append(error)

    with Index.open(tmp_path, mode="a") as index:
        threads = [threading.Thread(target=add_some, args=(index, 1000 * t)) for t in range(1, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert held_in(tmp_path) == held(index)
    assert strays(tmp_path) == set()
