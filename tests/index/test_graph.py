"""The graph of an index: the same contents and laws as without one, through updates, files, damage and threads."""

import re
import shutil
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Codes, Index, LinearCoder, ResidualCoder, RotationCoder
from nestcode.coders import Coder
from nestcode.data import digits
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import buffer, compaction
from nestcode.index.segment import Segment, StoredGraph
from nestcode.index.snapshot import Snapshot
from nestcode.search import planner, preparation
from nestcode.search.graph import Navigator
from tests import twins
from tests.index.test_compaction import before, together, until
from tests.index.test_damage import craft, put

ROWS, ERROR = 1200, 2e-4
X, FRESH, Q = twins.clustered(ROWS), twins.clustered(ROWS, seed=1), twins.clustered(12, seed=2)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments get graphs, and walks on them are never given up for scans."""
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)


@cache
def coder(metric: Any = "l2") -> Coder:
    return LinearCoder(64, metric=metric).fit(X)


def plain(graph: bool = True, metric: Any = "l2", rows: Any = X) -> Index:
    """One segment."""
    index = Index(coder(metric), graph=graph)
    index.add(rows)
    index.compact()
    return index


def fill(index: Index) -> np.ndarray[Any, Any]:
    """Fill three segments, the last too small for a graph, and the buffer; delete from all and update."""
    changed, removed = np.arange(5, ROWS, 11), np.arange(0, ROWS, 7)
    for first, last in ((0, 700), (700, 1050), (1050, 1100), (1100, ROWS)):
        index.add(X[first:last], ids=np.arange(first, last))
        if last < ROWS:
            index._live.write(Snapshot.flush)
    index.wait()
    index.update(FRESH[changed], changed)
    index.remove(removed)
    return np.setdiff1d(np.arange(ROWS), removed)


@pytest.fixture(params=[("l2", None), ("cosine", None), ("cosine", "float16"), ("l2", "int8")], ids=str)
def filled(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Index, Index, np.ndarray[Any, Any]]:
    """The same contents with graphs and without, and their ids."""
    monkeypatch.setattr(compaction, "SIZE_RATIO", 0)  # so that nothing is merged
    monkeypatch.setattr(compaction, "GRAPH_RATIO", 0)
    metric, vectors = request.param
    index, other = (Index(coder(metric), vectors=vectors, graph=graph) for graph in (True, False))
    ids = fill(index)
    fill(other)
    assert [one.graph is not None for one in index._live.current.segments] == [True, True, False]
    assert all(one.graph is None for one in other._live.current.segments)
    return index, other, ids


def test_searches_pack_no_graph_that_was_built_or_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = plain()
    index.save(tmp_path / "index")
    opened = Index.open(tmp_path / "index")
    opened.wait()
    monkeypatch.setattr(preparation, "make_records", None)  # cannot be called
    for one in (index, opened):
        assert np.array_equal(one.search(X[:5], k=1).ids.ravel(), np.arange(5))


def prepared_graph(index: Index) -> preparation.PreparedGraph:
    """What searches prepared of the graph of the first segment."""
    graph = index._live.current.segments[0].graph
    found: list[preparation.PreparedGraph] = [
        cache._parts[graph]["graph"][1] for cache in index._searcher._caches.values() if graph is not None
    ]
    return found[0]


@pytest.mark.parametrize("vectors", [None, "float16", "int8"])
def test_an_opened_graph_packs_what_it_visits_and_encodes_nothing(
    vectors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Index(coder(), vectors=vectors, graph=True)
    built.add(X)
    built.compact()
    built.save(tmp_path)
    monkeypatch.setattr(Navigator, "encode", None)  # cannot be called
    opened = Index.open(tmp_path)
    for one in (built, opened):
        hits = one.search(Q, 5, candidates=20)
        assert np.array_equal(hits.ids, built.search(Q, 5, candidates=20).ids)
    assert prepared_graph(built).records.packed > ROWS
    assert 12 < prepared_graph(opened).records.packed < ROWS
    opened.wait()
    assert prepared_graph(opened).records.packed == prepared_graph(built).records.packed


@pytest.mark.parametrize(("vectors", "degree"), [("float16", 32), ("int8", 24)])
def test_beside_int8_nodes_have_fewer_neighbors_and_files_the_same_places(
    vectors: Any, degree: int, tmp_path: Path
) -> None:
    index = Index(coder(), vectors=vectors, graph=True)
    index.add(X)
    index.compact()
    index.search(Q)
    graph = index._live.current.segments[0].graph
    assert graph is not None
    assert graph.neighbors.shape == (ROWS, degree)
    index.save(tmp_path)
    stored = np.load(next(tmp_path.glob("*.neighbors.npy")))
    assert (stored[:, :degree] == graph.neighbors).all()
    assert (stored[:, degree:] == np.arange(ROWS)[:, None]).all()
    opened = Index.open(tmp_path)
    opened.wait()
    opened.search(Q)
    assert prepared_graph(opened).records.nbytes == prepared_graph(index).records.nbytes


@pytest.mark.parametrize("vectors", [None, "float16"])
def test_each_array_of_a_graph_counts_once_as_bytes(vectors: Any) -> None:
    """What searches make of items that lack their navigating codes counts as prepared, stored ones do not."""
    index = Index(coder(), vectors=vectors, graph=True)
    index.add(X)
    index.compact()
    stored = index.nbytes_by_part()
    (segment,) = index._live.current.segments
    assert segment.graph is not None
    bare = replace(segment, graph=StoredGraph(segment.graph.neighbors))
    twin = Index(coder(), vectors=vectors, graph=True)
    twin._live.current = replace(index._live.current, segments=(bare,))
    twin.search(Q, candidates=20)
    made = twin.nbytes_by_part()
    neighbors = segment.graph.neighbors.nbytes  # of a graph that was built here, they lie in its records
    assert sum(made.values()) == sum(stored.values()) + neighbors
    assert made["prepared"] > stored["prepared"] >= prepared_graph(index).records.nbytes


def test_many_threads_pack_the_records_of_an_opened_graph(tmp_path: Path) -> None:
    index = plain()
    index.save(tmp_path)
    true = index.search(X, 5, candidates=20)
    opened, found = Index.open(tmp_path), {}

    def search(thread: int) -> None:
        found[thread] = opened.search(X, 5, candidates=20)

    threads = [threading.Thread(target=search, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[i].ids, true.ids) for i in range(4))


def test_a_graph_whose_layout_is_another_encodes_its_items(tmp_path: Path) -> None:
    index = plain()
    index.save(tmp_path / "index")
    craft(tmp_path / "index", put((*GRAPH, "layout"), "groups of another version"))
    opened = Index.open(tmp_path / "index")
    assert np.array_equal(opened.search(Q, 5).ids, index.search(Q, 5).ids)
    index.truncate(48)  # keeps the graph, while estimates are by the codes that are left
    truncated = index.search(Q, 5, candidates=60)
    assert recall(truncated, plain(graph=False).search(Q, 5, candidates=ROWS)) > 0.5


def distances(index: Index, ids: Any) -> twins.Doubles:
    """From all queries to what a search ranks items by."""
    rows = index.reconstruct(ids) if index.vector_type is None else index.vectors(ids)
    assert index.coder is not None
    return twins.distances(Q, rows, index.coder.metric_)


def recall(found: Any, true: Any) -> float:
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found.ids, true.ids, strict=True)]))


# search


def test_any_budget_finds_live_items_with_their_distances(filled: Any) -> None:
    index, _, ids = filled
    allowed = ids[ids % 3 > 0]
    for budget, k in ((1, 1), (10, 5), (40, 20), (300, 10)):
        for chosen in (None, allowed):
            known = ids if chosen is None else chosen
            hits = index.search(Q, k, candidates=budget, filter=chosen)
            twins.check_hits(hits, distances(index, known), known, ERROR)
            assert (hits.ids >= 0).all()
            assert (hits.compared > 0).all()


def test_a_budget_of_all_items_is_exhaustive(filled: Any) -> None:
    index, other, ids = filled
    for chosen in (None, ids[::4], ids[:3]):
        a, b = (one.search(Q, 10, candidates=ROWS, filter=chosen) for one in (index, other))
        assert np.array_equal(a.ids, b.ids)
        np.testing.assert_allclose(a.distances, b.distances, rtol=1e-5)


def test_few_candidates_find_nearly_all_neighbors(filled: Any) -> None:
    index, other, ids = filled
    for chosen in (None, ids[::2]):
        true = other.search(Q, 10, candidates=ROWS, filter=chosen)
        assert recall(index.search(Q, 10, candidates=60, filter=chosen), true) > 0.97


def test_recall_on_digits() -> None:
    """A law of real data: ef 40 finds what an exhaustive search of the same codes finds."""
    rows, _ = digits()
    base, queries = rows[:1500], rows[1500:]
    index = Index(LinearCoder(256).fit(base[:1000]), graph=True)
    index.add(base)
    index.wait()
    true = index.search(queries, 10, candidates=len(base))
    hits = index.search(queries, 10, candidates=40)
    assert recall(hits, true) > 0.97
    assert hits.compared.mean() < len(base) / 2


def test_more_candidates_find_more() -> None:
    index = plain()
    true = index.search(Q, 10, candidates=ROWS)
    found = [recall(index.search(Q, 10, candidates=budget), true) for budget in (10, 40, 160)]
    assert found == sorted(found)
    assert found[-1] > 0.99


def test_a_selective_filter_makes_the_search_exhaustive(monkeypatch: pytest.MonkeyPatch) -> None:
    index = plain()
    monkeypatch.setattr(planner, "NS_PER_SCAN", 0)
    few = np.arange(0, ROWS, 20)
    hits = index.search(Q, 5, filter=few)
    assert (hits.compared == len(few)).all()
    twins.check_all(hits, twins.distances(Q, index.reconstruct(few), "l2"), few, ERROR)
    assert (index.search(Q, 5, candidates=20).compared < ROWS).all()


def test_other_metrics_and_codes_do_not_use_the_graph() -> None:
    index, other = plain(), plain(graph=False)
    others: list[dict[str, Any]] = [{"metric": "inner"}, {"metric": "cosine"}, {"rank": "hamming"}]
    for options in others:
        a, b = (one.search(Q, 10, candidates=200, **options) for one in (index, other))
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.compared, b.compared)


def test_vectors_rerank_what_a_walk_finds() -> None:
    index = plain()
    hits = index.search(Q, 10, candidates=60, vectors=X)
    twins.check_hits(hits, twins.distances(Q, X, "l2"), np.arange(ROWS), ERROR)
    assert recall(hits, index.search(Q, 10, candidates=ROWS, vectors=X)) > 0.97


def test_results_depend_neither_on_threads_nor_on_the_batch() -> None:
    index, again = plain(), plain()
    hits = index.search(Q, 10, candidates=30)
    for other in (index.search(Q, 10, candidates=30, threads=3), again.search(Q, 10, candidates=30)):
        assert np.array_equal(hits.ids, other.ids)
        assert np.array_equal(hits.distances, other.distances)
    for query, ids in zip(Q, hits.ids, strict=True):
        assert np.array_equal(index.search(query, 10, candidates=30).ids, ids)


def test_range_search_finds_all_near_items() -> None:
    index = plain()
    distances = twins.distances(Q, index.reconstruct(np.arange(ROWS)), "l2")
    radius = float(np.quantile(distances, 0.1))
    wanted = [np.flatnonzero(row <= radius) for row in distances]
    assert max(map(len, wanted)) > 100
    found = index.range_search(Q, radius)
    for one, own in zip(found, wanted, strict=True):
        assert (one.distances <= radius).all()
        assert np.isin(own, one.ids).mean() > 0.97


def test_a_radius_beyond_float32_holds_all_candidates() -> None:
    index = plain()
    assert len(index.range_search(Q[0], 1e300, candidates=ROWS).ids) == ROWS
    assert len(index.range_search(Q[0], -1e300).ids) == 0


def test_evaluate_and_tune() -> None:
    index = plain()
    with pytest.raises(InvalidInput, match="effort must be an Effort or None, got 'x': call tune"):
        index.effort = "x"  # type: ignore[assignment]
    assert index.evaluate(Q, 10).candidates == 100
    by_vectors = Index(coder(), vectors="float16", graph=True)
    by_vectors.add(X)
    by_vectors.wait()
    assert by_vectors.evaluate(Q, 10, candidates=40, rank="exact").recall > 0.95
    best = index.tune(Q, target_recall=0.95)
    assert best.recall >= 0.95
    assert best.candidates < 100
    assert np.isin(index.search(Q, 10).compared.mean(), best.compared)


# writes


def test_compaction_and_a_rebuilt_index_give_the_same_answers(filled: Any) -> None:
    index, _, ids = filled
    rebuilt = Index(index.coder, vectors=index.vector_type, graph=True)
    stored = None if index.vector_type is None else index.vectors(ids)
    rebuilt.add(index.codes(ids), ids=ids, vectors=stored)
    index.compact()
    rebuilt.compact()
    for each in (index, rebuilt):
        (segment,) = each._live.current.segments
        assert segment.graph is not None
    a, b = (one.search(Q, 10, candidates=30) for one in (index, rebuilt))
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.distances, b.distances)


def test_graphs_are_built_in_the_background_and_kept_through_small_changes() -> None:
    index = Index(coder(), graph=True)
    index.add(X)
    index.wait()
    graph = index._live.current.segments[0].graph
    assert graph is not None
    index.add(FRESH[:20])
    index.remove([0, ROWS])
    index._live.write(Snapshot.flush)
    index.wait()
    assert index._live.current.segments[0].graph is graph
    hits = index.search(FRESH[1:20], 1)
    assert np.array_equal(hits.ids.ravel(), np.arange(ROWS + 1, ROWS + 20))
    assert 0 not in index.search(X[0], 10).ids


def test_a_tuned_index_keeps_its_recall_while_a_graph_is_built_anew() -> None:
    index = plain()
    index.tune(Q, target_recall=0.95)
    live, begun, go_on = index._live, threading.Event(), threading.Event()
    build = live._build_graph

    def slowly(segment: Segment) -> StoredGraph:
        begun.set()
        assert go_on.wait(60)
        assert build is not None
        return build(segment)

    live._build_graph = slowly
    before_it = live.current.segments[0].graph
    index.remove(np.arange(0, ROWS, 2))  # more than half: the rest is written anew
    index.remove(np.arange(1, ROWS, 4))
    assert begun.wait(60)
    try:
        assert live.current.segments[0].graph is before_it
        assert index.evaluate(Q, 10).recall > 0.9
    finally:
        go_on.set()
    index.wait()
    assert live.current.segments[0].graph not in (None, before_it)
    assert index.evaluate(Q, 10).recall > 0.9


def test_items_are_found_before_they_have_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MIN_GRAPH", ROWS + 1)
    index = Index(coder(), graph=True)
    index.add(X)
    index.save(tmp_path / "index")  # as a crash leaves it
    assert index.evaluate(Q, 10, candidates=10).recall > 0.95
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)
    with Index.open(tmp_path / "index", mode="a") as again:
        again.wait()
        assert again._live.current.segments[0].graph is not None


def test_what_was_tuned_for_walks_is_no_budget_of_lists(tmp_path: Path) -> None:
    index = plain()
    index.tune(Q, target_recall=0.95)
    index.save(tmp_path / "index")
    assert index.evaluate(Q, 10).candidates < 100
    assert index.evaluate(Q, 10, metric="cosine").candidates == planner.default_candidates(ROWS)
    for memory, expected in (("codes", planner.default_candidates(ROWS)), ("all", index.evaluate(Q, 10).candidates)):
        assert Index.open(tmp_path / "index", memory=memory).evaluate(Q, 10).candidates == expected


@pytest.mark.filterwarnings("ignore:the data fills")
def test_a_graph_of_equal_items_is_saved_and_opened(tmp_path: Path) -> None:
    rows = np.ones((ROWS, 8), dtype=np.float32)
    index = Index(LinearCoder(32).fit(rows), graph=True)
    index.add(rows)
    index.save(tmp_path / "index")
    with Index.open(tmp_path / "index") as opened:
        assert opened.search(rows[0], 3).ids.tolist() == index.search(rows[0], 3).ids.tolist()


def test_merging_keeps_graphs_only_where_they_are_wanted() -> None:
    index, bare = plain(), Index(coder())
    bare.merge(index)
    assert [one.graph for one in bare._live.current.segments] == [None]
    other = Index(coder(), graph=True)
    other.merge(index)
    assert other._live.current.segments[0].graph is index._live.current.segments[0].graph
    third = Index(coder(), graph=True)
    third.merge(bare)
    third.wait()
    assert third._live.current.segments[0].graph is not None
    assert np.array_equal(third.search(Q, candidates=30).ids, index.search(Q, candidates=30).ids)


def test_searches_go_on_while_segments_are_merged_and_graphs_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "BUFFER_ITEMS", 16)
    monkeypatch.setattr(compaction, "MIN_GRAPH", 40)
    index = Index(coder(), graph=True)
    index.add(X[:200])

    def write() -> None:
        for first in range(200, 600, 20):
            index.add(X[first : first + 20], ids=np.arange(first, first + 20))
            index.remove(np.arange(first - 200, first - 190))

    def read(turn: int) -> None:
        row = 550 if turn % 2 else 195
        hits = index.search(X[row], 3, candidates=50)
        codes = index.reconstruct(np.array([195]))
        assert row != 195 or hits.ids[0] == 195
        assert np.isfinite(codes).all()
        assert (np.diff(hits.distances) >= 0).all()

    done = threading.Event()
    together(before(done, write), until(done, read), until(done, read))
    index.compact()
    twins.check_hits(
        index.search(Q, 10, candidates=50), twins.distances(Q, index.reconstruct(index.ids), "l2"), index.ids, ERROR
    )


# files


def test_saving_and_opening_change_no_answers(filled: Any, tmp_path: Path) -> None:
    index, _, ids = filled
    index.save(tmp_path)
    opened = Index.open(tmp_path)
    assert opened.graph
    for options in ({"candidates": 20}, {"candidates": 20, "filter": ids[::2]}):
        a, b = (one.search(Q, 10, **options) for one in (index, opened))
        assert np.array_equal(a.ids, b.ids)
    opened.verify()
    with Index.open(tmp_path, mode="a") as changed:
        changed.add(FRESH, ids=np.arange(2000, 2000 + ROWS))
        changed.commit()
    with Index.open(tmp_path) as opened:
        assert all(one.graph is not None for one in opened._live.current.segments if len(one) >= compaction.MIN_GRAPH)
        opened.verify()


@pytest.mark.parametrize("share", [0.2, 0.5], ids=["tombstones stay", "the segment is rewritten"])
def test_saving_what_is_left_of_few_distinct_codes_changes_no_answers(share: float, tmp_path: Path) -> None:
    index = Index(coder(), width=3, graph=True)  # 8 codes: most estimates are equal
    index.add(X)
    index.wait()
    index.remove(np.random.default_rng(0).permutation(ROWS)[: int(share * ROWS)])
    index.save(tmp_path)
    opened = Index.open(tmp_path)
    assert [len(one.tombstones) > 0 for one in opened._live.current.segments] == [share <= compaction.MAX_DELETED]
    for k, budget in ((1, 1), (10, 20), (50, 200)):
        a, b = (one.search(Q, k, candidates=budget) for one in (index, opened))
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.distances, b.distances)
        twins.check_hits(a, distances(index, index.ids), index.ids, ERROR)


def test_a_graph_is_written_beside_the_files_of_its_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing after a commit keeps a graph that was finished since, and writes nothing else again."""
    Index(coder(), graph=True).save(tmp_path)
    with Index.open(tmp_path, mode="a") as index, monkeypatch.context() as patch:
        patch.setattr(compaction, "MIN_GRAPH", 10**6)
        index.add(X)
        index.commit()
        files = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")}
        patch.undo()
        index._live._start_compaction()
    left = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")}
    assert files.items() < left.items()
    assert sorted(name.split(".")[1] for name in left.keys() - files.keys()) == [
        "corrections",
        "groups",
        "neighbors",
        "sums",
    ]
    assert Index.open(tmp_path)._live.current.segments[0].graph is not None


