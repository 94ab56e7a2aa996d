"""What streams of items and of pictures share: a spool to write from, a file to read from, chunks that arrive."""

import mmap
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import make_folder
from nestcode.streams.format import CutHeader
from nestcode.streams.payload import Checked
from nestcode.streams.stream import Buffer, as_view

Arriving = TypeVar("Arriving", bound=Checked)


class Spooled(ABC):
    """A writer that keeps what comes in a file without a name, which is gone however the process ends."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        make_folder(self.path.parent)
        self._spool: Any = tempfile.TemporaryFile(dir=self.path.parent)  # noqa: SIM115

    @abstractmethod
    def _finish(self) -> None:
        """Write the file."""

    def close(self) -> None:
        """Write the file."""
        if self._spool is not None:
            try:
                self._finish()
            finally:
                self.discard()

    def discard(self) -> None:
        """Forget what was written; there will be no file."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _check_open(self) -> None:
        if self._spool is None:
            raise InvalidInput(f"{self.path} is closed: open another {type(self).__name__}")

    def _mapped(self) -> mmap.mmap:
        """What was spooled, which must not be nothing."""
        self._spool.flush()
        return mmap.mmap(self._spool.fileno(), 0, prot=mmap.PROT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class Chunked(ABC, Generic[Arriving]):
    """A decoder of a stream that comes in chunks of any size: first its header, then its blocks."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = bytearray()  # until the header is whole
        self._wanted = self._fed = 0  # bytes that a header has at least, and that came
        self._refused: DamagedFile | InvalidInput | None = None
        self._arrival: Arriving | None = None

    @abstractmethod
    def _begin(self, view: memoryview) -> Arriving:
        """Read the header, if it is whole."""

    def feed(self, chunk: Buffer) -> None:
        """Take the next bytes. A damaged block raises, and what precedes it stays readable."""
        if self._refused is not None:
            raise self._refused
        view = as_view(chunk)
        self._fed += len(view)
        try:
            if self._arrival is None:
                self._start += view
                if len(self._start) < self._wanted:
                    return
                whole = memoryview(bytes(self._start))
                self._arrival = self._begin(whole)
                self._start.clear()
                view = whole[self._arrival.header.size :]
            self._arrival.feed(view)
        except CutHeader as cut:
            self._wanted = cut.wanted
            if cut.wanted > self._limit:
                self._refused = InvalidInput(f"the header takes {cut.wanted} bytes, more than limit, {self._limit}")
                raise self._refused from None
        except (DamagedFile, InvalidInput) as error:
            self._refused = error
            raise

    def _opened(self) -> Arriving:
        if self._arrival is not None:
            return self._arrival
        if self._refused is not None:
            raise self._refused
        raise InvalidInput(f"the stream's header is not whole after {self._fed} bytes: feed more of it first")


def map_file(path: Path) -> memoryview:
    """The bytes of a file, mapped into memory."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path of a stream")
    with path.open("rb") as file:
        empty = os.fstat(file.fileno()).st_size == 0  # which cannot be mapped
        return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
