"""Stored vectors: searches by them equal searches by the same vectors in hand; rounding, writes, and errors."""

import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import Index, LinearCoder, _core
from nestcode.errors import InvalidInput
from nestcode.search.hits import Hits
from nestcode.search.vectors import NO_SCALES, VectorFormat, VectorType
from tests import twins
from tests.search.searching import FRESH, METRICS, Filled, Q, X, assert_same, fill, fitted

TYPES: list[VectorType] = ["float32", "float16", "int8"]
types = pytest.mark.parametrize("dtype", TYPES)
CODER = fitted("cell")
LAST = 2**63 - 1
BUDGETS: list[dict[str, Any]] = [
    {"candidates": 150},
    {"candidates": 150, "rerank": 11, "threads": 2},
    {"candidates": 5000},
]


@cache
def filled(dtype: VectorType, metric: Any = "l2") -> Filled:
    return fill(Index(fitted("cell", metric), vectors=dtype))


def rounded(rows: NDArray[Any], dtype: VectorType) -> NDArray[np.float32]:
    """What is stored of vectors, in plain NumPy."""
    if dtype != "int8":
        return rows.astype(dtype).astype(np.float32)
    scales: NDArray[np.float32] = (np.abs(rows).max(axis=1, keepdims=True) / 127).astype(np.float32)
    return scales * np.rint(rows / scales).astype(np.float32)


