"""Plans: queries, vectors and filters of all kinds, and errors that name the mistake."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from numpy.typing import NDArray

from nestcode import CellCoder, Codes, Index, LinearCoder, ResidualCoder
from nestcode.errors import InvalidInput, NotFitted
from nestcode.search import filters, planner
from nestcode.search.vectors import GivenVectors
from tests import twins
from tests.search.searching import (
    ERROR,
    FEATURES,
    ROWS,
    Q,
    X,
    assert_close,
    assert_same,
    bare,
    by_rank,
    filled,
    fitted,
    kinds,
    metrics,
    plain,
)

# Data of all kinds


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.float32, ">f4", np.uint8, np.int16, np.int64, bool])
def test_queries_and_vectors_may_have_any_numeric_dtype(dtype: Any) -> None:
    index = plain("cell")
    queries, vectors = Q.astype(dtype), X.astype(dtype)
    for candidates in (100, ROWS):
        hits, expected = (index.search(each, candidates=candidates) for each in (queries, queries.astype(np.float32)))
        assert_close(hits, expected)
        if dtype is bool:
            continue
        exact = index.search(queries, candidates=candidates, rerank=ROWS, vectors=vectors)
        plain_exact = index.search(
            queries.astype(np.float32), candidates=candidates, rerank=ROWS, vectors=vectors.astype(np.float32)
        )
        np.testing.assert_allclose(exact.distances, plain_exact.distances, rtol=1e-4, atol=ERROR)
    assert_close(index.search(queries.tolist()[:3]), index.search(queries[:3]))


def test_vectors_may_be_memory_maps_views_and_lists(tmp_path: Path) -> None:
    index = plain("cell")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "double.npy", X.astype(np.float64))
    wide = np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)
    bytes_ = np.frombuffer(b"\0" + X.tobytes(), dtype=np.uint8)[1:]
    more = np.concatenate([X, X])
    vectors: list[Any] = [
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        np.load(tmp_path / "double.npy", mmap_mode="r"),
        np.memmap(tmp_path / "x.npy", dtype=np.float32, mode="r", offset=128, shape=X.shape),
        wide[::2, ::2],
        np.asfortranarray(X),
        X[::-1][::-1],
        X.tolist(),
        more,
        bytes_.view(np.float32).reshape(X.shape),  # not at a multiple of 4 bytes
    ]
    for candidates in (100, ROWS):
        expected = index.search(Q, candidates=candidates, vectors=X)
        for each in vectors:
            assert_close(index.search(Q, candidates=candidates, vectors=each), expected)
    reversed_, repeated = X[4::-1][::-1], np.repeat(X, 2, axis=0)[:10:2]
    for queries in (wide[::2, ::2][:5], np.asfortranarray(X[:5]), reversed_, repeated, vectors[-1][:5]):
        assert_close(index.search(queries, vectors=X), index.search(X[:5], vectors=X))


@pytest.mark.parametrize(("offset", "dtype"), [(1e3, np.float32), (1e9, np.float64)])
def test_distances_are_exact_far_from_zero(offset: float, dtype: Any) -> None:
    """Around 1e3, squares in float32 have no digits left for differences of 1; 1e9 needs float64 even unsquared."""
    rng = np.random.default_rng(0)
    rows, queries = ((offset + rng.standard_normal((n, 8)).round(3)).astype(dtype) for n in (500, 20))
    index, ids = Index(LinearCoder(32).fit(rows)), np.arange(500)
    index.add(rows)
    expected = twins.distances(queries, rows, "l2")
    for candidates in (100, 500):
        twins.check_hits(index.search(queries, 5, candidates=candidates, vectors=rows), expected, ids, 1e-3)
    twins.check_all(index.search(queries, 5, candidates=500, vectors=rows), expected, ids, 1e-3)
    some, everything = (index.search(queries, 5, candidates=candidates, rerank=500) for candidates in (499, 500))
    np.testing.assert_allclose(some.distances, everything.distances, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("power", [-50, 50])
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
@kinds
def test_the_unit_of_the_data_does_not_matter(kind: str, metric: Any, power: int) -> None:
    """Scaling by a power of two changes exponents only, and angles are those of the same directions."""
    scale = np.float32(2.0**power)
    coder = type(fitted(kind))(**fitted(kind).get_params()).fit(X * scale)
    index, scaled = plain(kind), Index(coder)
    scaled.add(X * scale)
    unit = 1 if metric == "cosine" else float(scale) ** 2
    for candidates in (100, ROWS):
        for vectors in (None, X):
            own = None if vectors is None else vectors * scale
            hits = scaled.search(Q * scale, candidates=candidates, metric=metric, vectors=own)
            expected = index.search(Q, candidates=candidates, metric=metric, vectors=vectors)
            np.testing.assert_allclose(hits.distances / unit, expected.distances, rtol=1e-3, atol=ERROR)
            assert np.mean(hits.ids == expected.ids) > 0.9


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@metrics
@kinds
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:underflow", "ignore:divide by zero")
def test_values_may_be_huge_and_tiny(kind: str, own: Any, metric: Any, scale: float) -> None:
    """Where squares leave float32 an index or a search is refused; angles do not depend on the scale."""
    rows, queries = ((scale * part.astype(np.float64)).astype(np.float32) for part in (X[:400], Q))
    coder = type(fitted(kind))(**{**fitted(kind).get_params(), "metric": own}).fit(rows)
    if scale < 1 and own == "l2":
        with pytest.raises(InvalidInput, match=r"must be at least 1e-36 on average, .*: rescale the data, or fit"):
            Index(coder)
        return
    index = Index(coder)
    index.add(rows)
    for candidates in (40, 400):
        for rank in ("asymmetric", "exact"):
            how: dict[str, Any] = {"candidates": candidates, "rerank": 400, **by_rank(rank, rows, metric)}
            if scale > 1 and own == "l2" and (rank, metric, candidates) != ("exact", "cosine", 400):
                with suppress(InvalidInput):  # the angles of an exhaustive search are right
                    index.search(queries, 5, **how)
                    assert (metric, candidates) == ("cosine", 400)
                continue
            hits = index.search(queries, 5, **how)
            assert (hits.ids >= 0).all()
            assert all(len(set(row.tolist())) == 5 for row in hits.ids)
            assert not np.isnan(hits.distances).any()
            if metric == "cosine" and (rank == "exact" or own == "cosine"):
                expected = twins.distances(Q, X[:400] if rank == "exact" else index.reconstruct(range(400)), "cosine")
                twins.check_hits(hits, expected, np.arange(400), ERROR)


def test_zero_vectors_are_at_distance_2_from_all_by_angle() -> None:
    rows = np.concatenate([X[:100], np.zeros((3, FEATURES), dtype=np.float32)])
    index = Index(LinearCoder(32, metric="cosine").fit(rows))
    index.add(rows)
    queries = np.concatenate([Q[:2], np.zeros((1, FEATURES))])
    for candidates in (60, len(rows)):
        hits = index.search(queries, len(rows), candidates=candidates, rerank=200, vectors=rows)
        for q in range(2):
            assert hits.distances[q][np.isin(hits.ids[q], [100, 101, 102])].tolist() == [2, 2, 2]
        assert set(hits.distances[2].tolist()) == {2}


@pytest.mark.parametrize("rows", [1, 2, 3, 40], ids="{} rows".format)
@kinds
@pytest.mark.filterwarnings("ignore:the data fills")
def test_few_and_equal_items_are_found(kind: str, rows: int) -> None:
    """One item, fewer items than centroids, and equal items."""
    for equal in (False, True):
        items = np.repeat(X[:1], rows, axis=0) if equal else X[:rows]
        coder = type(fitted(kind))(**fitted(kind).get_params()).fit(items)
        index = Index(coder)
        index.add(items)
        expected = twins.distances(Q, index.reconstruct(range(rows)), "l2")
        for candidates in (1, rows):
            for k in (1, rows, rows + 3):
                hits = index.search(Q, k, candidates=candidates)
                twins.check_hits(hits, expected, np.arange(rows), ERROR)
                assert ((hits.ids >= 0).sum(axis=1) == min(k, rows)).all()
                exact = index.search(items[:1], k, candidates=candidates, vectors=items)
                assert exact.distances[0, 0] == 0
                if equal:
                    assert sorted(exact.ids[0, :k][exact.ids[0, :k] >= 0].tolist()) == list(range(min(k, rows)))
        twins.check_all(index.search(Q, rows, candidates=rows), expected, np.arange(rows), ERROR)


@kinds
@pytest.mark.filterwarnings("ignore:the data fills")
def test_data_without_any_variance_is_searched(kind: str) -> None:
    """Only unallocated bits, and features that are constant."""
    constant = np.full((300, FEATURES), 2.5, dtype=np.float32)
    partly = X[:300].copy()
    partly[:, 2:] = 1
    for rows in (constant, partly):
        index = Index(type(fitted(kind))(**fitted(kind).get_params()).fit(rows))
        index.add(rows)
        expected = twins.distances(Q, index.reconstruct(range(300)), "l2")
        for candidates in (10, 200, 300):
            hits = index.search(Q, 10, candidates=candidates)
            twins.check_hits(hits, expected, np.arange(300), 10 * ERROR)
            assert (hits.ids >= 0).all()
        twins.check_all(hits, expected, np.arange(300), 10 * ERROR)


@kinds
@pytest.mark.filterwarnings("ignore:the data fills")
@pytest.mark.parametrize("count", [1, 300])
def test_data_without_any_variance_is_searched_by_angle(kind: str, count: int) -> None:
    rows = np.full((count, FEATURES), 2.5, dtype=np.float32)
    index = Index(type(fitted(kind))(**{**fitted(kind).get_params(), "metric": "cosine"}).fit(rows))
    index.add(rows)
    for queries in (Q[:1], Q):
        hits = index.search(queries, 10)
        assert (np.sort(hits.ids)[:, -min(count, 10) :] >= 0).all()
        assert np.isfinite(hits.distances[hits.ids >= 0]).all()


@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 9, 17, 24])
@kinds
def test_an_index_may_keep_any_number_of_bits(kind: str, width: int) -> None:
    """Also fewer bits than choose a centroid, 4 here, and widths that do not fill bytes."""
    index, ids, vectors = some = filled(kind, width=width)
    for rank in ("asymmetric", "exact"):
        expected = some.distances(Q, "l2", rank)
        for candidates in (10, 200, ROWS):
            hits = index.search(Q, candidates=candidates, rerank=ROWS, **by_rank(rank, vectors))
            twins.check_hits(hits, expected, ids, ERROR)
            assert (hits.ids >= 0).all()
        twins.check_all(hits, expected, ids, ERROR)
    codes = fitted(kind).encode(Q)
    assert_same(index.search(codes, candidates=50), index.search(codes.prefix(width), candidates=50))


def test_many_items_of_few_bits_are_searched() -> None:
    """More inverted lists than codes have bits for."""
    for width in (1, 3, 8):
        codes = twins.random_codes(40_000, width)
        index = Index(width=width)
        index.add(codes)
        hits = index.search(codes[:5], 4, candidates=100)
        assert (hits.distances == 0).all()
        assert (hits.compared >= 100).all()
    coder = CellCoder(9, cells=4).fit(X)
    for width in (1, 2, 3, 9):
        rows = np.tile(X, (10, 1))
        wide = Index(coder, width=width)
        wide.add(rows)
        hits = wide.search(Q, 5, candidates=100)
        twins.check_hits(
            hits, twins.distances(Q, wide.reconstruct(range(len(rows))), "l2"), np.arange(len(rows)), ERROR
        )


# Mistakes

NAN = np.full(FEATURES, np.nan, dtype=np.float32)
CODES = twins.random_codes(3, 33)
Mistakes = dict[str, tuple[Callable[[Index], Any], str]]
INTEGER = "must be an integer of at least 1, got"
RECALL = "target_recall must be above 0 and at most 1, got"
MISTAKES: Mistakes = {
    **{
        f"{name} {value!r}": (
            lambda index, name=name, value=value: index.search(Q, **{name: value}),  # type: ignore[misc]
            f"{name} {INTEGER} {value!r}",
        )
        for name in ("k", "candidates", "rerank", "threads")
        for value in (0, -1, 1.5, "10", True)
    },
    "k None": (lambda index: index.search(Q, None), f"k {INTEGER} None"),  # type: ignore[arg-type]
    "unknown rank": (
        lambda index: index.search(Q, rank="cosine"),  # type: ignore[arg-type]
        'rank must be "asymmetric", "hamming" or "exact", got \'cosine\'',
    ),
    "exact without vectors": (lambda index: index.search(Q, rank="exact"), "give vectors="),
    "vectors for bits": (
        lambda index: index.search(Q, rank="hamming", vectors=X),
        "vectors are compared by rank \"exact\", got rank 'hamming': leave one of them out",
    ),
    "vectors for codes": (
        lambda index: index.search(fitted("cell").encode(Q), vectors=X),
        'vectors are compared by rank "exact"',
    ),
    "vectors for decoded ones": (lambda index: index.search(Q, rank="asymmetric", vectors=X), "leave one of them out"),
    "decoded codes": (
        lambda index: index.search(fitted("cell").encode(Q), rank="asymmetric"),
        'rank "asymmetric" compares vectors, and Codes are bits',
    ),
    "exact codes": (lambda index: index.search(fitted("cell").encode(Q), rank="exact", vectors=X), "Codes are bits"),
    "too few vectors": (
        lambda index: index.search(Q, candidates=ROWS, vectors=X[:500]),
        "vectors must have a row for each id, but id 1199 is beyond their 500 rows",
    ),
    "too few vectors with few candidates": (
        lambda index: index.search(Q, candidates=50, vectors=X[:1]),
        "is beyond their 1 rows",
    ),
    "no vectors": (lambda index: index.search(Q, vectors=X[:0]), "is beyond their 0 rows"),
    "vectors of other features": (
        lambda index: index.search(Q, vectors=X[:, :5]),
        "vectors must have the queries' 12 features, got 5",
    ),
    "a vector": (lambda index: index.search(Q, vectors=X[0]), "vectors must be numeric in 2 dimensions"),
    "images": (lambda index: index.search(Q, vectors=X.reshape(-1, 3, 4)), "got float32 of shape (1200, 3, 4)"),
    "words for vectors": (lambda index: index.search(Q, vectors=X.astype(str)), "vectors must be numeric"),
    "complex vectors": (lambda index: index.search(Q, vectors=X.astype(complex)), "vectors must be numeric"),
    "objects for vectors": (lambda index: index.search(Q, vectors=X.astype(object)), "vectors must be numeric"),
    "vectors with NaN": (lambda index: index.search(Q, candidates=ROWS, vectors=X * np.nan), "data must be finite"),
    "NaN": (lambda index: index.search(NAN), "data must be finite"),
    "NaN in one": (lambda index: index.search(np.stack([Q[0], NAN])), "data must be finite"),
    "NaN as bits": (lambda index: index.search(NAN, rank="hamming"), "data must be finite"),
    "infinity": (lambda index: index.search(Q * np.inf), "data must be finite"),
    "beyond float32": (lambda index: index.search(Q.astype(np.float64) * 1e300), "within float32"),
    "other features": (lambda index: index.search(Q[:, :5]), "the 12 features the coder was fitted on, got 5"),
    "a shorter vector": (lambda index: index.search(Q[0, :5]), "the 12 features the coder was fitted on, got 5"),
    "other features as bits": (lambda index: index.search(Q[:, :5], rank="hamming"), "the 12 features"),
    "queries in 3 dimensions": (lambda index: index.search(Q[None]), "data must have 2 dimensions"),
    "a number": (lambda index: index.search(3.0), "data must be an array (items, features), got 3.0: give rows"),
    "nothing": (lambda index: index.search([]), "the 12 features the coder was fitted on, got 0"),
    "None": (lambda index: index.search(None), "data must be an array (items, features), got None"),  # type: ignore[arg-type]
    "words": (lambda index: index.search(["a"] * 12), "data must be numeric"),
    "sparse": (lambda index: index.search(scipy.sparse.csr_matrix(Q)), "data must be dense, got a sparse csr_matrix"),
    "sparse filter": (
        lambda index: index.search(Q, filter=scipy.sparse.csr_array(np.eye(9))),
        "filter must be dense, got a sparse csr_array: convert it with X.toarray()",
    ),
    "a column of lists": (
        lambda index: index.search(pa.array(list(Q), pa.list_(pa.float32(), 12))),
        "data must be numbers in one array, got a FixedSizeListArray of arrays: give np.stack(np.asarray(X))",
    ),
    "a pandas column of arrays": (lambda index: index.search(pd.Series(list(Q))), "got a Series of arrays"),
    "codes of another width": (lambda index: index.search(CODES), "codes must have the index's width 40, got 33"),
    "unknown metric": (
        lambda index: index.search(Q, metric="l1"),  # type: ignore[arg-type]
        'metric must be "l2", "cosine" or "inner", got \'l1\'',
    ),
    "metric of bits": (
        lambda index: index.search(Q, rank="hamming", metric="l2"),
        "rank \"hamming\" counts bits and has no metric, got 'l2': leave it out",
    ),
    "metric of codes": (lambda index: index.search(fitted("cell").encode(Q), metric="l2"), "has no metric"),
    "filter of floats": (
        lambda index: index.search(Q, filter=[1.0, 2.0]),
        "filter must be ids, or a mask by id: ids must be integers",
    ),
    "filter of NaN": (lambda index: index.search(Q, filter=[float("nan")]), "ids must be integers"),
    "filter of words": (lambda index: index.search(Q, filter=["a"]), "ids must be integers"),
    "a word for a filter": (lambda index: index.search(Q, filter="12"), "a condition looks at attributes, but this"),
    "filter in 2 dimensions": (lambda index: index.search(Q, filter=[[1, 2]]), "in 1 dimension"),
    "mask in 2 dimensions": (
        lambda index: index.search(Q, filter=np.ones((3, 400), dtype=bool)),
        "filter must be ids, or a mask by id in 1 dimension, got shape (3, 400)",
    ),
    "True for a filter": (
        lambda index: index.search(Q, filter=True),
        "filter must be ids, or a mask by id in 1 dimension",
    ),
    "negative filter": (
        lambda index: index.search(Q, filter=[1, -1]),
        "hits, got -1 to 1: leave out missing hits",
    ),
    "filter of hashes": (lambda index: index.search(Q, filter=[1, -2]), "as -1 marks missing hits, got -2 to 1: clear"),
    "huge filter": (lambda index: index.search(Q, filter=[2**63]), "ids must be from 0 to 2^63 - 1"),
    "filter beyond 64 bits": (lambda index: index.search(Q, filter=[2**64]), "ids must be integers"),
    "objects for a filter": (lambda index: index.search(Q, filter=[None, object()]), "ids must be integers"),  # type: ignore[arg-type]
    "half an id": (lambda index: index.search(Q, filter=0.5), "ids must be integers"),
    "radius NaN": (lambda index: index.range_search(Q, float("nan")), "radius must be a finite number, got nan"),
    "radius infinite": (lambda index: index.range_search(Q, float("inf")), "radius must be a finite number, got inf"),
    "radius None": (lambda index: index.range_search(Q, None), "radius must be a finite number, got None"),  # type: ignore[arg-type]
    "radius in words": (lambda index: index.range_search(Q, "1"), "radius must be a finite number, got '1'"),  # type: ignore[arg-type]
    "two radii": (lambda index: index.range_search(Q, [1, 2]), "radius must be a finite number"),  # type: ignore[arg-type]
    "candidates of a range": (lambda index: index.range_search(Q, 1, candidates=0), f"candidates {INTEGER} 0"),
    "NaN in a range": (lambda index: index.range_search(NAN, 1), "data must be finite"),
    "recall 0": (lambda index: index.tune(Q, target_recall=0), f"{RECALL} 0"),
    "recall 1.5": (lambda index: index.tune(Q, target_recall=1.5), f"{RECALL} 1.5"),
    "recall NaN": (lambda index: index.tune(Q, target_recall=float("nan")), f"{RECALL} nan"),
    "recall in words": (lambda index: index.tune(Q, target_recall="all"), f"{RECALL} 'all'"),  # type: ignore[arg-type]
    "tune k": (lambda index: index.tune(Q, k=0), f"k {INTEGER} 0"),
    "tune NaN": (lambda index: index.tune(NAN), "data must be finite"),
    "evaluate k": (lambda index: index.evaluate(Q, 0), f"k {INTEGER} 0"),
    "evaluate candidates": (lambda index: index.evaluate(Q, candidates=0), f"candidates {INTEGER} 0"),
    "evaluate rerank": (lambda index: index.evaluate(Q, rerank=0), f"rerank {INTEGER} 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_and_the_index_still_answers(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    index = _correct()
    before = index.search(Q, candidates=50)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(index)
    assert index.effort is None
    assert_same(index.search(Q, candidates=50), before)


@cache
def _correct() -> Index:
    return plain("cell")


@pytest.mark.parametrize("metric", ["l2", "inner"])
@kinds
def test_normalized_items_are_compared_by_angle_only(kind: str, metric: Any) -> None:
    index, _, vectors = filled(kind, "cosine")
    message = f"the coder L2-normalizes items, so the metric can only be \"cosine\", got '{metric}'"
    for rank in ("asymmetric", "exact"):
        with pytest.raises(InvalidInput, match=message):
            index.search(Q, **by_rank(rank, vectors, metric))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.search(Q), "without a coder the index takes Codes, got ndarray"),
        (lambda index: index.search(Q[0]), "without a coder the index takes Codes"),
        (lambda index: index.search(Q, rank="asymmetric"), "give vectors as queries to an index with a coder"),
        (lambda index: index.search(Q, rank="exact", vectors=X), "give vectors as queries to an index with a coder"),
        (lambda index: index.search(CODES), "codes must have the index's width 40, got 33"),
        (lambda index: index.range_search(Q, 3), "without a coder the index takes Codes"),
        (lambda index: index.tune(Q), "without a coder the index takes Codes"),
    ],
)
def test_vectors_need_a_coder(call: Callable[[Index], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(bare().index)


def test_a_coder_must_be_fitted() -> None:
    for coder in (LinearCoder(8), ResidualCoder(8), CellCoder(8)):
        with pytest.raises(NotFitted, match="is not fitted: call fit"):
            Index(coder).search(Q)


def test_a_filter_that_fails_is_not_hidden() -> None:
    def broken() -> Iterable[int]:
        yield 1
        raise RuntimeError("the list ended")

    with pytest.raises(RuntimeError, match="the list ended"):
        filled("cell").index.search(Q, filter=broken())


def test_vectors_with_nan_are_refused_when_they_are_compared() -> None:
    X = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    index = Index(LinearCoder(16).fit(X))
    index.add(X)
    damaged = X.copy()
    damaged[3] = np.nan
    with pytest.raises(InvalidInput, match="vectors must be finite, but some compared vectors hold NaN"):
        index.search(X[3], k=2, candidates=100, vectors=damaged)


def test_k_has_bounds() -> None:
    index = Index(width=3)
    index.add(Codes.from_bits([[0, 0, 1], [1, 0, 0]]))
    assert index.search(Codes.from_bits([[0, 0, 1]]), k=1000).ids.shape == (1, 1000)
    with pytest.raises(InvalidInput, match="k must be at most 65,536 for an index of 2 items, got 1,000,000,000"):
        index.search(Codes.from_bits([[0, 0, 1]]), k=10**9)


# Filters


def all_filters(allowed: NDArray[np.int64]) -> dict[str, Any]:
    mask = np.zeros(ROWS, dtype=bool)
    mask[allowed] = True
    return {
        "array": allowed,
        "uint16": allowed.astype(np.uint16),
        "unsorted and twice": np.concatenate([allowed[::-1], allowed]),
        "with others that are not there": np.concatenate([allowed, [0, 7, 10**6, 2**63 - 1]]),
        "list": allowed.tolist(),
        "tuple": tuple(allowed.tolist()),
        "set": set(allowed.tolist()),
        "generator": (int(one) for one in allowed),
        "dict": dict.fromkeys(allowed.tolist(), "any"),
        "mask": mask,
        "mask in a list": mask.tolist(),
        "strided mask": np.repeat(mask, 2)[::2],
    }


FILTERS = list(all_filters(np.array([1])))


@pytest.mark.parametrize(
    "look_up", [0, filters.ITEMS_PER_LOOKUP, ROWS]
)  # each id in each run, or the ids of runs in the filter
@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_all_types_are_equivalent(name: str, look_up: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "ITEMS_PER_LOOKUP", look_up)
    index, ids, _ = filled("cell")
    allowed = ids[ids % 3 == 1][:200]
    expected = index.search(Q, 10, candidates=50, filter=allowed)
    assert np.isin(expected.ids, allowed).all()
    assert_same(index.search(Q, 10, candidates=50, filter=all_filters(allowed)[name]), expected)


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_filtering_commutes_with_search(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    options = by_rank(rank, vectors)
    everything = index.search(Q, len(ids), candidates=ROWS, **options)
    choices: list[Any] = [range(100, 300), ids[ids % 2 == 1], [4], ids]
    for choice in choices:
        allowed = np.isin(everything.ids, np.asarray(choice))
        hits = index.search(Q, 12, candidates=ROWS, filter=choice, **options)
        count = int(np.isin(ids, np.asarray(choice)).sum())
        assert (hits.compared == count).all()
        assert (hits.ids >= 0).sum() == len(Q) * min(12, count)
        for q in range(len(Q)):
            kept = everything.ids[q][allowed[q]][:12]
            near = everything.distances[q][allowed[q]][:12]
            np.testing.assert_allclose(hits.distances[q][: len(kept)], near, rtol=1e-5, atol=ERROR)
            assert np.mean(hits.ids[q][: len(kept)] == kept) > 0.8  # others are as near


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_a_filter_leaves_k_hits_where_there_are_so_many(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    rng = np.random.default_rng(0)
    for count in (0, 1, 9, 10, 11, 40, 300):
        allowed = rng.choice(ids, count, replace=False)
        for candidates in (1, 15, 200):
            hits = index.search(Q, 10, candidates=candidates, rerank=10, filter=allowed, **by_rank(rank, vectors))
            assert ((hits.ids >= 0).sum(axis=1) == min(10, count)).all()
            assert np.isin(hits.ids[hits.ids >= 0], allowed).all()
            assert (hits.compared >= min(max(candidates, 10), count)).all()
            assert (hits.compared <= count).all()


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_few_items_that_a_filter_leaves_are_all_compared(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    hits = index.search(Q, 10, filter=ids, **by_rank(rank, vectors))
    assert (hits.compared == len(ids)).all()
    assert_same(hits, index.search(Q, 10, candidates=ROWS, filter=ids, **by_rank(rank, vectors)))


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimate 1,000 items by default, and 2 % of more, and scan no more than it costs."""
    monkeypatch.setattr(planner, "LIST_CANDIDATES", 1000)
    monkeypatch.setattr(planner, "COMPETITIVE_RATIO", 0)


