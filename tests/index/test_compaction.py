"""Compaction and threads: readers see one snapshot, writers lose nothing, and failures reach the next writer."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import Codes, Index
from nestcode.errors import InvalidInput
from nestcode.index import buffer, compaction
from nestcode.index.segment import LayOut, LiveSegment, Segment
from nestcode.index.snapshot import Snapshot
from tests import twins

WIDTH, BLOCK, BLOCKS = 70, 5, 40
STAYING = 4  # blocks that are never removed once they are there
CODES = twins.random_codes(2 * BLOCKS, WIDTH)  # two for each block: before and after an update


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few items make many segments, and threads switch often."""
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", 8)
    monkeypatch.setattr(compaction, "SIZE_RATIO", 2)
    monkeypatch.setattr(compaction, "STALL", 4)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def together(*tasks: Callable[[], object]) -> None:
    """Run all of them at once, and raise what any of them raises."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(tasks))

    def run(task: Callable[[], object]) -> None:
        start.wait()
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def before(done: threading.Event, *tasks: Callable[[], object]) -> Callable[[], None]:
    """A task that runs others at once, and says when they are done."""

    def run() -> None:
        try:
            together(*tasks)
        finally:
            done.set()

    return run


def until(done: threading.Event, task: Callable[[int], object], least: int = 5) -> Callable[[], None]:
    """A task that is repeated until others are done."""

    def repeat() -> None:
        turn = 0
        while not done.is_set() or turn < least:
            task(turn)
            turn += 1

    return repeat


def ids_of(block: int) -> NDArray[np.int64]:
    return np.arange(block * BLOCK, (block + 1) * BLOCK)


def codes_of(block: int, after: bool = False) -> Codes:
    """All items of a block have one code, so whoever sees some of them must see all."""
    return CODES[[2 * block + after] * BLOCK]


def check_whole(ids: NDArray[np.int64]) -> None:
    """Ascending, no id twice, and no block in part."""
    assert (np.diff(ids) > 0).all()
    assert np.array_equal(ids, np.concatenate([np.arange(0), *map(ids_of, np.unique(ids // BLOCK))]))


def change_blocks(
    index: Index, there: dict[int, bool], blocks: Sequence[int], rounds: int, seed: int
) -> dict[int, bool]:
    """Add, replace, update and remove blocks, one call each; return what is left, and whether it was updated."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        block = int(rng.choice(blocks))
        choice, after = rng.integers(3), bool(rng.integers(2))
        if block not in there:
            index.add(codes_of(block, after), ids_of(block))
            there[block] = after
        elif choice == 0 and block >= STAYING:
            index.remove(ids_of(block))
            del there[block]
        elif choice == 1:
            index.update(codes_of(block, after), ids_of(block))
            there[block] = after
        else:
            index.add(codes_of(block, after), ids_of(block), on_duplicate="replace")
            there[block] = after
    return there


def check_holds(index: Index, there: dict[int, bool]) -> None:
    assert index.ids.tolist() == [one for block in sorted(there) for one in ids_of(block).tolist()]
    for block, after in there.items():
        assert index.codes(ids_of(block)) == codes_of(block, after)


def look(index: Index, turn: int) -> None:
    """Every query sees one snapshot."""
    block, staying = turn % BLOCKS, turn % STAYING
    check_whole(index.ids)
    assert index.codes(ids_of(staying)) in (codes_of(staying), codes_of(staying, after=True))  # also while it changes
    with suppress(InvalidInput):  # it may not be there
        codes = index.codes(ids_of(block))
        assert codes in (codes_of(block), codes_of(block, after=True))
    family = index.nested(CODES[2 * block])
    assert (np.diff(family.count) <= 0).all()
    for hood in (*family, index.neighborhood(CODES[2 * block], size=3)):
        assert hood.count == len(hood.ids)
        check_whole(np.sort(hood.ids))
    hoods = index.neighborhood(CODES[turn % 7 :: 9], size=10**6, threads=2)
    assert len(set(hoods.count.tolist())) == 1  # the root, for all queries of one call
    assert (hoods.length == 0).all()


