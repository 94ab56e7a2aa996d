"""Search: at full effort it is exhaustive, below that it finds a part; filters, removals and files change nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode import _core
from nestcode.errors import DamagedFile, InvalidInput

Floats = NDArray[np.float32]
ITEMS, QUERIES, FEATURES, WIDTH = 3000, 40, 12, 72


def rows(n: int, seed: int) -> Floats:
    """Clusters around a mean that is not 0, directions of unequal size."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).standard_normal((40, FEATURES))
    spread = centers[rng.integers(40, size=n)] + 0.4 * rng.standard_normal((n, FEATURES))
    return (1 + spread * np.arange(1, FEATURES + 1) ** -0.5).astype(np.float32)


X, Q = rows(ITEMS, 0), rows(QUERIES, 1)
KINDS: list[Any] = [nc.LinearCoder, nc.ResidualCoder, nc.CellCoder]
METRICS = ["l2", "cosine", "inner"]


@pytest.fixture(scope="module", params=[(kind, metric) for kind in KINDS for metric in ("l2", "cosine")], ids=str)
def index(request: pytest.FixtureRequest) -> nc.Index:
    """Several segments and a tail, with gaps in the ids."""
    kind, metric = request.param
    made = nc.Index(kind(width=WIDTH, metric=metric).fit(X))
    made.add(X[:2000], ids=2 * np.arange(2000))
    made.add(X[2000:2900], ids=2 * np.arange(2000, 2900))
    made.add(X[2900:], ids=2 * np.arange(2900, ITEMS))
    made.remove(2 * np.arange(0, ITEMS, 7))
    return made


def twin(index: nc.Index, metric: str, vectors: Floats | None = None) -> Any:
    """Distances to all items, in the order of their ids, in double precision."""
    assert index.coder is not None
    items = (index.coder.decode(index.codes(index.ids)) if vectors is None else vectors[index.ids]).astype(float)
    queries = Q.astype(float)
    if metric == "inner":
        return -queries @ items.T
    if metric == "cosine":
        items, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (items, queries))
    return ((queries[:, None] - items) ** 2).sum(axis=2)


def vectors_by_id() -> Floats:
    stored = np.zeros((2 * ITEMS, FEATURES), dtype=np.float32)
    stored[::2] = X
    return stored


def metrics_of(index: nc.Index) -> list[Any]:
    return ["cosine"] if index.coder.metric == "cosine" else METRICS  # type: ignore[union-attr]


def recall(found: Any, distances: Floats, k: int) -> float:
    """The share of the k nearest, by distance as ties may go either way."""
    worst = np.sort(distances, axis=1)[:, k - 1 : k]
    return float(np.mean(found.distances <= worst + 1e-4 * np.abs(worst)))


@pytest.mark.parametrize("exact", [False, True])
def test_full_effort_is_exhaustive(index: nc.Index, exact: bool) -> None:
    vectors = vectors_by_id() if exact else None
    for metric in metrics_of(index):
        distances = twin(index, metric, vectors)
        hits = index.search(Q, 10, candidates=len(index), metric=metric, vectors=vectors)
        np.testing.assert_allclose(hits.distances, np.sort(distances, axis=1)[:, :10], rtol=1e-4, atol=1e-4)
        place = np.searchsorted(index.ids, hits.ids)
        assert (index.ids[place] == hits.ids).all()
        np.testing.assert_allclose(np.take_along_axis(distances, place, 1), hits.distances, rtol=1e-4, atol=1e-4)
        assert (hits.compared == len(index)).all()


def test_effort_below_the_maximum_finds_more_with_more(index: nc.Index) -> None:
    for metric in metrics_of(index):
        distances = twin(index, metric)
        shares, compared = [], []
        for candidates in (50, 200, 800, len(index) - 1):
            hits = index.search(Q, 10, candidates=candidates, rerank=400, metric=metric)
            assert (hits.compared >= candidates).all()
            assert all(len(set(row)) == 10 for row in hits.ids.tolist())
            assert (np.diff(hits.distances, axis=1) >= 0).all()
            shares.append(recall(hits, distances, 10))
            compared.append(hits.compared.mean())
        assert shares == sorted(shares)
        assert compared == sorted(compared)
        assert shares[-1] > 0.99
        assert shares[1] < 1


