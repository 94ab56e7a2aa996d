"""Filters: prepared once, for any number of searches, runs and indexes' changes; what they allow against plain sets."""

import gc
import weakref
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from nestcode import Codes, Index, LinearCoder, _core
from nestcode.errors import InvalidInput
from nestcode.index.snapshot import Snapshot
from nestcode.search import selection
from nestcode.search.filters import EVERYTHING, Filter, Kept
from tests.search.searching import Q, X, assert_same, by_rank, fitted, plain


@hypothesis.given(st.data())
def test_kept_items_are_a_set(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 200))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    gone = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))).astype(np.uint32)
    some = np.array(data.draw(st.lists(st.integers(0, size - 1))), dtype=np.uint32)
    for start in (Kept.of_mask(mask), Kept(size, at=np.flatnonzero(mask).astype(np.uint32)), Kept(size)):
        before = np.ones(size, dtype=bool) if start.count == size else mask
        assert start.positions.tolist() == np.flatnonzero(before).tolist()
        kept, expected = start.without(gone), before.copy()
        expected[gone] = False
        assert kept.count == expected.sum()
        assert kept.positions.tolist() == np.flatnonzero(expected).tolist()
        assert kept.contains(some).tolist() == expected[some].tolist()
        again = Kept(size, words=kept.bitmap) if len(kept.bitmap) else Kept(size)
        assert again.positions.tolist() == kept.positions.tolist()


def forms(index: Index, allowed: np.ndarray[Any, Any]) -> dict[str, Any]:
    mask = np.isin(np.arange(index._largest + 1), allowed)
    return {"ids": allowed, "few": allowed[:5], "mask": mask, "all": np.ones_like(mask), "none": []}


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@pytest.mark.parametrize("form", ["ids", "few", "mask", "all", "none"])
def test_a_prepared_filter_finds_what_one_given_directly_finds(form: str, rank: str) -> None:
    """Also after each change of the index; what is added later is allowed only if the filter names it."""
    index = Index(fitted("cell"))
    index.add(X[:1000], ids=range(1000))
    chosen = forms(index, np.arange(0, 1000, 3))[form]
    wanted, plainly = index.filter(chosen), np.asarray(chosen)
    given = np.flatnonzero(plainly) if plainly.dtype == bool else plainly.astype(np.int64)
    changes: list[Any] = [
        lambda: None,
        lambda: index.remove(range(0, 1000, 9)),
        lambda: index.add(Q, ids=range(1000, 1000 + len(Q))),
        lambda: index.add(Q[:3], ids=[0, 9, 1], on_duplicate="replace"),
        index.compact,
        lambda: index.truncate(index.width - 8),
    ]
    vectors = np.concatenate([X[:1000], Q])
    for change in changes:
        change()
        left = np.intersect1d(given, index.ids)
        for how in ({}, {"candidates": 30}, {"candidates": 10**6}):
            options: Any = {**how, **by_rank(rank, vectors)}
            hits = index.search(Q, 5, filter=wanted, **options)
            assert_same(hits, index.search(Q, 5, filter=given, **options))
            assert np.isin(hits.ids, [*left, -1]).all()
            assert ((hits.ids >= 0).sum(axis=1) == min(5, len(left))).all()
        assert index.matching(wanted).tolist() == left.tolist()
        inside = index.range_search(Q[0], 1e9, candidates=10**6, filter=wanted, **by_rank(rank, vectors))
        assert sorted(inside.ids.tolist()) == left.tolist()


def test_only_new_runs_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(fitted("cell"))
    index.add(np.concatenate([X, X]))
    wanted = index.filter(np.arange(len(index)) % 2 == 0)
    computed: list[int] = []
    rule: Any = wanted.rule
    of_run = rule.kept

    def counted(run: Any) -> Kept:
        computed.append(len(run.ids))
        kept: Kept = of_run(run)
        return kept

    monkeypatch.setattr(rule, "kept", counted)
    for _ in range(3):
        index.search(Q, filter=wanted)
        index.search(Q, filter=wanted, rank="hamming")
    whole = [len(one.ids) for one in index._live.current.runs]
    assert computed == whole
    index.remove([4])  # tombstones are left out of what was computed
    index.search(Q, filter=wanted)
    assert computed == whole
    index.add(Q)
    index.search(Q, filter=wanted)
    assert computed == [*whole, len(Q)]


def test_what_a_filter_keeps_is_freed_with_the_runs_and_with_the_filter() -> None:
    index = plain("cell")
    wanted = index.filter(range(100))
    index.search(Q, filter=wanted)
    index.compact()
    index.add(Q)
    index.remove([0])
    index.compact()
    index.remove([1])  # the last writer's snapshot is kept too
    index.search(Q, filter=wanted)
    index.search(Q)
    gc.collect()
    assert len(wanted._kept) == len(wanted._allowed) == 1
    searcher, known = index._searcher, weakref.ref(wanted)
    assert [len(one.by_filter) for one in searcher._latest.values()] == [2]
    del wanted
    gc.collect()
    assert known() is None
    assert [list(one.by_filter) for one in searcher._latest.values()] == [[EVERYTHING]]


