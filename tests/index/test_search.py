"""Search: with all candidates it is exhaustive, with fewer it finds part; what it takes, and what it refuses."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import CellCoder, Codes, Index, LinearCoder, ResidualCoder
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.index import state
from nestcode.index.hits import Evaluation, Hits, RangeHits
from tests import twins

ROWS, FEATURES = 1200, 12
X = twins.clustered(ROWS)
FRESH = twins.clustered(ROWS, seed=1)  # what items are updated to
Q = twins.clustered(16, seed=2)
KINDS = ["linear", "residual", "cell"]
METRICS = [("l2", "l2"), ("l2", "cosine"), ("l2", "inner"), ("cosine", "cosine")]  # the coder's, the search's
ERROR = 2e-4  # of distances between rows whose squared lengths are about 100

kinds = pytest.mark.parametrize("kind", KINDS)
metrics = pytest.mark.parametrize(("own", "metric"), METRICS)
ranks = pytest.mark.parametrize("rank", ["asymmetric", "exact"])


@cache
def fitted(kind: str, metric: Any = "l2") -> Coder:
    coders: dict[str, Coder] = {
        "linear": LinearCoder(40, metric=metric),
        "residual": ResidualCoder(24, metric=metric, beams=2),
        "cell": CellCoder(40, metric=metric, cells=16),
    }
    return coders[kind].fit(X)


@dataclass(frozen=True)
class Filled:
    """An index, what it holds, and the vectors of that by id."""

    index: Index
    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.ids, self.vectors))

    def distances(self, queries: NDArray[Any], metric: str, rank: str = "asymmetric") -> twins.Doubles:
        """From queries to all items, in the order of `ids`."""
        rows = self.vectors[self.ids] if rank == "exact" else self.index.reconstruct(self.ids)
        return twins.distances(queries, rows, metric)


def fill(index: Index, vectors: bool = True) -> Filled:
    """Three segments and a tail, with items removed from all of them and updated; as vectors or as codes."""
    rows, changed = X.copy(), np.arange(5, ROWS, 11)
    removed = np.arange(0, ROWS, 7)
    rows[changed] = FRESH[changed]
    assert index.coder is not None or not vectors
    items, fresh = (part if vectors else fitted("cell").encode(part).prefix(index.width) for part in (X, FRESH))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "RATIO", 0)  # so that nothing is merged
        for first, last in ((0, 700), (700, 900), (900, 1100), (1100, ROWS)):
            index.add(items[first:last], ids=np.arange(first, last))
            if last < ROWS:
                index._live.change(state.State.sealed)
        index.update(fresh[changed], changed)
        index.remove(removed)
    assert len(index._live.state.parts) == 3
    assert len(index._live.state.tail) > 0
    return Filled(index, np.setdiff1d(np.arange(ROWS), removed), rows)


@cache
def filled(kind: str, metric: Any = "l2", width: int | None = None) -> Filled:
    return fill(Index(fitted(kind, metric), width=width))


@cache
def bare(width: int = 40) -> Filled:
    return fill(Index(width=width), vectors=False)


def plain(kind: str, rows: NDArray[Any] = X) -> Index:
    """One segment."""
    index = Index(fitted(kind))
    index.add(rows)
    index.compact()
    return index


def ask(rank: str, vectors: NDArray[Any], metric: str | None = None) -> dict[str, Any]:
    """How to ask for a rank."""
    return {"rank": rank, "metric": metric, "vectors": vectors if rank == "exact" else None}


def assert_same(a: Hits, b: Hits) -> None:
    for one, other in zip(vars(a).values(), vars(b).values(), strict=True):
        assert np.array_equal(one, other)


def assert_close(a: Hits, b: Hits) -> None:
    """The same but for rounding, which may exchange items that are as near."""
    assert np.array_equal(a.ids >= 0, b.ids >= 0)
    np.testing.assert_allclose(a.distances, b.distances, rtol=1e-4, atol=ERROR)
    assert np.mean(a.ids == b.ids) > 0.7


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
    bits = index._views["coder"][1].bits
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
    bits = index._views["hamming"][1].bits
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
    assert index.search(codes[0], 7).ids.shape == (1, 7)
    assert index.search(codes[:0], 7).ids.shape == (0, 7)
    assert repr(index.search(Q[0], 1)) == f"Hits(ids={index.search(Q[0], 1).ids.tolist()})"
    assert repr(index.search(Q, 1)) == "Hits(16 queries)"
    assert len(ids) == len(index)


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
    assert index.tune(Q).recall == 1


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


# Life of an index


@kinds
def test_changes_are_seen_by_the_next_search(kind: str) -> None:
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
def test_merging_compacting_and_saving_change_no_answer(kind: str, tmp_path: Path) -> None:
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
    assert len(index._live.state.parts) == 1
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


def test_indexes_that_were_merged_share_no_removed_items() -> None:
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


def test_searches_see_one_state_while_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 5 equal items come and go as a whole, so whoever finds one of them finds all."""
    monkeypatch.setattr(state, "TAIL", 16)
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


