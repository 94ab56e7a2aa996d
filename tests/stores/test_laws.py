"""Every store answers as the index in memory does, item for item."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import CellCoder, Codes, Index, LinearCoder
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import PrefixTree
from nestcode.index.ordered import OrderedCodes, Scan
from nestcode.search import planner
from nestcode.stores import CodeStore, LmdbStore, SqliteStore
from nestcode.stores.base import is_enough
from nestcode.stores.neighborhood import find_neighborhood
from tests.stores.conftest import Create

WIDTHS = [1, 7, 8, 13, 70]


def clustered(count: int, width: int, seed: int = 0) -> Codes:
    """Return codes that share prefixes of many lengths, some of them equal, with the first and the last code."""
    rng = np.random.default_rng(seed)
    bits = rng.random((count, width)) < rng.choice([0.02, 0.5, 0.98], (count, 1))
    bits[0], bits[1], bits[2] = 0, 1, 1
    return Codes.from_bits(bits)


def shuffled_ids(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(1).permutation(10 * count)[:count] + (1 << 40)


def filled(create: Create, codes: Codes, ids: NDArray[np.int64]) -> CodeStore:
    store = create(width=codes.width)
    store.add(codes, ids)
    return store


def pairs(scan: Any) -> list[tuple[bytes, int]]:
    return [(row.tobytes(), item) for row, item in zip(scan.codes.packed, scan.ids.tolist(), strict=True)]


def check_scans(store: OrderedCodes, codes: Codes, ids: NDArray[np.int64], queries: Codes) -> None:
    """Compare the scans with a sorted list; equal codes may be in any order, so only codes are compared at a limit."""
    every = sorted((row.tobytes(), item) for row, item in zip(codes.packed, ids.tolist(), strict=True))
    for query in queries:
        key = query.packed[0].tobytes()
        after, before = [pair for pair in every if pair[0] >= key], [pair for pair in every if pair[0] < key][::-1]
        for limit in (1, 5, len(codes) + 1):
            up, down = pairs(store.ascend(query, limit)), pairs(store.descend(query, limit))
            assert [code for code, _ in up] == [code for code, _ in after[:limit]]
            assert [code for code, _ in down] == [code for code, _ in before[:limit]]
            assert set(up) <= set(after)
            assert set(down) <= set(before)
            assert len(set(up) | set(down)) == len(up) + len(down)
            if isinstance(store, CodeStore):
                length = 3 * limit % codes.width
                for part, whole in zip(store.around(query, limit, length), (after, before), strict=True):
                    bits = Codes(np.array([[*code] for code, _ in whole[:limit]], dtype=np.uint8).reshape(-1, 2), 13)
                    assert part.codes == bits.prefix(length)
        for length in {0, 1, codes.width // 2, codes.width}:
            members = pairs(store.range(query.prefix(length)))
            shared = query.prefix(length).common_prefix(codes.prefix(length))[0] == length
            assert sorted(members) == sorted(pair for pair, own in zip(
                ((row.tobytes(), item) for row, item in zip(codes.packed, ids.tolist(), strict=True)), shared,
                strict=True) if own)  # fmt: skip
            assert [code for code, _ in members] == sorted(code for code, _ in members)


@pytest.mark.parametrize("width", WIDTHS)
def test_scans_of_the_local_tree_are_those_of_a_sorted_list(width: int) -> None:
    codes, ids = clustered(60, width), shuffled_ids(60)
    check_scans(PrefixTree(codes, ids), codes, ids, codes[:6].concat(clustered(9, width, seed=5)))


def test_scans_are_those_of_a_sorted_list(create: Create) -> None:
    codes, ids = clustered(60, 13), shuffled_ids(60)
    check_scans(filled(create, codes, ids), codes, ids, codes[:6].concat(clustered(9, 13, seed=5)))


def check_neighborhoods(store: CodeStore, index: Index, queries: Codes, sizes: list[int]) -> None:
    for size in sizes:
        expected = index.neighborhood(queries, size=size)
        for own, other in zip(store.neighborhood(queries, size=size), expected, strict=True):
            assert (own.length, own.count) == (other.length, other.count)
            assert sorted(own.ids.tolist()) == sorted(other.ids.tolist())


@pytest.mark.parametrize("width", [1, 13, 70])
def test_neighborhoods_are_those_of_the_index(width: int, create: Create) -> None:
    codes, ids = clustered(80, width), shuffled_ids(80)
    store, index = filled(create, codes, ids), Index(width=width)
    index.add(codes, ids)
    queries = codes[:10].concat(clustered(15, width, seed=5))
    check_neighborhoods(store, index, queries, [1, 2, 7, 79, 80, 81])
    for items in (store, index):
        items.remove(ids[:40])
        items.add(codes[:10], ids[40:50], on_duplicate="replace")
    check_neighborhoods(store, index, queries, [1, 3, 39])
    assert len(store) == len(index) == 40
    assert store.codes(ids[40:60]) == index.codes(ids[40:60])


@pytest.mark.parametrize("width", WIDTHS)
def test_scans_find_the_neighborhoods_that_the_core_finds(width: int) -> None:
    codes = clustered(80, width)
    tree = PrefixTree(codes)

    class Local:
        width, ascend, descend, range = tree.width, tree.ascend, tree.descend, tree.range

        def around(self, code: Codes, limit: int, length: int) -> Any:
            sides = tree.ascend(code, limit), tree.descend(code, limit)
            return [Scan(side.ids, side.codes.prefix(length)) for side in sides]

    for query in codes[:10].concat(clustered(15, width, seed=5)):
        for size in (1, 2, 7, 79, 81):
            own, other = find_neighborhood(Local(), query, size), tree.neighborhood(query, size=size)
            assert (own.length, own.ids.tolist()) == (other.length, other.ids.tolist())


def test_more_members_than_there_are_give_the_root(create: Create) -> None:
    codes = clustered(9, 13)
    store = filled(create, codes, np.arange(9))
    for many in (10, 2**62, 2**63, 2**64):
        hood = store.neighborhood(codes[4], size=many)
        assert (hood.length, sorted(hood.ids)) == (0, list(range(9)))
        assert len(store.ascend(codes[0], many).ids) == 9


def put(store: Any, item: int, code: Any) -> None:
    """Write an item to the database of a store, or delete it with code None, as another program would."""
    if isinstance(store, LmdbStore):
        with store._environment.begin(store._codes, write=True) as transaction:
            for key in [bytes(key) for key in transaction.cursor().iternext(values=False)]:
                if key.endswith(item.to_bytes(8, signed=True)):
                    transaction.delete(key)
            if code is not None:
                transaction.put(code + item.to_bytes(8, signed=True), b"")
        return
    mark = store.PLACEHOLDER
    store._connection.execute(f"DELETE FROM {store._table} WHERE id = {mark}", (item,))
    if code is not None:
        store._connection.execute(f"INSERT INTO {store._table} (id, code) VALUES ({mark}, {mark})", (item, code))


def test_items_that_a_store_did_not_write_are_refused(create: Create) -> None:
    codes = clustered(9, 13)
    store = filled(create, codes, np.arange(9))
    expected = store.search(codes, k=3).ids.tolist()
    reads: list[Callable[[], Any]] = [
        lambda: store.descend(codes[1], 99),
        lambda: store.search(codes, k=3),
        lambda: store.neighborhood(codes[0], size=99),
    ]
    wrong: list[tuple[int, Any, int]] = [(50, b"", 1), (50, b"\x10", 3), (50, b"\x10\x20\0", 3), (-3, b"\x10\x20", 3)]
    wrong += [(50, b"\x10\x21", 2)]  # bits past the width, which neighborhoods do not read
    wrong += [(50, "ab", 1)] if isinstance(store, SqliteStore) else []  # a text is less than all blobs
    for item, code, refused in wrong:
        put(store, item, code)
        for read in reads[:refused]:
            with pytest.raises(DamagedFile, match="a code of 13 bits in 2 bytes, but the database holds codes"):
                read()
        put(store, item, None)
    assert store.search(codes, k=3).ids.tolist() == expected


def test_an_empty_store(create: Create) -> None:
    store = create(width=9)
    query = Codes.from_bits(np.zeros((1, 9), dtype=bool))[0]
    assert (store.neighborhood(query, size=3).length, store.neighborhood(query, size=3).count) == (0, 0)
    assert store.search(query, k=2).ids.tolist() == [-1, -1]
    assert (len(store), 0 in store, store.range(query.prefix(0)).ids.tolist()) == (0, False, [])
    store.add(query[:0], [])
    assert len(store) == 0


RNG = np.random.default_rng(0)
X = (RNG.standard_normal((900, 12)) * np.linspace(3, 0.3, 12) + RNG.standard_normal((900, 1))).astype(np.float32)
QUERIES = X[:7] + RNG.standard_normal((7, 12)).astype(np.float32) / 4
IDS = np.arange(900) * 3 + 5
CODERS: dict[str, Coder] = {
    "linear": LinearCoder(width=40).fit(X),
    "cell": CellCoder(width=64, metric="cosine").fit(X),
}


@pytest.fixture(params=list(CODERS))
def both(request: pytest.FixtureRequest, create: Create) -> tuple[CodeStore, Index]:
    store, index = create(CODERS[request.param]), Index(CODERS[request.param])
    for items in (store, index):
        items.add(X, IDS)
    return store, index


def test_search_is_that_of_the_index(both: tuple[CodeStore, Index]) -> None:
    store, index = both
    for candidates in (900, 60):  # all items, and few lists
        own, other = (
            store.search(QUERIES, candidates=candidates),
            index.search(QUERIES, candidates=candidates, rerank=candidates),
        )
        assert own.ids.tolist() == other.ids.tolist()
        assert own.compared.tolist() == other.compared.tolist()
        np.testing.assert_allclose(own.distances, other.distances, rtol=1e-4, atol=1e-5)
    assert store.search(QUERIES[0], k=3).ids.tolist() == index.search(QUERIES[0], k=3).ids.tolist()


def test_search_by_vectors_and_by_codes_is_that_of_the_index(both: tuple[CodeStore, Index]) -> None:
    store, index = both
    vectors = dict(zip(IDS.tolist(), X, strict=True))
    own = store.search(QUERIES, candidates=200, vectors=vectors)
    other = index.search(QUERIES, candidates=200, rerank=200, vectors=vectors)
    assert own.ids.tolist() == other.ids.tolist()
    by_codes = store.search(QUERIES, k=5, rank="hamming"), index.search(QUERIES, k=5, rank="hamming")
    assert by_codes[0].ids.tolist() == by_codes[1].ids.tolist()
    assert by_codes[0].distances.tolist() == by_codes[1].distances.tolist()


def test_search_of_some_ids_is_that_of_the_index(both: tuple[CodeStore, Index]) -> None:
    store, index = both
    mask = np.zeros(IDS.max() + 1, dtype=bool)
    mask[IDS[::2]] = True
    for allowed in ([*IDS[:9].tolist(), 7], IDS[::2], mask, set(IDS[:3].tolist()), []):
        for candidates in (100, 900):
            own = store.search(QUERIES, k=4, filter=allowed, candidates=candidates)
            other = index.search(QUERIES, k=4, filter=allowed, candidates=candidates, rerank=candidates)
            assert own.ids.tolist() == other.ids.tolist()
            np.testing.assert_allclose(own.distances, other.distances, rtol=1e-4, atol=1e-5)


def test_a_mask_allows_no_ids_beyond_its_end(both: tuple[CodeStore, Index]) -> None:
    store, _ = both
    some = np.sort(IDS)[:20]
    mask = np.isin(np.arange(some[-1] + 1), some)
    assert store.search(QUERIES, k=4, filter=mask).ids.tolist() == store.search(QUERIES, k=4, filter=some).ids.tolist()


def test_items_within_a_radius_are_those_of_the_index(both: tuple[CodeStore, Index]) -> None:
    store, index = both
    every = len(index)
    for queries in (X[:3], index.codes(index.ids[:3])):
        far = index.search(queries, 2 * every // 3, candidates=every, rerank=every).distances
        radius = float((far[:, -1].max() + far[:, -1].min()) / 2 + 1e-3)
        inside: list[Any] = [found.range_search(queries, radius, candidates=every) for found in (store, index)]
        assert min(len(one.ids) for one in inside[1]) > 64
        for one, other in zip(*inside, strict=True):
            assert sorted(one.ids.tolist()) == sorted(other.ids.tolist())
        some = index.ids[::2]
        alone: Any = store.range_search(queries[0], radius, filter=some)
        assert set(alone.ids.tolist()) == set(inside[1][0].ids.tolist()) & set(some.tolist())
    with pytest.raises(InvalidInput, match="radius must be a finite number"):
        store.range_search(X[0], np.nan)


def test_ids_far_from_a_query_are_found(create: Create) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((40, 64)), 150, axis=0) + 0.5 * rng.standard_normal((6000, 64))
    store = create(LinearCoder(64).fit(rows))
    store.add(rows, np.arange(len(rows)))
    order = np.argsort(np.square(rows - rows[0]).sum(axis=1))
    near, far = rows[order[:10]], order[3500:]
    hits, scanned = store.search(near, filter=far), store.search(near, filter=far, candidates=len(rows))
    found = [np.isin(one, true).mean() for one, true in zip(hits.ids, scanned.ids, strict=True)]
    assert np.mean(found) > 0.9
    assert (store.search(near, filter=far, candidates=50).compared < 1000).all()  # what the caller chose holds


def test_ids_that_a_store_lacks_cost_nothing(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LIST_CANDIDATES", 2000)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9000, 16))
    store = create(LinearCoder(64).fit(rows))
    store.add(rows, 2 * np.arange(len(rows)))  # as one shard of two
    own = 2 * rng.choice(len(rows), 4500, replace=False)
    hits = store.search(rows[:5], filter=own)
    assert (hits.compared < 0.7 * len(own)).all()
    both = store.search(rows[:5], filter=np.concatenate([own, own + 1]))
    np.testing.assert_allclose(both.compared, hits.compared, rtol=0.2)
    np.testing.assert_array_equal(both.ids[:, :3], hits.ids[:, :3])
    others = np.arange(1, 90_000, 2)
    few = store.search(rows[:5], filter=np.concatenate([own[:20], others]))
    np.testing.assert_array_equal(few.ids, store.search(rows[:5], filter=own[:20]).ids)
    assert (few.compared == 20).all()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_lists_that_are_probed_beyond_the_budget_are_bounded(share: float) -> None:
    held, passed = np.arange(1, 900), np.arange(1, 900) ** 2
    enough = is_enough(held, passed, 100, share)
    assert enough.tolist() == [is_enough(n, n**2, 100, share) for n in held.tolist()]
    assert not enough[:99].any()
    assert enough[399:].all()
    assert enough[99:399].any() == (share == 0)


def test_a_store_is_opened_with_its_coder(place: tuple[type[Any], Any, dict[str, Any]], create: Create) -> None:
    kind, database, table = place
    with create(CODERS["linear"], width=24) as store:
        store.add(X[:50], IDS[:50])
        expected = store.search(QUERIES, k=3).ids.tolist()
    with kind.open(database, **table) as opened:
        assert (opened.width, len(opened)) == (24, 50)
        assert opened.coder == CODERS["linear"] or opened.coder.fingerprint == CODERS["linear"].fingerprint
        assert opened.search(QUERIES, k=3).ids.tolist() == expected
        assert repr(opened).startswith(f"{kind.__name__}(24 bits, LinearCoder(")


def test_errors_name_the_rule_and_change_nothing(create: Create) -> None:
    codes = clustered(9, 13)
    store = filled(create, codes[:6], np.arange(6))
    calls: list[tuple[Any, str]] = [
        (lambda: store.add(codes[5:9], [7, 8, 9, 3]), 'ids must be new, but 3 is in use: give other ids, or pass'),
        (lambda: store.add(codes[:2], [8, 8]), "ids must be distinct, got 8"),
        (lambda: store.add(codes[:2], [8]), "one id for each item"),
        (lambda: store.add(codes[:1], [8], on_duplicate="skip"), "on_duplicate must be"),  # type: ignore[arg-type]
        (lambda: store.add(codes.prefix(5), np.arange(20, 29)), "codes must have the store's width 13, got 5"),
        (lambda: store.add(np.zeros((1, 3)), [8]), "without a coder the store takes Codes, got ndarray"),
        (lambda: store.remove([0, 77, 78]), "ids must be of items in the store, but 77, 78 are not"),
        (lambda: store.codes([2, 70]), "ids must be of items in the store, but 70 is not"),
        (lambda: store.neighborhood(codes, size=0), "size must be an integer of at least 1, got 0"),
        (lambda: store.neighborhood(codes, size=2, filter=[1]), "neighborhoods are filtered by SQL"),
        (lambda: store.ascend(codes, 3), "Codes of one item, got 9"),
        (lambda: store.range(clustered(3, 14)[0]), "at most the 13 bits"),
        (lambda: store.search(codes, k=0), "k must be an integer"),
        (lambda: store.search(codes, filter=[[1]]), "filter must be ids, or a mask by id"),
        (lambda: store.search(codes, filter=[0, 1, 1, 0]), "or a mask by id of bools, got 4 integers of 0 and 1"),
    ]  # fmt: skip
    for wrong, message in calls:
        with pytest.raises(InvalidInput, match=message):
            wrong()
    assert len(store) == 6
    assert store.codes(np.arange(6)) == codes[:6]
    assert [item in store for item in (0, 5, 6, -1, True, "0", 2**63)] == [
        True,
        True,
        False,
        False,
        False,
        False,
        False,
    ]


def test_a_closed_store_says_so(create: Create) -> None:
    store = filled(create, clustered(6, 13), np.arange(6))
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.search(clustered(3, 13)[:1]),
        lambda: store.neighborhood(clustered(3, 13)[:1], size=2),
        lambda: store.add(clustered(3, 13)[:1], [9]),
        lambda: store.remove([1]),
        lambda: store.codes([1]),
        lambda: 1 in store,
        lambda: len(store),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="the store is closed: open another"):
            call()


@contextmanager
def permissions(modes: dict[Path, int]) -> Iterator[None]:
    """Give files and folders these modes, which bind whoever runs the tests."""
    for place, mode in modes.items():
        place.chmod(mode)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # permissions do not bind root
        yield
    finally:
        os.seteuid(user)
        for place in modes:
            place.chmod(0o755)


@pytest.mark.parametrize("kind", [SqliteStore, LmdbStore])
def test_a_store_in_a_folder_that_is_not_writable_is_read(kind: type[Any]) -> None:
    with TemporaryDirectory() as name:
        path = Path(name, "a #1")
        with kind.create(path, width=13) as store:
            store.add(clustered(6, 13), np.arange(6))
            hits = store.search(clustered(6, 13), k=3)
        for locks in path.glob("lock.mdb"):
            locks.unlink()  # as where the data alone was copied
        with permissions(dict.fromkeys([path, *path.glob("*"), Path(name)], 0o555)), kind.open(path) as store:
            assert store.search(clustered(6, 13), k=3).ids.tolist() == hits.ids.tolist()
            with pytest.raises(PermissionError, match="a #1 is not writable: change its permissions, or copy it"):
                store.add(clustered(3, 13)[:1], [9])


@pytest.mark.parametrize(("data", "locks"), [(0o666, 0o666), (0o444, 0o666), (0o666, 0o444)])
def test_the_files_of_lmdb_say_whether_it_is_writable(data: int, locks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[bool] = []
    open_lmdb = lmdb.open

    def opened(*args: Any, **how: Any) -> Any:
        locked.append(how["lock"])
        return open_lmdb(*args, **how)

    with TemporaryDirectory() as name:
        path = Path(name, "codes")
        with LmdbStore.create(path, width=13) as store:
            store.add(clustered(6, 13), np.arange(6))
        modes = {path / "data.mdb": data, path / "lock.mdb": locks, path: 0o555, Path(name): 0o555}
        monkeypatch.setattr(lmdb, "open", opened)
        with permissions(modes):
            if locks == 0o444:
                with pytest.raises(PermissionError, match=r"codes must have a lock\.mdb that is writable"):
                    LmdbStore.open(path)
            else:
                with LmdbStore.open(path) as store:
                    assert len(store) == 6
                    if data == 0o666:
                        store.add(clustered(3, 13)[:1], [9])
                    else:
                        with pytest.raises(PermissionError, match="codes is not writable: change its permissions"):
                            store.add(clustered(3, 13)[:1], [9])
    assert locked == [True]  # or a writer reuses the pages that are read


@pytest.mark.parametrize("kind", [SqliteStore, LmdbStore])
def test_a_database_that_cannot_grow_is_named(kind: type[Any], tmp_path: Path) -> None:
    with kind.create(tmp_path / "codes", width=2048) as store:
        store.add(clustered(20, 2048), np.arange(20))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
            with pytest.raises(OSError, match=r"codes cannot be written .*: make room, or choose another place"):
                store.add(clustered(3000, 2048), np.arange(20, 3020))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(store) == 20
        store.add(clustered(3000, 2048), np.arange(20, 3020))
        assert len(store) == 3020


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("a name a line, more than one\n" * 40)
    with pytest.raises(DamagedFile, match=r"names\.txt is not an SQLite database: give the path"):
        SqliteStore.open(path)
    with pytest.raises(DamagedFile, match=r"names\.txt is not an SQLite database: give the path"):
        SqliteStore.create(path, width=8)


def test_an_environment_opens_unless_it_is_none(tmp_path: Path) -> None:
    with LmdbStore.create(tmp_path, width=64) as store:
        store.add(clustered(300, 64), np.arange(300))
        store.remove(np.arange(300))  # whose last pages were never written
    with LmdbStore.open(tmp_path) as store:
        assert len(store) == 0
    (tmp_path / "data.mdb").write_bytes(b"mine")
    with pytest.raises(DamagedFile, match="holds no LMDB environment"):
        LmdbStore.open(tmp_path)


def test_errors_of_creation(place: tuple[type[Any], Any, dict[str, Any]], tmp_path: Path) -> None:
    kind, database, table = place
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give a coder or a width"),
        ({"coder": "linear"}, "expected a coder, got str"),
        ({"coder": CODERS["linear"], "width": 41}, "width must be at most the coder's 40, got 41"),
        ({"width": 0}, "width must be an integer of at least 1"),
    ]
    for settings, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            kind.create(database, **settings, **table)
    with pytest.raises(InvalidInput, match="there is no store"):
        kind.open(database, **table)
    assert [*tmp_path.iterdir()] == []  # a failed attempt leaves no file
    if kind.MAX_BYTES is not None:
        with pytest.raises(InvalidInput, match=f"hold {8 * kind.MAX_BYTES} bits"):
            kind.create(database, width=8 * kind.MAX_BYTES + 1, **table)
    with kind.create(database, width=8, **table) as store:
        store.add(clustered(5, 8), np.arange(5))
        if kind is LmdbStore:
            with pytest.raises(InvalidInput, match="is open in this process: share it"):
                kind.create(database, width=8)
        else:
            with pytest.raises(InvalidInput, match="items must name a table with a column id, got 'products'"):
                kind.create(database, width=8, table=f"{table['table']}_b", items="products")
    with pytest.raises(InvalidInput, match=r"exists: open it|there is a store in"):
        kind.create(database, width=8, **table)
    with kind.open(database, **table) as store:
        assert len(store) == 5
