"""Search: with all candidates it is exhaustive, with fewer it finds part; filters, radii and evaluation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import CellCoder, Codes, Index, LinearCoder
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index import Neighborhood
from nestcode.search.hits import Evaluation, Hits, RangeHits
from tests import twins
from tests.search.searching import (
    ERROR,
    FEATURES,
    KINDS,
    ROWS,
    Filled,
    Q,
    X,
    ask,
    assert_close,
    assert_same,
    bare,
    filled,
    fitted,
    kinds,
    metrics,
    plain,
    ranks,
)

# All candidates


@ranks
@metrics
@kinds
def test_with_all_candidates_it_is_an_exhaustive_search(kind: str, own: str, metric: str, rank: str) -> None:
    index, ids, vectors = some = filled(kind, own)
    expected = some.distances(Q, metric, rank)
    for k, candidates in ((1, len(ids)), (10, 10**30), (len(ids) + 5, 1)):
        hits = index.search(Q, k, candidates=candidates, **ask(rank, vectors, metric))
        twins.check_all(hits, expected, ids, ERROR)
        assert (hits.compared == len(ids)).all()
        assert (hits.ids >= 0).sum() == len(Q) * min(k, len(ids))


@pytest.mark.parametrize("kind", [*KINDS, "bare"])
def test_with_all_candidates_bits_are_compared_exhaustively(kind: str) -> None:
    index, ids, _ = filled(kind) if kind != "bare" else bare()
    queries = fitted("cell" if kind == "bare" else kind).encode(Q)
    differing = twins.hamming(queries.bits(), index.codes(ids).bits())
    for k in (1, 10, 100, len(ids) + 5):
        hits = index.search(queries, k, candidates=len(ids))
        found, near = twins.nearest(differing.astype(float), ids, k)
        assert np.array_equal(hits.ids, found)  # of items as near the smallest ids
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
        asked = ask(rank, X)
        one, two = (each.search(Q, 20, candidates=ROWS, **asked) for each in (index, other))
        assert_same(one, two) if rank == "hamming" else assert_close(one, two)


@kinds
def test_items_as_near_come_by_id(kind: str) -> None:
    """Rows of whole numbers, whose distances have no rounding errors: many are equal."""
    rows = np.random.default_rng(0).integers(-2, 3, (ROWS, FEATURES)).astype(np.float32)
    index = plain(kind, rows[::-1])
    ids = np.arange(ROWS)
    found, near = twins.nearest(twins.distances(rows[:20], rows[::-1], "l2"), ids, 50)
    for queries in (rows[:20], rows[:1]):
        hits = index.search(queries, 50, candidates=ROWS, vectors=rows[::-1])
        assert np.array_equal(hits.distances, near[: len(queries)])
        assert np.array_equal(hits.ids, found[: len(queries)])


# Fewer candidates


def cell_distances(some: Filled, metric: str, bits: int) -> twins.Doubles:
    """From each query to what the first bits of each item decode to."""
    coder = some.index.coder
    assert coder is not None
    queries = Q / np.linalg.norm(Q, axis=1, keepdims=True) if metric == "cosine" else Q
    return twins.distances(queries, coder.decode(some.index.codes(some.ids).prefix(bits)), metric)


def chosen(cells: NDArray[np.int64], distances: twins.Doubles, candidates: int) -> NDArray[np.bool_]:
    """Which items a query looks at: those of the nearest cells until there are enough."""
    order = np.lexsort((cells, distances))
    return np.isin(cells, cells[order[:candidates]])


def prefixes(codes: Codes, bits: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = codes.bits()[:, :bits] @ (1 << np.arange(bits)[::-1])
    return numbers


@ranks
@metrics
@kinds
def test_it_looks_at_the_nearest_cells_and_ranks_all_that_they_hold(
    kind: str, own: str, metric: str, rank: str
) -> None:
    index, ids, vectors = some = filled(kind, own)
    expected = some.distances(Q, metric, rank)
    index.search(Q[0])
    bits = index._searcher._latest[False][1].list_bits
    assert bits > 2
    near, cells = cell_distances(some, metric, bits), prefixes(index.codes(ids), bits)
    for candidates in (10, 100, 500):
        hits = index.search(Q, 10, candidates=candidates, rerank=ROWS, **ask(rank, vectors, metric))
        for q in range(len(Q)):
            mask = chosen(cells, near[q], candidates)
            one = Hits(hits.ids[q : q + 1], hits.distances[q : q + 1], hits.compared[q])
            assert hits.compared[q] == mask.sum()
            twins.check_all(one, expected[q : q + 1, mask], ids[mask], ERROR)


@pytest.mark.parametrize("width", [40, 8, 7, 1])
def test_bits_are_compared_in_the_cells_most_like_the_query(width: int) -> None:
    index, ids, _ = bare(width)
    queries = fitted("cell").encode(Q).prefix(width)
    index.search(queries)
    bits = index._searcher._latest[True][1].list_bits
    assert bits == min(4, width)
    codes = index.codes(ids)
    differing = twins.hamming(queries.bits(), codes.bits()).astype(float)
    near = twins.hamming(queries.bits()[:, :bits], codes.bits()[:, :bits]).astype(float)
    cells = prefixes(codes, bits)
    for candidates in (1, 100, 600):
        hits = index.search(queries, 10, candidates=candidates)
        for q in range(len(Q)):
            mask = chosen(cells, near[q], max(candidates, 10))
            assert hits.compared[q] == mask.sum()
            assert np.array_equal(hits.distances[q], twins.nearest(differing[q : q + 1, mask], ids[mask], 10)[1][0])
        twins.check_hits(hits, differing, ids)


EFFORTS = [1, 20, 50, 100, 200, 400, 800, ROWS]


@pytest.mark.parametrize("rank", ["hamming", "asymmetric", "exact"])
@kinds
def test_more_candidates_never_find_less_of_any_query(kind: str, rank: str) -> None:
    """With one stage of ranking, or all candidates in the second one."""
    index, _, vectors = filled(kind)
    before = None
    for candidates in EFFORTS:
        hits = index.search(Q, 10, candidates=candidates, rerank=ROWS, **ask(rank, vectors))
        if before is not None:
            assert (hits.distances <= before.distances + ERROR).all()
            assert (hits.compared >= before.compared).all()
        before = hits


@metrics
@kinds
def test_more_candidates_find_more_on_average(kind: str, own: Any, metric: Any) -> None:
    index, _, vectors = filled(kind, own)
    for rank in ("asymmetric", "exact"):
        found = [index.evaluate(Q, 5, candidates=c, rerank=100, **ask(rank, vectors, metric)) for c in EFFORTS]
        recalls, compared = [one.recall for one in found], [one.compared for one in found]
        assert (np.diff(recalls) >= -0.02).all(), recalls
        assert (np.diff(compared) >= 0).all()
        assert recalls[-2] >= 0.9, recalls
        assert recalls[-1] == 1


@kinds
def test_k_are_found_whatever_the_effort(kind: str) -> None:
    index, ids, vectors = some = filled(kind)
    for rank in ("asymmetric", "exact"):
        expected = some.distances(Q, "l2", rank)
        for k, candidates, rerank in ((1, 1, 1), (10, 1, 1), (300, 5, 7), (len(ids), 1, None), (len(ids) - 1, 1, 2)):
            hits = index.search(Q, k, candidates=candidates, rerank=rerank, **ask(rank, vectors))
            assert (hits.ids >= 0).all()
            twins.check_hits(hits, expected, ids, ERROR)


@pytest.mark.parametrize("make", [lambda: LinearCoder(64), lambda: CellCoder(64, cells=32)], ids=["linear", "cell"])
def test_a_few_outliers_do_not_spoil_the_search(make: Callable[[], Coder]) -> None:
    rows = np.random.default_rng(0).standard_normal((4000, FEATURES)).astype(np.float32)
    queries = np.random.default_rng(1).standard_normal((50, FEATURES)).astype(np.float32)
    recalls = []
    for scale in (1, 30):
        rows[:1] *= scale
        index = Index(make().fit(rows))
        index.add(rows)
        recalls.append(index.evaluate(queries, 10, candidates=2000, rerank=200).recall)
    assert min(recalls) > 0.9, recalls


# What comes back


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_one_vector_has_one_answer_and_a_batch_has_arrays(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    for candidates in (50, ROWS):
        asked = {"candidates": candidates, **ask(rank, vectors)}
        one = index.search(Q[0], 7, **asked)
        assert one.ids.shape == one.distances.shape == (7,)
        assert type(one.compared) is int
        for n in (0, 1, 3):
            hits = index.search(Q[:n], 7, **asked)
            assert hits.ids.shape == hits.distances.shape == (n, 7)
            assert hits.compared.shape == (n,)
            assert hits.compared.dtype.kind == "i"
    codes = fitted(kind).encode(Q)
    assert index.search(codes[:0], 7).ids.shape == (0, 7)
    assert index.search(codes[:2], 7).ids.shape == (2, 7)
    assert repr(index.search(Q[0], 1)) == f"Hits(ids={index.search(Q[0], 1).ids.tolist()})"
    assert repr(index.search(Q, 1)) == "Hits(16 queries)"
    assert len(ids) == len(index)


@kinds
def test_codes_of_one_item_are_a_single_query_as_one_vector_is(kind: str) -> None:
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


def test_answers_may_be_changed_by_whoever_got_them() -> None:
    index = filled("cell").index
    for candidates in (50, ROWS):
        before = index.search(Q, candidates=candidates)
        hits = index.search(Q, candidates=candidates)
        hits.ids[:], hits.distances[:], hits.compared[:] = 0, 0, 0
        assert_same(index.search(Q, candidates=candidates), before)


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_a_batch_is_its_queries_one_by_one(kind: str, rank: str) -> None:
    index, _, vectors = filled(kind)
    many = twins.clustered(300, seed=3)  # more than are made ready at once
    for candidates in (100, ROWS):
        asked = {"candidates": candidates, "rerank": ROWS, **ask(rank, vectors)}
        batch = index.search(many, 10, **asked)
        for q in (0, 1, 100, 255, 256, 299):
            single = index.search(many[q], 10, **asked)
            assert_close(single, Hits(batch.ids[q], batch.distances[q], batch.compared[q]))
            assert single.compared == batch.compared[q]


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_any_number_of_threads_gives_the_same_answer(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    for candidates in (100, ROWS):
        for kept in (None, ids[::2]):
            one, two, all_of_them = (
                index.search(Q, candidates=candidates, filter=kept, threads=threads, **ask(rank, vectors))
                for threads in (1, 2, None)
            )
            assert_same(one, two)
            assert_same(one, all_of_them)


@pytest.mark.parametrize("make", [lambda: Index(fitted("cell")), lambda: emptied("cell"), lambda: emptied("linear")])
def test_where_nothing_is_nothing_is_found(make: Callable[[], Index]) -> None:
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
    assert index.evaluate(Q).recall == 1
    with pytest.raises(InvalidInput, match="tune needs items and queries, got 0 and"):
        index.tune(Q)


def emptied(kind: str) -> Index:
    index = plain(kind)
    index.remove(index.ids)
    return index


# Filters


def all_filters(allowed: NDArray[np.int64]) -> dict[str, Any]:
    mask = np.zeros(ROWS, dtype=bool)
    mask[allowed] = True
    wide = np.concatenate([mask, np.ones(50, dtype=bool)])
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
        "long mask": wide,
        "short mask": mask[: allowed.max() + 1],
        "mask in a list": mask.tolist(),
        "strided mask": np.repeat(mask, 2)[::2],
    }


FILTERS = list(all_filters(np.array([1])))


@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_all_kinds_are_the_same(name: str) -> None:
    index, ids, _ = filled("cell")
    allowed = ids[ids % 3 == 1][:200]
    expected = index.search(Q, 10, candidates=50, filter=allowed)
    assert np.isin(expected.ids, allowed).all()
    assert_same(index.search(Q, 10, candidates=50, filter=all_filters(allowed)[name]), expected)


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_filtering_commutes_with_ranking(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    asked = ask(rank, vectors)
    everything = index.search(Q, len(ids), candidates=ROWS, **asked)
    choices: list[Any] = [range(100, 300), ids[ids % 2 == 1], [4], ids]
    for choice in choices:
        allowed = np.isin(everything.ids, np.asarray(choice))
        hits = index.search(Q, 12, candidates=ROWS, filter=choice, **asked)
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
            hits = index.search(Q, 10, candidates=candidates, rerank=10, filter=allowed, **ask(rank, vectors))
            assert ((hits.ids >= 0).sum(axis=1) == min(10, count)).all()
            assert np.isin(hits.ids[hits.ids >= 0], allowed).all()
            assert (hits.compared >= min(max(candidates, 10), count)).all()
            assert (hits.compared <= count).all()


@pytest.mark.parametrize("empty", [[], (), set(), np.zeros(0), np.zeros(0, dtype=bool), range(0), [ROWS], [0], "gone"])
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


# All within a radius


@pytest.mark.parametrize("rank", ["asymmetric", "hamming", "exact"])
@kinds
def test_range_search_is_a_threshold_on_the_ranking(kind: str, rank: str) -> None:
    index, ids, vectors = filled(kind)
    asked = ask(rank, vectors)
    everything = index.search(Q, len(ids), candidates=ROWS, **asked)
    for share in (0, 0.003, 0.05, 0.4, 1):
        radius = float(np.quantile(everything.distances, share)) + 2 * ERROR
        found = index.range_search(Q, radius, candidates=ROWS, **asked)
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
def test_range_search_finds_all_candidates_within(kind: str, rank: str) -> None:
    """A radius that holds everything gives all items that were looked at."""
    index, ids, vectors = filled(kind)
    for candidates in (1, 30, 100, 300):
        for hits in index.range_search(Q, 1e6, candidates=candidates, **ask(rank, vectors)):
            assert len(hits.ids) == len(np.unique(hits.ids)) == hits.compared
            assert candidates <= hits.compared <= len(ids)
        kept = index.range_search(Q[0], 1e6, candidates=candidates, filter=ids[:200], **ask(rank, vectors))
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


# Evaluation


@metrics
@kinds
def test_all_candidates_have_recall_1(kind: str, own: Any, metric: Any) -> None:
    index, ids, vectors = filled(kind, own)
    for rank in ("asymmetric", "exact"):
        found = index.evaluate(Q, 10, candidates=ROWS, **ask(rank, vectors, metric))
        assert isinstance(found, Evaluation)
        assert found.recall == 1
        assert (found.compared, found.share, found.candidates) == (len(ids), 1, ROWS)
        assert found.seconds > 0


def test_recall_is_the_share_of_the_nearest_that_is_found() -> None:
    index, ids, vectors = some = filled("linear")
    truth, _ = twins.nearest(some.distances(Q, "l2", "exact"), ids, 5)
    for candidates in (5, 50, 300):
        hits = index.search(Q, 5, candidates=candidates, vectors=vectors)
        expected = np.mean([len(np.intersect1d(a, b)) / 5 for a, b in zip(hits.ids, truth, strict=True)])
        found = index.evaluate(Q, 5, candidates=candidates, vectors=vectors)
        assert found.recall == pytest.approx(expected)
        assert found.compared == hits.compared.mean()
        assert found.share == found.compared / len(ids)
    assert index.evaluate(Q[0], 5, vectors=vectors).recall <= 1
    assert index.evaluate(Q[:0], 5, vectors=vectors).recall == 1
    assert index.evaluate(fitted("linear").encode(Q), 5).recall <= 1
    assert index.evaluate(Q, 2 * ROWS, candidates=ROWS).recall == 1


@pytest.mark.parametrize("rank", ["asymmetric", "exact"])
@kinds
def test_tuning_reaches_its_target_with_few_candidates(kind: str, rank: str) -> None:
    index = plain(kind)
    asked = ask(rank, X)
    for target in (0.5, 0.9):
        found = index.tune(Q, target, k=5, **asked)
        assert found.recall >= target
        assert 1 <= found.candidates < ROWS
        assert (index.candidates, index.rerank) == (found.candidates, found.rerank)
        again = index.evaluate(Q, 5, **asked)  # by what it chose
        assert (again.recall, again.candidates, again.rerank) == (found.recall, found.candidates, found.rerank)
        assert_same(
            index.search(Q, 5, **asked),
            index.search(Q, 5, candidates=found.candidates, rerank=found.rerank, **asked),
        )
    assert index.tune(Q, 1, k=5, **asked).recall == 1
    assert index.tune(Q, 1.0, k=2 * ROWS, **asked).recall == 1
    assert index.tune(Q[0], np.float64(0.7), **asked).recall >= 0.7


def test_recall_of_codes_alone_is_that_among_vectors() -> None:
    """`exact` are the vectors to compare with, and the search does not see them."""
    index = plain("linear")
    found = index.search(Q, 5, candidates=300).ids
    nearest = ((Q[:, None] - X) ** 2).sum(axis=2).argsort(axis=1)[:, :5]
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), nearest.tolist(), strict=True)]
    assert index.evaluate(Q, 5, candidates=300, exact=X).recall == pytest.approx(np.mean(shared) / 5)
    assert index.evaluate(Q, 5, candidates=300, exact=X).recall < index.evaluate(Q, 5, candidates=300).recall


def test_any_that_are_as_near_will_do() -> None:
    """Rows of few values lie at few distances, and ids say little."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (1500, 16)).astype(np.float32)
    queries = rng.integers(0, 2, (20, 16)).astype(np.float32)
    index = Index(CellCoder(width=64).fit(rows))
    index.add(rows)
    found = index.search(queries, 5, candidates=300).ids
    nearest = np.sort(((queries[:, None] - rows) ** 2).sum(axis=2), axis=1)[:, 4:5]
    near = ((queries[:, None] - rows[found]) ** 2).sum(axis=2) <= nearest
    assert index.evaluate(queries, 5, candidates=300, exact=rows).recall == pytest.approx(near.mean())
    assert near.mean() > 0.9