def test_a_reader_sees_one_state_whatever_writers_do() -> None:
    index, done = Index(width=WIDTH), threading.Event()
    there = dict.fromkeys(range(STAYING), False)
    for block in there:
        index.add(codes_of(block), ids_of(block))

    def write(k: int) -> None:
        own = dict.fromkeys(range(k, STAYING, 2), False)
        there.update(change_blocks(index, own, range(k, BLOCKS, 2), 300, k))

    reader = until(done, lambda turn: look(index, turn))
    together(before(done, partial(write, 0), partial(write, 1)), reader, reader)
    check_holds(index, there)


def test_compacting_and_saving_lose_nothing_while_others_write(tmp_path: Path) -> None:
    index, done = Index(width=WIDTH), threading.Event()
    there: dict[int, bool] = {}

    def write(k: int) -> None:
        there.update(change_blocks(index, {}, range(k, BLOCKS, 3), 200, k))

    def save(turn: int) -> None:
        index.save(tmp_path / str(turn % 2))
        saved = Index.open(tmp_path / str(turn % 2))
        saved.verify()
        check_whole(saved.ids)

    writers = before(done, *(partial(write, k) for k in range(3)))
    together(writers, until(done, lambda _: index.compact()), until(done, save))
    check_holds(index, there)
    index.save(tmp_path / "last")
    check_holds(Index.open(tmp_path / "last"), there)


def test_automatic_ids_are_unique_across_threads() -> None:
    index, codes = Index(width=WIDTH), twins.random_codes(600, WIDTH, seed=1)

    def add(part: Codes) -> None:
        for first in range(0, len(part), 3):
            index.add(part[first : first + 3])

    together(*(partial(add, codes[k::4]) for k in range(4)))
    assert np.array_equal(index.ids, np.arange(600))
    kept = index.codes(index.ids)
    assert kept[kept.sort_order()] == codes[codes.sort_order()]


def test_commits_of_several_threads_follow_each_other(tmp_path: Path) -> None:
    Index(width=WIDTH).save(tmp_path)
    with Index.open(tmp_path, mode="a") as index:

        def write(first: int) -> None:
            for block in range(first, 24, 4):
                index.add(codes_of(block), ids_of(block))
                index.commit()
                saved = Index.open(tmp_path)
                saved.verify()
                check_whole(saved.ids)
                assert block * BLOCK in saved

        together(*(partial(write, k) for k in range(4)))
    check_holds(Index.open(tmp_path), dict.fromkeys(range(24), False))


def test_indexes_may_be_merged_into_each_other_at_once() -> None:
    a, b = Index(width=WIDTH), Index(width=WIDTH)
    for block in range(8):
        (a if block % 2 else b).add(codes_of(block), ids_of(block))

    def merge(one: Index, other: Index) -> None:
        for _ in range(20):
            one.merge(other, on_duplicate="replace")
            check_whole(one.ids)

    together(partial(merge, a, b), partial(merge, b, a))
    for index in (a, b):
        index.compact()
        check_holds(index, dict.fromkeys(range(8), False))


# During compaction


def during_compaction(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object]) -> threading.Event:
    """Run `happen` once, after segments were read and before the merged one takes their place."""
    plain, happened = Segment.merge, threading.Event()

    def merge(segments: Sequence[LiveSegment], width: int, lay_out: LayOut) -> Segment:
        merged = plain(segments, width, lay_out)
        if not happened.is_set():
            happened.set()
            happen()
        return merged

    monkeypatch.setattr(Segment, "merge", merge)
    return happened


