"""Copies of indexes in object storage: made once, whole, and evicted by use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import Index, LinearCoder
from nestcode.errors import DamagedFile, InvalidInput, Unavailable
from nestcode.scale import PartCache
from nestcode.scale.objects import paths_of

fsspec = pytest.importorskip("fsspec", reason="pip install 'nestcode[ray]'")

X = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
CODER = LinearCoder(width=16).fit(X)


@pytest.fixture
def store() -> Iterator[Any]:
    """Yield the file system in memory, empty at the end."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def upload(store: Any, tmp_path: Path, name: str, rows: int) -> str:
    """Save an index of some rows, and return the URL of its copy in the store."""
    folder = tmp_path / "made" / name
    index = Index(CODER, vectors="float32")
    index.add(X[:rows])
    index.save(folder, overwrite=True)
    if store.exists(f"/bucket/{name}"):
        store.rm(f"/bucket/{name}", recursive=True)
    store.put(str(folder), f"/bucket/{name}", recursive=True)
    return f"memory://bucket/{name}"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the lock of its writer."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != "lock")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def downloads(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that gets the name of each file that is downloaded from now on."""
    names: list[str] = []
    get = type(store).get_file

    def counted(self: Any, source: str, target: str, **rest: Any) -> None:
        names.append(source.rpartition("/")[2])
        get(self, source, target, **rest)

    monkeypatch.setattr(type(store), "get_file", counted)
    return names


def test_a_copy_is_the_index_and_is_made_once(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, cache = upload(store, tmp_path, "part-0000", 300), PartCache(tmp_path / "cache")
    names = downloads(store, monkeypatch)
    with cache.copy(url) as path:
        assert contents(path) == contents(tmp_path / "made" / "part-0000")
        assert (
            Index.open(path).search(X[:3], k=2).ids.tolist()
            == Index.open(tmp_path / "made" / "part-0000").search(X[:3], k=2).ids.tolist()
        )
    assert names
    names.clear()
    with cache.copy(url) as again:
        assert again == path
    assert names == []


def test_an_interrupted_download_goes_on(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, cache = upload(store, tmp_path, "part-0000", 300), PartCache(tmp_path / "cache")
    names = downloads(store, monkeypatch)
    counted = type(store).get_file

    def fails(self: Any, source: str, target: str, **rest: Any) -> None:
        if len(names) == 3:
            Path(target).write_bytes(b"half")
            raise ConnectionError("reset")
        counted(self, source, target, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "get_file", fails)
        with pytest.raises(Unavailable, match=r"memory://bucket/part-0000.* cannot be read: reset"), cache.copy(url):
            pass
    first = list(names)
    with cache.copy(url) as path:
        assert contents(path) == contents(tmp_path / "made" / "part-0000")
    assert len(first) == 3
    assert not set(first) & set(names[3:])


def test_a_changed_index_is_copied_anew_and_one_that_changes_meanwhile_is_not_mixed(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, cache = upload(store, tmp_path, "part-0000", 100), PartCache(tmp_path / "cache")
    with cache.copy(url) as path:
        assert len(Index.open(path)) == 100
    upload(store, tmp_path, "part-0000", 200)
    with cache.copy(url) as path:
        assert len(Index.open(path)) == 200
    get = type(store).get_file
    sizes = iter([300, 250])

    def changes(self: Any, source: str, target: str, **rest: Any) -> None:
        if source.endswith("ids.npy") and (rows := next(sizes, None)):
            upload(store, tmp_path, "part-0000", rows)
        get(self, source, target, **rest)

    upload(store, tmp_path, "part-0000", 150)
    monkeypatch.setattr(type(store), "get_file", changes)
    with cache.copy(url) as path:
        assert len(Index.open(path)) == 250
        Index.open(path).verify()


def test_copies_that_were_used_longest_ago_make_room_unless_they_are_in_use(store: Any, tmp_path: Path) -> None:
    urls = [upload(store, tmp_path, f"part-000{i}", 300) for i in range(3)]
    size = sum(map(len, contents(tmp_path / "made" / "part-0000").values()))
    cache = PartCache(tmp_path / "cache", max_bytes=5 * size // 2)
    paths = []
    for url in urls[:2]:
        with cache.copy(url) as path:
            paths.append(path)
    with cache.copy(urls[0]), cache.copy(urls[2]):
        assert paths[0].is_dir()
        assert not paths[1].exists()
        with pytest.raises(Unavailable, match=r"all copies in it are in use: give a larger disk or max_bytes"):
            cache.copy(urls[1]).__enter__()
    with cache.copy(urls[1]) as path:
        assert len(Index.open(path)) == 300
    with pytest.raises(InvalidInput, match=r"max_bytes must hold memory://bucket/part-0000.*got 10: raise it"):
        PartCache(tmp_path / "small", max_bytes=10).copy(urls[0]).__enter__()


def test_only_files_of_indexes_are_copied_and_only_copies_are_deleted(store: Any, tmp_path: Path) -> None:
    urls, cache = [upload(store, tmp_path, f"part-000{i}", 300) for i in range(2)], tmp_path / "cache"
    for name in ("huge.bin", "../part-0001x", "a/000001.codes.npy", "000001.codes.npy.part"):
        store.pipe(f"/bucket/part-0000/{name}", bytes(1 << 20))
    (cache / "thesis").mkdir(parents=True)
    for path in (cache / "thesis.lock", cache / "thesis" / "text"):
        path.write_bytes(bytes(1000))
    size = sum(map(len, contents(tmp_path / "made" / "part-0000").values()))
    for url in urls:
        with PartCache(cache, max_bytes=size + 500).copy(url) as path:
            assert contents(path) == contents(tmp_path / "made" / path_of(url))
    assert (cache / "thesis" / "text").exists()
    assert len(list(cache.glob("*.lock"))) == 3
    assert len([one for one in cache.iterdir() if one.is_dir()]) == 2


def path_of(url: str) -> str:
    return url.rpartition("/")[2]


def test_a_damaged_copy_is_downloaded_again(store: Any, tmp_path: Path) -> None:
    url, cache = upload(store, tmp_path, "part-0000", 300), PartCache(tmp_path / "cache")

    def damage() -> None:
        with cache.copy(url) as path:
            file = next(path.glob("*.codes.npy"))
            file.write_bytes(file.read_bytes()[:-1] + b"?")
            Index.open(path).verify()

    with pytest.raises(DamagedFile):
        damage()
    with cache.copy(url) as path:
        Index.open(path).verify()


def test_parts_of_a_folder_are_found_in_order(store: Any, tmp_path: Path) -> None:
    urls = [upload(store, tmp_path, f"part-000{i}", 10) for i in (1, 0)]
    assert paths_of("memory://bucket") == urls[::-1]
    assert paths_of(urls[0]) == [urls[0]]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nowhere", "memory://nowhere must be a folder with an index or its parts: there is none"),
        ("nonsense://bucket", "nonsense://bucket must have a protocol that fsspec opens"),
    ],
)
def test_a_url_without_an_index_is_named(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        paths_of(url)
    with pytest.raises(InvalidInput, match=message):
        PartCache(tmp_path).copy(url).__enter__()
    with pytest.raises(InvalidInput, match="max_bytes must be"):
        PartCache(tmp_path, max_bytes=0)