def small(dtype: VectorType = "float16", count: int = 20) -> Index:
    """Items in a segment and in the buffer, some deleted from each."""
    index = Index(CODER, vectors=dtype)
    index.add(X[: count // 2])
    index.compact()
    index.add(X[count // 2 : count])
    index.remove([3, count - 2])
    return index


def contents(index: Index) -> Any:
    ids = index.ids
    return ids.tolist(), index.codes(ids), index.vectors(ids).tobytes()


# Searches


def assert_equal_but_rounding(found: Hits, expected: Hits) -> None:
    """Searches by stored vectors sum in another order than those by vectors in hand."""
    assert np.array_equal(found.compared, expected.compared)
    assert np.array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5, atol=1e-6)


@types
@pytest.mark.parametrize(("own", "metric"), METRICS)
def test_a_search_equals_one_by_the_same_vectors_in_hand(
    dtype: VectorType, own: Any, metric: Any, tmp_path: Path
) -> None:
    index, ids, rows = filled(dtype, own)
    by_row = np.zeros((len(rows), rows.shape[1]), dtype=np.float32)
    by_row[ids] = rounded(rows, dtype)[ids]
    assert np.array_equal(index.vectors(ids), by_row[ids])
    index.save(tmp_path)
    index.wait()
    in_hand: tuple[Any, ...] = (by_row, {one: by_row[one] for one in ids.tolist()}, lambda some: by_row[some])
    for one in (index, Index.open(tmp_path)):
        for budget in BUDGETS:
            for queries, given in ((Q, in_hand), (Q[0], in_hand[:1])):
                found = one.search(queries, k=7, metric=metric, **budget)
                for vectors in given:
                    assert_equal_but_rounding(found, one.search(queries, k=7, metric=metric, vectors=vectors, **budget))
        found = one.search(Q, 9, metric=metric, candidates=5000)
        twins.check_all(found, twins.distances(Q, by_row[ids], metric), ids, 1e-4)
        radius = float(np.median(found.distances))
        inside, in_rows = (one.range_search(Q, radius, metric=metric, vectors=given) for given in (None, by_row))
        for a, b in zip(inside, in_rows, strict=True):
            assert_equal_but_rounding(a, b)


@types
def test_recall_is_measured_by_the_stored_vectors(dtype: VectorType) -> None:
    index = filled(dtype).index
    assert index.evaluate(Q, k=5, candidates=600).recall > 0.99
    by_codes = index.evaluate(Q, k=5, rank="asymmetric")
    assert by_codes.recall == index.evaluate(Q, k=5, rank="asymmetric", exact=index.vectors).recall < 0.9


def test_filters_and_codes_as_queries_search_an_index_with_vectors() -> None:
    index, ids, rows = filled("float32")
    allowed = ids[::9]
    hits = index.search(Q, k=3, filter=allowed)
    twins.check_all(hits, twins.distances(Q, rows[allowed], "l2"), allowed, 1e-4)
    assert_same(index.search(CODER.encode(Q), k=3), index.search(Q, k=3, rank="hamming"))


def test_ids_are_any_integers_from_0_to_the_largest() -> None:
    ids = [LAST, 5, 2**40, 2**62 + 1]
    index = Index(CODER, vectors="float32")
    index.add(X[:2], ids[:2])
    index.compact()
    index.add(X[2:4], ids[2:])
    for options in ({}, {"vectors": dict(zip(ids, X, strict=False))}, {"vectors": index.vectors}):
        assert index.search(X[:4], k=1, **options).ids.reshape(-1).tolist() == ids
    assert np.array_equal(index.vectors(ids), X[:4])


# Rounding


@types
def test_vectors_are_rounded_to_nearest(dtype: VectorType) -> None:
    rows = np.concatenate([X[:50], np.zeros((1, 12)), np.eye(12), 1e-30 * X[:3], X[:1].astype(np.float64)])
    stored = VectorFormat(dtype, 12).round(rows)
    runs, out = _core.VectorRuns([stored.core]), np.empty(rows.shape, dtype=np.float32)
    runs.expand(np.arange(len(rows)), out)
    steps = np.abs(rows).max(axis=1, keepdims=True) / 254 if dtype == "int8" else np.abs(rows) * 2.0**-11 + 2.0**-25
    assert (np.abs(out - rows) <= 1.001 * steps).all()
    if dtype == "float32":
        assert np.array_equal(out, rows.astype(np.float32))


@types
def test_formats_know_the_bytes_of_a_vector(dtype: VectorType) -> None:
    for features in (1, 4, 12):
        stored = VectorFormat(dtype, features).round(X[:5, :features])
        assert stored.format == VectorFormat(dtype, features)
        assert stored.nbytes == 5 * stored.format.row_bytes == stored.rows.nbytes + stored.scales.nbytes


def test_every_float16_is_expanded_as_numpy_does() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 64)
    for simd in _core.simd_names():
        out = np.empty(every.shape, dtype=np.float32)
        _core.VectorRuns([_core.VectorRows(every, NO_SCALES)]).expand(np.arange(len(every)), out, 2, simd)
        with np.errstate(invalid="ignore"):  # NaN that signal
            assert np.array_equal(out, every.astype(np.float32), equal_nan=True)


# Writes


@types
def test_vectors_are_written_updated_and_removed_with_their_items(dtype: VectorType, tmp_path: Path) -> None:
    index = small(dtype)
    index.update(FRESH[:2], ids=[0, 11])
    index.add(CODER.encode(FRESH[2:3]), ids=[5], vectors=FRESH[2:3], on_duplicate="replace")
    expected = rounded(X[:20], dtype)
    expected[[0, 11, 5]] = rounded(FRESH[:3], dtype)
    changes: list[Callable[[], Any]] = [lambda: None, index.compact, lambda: index.save(tmp_path)]
    for change in changes:
        change()
        assert np.array_equal(index.vectors(index.ids), expected[index.ids])
    with Index.open(tmp_path, mode="a") as opened:
        assert opened.vector_type == dtype
        opened.merge(one := Index(CODER, vectors=dtype))
        one.add(X[30:32], ids=[30, 31])
        opened.merge(one)
        opened.commit()
    found = Index.open(tmp_path)
    assert np.array_equal(found.vectors([30, 0, 5]), rounded(np.stack([X[30], FRESH[0], FRESH[2]]), dtype))
    assert found.vectors([]).shape == (0, 12)


def test_vectors_may_be_stored_where_codes_are_narrow() -> None:
    index = Index(CODER, width=3, vectors="float32")
    index.add(X)
    assert index.search(X[:50], k=1, candidates=len(X)).ids.reshape(-1).tolist() == list(range(50))


# Truncation


@pytest.mark.parametrize("width", [40, 33, 9, 1])
def test_a_truncated_index_equals_one_of_that_width(width: int, tmp_path: Path) -> None:
    index, short = (fill(Index(CODER, width=w, vectors="int8")).index for w in (None, width))
    index.save(tmp_path)
    index.truncate(width)
    ids = short.ids
    with Index.open(tmp_path, mode="a") as opened:
        opened.truncate(width)  # what is mapped
        opened.commit()
        for one in (index, opened, Index.open(tmp_path)):
            assert one.width == width
            assert np.array_equal(one.ids, ids)
            assert one.codes(ids) == short.codes(ids)
            assert np.array_equal(one.vectors(ids), short.vectors(ids))
            hoods, expected = (each.neighborhood(Q, size=3) for each in (one, short))
            assert np.array_equal(hoods.length, expected.length)
            assert np.array_equal(hoods.count, expected.count)
            for options in ({"rank": "exact"}, {"rank": "asymmetric"}, {"rank": "hamming"}):
                a, b = (each.search(Q, k=5, candidates=5000, **options) for each in (one, short))  # type: ignore[arg-type]
                np.testing.assert_allclose(a.distances, b.distances, rtol=1e-5)
        opened.update(X[1:2], ids=ids[:1])
        assert opened.codes(ids[:1]) == CODER.encode(X[1:2]).prefix(width)


def test_searches_and_writes_go_on_while_an_index_is_truncated() -> None:
    index, stop, failures = small(), threading.Event(), list[BaseException]()

    def use(number: int) -> None:
        try:
            while not stop.is_set():
                index.search(X[:3], k=2, rank="hamming" if number % 2 else "asymmetric", candidates=5)
                index.neighborhood(X[:3], size=2)
                index.add(X[:2], ids=[100 + number, 200 + number], on_duplicate="replace")
                index.codes([100 + number])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for width in range(39, 1, -1):
        index.truncate(width)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert index.width == 2


MISTAKES: dict[str, tuple[Callable[[Index], Any], str]] = {
    "codes alone": (lambda index: index.add(CODER.encode(X[:2])), "takes Codes together with their vectors: give vec"),
    "codes alone in an update": (lambda index: index.update(CODER.encode(X[:1]), [0]), "takes Codes together with"),
    "vectors twice": (lambda index: index.add(X[:2], vectors=X[:2]), "are vectors already: leave vectors= out"),
    "too few vectors": (
        lambda index: index.add(CODER.encode(X[:2]), vectors=X[:1]),
        "there must be one vector for each code, got 1 for 2 codes",
    ),
    "other features": (lambda index: index.add(CODER.encode(X[:2]), vectors=X[:2, :3]), "must have the 12 features"),
    "NaN": (lambda index: index.add(CODER.encode(X[:1]), vectors=X[:1] * np.nan), "data must be finite"),
    "beyond float16": (
        lambda index: index.add(X[:1] * 1e6),
        'must be within 65504, got 5.4e+06: rescale them, or store them as vectors="float32"',
    ),
    "another type": (
        lambda index: index.merge(small("int8")),
        "indexes must store the same type of vectors to merge, got float16 and int8",
    ),
    "a longer code": (lambda index: index.truncate(41), "truncate shortens codes of 40 bits, got 41: give fewer bits"),
    "no bits": (lambda index: index.truncate(0), "width must be an integer of at least 1, got 0"),
    "a mapping without an id": (
        lambda index: index.search(X[0], vectors={0: X[0]}),
        "but id 1 is not in the mapping",
    ),
    "a function of another shape": (lambda index: index.search(X[0], vectors=lambda _: X[:1]), "a row for each of 18"),
    "a function of words": (lambda index: index.search(X[0], vectors=lambda ids: ids.astype(str)), "must be numeric"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_and_change_nothing(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    index = small()
    before = contents(index)
    if mistake == "beyond float16":
        message = message.replace("5.4e+06", f"{np.abs(X[:1] * 1e6).max():.6g}")
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(index)
    assert contents(index) == before


def test_an_index_without_vectors_says_so() -> None:
    index = Index(CODER)
    index.add(X[:3])
    assert index.vector_type is None
    calls: list[Callable[[], Any]] = [
        lambda: index.vectors([0]),
        lambda: index.search(X[0], rank="exact"),
        lambda: index.add(CODER.encode(X[:1]), vectors=X[:1]),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=re.escape('Index(coder, vectors="float16")')):
            call()
    with pytest.raises(InvalidInput, match="only an index with a coder stores vectors, got vectors='int8'"):
        Index(width=8, vectors="int8")
    with pytest.raises(InvalidInput, match='vectors must be "float32", "float16", "int8" or None, got \'float64\''):
        Index(CODER, vectors="float64")  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 2e-8), ("float32", 1e-12), ("int8", 1e-12)])
def test_vectors_for_the_cosine_keep_their_direction_or_are_refused(dtype: Any, largest: float) -> None:
    index = Index(LinearCoder(16, metric="cosine").fit(X), vectors=dtype)
    index.add(np.vstack([X[:2], np.zeros_like(X[:1])]))  # a vector of zeros is one
    tiny = X[2:3] / np.abs(X[2]).max() * largest
    if dtype == "float16":
        with pytest.raises(InvalidInput, match="must not round to 0 in float16, got values up to 2e-08: normalize"):
            index.add(tiny)
        assert len(index) == 3
        index = Index(LinearCoder(16).fit(X), vectors=dtype)  # other metrics lose nothing that matters
    index.add(tiny, ids=[7])
    if dtype != "float16":
        assert index.search(X[2], k=1).ids.tolist() == [7]


@pytest.mark.parametrize(
    ("dtype", "offset", "warns"),
    [
        ("int8", 100, True),
        ("int8", 0, False),
        ("float16", 10_000, True),
        ("float16", 100, False),
        ("float32", 10_000, False),
    ],
)
def test_rounding_that_hides_differences_is_no_secret(dtype: VectorType, offset: float, warns: bool) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32) + np.float32(offset)
    index = Index(LinearCoder(8).fit(rows), vectors=dtype)
    with pytest.warns(UserWarning, match="of their variance") if warns else nullcontext():
        index.add(rows)
