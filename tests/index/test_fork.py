"""A forked child has the index as it was at the fork, whatever other threads of its parent did then."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Codes, Index
from nestcode.errors import InvalidInput
from nestcode.fork import ForkSafeLock
from nestcode.index import segment

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def codes(n: int, seed: int = 0) -> Codes:
    return Codes.from_bits(np.random.default_rng(seed).random((n, 64)) < 0.5)


def in_child(check: Callable[[], object]) -> int:
    """Return the exit status of a child: 0 where `check` returns, a negative signal where it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            check()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_lock_that_another_thread_held_is_free_in_the_child() -> None:
    lock, held, done = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def enter() -> None:
        with lock, lock:
            pass

    assert in_child(enter) == 0
    done.set()
    thread.join()


def test_what_a_segment_computes_keeps_no_other_index_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small, begun, done = Index(width=64), Index(width=64), threading.Event(), threading.Event()
    large.add(codes(3000))
    small.add(codes(2000))
    places = segment._places

    def slow(ids: Any) -> Any:
        if len(ids) == 3000 and not begun.is_set():
            begun.set()
            done.wait(20)
        return places(ids)

    monkeypatch.setattr(segment, "_places", slow)
    thread = threading.Thread(target=lambda: 5 in large)
    thread.start()
    begun.wait()
    assert in_child(lambda: (5 in small, 5 in large)) == 0
    assert 5 in small
    assert 5 in large
    held = large._live.current.segments[0].segment.places
    assert thread.is_alive()
    done.set()
    thread.join()
    assert large._live.current.segments[0].segment.places is held


def test_a_child_changes_a_copy_of_an_index_in_memory_while_its_parent_adds(tmp_path: Path) -> None:
    index, done = Index(width=64), threading.Event()
    index.add(codes(2000))

    def write() -> None:
        while not done.is_set():
            index.add(codes(600, seed=1), ids=range(2000, 2600), on_duplicate="replace")

    thread = threading.Thread(target=write)
    thread.start()

    def change() -> None:
        index.add(codes(3, seed=2), ids=[9000, 9001, 9002])
        index.remove(range(1000))
        index.wait()
        index.compact()
        index.save(tmp_path / "child", overwrite=True)  # that of the child before
        opened = Index.open(tmp_path / "child")
        np.testing.assert_array_equal(opened.ids, index.ids)
        assert set(range(1000, 2000)) <= set(opened.ids.tolist())
        assert opened.codes([9000, 9001, 9002]) == codes(3, seed=2)

    statuses = [in_child(change) for _ in range(4)]
    done.set()
    thread.join()
    assert statuses == [0] * 4
    assert len(index) == 2600
    assert index.codes(range(2000)) == codes(2000)


def test_a_child_refreshes_a_reader_while_another_thread_does(tmp_path: Path) -> None:
    Index(width=64).save(tmp_path)
    reader, writer, done = Index.open(tmp_path), Index.open(tmp_path, mode="a"), threading.Event()

    def refresh() -> None:
        while not done.is_set():
            reader.refresh()

    thread = threading.Thread(target=refresh)
    thread.start()

    def see(count: int) -> None:
        reader.refresh()
        assert len(reader) == count

    statuses = []
    for count in (5, 10, 15):
        writer.add(codes(5))
        writer.commit()
        statuses.append(in_child(lambda count=count: see(count)))  # type: ignore[misc]
    done.set()
    thread.join()
    writer.close()
    assert statuses == [0] * 3


@pytest.mark.parametrize(
    "write", [Index.commit, Index.compact, Index.refresh, Index.rollback, lambda one: one.remove(3)]
)
def test_a_child_of_a_writer_is_told_who_writes(write: Callable[[Index], object], tmp_path: Path) -> None:
    index = Index(width=64)
    index.add(codes(9))
    index.save(tmp_path)

    def refused() -> None:
        with pytest.raises(InvalidInput, match="the process that this process was forked from: search its items"):
            write(writer)
        assert writer.neighborhood(codes(9)[5], size=1).ids.tolist() == [5]
        writer.close()

    with Index.open(tmp_path, mode="a") as writer:
        assert in_child(refused) == 0
        writer.add(codes(1, seed=1))
        writer.commit()
    assert len(Index.open(tmp_path)) == 10
