"""Several folders with indexes, read as one index: their segments side by side are a snapshot."""

import os
from collections.abc import Sequence

from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index.memory import Memory
from nestcode.index.store import Commit, Store


class Shards(Store):
    """The folders of a sharded index, to read.

    Args:
        paths: the folders; their items have distinct ids.
        memory: what is read into memory at once.

    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, memory: Memory | None = None) -> None:
        if not paths:
            raise InvalidInput("a sharded index has at least one folder, got none: give their paths")
        super().__init__(paths[0], write=False, memory=memory)
        self._shards = [Store(path, write=False, memory=memory) for path in paths]
        twice = {shard.realpath for shard in self._shards}
        if len(twice) < len(paths):
            raise InvalidInput(f"the folders of a sharded index must be distinct, got {len(paths)}: name each once")

    def read(self) -> Commit:
        """Return the last commits of all folders as one."""
        commits = [shard.read() for shard in self._shards]
        first = commits[0]
        for shard, commit in zip(self._shards, commits, strict=True):
            if _settings(commit) != _settings(first):
                raise InvalidInput(
                    f"the folders of a sharded index must have the same width, coder and vectors, unlike {shard.path} "
                    f"and {self.path}: build one of them again"
                )
        return Commit(
            first.width,
            first.coder,
            max(commit.largest for commit in commits),
            tuple(segment for commit in commits for segment in commit.segments),
            first.vector_format,
            first.effort if all(commit.effort == first.effort for commit in commits) else None,
            all(commit.graph for commit in commits),
        )

    def changed(self) -> bool:
        """Return whether a folder has a newer commit than was read last."""
        return any(shard.changed() for shard in self._shards)


def _settings(commit: Commit) -> tuple[object, ...]:
    coder: Coder | None = commit.coder
    return commit.width, None if coder is None else coder.fingerprint, commit.vector_format