def test_few_candidates_find_most_neighbours() -> None:
    made = nc.Index(nc.CellCoder(width=96).fit(X))
    made.add(X)
    true = made.search(Q, 10, candidates=ITEMS, vectors=X)
    found = made.search(Q, 10, candidates=ITEMS // 8, vectors=X)
    assert recall(found, true.distances.astype(float), 10) > 0.85


def test_hamming_is_monotone_for_each_query_and_exact_at_the_end() -> None:
    codes = nc.Codes.from_bits(np.random.default_rng(0).random((4000, 64)) < 0.5)
    index = nc.Index(width=64)
    index.add(codes[:3500])
    queries, distances = codes[3500:3550], codes[3500:3550].hamming(codes[:3500])
    worst = np.sort(distances, axis=1)[:, 9:10]
    before = np.zeros(50)
    for candidates in (10, 100, 1000, 3499, 3500):
        hits = index.search(queries, 10, candidates=candidates)
        found = (hits.distances <= worst).sum(axis=1)
        assert (found >= before).all()
        before = found
    assert (before == 10).all()
    order = np.lexsort((np.broadcast_to(np.arange(3500), distances.shape), distances))[:, :10]
    assert (hits.ids == order).all()


@pytest.mark.parametrize("make", [list, set, tuple, np.array, iter, "mask", "short mask"])
def test_filters_commute_with_ranking(index: nc.Index, make: Any) -> None:
    allowed = index.ids[::5]
    if isinstance(make, str):
        mask = np.zeros(2 * ITEMS, dtype=bool)
        mask[allowed] = True
        chosen = mask[: allowed.max() + 1] if make == "short mask" else mask
    else:
        chosen = make(allowed.tolist())
    everything = index.search(Q, len(index), candidates=len(index))
    hits = index.search(Q, 10, candidates=len(index), filter=chosen)
    for found, row in zip(hits.ids, everything.ids, strict=True):
        assert found.tolist() == row[np.isin(row, allowed)][:10].tolist()
    assert (hits.compared == len(allowed)).all()


def test_a_filter_leaves_k_results_where_they_exist(index: nc.Index) -> None:
    rare = index.ids[::100]
    hits = index.search(Q, 5, candidates=10, filter=rare)
    assert np.isin(hits.ids, rare).all()
    assert (hits.compared >= 10).all()
    none = index.search(Q, 5, filter=[])
    assert (none.ids == -1).all()
    assert np.isinf(none.distances).all()


def test_one_query_and_none(index: nc.Index) -> None:
    one, batch = index.search(Q[0], 3, candidates=500), index.search(Q, 3, candidates=500)
    assert one.ids.shape == one.distances.shape == (3,)
    assert isinstance(one.compared, int)
    assert one.ids.tolist() == batch.ids[0].tolist()
    empty = index.search(Q[:0], 3)
    assert empty.ids.shape == (0, 3)
    assert empty.compared.shape == (0,)


def test_missing_hits_are_at_the_end() -> None:
    index = nc.Index(nc.LinearCoder(width=16).fit(X))
    assert (index.search(Q, 3).ids == -1).all()
    index.add(X[:2])
    hits = index.search(Q, 4)
    assert (hits.ids[:, 2:] == -1).all()
    assert np.isinf(hits.distances[:, 2:]).all()
    assert np.isfinite(hits.distances[:, :2]).all()


def test_threads_and_batches_change_nothing(index: nc.Index) -> None:
    batch = index.search(Q, 5, candidates=300)
    many = index.search(Q, 5, candidates=300, threads=4)
    assert (batch.ids == many.ids).all()
    assert (batch.compared == many.compared).all()
    singly = [index.search(q, 5, candidates=300) for q in Q]
    for row, one in zip(batch.distances, singly, strict=True):
        np.testing.assert_allclose(row, one.distances, rtol=1e-4, atol=1e-5)


def test_range_search_is_a_threshold(index: nc.Index) -> None:
    full = index.search(Q, len(index), candidates=len(index))
    radius = float(full.distances[0, 150]) * (1 + 1e-6)
    found = index.range_search(Q, radius, candidates=len(index))
    assert len(found) == QUERIES
    for hits, ids, distances in zip(found, full.ids, full.distances, strict=True):
        assert sorted(hits.ids) == sorted(ids[distances <= radius])
    assert len(index.range_search(Q[0], -1.0).ids) == 0


def test_evaluate_and_tune(index: nc.Index) -> None:
    assert index.evaluate(Q, 10, candidates=len(index)).recall == 1
    tuned = index.tune(Q, target_recall=0.8, k=5)
    assert tuned.recall >= 0.8
    assert index.candidates == tuned.candidates < len(index)
    assert index.rerank == tuned.rerank
    again = index.evaluate(Q, 5)
    assert again.recall == tuned.recall
    assert again.compared == tuned.compared == pytest.approx(again.share * len(index))
    index.candidates = index.rerank = None


def test_what_was_saved_is_searched_alike_and_damage_is_noticed(index: nc.Index, tmp_path: Path) -> None:
    index.save(tmp_path / "index")
    opened = nc.Index.open(tmp_path / "index")
    here, there = (one.search(Q, 5, candidates=len(index)) for one in (index, opened))
    assert (here.ids == there.ids).all()
    largest = max((tmp_path / "index").rglob("*codes*"), key=lambda path: path.stat().st_size)
    damaged = bytearray(largest.read_bytes())
    damaged[-20] ^= 8
    largest.write_bytes(damaged)
    with pytest.raises(DamagedFile):
        nc.Index.open(tmp_path / "index").search(Q, 5)


@pytest.mark.parametrize("width", [1, 3, 8, 13, 40])
def test_fewer_bits_than_the_coder_has(width: int) -> None:
    coder = nc.CellCoder(width=40, cells=32).fit(X)
    index = nc.Index(coder, width=width)
    index.add(X)
    hits = index.search(Q, 5, candidates=ITEMS)
    np.testing.assert_allclose(hits.distances, np.sort(twin(index, "l2"), axis=1)[:, :5], rtol=1e-3, atol=1e-3)
    assert (index.search(Q, 5, candidates=400).ids >= 0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.float32])