def test_a_coder_that_is_fitted_again_is_another_one() -> None:
    coder = CellCoder(24, cells=4).fit(X)
    index = Index(coder)
    index.add(X)
    before = index.search(Q, candidates=ROWS)
    coder.fit(100 * X[::-1] + 7)
    assert_same(index.search(Q, candidates=ROWS), before)


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


def test_bare_codes_are_tuned_too() -> None:
    index = bare().index
    found = index.tune(fitted("cell").encode(Q), 0.8)
    assert found.recall >= 0.8
    assert found.candidates < len(index)
    index.candidates = index.rerank = None


# Data of all kinds


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.float32, ">f4", np.uint8, np.int16, np.int64, bool])
def test_queries_and_vectors_may_be_numbers_of_any_type(dtype: Any) -> None:
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


def test_vectors_may_be_maps_views_and_lists(tmp_path: Path) -> None:
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
    for queries in (wide[::2, ::2][:5], np.asfortranarray(X[:5]), X[4::-1][::-1], np.repeat(X, 2, axis=0)[:10:2]):
        assert_close(index.search(queries, vectors=X), index.search(X[:5], vectors=X))


@pytest.mark.parametrize(("offset", "dtype"), [(1e3, np.float32), (1e9, np.float64)])
def test_distances_are_exact_far_from_zero(offset: float, dtype: Any) -> None:
    """Squares of 1e6 leave nothing of differences of 1 in a float32, and doubles of 1e9 are not even floats."""
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


@pytest.mark.parametrize("power", [-40, 40])
@kinds
def test_the_unit_of_the_data_does_not_matter(kind: str, power: int) -> None:
    """Powers of two change no digit."""
    scale = np.float32(2.0**power)
    coder = type(fitted(kind))(**fitted(kind).get_params()).fit(X * scale)
    index, scaled = plain(kind), Index(coder)
    scaled.add(X * scale)
    for candidates in (100, ROWS):
        for vectors in (None, X):
            hits = scaled.search(Q * scale, candidates=candidates, vectors=None if vectors is None else vectors * scale)
            expected = index.search(Q, candidates=candidates, vectors=vectors)
            np.testing.assert_allclose(hits.distances / scale / scale, expected.distances, rtol=1e-3, atol=ERROR)
            assert np.mean(hits.ids == expected.ids) > 0.9


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@metrics
@kinds
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:underflow", "ignore:divide by zero")
def test_numbers_may_be_huge_and_tiny(kind: str, own: Any, metric: Any, scale: float) -> None:
    """Where squares leave the range of float32 nothing is lost; angles have no size."""
    rows, queries = ((scale * part.astype(np.float64)).astype(np.float32) for part in (X[:400], Q))
    coder = type(fitted(kind))(**{**fitted(kind).get_params(), "metric": own}).fit(rows)
    index = Index(coder)
    index.add(rows)
    for candidates in (40, 400):
        for rank in ("asymmetric", "exact"):
            hits = index.search(queries, 5, candidates=candidates, rerank=400, **ask(rank, rows, metric))
            assert (hits.ids >= 0).all()
            assert all(len(set(row.tolist())) == 5 for row in hits.ids)
            assert not np.isnan(hits.distances).any()
            if metric == "cosine" and (rank == "exact" or own == "cosine"):
                expected = twins.distances(Q, X[:400] if rank == "exact" else index.reconstruct(range(400)), "cosine")
                twins.check_hits(hits, expected, np.arange(400), ERROR)