def blocks(count: int) -> tuple[Index, dict[int, bool]]:
    """An index of `count` segments that are not merged yet, and what is in it."""
    index = Index(width=WIDTH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SIZE_RATIO", 0)
        for block in range(count):
            index.add(codes_of(block), ids_of(block))
            index._live.write(Snapshot.flush)
    assert len(index._live.current.segments) == count
    return index, dict.fromkeys(range(count), False)


def remove_one(index: Index, there: dict[int, bool]) -> None:
    index.remove(ids_of(1))
    del there[1]


def remove_all(index: Index, there: dict[int, bool]) -> None:
    index.remove(index.ids)
    there.clear()


def update_one(index: Index, there: dict[int, bool]) -> None:
    index.update(codes_of(1, after=True), ids_of(1))
    there[1] = True


def remove_and_add_again(index: Index, there: dict[int, bool]) -> None:
    remove_all(index, there)
    for block in (2, 0, 3):
        index.add(codes_of(block, after=True), ids_of(block))
        there[block] = True


def add_one(index: Index, there: dict[int, bool]) -> None:
    index.add(codes_of(9), ids_of(9))
    there[9] = False


def merge_itself(index: Index, there: dict[int, bool]) -> None:
    remove_one(index, there)
    index.merge(index, on_duplicate="replace")


def merge_another(index: Index, there: dict[int, bool]) -> None:
    other = blocks(6)[0]
    other.remove(ids_of(2))
    index.merge(other, on_duplicate="replace")
    there.update(dict.fromkeys((0, 1, 3, 4, 5), False))


CHANGES = [remove_one, remove_all, update_one, remove_and_add_again, add_one, merge_itself, merge_another]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("way", ["compact", "background"])
def test_writes_during_compaction_are_kept(way: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index, there = blocks(4)
    happened = during_compaction(monkeypatch, lambda: change(index, there))
    if way == "compact":
        index.compact()
    else:
        del there[3]
        index.remove(ids_of(3))
        index._live.wait()
    assert happened.is_set()
    check_holds(index, there)
    index._live.wait()
    index.compact()
    check_holds(index, there)
    assert len(index._live.current.segments) == bool(there)


def test_compact_does_not_wait_for_the_background_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    index, there = blocks(6)  # more than stall writers
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", BLOCK)
    add_one(index, there)
    compacting = threading.Thread(target=index.compact, daemon=True)
    compacting.start()
    compacting.join(timeout=600)
    assert not compacting.is_alive()
    check_holds(index, there)


def test_a_failure_of_compaction_is_raised_by_the_next_write_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise MemoryError("no room to merge")

    index, there = blocks(4)
    happened = during_compaction(monkeypatch, fail)
    remove_one(index, there)
    index._live.wait()
    assert happened.is_set()
    check_holds(index, there)
    with pytest.raises(MemoryError, match="no room to merge"):
        index.add(codes_of(9), ids_of(9))
    check_holds(index, there)
    add_one(index, there)  # raised once, then writes go on
    index.update(codes_of(2, after=True), ids_of(2))
    there[2] = True
    check_holds(index, there)
    index.compact()  # which also resumes the background
    check_holds(index, there)
    assert len(index._live.current.segments) == 1


def test_a_failure_of_compact_is_raised_there_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MemoryError("no room to merge")

    index, there = blocks(4)
    during_compaction(monkeypatch, fail)
    with pytest.raises(MemoryError, match="no room to merge"):
        index.compact()
    check_holds(index, there)
    index.compact()
    check_holds(index, there)


def test_writes_succeed_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    index, there = blocks(4)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        remove_one(index, there)
        merge_another(index, there)
    check_holds(index, there)
    index._live.wait()
    index.compact()
    check_holds(index, there)


# The policy


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 0.9)), max_size=8))
def test_the_policy_holds_after_merging_what_it_picks(sizes: list[tuple[int, float]]) -> None:
    """Each segment is then larger than all smaller ones together, by the ratio, and few of its items are deleted."""
    segments = []
    for count, share in sizes:
        codes = twins.random_codes(count, 8)
        tombstones = np.arange(int(share * count), dtype=np.uint32)
        segments.append(LiveSegment(Segment.build(codes, np.arange(count)), tombstones))
    rounds = 0
    while picked := compaction.pick_segments(segments):
        merged = LiveSegment(Segment.merge(picked, 8))
        assert len(merged) == sum(map(len, picked))
        segments = [one for one in segments if one not in picked] + [merged]
        rounds += 1
    assert rounds <= 2 * len(sizes)
    by_size = sorted(map(len, segments))
    assert all(size >= compaction.SIZE_RATIO * sum(by_size[:i]) for i, size in enumerate(by_size))
    assert all(len(one.tombstones) <= len(one.segment) / 4 for one in segments)
