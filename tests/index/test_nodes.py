"""Graphs whose nodes stay in their file: what a walk in memory finds, with one block for each visit."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Index, LinearCoder
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import compaction
from nestcode.search import planner
from nestcode.search.graph import DEGREE
from nestcode.search.nodes import NO_SLOT, NodeLayout, count_blocks, node_blocks, place_nodes
from nestcode.search.vectors import VectorFormat
from tests import twins

ROWS = 900
COPIES = 7  # of the first item, which have one node with it
X, Q = twins.clustered(ROWS), twins.clustered(12, seed=2)
X[1 : 1 + COPIES] = X[0]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments get graphs, and walks on them are never given up for scans."""
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)
    monkeypatch.setattr(planner, "NS_PER_SCAN", 1e12)


@cache
def coder(metric: Any) -> Coder:
    return LinearCoder(64, metric=metric).fit(X)


def save(folder: Path, vectors: Any = "float16", metric: Any = "l2") -> Index:
    """Save one segment with a graph, of which some items were removed."""
    index = Index(coder(metric), vectors=vectors, graph=True)
    index.add(X)
    index.compact()
    index.remove(np.arange(3, ROWS, 10))
    index.save(folder, memory="codes")
    return index


def file_of(folder: Path, name: str) -> Path:
    """The file of an array, of which there is one."""
    (path,) = folder.glob(f"*.{name}.npy")
    return path


