"""Search on snapshots: while the index changes, after it was saved or damaged, and from several threads."""

import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Codes, Index
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import buffer
from nestcode.index.segment import LiveSegment, Segment
from nestcode.search.fastscan import FastScanScorer
from nestcode.search.preparation import scorer_for
from nestcode.search.scorer import NO_LAYOUT
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


@pytest.mark.parametrize("name", ["codes", "ids", "heads", "tables", "blocks", "biases", "norms"])
def test_a_search_notices_damage_to_what_it_reads(name: str, tmp_path: Path) -> None:
    built = Index(fitted("cell", "cosine"))
    built.add(X)
    built.save(tmp_path / "intact")
    calls: list[Callable[[Index], Any]] = [
        lambda index: index.search(Q[0], candidates=200),
        lambda index: index.search(Q, candidates=10),
        lambda index: index.search(Q, candidates=ROWS - 1),
        lambda index: index.search(Q, candidates=ROWS),
        lambda index: index.search(Q, filter=[1]),
        lambda index: index.search(fitted("cell").encode(Q), candidates=ROWS - 1),
    ]
    expected = [call(Index.open(tmp_path / "intact")) for call in calls]
    unread = {"heads", "tables", *(() if name in ("codes", "ids") else ("blocks", "biases", "norms"))}
    for place in (0.1, 0.5, 0.9):
        shutil.copytree(tmp_path / "intact", tmp_path / f"{place}")
        path = next((tmp_path / f"{place}").glob(f"*.{name}.npy"))
        data = bytearray(path.read_bytes())
        data[128 + int(place * (len(data) - 128))] ^= 0x10
        path.write_bytes(data)
        noticed = 0
        index = Index.open(tmp_path / f"{place}")
        for call, hits in zip(calls * 2, expected * 2, strict=True):
            try:
                assert_same(call(index), hits)
            except DamagedFile as error:
                assert str(path) in str(error)  # noqa: PT017
                noticed += 1
        assert noticed > 0 or name in unread
        with pytest.raises(DamagedFile, match=re.escape(str(path))):
            index.verify()


@pytest.mark.parametrize("own", ["l2", "cosine"])
@kinds
def test_stored_layouts_are_those_that_a_search_would_prepare(kind: str, own: str, tmp_path: Path) -> None:
    """Bit for bit, and so are the hits; files without layouts are prepared by the first search."""
    filled = fill(Index(fitted(kind, own)))
    filled.index.save(tmp_path)
    opened, prepared = Index.open(tmp_path), Index.open(tmp_path)
    prepared._live.current = replace(
        prepared._live.current,
        segments=tuple(
            LiveSegment(replace(one.segment, layout=NO_LAYOUT), one.tombstones)
            for one in prepared._live.current.segments
        ),
    )
    options: list[dict[str, Any]] = [{}, {"metric": "cosine"}, {"rank": "hamming"}, {"filter": filled.ids[::3]}]
    for some in options:
        assert_same(opened.search(Q, 5, candidates=300, **some), prepared.search(Q, 5, candidates=300, **some))
    for one, twin in zip(opened._live.current.segments, prepared._live.current.segments, strict=True):
        layout = prepared._searcher._caches[False]._parts[twin.segment]["layout"][1]
        assert one.layout.format == layout.format
        for name, array in layout.arrays().items():
            assert np.array_equal(one.layout.arrays()[name], array)
    parts, twins_parts = opened.nbytes_by_part(), prepared.nbytes_by_part()
    assert sum(parts.values()) == sum(twins_parts.values())
    assert parts["prepared"] < twins_parts["prepared"]


@pytest.mark.parametrize("own", ["l2", "cosine"])
@pytest.mark.parametrize("kind", ["linear", "cell"])
def test_blocks_hold_the_groups_of_all_items_with_their_corrections(kind: str, own: str) -> None:
    """The twin decodes groups in NumPy."""
    index = Index(fitted(kind, own))
    index.add(X)
    scorer = scorer_for(index.coder, index.width)
    assert isinstance(scorer, FastScanScorer)
    (segment,) = (one.segment for one in index._live.current.segments)
    layout, scan, codes = segment.layout, scorer._scan, segment.codes
    centroids = codes.leading_bits(scorer._layout.centroid_bits)
    ends = np.cumsum(-(-np.bincount(centroids) // 32) * 32)
    slots = np.concatenate(
        [np.arange(e - -(-n // 32) * 32, e)[:n] for n, e in zip(np.bincount(centroids), ends, strict=True)]
    )
    grouped = scan.group(codes)
    assert np.array_equal(layout.blocks.transpose(0, 2, 1).reshape(-1, scan.columns)[slots], grouped)
    residuals, offsets = np.zeros_like(scan._offsets[centroids]), scan._offsets[centroids]
    for g, group in enumerate(scan._groups.directions):
        for j, d in enumerate(group):
            residuals[:, d] = scan._levels[g, j][grouped[:, g // 2] >> 4 * (g % 2) & 15]
    np.testing.assert_allclose(scan.squared_norms(grouped), np.sum(residuals.astype(np.float64) ** 2, axis=1))
    biases = 2 * np.sum(residuals * offsets, axis=1) / scan.bias_unit
    np.testing.assert_allclose(layout.biases[slots], biases, atol=0.6)
    if own == "cosine":
        x = residuals + scorer._layout.centroids[centroids]
        squares = np.sum(x**2, axis=1) + 2 * x @ scorer.mean + scorer.mean_square
        np.testing.assert_allclose(layout.norms[slots], np.sqrt(squares), rtol=1e-4)


@pytest.mark.parametrize("count", [1, 5, 700])
def test_lists_begin_where_their_prefixes_do(count: int) -> None:
    codes = Codes.from_bits(np.random.default_rng(count).random((count, 70)) < np.linspace(0.1, 0.9, 70))
    one = LiveSegment(Segment.build(codes, np.arange(count)))
    for bits in range(14):
        starts = np.searchsorted(one.codes.leading_bits(bits), np.arange((1 << bits) + 1))
        assert np.array_equal(one.list_starts(bits), starts)


def test_the_first_search_reads_only_what_it_scans_and_reranks(tmp_path: Path) -> None:
    """So it takes no time linear in the number of items: the rest may be damaged, and is not noticed."""
    built = Index(fitted("cell"), vectors="float16")
    built.add(X)
    built.compact()
    built.save(tmp_path)
    expected = Index.open(tmp_path).search(Q[:1], candidates=50)
    for name in ("codes", "heads", "places"):
        path = next(tmp_path.glob(f"*.{name}.npy"))
        path.write_bytes(path.read_bytes()[:128].ljust(path.stat().st_size, b"?"))
    index = Index.open(tmp_path)
    assert_same(index.search(Q[:1], candidates=50), expected)
    with pytest.raises(DamagedFile, match="codes"):
        index.search(Q[:1], candidates=50, rank="asymmetric")


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
