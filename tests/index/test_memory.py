"""Memory tiers: what is in memory, and that searches find what they find without tiers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Codes, Index, _core
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index.buffer import Buffer
from nestcode.search.vectors import VectorFormat
from nestcode.storage import Mapped, write_array
from tests.search.searching import KINDS, Q, X, assert_close, bare, fill, fitted

TIERS: dict[str, set[str]] = {  # and what stays in files
    "all": set(),
    "codes": {"heads", "tables", "places", "vectors"},
}


@pytest.fixture(scope="module", params=KINDS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with vectors, of several segments with tombstones."""
    path: Path = tmp_path_factory.mktemp(request.param) / "index"
    fill(Index(fitted(request.param), vectors="int8")).index.save(path)
    return path


@pytest.mark.parametrize("memory", TIERS)
def test_a_tier_holds_its_arrays_in_memory(memory: str, saved: Path) -> None:
    for one in Index.open(saved, memory=memory)._live.current.segments:
        arrays = set(one.segment.arrays())
        reranked = {"codes"} if memory == "codes" and "blocks" in arrays else set()  # by vectors: codes are not read
        assert set(one.segment.mapped) == (TIERS[memory] | reranked) & arrays


@pytest.mark.parametrize("memory", TIERS)
def test_every_tier_finds_the_same(memory: str, saved: Path) -> None:
    mapped, held = Index.open(saved), Index.open(saved, memory=memory)
    for options in ({}, {"rank": "asymmetric"}, {"rank": "hamming"}, {"candidates": 5000}):
        budget: dict[str, Any] = {"candidates": 200, **options}
        for _ in range(2):  # cold and warm
            assert_close(held.search(Q, k=7, **budget), mapped.search(Q, k=7, **budget))
    hoods, expected = (one.neighborhood(Q, size=3) for one in (held, mapped))
    assert np.array_equal(hoods.count, expected.count)


def test_damage_is_noticed_in_every_tier(tmp_path: Path) -> None:
    for name, seen_by in (("codes", "all"), ("vectors", "codes")):
        folder = tmp_path / seen_by / name
        fill(Index(fitted("cell"), vectors="float32")).index.save(folder)
        path = next(folder.glob(f"*.{name}.npy"))
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(DamagedFile, match=path.name):
            Index.open(folder, memory=seen_by).search(Q, candidates=5000)


def test_a_reader_refreshes_and_a_writer_writes_in_a_tier(tmp_path: Path) -> None:
    fill(Index(fitted("cell"), vectors="float16")).index.save(tmp_path)
    reader = Index.open(tmp_path, memory="codes")
    reader.search(Q, candidates=100)
    with Index.open(tmp_path, mode="a", memory="codes") as writer:
        writer.add(X[:1], ids=[7777])
        writer.compact()
        writer.commit()
    assert reader.refresh()
    assert reader.search(X[0], k=2).ids.tolist() == Index.open(tmp_path).search(X[0], k=2).ids.tolist()


@pytest.mark.parametrize("memory", ["prefix=128", "some", "", 3, b"all"])
def test_other_tiers_are_refused(memory: Any, tmp_path: Path) -> None:
    bare().index.save(tmp_path)
    with pytest.raises(InvalidInput, match='memory must be "all", "codes" or None, got'):
        Index.open(tmp_path, memory=memory)


def test_reading_ahead_changes_nothing(tmp_path: Path) -> None:
    rows = np.arange(300_000.0).reshape(-1, 30)
    mapped = Mapped(tmp_path / "a.npy", rows.dtype, rows.shape, write_array(tmp_path / "a.npy", rows))
    mapped.expect_few_reads()
    for positions in ([], [0], [9999, 0, 5000, 5001, 9999]):
        _core.read_ahead(mapped.array, mapped.guard, np.array(positions, dtype=np.int64))
    with pytest.raises(ValueError, match="positions must be rows of the array"):
        _core.read_ahead(mapped.array, None, np.array([10_000]))
    assert np.array_equal(mapped.array, rows)
    mapped.verify()


def test_a_buffer_counts_all_its_bytes() -> None:
    stored = VectorFormat("int8", 5)
    empty = Buffer.empty(13, stored)
    one = empty.insert(Codes.from_bits(np.ones((1, 13), dtype=bool)), np.array([7]), stored.round(np.ones((1, 5))))
    assert empty.nbytes == 0
    assert one.nbytes == empty.room * (2 + 8 + 5 + 4) + 8 + 4
    assert one.room == empty.room - 1
