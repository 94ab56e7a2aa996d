"""Several folders with indexes, read as one index: their segments side by side are a snapshot."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index.manifest import MANIFEST
from nestcode.index.memory import Memory
from nestcode.index.store import Commit, Store
from nestcode.storage import check_path

Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Folders(Store):
    """The folders of a sharded index, to read.

    Args:
        given: the folders, or one that holds them; their items have distinct ids.
        memory: what is read into memory at once.

    """

    def __init__(self, given: Given, *, memory: Memory | None = None) -> None:
        folders = folders_of(given)
        super().__init__(folders[0], write=False, memory=memory)
        self._given = Path(given).absolute() if isinstance(given, str | os.PathLike) else folders
        self._shards = [Store(path, write=False, memory=memory) for path in folders]
        self._settings: dict[str, object] = {}  # of the last commits
        check_distinct(folders)

    def read(self) -> Commit:
        """Return the last commits of all folders as one."""
        folders, shards = folders_of(self._given), self._shards
        moved = folders != [shard.path for shard in shards]  # a link leads to another generation of parts
        if moved:
            shards = [Store(path, write=False, memory=self._memory) for path in folders]
        commits = [shard.read() for shard in shards]
        first = commits[0]
        check_same(folders, list(map(_settings, commits)))
        if moved and _settings(first) != self._settings:
            raise InvalidInput(
                f"{folders[0]} is of another index, of another width, coder, vectors or attributes: open it again"
            )
        self._shards, self._settings = shards, _settings(first)
        self.nodes = all(shard.nodes for shard in shards)
        return Commit(
            first.width,
            first.coder,
            max(commit.largest for commit in commits),
            tuple(segment for commit in commits for segment in commit.segments),
            first.vector_format,
            first.effort if all(commit.effort == first.effort for commit in commits) else None,
            all(commit.graph for commit in commits),
            first.schema,
        )

    def changed(self) -> bool:
        """Return whether a folder has a newer commit than was read last, or a link leads to other folders."""
        moved = folders_of(self._given) != [shard.path for shard in self._shards]
        return moved or any(shard.changed() for shard in self._shards)


def folders_of(given: Given) -> list[Path]:
    """Return the folders of an index, absolute: one, several, or those of the parts that one folder holds, in order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "part-0001").mkdir()
    ...     (Path(folder) / "part-0000").mkdir()
    ...     [path.name for path in folders_of(folder)]
    ['part-0000', 'part-0001']
    """
    one = isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable)
    several: list[str | os.PathLike[str]] = [given] if one else list(given)  # type: ignore[list-item, arg-type]
    if not several:
        raise InvalidInput("a sharded index has at least one folder, got none: give their paths")
    for path in several:
        check_path(path)
    for url in filter(is_url, several):
        raise InvalidInput(
            f"an index is opened from a folder, got {url}: copy it by nestcode.scale.PartCache().copy, or search it on "
            "a SearchCluster"
        )
    if isinstance(given, str | os.PathLike) and not (Path(given) / MANIFEST).exists():
        parts = sorted(Path(given).resolve().glob("part-*"))
        if parts:
            return parts
    return [Path(path).absolute() for path in several]


def is_url(path: object) -> bool:
    """Return whether a path names object storage.

    >>> is_url("s3://bucket/generations/1"), is_url("generations/1")
    (True, False)
    """
    return isinstance(path, str) and "://" in path


def check_distinct(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raise if a folder is named twice."""
    known: set[str] = set()
    for path in paths:
        if os.path.realpath(path) in known:
            raise InvalidInput(
                f"the folders of a sharded index must be distinct, got {os.fspath(path)} twice: name each once"
            )
        known.add(os.path.realpath(path))


def check_same(paths: Sequence[os.PathLike[str]], settings: Sequence[Mapping[str, object]]) -> None:
    """Raise if the settings of a folder differ from those of the first; the error names them."""
    for path, own in zip(paths, settings, strict=True):
        differing = [name for name, value in own.items() if value != settings[0][name]]
        if differing:
            raise InvalidInput(
                f"the folders of a sharded index must have the same width, coder, vectors and attributes, but "
                f"{os.fspath(path)} and {os.fspath(paths[0])} differ in {' and '.join(differing)}: "
                "build one of them again"
            )


def _settings(commit: Commit) -> dict[str, object]:
    coder: Coder | None = commit.coder
    fingerprint = None if coder is None else coder.fingerprint
    columns = commit.schema
    return {"width": commit.width, "coder": fingerprint, "vectors": commit.vector_format, "attributes": columns}
