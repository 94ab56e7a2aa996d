"""What writes while it is killed: each commits numbered states to a folder, and says which state a folder holds."""

import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import ImageStreamWriter, Index, LinearCoder, StreamWriter
from nestcode.errors import NestcodeError
from nestcode.index import compaction
from nestcode.stores import SqliteStore
from nestcode.stores.lmdb import LmdbStore
from tests.index.test_durability import strays
from tests.index.writer import (
    EACH,
    WIDTH,
    begin,
    codes_of,
    held,
    held_after,
    ids_of,
    last_commit,
    make_commit,
    vectors_of,
)

STATES = 5  # that are committed one after the other
REFUSED = (OSError, NestcodeError, sqlite3.Error, lmdb.Error)  # what a writer may raise when the disk fails


class Writer(ABC):
    """Commits the states 0, 1, 2, … in this order."""

    name: str

    @abstractmethod
    def commit(self, folder: Path, number: int) -> None:
        """Make state `number` of state `number - 1`."""

    @abstractmethod
    def found(self, folder: Path) -> int:
        """Return which state there is; raise if it is none, or not whole."""


class Indexes(Writer):
    """An index with tombstones, vectors and compactions."""

    name = "index"

    def commit(self, folder: Path, number: int) -> None:
        if number == 0:
            return begin(folder / "index")
        with Index.open(folder / "index", mode="a") as index:
            return make_commit(index, number + 1)

    def found(self, folder: Path) -> int:
        Index.open(folder / "index", mode="a").close()  # sweeps what a crash left
        with Index.open(folder / "index") as index:
            commit = last_commit(index)
            index.verify()
            assert held(index) == held_after(commit)
            assert strays(folder / "index") == set()
        return commit - 1


class Graphs(Indexes):
    """An index each of whose commits has a graph, whose nodes are in a file."""

    name = "index with a graph"

    def commit(self, folder: Path, number: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "MIN_GRAPH", EACH)
            if number == 0:
                return begin(folder / "index", graph=True)
            with Index.open(folder / "index", mode="a") as index:
                return make_commit(index, number + 1, compact=True)

    def found(self, folder: Path) -> int:
        number = super().found(folder)
        with Index.open(folder / "index", memory="codes") as stored, Index.open(folder / "index") as index:
            (segment,) = stored._live.current.segments
            assert segment.graph is not None
            assert segment.graph.nodes is not None
            asked = vectors_of(ids_of(number + 1))
            hits, expected = (one.search(asked, k=1, candidates=len(one) // 2) for one in (stored, index))  # walks
            assert hits.ids.tolist() == expected.ids.tolist()
        return number


class Files(Writer):
    """A file that is replaced as a whole; `write` makes state `number` at a path."""

    def __init__(self, name: str, write: Callable[[Path, int], None]) -> None:
        self.name, self._write = name, write

    def commit(self, folder: Path, number: int) -> None:
        self._write(folder / "file", number)

    def found(self, folder: Path) -> int:
        there = (folder / "file").read_bytes()
        return next(number for number in range(STATES) if self._state(number) == there)

    @cache  # noqa: B019
    def _state(self, number: int) -> bytes:
        with tempfile.TemporaryDirectory() as elsewhere:
            self._write(Path(elsewhere) / "file", number)
            return (Path(elsewhere) / "file").read_bytes()


def write_items(path: Path, number: int) -> None:
    """Write a stream of items in two batches."""
    with StreamWriter(path, coder(0)) as writer:
        writer.add(rows(number))
        writer.add(rows(number + 1))


def write_images(path: Path, number: int) -> None:
    """Write a stream of one image."""
    with ImageStreamWriter(path) as writer:
        writer.add("one", np.full((9, 9), 20 * number, dtype=np.uint8))


def write_state(path: Path, number: int) -> None:
    """Write a checkpoint of training."""
    import torch  # takes seconds

    from nestcode.training.runtime.checkpoint import write_checkpoint

    write_checkpoint(path, {"step": number, "model": {"weight": torch.full((40, 40), float(number))}})


class Stores(Writer):
    """Codes in a database; each state is one transaction."""

    def __init__(self, name: str, kind: type[Any], file: str) -> None:
        self.name, self._kind, self._file = name, kind, file

    def commit(self, folder: Path, number: int) -> None:
        make = partial(self._kind.create, width=WIDTH) if number == 0 else self._kind.open
        with make(folder / self._file) as store:
            store.add(codes_of([2**40 + number, *ids_of(number + 1)]), [0, *ids_of(number + 1)], on_duplicate="replace")

    def found(self, folder: Path) -> int:
        with self._kind.open(folder / self._file) as store:
            number = (len(store) - 1) // len(ids_of(0)) - 1
            ids = np.concatenate([ids_of(one + 1) for one in range(number + 1)])
            assert store.codes([0, *ids]) == codes_of([2**40 + number, *ids])
        return number


@cache
def rows(seed: int) -> NDArray[np.float32]:
    """Some rows, others for each number."""
    return np.random.default_rng(seed).standard_normal((40, 12)).astype(np.float32)


@cache
def coder(seed: int) -> LinearCoder:
    """A coder, another for each number."""
    return LinearCoder(width=64).fit(rows(seed))


WRITERS: list[Writer] = [
    Indexes(),
    Graphs(),
    Stores("SQLite store", SqliteStore, "codes.db"),
    Stores("LMDB store", LmdbStore, "codes.lmdb"),
    Files("coder", lambda path, number: coder(number).save(path)),
    Files("stream", write_items),
    Files("image stream", write_images),
    Files("checkpoint", write_state),
]
