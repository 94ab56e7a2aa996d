"""The layout of a stream of pictures: all of them pass by pass, so that a cut is felt by all alike.

    header (60) · table · CRC-32 (4) · the coder, if embedded · block · CRC-32 (4) · block · …

The table says how many bytes of each picture a pass has (`coders/pictures.py`). Nothing is believed before it is
checked.
"""

import json
import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_int
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images.codec import PASSES, check_shape
from nestcode.streams.format import MAGIC as ITEMS
from nestcode.streams.format import PICTURES as MAGIC
from nestcode.streams.format import CutHeader, Layout

VERSION = 1
FIXED = struct.Struct("<8sIIIQ32s")  # magic, version, bytes of the table, of an embedded coder, of payload; fingerprint
MAX_TABLE = 1 << 24  # bytes, inflated: some 80,000 pictures
MAX_NAME = 1000  # characters
TILE = 32  # pixels on a side, of which lengths count the bits
Sizes = NDArray[np.int64]  # (pictures, passes): bytes of each picture after each pass


@dataclass(frozen=True)
class Entry:
    """One picture in the table."""

    name: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]  # bytes after each pass

    @property
    def tiles(self) -> int:
        """How many tiles of 32 x 32 pixels it has."""
        return -(-self.shape[0] // TILE) * -(-self.shape[1] // TILE)


@dataclass(frozen=True, kw_only=True)
class ImageStreamHeader(Layout):
    """What a stream of pictures says about itself before its payload."""

    entries: tuple[Entry, ...]
    quality: tuple[int, ...]  # expected of all after each pass, in tenths of a decibel
    coder: str  # its fingerprint
    written: bytes = b""  # the header as it came

    @cached_property
    def data(self) -> bytes:
        """The header as it is written, without the coder."""
        if self.written:
            return self.written
        rows = [[entry.name, entry.shape, np.diff(entry.sizes, prepend=0).tolist()] for entry in self.entries]
        text = json.dumps([rows, self.quality], separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > MAX_TABLE:
            raise InvalidInput(f"a table must have at most {MAX_TABLE} bytes, got {len(text)}: make several streams")
        table = zlib.compress(text, 9)
        start = FIXED.pack(MAGIC, VERSION, len(table), self.embedded, self.payload, bytes.fromhex(self.coder)) + table
        return start + zlib.crc32(start).to_bytes(4, "little")

    @cached_property
    def sizes(self) -> Sizes:
        """Bytes of each picture after each pass."""
        return np.array([entry.sizes for entry in self.entries], dtype=np.int64).reshape(-1, PASSES)

    @cached_property
    def steps(self) -> Sizes:
        """Bytes of each picture in each pass."""
        return np.diff(self.sizes, axis=1, prepend=0)

    @cached_property
    def starts(self) -> Sizes:
        """Where in the payload they begin."""
        order = self.steps.T.ravel()
        return (np.cumsum(order) - order).reshape(PASSES, -1).T

    @cached_property
    def tiles(self) -> int:
        """Of all pictures."""
        return sum(entry.tiles for entry in self.entries)

    def pieces(self, picture: int, arrived: int) -> Iterator[slice]:
        """Where in the payload the bytes of a picture are, of those that arrived."""
        for begin, size in zip(self.starts[picture].tolist(), self.steps[picture].tolist(), strict=True):
            if size and begin < arrived:
                yield slice(begin, min(begin + size, arrived))

    def quality_at(self, arrived: int) -> float:
        """What is expected of all pictures when so many bytes of payload arrived, in tenths of a decibel."""
        return float(np.interp(arrived, self.sizes.sum(axis=0), self.quality))

    def error_at(self, arrived: int) -> float:
        """What is expected of a pixel between 0 and 1, squared, when so many bytes of payload arrived."""
        return float(10 ** (-self.quality_at(arrived) / 100))

    def bytes_for(self, length: int | None) -> int:
        """Bytes of payload that hold `length` bits of each tile on average."""
        return self.payload if length is None else min(self.payload, check_int(length, "length", 0) * self.tiles // 8)

    def fine(self, bits: int) -> str:
        """What so many bits of payload hold, in words."""
        return f"{bits / max(self.tiles, 1):.0f} bits a tile of all {len(self.entries)} pictures"

    def cut_to(self, payload: int) -> "ImageStreamHeader":
        """The header of a stream that ends after so many bytes of payload."""
        taken = np.clip(payload - self.starts, 0, self.steps)
        sizes = np.cumsum(taken, axis=1).tolist()
        entries = tuple(replace(entry, sizes=tuple(own)) for entry, own in zip(self.entries, sizes, strict=True))
        ends = np.minimum(self.sizes.sum(axis=0), payload).tolist()
        quality = tuple(round(self.quality_at(end)) for end in ends)
        return replace(self, entries=entries, quality=quality, payload=int(taken.sum()), written=b"")

    def cut_within(self, total: int) -> "ImageStreamHeader":
        """The header of a stream of so many bytes in all, or of none but its header's where they are too few."""

        def room(header: ImageStreamHeader) -> int:
            left = total - header.size
            return max(0, left - 4 * -(-left // (self.block + 4)))

        payload = room(self.cut_to(room(self)))  # the table of a cut stream is smaller, as a rule
        while (cut := self.cut_to(payload)).total > total and payload:
            payload = max(0, payload - (cut.total - total))
        return cut


def lay_out(header: ImageStreamHeader, embedded: bytes, read: Callable[[int, slice], bytes]) -> Iterator[bytes]:
    """A stream in pieces; `read` gives some bytes of a picture."""
    yield header.data
    yield embedded
    starts = np.concatenate([np.zeros((len(header.entries), 1), dtype=np.int64), header.sizes], axis=1)
    yield from header.seal(
        read(number, slice(int(starts[number, k]), int(starts[number, k + 1])))
        for k in range(PASSES)
        for number in range(len(header.entries))
    )


def parse_image_header(data: memoryview) -> ImageStreamHeader:
    """The header that data begins with, proven; an embedded coder is there too, but not looked at."""
    start = bytes(data[: FIXED.size])
    if start[:8] == ITEMS:
        raise InvalidInput("this is a stream of items and not of pictures: give it to decompress, info or StreamReader")
    if start[:8] != MAGIC[: len(start)]:
        raise DamagedFile("this is not a stream of pictures: give what compress_images() or ImageStreamWriter made")
    if len(start) < FIXED.size:
        raise CutHeader(FIXED.size, len(data))
    _, version, size, embedded, payload, coder = FIXED.unpack(start)
    if version != VERSION:
        raise DamagedFile(f"the stream has version {version}, this nestcode reads version {VERSION}: upgrade nestcode")
    if size > MAX_TABLE:
        raise DamagedFile(f"the stream's table claims {size} bytes, at most {MAX_TABLE} can be right: restore a copy")
    end = FIXED.size + size
    if len(data) < end + 4:
        raise CutHeader(end + 4, len(data))
    if zlib.crc32(data[:end]).to_bytes(4, "little") != data[end : end + 4]:
        raise DamagedFile("the stream's header is damaged, its checksum does not match: restore a copy")
    try:
        entries, quality = _read_table(bytes(data[FIXED.size : end]))
    except (ValueError, RecursionError, zlib.error) as error:
        raise DamagedFile(f"the stream's table cannot be right ({error}): restore a copy") from error
    if payload != sum(entry.sizes[-1] for entry in entries):
        raise DamagedFile(f"the stream's table is not one of {payload} bytes of payload: restore a copy")
    given = {"written": bytes(data[: end + 4]), "embedded": embedded, "payload": payload, "coder": coder.hex()}
    header = ImageStreamHeader(entries=entries, quality=quality, **given)
    if len(data) < header.size:
        raise CutHeader(header.size, len(data))
    return header


def _read_table(table: bytes) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    inflate = zlib.decompressobj()
    text = inflate.decompress(table, MAX_TABLE)
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"it does not end after {MAX_TABLE} bytes or less")
    known = json.loads(text)
    if not isinstance(known, list) or len(known) != 2 or not all(isinstance(part, list) for part in known):
        raise ValueError("it is not a list of pictures and one of qualities")
    rows, quality = known
    if len(quality) != PASSES or not all(type(number) is int and abs(number) < 10_000 for number in quality):
        raise ValueError("qualities are one for each pass")
    entries = tuple(_read_entry(row) for row in rows)
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("two pictures have the same name")
    return entries, tuple(quality)


def _read_entry(row: Any) -> Entry:
    if not isinstance(row, list) or len(row) != 3 or not all(isinstance(part, list) for part in row[1:]):
        raise ValueError("a picture is a name, a shape and the bytes of its passes")
    name, shape, steps = row
    if len(steps) != PASSES or not all(type(step) is int and 0 <= step < 1 << 40 for step in steps):
        raise ValueError("the bytes of a picture are one number for each pass")
    if not all(type(side) is int and side < 1 << 31 for side in shape):
        raise ValueError("a shape is made of whole numbers")
    return Entry(check_name(name), check_shape(shape), tuple(np.cumsum(steps, dtype=np.int64).tolist()))


def check_name(name: Any) -> str:
    """A name that is a path inside whatever folder it is put into."""
    path = PurePosixPath(name) if isinstance(name, str) else None
    unsafe = path is None or path.is_absolute() or not path.parts or ".." in path.parts or "\\" in str(path)
    if unsafe or len(str(path)) > MAX_NAME or any(unicodedata.category(one) in ("Cc", "Cs") for one in str(path)):
        raise InvalidInput(
            f"the name of a picture must be a relative path of at most {MAX_NAME} characters that can be printed, "
            f"and without .., got {str(name)[:80]!r}"
        )
    return str(path)