def test_a_reader_refreshes_and_keeps_what_it_packed(tmp_path: Path) -> None:
    plain().save(tmp_path)
    reader = Index.open(tmp_path)
    graph, packed = reader._live.current.segments[0].graph, reader.nbytes
    reader.search(Q, candidates=20)
    packed = reader.nbytes - packed
    with Index.open(tmp_path, mode="a") as index:
        index.add(FRESH[:9], ids=range(ROWS, ROWS + 9))
        index.commit()
    assert reader.refresh()
    assert reader._live.current.segments[0].graph is graph
    assert reader.nbytes > packed
    assert np.array_equal(reader.search(FRESH[:9], 1).ids.ravel(), np.arange(ROWS, ROWS + 9))


def test_truncated_codes_keep_their_graph(tmp_path: Path) -> None:
    index = plain()
    index.save(tmp_path)
    index.search(Q, candidates=20)
    with Index.open(tmp_path, mode="a") as opened:
        opened.truncate(40)
        opened.commit()
    index.truncate(40)
    for each in (index, Index.open(tmp_path)):
        assert each._live.current.segments[0].graph is not None
        hits = each.search(Q, 10, candidates=60)
        twins.check_hits(hits, distances(each, np.arange(ROWS)), np.arange(ROWS), ERROR)
        assert recall(hits, each.search(Q, 10, candidates=ROWS)) > 0.95