def test_a_mask_has_an_entry_for_each_id() -> None:
    index = Index(width=4)
    codes = Codes.from_bits(np.arange(600)[:, None] >> np.arange(4) & 1)
    index.add(codes, ids=range(10_000, 10_600))
    for count in (600, 10_599, 10_601, 0):
        for use in (index.filter, index.matching, lambda mask: index.search(codes, filter=mask)):
            with pytest.raises(InvalidInput, match=f"a mask by id must have 10600 entries.*up to 10599.*got {count}: "):
                use(np.ones(count, dtype=bool))
    mask = np.zeros(10_600, dtype=bool)
    mask[10_007] = True
    assert index.matching(mask).tolist() == [10_007]
    index.remove(range(10_500, 10_600))
    assert index.matching(mask).tolist() == index.matching(mask[:10_500]).tolist() == [10_007]
    wanted = index.filter(~mask[:10_500])
    index.add(codes[:1])  # beyond the mask
    assert 10_600 not in index.matching(wanted)
    assert len(index.matching(wanted)) == 499


def test_recall_is_among_the_items_that_a_filter_allows() -> None:
    rng = np.random.default_rng(3)
    items = rng.standard_normal((9000, 8)).astype(np.float32)
    queries = rng.standard_normal((40, 8)).astype(np.float32)
    index = Index(LinearCoder(width=32).fit(items), vectors="float32")
    index.add(items)
    wanted = index.filter(np.arange(9000) % 2 == 0)
    found = index.evaluate(queries, candidates=300, filter=wanted)
    true = index.search(queries, filter=wanted, candidates=9000)
    assert 0 < found.recall <= 1
    hits = index.search(queries, filter=wanted, candidates=300)
    same = np.mean([np.isin(*row).mean() for row in zip(true.ids, hits.ids, strict=True)])
    assert found.recall == pytest.approx(same, abs=1e-6)
    assert found.share == pytest.approx(found.compared / 4500)
    tuned = index.tune(queries, filter=wanted, target_recall=0.5)
    assert tuned.recall > 0.5
    assert index.effort is not None
    assert index.effort.items == 4500


@hypothesis.given(st.data())
def test_ids_are_selected_by_a_bitmap_as_by_a_mask(data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), max_size=200)), dtype=bool)
    kind = data.draw(st.sampled_from([np.uint32, np.int64]))
    ids = np.array(data.draw(st.lists(st.integers(0, 300), max_size=200)), dtype=kind)
    words = np.zeros(len(ids) // 64 + 1, dtype=np.uint64)
    _core.select_ids(ids, np.packbits(mask, bitorder="little"), len(mask), words)
    expected = [bool(one < len(mask) and mask[one]) for one in ids.tolist()]
    assert Kept(len(ids), words=words).positions.tolist() == np.flatnonzero(expected).tolist()


def test_masks_and_ids_given_again_find_what_they_say_then() -> None:
    """Also where the caller changed the array in the meantime, and where the index changed."""
    index = Index(fitted("cell"))
    index.add(X[:1000], ids=range(1000))
    mask, ids = np.arange(1000) % 3 == 0, np.arange(0, 400, 5)
    allowed: list[Any] = [mask, [*mask[:999].tolist(), False], ids, ids[::-1], ids.tolist(), ids[:7], [], ~mask]
    for step in range(12):
        if step == 4:
            mask[:30] = ~mask[:30]
            ids += 1
        if step == 8:
            index.remove(range(0, 1000, 9))
            index.add(Q[:5], ids=range(0, 45, 9))
        for one in allowed:
            plainly = np.asarray(one)
            given = np.flatnonzero(plainly) if plainly.dtype == bool else plainly.astype(np.int64)
            assert_same(index.search(Q, 5, filter=one), index.search(Q, 5, filter=index.filter(given)))
    index.add(Q[:1], ids=[1000])
    with pytest.raises(InvalidInput, match="a mask by id must have 1001 entries"):
        index.search(Q, filter=mask)


def test_filters_keep_what_they_were_given() -> None:
    index = Index(fitted("cell"))
    index.add(X[:1000], ids=range(1000))
    for given in (np.array([3, 5]), np.arange(1000) == 3):
        wanted, before = index.filter(given), given.copy()
        hits = index.search(Q, 2, filter=given)
        given[:] = 0
        index.update(X[3:6], [3, 4, 5])  # a new run is looked at
        assert_same(index.search(Q, 2, filter=before), hits)
        assert_same(index.search(Q, 2, filter=wanted), hits)


@pytest.mark.parametrize("vectors", ["float32", "float16", "int8", None])
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
def test_scans_of_one_filter_agree_however_often_they_are_repeated(
    metric: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vectors == "int8":
        monkeypatch.setattr(selection, "GATHERED_BYTES", 150 * 4 * X.shape[1])  # room for one of the filters
    index = Index(fitted("residual", "cosine" if metric == "cosine" else "l2"), vectors=vectors)
    index.add(X[:700])
    index._live.write(Snapshot.flush)
    index.add(X[700:])
    index.remove(range(0, 1200, 7))
    every = range(0, 1200, 9)
    for wanted in (index.filter(every), index.filter(np.arange(1200) > 50)):
        for queries in (Q[0], Q[:2], Q):
            hits = [index.search(queries, 10, filter=wanted, metric=metric, candidates=1200) for _ in range(4)]
            for one in hits[1:]:
                assert_same(one, hits[0])
    wanted = index.filter(every)
    for change in range(3):
        index.update(Q[change], change * 9 + 9)
        for _ in range(3):
            hits = [index.search(Q, 10, filter=one, metric=metric, candidates=1200) for one in (wanted, list(every))]
            assert_same(*hits)


def test_filters_say_what_they_are() -> None:
    index = plain("cell")
    assert repr(index.filter([3, 4, 4])) == "Filter(3 ids)"
    wanted = index.filter(np.arange(index._largest + 1) < 100)
    assert "a mask of 100 among" in repr(wanted)
    assert index.filter(wanted) is wanted
    assert isinstance(wanted, Filter)