def test_vectors_of_no_direction_have_an_angle_to_none() -> None:
    rows = np.concatenate([X[:100], np.zeros((3, FEATURES), dtype=np.float32)])
    index = Index(LinearCoder(32, metric="cosine").fit(rows))
    index.add(rows)
    queries = np.concatenate([Q[:2], np.zeros((1, FEATURES))])
    for candidates in (60, len(rows)):
        hits = index.search(queries, len(rows), candidates=candidates, rerank=200, vectors=rows)
        for q in range(2):
            assert hits.distances[q][np.isin(hits.ids[q], [100, 101, 102])].tolist() == [1, 1, 1]
        assert set(hits.distances[2].tolist()) == {1, 2}
        assert hits.ids[2, :3].tolist() == [100, 101, 102]


@pytest.mark.parametrize("rows", [1, 2, 3, 40], ids="{} rows".format)
@kinds
@pytest.mark.filterwarnings("ignore:the data carries")
def test_few_and_equal_items_are_found(kind: str, rows: int) -> None:
    """One item, fewer than cells, and all of them equal."""
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
@pytest.mark.filterwarnings("ignore:the data carries")
def test_data_without_any_variance_is_searched(kind: str) -> None:
    """Codes that say nothing; and some features that are constant."""
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


@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 9, 17, 24])
@kinds
def test_an_index_may_keep_any_number_of_bits(kind: str, width: int) -> None:
    """Also fewer than name a cell, which are 4 here, and no whole number of bytes."""
    index, ids, vectors = some = filled(kind, width=width)
    for rank in ("asymmetric", "exact"):
        expected = some.distances(Q, "l2", rank)
        for candidates in (10, 200, ROWS):
            hits = index.search(Q, candidates=candidates, rerank=ROWS, **ask(rank, vectors))
            twins.check_hits(hits, expected, ids, ERROR)
            assert (hits.ids >= 0).all()
        twins.check_all(hits, expected, ids, ERROR)
    codes = fitted(kind).encode(Q)
    assert_same(index.search(codes, candidates=50), index.search(codes.prefix(width), candidates=50))


