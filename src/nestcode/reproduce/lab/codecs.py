"""Image codecs of Pillow: encode an image at a quality, and count the bytes with and without headers.

The payload, all but headers, is the scans of JPEG, the frame of WebP after its first 10 bytes, the media data of AVIF
and the tile data of JPEG 2000. JPEG files have Huffman tables optimized for their image, which makes them smallest.
Without headers they have the standard tables: optimized tables that are not counted would hide information.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]  # (height, width) or (height, width, channels)

JPEG_QUALITIES = (*range(1, 96), 100)  # from 96 to 99 files only grow
JPEG2000_RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6, 8, 12)


@dataclass(frozen=True)
class Codec:
    """An image format with settings.

    >>> blob, decoded = CODECS["JPEG"](np.zeros((16, 16, 3), dtype=np.uint8), 50)
    >>> decoded.shape, len(blob) > CODECS["JPEG"].payload(blob)
    ((16, 16, 3), True)
    """

    name: str
    format: str  # Pillow's name
    qualities: tuple[float, ...]  # from worst to best
    settings: Callable[[Pixels, float], dict[str, Any]]
    payload: Callable[[bytes], int]  # bytes of a file without headers
    bare: dict[str, Any] = field(default_factory=dict)  # settings that keep information on the image out of headers

    def encode(self, image: Pixels, quality: float, **others: Any) -> bytes:
        """Return the image as a file."""
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, self.format, **self.settings(image, quality) | others)
        return buffer.getvalue()

    def bare_bytes(self, image: Pixels, quality: float, blob: bytes) -> int:
        """Return the size of an image's file without headers."""
        return self.payload(self.encode(image, quality, **self.bare) if self.bare else blob)

    def __call__(self, image: Pixels, quality: float) -> tuple[bytes, Pixels]:
        """Return the image as a file, and the decoded file."""
        blob = self.encode(image, quality)
        return blob, decode(blob, gray=image.ndim == 2)


def decode(blob: bytes, *, gray: bool = False) -> Pixels:
    """Return the image of a file."""
    with Image.open(io.BytesIO(blob)) as image:
        return np.asarray(image.convert("L" if gray else "RGB"))


def jpeg_parts(blob: bytes) -> tuple[int, int]:
    """Return the bytes of a JPEG file that are headers and those that are scans; they add up to the file."""
    place, headers, scans = 2, 2, 0  # after the marker of the start
    while blob[place : place + 2] != b"\xff\xd9":
        segment = 2 + int.from_bytes(blob[place + 2 : place + 4], "big")
        is_scan = blob[place + 1] == 0xDA
        place, headers = place + segment, headers + segment
        if is_scan:
            end = _end_of_scan(blob, place)
            place, scans = end, scans + end - place
    return headers + 2, scans


def _end_of_scan(blob: bytes, place: int) -> int:
    """Return the position of the next marker; 0xFF 0x00 is a data byte, and restart markers belong to the scan."""
    while True:
        place = blob.index(b"\xff", place)
        if blob[place + 1] != 0 and not 0xD0 <= blob[place + 1] <= 0xD7:
            return place
        place += 2


def webp_payload(blob: bytes) -> int:
    """Return the size of a WebP file's lossy frame, without its tag, start code and dimensions."""
    place = 12
    while blob[place : place + 4] != b"VP8 ":
        size = int.from_bytes(blob[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    return int.from_bytes(blob[place + 4 : place + 8], "little") - 10


def avif_payload(blob: bytes) -> int:
    """Return the size of an AVIF file's media data."""
    place = 0
    while blob[place + 4 : place + 8] != b"mdat":
        place += int.from_bytes(blob[place : place + 4], "big")
    size = int.from_bytes(blob[place : place + 4], "big")
    return (size or len(blob) - place) - 8


def jpeg2000_payload(blob: bytes) -> int:
    """Return the size of the data of all tile-parts of a JPEG 2000 codestream."""
    place, payload, end = 2, 0, 0
    while blob[place : place + 2] != b"\xff\xd9":
        if blob[place : place + 2] == b"\xff\x90":  # SOT: a tile-part, and where it ends
            end = place + int.from_bytes(blob[place + 6 : place + 10], "big")
        if blob[place : place + 2] == b"\xff\x93":  # SOD: its data
            payload += end - place - 2
            place = end
        else:
            place += 2 + int.from_bytes(blob[place + 2 : place + 4], "big")
    return payload


def _jpeg(image: Pixels, quality: float) -> dict[str, Any]:  # noqa: ARG001
    return {"quality": int(quality), "optimize": True}


def _progressive(image: Pixels, quality: float) -> dict[str, Any]:
    return _jpeg(image, quality) | {"progressive": True}


def _webp(image: Pixels, quality: float) -> dict[str, Any]:  # noqa: ARG001
    return {"quality": int(quality), "method": 6}


def _avif(image: Pixels, quality: float) -> dict[str, Any]:  # noqa: ARG001
    return {"quality": int(quality), "max_threads": 1}


def _avif444(image: Pixels, quality: float) -> dict[str, Any]:
    return _avif(image, quality) | {"subsampling": "4:4:4"}


def _jpeg2000(image: Pixels, rate: float) -> dict[str, Any]:
    """Return settings for a rate in bits per pixel, of the whole file."""
    depth = 8 * (1 if image.ndim == 2 else image.shape[2])
    # The default of 6 resolutions would double the error of images of 32 x 32 pixels.
    resolutions = min(6, max(1, min(image.shape[:2]).bit_length() - 3))
    return {
        "quality_mode": "rates",
        "quality_layers": [depth / rate],
        "num_resolutions": resolutions,
        "irreversible": True,
        "mct": int(image.ndim == 3),  # color transform, off by default in Pillow
        "no_jp2": True,
    }


def _scans(blob: bytes) -> int:
    return jpeg_parts(blob)[1]


CODECS = {
    codec.name: codec
    for codec in (
        Codec("JPEG", "JPEG", JPEG_QUALITIES, _jpeg, _scans, {"optimize": False}),
        Codec("progressive JPEG", "JPEG", JPEG_QUALITIES, _progressive, _scans),
        Codec("WebP", "WEBP", (*range(24), *range(24, 101, 4)), _webp, webp_payload),
        Codec("AVIF", "AVIF", (*range(0, 24, 2), *range(25, 101, 5)), _avif, avif_payload),
        Codec("AVIF 4:4:4", "AVIF", (*range(0, 24, 2), *range(25, 101, 5)), _avif444, avif_payload),
        Codec("JPEG 2000", "JPEG2000", JPEG2000_RATES, _jpeg2000, jpeg2000_payload),
    )
}
