"""The layout of a stream: a header, then bits 0-63 of every item, then 64-127, … in blocks with checksums.

    magic (8) · version (4) · size (4) · JSON · CRC-32 (4) · the coder, if embedded · block · CRC-32 (4) · block · …

`docs/format.md` says what the JSON holds. Nothing in a header is believed before it is checked.
"""

import json
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nestcode.errors import DamagedFile, InvalidInput

MAGIC = b"\x89NEST\r\n\x1a"  # a byte that is no text, and line ends that a transfer as text would change
PICTURES = b"\x89NESP\r\n\x1a"  # of `picture_format.py`
VERSION = 1
GROUP = 64  # bits of an item that lie side by side
BLOCK = 4096  # bytes of payload that share a checksum
FIXED = 16  # bytes before the JSON
MAX_JSON = 1 << 20  # bytes
MAX_WIDTH = 1 << 20  # bits of an item
MAX_COUNT = 1 << 40  # items
MAX_FEATURES = 1 << 31  # numbers of an item
DTYPES = ("u1", "u2", "i1", "i2", "f2", "f4", "f8")
SCALES = (1e-30, 1e30)


class CutHeader(InvalidInput):
    """The data ends before the header does, which has at least `wanted` bytes."""

    def __init__(self, wanted: int, got: int) -> None:
        super().__init__(f"a stream can be cut after its header, of {wanted} bytes or more, got {got}: get more of it")
        self.wanted = wanted


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """Where the bytes of a stream are: a header, maybe a coder, then blocks of payload with their checksums."""

    payload: int  # bytes, checksums not counted
    embedded: int = 0  # bytes of the coder that follows the header
    block: int = BLOCK  # bytes of payload that share a checksum

    @property
    @abstractmethod
    def data(self) -> bytes:
        """The header as it is written, without the coder; it ends with its CRC-32."""

    @abstractmethod
    def fine(self, bits: int) -> str:
        """What so many bits of the payload hold, in words."""

    @cached_property
    def size(self) -> int:
        """Bytes before the payload, an embedded coder with them."""
        return len(self.data) + self.embedded

    @property
    def blocks(self) -> int:
        """How many blocks the whole payload has."""
        return -(-self.payload // self.block)

    @property
    def total(self) -> int:
        """Bytes of the whole stream."""
        return self.size + self.payload + 4 * self.blocks

    def block_size(self, number: int) -> int:
        """Bytes of payload in a block."""
        return min(self.block, self.payload - self.block * number)

    def seed(self, number: int) -> int:
        """What a block's CRC-32 goes on from, so that a block of another stream or place is noticed."""
        return zlib.crc32(number.to_bytes(8, "little") + self.data[-4:])

    def seal(self, payload: Iterable[bytes]) -> Iterator[bytes]:
        """The payload in blocks, each followed by its CRC-32."""
        left, number = bytearray(), 0
        for piece in payload:
            left += piece
            whole = len(left) // self.block
            for k in range(whole):
                yield self._sealed(bytes(left[k * self.block : (k + 1) * self.block]), number + k)
            number += whole
            del left[: whole * self.block]
        if left:
            yield self._sealed(bytes(left), number)

    def _sealed(self, block: bytes, number: int) -> bytes:
        return block + zlib.crc32(block, self.seed(number)).to_bytes(4, "little")


@dataclass(frozen=True, kw_only=True)
class Header(Layout):
    """What a stream of equal items says about itself before its payload."""

    count: int  # items
    shape: tuple[int, ...]  # of an item
    dtype: str  # of an item's numbers, as NumPy writes it
    width: int  # bits of an item
    scale: float  # items are divided by it before they are coded
    coder: str  # its fingerprint
    kind: str  # of coder
    errors: tuple[float, ...]  # expected after 0, 64, 128, … and all bits, in the items' own units
    entropy: bool = False  # whether the payload is entropy coded
    embedded_crc: int = 0

    @cached_property
    def data(self) -> bytes:
        """The header as it is written, without the coder."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        if len(text) > MAX_JSON:
            raise InvalidInput(f"a header must have at most {MAX_JSON} bytes, got {len(text)}: keep fewer bits")
        start = MAGIC + VERSION.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
        return start + zlib.crc32(start).to_bytes(4, "little")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Of items."""
        return np.dtype(self.dtype)

    @property
    def features(self) -> int:
        """How many numbers an item has."""
        return math.prod(self.shape)

    @property
    def code_bytes(self) -> int:
        """Bytes of one packed code."""
        return -(-self.width // 8)

    def fine(self, bits: int) -> str:
        """What so many bits of the payload hold, in words."""
        held = self.segments(bits, self.width)
        return " and ".join(f"{length} bits of {end - begin} items" for begin, end, length in held) or "nothing"

    def error_at(self, length: int) -> float:
        """What is expected at a length; between two groups of bits, that of the shorter one."""
        return self.errors[-1] if length == self.width else self.errors[length // GROUP]

    def segments(self, bits: int, length: int) -> list[tuple[int, int, int]]:
        """The items from a first to before a last that have the same length, when so many bits of the payload arrived.

        >>> known = {"shape": (2,), "dtype": "<f4", "scale": 1.0, "coder": "", "kind": "", "errors": ()}
        >>> header = Header(count=5, width=128, payload=80, **known)
        >>> header.segments(64 * 5 + 2 * 64 + 8, length=128)
        [(0, 2, 128), (2, 3, 72), (3, 5, 64)]
        """
        done, left = divmod(bits, max(GROUP * self.count, 1))
        start = min(GROUP * done, self.width)
        wide = min(GROUP, self.width - start)
        if not self.count:
            return []
        if not wide:
            return [(0, self.count, min(self.width, length))]
        item, part = divmod(left, wide if self.entropy else -(-wide // 8) * 8)
        ends = [(item, start + wide), (item + (part > 0), start + part), (self.count, start)]
        segments: list[tuple[int, int, int]] = []
        for end, reached in ends:
            first, kept = segments[-1][1] if segments else 0, min(reached, length)
            if end > first and segments and segments[-1][2] == kept:
                segments[-1] = segments[-1][0], end, kept
            elif end > first:
                segments.append((first, end, kept))
        return segments


def check_length(length: int | None, width: int) -> int:
    """How many bits to use of each item, all by default."""
    if length is None:
        return width
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or not 0 <= length <= width:
        raise InvalidInput(f"length must be between 0 and the stream's width {width}, got {length!r}")
    return int(length)


def parse_header(data: memoryview) -> Header:
    """The header that data begins with, proven; an embedded coder is there too, but not looked at."""
    start = bytes(data[:FIXED])
    if start[:8] == PICTURES:
        raise InvalidInput(
            "this is a stream of pictures: give it to decompress_images, stream_info or ImageStreamReader"
        )
    if start[:8] != MAGIC[: len(start)]:
        raise DamagedFile("this is not a stream that Nestcode wrote: give one that compress made")
    if len(start) < FIXED:
        raise CutHeader(FIXED, len(data))
    version, size = int.from_bytes(start[8:12], "little"), int.from_bytes(start[12:], "little")
    if version != VERSION:
        raise DamagedFile(f"the stream has version {version}, this nestcode reads version {VERSION}: upgrade nestcode")
    if size > MAX_JSON:
        raise DamagedFile(f"the stream's header claims {size} bytes, at most {MAX_JSON} can be right: restore a copy")
    end = FIXED + size
    if len(data) < end + 4:
        raise CutHeader(end + 4, len(data))
    if zlib.crc32(data[:end]).to_bytes(4, "little") != data[end : end + 4]:
        raise DamagedFile("the stream's header is damaged, its checksum does not match: restore a copy")
    header = _checked(bytes(data[FIXED:end]))
    if header.data != data[: end + 4]:
        raise DamagedFile("the stream's header is not as nestcode writes it: restore a copy")
    if len(data) < header.size:
        raise CutHeader(header.size, len(data))
    if header.embedded and zlib.crc32(data[end + 4 : header.size]) != header.embedded_crc:
        raise DamagedFile("the coder in the stream is damaged, its checksum does not match: restore a copy")
    return header


def _checked(text: bytes) -> Header:
    """The header in JSON whose checksum is right: still, anybody can make one."""
    try:
        known = json.loads(text)
        if not isinstance(known, dict) or set(known) != set(Header.__dataclass_fields__):
            raise ValueError("its keys are not those of a header")
        known["shape"], known["errors"] = _listed(known["shape"]), _listed(known["errors"])
        header = Header(**known)
        _check(header)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"the stream's header cannot be right ({error}): restore a copy") from error
    return header


def _listed(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:40]} should be a list")
    return tuple(value)


def _check(header: Header) -> None:
    """Raise unless every number is one that a stream can have."""
    most = {"count": MAX_COUNT, "width": MAX_WIDTH, "payload": 1 << 62, "embedded": 1 << 40, "embedded_crc": 2**32 - 1}
    for name, limit in most.items():
        _whole(getattr(header, name), name, 0, limit)
    _whole(header.block, "block", 16, 1 << 20)
    if not 1 <= len(header.shape) <= 32:
        raise ValueError(f"items have from 1 to 32 dimensions, not {len(header.shape)}")
    for side in header.shape:
        _whole(side, "shape", 1, MAX_FEATURES)
    _whole(header.features, "features", 1, MAX_FEATURES)
    if not isinstance(header.dtype, str) or not re.fullmatch(rf"[<>|]({'|'.join(DTYPES)})", header.dtype):
        raise ValueError("dtype is not that of items")
    if header.numpy_dtype.str != header.dtype:
        raise ValueError("dtype is not as NumPy writes it")
    if not isinstance(header.scale, float) or not SCALES[0] <= header.scale <= SCALES[1]:
        raise ValueError(f"scale is between {SCALES[0]:g} and {SCALES[1]:g}")
    if not isinstance(header.coder, str) or not re.fullmatch("[0-9a-f]{64}", header.coder):
        raise ValueError("coder is not a fingerprint")
    if not isinstance(header.kind, str) or not re.fullmatch("[A-Za-z]{1,40}", header.kind):
        raise ValueError("kind is not the name of a coder")
    if not isinstance(header.entropy, bool):
        raise ValueError("entropy is neither true nor false")
    if len(header.errors) != -(-header.width // GROUP) + 1:
        raise ValueError("errors are not one for each group of bits")
    if not all(isinstance(error, float) and 0 <= error < math.inf for error in header.errors):
        raise ValueError("errors are finite and not negative")
    codes = header.count * header.code_bytes
    if not 0 < header.payload < codes if header.entropy else header.payload != codes:  # else it would not have paid
        raise ValueError("payload is not what so many items of such a width take")


def _whole(value: Any, name: str, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}")
