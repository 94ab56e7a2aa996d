"""Search on snapshots: while the index changes, after it was saved or damaged, and from several threads."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Index
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import buffer
from tests import twins
from tests.search.searching import ERROR, ROWS, Q, X, assert_close, assert_same, fill, fitted, kinds, plain


@kinds
def test_the_next_search_sees_every_write(kind: str) -> None:
    index = plain(kind)
    changes: list[Callable[[], None]] = [
        lambda: index.add(Q[:5], ids=range(5000, 5005)),
        lambda: index.update(Q[5:7] + 1, ids=[5000, 3]),
        lambda: index.remove([3, 5001, 8]),
        lambda: index.add(Q, ids=range(5000, 5016), on_duplicate="replace"),
        lambda: index.compact(),
        lambda: index.remove(index.ids[5:]),
        lambda: index.remove(index.ids),
        lambda: index.add(X[:70], ids=range(70)),
    ]
    for change in changes:
        change()
        ids = index.ids
        expected = twins.distances(Q, index.reconstruct(ids), "l2")
        hits = index.search(Q, 20, candidates=10**6)
        twins.check_all(hits, expected, ids, ERROR)
        assert (hits.compared == len(ids)).all()
        twins.check_hits(index.search(Q, 20, candidates=25), expected, ids, ERROR)


@kinds
def test_merging_compaction_and_saving_change_no_hits(kind: str, tmp_path: Path) -> None:
    index, ids, vectors = some = fill(Index(fitted(kind)))
    questions: list[dict[str, Any]] = [
        {"candidates": ROWS},
        {"candidates": 100, "rerank": ROWS},
        {"candidates": 100, "filter": ids[::2]},
    ]
    before = [index.search(Q, **one) for one in questions]
    index.save(tmp_path)
    other = Index(fitted(kind))
    other.merge(index)
    index.compact()
    assert len(index._live.current.segments) == 1
    opened = Index.open(tmp_path)
    for each in (index, other, opened):
        for question, expected in zip(questions, before, strict=True):
            assert_close(each.search(Q, **question), expected)
        hits = each.search(Q, candidates=ROWS, vectors=vectors)
        twins.check_all(hits, some.distances(Q, "l2", "exact"), ids, ERROR)
    with pytest.raises(InvalidInput, match="opened to read"):
        opened.remove(1)
    with Index.open(tmp_path, mode="a") as changing:
        changing.add(Q, ids=range(ROWS, ROWS + len(Q)))
        hits = changing.search(Q, 1, vectors=np.concatenate([vectors, Q]))
        assert hits.ids.ravel().tolist() == list(range(ROWS, ROWS + len(Q)))


def test_merged_indexes_share_no_tombstones() -> None:
    index, other = plain("cell"), Index(fitted("cell"))
    other.merge(index)
    other.search(Q)
    index.remove(range(600))
    assert index.search(Q, candidates=ROWS).ids.min() >= 600
    assert index.search(Q, candidates=50).ids.min() >= 600
    assert other.search(Q, candidates=ROWS).ids.min() < 600
    assert (other.search(Q, candidates=ROWS).compared == ROWS).all()


@pytest.mark.parametrize("name", ["codes", "ids", "heads"])
def test_a_damaged_file_is_noticed_by_every_search(name: str, tmp_path: Path) -> None:
    plain("cell").save(tmp_path)
    path = next(tmp_path.glob(f"*.{name}.npy"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    index = Index.open(tmp_path)
    calls: list[Callable[[], Any]] = [
        lambda: index.search(Q[0]),
        lambda: index.search(Q, candidates=10),
        lambda: index.search(Q, filter=[1]),
        lambda: index.search(fitted("cell").encode(Q)),
        lambda: index.range_search(Q, 1.0),
        lambda: index.evaluate(Q),
        lambda: index.tune(Q),
    ]
    for call in calls * 2:
        with pytest.raises(DamagedFile, match=re.escape(str(path))):
            call()


def test_a_search_sees_one_snapshot_while_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 5 equal items come and go as a whole, so whoever finds one of them finds all."""
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", 16)
    index, done = plain("cell"), threading.Event()
    blocks = [np.arange(10_000 + 5 * b, 10_005 + 5 * b) for b in range(8)]
    errors: list[BaseException] = []

    def write() -> None:
        rng = np.random.default_rng(0)
        there: set[int] = set()
        for _ in range(120):
            b = int(rng.integers(8))
            (index.remove(blocks[b]) if b in there else index.add(np.repeat(Q[b : b + 1], 5, axis=0), ids=blocks[b]))
            there ^= {b}

    def read() -> None:
        turn = 0
        while not done.is_set() or turn < 8:
            b, candidates = turn % 8, (40, 10**6)[turn % 2]
            hits = index.search(Q[b], 12, candidates=candidates, rerank=ROWS, threads=2)
            found = hits.ids[hits.ids >= 10_000]
            assert len(np.unique(hits.ids)) == 12
            assert np.isin(blocks[b], found).sum() in (0, 5)
            turn += 1

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=run, args=(read,)) for _ in range(2)]
    for reader in readers:
        reader.start()
    run(write)
    done.set()
    for reader in readers:
        reader.join()
    assert not errors, errors[0]


def test_fitting_the_coder_again_does_not_change_the_index() -> None:
    coder = CellCoder(24, cells=4).fit(X)
    index = Index(coder)
    index.add(X)
    before = index.search(Q, candidates=ROWS)
    coder.fit(100 * X[::-1] + 7)
    assert_same(index.search(Q, candidates=ROWS), before)


def test_settings_changed_after_fit_do_not_change_the_index() -> None:
    """`width` and `metric` of the constructor are wishes for the next fit; `width_` and `metric_` are facts."""
    coder = CellCoder(24, cells=4).fit(X)
    expected = Index(coder)
    expected.add(X)
    coder.set_params(width=16, metric="cosine")
    index = Index(coder)
    index.add(X)
    assert index.width == 24
    assert_same(index.search(Q, candidates=ROWS), expected.search(Q, candidates=ROWS))
    assert_same(index.search(Q, candidates=50), expected.search(Q, candidates=50))