def test_closing_saves_no_changes_that_were_not_committed(tmp_path: Path) -> None:
    plain().save(tmp_path)
    with Index.open(tmp_path, mode="a") as index:
        index.add(FRESH)
        index.wait()
    assert len(Index.open(tmp_path)) == ROWS


@pytest.mark.parametrize("save_graphs", [False, True])
def test_closing_leaves_a_restored_copy_as_it_is(save_graphs: bool, tmp_path: Path) -> None:
    """Also where a graph was built since the last commit."""
    plain().save(tmp_path)
    copy = contents(tmp_path)
    index = Index.open(tmp_path, mode="a")
    index.remove(range(0, ROWS, 2))  # enough for a new segment and its graph
    index.commit()
    index.wait()
    assert index._live.current is not index._committed[0]
    for path in tmp_path.glob("*[!k]"):  # all but the lock
        path.unlink()
    for name, data in copy.items():
        (tmp_path / name).write_bytes(data)
    index.close(save_graphs=save_graphs)
    assert contents(tmp_path) == copy
    with Index.open(tmp_path, mode="a") as again:  # the lock is free
        assert len(again) == ROWS


def test_closing_without_saving_graphs_waits_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain().save(tmp_path)
    index, built, go = Index.open(tmp_path, mode="a"), list[int](), threading.Event()
    build = index._live._build_graph
    assert build is not None

    def slow(segment: Segment) -> StoredGraph:
        go.wait()
        built.append(len(segment))
        return build(segment)

    monkeypatch.setattr(compaction, "SIZE_RATIO", 0)  # so that each segment gets a graph of its own
    monkeypatch.setattr(compaction, "GRAPH_RATIO", 0)
    monkeypatch.setattr(index._live, "_build_graph", slow)
    for first in (0, 400):
        index.add(FRESH[first : first + 400])
        index.commit()
    committed = contents(tmp_path)
    index.close(save_graphs=False)
    go.set()
    index._live.wait()
    assert len(built) == 1  # what was being built, and not the next
    assert contents(tmp_path) == committed


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of one segment and its graph."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "MIN_GRAPH", 100)
        plain().save(folder)
    return folder


