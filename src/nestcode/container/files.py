"""Streams as files: a spool for writers, slices for readers."""

import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import PIECE, make_folder, naming_file, open_file, writable


class SpooledWriter(ABC):
    """A writer that spools to an unnamed temporary file, which disappears however the process ends.

    Streams interleave all items, so no payload can be written before the last item arrived.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        writable(self.path)  # raises before any work
        make_folder(self.path.parent)
        with naming_file(self.path):
            self._spool: Any = tempfile.TemporaryFile(dir=self.path.parent)  # noqa: SIM115

    @abstractmethod
    def _finish(self) -> None:
        """Write the stream."""

    def close(self) -> None:
        """Write the stream to its file, whole or not at all."""
        if self._spool is not None:
            try:
                self._finish()
            finally:
                self.discard()

    def discard(self) -> None:
        """Close without writing a file."""
        if self._spool is not None:
            with suppress(OSError):  # what did not fit the disk
                self._spool.close()
            self._spool = None

    def _check_open(self) -> None:
        if self._spool is None:
            raise InvalidInput(f"{self.path} is closed: open another {type(self).__name__}")

    def _append(self, data: bytes | memoryview) -> None:
        """Spool more bytes."""
        with naming_file(self.path):
            self._spool.write(data)

    def _truncate(self, size: int) -> None:
        """Drop the spool after its first `size` bytes."""
        self._spool.seek(size)
        self._spool.truncate()

    def _map_spool(self) -> mmap.mmap:
        """Map the spooled bytes; there must be at least one."""
        with naming_file(self.path):
            self._spool.flush()
        return mmap.mmap(self._spool.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def is_stream(path: Path) -> bool:
    """Return whether a file starts as streams do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ITEMS_MAGIC)) in (ITEMS_MAGIC, IMAGES_MAGIC)


class FileView:
    """The bytes of a file, read by slices; it is not mapped, as another process may truncate it (SIGBUS)."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise IsADirectoryError(f"{path} must be the file of a stream, but it is a folder: give the file in it")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}: give the path of a stream")
        self._path = path
        with open_file(path) as file:
            self._handle = os.dup(file.fileno())
        self._size = os.fstat(self._handle).st_size
        self.close = weakref.finalize(self, os.close, self._handle)  # at the latest when nobody reads it any more

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> memoryview:
        begin, end, _ = part.indices(self._size)
        pieces, at = [], begin
        while at < end:
            piece = os.pread(self._handle, min(end - at, PIECE), at)
            if not piece:
                raise DamagedFile(f"{self._path} was truncated to {at} bytes while it was read: open it again")
            pieces.append(piece)
            at += len(piece)
        return memoryview(b"".join(pieces))
