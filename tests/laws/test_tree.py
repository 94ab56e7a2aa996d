"""Laws of the prefix tree: every neighborhood is that of the paper's procedure on a literal tree, bit by bit."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from nestcode import Codes, _core
from nestcode.errors import InvalidInput
from nestcode.index import PrefixTree
from nestcode.index.segment import LiveSegment, Segment
from nestcode.index.tree import Forest
from tests import twins

WIDTHS = [1, 2, 7, 8, 9, 63, 64, 65, 100, 128, 129, 300]


@st.composite
def items_and_queries(draw: st.DrawFn) -> tuple[twins.Bits, twins.Bits]:
    """Items and queries that share long prefixes: few different rows, repeated, and cut off to a common start."""
    width = draw(st.sampled_from(WIDTHS))
    seeds = draw(hnp.arrays(np.bool_, (draw(st.integers(1, 4)), width)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def grow(count: int) -> twins.Bits:
        bits = seeds[rng.integers(0, len(seeds), count)]
        fresh = rng.random((count, width)) < draw(st.sampled_from([0.0, 0.2, 0.5]))
        starts = rng.integers(0, width + 1, count)
        return np.where(np.arange(width) < starts[:, None], bits, fresh)

    return grow(draw(st.integers(0, 60))), grow(4)


def check(tree: Forest, twin: twins.BitTree, queries: twins.Bits, size: int) -> None:
    codes = Codes.from_bits(queries)
    hoods = tree.neighborhoods(codes, size=size)
    runs: tuple[Any, ...] = tree.runs
    in_tree_order = [item for run in runs for item in run.live_ids().tolist()]
    for i, query in enumerate(queries):
        length, members = twin.neighborhood(query, size)
        ids = [item for item in in_tree_order if item in members]
        assert sorted(ids) == members
        assert (hoods.length[i], hoods.count[i]) == (length, len(members))
        assert hoods.ids[hoods.offsets[i] : hoods.offsets[i + 1]].tolist() == ids
        assert hoods[i].ids.tolist() == ids
        one = tree.neighborhood(codes[i], size=size)
        assert (one.length, one.count, one.ids.tolist()) == (length, len(members), ids)
    assert (hoods.offsets[0], hoods.offsets[-1]) == (0, len(hoods.ids))


@given(items_and_queries(), st.integers(1, 70))
def test_the_neighborhood_is_the_papers(crowd: tuple[twins.Bits, twins.Bits], size: int) -> None:
    items, queries = crowd
    tree = PrefixTree(Codes.from_bits(items))
    check(tree, twins.BitTree(items, np.arange(len(items))), np.concatenate([queries, items[:3]]), size)


@given(items_and_queries())
def test_nested_gives_every_neighborhood(crowd: tuple[twins.Bits, twins.Bits]) -> None:
    items, queries = crowd
    tree, twin = PrefixTree(Codes.from_bits(items)), twins.BitTree(items, np.arange(len(items)))
    for query in queries:
        family, expected = tree.nested(Codes.from_bits(query[None])), twin.family(query)
        assert family.length.tolist() == list(range(len(expected)))
        assert [sorted(hood.ids.tolist()) for hood in family] == expected
        assert family.count.tolist() == [len(members) for members in expected]


@given(items_and_queries(), st.data())
def test_a_forest_is_the_tree_of_all_that_was_not_deleted(
    crowd: tuple[twins.Bits, twins.Bits], data: st.DataObject
) -> None:
    items, queries = crowd
    owner = data.draw(hnp.arrays(np.int8, len(items), elements=st.integers(0, 3)))
    deleted = data.draw(hnp.arrays(np.bool_, len(items)))
    ids = np.arange(len(items), dtype=np.int64)
    segments = []
    for part in range(4):
        segment = Segment.build(Codes.from_bits(items[owner == part]), ids[owner == part])
        segments.append(LiveSegment(segment, np.flatnonzero(deleted[segment.ids]).astype(np.uint32)))
    twin = twins.BitTree(items[~deleted], ids[~deleted])
    for size in (1, 2, 5, 33):
        check(Forest(segments, items.shape[1]), twin, queries, size)
    merged = Segment.merge(segments, items.shape[1])
    plain = Segment.build(Codes.from_bits(items[~deleted]), ids[~deleted])
    assert merged.codes == plain.codes
    for name, array in plain.arrays().items():
        if name not in ("ids", "places"):  # equal codes of different segments may come in another order
            assert np.array_equal(merged.arrays()[name], array)
    assert sorted(merged.ids) == sorted(plain.ids)
    check(Forest([LiveSegment(merged)], items.shape[1]), twin, queries, 2)


@pytest.mark.parametrize("density", [0.5, 0.2, 0.02])
@pytest.mark.parametrize("width", [40, 64, 2049])
def test_large_trees_agree_with_shared_prefixes(width: int, density: float) -> None:
    """Deep tables, dense subtrees and more than 64 shared bits, on one thread and several."""
    rng = np.random.default_rng(0)
    items, queries = (
        Codes.from_bits(rng.random((20_000, width)) < density),
        Codes.from_bits(rng.random((300, width)) < density),
    )
    shared = np.sort(items.common_prefix(queries), axis=0)[::-1]
    tree = PrefixTree(items)
    for size in (1, 2, 32, 512, 19_999):
        for threads in (1, 3):
            hoods = tree.neighborhood(queries, size=size, threads=threads)
            assert np.array_equal(hoods.length, shared[size - 1])
            assert np.array_equal(hoods.count, (shared >= shared[size - 1]).sum(axis=0))
            every = [hood.ids for hood in hoods[::-7]]
            assert np.array_equal(hoods[::-7].ids, np.concatenate(every))


@given(items_and_queries(), st.floats(0.001, 1))
def test_a_fraction_is_a_share_of_the_items(crowd: tuple[twins.Bits, twins.Bits], fraction: float) -> None:
    items, queries = crowd
    tree, codes = PrefixTree(Codes.from_bits(items)), Codes.from_bits(queries)
    fewest = next(count for count in range(1, len(items) + 2) if not len(items) or count / len(items) >= fraction)
    by_size = tree.neighborhoods(codes, size=fewest)
    by_fraction = tree.neighborhoods(codes, fraction=fraction)
    assert np.array_equal(by_size.length, by_fraction.length)
    assert np.array_equal(by_size.count, by_fraction.count)


def test_empty_and_tiny_trees() -> None:
    empty = PrefixTree(Codes.from_bits(np.zeros((0, 5), dtype=bool)))
    query = Codes.from_bits([[1, 0, 1, 0, 1]])[0]
    assert repr(empty.neighborhood(query, size=3)) == "Neighborhood(length=0, count=0)"
    assert empty.neighborhood(query, size=3).ids.tolist() == []
    assert list(zip(empty.nested(query).length, empty.nested(query).count, strict=True)) == [(0, 0)]
    one = PrefixTree(query, ids=[77])
    assert one.neighborhood(query, size=1).length == 5
    assert one.neighborhood(query, size=2).length == 0
    assert one.neighborhood(query, size=2).ids.tolist() == [77]
    twice = PrefixTree(query.concat(query, query))
    assert (twice.neighborhood(query, size=2).length, twice.neighborhood(query, size=2).count) == (5, 3)
    no_bits = PrefixTree(Codes.from_bits(np.zeros((3, 0), dtype=bool)))
    assert no_bits.neighborhood(Codes.from_bits(np.zeros((1, 0), dtype=bool))[0], size=1).count == 3
    foreign = PrefixTree(Codes.from_bits([[0, 1], [0, 0]]))
    assert foreign.neighborhood(Codes.from_bits([[1, 1]])[0], size=1).length == 0
    assert len(foreign.neighborhood(Codes.from_bits(np.zeros((0, 2), dtype=bool)), size=1)) == 0


def test_queries_may_be_views() -> None:
    codes = Codes.from_bits(np.random.default_rng(0).random((50, 40)) < 0.5)
    tree = PrefixTree(codes.prefix(24))
    for view in (codes[::-3], codes[5:9]):
        hoods = tree.neighborhood(view.prefix(24), size=1)
        assert (hoods.length == 24).all()
        assert {tree.neighborhood(code.prefix(24), size=1).length for code in view} == {24}
    assert pickle.loads(pickle.dumps(tree)).neighborhood(codes[3].prefix(24), size=1).ids.tolist() == [3]


CODE = Codes.from_bits([[0, 1]])
TREE = PrefixTree(CODE.concat(Codes.from_bits([[0, 0]])))
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a query that is no code": (lambda: TREE.neighborhood([1, 0], size=1), "queries must be Codes, got list"),
    "a width": (lambda: TREE.neighborhood(CODE.prefix(1), size=1), "width 2 of the searched codes, got 1"),
    "no size": (lambda: TREE.neighborhood(CODE), "either size"),
    "both": (lambda: TREE.neighborhood(CODE, size=1, fraction=0.5), "either size"),
    "size 0": (lambda: TREE.neighborhood(CODE, size=0), "size must be an integer of at least 1, got 0"),
    "size -1": (lambda: TREE.neighborhood(CODE, size=-1), "size must be an integer of at least 1, got -1"),
    "size 1.5": (lambda: TREE.neighborhood(CODE, size=1.5), "size must be an integer"),  # type: ignore[arg-type]
    "size True": (lambda: TREE.neighborhood(CODE, size=True), "size must be an integer"),
    "fraction 0": (lambda: TREE.neighborhood(CODE, fraction=0), "above 0 and at most 1, got 0"),
    "fraction 2": (lambda: TREE.neighborhood(CODE, fraction=2), "above 0 and at most 1, got 2"),
    "fraction nan": (lambda: TREE.neighborhood(CODE, fraction=float("nan")), "got nan"),
    "threads": (lambda: TREE.neighborhood(CODE.concat(CODE), size=1, threads=0), "threads must be an integer"),
    "several": (lambda: TREE.nested(CODE.concat(CODE)), "nested takes one code, got 2"),
    "ids twice": (lambda: PrefixTree(CODE.concat(CODE), ids=[3, 3]), "ids must be distinct, got 3"),
    "ids below 0": (lambda: PrefixTree(CODE, ids=[-3]), "ids must be from 0"),
    "too few ids": (lambda: PrefixTree(CODE, ids=[]), "one id for each item, got 0 ids for 1 items"),
    "no codes": (lambda: PrefixTree([[0, 1]]), "expected Codes, got list"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_huge_size_gives_the_root() -> None:
    codes = Codes.from_bits([[0, 1], [0, 0]])
    for size in (2**31, 2**32 + 1, 2**62, 2**70):
        assert (PrefixTree(codes).neighborhood(codes[0], size=size).count) == 2


@given(st.integers(0, 400), st.integers(0, 2**32))
def test_checksums_equal_their_python_twin(size: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    assert _core.block_checksums(data).tolist() == [checksum(data[:size].tobytes())] * (size > 0)


def test_every_block_has_its_own_checksum() -> None:
    data = np.random.default_rng(0).integers(0, 256, 3 * 65536 + 5, dtype=np.uint8)
    expected = [checksum(data[start : start + 65536].tobytes()) for start in range(0, len(data), 65536)]
    assert _core.block_checksums(data).tolist() == expected
    for place in (0, 7, 65535, 65536, len(data) - 1):
        changed = data.copy()
        changed[place] ^= 1
        assert np.flatnonzero(_core.block_checksums(changed) != np.array(expected)).tolist() == [place // 65536]


def test_no_two_flipped_bits_cancel() -> None:
    data = np.random.default_rng(0).integers(0, 256, 72, dtype=np.uint8)
    flips = np.zeros((8 * len(data), len(data)), dtype=np.uint8)
    for bit in range(8 * len(data)):
        flips[bit, bit // 8] = 1 << bit % 8
    expected = _core.block_checksums(data)[0]
    for one in range(len(flips)):
        for other in range(one, len(flips)):
            assert _core.block_checksums(data ^ flips[one] ^ (flips[other] if other > one else 0))[0] != expected


def checksum(data: bytes) -> int:
    """The checksum of docs/format.md, in plain Python."""
    lanes = [1, 2, 3, 4]

    def mix(lane: int, word: int) -> int:
        mixed = (lane + word * 0x9E3779B97F4A7C15) % 2**64
        return (mixed << 31 | mixed >> 33) * 0xD1B54A32D192ED03 % 2**64

    padded = data + bytes(-len(data) % 32)
    for at in range(0, len(padded), 8):
        lanes[at // 8 % 4] = mix(lanes[at // 8 % 4], int.from_bytes(padded[at : at + 8], "little"))
    total = len(data)
    for lane in lanes:
        total = mix(total, lane)
    return total ^ total >> 32


def test_inserting_rows_equals_sorting_them() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        bits = rng.random((30, int(rng.choice([3, 64, 70])))) < 0.3
        codes = Codes.from_bits(bits[rng.integers(0, 30, 60)])
        first = int(rng.integers(0, 61))
        order: NDArray[np.uint32] = codes[:first].sort_order().astype(np.uint32)
        heads = np.empty(60, dtype=np.uint64)
        _core.load_heads(codes.packed, heads)
        new_heads, new_order = np.empty(60, dtype=np.uint64), np.empty(60, dtype=np.uint32)
        _core.insert_rows(codes.packed, first, heads[order], order, new_heads, new_order)
        assert np.array_equal(new_order, codes.sort_order())
        assert np.array_equal(new_heads, heads[new_order])


def test_scans_on_both_sides_of_a_code_ascend_and_descend() -> None:
    rng = np.random.default_rng(0)
    codes = Codes.from_bits(rng.random((50, 6)) < 0.5)
    tree = PrefixTree(codes, ids=np.arange(50) + 7)
    keys = [row.tobytes() for row in codes.packed]
    for query in Codes.from_bits(rng.random((5, 6)) < 0.5):
        key = query.packed.tobytes()
        for limit in (1, 4, 99):
            up, down = tree.ascend(query, limit), tree.descend(query, limit)
            assert [row.tobytes() for row in up.codes.packed] == sorted(k for k in keys if k >= key)[:limit]
            assert [row.tobytes() for row in down.codes.packed] == sorted((k for k in keys if k < key), reverse=True)[
                :limit
            ]
            for scan in (up, down):
                assert [keys[i - 7] for i in scan.ids] == [row.tobytes() for row in scan.codes.packed]