def flip(path: Path, at: int = -1) -> None:
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("vectors", ["float32", "float16", "int8"])
def test_a_walk_through_a_file_finds_what_a_walk_in_memory_finds(vectors: Any, metric: Any, tmp_path: Path) -> None:
    built = save(tmp_path, vectors, metric)
    opened = Index.open(tmp_path, memory="codes")
    for options in (
        {"candidates": 20},
        {"candidates": 3 * ROWS // 4},
        {"candidates": 20, "filter": np.arange(0, ROWS, 2)},
        {"candidates": 20, "rank": "asymmetric"},
        {},
    ):
        for _ in range(2):  # cold and warm
            hits, expected = (one.search(Q, k=9, **options) for one in (opened, built))
            assert np.array_equal(hits.compared, expected.compared)
            assert np.array_equal(hits.ids, expected.ids)
            assert np.array_equal(hits.distances, expected.distances)
        one, twin = (index.search(Q[0], k=9, **options) for index in (opened, built))
        assert np.array_equal(one.ids, twin.ids)


def test_a_tier_holds_what_navigates_and_walks_read_nodes_only(tmp_path: Path) -> None:
    save(tmp_path)
    for name in ("vectors", "codes", "neighbors"):  # not even their checksums are computed
        flip(file_of(tmp_path, name))
    opened = Index.open(tmp_path, memory="codes")
    (one,) = opened._live.current.segments
    assert one.graph is not None
    assert set(one.graph.mapped) == {"neighbors", "nodes"}
    assert {"ids"} == set(one.segment.arrays()) - set(one.segment.mapped)
    assert opened.search(X[500], k=1, candidates=30).ids.tolist() == [500]
    parts = opened.nbytes_by_part()
    assert parts["prepared"] < parts["codes"]  # no records


@pytest.mark.parametrize(("name", "at"), [("nodes", 5000), ("slots", -1), ("groups", -1)])
def test_damage_is_noticed(name: str, at: int, tmp_path: Path) -> None:
    save(tmp_path)
    flip(file_of(tmp_path, name), at)
    with pytest.raises(DamagedFile, match=rf"{name}\.npy is damaged"):
        Index.open(tmp_path, memory="codes").search(X[::5], k=1, candidates=200)
    with pytest.raises(DamagedFile, match=rf"{name}\.npy is damaged"):
        Index.open(tmp_path).verify()


def test_slots_beyond_the_blocks_are_refused(tmp_path: Path) -> None:
    save(tmp_path)
    opened = Index.open(tmp_path, memory="codes")
    (one,) = opened._live.current.segments
    assert one.graph is not None
    assert one.graph.nodes is not None
    one.graph.nodes.slots[5] = 10**6
    with pytest.raises(DamagedFile, match="the files of a graph do not fit each other"):
        opened.search(Q[0], candidates=20)


def test_a_tier_lives_through_commits(tmp_path: Path) -> None:
    save(tmp_path)
    reader = Index.open(tmp_path, memory="codes")
    with Index.open(tmp_path, mode="a", memory="codes") as writer:
        writer.add(Q[:5], ids=10_000 + np.arange(5))
        for one in (writer, Index.open(tmp_path, memory="codes")):  # beside its buffer, and without
            assert one.search(X[11], k=1, candidates=30).ids.tolist() == [11]
        assert writer.search(Q[3], k=1, candidates=30).ids.tolist() == [10_003]
        writer.commit()
        assert reader.refresh()
        assert reader.search(Q[3], k=1, candidates=30).ids.tolist() == [10_003]  # a segment without a graph
        writer.compact()
        writer.commit()
    assert reader.refresh()
    for one in (reader, Index.open(tmp_path, memory="codes")):
        assert one.search(Q[3], k=1, candidates=30).ids.tolist() == [10_003]
        assert not np.isin(one.search(X, k=3, candidates=30).ids, np.arange(3, ROWS, 10)).any()
    copy = tmp_path / "copy"
    reader.save(copy)
    Index.open(copy).verify()
    assert Index.open(copy, memory="codes").search(X[11], k=1, candidates=30).ids.tolist() == [11]


def test_nodes_are_written_where_they_are_requested(tmp_path: Path) -> None:
    built = save(tmp_path / "nodes")
    built.save(tmp_path / "plain")  # an index in memory has none to copy
    opened = Index.open(tmp_path / "nodes")
    opened.save(tmp_path / "copy")
    opened.save(tmp_path / "without", memory="all")
    found = [len(list((tmp_path / name).glob("*.nodes.npy"))) for name in ("nodes", "plain", "copy", "without")]
    assert found == [1, 0, 1, 0]
    assert Index.open(tmp_path / "plain", memory="codes").explain(Q[0]).operator == "lists"
    with pytest.raises(InvalidInput, match="memory must be"):
        built.save(tmp_path / "other", memory="nodes")


def test_a_writer_adds_nodes_to_the_graphs_of_an_index(tmp_path: Path) -> None:
    index = save(tmp_path / "nodes")
    index.save(tmp_path / "plain")
    with Index.open(tmp_path / "plain", mode="a", memory="codes") as writer:
        writer.commit()
    for one in (tmp_path / "nodes", tmp_path / "plain"):
        opened = Index.open(one, memory="codes")
        opened.verify()
        assert opened.explain(Q[0]).operator == "walk"
        assert np.array_equal(opened.search(Q, candidates=30).ids, index.search(Q, candidates=30).ids)
    with Index.open(tmp_path / "plain", mode="a") as writer:  # which goes on writing them
        writer.add(Q, ids=10_000 + np.arange(len(Q)))
        writer.compact()
        writer.commit()
    opened = Index.open(tmp_path / "plain", memory="codes")
    assert opened.explain(Q[0]).operator == "walk"
    assert opened.search(Q[3], k=1, candidates=30).ids.tolist() == [10_003]


def test_graphs_without_nodes_are_searched_by_lists(tmp_path: Path) -> None:
    """Files of early versions have no nodes, and graphs of codes have none."""
    save(tmp_path, vectors=None)
    assert not list(tmp_path.glob("*.nodes.npy"))
    opened = Index.open(tmp_path, memory="codes")
    assert opened.explain(Q[0]).operator == "lists"
    assert opened.search(X[11], k=1).ids.tolist() == [11]


def test_a_missing_file_of_nodes_is_damage(tmp_path: Path) -> None:
    save(tmp_path)
    kept = tmp_path.with_name("kept")
    shutil.copytree(tmp_path, kept)
    file_of(tmp_path, "nodes").unlink()
    with pytest.raises(DamagedFile, match=r"nodes\.npy is missing"):
        Index.open(tmp_path, memory="codes")


def ring(count: int, step: int = 1) -> np.ndarray[Any, Any]:
    """Neighbors on a ring."""
    return ((np.arange(count)[:, None] + step * np.arange(1, DEGREE + 1)) % count).astype(np.uint32)


@pytest.mark.parametrize("features", [3, 100, 700, 2500])
def test_blocks_hold_neighbors_and_vectors_at_their_slots(features: int) -> None:
    count = 137
    vectors = VectorFormat("float32", features).round(np.random.default_rng(0).standard_normal((count, features)))
    neighbors, layout = ring(count, step=4), NodeLayout.of(vectors.format)
    neighbors[10] = 10  # a duplicate
    slots = place_nodes(neighbors, layout)
    assert layout.block_bytes % 4096 == 0
    assert layout.block_bytes >= layout.nodes * layout.node_bytes > layout.block_bytes - 4096
    assert slots[10] == NO_SLOT
    assert sorted(np.delete(slots, 10)) == list(range(count - 1))
    blocks = np.concatenate(list(node_blocks(neighbors, vectors, slots, layout)))
    assert blocks.shape == (count_blocks(slots, layout), layout.block_bytes)
    for item in (0, 9, 11, count - 1):
        block, place = divmod(int(slots[item]), layout.nodes)
        node = blocks[block, place * layout.node_bytes :][: layout.node_bytes]
        assert np.array_equal(node[: 4 * DEGREE].view("<u4"), neighbors[item])
        assert np.array_equal(node[4 * DEGREE :][: 4 * features].view("<f4"), vectors.rows[item])
