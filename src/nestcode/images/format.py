"""The format of a stream of images: bitstreams interleaved pass by pass, so that truncation affects all equally.

    fixed header (60) · table · CRC-32 (4) · embedded codec · block · CRC-32 (4) · block · …

The table, deflated JSON, has the names and shapes of the images and the bytes of each image in each coding pass; since
version 2 also their bit depths and ICC profiles. Since version 3 bitstreams may begin with the bit planes of their
subbands and with weights; since version 4 codecs may have additive context models. Lossless streams have version 5 and
one pass more: the residuals of all images. `docs/format.md` documents it. No value is used before it is checked.
"""

import json
import math
import struct
import unicodedata
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import is_number, shown
from nestcode.container.files import FileView
from nestcode.container.layout import BLOCK as BLOCK_BYTES
from nestcode.container.layout import CRC, IMAGES_MAGIC, ITEMS_MAGIC, Layout, TruncatedHeader
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.fork import lazy_property
from nestcode.images.bitplanes import PASSES
from nestcode.images.codec import FLAGS
from nestcode.images.image import check_shape
from nestcode.images.lapped_dct import BLOCK

VERSION, LOSSY_VERSION = 5, 4  # of streams with residuals, and without
FIXED = struct.Struct("<8sIIIQ32s")  # magic, version, bytes of table, of embedded codec and of payload, fingerprint
ROTATED = 0x80  # the only flag of a bitstream up to version 2
MAX_TABLE = 1 << 24  # bytes, inflated: some 80,000 images
MAX_NAME = 1000  # characters
BIDIRECTIONAL = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # controls
MAX_PROFILE = 1 << 21  # bytes
DEPTHS = {8: np.uint8, 16: np.uint16}  # bits per channel
SHOWN_BPP = 1.0  # bits of payload per pixel of an image that is shown at its own width
Sizes = NDArray[np.int64]  # (images, passes) bytes


