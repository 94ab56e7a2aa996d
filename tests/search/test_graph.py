"""The graph navigated by nested codes, against exact neighbors and a plain greedy search."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode import _core, metrics
from nestcode.coders.base import Metric
from nestcode.search import graph as graphs
from nestcode.search.filters import ALL_ALLOWED, bitmap
from nestcode.search.graph import (
    DEGREE,
    SMALL_DEGREE,
    Navigator,
    build_graph,
    degree_of,
    entry_points,
    filled_up,
    make_records,
    pack_records,
)
from nestcode.search.vectors import NO_SCALES, StoredVectors, VectorFormat

MISSING = 2**32 - 1
STARTS = 8  # entry points that a walk begins at


class GraphHits(NamedTuple):
    """The nearest items of queries in a graph; missing ones come last, at infinite distance and position 2^32 - 1."""

    positions: NDArray[np.uint32]  # (queries, k), nearest first
    distances: NDArray[np.float32]  # (queries, k)
    visited: NDArray[np.int64]  # (queries,): nodes


class Graph:
    """A graph that the core searches; with vectors, hits are ranked by distance, otherwise by estimated distance."""

    def __init__(self, navigator: Navigator, records: _core.GraphRecords, vectors: Any = None) -> None:
        if isinstance(vectors, np.ndarray):
            vectors = StoredVectors(vectors, NO_SCALES)
        rows = None if vectors is None else vectors.core
        self.metric, self.core = navigator.coder.metric_, _core.Graph(records, navigator.core, rows)

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        ef: int,
        *,
        metric: Any = None,
        allowed: NDArray[np.uint64] = ALL_ALLOWED,
        most: int = 1 << 32,
        threads: int = 1,
    ) -> GraphHits:
        """Return the k nearest of the allowed items, until `most` nodes are visited."""
        count = len(queries)
        distances, positions = np.empty((count, k), np.float32), np.empty((count, k), np.uint32)
        visited, metric = np.empty(count, np.int64), metric or self.metric
        self.core.search(queries, metric, ef, allowed, distances, positions, visited, most, threads)
        return GraphHits(positions, distances, visited)


class Scene:
    """Digits in a graph; the last 50 are the queries."""

    def __init__(self, metric: Metric = "l2", count: int = 1500, scale: float = 1) -> None:
        X = np.float32(scale) * nc.data.digits()[0].astype(np.float32)
        self.base, self.queries = np.ascontiguousarray(X[:count]), np.ascontiguousarray(X[-50:])
        self.coder = nc.LinearCoder(width=160, metric=metric).fit(self.base)
        self.navigator, self.codes = Navigator(self.coder, bits=96), self.coder.encode(self.base)
        self.items = self.navigator.encode(self.base, self.codes)
        self.neighbors = build_graph(self.navigator, self.base, self.items, ef=32, threads=2)
        self.records = make_records(self.navigator, self.items, self.neighbors)

    def graph(self, vectors: NDArray[Any] | StoredVectors | None) -> Graph:
        """Return the graph with vectors, or without."""
        return Graph(self.navigator, self.records, vectors)

    def exact(self) -> Graph:
        """Return the graph with the items' vectors."""
        return self.graph(self.base)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def greedy_search(
    neighbors: NDArray[np.uint32],
    entries: NDArray[np.uint32],
    estimates: dict[int, float],
    ef: int,
    allowed: NDArray[np.bool_],
) -> list[int]:
    """Return the nodes in the order of their visits: the nearest first, until the best ef allowed ones are visited."""
    near = sorted(set(entries.tolist()), key=lambda i: (estimates[i], i))
    starts = np.cumsum(allowed[near]).searchsorted(min(ef, STARTS)) + 1
    seen = set(near[:starts])
    visited: list[int] = []
    while True:
        pool = sorted(seen, key=lambda i: (estimates[i], i))
        if len(last := [place for place, i in enumerate(pool) if allowed[i]][:ef]) == ef:
            pool = pool[: last[-1] + 1]
        following = next((i for i in pool if i not in visited), None)
        if following is None:
            return visited
        visited.append(following)
        seen.update(neighbors[following].tolist())


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_recall(scene: Scene, metric: Metric) -> None:
    scene = scene if metric == "l2" else Scene("cosine")
    base, queries = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows
        for rows in (scene.base, scene.queries)
    )
    exact = metrics.exact_neighbors(queries, base, 10)
    hits = scene.exact().search(scene.queries, k=10, ef=40)
    assert metrics.recall(hits.positions.astype(np.int64), exact) > 0.99
    assert hits.visited.max() < 100
    distances = np.linalg.norm(queries[:, None] - base[hits.positions], axis=2) ** 2
    np.testing.assert_allclose(hits.distances, distances, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("metric", ["l2", "cosine", "inner"])
def test_int8_are_compared_as_the_vectors_that_they_stand_for(scene: Scene, metric: Any) -> None:
    stored = VectorFormat("int8", scene.base.shape[1]).round(scene.base)
    hits, expected = (
        scene.graph(rows).search(scene.queries, k=40, ef=40, metric=metric) for rows in (stored, stored.floats())
    )
    assert (hits.visited == expected.visited).all()
    size = np.abs(expected.distances).max()
    np.testing.assert_allclose(hits.distances, expected.distances, rtol=1e-4, atol=1e-4 * size)
    assert metrics.recall(hits.positions.astype(np.int64), expected.positions.astype(np.int64)) > 0.99


def test_visits_everything_like_an_exhaustive_search(scene: Scene) -> None:
    count = len(scene.base)
    hits = scene.exact().search(scene.queries, k=count, ef=1)
    assert (hits.visited == count).all()
    assert (np.sort(hits.positions, axis=1) == np.arange(count)).all()
    distances = np.linalg.norm(scene.queries[:, None] - scene.base, axis=2) ** 2
    np.testing.assert_allclose(hits.distances, np.sort(distances, axis=1), rtol=1e-4)


@pytest.mark.parametrize("share", [0, 0.5, 0.9])
def test_equals_a_greedy_search_by_estimates(scene: Scene, share: float) -> None:
    neighbors, count = scene.neighbors, len(scene.base)
    skipped = np.random.default_rng(0).random(count) < share
    graph = scene.graph(None)
    every = graph.search(scene.queries[:3], k=count, ef=count)
    for q in range(3):
        estimates = dict(zip(every.positions[q].tolist(), every.distances[q].tolist(), strict=True))
        visited = greedy_search(neighbors, entry_points(np.arange(count, dtype=np.uint32)), estimates, 10, ~skipped)
        hits = graph.search(scene.queries[q : q + 1], k=10, ef=10, allowed=bitmap(~skipped))
        assert hits.visited == [len(visited)]
        expected = sorted((i for i in visited if not skipped[i]), key=lambda i: (estimates[i], i))[:10]
        assert hits.positions[0].tolist() == expected


def test_estimates_are_near_the_distances(scene: Scene) -> None:
    hits = scene.graph(None).search(scene.queries, k=10, ef=30)
    distances = np.linalg.norm(scene.queries[:, None] - scene.base[hits.positions], axis=2) ** 2
    assert np.mean(np.abs(hits.distances - distances)) < 0.15 * distances.mean()


def test_the_unit_of_the_data_does_not_matter() -> None:
    plain = Scene(count=400)
    expected = plain.exact().search(plain.queries, k=5, ef=40)
    for power in (-60, 50):
        scaled = Scene(count=400, scale=2.0**power)
        hits = scaled.exact().search(scaled.queries, k=5, ef=40)
        assert np.mean(hits.positions == expected.positions) > 0.95


def test_skipped_items_are_never_found(scene: Scene) -> None:
    skipped = np.ones(len(scene.base), dtype=bool)
    assert (scene.exact().search(scene.queries, k=3, ef=5, allowed=bitmap(~skipped)).positions == MISSING).all()
    skipped[[7, 700]] = False
    hits = scene.exact().search(scene.queries, k=3, ef=5, allowed=bitmap(~skipped))
    assert (np.sort(hits.positions[:, :2], axis=1) == [7, 700]).all()
    assert (hits.positions[:, 2] == MISSING).all()
    assert np.isinf(hits.distances[:, 2]).all()


def test_inner_products(scene: Scene) -> None:
    hits = scene.exact().search(scene.queries, k=1, ef=100, metric="inner")
    products = scene.queries @ scene.base.T
    assert np.mean(hits.positions[:, 0] == products.argmax(axis=1)) > 0.9
    np.testing.assert_allclose(-hits.distances[:, 0], products[np.arange(50), hits.positions[:, 0]], rtol=1e-4)


def test_vectors_of_float16(scene: Scene) -> None:
    halves = scene.graph(scene.base.astype(np.float16)).search(scene.queries, k=10, ef=40)
    floats = scene.exact().search(scene.queries, k=10, ef=40)
    np.testing.assert_allclose(halves.distances, floats.distances, rtol=0.01)
    assert (halves.visited == floats.visited).all()


def test_navigating_codes_hold_true_norms_and_their_ratio_to_decoded_ones() -> None:
    scene = Scene("cosine", count=200)
    coefficients = scene.coder.coefficients(scene.codes.prefix(96))
    mean = scene.coder.projection().mean
    rows = scene.base / np.linalg.norm(scene.base, axis=1, keepdims=True)
    own, decoded = np.sum((rows - mean) ** 2, axis=1), np.sum(coefficients.astype(np.float64) ** 2, axis=1)
    unit = scene.coder.expected_error(0) * scene.coder.n_features_in_
    np.testing.assert_allclose(scene.items.corrections[0], own / unit, rtol=1e-3)
    np.testing.assert_allclose(scene.items.corrections[1], np.sqrt(own / decoded), rtol=1e-3)


def test_depends_neither_on_threads_nor_on_other_queries(scene: Scene) -> None:
    again = build_graph(scene.navigator, scene.base, scene.items, ef=32, threads=3)
    assert (again == scene.neighbors).all()
    other = build_graph(scene.navigator, scene.base, scene.items, ef=32, seed=1, threads=3)
    assert (other != scene.neighbors).any()
    together = scene.exact().search(scene.queries, k=5, ef=20, threads=2)
    for q in (0, 17, 49):
        alone = scene.exact().search(scene.queries[q : q + 1], k=5, ef=20)
        assert (alone.positions[0] == together.positions[q]).all()


def test_narrow_records_are_walked_as_wide_ones_with_the_same_edges(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbors = build_graph(scene.navigator, scene.base, scene.items, degree=SMALL_DEGREE, ef=32, threads=2)
    assert degree_of(scene.neighbors) == DEGREE
    assert degree_of(neighbors) == SMALL_DEGREE
    assert count_unreachable(neighbors) == 0
    narrow, own = pack_records(scene.navigator, scene.items, neighbors)
    assert (filled_up(own) == neighbors).all()
    assert make_records(scene.navigator, scene.items, own).nbytes == narrow.nbytes < 0.8 * scene.records.nbytes
    monkeypatch.setattr(graphs, "degree_of", lambda _: DEGREE)
    wide = make_records(scene.navigator, scene.items, neighbors)
    assert wide.nbytes == scene.records.nbytes
    hits, expected = (
        Graph(scene.navigator, records, scene.base).search(scene.queries, k=10, ef=40) for records in (narrow, wide)
    )
    assert (hits.positions == expected.positions).all()
    assert (hits.visited == expected.visited).all()
    exact = metrics.exact_neighbors(scene.queries, scene.base, 10)
    assert metrics.recall(hits.positions.astype(np.int64), exact) > 0.97


@pytest.mark.parametrize("count", [1, 5, 33])
def test_few_items_know_each_other(scene: Scene, count: int) -> None:
    items = scene.navigator.encode(scene.base[:count], scene.codes[:count])
    neighbors = build_graph(scene.navigator, scene.base[:count], items)
    records = make_records(scene.navigator, items, neighbors)
    assert neighbors.shape == (count, DEGREE)
    for i in range(count):
        assert set(neighbors[i].tolist()) | {i} == set(range(count))
    hits = Graph(scene.navigator, records, scene.base[:count]).search(scene.queries, k=6, ef=6)
    assert ((hits.positions != MISSING).sum(axis=1) == min(count, 6)).all()


def test_equal_items_are_all_found(scene: Scene) -> None:
    rows = np.repeat(scene.base[:1], 100, axis=0)
    items = scene.navigator.encode(rows, scene.coder.encode(rows))
    records = make_records(scene.navigator, items, build_graph(scene.navigator, rows, items))
    hits = Graph(scene.navigator, records, rows).search(rows[:1], k=100, ef=100)
    assert sorted(hits.positions[0].tolist()) == list(range(100))


@pytest.mark.parametrize("by_vectors", [False, True])
def test_duplicates_are_found_where_the_first_of_them_is(scene: Scene, by_vectors: bool) -> None:
    rng = np.random.default_rng(0)
    base = scene.base[:300]
    base = base[np.lexsort(scene.coder.encode(base).packed.T[::-1])]  # as indexes sort them
    times = np.where(np.arange(300) % 100 == 50, 400, rng.integers(1, 4, 300))
    rows, starts = base.repeat(times, axis=0), np.cumsum(times) - times
    skipped = rng.random(len(rows)) < 0.5
    skipped[starts[50] : starts[50] + 300] = skipped[starts[150] : starts[150] + 400] = True

    def found(rows: NDArray[np.float32], skipped: NDArray[np.bool_]) -> GraphHits:
        items = scene.navigator.encode(rows, scene.coder.encode(rows))
        records = make_records(scene.navigator, items, build_graph(scene.navigator, rows, items))
        graph = Graph(scene.navigator, records, rows if by_vectors else None)
        return graph.search(scene.queries, k=10, ef=20, allowed=bitmap(~skipped))

    hits, first = found(rows, skipped), found(base, np.logical_and.reduceat(skipped, starts))
    assert (hits.visited == first.visited).all()
    for query, nodes in enumerate(first.positions):
        items = [starts[node] + copy for node in nodes for copy in range(times[node])]
        kept = [item for item in items if not skipped[item]][:10]
        assert hits.positions[query].tolist() == kept
        assert hits.distances[query].tolist() == [
            first.distances[query, nodes.tolist().index(starts.searchsorted(item, "right") - 1)] for item in kept
        ]


def near_copies(rows: NDArray[np.float32], sizes: list[int], noise: float) -> NDArray[np.float32]:
    """Return copies of some rows, perturbed by a share of their norms."""
    rng = np.random.default_rng(0)
    copies = rows[rng.choice(len(rows), len(sizes), replace=False)].repeat(sizes, axis=0)
    errors = rng.standard_normal(copies.shape)
    errors *= noise * np.linalg.norm(copies, axis=1, keepdims=True) / np.linalg.norm(errors, axis=1, keepdims=True)
    return (copies + errors).astype(np.float32)


def count_unreachable(neighbors: NDArray[np.uint32]) -> int:
    """Return how many items no walk from the entry points can visit."""
    seen = np.zeros(len(neighbors), dtype=bool)
    found = np.unique(entry_points(np.arange(len(neighbors), dtype=np.uint32)))
    while len(found):
        seen[found] = True
        found = np.setdiff1d(neighbors[found], np.flatnonzero(seen))
    return int(np.sum(~seen))


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("sizes", [[50, 100, 200, 400], [1000], [1500]], ids=str)
def test_near_copies_are_reachable_and_find_themselves(scene: Scene, noise: float, sizes: list[int]) -> None:
    copies = near_copies(scene.base, sizes, noise)
    rows = copies if len(copies) == 1500 else np.concatenate([scene.base[: 2000 - len(copies)], copies])
    coder = nc.LinearCoder(width=160).fit(rows)
    codes = coder.encode(rows)
    order = np.lexsort(codes.packed.T[::-1])  # as indexes sort them
    rows, codes, navigator = rows[order], codes[order], Navigator(coder, bits=96)
    items = navigator.encode(rows, codes)
    neighbors = build_graph(navigator, rows, items)
    assert count_unreachable(neighbors) == 0
    hits = Graph(navigator, make_records(navigator, items, neighbors), rows).search(rows, k=10, ef=100)
    assert np.mean(hits.distances[:, 0] == 0) > 0.99


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_extreme_queries_get_hits(scene: Scene, value: float) -> None:
    hits = scene.exact().search(np.full((1, 64), value, dtype=np.float32), k=3, ef=10)
    assert (hits.positions < len(scene.base)).all()


def test_errors(scene: Scene) -> None:
    with pytest.raises(nc.errors.InvalidInput, match="LinearCoder or a RotationCoder, got a CellCoder: fit"):
        Navigator(nc.CellCoder(width=32).fit(scene.base))
    for rows in (scene.base[1:], scene.base.astype(np.int8)):
        with pytest.raises(ValueError, match="vector for each item, and a scale for each of int8"):
            scene.graph(rows)
    with pytest.raises(ValueError, match="float32, float16 or int8"):
        scene.graph(scene.base.astype(np.int16))
    with pytest.raises(ValueError, match="vectors must have the features"):
        scene.graph(scene.base[:, 1:].copy())
    with pytest.raises(ValueError, match="record of these groups"):
        Graph(Navigator(scene.coder, bits=64), scene.records)
    with pytest.raises(ValueError, match="features of the projection"):
        scene.exact().search(scene.queries[:, 1:].copy(), k=1, ef=1)
    with pytest.raises(ValueError, match="bit for each item"):
        scene.exact().search(scene.queries, k=1, ef=1, allowed=bitmap(np.zeros(100, dtype=bool)))
