"""A description of a stream of either kind, and of the part that arrived."""

from dataclasses import dataclass

from nestcode.coders import Coder
from nestcode.container.blocks import StoredBlocks
from nestcode.container.decoder import Buffer, as_view
from nestcode.container.files import FileView
from nestcode.container.info import StreamInfo
from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC
from nestcode.images import ImageCodec, ImageStreamInfo
from nestcode.images.info import image_stream_info
from nestcode.streams.format import Header, parse_header
from nestcode.streams.items import find_coder
from nestcode.streams.payload import CountedBits, Payload


@dataclass(frozen=True, kw_only=True)
class ItemStreamInfo(StreamInfo):
    """The contents of a stream of items, whole or truncated.

    >>> import numpy as np
    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    >>> data = nc.compress(X, nc.LinearCoder(width=64).fit(X))
    >>> known = nc.stream_info(data[:5000])
    >>> known.count, known.shape, known.dtype, known.width, known.length, known.verified, known.damaged
    (1000, (8,), 'float32', 64, 0, 4096, None)
    """

    shape: tuple[int, ...]  # of an item
    dtype: str
    width: int  # bits of an item in the whole stream
    length: int  # bits that arrived of every item; estimated for entropy-coded streams that nothing is decoded of
    bits: int  # that arrived of all items together, likewise
    kind: str  # of coder
    scale: float  # items are divided by it before they are encoded
    entropy: bool  # whether codes are entropy coded

    def __str__(self) -> str:
        size = " x ".join(map(str, self.shape))
        lines = [
            f"{self.count} items of {size} {self.dtype}, {self.width} bits each",
            f"{self.bits / max(self.count, 1):.4g} of {self.width} bits per item arrived, expected MSE "
            f"{self.expected_error:.4g}",
            *self.payload_lines(self.kind, ", entropy coded" if self.entropy else ""),
        ]
        return "\n".join(lines)


def stream_info(data: Buffer | FileView, coder: Coder | ImageCodec | None = None) -> ItemStreamInfo | ImageStreamInfo:
    """Return the contents of a stream of items or of images, and how much of it arrived, without its coder.

    >>> import numpy as np
    >>> import nestcode as nc
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> print(str(stream_info(nc.compress(X, nc.LinearCoder(width=32).fit(X)))).splitlines()[1])
    32 of 32 bits per item arrived, expected MSE 0.005486
    >>> data = nc.compress_images([np.zeros((64, 48), dtype=np.uint8)], names=["black.png"])
    >>> stream_info(data).names, stream_info(data).shapes
    (('black.png',), ((64, 48),))

    It verifies checksums and decodes nothing. For a truncated entropy-coded stream it estimates `length` and `bits`
    from the share of the payload that arrived; `StreamReader.info` has the exact values.

    Args:
        data: the stream, whole or truncated.
        coder: the coder that made the stream, to report the expected error at every length, not only at multiples of 64
            bits.

    """
    view = data if isinstance(data, FileView) else as_view(data)
    start = bytes(view[:8])
    if IMAGES_MAGIC.startswith(start) and not ITEMS_MAGIC.startswith(start):
        return image_stream_info(view, coder)
    header = parse_header(view)
    blocks = StoredBlocks(header, view)
    blocks.verify()
    payload = CountedBits(header, blocks) if header.entropy else blocks
    return describe(header, payload, None if coder is None else find_coder(header, view, coder), len(view))


def describe(header: Header, payload: Payload | CountedBits, coder: Coder | None, size: int) -> ItemStreamInfo:
    """Describe a stream of items after `size` bytes have arrived."""
    runs = header.runs(payload.bits, header.width)
    # A group of bits arrives item after item: the items that it has reached have a smaller error than the others.
    shares = [((end - begin) / header.count, reached) for begin, end, reached in runs] or [(1.0, header.width)]
    error = sum(share * _expected_error(header, coder, reached) for share, reached in shares)
    return ItemStreamInfo(
        header_bytes=header.size, total_bytes=header.total, count=header.count, shape=header.shape,
        dtype=header.numpy_dtype.name, width=header.width, length=shares[-1][1],
        bits=sum((end - begin) * reached for begin, end, reached in runs), expected_error=error,
        coder=header.coder, kind=header.kind, scale=header.scale, embedded=header.embedded > 0, entropy=header.entropy,
        verified=payload.verified, unverified=payload.unverified, damaged=payload.damaged,
        trailing=max(size - header.total, 0),
    )  # fmt: skip


def _expected_error(header: Header, coder: Coder | None, length: int) -> float:
    return header.error_at(length) if coder is None else coder.expected_error(length) * header.scale**2
