"""The layout of a stream: a header, an embedded coder, then payload in blocks that each end with a CRC-32."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property

# A first byte outside of ASCII, and line ends that a transfer in text mode would change, as in PNG.
ITEMS_MAGIC = b"\x89NEST\r\n\x1a"
IMAGES_MAGIC = b"\x89NESP\r\n\x1a"
BLOCK = 4096  # bytes of payload that share a checksum
CRC = 4  # bytes


class TruncatedHeader(InvalidInput):
    """The data ends before the header does, which has at least `needed` bytes."""

    def __init__(self, needed: int, got: int) -> None:
        super().__init__(f"a stream must have its whole header, of {needed} bytes or more, got {got}: read more of it")
        self.needed = needed


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """The layout of a stream's bytes; the two kinds of streams add the fields of their headers."""

    payload: int  # bytes, checksums not counted
    embedded: int = 0  # bytes of the coder that follows the header
    block: int = BLOCK  # bytes of payload that share a checksum

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The bytes of the header, without the embedded coder; they end with its CRC-32."""

    @abstractmethod
    def summary(self, bits: int) -> str:
        """Describe what the first `bits` bits of the payload hold."""

    @lazy_property
    def size(self) -> int:
        """Bytes before the payload, the embedded coder included."""
        return len(self.data) + self.embedded

    @property
    def blocks(self) -> int:
        """The number of blocks of the whole payload."""
        return -(-self.payload // self.block)

    @property
    def total(self) -> int:
        """Bytes of the whole stream."""
        return self.size + self.payload + CRC * self.blocks

    def block_size(self, number: int) -> int:
        """Return how many bytes of payload a block has."""
        return min(self.block, self.payload - self.block * number)

    def checksum_seed(self, number: int) -> int:
        """Return the value that a block's CRC-32 continues from: it detects blocks of other places and streams."""
        return zlib.crc32(number.to_bytes(8, "little") + self.data[-CRC:])

    def seal(self, payload: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the payload in blocks, each followed by its CRC-32."""
        pending, number = bytearray(), 0
        for piece in payload:
            pending += piece
            whole = len(pending) // self.block
            for k in range(whole):
                yield self._sealed(bytes(pending[k * self.block : (k + 1) * self.block]), number + k)
            number += whole
            del pending[: whole * self.block]
        if pending:
            yield self._sealed(bytes(pending), number)

    def _sealed(self, block: bytes, number: int) -> bytes:
        return block + zlib.crc32(block, self.checksum_seed(number)).to_bytes(CRC, "little")
