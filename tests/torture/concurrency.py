"""Readers beside a writer, in threads, processes and forked children: each answer is that of one commit.

The number of a commit determines what the index holds (`tests.index.writer`), so every read can be judged by itself.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from nestcode import Index
from nestcode.errors import InvalidInput
from nestcode.index import store
from tests.index.disk import files_in, lay_out
from tests.index.test_durability import strays
from tests.index.writer import begin, codes_of, held, held_after, ids_of, last_commit, make_commit, vectors_of
from tests.torture.run import ROOT, Outcome, Trial

COMMITS = 12  # of a thread that writes while others read


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """A writer in another process, and readers here; then threads that share one index."""
    begin(folder / "index")
    command = [sys.executable, "-m", "tests.index.writer", str(folder / "index")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as writer:
        try:
            seen = [1]
            reader = Index.open(folder / "index")
            while True:
                assert writer.poll() is None, "the writer failed"
                yield "reader opens beside a writer", partial(open_anew, folder / "index", seen)
                yield "reader refreshes beside a writer", partial(refresh, reader, seen)
                yield "forked child reads beside a writer", partial(in_child, reader)
                yield "copy restored under a writer", partial(restore, Random(random.random()), folder / "restored")
                if random.random() < 0.1:
                    yield "threads share one index", partial(share, folder / f"shared {random.random()}")
        finally:
            writer.kill()


def open_anew(folder: Path, seen: list[int]) -> Outcome:
    """Open the last commit: whole, and not older than the one seen before."""
    with Index.open(folder) as index:
        return judge(index, seen)


def refresh(index: Index, seen: list[int]) -> Outcome:
    """Go to the last commit with an index that is open."""
    before = held(index)
    assert before == held_after(last_commit(index))  # its files may be gone by now
    index.refresh()
    return judge(index, seen)


def judge(index: Index, seen: list[int]) -> Outcome:
    commit = last_commit(index)
    if commit < seen[-1]:
        return "lost"
    seen[-1] = commit
    newest = ids_of(commit)
    hits = index.search(vectors_of(newest), k=1, candidates=10**6)
    right = held(index) == held_after(commit) and np.array_equal(hits.ids[:, 0], newest)
    return "intact" if right else "wrong"


def in_child(index: Index) -> Outcome:
    """Read an index in a forked child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if held(index) == held_after(last_commit(index)) else 1
        finally:
            os._exit(code)
    return "intact" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else "wrong"


def restore(random: Random, folder: Path) -> Outcome:
    """Restore a copy under a writer, before its next commit or while that writes files: neither side loses anything."""
    shutil.rmtree(folder, ignore_errors=True)
    begin(folder)
    index, copies = Index.open(folder, mode="a"), [files_in(folder)]
    for commit in range(2, random.randrange(3, 12)):
        make_commit(index, commit)
        copies.append(files_in(folder))
    copied = random.randrange(len(copies) - 1)

    def put_copy(folder: Path) -> None:
        for path in folder.glob("*[!k]"):  # all but the lock, which the writer holds
            path.unlink()
        lay_out({name: data for name, data in copies[copied].items() if name != store.LOCK}, folder)

    with index, pytest.MonkeyPatch.context() as patch:
        if random.random() < 0.5:
            patch.setattr(store, "sync_folder", put_copy)  # after the files, before the manifest
        else:
            put_copy(folder)
        with pytest.raises(InvalidInput, match="holds another now"):
            make_commit(index, len(copies) + 1)
        patch.undo()
        assert held(index) == held_after(len(copies) + 1)
        index.rollback()
        assert index.refresh()
        assert held(index) == held_after(copied + 1)
        make_commit(index, copied + 2)
    with Index.open(folder) as opened:
        opened.verify()
        return "intact" if held(opened) == held_after(copied + 2) and not strays(folder) else "lost"


def share(folder: Path) -> Outcome:
    """Search, write, compact and commit in threads that share one index; what it then holds is on disk too."""
    begin(folder)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                hits = index.search(vectors_of(ids_of(1)), k=1, candidates=10**6)
                assert np.isin(hits.ids[:, 0], ids_of(1)).all()
                assert index.codes(ids_of(1)) == codes_of(ids_of(1))
        except BaseException as error:
            failures.append(error)

    with Index.open(folder, mode="a") as index:
        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for commit in range(2, COMMITS):
                make_commit(index, commit)
        finally:
            done.set()
            for reader in readers:
                reader.join()
    if failures:
        raise failures[0]
    with Index.open(folder) as opened:
        return "intact" if held(opened) == held_after(COMMITS - 1) else "wrong"