@pytest.mark.usefixtures("probed")
@pytest.mark.parametrize(
    ("kind", "vectors"), [("linear", None), ("residual", None), ("cell", "float32"), ("graph", "float32")]
)
def test_a_filter_that_excludes_the_surroundings_of_a_query_finds_what_a_scan_finds(kind: str, vectors: Any) -> None:
    rows = twins.clustered(9000, seed=3)
    index = Index(fitted("linear" if kind == "graph" else kind), vectors=vectors, graph=kind == "graph")
    index.add(rows)
    index.compact()
    index.wait()
    order = np.argsort(twins.distances(Q[:1], rows, "l2")[0])
    near, far = order[:3000], order[3000:]
    queries = np.concatenate([rows[near[:20]], rows[far[-20:]]])  # of the latter, nothing is excluded
    hits, scanned = index.search(queries, filter=far), index.search(queries, filter=far, candidates=len(far))
    assert np.isin(hits.ids, far).all()
    assert np.mean(hits.distances <= scanned.distances[:, -1:] * (1 + 1e-5)) > 0.9
    assert np.array_equal(index.search(queries[0], filter=far).ids, hits.ids[0])
    chosen = index.search(queries, filter=far, candidates=50)  # what the caller chose holds
    assert (chosen.compared < len(far)).all()
    fetched: list[int] = []

    def fetch(ids: NDArray[np.int64]) -> Any:
        fetched.extend(ids.tolist())
        return rows[ids]

    reranked = index.search(queries[:3], filter=far, vectors=fetch, rerank=100)
    assert len(fetched) <= 3 * 100  # vectors that the caller fetches are only reranked by
    assert np.isin(reranked.ids, far).all()
    known = dict(zip(fetched, rows[fetched], strict=True))
    assert_same(index.search(queries[:3], filter=far, vectors=known, rerank=100), reranked)


