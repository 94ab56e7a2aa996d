"""Indexes in object storage: local copies, made once and evicted by use.

An index is read as a memory map, so a part in `s3://` or `gs://` is copied to a local disk before it is opened. fsspec
knows the protocols, and its configuration has keys and endpoints.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nestcode.arrays import check_int
from nestcode.errors import DamagedFile, InvalidInput, NestcodeError, Unavailable, import_extra
from nestcode.index.folders import Given, folders_of, is_url
from nestcode.index.manifest import MANIFEST
from nestcode.index.store import OURS
from nestcode.storage import lock_file, make_folder, share_file, unlock_file

CACHE = "~/.cache/nestcode/parts"
MAX_TRIES = 3  # to copy an index that a writer changes
KEY = re.compile(r"[0-9a-f]{32}")  # the name of a copy; other folders beside are not ours


@dataclass(frozen=True)
class PartCache:
    """Local copies of indexes in object storage, which processes on one machine share.

    >>> import tempfile
    >>> import fsspec, nestcode as nc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nc.Index(width=8).save(f"{folder}/part-0000")
    ...     _ = fsspec.filesystem("memory").put(f"{folder}/part-0000", "/bucket/part-0000", recursive=True)
    ...     with PartCache(f"{folder}/cache").copy("memory://bucket/part-0000") as path:
    ...         nc.Index.open(path).width
    8

    Args:
        folder: on a local disk.
        max_bytes: before a copy would exceed this, the copies that were opened longest ago are deleted, except those in
            use. By default nothing is deleted.

    """

    folder: str | os.PathLike[str] = CACHE
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None:
            check_int(self.max_bytes, "max_bytes", least=1)

    @contextmanager
    def copy(self, url: str) -> Iterator[Path]:
        """Yield the folder of a local copy, which is not deleted while the block runs.

        The first process that asks downloads the files; other processes wait for it. The next download continues an
        interrupted one. If the block raises `DamagedFile`, the copy is deleted, and the next call downloads it again.
        """
        system, path = _file_system(url)
        root = Path(self.folder).expanduser()
        make_folder(root)
        for _ in range(MAX_TRIES):
            commit = _commit(system, path, url)
            key = hashlib.sha256(f"{url}\n".encode() + commit).hexdigest()[:32]
            with (root / f"{key}.lock").open("ab") as lock:
                lock_file(lock, wait=True)
                complete = (root / key).is_dir() or self._download(system, path, url, root / key, commit)
                os.utime(lock.fileno())  # when it was used
                share_file(lock)  # not at once: another process may have deleted the copy between
                if complete and (root / key).is_dir():
                    try:
                        yield root / key
                    except DamagedFile:
                        shutil.rmtree(root / key, ignore_errors=True)
                        raise
                    return
        raise Unavailable(
            f"{url} changed while it was copied, {MAX_TRIES} times: write each generation to its own folder"
        )

    def _download(self, system: Any, path: str, url: str, folder: Path, commit: bytes) -> bool:
        """Copy the files of an index to `folder`, which is locked; return False if a writer changes it meanwhile."""
        draft = folder.with_suffix(".draft")
        try:
            self._copy_files(system, path, url, draft)
        except NestcodeError:
            if _commit(system, path, url) == commit:
                raise
            return False
        if _commit(system, path, url) != commit:
            return False
        (draft / MANIFEST).write_bytes(commit)
        draft.rename(folder)
        return True

    def _copy_files(self, system: Any, path: str, url: str, draft: Path) -> None:
        """Copy the files of an index that an earlier draft lacks; the manifest comes last."""
        with _naming(url):
            found = system.find(path, detail=True)
        sizes = {name[len(path) :].lstrip("/"): int(facts["size"]) for name, facts in found.items()}
        sizes = {name: size for name, size in sizes.items() if OURS.fullmatch(name)}
        self._make_room(draft.with_suffix(""), sum(sizes.values()), url)
        make_folder(draft)
        for name, size in sizes.items():
            target = draft / name
            if target.is_file() and target.stat().st_size == size:
                continue
            partial = target.with_name(f"{target.name}.part")
            with _naming(url):
                system.get_file(f"{path}/{name}", str(partial))
            if partial.stat().st_size != size:
                raise Unavailable(f"{url}/{name} must have {size} bytes, got {partial.stat().st_size}: try again")
            partial.replace(target)

    def _make_room(self, folder: Path, needed: int, url: str) -> None:
        """Delete the copies that were used longest ago until there is room for another, `folder`."""
        root, limit = folder.parent, self.max_bytes
        if limit is not None and needed > limit:
            raise InvalidInput(f"max_bytes must hold {url}, which has {needed:,} bytes, got {limit:,}: raise it")
        needed -= _bytes_of(folder.with_suffix(".lock"))  # of an interrupted download
        copies = (lock for lock in root.glob("*.lock") if KEY.fullmatch(lock.stem))
        sizes = {lock: _bytes_of(lock) for lock in copies if lock.stem != folder.name}
        for lock in sorted(sizes, key=lambda lock: lock.stat().st_mtime_ns):
            full = limit is not None and sum(sizes.values()) + needed > limit
            if not full and shutil.disk_usage(root).free > needed:
                return
            with lock.open("ab") as file, suppress(OSError):  # another process uses it
                lock_file(file)
                for copy in _copies(lock):
                    shutil.rmtree(copy)
                sizes[lock] = 0
                unlock_file(file)
        if (limit is not None and sum(sizes.values()) + needed > limit) or shutil.disk_usage(root).free <= needed:
            raise Unavailable(
                f"{root} has no room for the {needed:,} bytes of {url}, and all copies in it are in use: give a larger "
                "disk or max_bytes, or close indexes"
            )


@contextmanager
def local_folder(path: str, cache: PartCache) -> Iterator[str]:
    """Yield a folder as it is, and the copy of one in object storage."""
    if is_url(path):
        with cache.copy(path) as copy:
            yield str(copy)
    else:
        yield path


def paths_of(given: Given) -> list[str]:
    """Return the folders of an index as `Index.open` finds them, or their URLs in object storage.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe({"/doc/1/part-0000/manifest.json": b"", "/doc/1/part-0001/manifest.json": b""})
    >>> paths_of("memory://doc/1")
    ['memory://doc/1/part-0000', 'memory://doc/1/part-0001']
    """
    if isinstance(given, str) and is_url(given):
        return _parts_at(given)
    if not isinstance(given, str | os.PathLike) and any(map(is_url, given)):
        return [os.fspath(path) if is_url(path) else str(Path(path).absolute()) for path in given]
    return list(map(str, folders_of(given)))


def _parts_at(url: str) -> list[str]:
    system, path = _file_system(url)
    with _naming(url):
        names = sorted(name.rstrip("/").rpartition("/")[2] for name in system.ls(path, detail=False))
    return [f"{url.rstrip('/')}/{name}" for name in names if name.startswith("part-")] or [url]


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it."""
    fsspec = import_extra("fsspec", extra="ray", purpose="parts in object storage")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InvalidInput(f"{url} must have a protocol that fsspec opens: {error}") from error
    return system, path.rstrip("/")


def _commit(system: Any, path: str, url: str) -> bytes:
    """Return the manifest of an index, which names its files."""
    with _naming(url):
        manifest: bytes = system.cat_file(f"{path}/{MANIFEST}")
    return manifest


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Name the URL in errors of object storage, which are of many kinds."""
    try:
        yield
    except FileNotFoundError as error:
        raise InvalidInput(f"{url} must be a folder with an index or its parts: there is none") from error
    except OSError as error:
        raise Unavailable(f"{url} cannot be read: {error}") from error


def _copies(lock: Path) -> list[Path]:
    """Return the copy that a lock guards, and an unfinished one."""
    return [copy for copy in (lock.with_suffix(""), lock.with_suffix(".draft")) if copy.is_dir()]


def _bytes_of(lock: Path) -> int:
    return sum(file.stat().st_size for copy in _copies(lock) for file in copy.rglob("*") if file.is_file())
