"""A process that writes an index until it is killed. The number of a commit determines its contents.

python -m tests.index.writer FOLDER          commit and report each commit, forever
python -m tests.index.writer FOLDER KILLS    kill such a process again and again, and check what it left
python -m tests.index.writer FOLDER graph    kill a process before each step of a commit of a segment with a graph
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import Codes, Index, LinearCoder
from nestcode.index import compaction
from tests.index.disk import Recorder

WIDTH = 96
EACH = 8  # items of one commit
KEPT = 20  # commits whose items are kept
Held = dict[int, bytes]  # codes and vectors by id
CODER = LinearCoder(width=WIDTH).fit(np.random.default_rng(0).standard_normal((300, 12)))


def codes_of(seeds: ArrayLike) -> Codes:
    """A distinct code for each number."""
    numbers = np.add.outer(np.asarray(seeds, dtype=np.uint64) * 12, np.arange(1, 13, dtype=np.uint64))
    for _ in range(2):  # as splitmix64 does
        numbers *= np.uint64(0x9E3779B97F4A7C15)
        numbers ^= numbers >> np.uint64(31)
    return Codes(numbers.astype(np.uint8), WIDTH)


def vectors_of(seeds: ArrayLike) -> NDArray[np.float32]:
    """A distinct vector for each number; what int8 stores of it is decided by its code."""
    return codes_of(seeds).packed.astype(np.float32) - 100


def empty(*, graph: bool = False) -> Index:
    """An index of codes with vectors."""
    return Index(CODER, vectors="int8", graph=graph)


def put(index: Index, seeds: ArrayLike, ids: ArrayLike, **options: Any) -> None:
    """Add the items of some numbers under these ids."""
    index.add(codes_of(seeds), ids, vectors=vectors_of(seeds), **options)


def ids_of(commit: int) -> NDArray[np.int64]:
    return np.arange(commit * EACH, (commit + 1) * EACH)


def held(index: Index) -> Held:
    """All that an index holds."""
    ids = index.ids
    found = index.codes(ids).packed
    if index.vector_type is not None:
        found = np.concatenate([found, index.vectors(ids).view(np.uint8)], axis=1)
    return dict(zip(ids.tolist(), (row.tobytes() for row in found), strict=True))


def held_after(commit: int) -> Held:
    """What commit number `commit` holds: the items of the latest ones, and its own number as item 0."""
    ids = np.concatenate([ids_of(one) for one in range(max(1, commit - KEPT + 1), commit + 1)])
    index = empty()
    put(index, [2**40 + commit, *ids], [0, *ids])
    return held(index)


def last_commit(index: Index) -> int:
    return int(index.ids[-1]) // EACH


def make_commit(index: Index, commit: int, *, compact: bool = False) -> None:
    put(index, ids_of(commit), ids_of(commit))
    put(index, [2**40 + commit], [0], on_duplicate="replace")
    if commit > KEPT:
        index.remove(ids_of(commit - KEPT))
    if compact or commit % 7 == 0:
        index.compact()
    index.commit()


def begin(folder: Path, *, graph: bool = False) -> None:
    """Save commit number 1."""
    index = empty(graph=graph)
    put(index, [2**40 + 1, *ids_of(1)], [0, *ids_of(1)])
    index.save(folder, memory="codes")


def write_forever(folder: Path, report: int) -> None:
    """Commit after commit, each reported when it is complete."""
    with Index.open(folder, mode="a") as index:
        commit = last_commit(index)
        while True:
            commit += 1
            make_commit(index, commit)
            os.write(report, commit.to_bytes(8, "little"))


def kill_once(folder: Path, random: Random, pace: float) -> tuple[int, float]:
    """Start a writer, let it commit up to twice and kill it; its last commit reported, or 0, and how long one takes."""
    listen, report = os.pipe()
    child = os.fork()  # no threads are running: nothing that starts one was called
    if child == 0:
        try:
            write_forever(folder, report)
        finally:
            os._exit(1)
    os.close(report)
    reported = b""
    for _ in range(random.randrange(3)):
        start = time.monotonic()
        reported = os.read(listen, 8)
        pace = time.monotonic() - start
    time.sleep(random.uniform(0, pace))
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "the writer failed"
    reported += os.read(listen, 1 << 16)
    os.close(listen)
    return int.from_bytes(reported[-8:], "little"), pace


def kill_often(folder: Path, kills: int) -> dict[str, int]:
    """Kill writers at random moments; after each the index holds the last commit reported, or the one after it."""
    random = Random(0)
    last, unreported, midway, pace = 1, 0, 0, 0.03
    for _ in range(kills):
        reported, pace = kill_once(folder, random, pace)
        reported = reported or last
        with Index.open(folder) as index:
            found = last_commit(index)
            assert reported <= found <= reported + 1, (reported, found)
            assert held(index) == held_after(found), found
            index.verify()
        before = set(folder.iterdir())
        Index.open(folder, mode="a").close()
        midway += before != set(folder.iterdir())  # leftover files were swept
        unreported += found > reported
        last = found
    return {"kills": kills, "commits": last, "unreported": unreported, "midway": midway}


class Killer(Recorder):
    """Kills its own process before step `fail_at`."""

    def note(self, *step: Any, **more: Any) -> None:
        if len(self.steps) == self._fail_at:
            os.kill(os.getpid(), signal.SIGKILL)
        super().note(*step, **more)


def kill_at_each_step(folder: Path) -> dict[str, int]:
    """Kill writers that seal a segment with blocks and a graph: they leave this commit or the one before."""
    compaction.MIN_GRAPH = 3 * EACH
    index, outcomes, more = empty(graph=True), {"before": 0, "after": 0}, np.arange(100, 130)
    put(index, ids_of(1), ids_of(1))
    index.save(folder)
    before = held(index)
    put(index, more, more)
    after = held(index)
    while True:
        work = folder.with_name("work")
        shutil.copytree(folder, work)
        child = os.fork()
        if child == 0:
            try:
                with Killer(work, sum(outcomes.values())), Index.open(work, mode="a") as writer:
                    put(writer, more, more)
                    writer.compact()
                    writer.commit()
                os._exit(0)
            finally:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL), "the writer failed"
        with Index.open(work) as index:
            index.verify()
            found, (segment,) = held(index), index._live.current.segments
            assert found in (before, after)
            assert segment.layout.blocks.size > 0
            assert (segment.graph is not None) == (found == after)
            if sum(outcomes.values()) % 8 == 0:  # it takes longer than the rest
                assert index.search(vectors_of([9]), 1).ids.tolist() == [[9]]
        shutil.rmtree(work)
        if ended == 0:
            return outcomes
        outcomes["after" if found == after else "before"] += 1


if __name__ == "__main__":
    if sys.argv[2:] == ["graph"]:
        print(json.dumps(kill_at_each_step(Path(sys.argv[1]))))
    elif len(sys.argv) > 2:
        print(json.dumps(kill_often(Path(sys.argv[1]), int(sys.argv[2]))))
    else:
        write_forever(Path(sys.argv[1]), sys.stdout.fileno())