def test_vectors_of_any_type(dtype: Any, tmp_path: Path) -> None:
    index = nc.Index(nc.CellCoder(width=64).fit(X))
    index.add(X)
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=dtype, shape=X.shape)
    stored[:] = X
    stored.flush()
    hits = index.search(Q, 5, candidates=1000, vectors=np.load(tmp_path / "x.npy", mmap_mode="r"))
    again = index.search(Q, 5, candidates=1000, vectors=X.astype(dtype).astype(np.float32))
    assert (hits.ids == again.ids).all()
    np.testing.assert_allclose(hits.distances, again.distances, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("simd", _core.simd_names())
def test_instruction_sets_agree(simd: str) -> None:
    coder = nc.CellCoder(width=96).fit(X)
    ranking = coder._ranking(96)
    codes = coder.encode(X)
    codes = codes[codes.sort_order()]
    bits = ranking.bits(ITEMS)
    searcher = _core.Searcher([ranking.ready(codes, bits).part(np.zeros(0, dtype=np.uint32))])
    batch = ranking.batch(Q, "l2")

    def run(name: str) -> tuple[Floats, NDArray[np.uint32]]:
        scores, places = np.empty((QUERIES, 50), np.float32), np.empty((QUERIES, 50), np.uint32)
        out = _core.SearchOutputs(scores, places, np.empty(QUERIES, np.int64))
        cells, norms, groups = ranking.cells(batch, bits), ranking._norms["l2"], ranking._scan.groups  # type: ignore[attr-defined]
        searcher.blocks(cells, norms, batch.numbers, groups, False, 500, out, 1, name)
        return scores, places

    for ours, plain in zip(run(simd), run("portable"), strict=True):
        assert (ours == plain).all()
    true = ((Q.astype(float)[:, None] - coder.decode(codes)[run(simd)[1]]) ** 2).sum(axis=2)
    rough = run(simd)[0] + (batch.numbers.astype(float) ** 2).sum(axis=1)[:, None]
    assert np.abs(rough - true).mean() < 0.1 * true.mean()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 0}, "k must be"),
        ({"candidates": 0}, "candidates must be"),
        ({"rerank": 0}, "rerank must be"),
        ({"rank": "best"}, 'rank must be "asymmetric"'),
        ({"rank": "exact"}, "give vectors="),
        ({"rank": "hamming", "metric": "l2"}, "counts bits"),
        ({"metric": "l1"}, 'metric must be "l2"'),
        ({"vectors": X[:10]}, "a row for each id"),
        ({"vectors": X[:, :3]}, "features"),
        ({"vectors": X[0]}, "2 dimensions"),
        ({"filter": [0.5]}, "whole numbers"),
        ({"filter": np.ones((2, 2), dtype=bool)}, "1 dimension"),
        ({"filter": [-1]}, "ids must be"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    index = nc.Index(nc.CellCoder(width=32).fit(X))
    index.add(X)
    with pytest.raises(InvalidInput, match=words):
        index.search(Q, **{"k": 3, **arguments})
    assert (index.search(Q, 3).ids >= 0).all()


def test_bad_queries_are_named(index: nc.Index) -> None:
    for queries, words in ((Q[:, :3], "features"), (Q * np.nan, "finite"), ("text", "numbers|dimensions")):
        with pytest.raises(InvalidInput, match=words):
            index.search(queries, 3)
    with pytest.raises(InvalidInput, match="width"):
        index.search(nc.Codes.from_bits(np.ones((2, 3), dtype=bool)), 3)
    with pytest.raises(InvalidInput, match="radius"):
        index.range_search(Q, float("nan"))
    with pytest.raises(InvalidInput, match="target_recall"):
        index.tune(Q, target_recall=0)
    if index.coder.metric == "cosine":  # type: ignore[union-attr]
        with pytest.raises(InvalidInput, match="scaled items"):
            index.search(Q, 3, metric="l2")
    bare = nc.Index(width=8)
    with pytest.raises(InvalidInput, match="Codes"):
        bare.search(Q, 3)