@pytest.mark.parametrize("array", ["neighbors", "groups", "corrections"])
def test_damage_to_a_graph_is_noticed(array: str, saved: Path, tmp_path: Path) -> None:
    (file,) = saved.glob(f"*.{array}.npy")
    data = file.read_bytes()
    damaged: dict[str, bytes | None] = {"shorter": data[:-4], "missing": None}
    for place in (200, len(data) - 1):
        damaged[f"byte {place}"] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    for name, content in damaged.items():
        folder = tmp_path / name
        shutil.copytree(saved, folder)
        if content is None:
            (folder / file.name).unlink()
        else:
            (folder / file.name).write_bytes(content)
        with pytest.raises(DamagedFile, match=re.escape(file.name)):
            Index.open(folder).search(Q, candidates=20)
        with pytest.raises(DamagedFile, match=re.escape(file.name)):
            Index.open(folder).verify()


@pytest.mark.parametrize(("dtype", "array"), [("float32", "vectors"), ("int8", "vectors"), ("int8", "scales")])
@pytest.mark.parametrize("filtered", [False, True])
def test_damage_to_a_vector_is_noticed_where_a_walk_visits_it(
    filtered: bool, dtype: Any, array: str, tmp_path: Path
) -> None:
    index = Index(coder(), vectors=dtype, graph=True)
    index.add(X)
    index.compact()
    index.save(tmp_path)
    (file,) = tmp_path.glob(f"*.{array}.npy")
    data = bytearray(file.read_bytes())
    data[128::4096] = bytes(byte ^ 1 for byte in data[128::4096])
    file.write_bytes(data)
    opened = Index.open(tmp_path)
    with pytest.raises(DamagedFile, match=re.escape(file.name)):
        opened.search(Q, candidates=20, filter=np.arange(ROWS - 1) if filtered else None)
    with pytest.raises(DamagedFile, match=re.escape(file.name)):
        opened.search(Q, candidates=20)


