"""Verification of the blocks that arrived, in memory or chunk by chunk; the first damaged block is the one reported."""

import warnings
import zlib
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from nestcode.arrays import Bytes
from nestcode.container.files import FileView
from nestcode.container.layout import CRC, Layout
from nestcode.errors import DamagedFile, InvalidInput

OnDamage = Literal["error", "keep"]


class StoredBlocks:
    """The payload of a stream in memory or in a file; blocks are verified when they are read."""

    def __init__(self, header: Layout, data: memoryview | FileView) -> None:
        self.header = header
        self.damaged: int | None = None  # the first block that does not match its checksum, once `verify` was called
        self._data = data
        arrived = len(data) - header.size
        self.trailing = max(len(data) - header.total, 0)
        # Blocks that arrived with their checksum.
        self._complete = header.blocks if len(data) >= header.total else arrived // (header.block + CRC)
        partial = arrived - self._complete * (header.block + CRC)
        self.verified = min(self._complete * header.block, header.payload)  # once they are read
        self.unverified = min(partial, header.block_size(self._complete)) if self._complete < header.blocks else 0
        self.bits = 8 * (self.verified + self.unverified)
        self._checked = bytearray(self._complete)

    def error(self) -> DamagedFile | None:
        """Return the known error of the stream, if any."""
        if self.damaged is not None:
            return damaged_block(self.damaged, self.header, self.bits)
        return trailing_bytes(self.trailing) if self.trailing else None

    def verify(self) -> None:
        """Check all blocks; if one is damaged, keep only what precedes the first of them."""
        self.damaged = next((number for number in range(self._complete) if not self._intact(number)), None)
        if self.damaged is not None:
            self.unverified, self.verified = 0, self.damaged * self.header.block
            self.bits = 8 * self.verified

    def read(self, begin: int, end: int) -> Bytes:
        """Return bytes of the payload, verified; zeros stand for missing bytes."""
        self.check(begin, end)
        block, out = self.header.block, np.zeros(end - begin, dtype=np.uint8)
        stop = min(end, self.bits // 8)
        for number in range(begin // block, -(-stop // block)):
            low, high = max(begin, number * block), min(stop, (number + 1) * block)
            start = self.header.size + CRC * number
            out[low - begin : high - begin] = np.frombuffer(self._data[start + low : start + high], dtype=np.uint8)
        return out

    def check(self, begin: int, end: int) -> None:
        """Raise if a block with some of these bytes of the payload is damaged."""
        block = self.header.block
        for number in range(begin // block, min(-(-end // block), -(-self.bits // (8 * block)), self._complete)):
            if not self._intact(number):
                first = next(k for k in range(number + 1) if not self._intact(k))  # maybe one that was not read yet
                raise damaged_block(first, self.header, 8 * block * first)

    def _intact(self, number: int) -> bool:
        if not self._checked[number]:
            start, size = self.header.size + number * (self.header.block + CRC), self.header.block_size(number)
            block = self._data[start : start + size + CRC]
            found = zlib.crc32(block[:size], self.header.checksum_seed(number))
            self._checked[number] = block[size:] == found.to_bytes(CRC, "little")
        return bool(self._checked[number])


class ArrivingBlocks(ABC):
    """A payload that arrives in chunks and is verified on the way; subclasses store or decode it."""

    def __init__(self, header: Layout) -> None:
        self.header = header
        self.bits = self.verified = 0
        self.damaged: int | None = None
        self._verified_bits = 0
        self._number, self._got, self._crc = 0, 0, header.checksum_seed(0)  # of the block that is arriving
        self._checksum = b""

    @abstractmethod
    def _store(self, at: int, data: Bytes) -> int:
        """Take the payload's bytes from `at` on; return how many bits are known by now."""

    @property
    def unverified(self) -> int:
        """Bytes that arrived without their checksum."""
        return self._got

    @property
    def complete(self) -> bool:
        """Whether all blocks arrived."""
        return self._number == self.header.blocks

    def feed(self, chunk: memoryview) -> None:
        """Take the next bytes; raise at a block that does not match its checksum."""
        if self.damaged is not None:
            raise damaged_block(self.damaged, self.header, self.bits)
        while chunk:
            if self.complete:
                raise trailing_bytes(len(chunk))
            missing = self.header.block_size(self._number) - self._got
            if missing:
                piece, chunk = chunk[:missing], chunk[missing:]
                self.bits = self._store(self._number * self.header.block + self._got, np.frombuffer(piece, np.uint8))
                self._crc = zlib.crc32(piece, self._crc)
                self._got += len(piece)
            else:
                needed = CRC - len(self._checksum)
                self._checksum += chunk[:needed]
                chunk = chunk[needed:]
                if len(self._checksum) == CRC:
                    self._end_block()

    def _end_block(self) -> None:
        """Verify the block whose last byte arrived."""
        if self._checksum != self._crc.to_bytes(CRC, "little"):
            self.damaged, self.bits, self._got = self._number, self._verified_bits, 0
            raise damaged_block(self.damaged, self.header, self.bits)
        self.verified += self._got
        self._verified_bits = self.bits
        self._number, self._got, self._checksum = self._number + 1, 0, b""
        self._crc = self.header.checksum_seed(self._number)


def damaged_block(number: int, header: Layout, bits: int) -> DamagedFile:
    """Return the error for a damaged block that `bits` intact bits of payload precede."""
    return DamagedFile(
        f"block {number} of {header.blocks} does not match its checksum, {header.summary(bits)} before it are intact: "
        'restore a copy, or decode the intact part with on_damage="keep"'
    )


def trailing_bytes(count: int) -> DamagedFile:
    """Return the error for bytes after the end of a stream."""
    return DamagedFile(f"{count} bytes follow the end of the stream: restore a copy, or give the stream alone")


def check_on_damage(on_damage: str) -> None:
    """Raise unless `on_damage` is one of its two values."""
    if on_damage not in ("error", "keep"):
        raise InvalidInput(f'on_damage must be "error" or "keep", got {on_damage!r}')


def report_damage(error: DamagedFile | None, on_damage: str) -> None:
    """Raise the error of a stream, or warn the caller of the public function."""
    if error is not None and on_damage == "error":
        raise error
    if error is not None:
        warnings.warn(str(error), stacklevel=3)
