"""Memory-mapped arrays whose blocks are checked when they are first read: opening one reads its header only."""

import math
import mmap
import os
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.errors import DamagedFile
from nestcode.storage.files import PIECE, open_file, write_new

BLOCK = 1 << 16  # bytes under one checksum
HEADER = 128  # bytes of a header
PAGE = 1 << 12  # bytes that a drive reads at once; the header of a file whose rows are pages


def write_array(path: Path, array: NDArray[Any], block: int = BLOCK) -> NDArray[np.uint64]:
    """Write an array as a durable `.npy` file, and return the checksums of its blocks for `Mapped`."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = (flat[start : start + PIECE].data for start in range(0, flat.size, PIECE))
    write_new(path, chain([_npy_header(array.dtype, array.shape)], pieces))
    return _core.block_checksums(flat, block)


def write_pages(path: Path, shape: tuple[int, int], pieces: Iterable[NDArray[np.uint8]]) -> NDArray[np.uint64]:
    """Write rows of whole pages, given in pieces, like `write_array`: they begin at a page of the file."""
    sums = [np.empty(0, dtype=np.uint64)]

    def written() -> Iterator[memoryview]:
        for piece in pieces:
            sums.append(_core.block_checksums(piece.reshape(-1), PAGE))
            yield piece.reshape(-1).data

    write_new(path, chain([_npy_header(np.dtype(np.uint8), shape, PAGE)], written()))
    return np.concatenate(sums)


class Mapped:
    """A memory-mapped `.npy` array whose blocks are checked on first use: opening it reads only the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.npy"
    ...     sums = write_array(path, np.arange(5))
    ...     mapped = Mapped(path, np.dtype(np.int64), (5,), sums)
    ...     mapped.touch(0, 40)
    ...     mapped.array.tolist(), np.load(path).tolist()
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        sums: NDArray[np.uint64] | None = None,
        block: int = BLOCK,
        header_bytes: int = HEADER,
    ) -> None:
        self.path, self._block = path, block
        header = _npy_header(dtype, shape, header_bytes)
        with open_file(path) as file:
            found, bytes_there = file.read(len(header)), os.fstat(file.fileno()).st_size
            bytes_due = len(header) + dtype.itemsize * math.prod(shape)
            if found != header or bytes_there != bytes_due:
                raise DamagedFile(
                    f"{path} is damaged: it should hold {dtype} of shape {shape} in {bytes_due} bytes and has "
                    f"{bytes_there}: restore a copy"
                )
            self._map: mmap.mmap | None = None
            if bytes_due == len(header):  # mmap refuses empty ranges
                self.array: NDArray[Any] = np.empty(shape, dtype=dtype)
            else:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.array = np.ndarray(shape, dtype, self._map, len(header))
        # Without checksums the caller verifies the contents.
        self.guard = None if sums is None else _core.ChecksumGuard(self.array.reshape(-1).view(np.uint8), sums, block)

    def check_size(self) -> None:
        """Raise if the file was truncated since it was mapped: reading what it lost would be a SIGBUS."""
        if self._map is not None and (bytes_there := self._map.size()) < len(self._map):
            raise DamagedFile(
                f"{self.path} was truncated from {len(self._map)} bytes to {bytes_there} since it was opened: "
                "restore a copy, and open it again"
            )

    def touch(self, begin: int, end: int) -> None:
        """Check the blocks of a range of bytes that were not checked yet; raise if one is damaged."""
        self.check_size()
        if self.guard is not None:
            self.guard.touch(begin, end)
        self.check()

    def touch_rows(self, positions: NDArray[np.uint32]) -> None:
        """Check the blocks of some rows; raise if one is damaged. Positions beyond the last row are ignored."""
        if self.guard is not None and len(self.array):
            self.guard.touch_rows(positions, self.array.nbytes // len(self.array))
        self.check()

    def expect_few_reads(self) -> None:
        """Release the pages that were read, and stop reading ahead."""
        self.unmap_pages()
        if self._map is not None:
            self._map.madvise(mmap.MADV_RANDOM)

    def unmap_pages(self) -> None:
        """Let go of the memory that reading took; the system may keep it in its page cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Check all blocks again; raise if one is damaged."""
        self.check_size()
        if self.guard is not None:
            self.guard.verify()
        self.check()

    def check(self) -> None:
        """Raise if a block that was checked so far is damaged."""
        if self.guard is not None and self.guard.first_damaged >= 0:
            raise DamagedFile(
                f"{self.path} is damaged: block {self.guard.first_damaged} of {self._block:,} bytes does not match its "
                "checksum: restore a copy, or build it again"
            )


class MappedArrays(dict[str, Mapped]):
    """The mapped arrays among some, by name. Those in memory are missing, and need no verification.

    >>> MappedArrays().touch()  # all is in memory
    """

    few_reads = False  # from now on: what searches scan is held in memory

    def guard(self, name: str) -> _core.ChecksumGuard | None:
        """Return what watches an array, or None in memory."""
        return self[name].guard if name in self else None

    def touch(self, *, but: Collection[str] = ()) -> None:
        """Verify the checksums of what was not read before; call it before reading everything, or all but some."""
        for name, mapped in self.items():
            if name not in but:
                mapped.touch(0, mapped.array.nbytes)

    def touch_rows(self, name: str, positions: NDArray[np.uint32]) -> None:
        """Verify the checksums of some rows of an array; positions beyond the last one are ignored."""
        if name in self:
            self[name].touch_rows(positions)

    def verify(self) -> None:
        """Verify all checksums, also of what was read before."""
        for mapped in self.values():
            mapped.verify()

    def check(self) -> None:
        """Raise if a checksum failed in what was read so far."""
        for mapped in self.values():
            mapped.check()

    def check_sizes(self) -> None:
        """Raise if a file was truncated."""
        for mapped in self.values():
            mapped.check_size()

    def unmap_pages(self) -> None:
        """Let go of the memory that reading took."""
        for mapped in self.values():
            mapped.unmap_pages()

    def release(self) -> None:
        """Let go of arrays that were read whole, where few reads will follow."""
        if self.few_reads:
            for mapped in self.values():
                mapped.expect_few_reads()

    def stays_in_file(self, name: str) -> bool:
        """Return whether searches read a few rows of an array from its file."""
        return self.few_reads and name in self

    def read_ahead(self, name: str, positions: NDArray[np.int64]) -> bool:
        """Ask the system for rows that stay in a file, and return whether some were not in memory."""
        return self.stays_in_file(name) and _core.read_ahead(self[name].array, self[name].guard, positions)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], size: int = HEADER) -> bytes:
    """Return the header of NumPy's format 1.0 for this array; readers compare it and need no parser."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + (size - 10).to_bytes(2, "little") + text.encode().ljust(size - 11) + b"\n"
