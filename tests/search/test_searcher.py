"""Search from call to answer: with all candidates it is exhaustive, with fewer it finds part of that."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestcode import Index
from nestcode.errors import InvalidInput
from nestcode.index import Neighborhood
from nestcode.search.hits import Hits, RangeHits
from tests import twins
from tests.search.searching import (
    ERROR,
    FEATURES,
    KINDS,
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
    ranks,
)

# Exhaustive search


@ranks
@metrics
@kinds
def test_with_all_candidates_a_search_is_exhaustive(kind: str, own: str, metric: str, rank: str) -> None:
    index, ids, vectors = some = filled(kind, own)
    expected = some.distances(Q, metric, rank)
    for k, candidates in ((1, len(ids)), (10, 10**30), (len(ids) + 5, 1)):
        hits = index.search(Q, k, candidates=candidates, **by_rank(rank, vectors, metric))
        twins.check_all(hits, expected, ids, ERROR)
        assert (hits.compared == len(ids)).all()
        assert (hits.ids >= 0).sum() == len(Q) * min(k, len(ids))


@pytest.mark.parametrize("kind", [*KINDS, "bare"])
def test_with_all_candidates_a_search_by_codes_is_exhaustive(kind: str) -> None:
    index, ids, _ = filled(kind) if kind != "bare" else bare()
    queries = fitted("cell" if kind == "bare" else kind).encode(Q)
    differing = twins.hamming(queries.bits(), index.codes(ids).bits())
    for k in (1, 10, 100, len(ids) + 5):
        hits = index.search(queries, k, candidates=len(ids))
        found, near = twins.nearest(differing.astype(float), ids, k)
        assert np.array_equal(hits.ids, found)  # ties go to the smallest ids
        assert np.array_equal(hits.distances, near)
        if kind != "bare":
            assert_same(index.search(Q, k, candidates=len(ids), rank="hamming"), hits)


@kinds
def test_the_order_of_insertion_does_not_matter(kind: str) -> None:
    order = np.random.default_rng(0).permutation(ROWS)
    index, other = plain(kind), Index(fitted(kind))
    for part in np.array_split(order, 5):
        other.add(X[part], ids=part)
    for rank in ("asymmetric", "hamming", "exact"):
        options = by_rank(rank, X)
        one, two = (each.search(Q, 20, candidates=ROWS, **options) for each in (index, other))
        assert_same(one, two) if rank == "hamming" else assert_close(one, two)


@kinds
def test_ties_are_ordered_by_id(kind: str) -> None:
    """Rows of small integers, whose distances have no rounding errors: many are equal."""
    rows = np.random.default_rng(0).integers(-2, 3, (ROWS, FEATURES)).astype(np.float32)
    index = plain(kind, rows[::-1])
    ids = np.arange(ROWS)
    found, near = twins.nearest(twins.distances(rows[:20], rows[::-1], "l2"), ids, 50)
    for queries in (rows[:20], rows[:1]):
        hits = index.search(queries, 50, candidates=ROWS, vectors=rows[::-1])
        assert np.array_equal(hits.distances, near[: len(queries)])
        assert np.array_equal(hits.ids, found[: len(queries)])


# Fewer candidates


BUDGETS = [1, 20, 50, 100, 200, 400, 800, ROWS]


@pytest.mark.parametrize("rank", ["hamming", "asymmetric", "exact"])
@kinds
def test_more_candidates_never_find_farther_hits(kind: str, rank: str) -> None:
    """With all candidates reranked."""
    index, _, vectors = filled(kind)
    before = None
    for candidates in BUDGETS:
        hits = index.search(Q, 10, candidates=candidates, rerank=ROWS, **by_rank(rank, vectors))
        if before is not None:
            assert (hits.distances <= before.distances + ERROR).all()
            assert (hits.compared >= before.compared).all()
        before = hits


@metrics
@kinds
def test_recall_rises_with_the_candidate_budget(kind: str, own: Any, metric: Any) -> None:
    index, _, vectors = filled(kind, own)
    for rank in ("asymmetric", "exact"):
        found = [index.evaluate(Q, 5, candidates=c, rerank=100, **by_rank(rank, vectors, metric)) for c in BUDGETS]
        recalls, compared = [one.recall for one in found], [one.compared for one in found]
        assert (np.diff(recalls) >= -0.02).all(), recalls
        assert (np.diff(compared) >= 0).all()
        assert recalls[-2] >= 0.9, recalls
        assert recalls[-1] == 1


@kinds
def test_k_hits_are_found_whatever_the_budget(kind: str) -> None:
    index, ids, vectors = some = filled(kind)
    for rank in ("asymmetric", "exact"):
        expected = some.distances(Q, "l2", rank)
        for k, candidates, rerank in ((1, 1, 1), (10, 1, 1), (300, 5, 7), (len(ids), 1, None), (len(ids) - 1, 1, 2)):
            hits = index.search(Q, k, candidates=candidates, rerank=rerank, **by_rank(rank, vectors))
            assert (hits.ids >= 0).all()
            twins.check_hits(hits, expected, ids, ERROR)


# Results


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_one_vector_gives_one_row_and_a_batch_gives_arrays(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    for candidates in (50, ROWS):
        options = {"candidates": candidates, **by_rank(rank, vectors)}
        one = index.search(Q[0], 7, **options)
        assert one.ids.shape == one.distances.shape == (7,)
        assert type(one.compared) is int
        for n in (0, 1, 3):
            hits = index.search(Q[:n], 7, **options)
            assert hits.ids.shape == hits.distances.shape == (n, 7)
            assert hits.compared.shape == (n,)
            assert hits.compared.dtype.kind == "i"
    codes = fitted(kind).encode(Q)
    for n in (0, 1, 3):  # the last batch of a loop has any number of queries
        assert index.search(codes[:n], 7).ids.shape == (n, 7)
        assert len(index.range_search(codes[:n], 7)) == len(index.neighborhood(codes[:n], size=5)) == n
    assert repr(index.search(Q[0], 1)) == f"Hits(ids={index.search(Q[0], 1).ids.tolist()})"
    assert repr(index.search(Q, 1)) == "Hits(16 queries)"
    assert len(ids) == len(index)


@kinds
def test_one_code_is_a_single_query_like_one_vector(kind: str) -> None:
    """In `search`, `range_search` and `neighborhood` alike."""
    index, coder = filled(kind).index, fitted(kind)
    for candidates in (50, ROWS):
        by_vector = index.search(Q[3], 7, rank="hamming", candidates=candidates)
        by_code = index.search(coder.encode(Q)[3], 7, candidates=candidates)
        assert by_code.ids.shape == by_code.distances.shape == (7,)
        assert type(by_code.compared) is int
        assert_same(by_code, by_vector)
        within = index.range_search(coder.encode(Q)[3], 9, candidates=candidates)
        assert_same(within, index.range_search(Q[3], 9, rank="hamming", candidates=candidates))
    for one in (Q[3], coder.encode(Q)[3]):
        hood = index.neighborhood(one, size=5)
        assert isinstance(hood, Neighborhood)
        assert hood.length == index.neighborhood(Q, size=5).length[3]
        assert hood.ids.tolist() == index.neighborhood(Q, size=5)[3].ids.tolist()


def test_hits_may_be_written_to() -> None:
    index = filled("cell").index
    for candidates in (50, ROWS):
        before = index.search(Q, candidates=candidates)
        hits = index.search(Q, candidates=candidates)
        hits.ids[:], hits.distances[:], hits.compared[:] = 0, 0, 0
        assert_same(index.search(Q, candidates=candidates), before)


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_a_batch_equals_its_queries_one_by_one(kind: str, rank: str) -> None:
    index, _, vectors = filled(kind)
    many = twins.clustered(300, seed=3)  # more than are projected at once
    for candidates in (100, ROWS):
        options = {"candidates": candidates, "rerank": ROWS, **by_rank(rank, vectors)}
        batch = index.search(many, 10, **options)
        for q in (0, 1, 100, 255, 256, 299):
            single = index.search(many[q], 10, **options)
            assert_close(single, Hits(batch.ids[q], batch.distances[q], batch.compared[q]))
            assert single.compared == batch.compared[q]


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_threads_do_not_change_the_hits(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    for candidates in (100, ROWS):
        for kept in (None, ids[::2]):
            one, two, all_of_them = (
                index.search(Q, candidates=candidates, filter=kept, threads=threads, **by_rank(rank, vectors))
                for threads in (1, 2, None)
            )
            assert_same(one, two)
            assert_same(one, all_of_them)


@pytest.mark.parametrize("make", [lambda: Index(fitted("cell")), lambda: emptied("cell"), lambda: emptied("linear")])
def test_an_empty_index_finds_nothing(make: Callable[[], Index]) -> None:
    index = make()
    codes = fitted("cell").encode(Q)
    calls: list[dict[str, Any]] = [{}, {"candidates": 1}, {"filter": [3]}, {"vectors": X}, {"rank": "hamming"}]
    for queries in (Q, Q[:0], codes, codes[:0]):
        for call in calls if queries is Q else calls[:3]:
            hits = index.search(queries, 3, **call)
            assert hits.ids.shape == (len(queries), 3)
            assert (hits.ids == -1).all()
            assert np.isposinf(hits.distances).all()
            assert (hits.compared == 0).all()
    assert index.search(Q[0], 3).ids.tolist() == [-1, -1, -1]
    assert index.range_search(Q[0], 1e9).ids.tolist() == []
    for measure in (index.evaluate, index.tune):  # no recall of nothing
        with pytest.raises(InvalidInput, match=f"items that the filter allows, got {len(Q)} and 0: add items"):
            measure(Q)


def emptied(kind: str) -> Index:
    index = plain(kind)
    index.remove(index.ids)
    return index


# Range search


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_range_search_is_a_threshold_on_distances(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    options = by_rank(rank, vectors)
    everything = index.search(Q, len(ids), candidates=ROWS, **options)
    for share in (0, 0.003, 0.05, 0.4, 1):
        radius = float(np.quantile(everything.distances, share)) + 2 * ERROR
        found = index.range_search(Q, radius, candidates=ROWS, **options)
        assert isinstance(found, RangeHits)
        assert len(found) == len(list(found)) == len(Q)
        for q, hits in enumerate(found):
            inside = everything.distances[q] <= radius
            assert abs(len(hits.ids) - inside.sum()) <= 1  # rounding
            assert len(np.setxor1d(hits.ids, everything.ids[q][inside])) <= 1
            assert (hits.distances <= radius).all()
            assert (np.diff(hits.distances) >= 0).all()
            assert hits.compared == len(ids)
        assert repr(found) == f"RangeHits(16 queries, {sum(len(hits.ids) for hits in found)} items)"


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_range_search_finds_all_candidates_within_the_radius(kind: str, rank: str) -> None:
    """An unbounded radius gives all candidates."""
    index, ids, vectors = filled(kind)
    for candidates in (1, 30, 100, 300):
        for hits in index.range_search(Q, 1e6, candidates=candidates, **by_rank(rank, vectors)):
            assert len(hits.ids) == len(np.unique(hits.ids)) == hits.compared
            assert candidates <= hits.compared <= len(ids)
        kept = index.range_search(Q[0], 1e6, candidates=candidates, filter=ids[:200], **by_rank(rank, vectors))
        assert len(kept.ids) == kept.compared <= 200


def test_range_search_of_one_and_of_none() -> None:
    index = filled("cell").index
    one = index.range_search(Q[0], 3.0)
    assert isinstance(one, Hits)
    assert type(one.compared) is int
    batch = index.range_search(Q[:1], 3)
    assert one.ids.tolist() == batch[0].ids.tolist()
    assert len(index.range_search(Q[:0], 3)) == 0
    for radius in (-1, -1e30, 0, 1e-3):
        below = index.range_search(Q[0], radius, candidates=ROWS)
        assert below.ids.shape == below.distances.shape == (0,)
        assert below.compared == len(index)
    assert index.range_search(Q[0], -1e-3, rank="hamming").ids.tolist() == []
    products = index.range_search(Q[0], -90.0, metric="inner", candidates=ROWS)  # of at least 90
    assert len(products.ids) > 0
    assert (products.distances <= -90).all()
