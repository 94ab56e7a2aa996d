"""Collections as bytes that can be cut anywhere: compress, decompress, and what a stream says of itself."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import check_int
from nestcode.coders import Coder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import record_bytes
from nestcode.streams.entropy import encode_bits
from nestcode.streams.format import BLOCK, GROUP, MAX_WIDTH, Header, check_length, parse_header
from nestcode.streams.items import as_items, check_coder, encode_items, find_coder, scale_for
from nestcode.streams.payload import Arrival, Blocks, Payload, decode_range, settle

Buffer: TypeAlias = bytes | bytearray | memoryview
LIMIT = 4 << 30  # bytes
PIECE = 1 << 16  # items whose codes are laid out at a time


class Told:
    """What is said of a stream, of items or of pictures; subclasses are dataclasses."""

    header_bytes: int
    coder: str
    embedded: bool
    verified: int
    unverified: int
    damaged: int | None
    trailing: int

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(vars(self), indent=2)

    def _state(self, kind: str, how: str = "") -> list[str]:
        """Lines about the coder and what arrived of the payload."""
        lines = [
            f"coder {kind} {self.coder[:16]}{', embedded' if self.embedded else ''}",
            f"{self.header_bytes} bytes of header; payload{how}: {self.verified} bytes verified, "
            f"{self.unverified} unverified",
        ]
        if self.damaged is not None:
            lines.append(f"block {self.damaged} is damaged; what precedes it is fine")
        if self.trailing:
            lines.append(f"{self.trailing} bytes follow the end")
        return lines


@dataclass(frozen=True)
class Info(Told):
    """What a stream, whole or cut, holds.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    >>> data = compress(X, nc.LinearCoder(width=64).fit(X))
    >>> known = info(data[:5000])
    >>> known.count, known.shape, known.dtype, known.width, known.length, known.verified, known.damaged
    (1000, (8,), 'float32', 64, 0, 4096, None)
    """

    header_bytes: int  # a cut after so many bytes or more can be decoded
    total_bytes: int  # of the whole stream
    count: int  # items
    shape: tuple[int, ...]  # of an item
    dtype: str
    width: int  # bits of an item in the whole stream
    length: int  # bits that arrived of every item
    bits: int  # that arrived of all items together
    expected_error: float  # mean squared, of a number of an item at that length
    coder: str  # its fingerprint
    kind: str  # of coder
    scale: float  # items are divided by it before they are coded
    embedded: bool  # whether the coder is in the stream
    entropy: bool  # whether bits are entropy coded
    verified: int  # bytes of payload that their checksums prove
    unverified: int  # bytes of payload that arrived without their checksum
    damaged: int | None  # the first block that is not as it was written
    trailing: int  # bytes after the end

    def __str__(self) -> str:
        size = " x ".join(map(str, self.shape))
        lines = [
            f"{self.count} items of {size} {self.dtype}, {self.width} bits each",
            f"{self.length} bits of every item arrived, expected error {self.expected_error:.4g}",
            *self._state(self.kind, ", entropy coded" if self.entropy else ""),
        ]
        return "\n".join(lines)


def compress(
    items: ArrayLike,
    coder: Coder,
    *,
    embed: bool = False,
    entropy: bool = False,
    scale: float | None = None,
    length: int | None = None,
) -> bytes:
    """A collection as a stream: cut anywhere after its header, it decodes, and each further bit helps.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((500, 4, 8))
    >>> coder = nc.LinearCoder(width=128).fit(X.reshape(500, 32))
    >>> data = compress(X, coder)
    >>> size, cuts = info(data).header_bytes, [0, 2000, 4000, 8000]
    >>> [round(float(np.mean((X - decompress(data[:size + cut], coder)) ** 2)), 3) for cut in cuts]
    [0.993, 0.548, 0.112, 0.008]

    Args:
        items: an array (n, …) of numbers of 8 or 16 bits or floats; their shape and type come back.
        coder: fitted on items as rows, (n, features).
        embed: put the coder into the stream, so that nobody needs to have it.
        entropy: code bits by how likely they are, where that makes the stream smaller; it takes longer.
        scale: what items are divided by before they are coded; by default 1, or what brings pixels between 0 and 1
            where the coder comes with Nestcode.
        length: how many bits of each item to keep, by default all.

    """
    width = check_coder(coder, length)
    array = as_items(items, coder.n_features_in_)
    fingerprint = coder.fingerprint
    number = scale_for(array.dtype, scale, fingerprint)
    parts = list(encode_items(array, coder, number, width))
    packed = np.concatenate(parts) if parts else np.zeros((0, -(-width // 8)), dtype=np.uint8)
    return b"".join(lay_out(packed, coder, array.shape[1:], array.dtype, number, width, embed=embed, entropy=entropy))


def lay_out(
    packed: NDArray[np.uint8],
    coder: Coder,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    scale: float,
    width: int,
    *,
    embed: bool,
    entropy: bool,
    block: int = BLOCK,
) -> Iterator[bytes]:
    """A stream in pieces, given its codes."""
    if width > MAX_WIDTH:
        raise InvalidInput(f"a stream keeps at most {MAX_WIDTH} bits of an item, got {width}: give a smaller length")
    record = coder.to_record()
    if embed and record.settings.get("modules"):
        raise InvalidInput(
            "a coder with modules of its own cannot be embedded: leave out embed, and send it separately"
        )
    embedded = record_bytes(record) if embed else b""
    coded = encode_bits(packed, width) if entropy else b""
    entropy = entropy and len(coded) < packed.size  # bits that are all alike stay as they are
    lengths = [*range(0, width, GROUP), width]
    header = Header(
        count=len(packed), shape=shape, dtype=dtype.str, width=width, scale=scale,
        coder=record.fingerprint, kind=record.kind,
        errors=tuple(float(f"{coder.expected_error(k) * scale**2:.5g}") for k in lengths),
        payload=len(coded) if entropy else packed.size, entropy=entropy,
        embedded=len(embedded), embedded_crc=zlib.crc32(embedded), block=block,
    )  # fmt: skip
    yield header.data
    yield embedded
    yield from header.seal([coded] if entropy else _in_groups(packed))


def _in_groups(packed: NDArray[np.uint8]) -> Iterator[bytes]:
    """The first 8 bytes of every code, then the next 8, and so on."""
    for group in range(0, packed.shape[1], GROUP // 8):
        for first in range(0, len(packed), PIECE):
            yield packed[first : first + PIECE, group : group + GROUP // 8].tobytes()


def decompress(
    data: Buffer,
    coder: Coder | None = None,
    *,
    length: int | None = None,
    limit: int = LIMIT,
    on_damage: Literal["error", "keep"] = "error",
) -> NDArray[Any]:
    """The items of a stream, whole or cut, each at the best length that arrived; without bits, the mean.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).integers(0, 256, (100, 10)).astype(np.uint8)
    >>> data = compress(X, nc.LinearCoder(width=80).fit(X), embed=True)
    >>> decompress(data).dtype, bool(np.abs(decompress(data).astype(int) - X).max() < 9)
    (dtype('uint8'), True)

    Args:
        data: what `compress` or `StreamWriter` made, or the beginning of it.
        coder: the one that made it, unless it is embedded or comes with Nestcode.
        length: use at most so many bits of each item.
        limit: refuse to make more bytes than this out of it.
        on_damage: "keep" decodes what precedes a damaged block, and warns.

    """
    check_choice(on_damage)
    view = as_view(data)
    header = parse_header(view)
    length = check_length(length, header.width)
    check_limit(header, limit)
    found = find_coder(header, embedded_bytes(header, view), coder)
    payload, error = take_all(header, view)
    settle(error, on_damage)
    return decode_range(header, payload, found, length, 0, header.count)


def info(data: Buffer, coder: Coder | None = None, *, limit: int = LIMIT) -> Info:
    """What a stream holds and how much of it arrived; no coder is needed.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> data = compress(X, nc.LinearCoder(width=32).fit(X))
    >>> print(str(info(data)).splitlines()[1])
    32 bits of every item arrived, expected error 0.005486

    Args:
        data: the stream, whole or cut.
        coder: the one that made it, which knows the expected error at every length and not only at multiples of 64.
        limit: refuse streams whose codes or items take more bytes than this.

    """
    view = as_view(data)
    header = parse_header(view)
    if header.entropy:
        check_limit(header, limit)
    payload, _ = take_all(header, view)
    return describe(header, payload, find_coder(header, b"", coder) if coder is not None else None, len(view))


def describe(header: Header, payload: Payload, coder: Coder | None, size: int) -> Info:
    """What is known of a payload out of so many bytes."""
    segments = header.segments(payload.bits, header.width)
    length = segments[-1][2] if segments else header.width
    error = header.error_at(length) if coder is None else coder.expected_error(length) * header.scale**2
    return Info(
        header_bytes=header.size, total_bytes=header.total, count=header.count, shape=header.shape,
        dtype=header.numpy_dtype.name, width=header.width, length=length,
        bits=sum((end - begin) * reached for begin, end, reached in segments), expected_error=error,
        coder=header.coder, kind=header.kind, scale=header.scale, embedded=header.embedded > 0, entropy=header.entropy,
        verified=payload.verified, unverified=payload.unverified, damaged=payload.damaged,
        trailing=max(size - header.total, 0),
    )  # fmt: skip


def take_all(header: Header, view: memoryview) -> tuple[Payload, DamagedFile | None]:
    """All of the payload that arrived, and what is wrong with it."""
    if header.entropy:
        arrival = Arrival(header)
        try:
            arrival.feed(view[header.size :])
        except DamagedFile as error:
            return arrival, error
        return arrival, None
    blocks = Blocks(header, view)
    blocks.verify()
    return blocks, blocks.error()


def check_choice(on_damage: str) -> None:
    """Raise unless it is known what to do about damage."""
    if on_damage not in ("error", "keep"):
        raise InvalidInput(f'on_damage must be "error" or "keep", got {on_damage!r}')


def as_view(data: Buffer) -> memoryview:
    """Data as bytes that are not copied."""
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidInput(
            f"a stream must come as bytes, got {type(data).__name__}: open files by StreamReader"
        ) from None


def embedded_bytes(header: Header, view: memoryview) -> bytes:
    """The coder in a stream, or nothing."""
    return bytes(view[header.size - header.embedded : header.size])


def check_limit(header: Header, limit: int) -> None:
    """Refuse what would take too much memory."""
    most = header.count * (header.features * header.numpy_dtype.itemsize + header.code_bytes + 8)  # and their lengths
    if most > check_int(limit, "limit", least=0):
        raise InvalidInput(
            f"the stream's {header.count} items take {most} bytes, more than the limit of {limit}: give a larger "
            "limit, or read them in pieces by StreamReader"
        )
