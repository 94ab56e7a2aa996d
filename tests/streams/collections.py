"""Small coders and collections that the tests of streams share."""

import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import LinearCoder
from nestcode.coders import Coder
from nestcode.streams import ItemStreamInfo, StreamDecoder
from nestcode.streams import stream_info as any_stream_info
from nestcode.streams.format import Header
from nestcode.streams.items import encode_items
from nestcode.streams.stream import lay_out

FEATURES = 24


@cache
def some_coder(width: int = 150) -> LinearCoder:
    return LinearCoder(width=width).fit(some_items(300, seed=1))


def some_items(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Variances decay so fast that every length matters."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, FEATURES)) * 0.8 ** np.arange(FEATURES) + 5).astype(np.float32)


def few_items(count: int) -> NDArray[np.float32]:
    """Seven items repeated in random order: entropy coding pays."""
    return some_items(7)[np.random.default_rng(2).integers(0, 7, count)]


def stream(
    items: NDArray[Any], *, width: int = 150, block: int = 64, entropy: bool = False, embed: bool = False
) -> bytes:
    """Return what `compress` makes, with many small blocks."""
    coder = some_coder()
    packed = np.concatenate([np.zeros((0, -(-width // 8)), np.uint8), *encode_items(items, coder, 1.0, width)])
    shape, dtype = items.shape[1:], items.dtype
    return b"".join(lay_out(packed, coder, shape, dtype, 1.0, width, embed=embed, entropy=entropy, block=block))


def stream_info(data: bytes | bytearray, coder: Coder | None = None) -> ItemStreamInfo:
    known = any_stream_info(data, coder)
    assert isinstance(known, ItemStreamInfo)
    return known


def decoded_info(data: bytes | bytearray) -> ItemStreamInfo:
    """Return what a stream holds by decoding all of it that arrived."""
    decoder = StreamDecoder(some_coder())
    decoder.feed(data)
    assert decoder.info is not None
    return decoder.info


def rare_codes(count: int, width: int) -> NDArray[np.uint8]:
    """Return packed codes whose bits are mostly 0."""
    return np.packbits(np.random.default_rng(0).random((count, width)) < 0.1, axis=1)


def skewed(count: int, *, width: int = 150, block: int = 64) -> bytes:
    """Return an entropy coded stream of codes that are mostly 0, whatever they decode to."""
    coder, dtype = some_coder(), np.dtype(np.float32)
    made = lay_out(
        rare_codes(count, width), coder, (FEATURES,), dtype, 1.0, width, embed=False, entropy=True, block=block
    )
    return b"".join(made)


def with_header(header: Header, data: bytes, **changes: Any) -> bytes:
    """Return the stream with other header values and a matching checksum, as an attacker would make it."""
    changed = Header(**{**{name: getattr(header, name) for name in Header.__dataclass_fields__}, **changes})
    return changed.data + data[len(header.data) :]


def with_json(text: bytes, rest: bytes = b"") -> bytes:
    """Return a stream that begins with any JSON and a matching checksum."""
    start = b"\x89NEST\r\n\x1a" + (1).to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
    return start + zlib.crc32(start).to_bytes(4, "little") + rest