def test_a_crafted_graph_is_refused(tmp_path: Path) -> None:
    index = plain()
    graph = index._live.current.segments[0].graph
    assert graph is not None
    wrong = graph.neighbors.copy()
    wrong[7, 3] = ROWS
    object.__setattr__(graph, "neighbors", wrong)
    index.save(tmp_path)
    with pytest.raises(DamagedFile, match="does not fit"):
        Index.open(tmp_path).search(Q, candidates=20)


GRAPH = ("segments", 0, "graph")
MISTAKES: dict[str, tuple[tuple[str | int, ...], Any, str]] = {
    "a graph that is true": (GRAPH, True, "does not describe"),
    "another degree": ((*GRAPH, "degree"), 16, "16 should be an integer from 32 to 32"),
    "a name that leads out": ((*GRAPH, "name"), "../000001", "is no file of an index"),
    "another file": ((*GRAPH, "name"), "000001", r"000001\.\w+\.npy"),
    "fewer than no columns": ((*GRAPH, "columns"), -1, "-1 should be an integer from 0 to 128"),
    "no columns": ((*GRAPH, "columns"), 0, r"sums\.npy is damaged"),
    "other sums": ((*GRAPH, "sums"), "0" * 64, r"sums\.npy is damaged"),
    "files to come that are there": (("next",), 2, "2 should be an integer"),
    "text for whether there are graphs": (("graph",), "yes", "'yes' should be"),
    "graphs without a coder": (("coder",), None, "True should be"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_crafted_manifest_is_refused(mistake: str, saved: Path, tmp_path: Path) -> None:
    place, value, message = MISTAKES[mistake]
    shutil.copytree(saved, tmp_path / "index")
    craft(tmp_path / "index", put(place, value))
    with pytest.raises(DamagedFile, match=message):
        Index.open(tmp_path / "index")


# errors


def test_a_graph_needs_a_coder_it_can_be_navigated_by() -> None:
    with pytest.raises(InvalidInput, match="graph=True needs vectors to compare, got no coder"):
        Index(width=8, graph=True)
    with pytest.raises(InvalidInput, match="of a LinearCoder or a RotationCoder, got a ResidualCoder: fit one"):
        Index(ResidualCoder(16).fit(X), graph=True)
    with pytest.raises(InvalidInput, match="graph must be True or False, got 'yes'"):
        Index(coder(), graph="yes")  # type: ignore[arg-type]


def test_rotated_bit_planes_navigate_too() -> None:
    index = Index(RotationCoder(64).fit(X), vectors="float32", graph=True)
    index.add(X)
    index.compact()
    assert recall(index.search(Q, candidates=100), index.search(Q, candidates=ROWS)) > 0.95


def test_bare_codes_may_be_added() -> None:
    index = Index(coder(), graph=True)
    index.add(coder().encode(X))
    index.wait()
    assert np.array_equal(index.search(Q, candidates=30).ids, plain().search(Q, candidates=30).ids)
    assert isinstance(index.codes([3]), Codes)
