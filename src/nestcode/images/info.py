"""A description of a stream of images and of the part that arrived."""

import math
from dataclasses import dataclass
from typing import Any

from nestcode.container.blocks import StoredBlocks
from nestcode.container.decoder import Buffer, as_view
from nestcode.container.files import FileView
from nestcode.container.info import StreamInfo
from nestcode.images.format import ImageStreamHeader, parse_image_header
from nestcode.images.stream import find_codec


@dataclass(frozen=True, kw_only=True)
class ImageStreamInfo(StreamInfo):
    """The contents of a stream of images, whole or truncated.

    >>> import nestcode as nc
    >>> data = nc.compress_images(list(nc.data.sample_images().values()), bpp=0.1)
    >>> known = nc.stream_info(data[:4000])
    >>> known.count, round(known.full_bpp, 2), round(known.bpp, 3), known.verified
    (2, 0.1, 0.055, 0)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]  # bits per channel
    profiles: tuple[int, ...]  # bytes of ICC profiles, 0 for none
    full_bpp: float  # bits per pixel of the whole stream's payload
    bpp: float  # bits per pixel that arrived
    lossless: bool  # whether the whole stream has the images bit for bit

    def __str__(self) -> str:
        shown = [
            f"{name} {' x '.join(map(str, (width, height, *channels)))}"
            f"{' of 16 bits' * (depth == 16)}{' with ICC profile' * (profile > 0)}"
            for name, (height, width, *channels), depth, profile in zip(
                self.names, self.shapes, self.depths, self.profiles, strict=True
            )
        ]
        lines = [
            f"{self.count} image{'s' * (self.count != 1)}{': ' if shown else ''}{', '.join(shown[:3])}"
            f"{', …' if self.count > 3 else ''}",
            f"{self.bpp:.3g} of {self.full_bpp:.3g} bpp{' of a lossless stream' * self.lossless} arrived, "
            f"{self._quality()}",
            *self.payload_lines("ImageCodec"),
        ]
        return "\n".join(lines)

    def _quality(self) -> str:
        if self.expected_error == 0:
            return "the images bit for bit"
        return f"expected PSNR {-10 * math.log10(self.expected_error):.1f} dB"


def image_stream_info(data: Buffer | FileView, codec: Any = None) -> ImageStreamInfo:
    """Return the contents of a stream of images; `nestcode.stream_info` accepts both kinds of streams.

    >>> import nestcode as nc
    >>> image = nc.data.sample_images()["china"][:64, :64]
    >>> data = nc.compress_images([image], names=["china.png"])
    >>> known = image_stream_info(data[:-100])
    >>> known.names, known.shapes, known.total_bytes == len(data), known.damaged
    (('china.png',), ((64, 64, 3),), True, None)

    Args:
        data: the stream, whole or truncated.
        codec: the codec that made the stream, to check it.

    """
    view = data if isinstance(data, FileView) else as_view(data)
    header = parse_image_header(view)
    if codec is not None:
        find_codec(header, view, codec)
    blocks = StoredBlocks(header, view)
    blocks.verify()
    return describe(header, blocks)


def describe(header: ImageStreamHeader, blocks: StoredBlocks) -> ImageStreamInfo:
    """Describe a stream of images whose blocks are verified."""
    whole = header.lossless and blocks.bits == 8 * header.payload
    return ImageStreamInfo(
        header_bytes=header.size, total_bytes=header.total, count=len(header.entries),
        names=tuple(entry.name for entry in header.entries), shapes=tuple(entry.shape for entry in header.entries),
        depths=tuple(entry.depth for entry in header.entries),
        profiles=tuple(len(entry.profile) for entry in header.entries),
        full_bpp=header.bpp(8 * header.payload), bpp=header.bpp(blocks.bits),
        lossless=header.lossless, expected_error=0.0 if whole else header.error_at(blocks.bits // 8),
        coder=header.coder, embedded=header.embedded > 0,
        verified=blocks.verified, unverified=blocks.unverified, damaged=blocks.damaged, trailing=blocks.trailing,
    )  # fmt: skip