@pytest.mark.parametrize("vectors", [None, "float32"])
def test_a_filter_of_nearly_all_ids_finds_what_a_scan_finds(vectors: Any) -> None:
    rows = twins.clustered(4000, seed=3)
    index = Index(fitted("cell"), vectors=vectors)
    index.add(rows)
    order = np.argsort(twins.distances(Q[:1], rows, "l2")[0])
    for near in (order[:4], order[:30]):  # fewer than k, and more than twice as many
        allowed = np.setdiff1d(np.arange(len(rows)), near)
        hits, scanned = index.search(Q, filter=allowed), index.search(Q, filter=allowed, candidates=len(rows))
        assert np.isin(hits.ids, allowed).all()
        assert np.mean(hits.ids == scanned.ids) > 0.95
        mask = np.isin(np.arange(len(rows)), allowed)
        assert_close(index.search(Q, filter=mask), hits)
        given = dict(zip(allowed.tolist(), rows[allowed], strict=True))  # and no others
        assert np.isin(index.search(Q, filter=allowed, vectors=given).ids, allowed).all()


@pytest.mark.parametrize(
    "empty", [[], (), set(), np.zeros(0), np.zeros(ROWS, dtype=bool), range(0), [ROWS], [0], "gone"]
)
def test_a_filter_may_leave_nothing(empty: Any) -> None:
    index = filled("cell").index
    kept = np.arange(0, ROWS, 7) if isinstance(empty, str) else empty  # removed all of them
    for candidates in (1, ROWS):
        hits = index.search(Q, 3, candidates=candidates, filter=kept)
        assert (hits.ids == -1).all()
        assert (hits.compared == 0).all()
    assert index.range_search(Q, 1e9, filter=kept)[0].ids.tolist() == []