def test_codes_are_no_vectors() -> None:
    index = plain("linear")
    for call in (index.search, index.evaluate, index.tune):
        with pytest.raises(InvalidInput, match="Codes are bits: give the items that were encoded"):
            call(Q, vectors=fitted("linear").encode(X))


def test_a_recall_that_codes_cannot_reach_is_told() -> None:
    index = Index(fitted("linear"), width=8)
    index.add(X)
    with pytest.warns(UserWarning, match=f"no candidate budget below all {ROWS} items reaches a recall of 0.99"):
        found = index.tune(Q, 0.99, exact=X)
    assert found.recall < 0.99
    assert index.candidates == found.candidates == ROWS


def test_where_codes_tell_little_more_are_ranked_again() -> None:
    """Many items with one code: only their vectors tell them apart."""
    rng = np.random.default_rng(0)
    crowd = np.concatenate([X, X[:1] + 1e-4 * rng.standard_normal((1000, X.shape[1])).astype(np.float32)])
    index = Index(fitted("cell"))
    index.add(crowd)
    queries = X[:1] + 1e-4 * rng.standard_normal((20, X.shape[1])).astype(np.float32)
    found = index.tune(queries, 0.5, k=2, vectors=crowd)
    assert found.recall >= 0.5
    assert found.rerank > 40 * 2
    assert found.candidates < len(crowd)


def test_bare_codes_are_tuned_too() -> None:
    index = bare().index
    found = index.tune(fitted("cell").encode(Q), 0.8)
    assert found.recall >= 0.8
    assert found.candidates < len(index)
    index.candidates = index.rerank = None
