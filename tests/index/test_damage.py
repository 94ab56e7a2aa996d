"""Damaged, foreign and crafted files: an error that names the file and the remedy, or the correct result."""

import contextlib
import hashlib
import json
import multiprocessing
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from nestcode import Index, LinearCoder, _core
from nestcode.errors import DamagedFile, NestcodeError
from tests.damage import DAMAGE, Damage

WIDTH, FEATURES = 512, 70
REMEDY = re.compile(
    r": (restore a copy|save it again|build it again|upgrade nestcode|build one there|give a file that)"
)


def vectors(n: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((n, FEATURES)) * np.geomspace(4, 1, FEATURES)


class Original:
    """An index of three segments with tombstones and more than one block of codes, and the results of its queries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        items = vectors(1500, 0)
        self.queries = np.concatenate([items[:3], vectors(5, 1)])
        built = Index(LinearCoder(width=WIDTH).fit(items), vectors="int8")
        built.add(items)
        built.save(folder)
        with Index.open(folder, mode="a") as index:
            for seed, count in ((2, 40), (3, 1)):
                index.add(vectors(count, seed))
                index.remove([seed, 1500 + seed])
                index.commit()
            self.results = {name: ask(index, self) for name, ask in QUERIES.items()}
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        codes = [data for name, data in self.files.items() if name.endswith("codes.npy")]
        assert len(codes) == 3
        assert max(map(len, codes)) > 1 << 16
        assert sum(name.endswith("removed.npy") for name in self.files) == 2

    def copy(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return folder


def _hood(index: Index, original: Original) -> Any:
    hood = index.neighborhood(original.queries[0], size=12)
    return hood.length, hood.count, hood.ids.tolist()


def _hoods(index: Index, original: Original) -> Any:
    hoods = index.neighborhood(original.queries, size=3)
    return hoods.length.tolist(), hoods.ids.tolist()


def _nested(index: Index, original: Original) -> Any:
    family = index.nested(original.queries[1])
    return family.count.tolist(), family[-1].ids.tolist(), family[len(family) // 2].ids.tolist()


def _some_codes(index: Index, _: Original) -> Any:
    return index.codes([7, 1501, 1299, 1540]).packed.tolist()


def _reconstruct(index: Index, _: Original) -> Any:
    return index.reconstruct([4, 1499, 1530]).tolist()


def _contains(index: Index, _: Original) -> Any:
    return [item in index for item in (0, 2, 700, 1502, 1540, 1541, 9999)]


def _all(index: Index, _: Original) -> Any:
    ids = index.ids
    return len(index), ids.tolist(), index.codes(ids).packed.tobytes(), index.vectors(ids).tobytes()


def _some_vectors(index: Index, _: Original) -> Any:
    return index.vectors([7, 1501, 1299, 1540]).tolist()


QUERIES: dict[str, Callable[[Index, Original], Any]] = {
    "neighborhood": _hood,
    "neighborhoods": _hoods,
    "nested": _nested,
    "codes": _some_codes,
    "reconstruct": _reconstruct,
    "contains": _contains,
    "vectors": _some_vectors,
    "all": _all,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return Original(tmp_path_factory.mktemp("original"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "index"


def check_message(error: Exception, folder: Path) -> None:
    """It names a file of the folder, or the folder if that is no index, and what to do."""
    message = str(error)
    assert REMEDY.search(message), message
    if isinstance(error, FileNotFoundError):
        assert not (folder / "manifest.json").exists()
        assert str(folder) in message
    else:
        assert re.search(re.escape(str(folder)) + r"/(\d{6}\.\w+\.npy|manifest\.json|coder-\w{16})", message), message


def check_results(folder: Path, original: Original, order: list[str]) -> bool:
    """Run all queries in this order; return whether the damage was noticed."""
    try:
        with Index.open(folder) as index:
            for name in order:
                assert QUERIES[name](index, original) == original.results[name], name
    except (DamagedFile, FileNotFoundError) as error:
        check_message(error, folder)
        return True
    return False


def check_writes(folder: Path, original: Original) -> None:
    """Write and commit; the index then has the right contents, or an error was raised."""
    try:
        with Index.open(folder, mode="a") as index:
            index.remove([11, 1535])
            index.add(vectors(4, 4), ids=[5000, 5001, 5002, 5003])
            index.commit()
            index.compact()
            index.commit()
        with Index.open(folder) as index:
            ids = set(original.results["all"][1]) - {11, 1535} | {5000, 5001, 5002, 5003}
            assert index.ids.tolist() == sorted(ids)
            for name in ("reconstruct", "codes"):
                assert QUERIES[name](index, original) == original.results[name]
            index.verify()
    except (DamagedFile, FileNotFoundError) as error:
        check_message(error, folder)


# Damage

seeds = st.integers(0, 2**63).map(Random)  # positions are drawn uniformly
by_kind = pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)


@by_kind
@given(random=seeds, order=st.permutations(list(QUERIES)))
def test_damage_is_noticed_or_does_not_matter(
    damage: Damage, random: Random, order: list[str], original: Original, folder: Path
) -> None:
    original.copy(folder)
    for name, content in damage(original.files, random).items():
        (folder / name).write_bytes(content)
    check_results(folder, original, order)


@by_kind
@given(random=seeds)
def test_writes_do_not_hide_damage(damage: Damage, random: Random, original: Original, folder: Path) -> None:
    original.copy(folder)
    for name, content in damage(original.files, random).items():
        (folder / name).write_bytes(content)
    check_writes(folder, original)


def test_every_file_is_needed_but_the_lock(original: Original, folder: Path) -> None:
    for name in original.files:
        (original.copy(folder) / name).unlink()
        assert check_results(folder, original, list(QUERIES)) == (name != "lock"), name
        (folder / name).mkdir()
        assert check_results(folder, original, list(QUERIES)) == (name != "lock"), name


def test_verify_finds_damage_in_any_block(original: Original, folder: Path) -> None:
    for name, data in original.files.items():
        for place in range(0, len(data), 5000):
            damaged = bytearray(data)
            damaged[place] ^= 0x10
            (original.copy(folder) / name).write_bytes(damaged)
            with pytest.raises(DamagedFile, match=re.escape(name)), Index.open(folder) as index:
                index.verify()


def test_a_search_reads_the_vectors_that_it_reranks(original: Original, folder: Path) -> None:
    """Damage of others does not matter to it; damage of these is noticed."""
    with Index.open(original.copy(folder)) as index:
        found = index.search(original.queries[0], k=1, candidates=50, rerank=5)
        before = np.load(folder / "000001.vectors.npy")
    position = int(np.flatnonzero(np.load(folder / "000001.ids.npy") == found.ids[0])[0])
    blocks = 128 + position * FEATURES, 128 + (position * FEATURES + (1 << 16)) % before.nbytes
    for place, noticed in zip(blocks, (True, False), strict=True):
        with (original.copy(folder) / "000001.vectors.npy").open("r+b") as file:
            file.seek(place)
            file.write(b"\x55")
        with Index.open(folder) as index:
            if noticed:
                with pytest.raises(DamagedFile, match=r"000001\.vectors\.npy is damaged"):
                    index.search(original.queries[0], k=1, candidates=50, rerank=1)
            else:
                hits = index.search(original.queries[0], k=1, candidates=50, rerank=1)
                assert hits.ids.tolist() == found.ids.tolist()
            with pytest.raises(DamagedFile, match=r"000001\.vectors\.npy is damaged"):
                index.verify()


# Crafted manifests with valid checksums


def craft(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and update its checksum."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    change(manifest)
    path.write_text(json.dumps({**manifest, "sha256": sha256(json.dumps(manifest, sort_keys=True).encode())}))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(place: tuple[str | int, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value into a manifest."""

    def change(manifest: Any) -> None:
        for key in place[:-1]:
            manifest = manifest[key]
        manifest[place[-1]] = value

    return change


SEGMENT = ("segments", 0)
MISTAKES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (put(("version",), 8), "has version 8, this nestcode reads up to 7: upgrade nestcode"),
    "another format": (put(("format",), "nestbox"), "is damaged"),
    "no version": (lambda manifest: manifest.pop("version"), "not written by Nestcode"),
    "no width": (lambda manifest: manifest.pop("width"), "'width'"),
    "no segments": (lambda manifest: manifest.pop("segments"), "'segments'"),
    "no coder": (lambda manifest: manifest.pop("coder"), "'coder'"),
    "width 0": (put(("width",), 0), "0 should be an integer"),
    "negative width": (put(("width",), -8), "-8 should be an integer"),
    "another width": (put(("width",), WIDTH + 8), "are not those of a segment"),
    "huge width": (put(("width",), 10**12), "should be an integer"),
    "width that is true": (put(("width",), True), "True should be an integer"),
    "fractional width": (put(("width",), 512.0), "512.0 should be an integer"),
    "negative count": (put((*SEGMENT, "count"), -1), "-1 should be an integer"),
    "no items": (put((*SEGMENT, "count"), 0), "0 should be an integer"),
    "huge count": (put((*SEGMENT, "count"), 2**30), "are not those of a segment"),
    "count beyond all": (put((*SEGMENT, "count"), 10**30), "should be an integer"),
    "one item more": (put((*SEGMENT, "count"), 1501), "are not those of a segment"),
    "no tables": (put((*SEGMENT, "arrays", "tables", 1), 0), "0 should be an integer"),
    "tables of no size": (put((*SEGMENT, "arrays", "tables"), []), "list index out of range"),
    "huge tables": (put((*SEGMENT, "arrays", "tables", 1), 2**32), r"000001\.sums\.npy is damaged"),
    "no array of ids": (lambda manifest: manifest["segments"][0]["arrays"].pop("ids"), "'ids'"),
    "ids of another type": (put((*SEGMENT, "arrays", "ids", 0), "<f4"), "are not those of a segment"),
    "an array that leads out": (put((*SEGMENT, "arrays", "../ids"), ["<u4", 1500]), "are not those of a segment"),
    "a block more": (put((*SEGMENT, "arrays", "blocks", 1), 48), r"000001\.(sums|blocks)\.npy is damaged"),
    "blocks of another shape": (put((*SEGMENT, "arrays", "blocks"), ["|u1", -1, 1, 1]), "-1 should be an integer"),
    "a name that leads out": (put((*SEGMENT, "name"), "../../etc/passwd"), "is no file of an index"),
    "a name that leads in": (put((*SEGMENT, "name"), "000001/000001"), "is no file of an index"),
    "a long name": (put((*SEGMENT, "name"), "1" * 5000), "is no file of an index"),
    "a name that is missing": (put((*SEGMENT, "name"), "123456"), r"123456\.sums\.npy is missing"),
    "a number for a name": (put((*SEGMENT, "name"), 1), "does not describe"),
    "another segment": (put((*SEGMENT, "name"), "000003"), r"000003\.\w+\.npy"),
    "other sums": (put((*SEGMENT, "sums"), "0" * 64), r"000001\.sums\.npy is damaged"),
    "a list for a segment": (put(SEGMENT, []), "does not describe"),
    "text for segments": (put(("segments",), "segments"), "does not describe"),
    "removed that is true": (put((*SEGMENT, "removed"), True), "does not describe"),
    "none removed": (put((*SEGMENT, "removed", "count"), 0), "0 should be an integer"),
    "all and more removed": (put((*SEGMENT, "removed", "count"), 1501), "1501 should be an integer"),
    "removed that leads out": (put((*SEGMENT, "removed", "name"), "../000001"), "is no file of an index"),
    "a coder that leads out": (put(("coder", "name"), "../coder-0123456789abcdef"), "is no file of an index"),
    "a coder that is missing": (put(("coder", "name"), "coder-0123456789abcdef"), "coder-0123456789abcdef is missing"),
    "another fingerprint": (put(("coder", "fingerprint"), "0" * 64), "is not the coder of this index"),
    "files to come that are there": (put(("next",), 1), "1 should be an integer"),
    "no vectors": (lambda manifest: manifest.pop("vectors"), "are not those of a segment"),
    "vectors that are null": (put(("vectors",), None), "does not describe"),
    "other vectors": (put(("vectors", "dtype"), "float16"), "are not those of a segment"),
    "no such vectors": (put(("vectors", "dtype"), "float64"), "got 'float64'"),
    "one feature more": (put(("vectors", "features"), FEATURES + 1), "are not those of a segment"),
    "no features": (put(("vectors", "features"), 0), "0 should be an integer"),
    "a largest id beyond all": (put(("largest",), 2**63), "should be an integer"),
    "a largest id below all": (put(("largest",), -2), "-2 should be an integer"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_crafted_manifest_is_refused(mistake: str, original: Original, folder: Path) -> None:
    change, message = MISTAKES[mistake]
    craft(original.copy(folder), change)
    for mode in ("r", "a"):
        with pytest.raises(DamagedFile, match=message) as caught:
            Index.open(folder, mode=mode)
        check_message(caught.value, folder)


def test_a_manifest_that_repeats_a_key_is_refused(original: Original, folder: Path) -> None:
    path = original.copy(folder) / "manifest.json"
    path.write_text(path.read_text().replace('"width"', '"width": 1,\n "width"', 1))  # the last one counts, as before
    with pytest.raises(DamagedFile, match="damaged or was not written by Nestcode"):
        Index.open(folder)


def test_a_crafted_manifest_may_change_nothing(original: Original, folder: Path) -> None:
    craft(original.copy(folder), dict)
    assert not check_results(folder, original, list(QUERIES))


PLACES: list[tuple[str | int, ...]] = [
    *((key,) for key in ("format", "version", "width", "largest", "next", "coder", "segments", "vectors")),
    *(("vectors", key) for key in ("dtype", "features")),
    *((*SEGMENT, key) for key in ("name", "count", "arrays", "layout", "sums", "removed")),
    *((*SEGMENT, "removed", key) for key in ("name", "count", "sha256")),
    *(("coder", key) for key in ("name", "fingerprint")),
]
NUMBERS = st.integers(-10, 2000) | st.integers() | st.floats()
WORDS = st.text(max_size=20) | st.sampled_from(["000001", "000002", "000003", "coder-0123456789abcdef"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=4,
)


@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_manifest_is_refused_or_read(
    place: tuple[str | int, ...], value: Any, original: Original, folder: Path
) -> None:
    craft(original.copy(folder), put(place, value))
    try:
        with Index.open(folder) as index:
            for ask in QUERIES.values():
                ask(index, original)
    except NestcodeError as error:
        if isinstance(error, DamagedFile):
            check_message(error, folder)
        else:
            assert place in [
                ("segments",),
                (*SEGMENT, "removed"),
                ("coder",),
            ]  # fewer items, or no coder, as the manifest has it


# Crafted arrays with valid checksums: nothing outside an array may be read, and every search ends


def arrays_of(folder: Path) -> list[str]:
    """Return the names of the files of all arrays, whatever they hold, but for sums of others."""
    return sorted(path.name for path in folder.glob("*.npy") if not path.name.endswith(".sums.npy"))


def craft_array(folder: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Change an array, and update the checksums of its blocks, of the sums and of the manifest."""
    number = name.partition(".")[0]
    data, before = (folder / name).read_bytes(), np.load(folder / name)
    array = change(before)
    assert (array.dtype, array.shape) == (before.dtype, before.shape)
    (folder / name).write_bytes(data[: len(data) - before.nbytes] + array.tobytes())
    checked, sums_path = array, folder / f"{number}.sums.npy"
    if sums_path.exists():
        checked = np.load(sums_path)
        old, new, place = next(
            filter(None, (_block_sums(before, array, checked, block) for block in (1 << 12, 1 << 16)))
        )
        checked = np.concatenate([checked[:place], new, checked[place + len(old) :]])
        np.save(sums_path, checked)

    def update(manifest: Any) -> None:
        values = manifest.values() if isinstance(manifest, dict) else manifest
        if isinstance(manifest, dict) and manifest.get("name") == number:
            manifest["sums" if sums_path.exists() else "sha256"] = sha256(checked.tobytes())
        for value in values:
            if isinstance(value, dict | list):
                update(value)

    craft(folder, update)


def _block_sums(
    before: NDArray[Any], after: NDArray[Any], sums: NDArray[Any], block: int
) -> tuple[NDArray[Any], NDArray[Any], int] | None:
    """Return the checksums of an array before and after, and where the first ones are among others, if they are."""
    old, new = (_core.block_checksums(one.reshape(-1).view(np.uint8), block) for one in (before, after))
    if len(old) > len(sums):
        return None
    places = np.flatnonzero((sliding_window_view(sums, len(old)) == old).all(axis=1))
    return (old, new, int(places[0])) if len(places) else None


def noise(array: NDArray[Any], random: Random) -> NDArray[Any]:
    """Random values, valid positions or not, in some or all of an array."""
    rng = np.random.default_rng(random.randrange(2**32))
    if array.dtype.kind == "f":
        most = min(1e38, float(np.finfo(array.dtype).max))
        strange = rng.choice(np.array([0, most, np.inf, np.nan], dtype=array.dtype), array.shape)
        return np.where(rng.random(array.shape) < 0.5, strange, array)
    top = min(random.choice([3, 40, 2000, 2**63]), np.iinfo(array.dtype).max)
    numbers = rng.integers(0, top, array.shape, dtype=array.dtype, endpoint=True)
    changed = np.where(rng.random(array.shape) < random.choice([0.01, 0.5, 1]), numbers, array)
    if array.dtype == np.uint32 and random.random() < 0.5:
        changed[0] = array[0]  # a table's depth
    return changed


@pytest.mark.parametrize("candidates", [50, 1500])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_vectors_crafted_to_be_infinite_or_nan_are_refused(
    value: float, candidates: int, original: Original, folder: Path
) -> None:
    """A candidate whose distance is NaN is reranked once, not without end."""
    craft_array(original.copy(folder), "000001.scales.npy", lambda scales: np.full_like(scales, value))
    with Index.open(folder) as index, pytest.raises(NestcodeError, match=r"below 3\.4e\+38"):
        index.search(original.queries, k=3, candidates=candidates)


@pytest.mark.parametrize(
    "change", [lambda rows: rows + 10**6, lambda rows: rows[::-1], lambda rows: np.full_like(rows, rows[0])]
)
def test_crafted_tombstones_are_refused(
    original: Original, folder: Path, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    """Positions beyond the segment, out of order and twice."""
    original.copy(folder)
    with Index.open(folder, mode="a") as index:
        index.remove(index.ids[:40:3])
        index.commit()
    for name in arrays_of(folder):
        if name.endswith(".removed.npy"):
            craft_array(folder, name, change)
    with pytest.raises(DamagedFile, match=r"\.removed\.npy does not fit the other files"):
        Index.open(folder)


def query_crafted(source: Path, folder: Path, count: int) -> None:
    """Run all queries and writes on indexes with crafted arrays."""
    original = Original(source)
    for seed in range(count):
        random = Random(seed)
        original.copy(folder)
        craft_array(folder, random.choice(arrays_of(folder)), partial(noise, random=random))
        with contextlib.suppress(DamagedFile), Index.open(folder, mode="a") as index:
            acts: list[Callable[[], Any]] = [partial(ask, index, original) for ask in QUERIES.values()]
            acts += [partial(index.remove, [11, 1535]), index.compact, partial(index.search, original.queries)]
            for act in acts:
                with contextlib.suppress(NestcodeError, ValueError):
                    act()


def test_crafted_arrays_crash_nothing(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=query_crafted, args=(tmp_path / "source", tmp_path / "crafted", 100)
    )
    process.start()
    process.join(timeout=600)
    if process.is_alive():
        process.kill()
        raise AssertionError("a search did not end")
    assert process.exitcode == 0