@pytest.mark.parametrize("one", [8, np.int64(8), np.array(8), np.uint8(8)])
def test_one_id_is_a_filter_too(one: Any) -> None:
    assert filled("cell").index.search(Q, 2, filter=one).ids.tolist() == [[8, -1]] * len(Q)


def test_a_mask_of_integers_is_no_filter() -> None:
    index = filled("cell").index
    with pytest.raises(InvalidInput, match=r"mask\.astype\(bool\)"):
        index.search(Q, 2, filter=np.ones(len(index), dtype=int))
    assert index.search(Q[0], 1, filter=[1, 0]).ids.tolist() == [1]


class Unreadable:
    """As a tensor that NumPy does not read."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("got unsupported ScalarType BFloat16")


def test_what_numpy_does_not_read_is_refused_with_the_remedy() -> None:
    index: Any = filled("cell").index
    for queries in (Unreadable(), [[1.0, 2.0], [3.0]]):
        for search in (index.search, lambda q: index.neighborhood(q, size=1), index.add):
            with pytest.raises(InvalidInput, match=r"must (be|have).*(X\.detach\(\)|same number of features)"):
                search(queries)
    with pytest.raises(InvalidInput, match="filter must be ids, or a mask by id, got bytes"):
        index.search(Q, filter=b"ab")
    for candidates in (None, 20, ROWS):
        with pytest.raises(InvalidInput, match="rerank must be an integer of at least 1"):
            index.search(Q[0], candidates=candidates, rerank=0)
    with pytest.raises(InvalidInput, match=r"give all \d+ bits"):
        index.search(index.codes(index.ids[:2]).prefix(8))


@pytest.mark.parametrize("single", [True, False])
def test_queries_with_masked_values_are_refused(single: bool) -> None:
    rows = np.ma.masked_array(Q, mask=True)
    with pytest.raises(InvalidInput, match="masked values"):
        filled("cell").index.search(rows[0] if single else rows)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
def test_given_vectors_of_any_type_are_compared_by_the_metric(metric: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    items, queries = rng.integers(1, 9, (20, 4)).astype(dtype), rng.integers(1, 9, (3, 4)).astype(np.float64)
    keys = rng.integers(0, 20, (3, 5))
    if metric == "cosine":
        queries /= np.linalg.norm(queries, axis=1)[:, None]  # as a plan gives them
    found = GivenVectors(items, 4).rerank(queries, keys, metric, 1)
    chosen = items[keys].astype(np.float64)  # (queries, keys, features)
    products = np.einsum("qf,qkf->qk", queries, chosen)
    norms = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(chosen, axis=2)
    squares = np.square(chosen - queries[:, None]).sum(axis=2)
    expected = {"l2": squares, "cosine": 2 - 2 * products / norms, "inner": -products}
    np.testing.assert_allclose(found, expected[metric], rtol=1e-4, atol=1e-5)