def test_many_items_of_few_bits_are_searched() -> None:
    """More cells than codes have bits for."""
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
WHOLE = "must be a whole number of at least 1, got"
MISTAKES: Mistakes = {
    **{
        f"{name} {value!r}": (
            lambda index, name=name, value=value: index.search(Q, **{name: value}),  # type: ignore[misc]
            f"{name} {WHOLE} {value!r}",
        )
        for name in ("k", "candidates", "rerank", "threads")
        for value in (0, -1, 1.5, "10", True)
    },
    "k None": (lambda index: index.search(Q, None), f"k {WHOLE} None"),  # type: ignore[arg-type]
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
    "a vector": (lambda index: index.search(Q, vectors=X[0]), "vectors must be numbers in 2 dimensions"),
    "images": (lambda index: index.search(Q, vectors=X.reshape(-1, 3, 4)), "got float32 of shape (1200, 3, 4)"),
    "words for vectors": (lambda index: index.search(Q, vectors=X.astype(str)), "vectors must be numbers"),
    "complex vectors": (lambda index: index.search(Q, vectors=X.astype(complex)), "vectors must be numbers"),
    "objects for vectors": (lambda index: index.search(Q, vectors=X.astype(object)), "vectors must be numbers"),
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
    "a number": (lambda index: index.search(3.0), "data must have 2 dimensions"),
    "nothing": (lambda index: index.search([]), "the 12 features the coder was fitted on, got 0"),
    "None": (lambda index: index.search(None), "data must"),  # type: ignore[arg-type]
    "words": (lambda index: index.search(["a"] * 12), "data must be numbers"),
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
    "filter of floats": (lambda index: index.search(Q, filter=[1.0, 2.0]), "ids must be whole numbers"),
    "filter of NaN": (lambda index: index.search(Q, filter=[float("nan")]), "ids must be whole numbers"),
    "filter of words": (lambda index: index.search(Q, filter=["a"]), "ids must be whole numbers"),
    "a word for a filter": (lambda index: index.search(Q, filter="12"), "ids must be whole numbers"),
    "filter in 2 dimensions": (lambda index: index.search(Q, filter=[[1, 2]]), "in 1 dimension"),
    "mask in 2 dimensions": (
        lambda index: index.search(Q, filter=np.ones((3, 400), dtype=bool)),
        "a filter's mask has 1 dimension, an entry for each id, got shape (3, 400)",
    ),
    "True for a filter": (lambda index: index.search(Q, filter=True), "a filter's mask has 1 dimension"),
    "negative filter": (lambda index: index.search(Q, filter=[1, -1]), "ids must be from 0 to 2^63 - 1, got -1 to 1"),
    "huge filter": (lambda index: index.search(Q, filter=[2**63]), "ids must be from 0 to 2^63 - 1"),
    "filter beyond 64 bits": (lambda index: index.search(Q, filter=[2**64]), "ids must be whole numbers"),
    "objects for a filter": (lambda index: index.search(Q, filter=[None, object()]), "ids must be whole numbers"),  # type: ignore[arg-type]
    "half an id": (lambda index: index.search(Q, filter=0.5), "ids must be whole numbers"),
    "radius NaN": (lambda index: index.range_search(Q, float("nan")), "radius must be a finite number, got nan"),
    "radius infinite": (lambda index: index.range_search(Q, float("inf")), "radius must be a finite number, got inf"),
    "radius None": (lambda index: index.range_search(Q, None), "radius must be a finite number, got None"),  # type: ignore[arg-type]
    "radius in words": (lambda index: index.range_search(Q, "1"), "radius must be a finite number, got '1'"),  # type: ignore[arg-type]
    "two radii": (lambda index: index.range_search(Q, [1, 2]), "radius must be a finite number"),  # type: ignore[arg-type]
    "candidates of a range": (lambda index: index.range_search(Q, 1, candidates=0), f"candidates {WHOLE} 0"),
    "NaN in a range": (lambda index: index.range_search(NAN, 1), "data must be finite"),
    "recall 0": (lambda index: index.tune(Q, 0), "target_recall must be above 0 and at most 1, got 0"),
    "recall 1.5": (lambda index: index.tune(Q, 1.5), "target_recall must be above 0 and at most 1, got 1.5"),
    "recall NaN": (lambda index: index.tune(Q, float("nan")), "target_recall must be above 0 and at most 1, got nan"),
    "recall in words": (lambda index: index.tune(Q, "all"), "target_recall must be above 0 and at most 1, got 'all'"),  # type: ignore[arg-type]
    "tune k": (lambda index: index.tune(Q, k=0), f"k {WHOLE} 0"),
    "tune NaN": (lambda index: index.tune(NAN), "data must be finite"),
    "evaluate k": (lambda index: index.evaluate(Q, 0), f"k {WHOLE} 0"),
    "evaluate candidates": (lambda index: index.evaluate(Q, candidates=0), f"candidates {WHOLE} 0"),
    "evaluate rerank": (lambda index: index.evaluate(Q, rerank=0), f"rerank {WHOLE} 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_and_the_index_goes_on(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    index = _correct()
    before = index.search(Q, candidates=50)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call(index)
    assert (index.candidates, index.rerank) == (None, None)
    assert_same(index.search(Q, candidates=50), before)


@cache
def _correct() -> Index:
    return plain("cell")


@pytest.mark.parametrize("metric", ["l2", "inner"])
@kinds
def test_items_of_length_1_are_compared_by_angle_only(kind: str, metric: Any) -> None:
    index, _, vectors = filled(kind, "cosine")
    message = f"the coder scaled items to length 1, so the metric can only be \"cosine\", got '{metric}'"
    for rank in ("asymmetric", "exact"):
        with pytest.raises(InvalidInput, match=message):
            index.search(Q, **ask(rank, vectors, metric))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: index.search(Q), "an index without a coder takes Codes, got ndarray"),
        (lambda index: index.search(Q[0]), "an index without a coder takes Codes"),
        (lambda index: index.search(Q, rank="asymmetric"), "give vectors as queries to an index with a coder"),
        (lambda index: index.search(Q, rank="exact", vectors=X), "give vectors as queries to an index with a coder"),
        (lambda index: index.search(CODES), "codes must have the index's width 40, got 33"),
        (lambda index: index.range_search(Q, 3), "an index without a coder takes Codes"),
        (lambda index: index.tune(Q), "an index without a coder takes Codes"),
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
