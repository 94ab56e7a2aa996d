"""Several folders with indexes, read as one index: their segments side by side are a snapshot."""

import os
from collections.abc import Mapping, Sequence

from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index.memory import Memory
from nestcode.index.store import Commit, Store


class Folders(Store):
    """The folders of a sharded index, to read.

    Args:
        paths: the folders, or one; their items have distinct ids.
        memory: what is read into memory at once.

    """

    def __init__(
        self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, memory: Memory | None = None
    ) -> None:
        paths = [paths] if isinstance(paths, str | os.PathLike) else paths
        if not paths:
            raise InvalidInput("a sharded index has at least one folder, got none: give their paths")
        super().__init__(paths[0], write=False, memory=memory)
        self._shards = [Store(path, write=False, memory=memory) for path in paths]
        check_distinct(paths)

    def read(self) -> Commit:
        """Return the last commits of all folders as one."""
        commits = [shard.read() for shard in self._shards]
        first = commits[0]
        check_same([shard.path for shard in self._shards], [_settings(commit) for commit in commits])
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
        """Return whether a folder has a newer commit than was read last."""
        return any(shard.changed() for shard in self._shards)


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
