"""The index: construction, neighborhoods, ids, writes, and errors that change nothing."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import InvalidInput
from nestcode.index import Neighborhood, Neighborhoods, PrefixTree, buffer
from tests import twins

X = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
CODER = LinearCoder(width=30).fit(X)
OTHER = LinearCoder(width=30).fit(X[:40])
CODES = twins.random_codes(40, 70)
LAST = 2**63 - 1  # the largest id
REQUESTS: list[dict[str, Any]] = [{"size": 1}, {"size": 2}, {"size": 2**70}, {"fraction": 0.1}, {"fraction": 1}]


def mixed() -> Index:
    """Items in a segment and in the buffer, some deleted from each: ids 0 to 19 without 3 and 13."""
    index = Index(CODER, width=21)
    index.add(X[:10])
    index.compact()
    index.add(X[10:20])
    index.remove([3, 13])
    return index


def contents(index: Index) -> tuple[Any, ...]:
    """All that an index holds."""
    return len(index), index.ids.tolist(), index.codes(index.ids), index._largest


def codes_index(items: int = 0, width: int = 70) -> Index:
    index = Index(width=width)
    index.add(CODES[:items].prefix(width))
    return index


# Construction


def test_it_keeps_the_leading_bits_and_takes_vectors_and_codes_of_both_widths() -> None:
    index, full = Index(CODER, width=21), CODER.encode(X)
    index.add(X[:20])
    index.add(full[20:40])
    index.add(full[40:].prefix(21))
    assert (index.width, len(index)) == (21, 60)
    assert index.codes(index.ids) == full.prefix(21)
    for query in (X[7], X[7].tolist(), full[7], full[7].prefix(21)):
        hood = index.neighborhood(query, size=2)
        assert isinstance(hood, Neighborhood)
        assert 7 in hood.ids
        assert index.nested(query).count.tolist() == index.nested(full[7].prefix(21)).count.tolist()
    assert np.array_equal(index.reconstruct([4, 2]), CODER.decode(full[[4, 2]].prefix(21)))
    assert np.array_equal(index.reconstruct(4), CODER.decode(full[4].prefix(21))[0])
    assert index.reconstruct([]).shape == (0, 5)


def test_the_width_is_the_coders_by_default() -> None:
    assert Index(CODER).width == 30
    assert Index(CODER, width=np.int64(30)).width == 30  # type: ignore[arg-type]
    assert Index(width=3).coder is None


@pytest.mark.parametrize("name", ["coder", "graph", "width"])
def test_what_it_was_made_with_is_fixed(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"keeps the {name} .* is only read: (make|truncate)"):
        setattr(Index(CODER), name, True)


class Tensor:
    """What NumPy does not read, as a tensor with gradients or on another device."""

    shape, ndim = (2, 5), 2

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


@pytest.mark.parametrize(
    "read",
    [
        lambda x: CODER.encode(x),
        lambda x: LinearCoder(8).fit(x),
        lambda x: Index(CODER).add(x),
        lambda x: Index(CODER, vectors="float16").add(CODER.encode(X[:2]), vectors=x),
        lambda x: Index(CODER).add(X[:2], ids=x),
        lambda x: mixed().remove(x),
        lambda x: mixed().search(x),
        lambda x: mixed().search(X[0], vectors=x),
        lambda x: mixed().search(X[0], filter=x),
        lambda x: mixed().neighborhood(x, size=1),
        lambda x: Codes(x, 8),
        lambda x: Codes.from_bits(x),
    ],
)
def test_what_numpy_does_not_read_is_refused_with_the_remedy(read: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidInput, match=r"must be an array of numbers, got a Tensor .*: give a tensor as X.detach"):
        read(Tensor())
    with pytest.raises(InvalidInput, match="must have no masked values: fill them"):
        read(np.ma.masked_less(np.eye(2, 5), 1))


def test_repr() -> None:
    assert repr(codes_index(2)) == "Index(2 items of 70 bits)"
    assert repr(mixed()) == "Index(18 items of 21 bits, LinearCoder(width=30, metric='l2', seed=0))"


# Neighborhoods


def test_one_query_gives_a_neighborhood_and_a_batch_gives_arrays() -> None:
    index = mixed()
    for one in (X[0], CODER.encode(X)[0]):
        assert isinstance(index.neighborhood(one, size=2), Neighborhood)
    for batch in (rows for n in (0, 1, 7) for rows in (X[:n], CODER.encode(X[:n]))):
        for request in REQUESTS:
            hoods = index.neighborhood(batch, **request)
            assert isinstance(hoods, Neighborhoods)
            assert hoods.length.shape == hoods.count.shape == (len(batch),)
            for row, hood in zip(batch, hoods, strict=True):
                single = index.neighborhood(row, **request)
                assert (hood.length, hood.count) == (single.length, single.count)
                assert hood.ids.tolist() == single.ids.tolist()
            assert hoods.ids.tolist() == [item for hood in hoods for item in hood.ids]


@pytest.mark.parametrize("threads", [1, 2, None])
def test_threads_do_not_change_neighborhoods(threads: int | None) -> None:
    index = mixed()
    for queries in (X[0], X, CODER.encode(X[:1]), CODER.encode(X)):
        answer, expected = (index.neighborhood(queries, size=2, threads=many) for many in (threads, 1))
        assert np.array_equal(answer.length, expected.length)
        assert np.array_equal(answer.count, expected.count)
        assert np.array_equal(answer.ids, expected.ids)


@pytest.mark.parametrize("make", [codes_index, lambda: emptied(codes_index(9)), lambda: emptied(codes_index(9), True)])
def test_an_empty_index_answers_with_the_root(make: Callable[[], Index]) -> None:
    index = make()
    for request in REQUESTS:
        hood = index.neighborhood(CODES[0], **request)
        assert (hood.length, hood.count, hood.ids.tolist()) == (0, 0, [])
        assert hood.ids.dtype == np.int64
        hoods = index.neighborhood(CODES, **request)
        assert (hoods.count.tolist(), hoods.offsets.tolist(), hoods.ids.tolist()) == ([0] * 40, [0] * 41, [])
    assert index.nested(CODES[0]).count.tolist() == [0]
    assert (len(index), index.ids.tolist(), 0 in index) == (0, [], False)
    assert index.codes([]) == CODES[:0]
    index.compact()
    assert not index._live.current.segments


def emptied(index: Index, from_segments: bool = False) -> Index:
    if from_segments:
        index.compact()
    index.remove(index.ids)
    return index


def test_a_fraction_of_the_items_is_counted_exactly() -> None:
    """7 of 25 items are 0.28 of them, although 0.28 * 25 is rounded to more than 7."""
    for items in range(1, 60):
        for members in range(1, items + 1):
            bits = np.zeros((items, 7), dtype=np.bool_)
            bits[members:, 0] = True
            index = Index(width=7)
            index.add(Codes.from_bits(bits))
            assert index.neighborhood(Codes.from_bits(bits)[0], fraction=members / items).count == members


def test_a_size_beyond_the_number_of_items_gives_the_root() -> None:
    index = codes_index(40)
    for size in (41, 2**32 + 1, 2**63, 2**64 + 1, np.int64(41), np.uint8(200)):
        for query in (CODES[0], CODES[:2]):
            hoods = index.neighborhood(query, size=size)  # type: ignore[arg-type]
            assert np.all(hoods.length == 0)
            assert np.all(hoods.count == 40)


def test_ids_beyond_32_bits_mix_with_others(tmp_path: Path) -> None:
    """Segments store ids in 32 bits where they fit."""
    index, ids = Index(width=70), np.arange(40)
    ids[20:] += 2**32 - 30  # on both sides of 2^32
    for some in (slice(0, 20), slice(20, 30), slice(30, 40)):
        index.add(CODES[some], ids[some])
        index.save(tmp_path)  # a segment of its own
    index.remove(ids[[3, 35]])
    left = np.delete(np.arange(40), [3, 35])
    for one in (index, Index.open(tmp_path)):
        there = left if one is index else np.arange(40)
        assert one.ids.tolist() == ids[there].tolist()
        assert one.codes(ids[there]) == CODES[there]
        hoods = one.neighborhood(CODES[there], size=1)
        assert hoods.ids.dtype == np.int64
        assert hoods.ids.tolist() == ids[there].tolist()
        for candidates in (10, 40):
            hits = one.search(CODES[there], k=1, candidates=candidates)
            assert hits.ids.dtype == np.int64
            assert hits.ids[:, 0].tolist() == ids[there].tolist()
        assert one.search(CODES, k=40, filter=ids[[5, 25, 33]]).ids[0, :4].tolist()[3:] == [-1]
    index.compact()
    assert index.neighborhood(CODES[left], size=1).ids.tolist() == ids[left].tolist()


def test_equal_codes_are_all_found() -> None:
    index = Index(width=70)
    for _ in range(3):
        index.add(CODES[[5] * 500])
    index.add(CODES[:5])
    index.remove(np.arange(0, 1500, 2))
    hood = index.neighborhood(CODES[5], size=1)
    assert (hood.length, hood.count) == (70, 750)
    assert sorted(hood.ids.tolist()) == list(range(1, 1500, 2))


# Ids


@pytest.mark.parametrize(
    "ids",
    [[7, 3], (7, 3), range(7, 5, -1), np.array([7, 3], dtype=np.uint64), np.array([7, 3], dtype=">i4")],
    ids=lambda ids: f"{type(ids).__name__} {getattr(ids, 'dtype', '')}",
)
def test_ids_may_have_any_integer_type(ids: Any) -> None:
    index = Index(width=70)
    index.add(CODES[:2], ids)
    assert index.ids.tolist() == sorted(map(int, ids))
    assert index.codes(ids) == CODES[:2]
    index.update(CODES[2:4], ids)
    index.add(CODES[4:6], ids, on_duplicate="replace")
    assert index.codes(ids) == CODES[4:6]
    assert all(one in index for one in ids)
    index.remove(ids)
    assert len(index) == 0


@pytest.mark.parametrize("one", [4, np.int8(4), np.uint64(4), np.array(4)])
def test_one_id_is_a_list_of_one(one: Any) -> None:
    index = codes_index(9)
    assert index.codes(one) == CODES[4]
    index.update(CODES[20], one)
    assert index.codes(one) == CODES[20]
    index.remove(one)
    assert 4 not in index


def test_other_objects_are_not_in_the_index() -> None:
    index = codes_index(9)
    others: list[Any] = [-1, 9, 2**63, 2**64, 1.0, "1", None, True, np.True_, [1], np.int64(-1)]
    assert not any(one in index for one in others)


def test_ids_follow_the_largest_ever_used(tmp_path: Path) -> None:
    index = codes_index()
    index.add(CODES[:2], ids=[50, 7])
    index.remove(50)
    index.add(CODES[2:4])
    assert index.ids.tolist() == [7, 51, 52]
    index.remove([51, 52])
    index.compact()
    index.save(tmp_path)
    with Index.open(tmp_path, mode="a") as opened:
        opened.add(CODES[:1])
        assert opened.ids.tolist() == [7, 53]
    other = codes_index()
    other.merge(index)
    other.add(CODES[:1])
    assert other.ids.tolist() == [7, 53]


@pytest.mark.parametrize("room", [1024, 2])
def test_ids_end_at_the_largest_int64(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", room)
    index = codes_index()
    index.add(CODES[:1], ids=[LAST - 4])
    index.add(CODES[1:5])
    expected = list(range(LAST - 4, LAST + 1))
    assert index.ids.tolist() == expected
    with pytest.raises(InvalidInput, match=f"would follow {LAST}, the largest so far: give ids of your own"):
        index.add(CODES[5:6])
    assert index.ids.tolist() == expected
    index.add(CODES[5:6], ids=[0])
    index.compact()
    assert index.codes([*expected, 0]) == CODES[:6]


# Writes


def test_empty_writes_change_nothing() -> None:
    for index in (Index(CODER), mixed()):
        before = contents(index)
        index.add(X[:0])
        index.add(X[:0], ids=[])
        index.add(CODER.encode(X[:0]), ids=np.array([]), on_duplicate="replace")
        index.update(X[:0], [])
        index.remove([])
        index.merge(Index(CODER, width=index.width))
        index.compact()
        assert contents(index) == before


def test_codes_may_be_views_and_memory_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", twins.random_codes(3000, 160).packed)
    wide = Codes(np.load(tmp_path / "wide.npy", mmap_mode="r"), 160)
    for view in (wide[::2], wide[::-1], wide[::-7], wide.prefix(80), wide[::3].prefix(61), wide[5:6], wide[:0]):
        index, copy = Index(width=view.width), Codes.from_bits(view.bits())
        index.add(view)
        index.update(view[:2], ids=range(min(2, len(view))))
        assert index.codes(range(len(view))) == copy
        expected = index.neighborhood(copy, size=3)
        hoods = index.neighborhood(view, size=3)
        assert np.all(hoods.length == expected.length)
        assert np.all(hoods.count == expected.count)


def test_a_buffer_full_of_deleted_items_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", 4)
    index = codes_index(1)
    for turn in range(1, 40):
        index.update(CODES[turn], 0)
        assert index.codes(0) == CODES[turn]
        assert (len(index), index.ids.tolist()) == (1, [0])
        assert index.neighborhood(CODES[turn], size=1).length == 70
    for turn in range(40):
        index.remove(index.ids)
        index.add(CODES[turn])
        assert index.ids.tolist() == [turn + 1]
    index._live.wait()
    assert len(index._live.current.segments) <= 1


def test_items_move_between_buffer_and_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", 4)
    index = codes_index()
    index.add(CODES[:6])  # a segment
    index.add(CODES[6:9])  # the buffer
    index.add(CODES[10:12], ids=[0, 8], on_duplicate="replace")  # one of each
    expected = [10, 1, 2, 3, 4, 5, 6, 7, 11]
    assert index.codes(range(9)) == CODES[expected]
    index.compact()
    assert index.codes(range(9)) == CODES[expected]
    assert [len(one) for one in index._live.current.segments] == [9]


def test_merging_adds_items_and_leaves_the_other_index_unchanged() -> None:
    index, other = mixed(), Index(CODER, width=21)
    other.add(X[30:36], ids=[3, 4, 100, 101, 102, 13])
    other.compact()
    other.remove(102)
    before = contents(other)
    with pytest.raises(InvalidInput, match="ids must be new, but 4 is in use"):
        index.merge(other)
    index.merge(other, on_duplicate="replace")
    assert contents(other) == before
    assert index.codes([3, 4, 100, 101, 13]) == CODER.encode(X[[30, 31, 32, 33, 35]]).prefix(21)
    assert (len(index), index._largest) == (22, 102)
    index.remove([100, 4])
    index.compact()
    assert contents(other) == before


def test_an_index_may_be_merged_into_another_again_and_again() -> None:
    """Both then share segments, each with its own tombstones."""
    index, other = codes_index(), codes_index(10)
    other.compact()
    for turn in range(5):
        index.merge(other, on_duplicate="replace")
        index._live.wait()
        assert index.codes(range(10)) == CODES[:10]
        other.remove(turn)
    index.compact()
    assert index.codes(index.ids) == CODES[:10]
    assert other.ids.tolist() == [5, 6, 7, 8, 9]


def test_merging_an_index_into_itself_changes_nothing() -> None:
    index = mixed()
    before = contents(index)
    with pytest.raises(InvalidInput, match="ids must be new, but 0, 1, 2, … are in use"):
        index.merge(index)
    assert contents(index) == before
    index.merge(index, on_duplicate="replace")
    assert contents(index) == before
    index.compact()
    assert contents(index) == before


def test_equal_coders_are_the_same_coder() -> None:
    index = mixed()
    other = Index(LinearCoder(width=30).fit(X), width=21)
    other.add(X[50:], ids=range(50, 60))
    index.merge(other)
    assert index.codes(range(50, 60)) == CODER.encode(X[50:]).prefix(21)


# Memory


@pytest.mark.parametrize("batch", [100_000, 333])
def test_memory_is_that_of_the_codes_and_a_little_for_each_item(batch: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (100_000, 256), dtype=np.uint8)
    codes, index = Codes(packed, 2048), Index(width=2048)
    for first in range(0, len(codes), batch):
        index.add(codes[first : first + batch])
    index._live.wait()
    assert len(index) == 100_000
    assert index.nbytes <= 1.15 * packed.nbytes + 32 * len(codes)


# Mistakes

Mistakes = dict[str, tuple[Callable[[Index], Any], str]]

MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "neither": (lambda: Index(), "give a coder or a width: Index(coder) takes vectors, Index(width=...) takes codes"),
    "not fitted": (lambda: Index(LinearCoder(8)), "this LinearCoder is not fitted: call fit(X) first"),
    "not fitted, with a width": (lambda: Index(LinearCoder(8), width=4), "not fitted: call fit(X) first"),
    "too wide": (lambda: Index(CODER, width=31), "width must be at most 30, got 31: fit a wider coder"),
    "too wide for codes": (lambda: Index(width=2**31), "width must be at most 16777216, got 2147483648"),
    "width 0": (lambda: Index(width=0), "width must be an integer of at least 1, got 0"),
    "width True": (lambda: Index(width=True), "width must be an integer of at least 1, got True"),
    "width 1.5": (lambda: Index(CODER, width=1.5), "width must be an integer of at least 1, got 1.5"),  # type: ignore[arg-type]
    "a width for a coder": (lambda: Index(64), "expected a coder, got int: Index(coder) or Index(width=...)"),  # type: ignore[arg-type]
    "a class for a coder": (lambda: Index(LinearCoder), "expected a coder, got"),  # type: ignore[arg-type]
    "data for a coder": (lambda: Index(X), "expected a coder, got ndarray"),  # type: ignore[arg-type]
}

# Ids for two items; what is wrong with them is the same wherever they go.
BAD_IDS: dict[str, tuple[Any, str]] = {
    "negative": ([0, -1], "ids must be from 0 to 2^63 - 1, as -1 marks missing hits, got -1 to 0"),
    "huge": ([2**63, 2**63 + 1], "got 9223372036854775808 to 9223372036854775809: clear the highest bit"),
    "huge and small": ([1, 2**63], "ids must be"),
    "beyond 64 bits": ([1, 2**64], "ids must be integers in 1 dimension, got object"),
    "floats": ([1.0, 2.0], "ids must be integers in 1 dimension, got float64 of shape (2,): number your items"),
    "NaN": ([1, float("nan")], "ids must be integers in 1 dimension, got float64"),
    "booleans": ([True, False], "ids must be integers in 1 dimension, got bool"),
    "words": (["a", "b"], "ids must be integers in 1 dimension, got <U1 of shape (2,)"),
    "a word": ("ab", "keep names in a list beside the index"),
    "objects": (np.array([1, 2], dtype=object), "ids must be integers in 1 dimension, got object"),
    "two dimensions": ([[1, 2]], "ids must be integers in 1 dimension, got int64 of shape (1, 2)"),
    "twice": ([4, 4], "ids must be distinct, got 4 more than once: name each id once"),
    "twice in types": (np.array([4, 4], dtype=np.uint8), "ids must be distinct, got 4 more than once"),
}

MISTAKES: Mistakes = {
    "add ids in use": (
        lambda index: index.add(X[:3], ids=[100, 4, 17]),
        'ids must be new, but 4, 17 are in use: give other ids, or pass on_duplicate="replace"',
    ),
    "add too few ids": (
        lambda index: index.add(X[:3], ids=[100, 101]),
        "there must be one id for each item, got 2 ids for 3 items",
    ),
    "add one id for several": (lambda index: index.add(X[:3], ids=100), "got 1 ids for 3 items"),
    "add no ids": (lambda index: index.add(X[:3], ids=[]), "got 0 ids for 3 items"),
    "add ids for nothing": (lambda index: index.add(X[:0], ids=[1]), "got 1 ids for 0 items"),
    "add nonsense": (
        lambda index: index.add(X[:1], on_duplicate="skip"),  # type: ignore[arg-type]
        'on_duplicate must be "error" or "replace", got \'skip\'',
    ),
    "add NaN": (lambda index: index.add(np.full((2, 5), np.nan)), "data must be finite and within float32"),
    "add other features": (lambda index: index.add(X[:, :4]), "the 5 features the coder was fitted on, got 4"),
    "add images": (lambda index: index.add(X[None]), "data must have 2 dimensions"),
    "add a number": (lambda index: index.add(3.0), "data must be an array (items, features), got 3.0"),
    "add words": (lambda index: index.add(["a"] * 5), "data must be numeric"),
    "add other codes": (
        lambda index: index.add(CODES),
        "codes must have the index's width 21, got 70: take prefix(21), or make another index of that width",
    ),
    "update what is not there": (
        lambda index: index.update(X[:3], ids=[0, 3, 13]),
        "ids must be of items in the index, but 3, 13 are not",
    ),
    "update too few": (lambda index: index.update(X[:1], ids=[0, 1]), "one id for each item, got 2 ids for 1 items"),
    "update NaN": (lambda index: index.update(np.full((1, 5), np.nan), ids=[0]), "data must be finite"),
    "update to other codes": (lambda index: index.update(CODES[:1], ids=[0]), "the index's width 21, got 70"),
    "remove what is not there": (
        lambda index: index.remove([0, 1, 20, 21, 22, 23]),
        "ids must be of items in the index, but 20, 21, 22, … are not",
    ),
    "remove again": (lambda index: index.remove(13), "ids must be of items in the index, but 13 is not"),
    "remove None": (lambda index: index.remove(None), "ids must be integers"),  # type: ignore[arg-type]
    "codes of what is not there": (lambda index: index.codes([3, 1]), "but 3 is not"),
    "reconstruct what is not there": (lambda index: index.reconstruct(99), "but 99 is not"),
    "merge items": (lambda index: index.merge(X), "expected an Index, got ndarray: add(items) takes items"),  # type: ignore[arg-type]
    "merge another width": (
        lambda index: index.merge(Index(CODER)),
        "indexes must have the same width to merge, got 21 and 30",
    ),
    "merge another coder": (lambda index: index.merge(Index(OTHER, width=21)), "must have the same coder to merge"),
    "merge no coder": (lambda index: index.merge(Index(width=21)), "must have the same coder to merge"),
    "merge nonsense": (
        lambda index: index.merge(mixed(), on_duplicate="keep"),  # type: ignore[arg-type]
        'on_duplicate must be "error" or "replace", got \'keep\'',
    ),
    "merge ids in use": (lambda index: index.merge(mixed()), "ids must be new, but 0, 1, 2, … are in use"),
    "size 0": (lambda index: index.neighborhood(X[0], size=0), "size must be an integer of at least 1, got 0"),
    "size 0 of codes": (lambda index: index.neighborhood(CODER.encode(X[:1]), size=0), "size must be an integer"),
    "size -1": (lambda index: index.neighborhood(X[0], size=-1), "size must be an integer of at least 1, got -1"),
    "size True": (lambda index: index.neighborhood(X[0], size=True), "at least 1, got True"),
    "size 1.5": (lambda index: index.neighborhood(X[0], size=1.5), "at least 1, got 1.5"),  # type: ignore[arg-type]
    "fraction 0": (lambda index: index.neighborhood(X[0], fraction=0), "fraction must be above 0 and at most 1, got 0"),
    "fraction 1.5": (lambda index: index.neighborhood(X[0], fraction=1.5), "at most 1, got 1.5: 0.01 is 1 %"),
    "fraction NaN": (lambda index: index.neighborhood(X[0], fraction=float("nan")), "at most 1, got nan"),
    "fraction True": (lambda index: index.neighborhood(X[0], fraction=True), "at most 1, got True"),
    "fraction in words": (lambda index: index.neighborhood(X[0], fraction="all"), "got 'all'"),  # type: ignore[arg-type]
    "both": (lambda index: index.neighborhood(X[0], size=1, fraction=0.5), "give either size, the fewest members"),
    "neither": (lambda index: index.neighborhood(X[0]), "got size=None and fraction=None"),
    "no threads": (lambda index: index.neighborhood(X, size=1, threads=0), "threads must be an integer of at"),
    "ask for NaN": (lambda index: index.neighborhood(X[0] * np.nan, size=1), "data must be finite"),
    "ask for other codes": (lambda index: index.neighborhood(CODES, size=1), "the index's width 21, got 70"),
    "ask for other features": (lambda index: index.neighborhood(X[0, :2], size=1), "the 5 features"),
    "nested of several": (lambda index: index.nested(X[:2]), "nested takes one code, got 2"),
    "nested of none": (lambda index: index.nested(X[:0]), "nested takes one code, got 0"),
    "commit in memory": (lambda index: index.commit(), "this index is in memory: save(path) it"),
}

WITHOUT_CODER: Mistakes = {
    "add": (lambda index: index.add(X), "without a coder the index takes Codes, got ndarray: encode them first"),
    "add a list": (lambda index: index.add([[1, 2]]), "without a coder the index takes Codes, got list"),
    "update": (lambda index: index.update(X[:1], [0]), "without a coder the index takes Codes"),
    "ask": (lambda index: index.neighborhood(X[0], size=1), "without a coder the index takes Codes"),
    "nested": (lambda index: index.nested(X[0]), "without a coder the index takes Codes"),
    "reconstruct": (lambda index: index.reconstruct(0), "an index without a coder has codes only: call codes(ids)"),
    "other codes": (lambda index: index.add(CODES.prefix(64)), "the index's width 70, got 64: give all 70 bits"),
}

CHANGES: dict[str, Callable[[Index], Any]] = {
    "add": lambda index: index.add(X[:1]),
    "replace": lambda index: index.add(X[:1], ids=[0], on_duplicate="replace"),
    "remove": lambda index: index.remove([0]),
    "update": lambda index: index.update(X[:1], ids=[0]),
    "truncate": lambda index: index.truncate(5),
    "merge": lambda index: index.merge(Index(CODER, width=21)),
    "compact": lambda index: index.compact(),
    "commit": lambda index: index.commit(),
}


@pytest.mark.parametrize("mistake", MADE)
def test_mistakes_in_making_one_are_named(mistake: str) -> None:
    call, message = MADE[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_and_change_nothing(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    index = mixed()
    before = contents(index)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(index)
    assert contents(index) == before
    index.add(X[20:22])  # and it goes on
    assert index.ids.tolist() == [*before[1], 20, 21]


def test_an_item_may_be_read_more_than_once() -> None:
    index = mixed()
    first = int(index.ids[0])
    assert index.codes([first, first]) == index.codes(first).concat(index.codes(first))


def test_a_coder_that_is_fitted_again_is_another_one() -> None:
    coder = LinearCoder(width=16).fit(X)
    index = Index(coder)
    index.add(X)
    before = index.reconstruct(3)
    coder.fit(100 * X[::-1] + 7)
    assert np.array_equal(index.reconstruct(3), before)
    assert index.neighborhood(X[3], size=1).length == 16


@pytest.mark.parametrize("mistake", BAD_IDS)
def test_bad_ids_are_named_and_change_nothing(mistake: str) -> None:
    ids, message = BAD_IDS[mistake]
    index = mixed()
    before = contents(index)
    calls: list[Callable[[Any], Any]] = [index.remove, partial(index.add, X[:2]), partial(index.update, X[:2])]
    if "distinct" not in message:  # reading the same item twice is no mistake
        calls += [index.codes, index.reconstruct]
    for call in calls:
        with pytest.raises(InvalidInput, match=re.escape(message)):
            call(ids)
        assert contents(index) == before


@pytest.mark.parametrize("mistake", WITHOUT_CODER)
def test_vectors_need_a_coder(mistake: str) -> None:
    call, message = WITHOUT_CODER[mistake]
    index = codes_index(9)
    before = contents(index)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(index)
    assert contents(index) == before


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", ["r", "closed"])
def test_an_index_that_was_opened_to_read_or_closed_answers_and_does_not_change(
    mode: str, change: str, tmp_path: Path
) -> None:
    index = mixed()
    index.save(tmp_path)
    opened = Index.open(tmp_path, mode="r" if mode == "r" else "a")
    if mode == "closed":
        opened.close()
    with pytest.raises(InvalidInput, match="was opened to read, or closed: open it with mode='a' to change it"):
        CHANGES[change](opened)
    assert contents(opened) == contents(index)
    ours, theirs = (np.sort(one.neighborhood(X[0], size=3).ids) for one in (opened, index))
    assert np.array_equal(ours, theirs)
    assert contents(Index.open(tmp_path)) == contents(index)


def test_answers_may_be_changed_by_whoever_got_them() -> None:
    index = mixed()
    before = contents(index)
    ids: NDArray[np.int64] = index.ids
    ids[:] = 0
    index.neighborhood(X[0], size=5).ids[:] = 0
    given = np.array([200, 201])
    index.add(X[:2], given)
    given[:] = 0
    index.remove([200, 201])
    assert contents(index)[:3] == before[:3]


def test_the_largest_id_and_vectors_of_one_feature_are_kept(tmp_path: Path) -> None:
    rows = np.arange(6.0)[:, None]
    index = Index(LinearCoder(width=2).fit(rows), vectors="float32")
    index.add(rows, ids=[*range(5), LAST])
    index.save(tmp_path)
    opened = Index.open(tmp_path)
    assert LAST in opened
    assert LAST - 1 not in opened
    assert opened.vectors([LAST]).tolist() == [[5.0]]


def test_a_prefix_is_no_longer_than_the_codes() -> None:
    tree = PrefixTree(CODES)
    assert len(tree.range(CODES[:1]).ids) >= 1
    longer = Codes.from_bits(np.zeros((1, CODES.width + 1), dtype=bool))
    with pytest.raises(InvalidInput, match=f"at most the {CODES.width} bits of the codes, got {CODES.width + 1}"):
        tree.range(longer)