@dataclass(frozen=True)
class Entry:
    """One image in the table."""

    name: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]  # bytes up to the end of each pass
    depth: int = 8  # bits per channel
    profile: bytes = b""  # ICC profile

    @property
    def pixels(self) -> int:
        """The number of its pixels."""
        return self.shape[0] * self.shape[1]

    @property
    def lossy(self) -> int:
        """The bytes of its bitstream up to the residual."""
        return self.sizes[PASSES - 1]

    @property
    def residual(self) -> int:
        """The bytes of its residual."""
        return self.sizes[-1] - self.lossy

    @property
    def nbytes(self) -> int:
        """The bytes of its decoded pixels."""
        return math.prod(self.shape) * self.depth // 8

    @property
    def coefficients(self) -> int:
        """The number of its coefficients, of all channels, in whole transform blocks."""
        return -(-self.shape[0] // BLOCK) * -(-self.shape[1] // BLOCK) * BLOCK**2 * (*self.shape, 1)[2]


@dataclass(frozen=True, kw_only=True)
class ImageStreamHeader(Layout):
    """The header of a stream of images."""

    entries: tuple[Entry, ...]
    quality: tuple[int, ...]  # expected PSNR of all images after each pass, in tenths of a decibel
    coder: str  # fingerprint of the codec
    lossless: bool = False  # whether the last pass is one more, of the residuals
    written: bytes = b""  # the header as it was read

    @lazy_property
    def data(self) -> bytes:
        """The bytes of the header, without the embedded codec."""
        if self.written:
            return self.written
        profiles = sorted({entry.profile for entry in self.entries if entry.profile})
        rows = [
            [
                entry.name, entry.shape, np.diff(entry.sizes, prepend=0).tolist(), entry.depth,
                profiles.index(entry.profile) if entry.profile else None,
            ]
            for entry in self.entries
        ]  # fmt: skip
        table = [rows, self.quality, [b64encode(profile).decode() for profile in profiles]]
        text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > MAX_TABLE:
            raise InvalidInput(f"a table must have at most {MAX_TABLE} bytes, got {len(text)}: make several streams")
        packed = zlib.compress(text, 9)
        start = FIXED.pack(
            IMAGES_MAGIC, VERSION if self.lossless else LOSSY_VERSION, len(packed), self.embedded, self.payload,
            bytes.fromhex(self.coder),
        ) + packed  # fmt: skip
        return start + zlib.crc32(start).to_bytes(4, "little")

    @lazy_property
    def flags(self) -> int:
        """The flags that the first byte of an image may have, by the version of the stream."""
        return FLAGS if not self.written or FIXED.unpack(self.written[: FIXED.size])[1] >= 3 else ROTATED

    @property
    def passes(self) -> int:
        """The number of passes."""
        return PASSES + self.lossless

    @lazy_property
    def sizes(self) -> Sizes:
        """Bytes of each image up to the end of each pass."""
        return np.array([entry.sizes for entry in self.entries], dtype=np.int64).reshape(-1, self.passes)

    @lazy_property
    def pass_sizes(self) -> Sizes:
        """Bytes of each image in each pass."""
        return np.diff(self.sizes, axis=1, prepend=0)

    @lazy_property
    def pass_starts(self) -> Sizes:
        """Where in the payload each pass of each image begins."""
        order = self.pass_sizes.T.ravel()
        return (np.cumsum(order) - order).reshape(self.passes, -1).T

    @lazy_property
    def pixels(self) -> int:
        """The number of pixels of all images."""
        return sum(entry.pixels for entry in self.entries)

    def slices(self, image: int, arrived: int) -> Iterator[slice]:
        """Yield where an image's bytes lie in the first `arrived` bytes of payload."""
        for begin, size in zip(self.pass_starts[image].tolist(), self.pass_sizes[image].tolist(), strict=True):
            if size and begin < arrived:
                yield slice(begin, min(begin + size, arrived))

    def error_at(self, arrived: int) -> float:
        """Return the expected squared error of a pixel value in [0, 1] after `arrived` bytes of payload."""
        errors = 10 ** (np.array(self.quality) / -100)
        return float(np.interp(arrived, self.sizes.sum(axis=0), errors))

    def bpp(self, bits: int) -> float:
        """Return the rate, in bits per pixel, of a payload of this number of bits."""
        return bits / max(self.pixels, 1)

    def bytes_at(self, bpp: float | None) -> int:
        """Return how many bytes of payload a rate allows, by default all."""
        return self.payload if bpp is None else min(self.payload, int(check_bpp(bpp) * self.pixels / 8))

    def bytes_for_width(self, width: float) -> int:
        """Return the bytes of the stream that images need at a display width of `width` pixels, or at their own width.

        Half the width takes 2^1.5 times fewer bits, not 4 times: some bits describe detail that scaling down removes.
        """
        shares = (min(1.0, width / entry.shape[1]) for entry in self.entries)
        bits = SHOWN_BPP * sum(
            entry.pixels * share * math.sqrt(share) for entry, share in zip(self.entries, shares, strict=True)
        )
        wanted = min(self.payload, math.ceil(bits / 8))
        return self.total if wanted == self.payload else self.size + wanted + CRC * (wanted // BLOCK_BYTES)

    def summary(self, bits: int) -> str:
        """Describe what the first `bits` bits of the payload hold."""
        return f"{self.bpp(bits):.3g} bpp of all {len(self.entries)} images"

    def truncate(self, payload: int) -> "ImageStreamHeader":
        """Return the header of the stream truncated after this number of bytes of payload."""
        kept = np.clip(payload - self.pass_starts, 0, self.pass_sizes)
        sizes = np.cumsum(kept, axis=1).tolist()
        entries = tuple(replace(entry, sizes=tuple(own)) for entry, own in zip(self.entries, sizes, strict=True))
        ends = np.minimum(self.sizes.sum(axis=0), payload).tolist()
        quality = tuple(round(-100 * math.log10(self.error_at(end))) for end in ends)
        return replace(self, entries=entries, quality=quality, payload=int(kept.sum()), written=b"")

    def truncate_to_total(self, total: int) -> "ImageStreamHeader":
        """Return the header of the longest stream of at most `total` bytes, or of one without payload."""
        sizes = range(self.payload + 1)
        fitting = bisect_right(sizes, total, key=lambda payload: self.truncate(payload).total)
        return self.truncate(max(0, fitting - 1))


def check_bpp(bpp: float) -> float:
    """Return a rate in bits per pixel, or raise an error with the reason."""
    if not is_number(bpp) or bpp < 0:
        raise InvalidInput(
            f"bpp must be a number of bits per pixel of at least 0, got {shown(bpp)}: 0.5 is a good choice"
        )
    return float(bpp)


def lay_out(header: ImageStreamHeader, embedded: bytes, read: Callable[[int, slice], bytes]) -> Iterator[bytes]:
    """Yield a stream piece by piece; `read` returns a slice of an image's bitstream."""
    yield header.data
    yield embedded
    starts = np.concatenate([np.zeros((len(header.entries), 1), dtype=np.int64), header.sizes], axis=1)
    yield from header.seal(
        read(image, slice(int(starts[image, k]), int(starts[image, k + 1])))
        for k in range(header.passes)
        for image in range(len(header.entries))
    )


def parse_image_header(data: memoryview | FileView) -> ImageStreamHeader:
    """Return the verified header that `data` begins with, after which its embedded codec is complete too."""
    start = bytes(data[: FIXED.size])
    if start[:8] == ITEMS_MAGIC:
        raise InvalidInput("this is a stream of items and not of images: give it to decompress or StreamReader")
    if start[:8] != IMAGES_MAGIC[: len(start)]:
        raise DamagedFile("this is not a stream of images: give a stream of compress_images or ImageStreamWriter")
    if len(start) < FIXED.size:
        raise TruncatedHeader(FIXED.size, len(data))
    _, version, size, embedded, payload, fingerprint = FIXED.unpack(start)
    if not 1 <= version <= VERSION:
        raise DamagedFile(
            f"the stream has version {version}, this nestcode reads versions 1 to {VERSION}: upgrade nestcode"
        )
    if size > MAX_TABLE:
        raise DamagedFile(f"the stream's table claims {size} bytes, the maximum is {MAX_TABLE}: restore a copy")
    end = FIXED.size + size
    if len(data) < end + 4:
        raise TruncatedHeader(end + 4, len(data))
    if zlib.crc32(data[:end]).to_bytes(4, "little") != data[end : end + 4]:
        raise DamagedFile("the stream's header is damaged, its checksum does not match: restore a copy")
    try:
        entries, quality = _parse_table(bytes(data[FIXED.size : end]), version)
    except (ValueError, RecursionError, zlib.error) as error:
        raise DamagedFile(f"the stream's table is invalid ({error}): restore a copy") from error
    if payload != sum(entry.sizes[-1] for entry in entries):
        raise DamagedFile(f"the stream's table does not sum to {payload} bytes of payload: restore a copy")
    header = ImageStreamHeader(
        entries=entries, quality=quality, coder=fingerprint.hex(), payload=payload, embedded=embedded,
        lossless=version > LOSSY_VERSION, written=bytes(data[: end + 4]),
    )  # fmt: skip
    if len(data) < header.size:
        raise TruncatedHeader(header.size, len(data))
    return header


def _parse_table(table: bytes, version: int) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    inflate = zlib.decompressobj()
    text = inflate.decompress(table, MAX_TABLE)
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"it does not end after {MAX_TABLE} bytes or less")
    parsed = json.loads(text)
    parts = 2 if version == 1 else 3
    if not isinstance(parsed, list) or len(parsed) != parts or not all(isinstance(part, list) for part in parsed):
        raise ValueError("it is not a list of images and a list of qualities, and since version 2 a list of profiles")
    rows, quality, encoded = parsed if version > 1 else (*parsed, [])
    if len(quality) != _passes(version) or not all(type(value) is int and abs(value) < 10_000 for value in quality):
        raise ValueError("qualities are not one for each pass")
    profiles = [_parse_profile(profile) for profile in encoded]
    entries = tuple(_parse_entry(row, profiles, version) for row in rows)
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("two images have the same name")
    return entries, tuple(quality)


def _parse_entry(row: Any, profiles: list[bytes], version: int) -> Entry:
    parts = 3 if version == 1 else 5
    if not isinstance(row, list) or len(row) != parts or not all(isinstance(part, list) for part in row[1:3]):
        raise ValueError(
            "an image is a name, a shape and the sizes of its passes, and since version 2 a depth and a profile"
        )
    name, shape, sizes, depth, profile = row if version > 1 else (*row, 8, None)
    if len(sizes) != _passes(version) or not all(type(size) is int and 0 <= size < 1 << 40 for size in sizes):
        raise ValueError("the sizes of an image are not one for each pass")
    if not all(type(side) is int and side < 1 << 31 for side in shape):
        raise ValueError("a shape is not made of integers")
    if type(depth) is not int or depth not in DEPTHS:
        raise ValueError("a depth is neither 8 nor 16")
    if profile is not None and (type(profile) is not int or not 0 <= profile < len(profiles)):
        raise ValueError("an image has a profile that is not in the list")
    return Entry(
        check_name(name), check_shape(shape), tuple(np.cumsum(sizes, dtype=np.int64).tolist()), depth,
        b"" if profile is None else profiles[profile],
    )  # fmt: skip


def _passes(version: int) -> int:
    return PASSES + (version > LOSSY_VERSION)


def _parse_profile(text: Any) -> bytes:
    profile = b64decode(text, validate=True) if isinstance(text, str) else b""
    if not 0 < len(profile) <= MAX_PROFILE:
        raise ValueError(f"a profile is not 1 to {MAX_PROFILE} bytes in base64")
    return profile


def check_name(name: Any) -> str:
    """Return an image's name as a path that stays inside any folder it is joined to, or raise."""
    path = PurePosixPath(name) if isinstance(name, str) else None
    unsafe = path is None or path.is_absolute() or not path.parts or ".." in path.parts or "\\" in str(path)
    if unsafe or len(str(path)) > MAX_NAME or any(map(_is_control, str(path))):
        raise InvalidInput(
            f"an image's name must be a relative path of at most {MAX_NAME} printable characters without .., "
            f"got {str(name)[:80]!r}: rename it"
        )
    return str(path)


def _is_control(letter: str) -> bool:
    """Return whether a character shows a name as another: a control, of the direction of text too, or no character."""
    return unicodedata.category(letter) in ("Cc", "Cs") or unicodedata.bidirectional(letter) in BIDIRECTIONAL


def check_profile(profile: Any) -> bytes:
    """Return an ICC profile, or nothing, as bytes, or raise if it cannot be stored."""
    if not isinstance(profile, bytes) or len(profile) > MAX_PROFILE:
        size = f"{len(profile)} bytes" if isinstance(profile, bytes) else f"a {type(profile).__name__}"
        raise InvalidInput(f"an ICC profile must be at most {MAX_PROFILE} bytes, got {size}: leave it out")
    return profile
