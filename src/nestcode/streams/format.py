"""The format of a stream of items: a JSON header, then codes in prefix-major order, in blocks with checksums.

    magic (8) · version (4) · size (4) · JSON · CRC-32 (4) · embedded coder · block · CRC-32 (4) · block · …

`docs/format.md` documents the JSON. No value of a header is used before it is checked.
"""

import json
import math
import re
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nestcode.arrays import shown
from nestcode.container.files import FileView
from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC, Layout, TruncatedHeader
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.fork import lazy_property
from nestcode.storage import parse_json

VERSION = 1
GROUP = 64  # bits of an item that lie side by side
FIXED = 16  # bytes before the JSON
MAX_JSON = 1 << 20  # bytes
MAX_WIDTH = 1 << 20  # bits of an item
MAX_COUNT = 1 << 40  # items
MAX_FEATURES = 1 << 31  # values of an item
RATIO = 256  # bytes of codes for each byte of entropy-coded payload, at most, as streams are written
DTYPES = ("u1", "u2", "i1", "i2", "f2", "f4", "f8")
SCALES = (1e-30, 1e30)


@dataclass(frozen=True, kw_only=True)
class Header(Layout):
    """The header of a stream of items, all of one shape."""

    count: int  # items
    shape: tuple[int, ...]  # of an item
    dtype: str  # of an item's values, as NumPy writes it
    width: int  # bits of an item
    scale: float  # items are divided by it before they are encoded
    coder: str  # fingerprint
    kind: str  # of coder
    errors: tuple[float, ...]  # expected after 0, 64, 128, … and all bits, in the items' own units
    entropy: bool = False  # whether the payload is entropy coded
    embedded_crc: int = 0

    @lazy_property
    def data(self) -> bytes:
        """The bytes of the header, without the embedded coder."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        if len(text) > MAX_JSON:
            raise InvalidInput(f"a header must have at most {MAX_JSON} bytes, got {len(text)}: keep fewer bits")
        start = ITEMS_MAGIC + VERSION.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
        return start + zlib.crc32(start).to_bytes(4, "little")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The type of items' values."""
        return np.dtype(self.dtype)

    @property
    def features(self) -> int:
        """The number of values of an item."""
        return math.prod(self.shape)

    @property
    def code_bytes(self) -> int:
        """Bytes of one packed code."""
        return -(-self.width // 8)

    def summary(self, bits: int) -> str:
        """Describe what the first `bits` bits of the payload hold."""
        runs = self.runs(bits, self.width)
        return " and ".join(f"{length} bits of {end - begin} items" for begin, end, length in runs) or "0 items"

    def error_at(self, length: int) -> float:
        """Return the expected error at a length; between two groups of bits, that of the shorter prefix."""
        return self.errors[-1] if length == self.width else self.errors[length // GROUP]

    def runs(self, bits: int, length: int) -> list[tuple[int, int, int]]:
        """Return runs of items (first, last, length) with the same number of arrived bits, at most `length`.

        >>> known = {"shape": (2,), "dtype": "<f4", "scale": 1.0, "coder": "", "kind": "", "errors": ()}
        >>> header = Header(count=5, width=128, payload=80, **known)
        >>> header.runs(64 * 5 + 2 * 64 + 8, length=128)
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
        runs: list[tuple[int, int, int]] = []
        for end, reached in ends:
            first, kept = runs[-1][1] if runs else 0, min(reached, length)
            if end > first and runs and runs[-1][2] == kept:
                runs[-1] = runs[-1][0], end, kept
            elif end > first:
                runs.append((first, end, kept))
        return runs


def check_length(length: int | None, width: int) -> int:
    """Return how many bits of each item to use, by default all."""
    if length is None:
        return width
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or not 0 <= length <= width:
        raise InvalidInput(f"length must be between 0 and the stream's width {width}, got {shown(length)}")
    return int(length)


def parse_header(data: memoryview | FileView) -> Header:
    """Return the verified header that `data` begins with, after which its embedded coder is complete too."""
    start = bytes(data[:FIXED])
    if start[:8] == IMAGES_MAGIC:
        raise InvalidInput("this is a stream of images: give it to decompress_images or ImageStreamReader")
    if start[:8] != ITEMS_MAGIC[: len(start)]:
        raise DamagedFile("this is not a stream of Nestcode: give a stream of compress or StreamWriter")
    if len(start) < FIXED:
        raise TruncatedHeader(FIXED, len(data))
    version, size = int.from_bytes(start[8:12], "little"), int.from_bytes(start[12:], "little")
    if version != VERSION:
        raise DamagedFile(f"the stream has version {version}, this nestcode reads version {VERSION}: upgrade nestcode")
    if size > MAX_JSON:
        raise DamagedFile(f"the stream's header claims {size} bytes, the maximum is {MAX_JSON}: restore a copy")
    end = FIXED + size
    if len(data) < end + 4:
        raise TruncatedHeader(end + 4, len(data))
    if zlib.crc32(data[:end]).to_bytes(4, "little") != data[end : end + 4]:
        raise DamagedFile("the stream's header is damaged, its checksum does not match: restore a copy")
    header = _parse_json(bytes(data[FIXED:end]))
    if header.data != data[: end + 4]:
        raise DamagedFile("the stream's header is not as nestcode writes it: restore a copy")
    if len(data) < header.size:
        raise TruncatedHeader(header.size, len(data))
    if header.embedded and zlib.crc32(data[end + 4 : header.size]) != header.embedded_crc:
        raise DamagedFile("the coder in the stream is damaged, its checksum does not match: restore a copy")
    return header


def _parse_json(text: bytes) -> Header:
    """Return the header in JSON. A matching checksum proves nothing here: anybody can compute one."""
    try:
        fields = parse_json(text)
        if not isinstance(fields, dict) or set(fields) != set(Header.__dataclass_fields__):
            raise ValueError("its keys are not those of a header")
        fields["shape"], fields["errors"] = _as_tuple(fields["shape"]), _as_tuple(fields["errors"])
        header = Header(**fields)
        _check(header)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"the stream's header is invalid ({error}): restore a copy") from error
    return header


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:40]} should be a list")
    return tuple(value)


def _check(header: Header) -> None:
    """Raise unless every value is one that a stream can have."""
    most = {"count": MAX_COUNT, "width": MAX_WIDTH, "payload": 1 << 62, "embedded": 1 << 40, "embedded_crc": 2**32 - 1}
    for name, limit in most.items():
        _check_range(getattr(header, name), name, 0, limit)
    _check_range(header.block, "block", 16, 1 << 20)
    if not 1 <= len(header.shape) <= 32:
        raise ValueError(f"items have from 1 to 32 dimensions, not {len(header.shape)}")
    for side in header.shape:
        _check_range(side, "shape", 1, MAX_FEATURES)
    _check_range(header.features, "features", 1, MAX_FEATURES)
    if not isinstance(header.dtype, str) or not re.fullmatch(rf"[<>|]({'|'.join(DTYPES)})", header.dtype):
        raise ValueError("dtype is not that of items")
    if header.numpy_dtype.str != header.dtype:
        raise ValueError("dtype is not as NumPy writes it")
    if not isinstance(header.scale, float) or not SCALES[0] <= header.scale <= SCALES[1]:
        raise ValueError(f"scale is not between {SCALES[0]:g} and {SCALES[1]:g}")
    if not isinstance(header.coder, str) or not re.fullmatch("[0-9a-f]{64}", header.coder):
        raise ValueError("coder is not a fingerprint")
    if not isinstance(header.kind, str) or not re.fullmatch("[A-Za-z]{1,40}", header.kind):
        raise ValueError("kind is not the name of a coder")
    if not isinstance(header.entropy, bool):
        raise ValueError("entropy is neither true nor false")
    if len(header.errors) != -(-header.width // GROUP) + 1:
        raise ValueError("errors are not one for each group of bits")
    if not all(isinstance(error, float) and 0 <= error < math.inf for error in header.errors):
        raise ValueError("errors are not finite and nonnegative")
    codes = header.count * header.code_bytes
    # Entropy coding is used only where it makes the payload smaller.
    if not 0 < header.payload < codes if header.entropy else header.payload != codes:
        raise ValueError("payload is not the size of that many codes")


def _check_range(value: Any, name: str, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is not an integer from {least} to {most}")
