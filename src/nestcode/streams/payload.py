"""What arrived of a payload: checked block by block, and read as packed codes of any items."""

import warnings
import zlib
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes
from nestcode.coders import Coder
from nestcode.errors import DamagedFile
from nestcode.streams.format import GROUP, Header, Layout
from nestcode.streams.items import decode_items


class Payload(Protocol):
    """Bits in the order of a stream without an entropy stage."""

    bits: int  # that arrived, of those before a damaged block
    verified: int  # bytes that their checksums prove
    damaged: int | None  # the first block that is not as it was written, as far as is known

    @property
    def unverified(self) -> int:
        """Bytes that arrived without their checksum."""

    def read(self, begin: int, end: int) -> Bytes:
        """Bytes of all packed codes, group after group; zeros for what has not arrived."""


class Blocks:
    """A payload without an entropy stage that lies in memory or in a mapped file, checked as it is read."""

    def __init__(self, header: Layout, data: memoryview) -> None:
        self.header = header
        self.damaged: int | None = None
        self._data = data
        there = len(data) - header.size
        self.trailing = max(len(data) - header.total, 0)
        self._whole = (
            header.blocks if len(data) >= header.total else there // (header.block + 4)
        )  # blocks with checksum
        cut = there - self._whole * (header.block + 4)
        self.verified = min(self._whole * header.block, header.payload)  # once it is read
        self.unverified = min(cut, header.block_size(self._whole)) if self._whole < header.blocks else 0
        self.bits = 8 * (self.verified + self.unverified)
        self._checked = bytearray(self._whole)

    def error(self) -> DamagedFile | None:
        """What is wrong, as far as is known."""
        if self.damaged is not None:
            return damage(self.damaged, self.header, self.bits)
        return trailing(self.trailing) if self.trailing else None

    def verify(self) -> None:
        """Check all blocks; what precedes a damaged one is what arrived."""
        for number in range(self._whole):
            if not self._intact(number):
                self.damaged, self.unverified, self.verified = number, 0, number * self.header.block
                self.bits = 8 * self.verified
                return

    def read(self, begin: int, end: int) -> Bytes:
        """Bytes of all packed codes, group after group; zeros for what has not arrived."""
        block, out = self.header.block, np.zeros(end - begin, dtype=np.uint8)
        stop = min(end, self.bits // 8)
        for number in range(begin // block, -(-stop // block)):
            if number < self._whole and not self._intact(number):
                raise damage(number, self.header, 8 * block * number)
            first, last = max(begin, number * block), min(stop, (number + 1) * block)
            start = self.header.size + 4 * number
            out[first - begin : last - begin] = np.frombuffer(self._data[start + first : start + last], dtype=np.uint8)
        return out

    def _intact(self, number: int) -> bool:
        if not self._checked[number]:
            start, size = self.header.size + number * (self.header.block + 4), self.header.block_size(number)
            found = zlib.crc32(self._data[start : start + size], self.header.seed(number))
            self._checked[number] = self._data[start + size : start + size + 4] == found.to_bytes(4, "little")
        return bool(self._checked[number])


class Checked(ABC):
    """A payload that arrives in chunks and is checked on the way; what is made of it is up to those below."""

    def __init__(self, header: Layout) -> None:
        self.header = header
        self.bits = self.verified = 0
        self.damaged: int | None = None
        self._proven_bits = 0
        self._number, self._got, self._crc = 0, 0, header.seed(0)  # the block that is arriving
        self._sum = b""

    @abstractmethod
    def _store(self, at: int, data: Bytes) -> int:
        """Keep bytes of payload that follow those before; how many bits there are by now."""

    @property
    def unverified(self) -> int:
        """Bytes that arrived without their checksum."""
        return self._got

    @property
    def whole(self) -> bool:
        """Whether all blocks arrived."""
        return self._number == self.header.blocks

    def feed(self, chunk: memoryview) -> None:
        """Take the next bytes; raise at a block that is not as it was written."""
        if self.damaged is not None:
            raise damage(self.damaged, self.header, self.bits)
        while chunk:
            if self.whole:
                raise trailing(len(chunk))
            missing = self.header.block_size(self._number) - self._got
            if missing:
                piece, chunk = chunk[:missing], chunk[missing:]
                self.bits = self._store(self._number * self.header.block + self._got, np.frombuffer(piece, np.uint8))
                self._crc = zlib.crc32(piece, self._crc)
                self._got += len(piece)
            else:
                wanted = 4 - len(self._sum)
                self._sum += chunk[:wanted]
                chunk = chunk[wanted:]
                if len(self._sum) == 4:
                    self._seal()

    def _seal(self) -> None:
        """A block is whole."""
        if self._sum != self._crc.to_bytes(4, "little"):
            self.damaged, self.bits, self._got = self._number, self._proven_bits, 0
            raise damage(self.damaged, self.header, self.bits)
        self.verified += self._got
        self._proven_bits = self.bits
        self._number, self._got, self._sum = self._number + 1, 0, b""
        self._crc = self.header.seed(self._number)


class Arrival(Checked):
    """The codes of a stream as they arrive, with or without an entropy stage; they are kept in memory."""

    header: Header

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._plain = np.zeros(header.count * header.code_bytes, dtype=np.uint8)
        self._decoder = _core.CodeDecoder(header.count, header.width, self._plain) if header.entropy else None

    def read(self, begin: int, end: int) -> Bytes:
        """Bytes of all packed codes, group after group; zeros for what has not arrived."""
        return self._plain[begin:end]

    def _store(self, at: int, data: Bytes) -> int:
        if self._decoder is not None:
            return self._decoder.feed(data)
        self._plain[at : at + len(data)] = data
        return 8 * (at + len(data))

    def _seal(self) -> None:
        super()._seal()
        if self.whole and self.bits < self.header.count * self.header.width:
            raise DamagedFile("the stream's payload says less than its header: restore a copy")


def damage(number: int, header: Layout, bits: int) -> DamagedFile:
    """The error that names a damaged block."""
    return DamagedFile(
        f"block {number} of {header.blocks} does not match its checksum, but {header.fine(bits)} before it are fine: "
        "restore a copy, or keep what is fine"
    )


def settle(error: DamagedFile | None, on_damage: str) -> None:
    """Raise what is wrong, or warn whoever called the function that asks."""
    if error is not None and on_damage == "error":
        raise error
    if error is not None:
        warnings.warn(str(error), stacklevel=3)


def trailing(count: int) -> DamagedFile:
    """The error of a stream that goes on after its end."""
    return DamagedFile(f"{count} bytes follow the end of the stream: it is damaged, or give the stream alone")


def read_codes(header: Header, payload: Payload, first: int, last: int, length: int) -> Bytes:
    """Packed codes of some items, (n, bytes), of which the first `length` bits count."""
    parts = []
    for group in range(-(-length // GROUP)):
        wide = min(8, header.code_bytes - 8 * group)
        begin = 8 * group * header.count
        parts.append(payload.read(begin + first * wide, begin + last * wide).reshape(-1, wide))
    return np.concatenate(parts, axis=1) if parts else np.zeros((last - first, 0), dtype=np.uint8)


def decode_range(
    header: Header,
    payload: Payload,
    coder: Coder,
    length: int,
    first: int,
    last: int,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Items from `first` to before `last`, each at the best length that arrived, at most `length`."""
    if out is None:
        out = np.empty((last - first, *header.shape), dtype=header.numpy_dtype)
    for begin, end, reached in header.segments(payload.bits, length):
        begin, end = max(begin, first), min(end, last)
        step = max((1 << 24) // max(header.code_bytes, 1), 1)  # items whose codes are read at a time
        for at in range(begin, end, step):
            until = min(at + step, end)
            packed = read_codes(header, payload, at, until, reached)
            decode_items(header, coder, packed, reached, out[at - first : until - first])
    return out
