"""Collections of items as bytes: `compress`, and `decompress` of any prefix."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.coders import Coder
from nestcode.container.blocks import OnDamage, check_on_damage, report_damage
from nestcode.container.decoder import Buffer, as_view
from nestcode.container.layout import BLOCK
from nestcode.errors import InvalidInput
from nestcode.storage import record_bytes
from nestcode.streams.entropy import entropy_encode
from nestcode.streams.format import GROUP, MAX_WIDTH, RATIO, Header, check_length, parse_header
from nestcode.streams.items import as_items, check_coder, check_scale, encode_items, find_coder
from nestcode.streams.payload import check_limit, decode_range, read_payload

BATCH = 1 << 16  # items whose codes are laid out at a time


def compress(
    items: ArrayLike,
    coder: Coder,
    *,
    embed: bool = False,
    entropy: bool = False,
    scale: float = 1,
    length: int | None = None,
) -> bytes:
    """Return a collection as a stream: truncated anywhere after its header it decodes, and each further bit helps.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((500, 4, 8))
    >>> coder = nc.LinearCoder(width=128).fit(X.reshape(500, 32))
    >>> data = compress(X, coder)
    >>> size, cuts = nc.stream_info(data).header_bytes, [0, 2000, 4000, 8000]
    >>> [round(float(np.mean((X - decompress(data[:size + cut], coder)) ** 2)), 3) for cut in cuts]
    [0.993, 0.548, 0.112, 0.008]

    Args:
        items: an array (n, …) of 8- or 16-bit integers or of floats; their shape and type come back.
        coder: fitted on items as rows, (n, features).
        embed: put the coder into the stream, so that receivers need not have it.
        entropy: entropy code the bits, where that makes the stream smaller; it takes longer.
        scale: the divisor of items before they are encoded, such as 255 if the coder was fitted on pixels in [0, 1].
        length: how many bits of each item to keep, by default all.

    """
    width = check_length(length, check_coder(coder).width_)
    array = as_items(items, coder.n_features_in_)
    divisor = check_scale(scale)
    parts = list(encode_items(array, coder, divisor, width))
    packed = np.concatenate(parts) if parts else np.zeros((0, -(-width // 8)), dtype=np.uint8)
    return b"".join(lay_out(packed, coder, array.shape[1:], array.dtype, divisor, width, embed=embed, entropy=entropy))


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
    """Yield a stream of packed codes, (n, bytes), piece by piece."""
    if width > MAX_WIDTH:
        raise InvalidInput(f"a stream keeps at most {MAX_WIDTH} bits of an item, got {width}: give a smaller length")
    record = coder.to_record()
    if embed and record.settings.get("modules"):
        raise InvalidInput("a coder with custom modules cannot be embedded: leave out embed, and send it separately")
    embedded = record_bytes(record) if embed else b""
    coded = entropy_encode(packed, width) if entropy else b""
    coded = coded.ljust(-(-packed.size // RATIO), b"\0")  # readers refuse a payload that stands for more
    entropy = entropy and len(coded) < packed.size  # incompressible codes stay as they are
    errors = [coder.expected_error(length) * scale**2 for length in (*range(0, width, GROUP), width)]
    if not np.isfinite(errors).all():
        raise InvalidInput(
            f"expected squared errors must be finite, got {max(errors)}: rescale the items, or give scale"
        )
    header = Header(
        count=len(packed), shape=shape, dtype=dtype.str, width=width, scale=scale,
        coder=record.fingerprint, kind=record.kind,
        errors=tuple(float(f"{error:.5g}") for error in errors),
        payload=len(coded) if entropy else packed.size, entropy=entropy,
        embedded=len(embedded), embedded_crc=zlib.crc32(embedded), block=block,
    )  # fmt: skip
    yield header.data
    yield embedded
    yield from header.seal([coded] if entropy else _prefix_major(packed))


def _prefix_major(packed: NDArray[np.uint8]) -> Iterator[bytes]:
    """Yield the first 8 bytes of every code, then the next 8 of every code, and so on."""
    for group in range(0, packed.shape[1], GROUP // 8):
        for first in range(0, len(packed), BATCH):
            yield packed[first : first + BATCH, group : group + GROUP // 8].tobytes()


def decompress(
    data: Buffer,
    coder: Coder | None = None,
    *,
    length: int | None = None,
    limit: int | None = None,
    on_damage: OnDamage = "error",
) -> NDArray[Any]:
    """Return the items of a stream, each decoded from its longest prefix; an item without bits is the mean.

    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).integers(0, 256, (100, 10)).astype(np.uint8)
    >>> data = compress(X, nc.LinearCoder(width=80).fit(X), embed=True)
    >>> decompress(data).dtype, bool(np.abs(decompress(data).astype(int) - X).max() < 9)
    (dtype('uint8'), True)

    Args:
        data: a stream of `compress` or `StreamWriter`, whole or truncated.
        coder: the coder that made the stream, unless it is embedded.
        length: use at most this many bits of each item.
        limit: the most bytes of memory for items and coder, by default 4 GiB; a stream that needs more is refused. By
            default codes may take at most 256 times their entropy-coded payload.
        on_damage: "keep" decodes the bytes before the first damaged block, and warns.

    """
    check_on_damage(on_damage)
    view = as_view(data)
    header = parse_header(view)
    length = check_length(length, header.width)
    check_limit(header, limit)
    found = find_coder(header, view, coder)
    payload, error = read_payload(header, view)
    report_damage(error, on_damage)
    return decode_range(header, payload, found, length, 0, header.count)
