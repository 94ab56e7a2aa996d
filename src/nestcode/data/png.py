"""PNG files of 8 or 16 bits per channel, with an ICC profile: Pillow writes 16 bits for gray images only."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels: gray, gray and alpha, RGB, RGBA
BAND = 64  # rows that are filtered at a time
SUB, UP, PAETH = 1, 2, 4  # filter types

Pixels = NDArray[np.uint8 | np.uint16]


def png_bytes(image: Pixels, profile: bytes = b"") -> bytes:
    """Return an image, (height, width) or (height, width, channels), as a PNG file.

    >>> png_bytes(np.zeros((2, 3, 3), dtype=np.uint16))[12:29].hex(" ")
    '49 48 44 52 00 00 00 03 00 00 00 02 10 02 00 00 00'
    """
    pixels = image[..., None] if image.ndim == 2 else image
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8 * image.itemsize, COLOR_TYPES[channels], 0, 0, 0)
    deflate = zlib.compressobj(6, strategy=zlib.Z_FILTERED)
    data = b"".join(map(deflate.compress, _filtered(pixels))) + deflate.flush()
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    if profile:
        chunks.insert(1, (b"iCCP", b"ICC profile\0\0" + zlib.compress(profile, 9)))
    return SIGNATURE + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _filtered(pixels: Pixels) -> Iterator[bytes]:
    """Yield bands of rows, each row by the filter whose residuals have the smallest sum of magnitudes."""
    step = pixels.shape[2] * pixels.itemsize  # bytes from a pixel to its left neighbor
    last = np.zeros((1, pixels.shape[1] * step), dtype=np.uint8)
    for first in range(0, len(pixels), BAND):
        band = pixels[first : first + BAND].astype(pixels.dtype.newbyteorder(">"))
        rows = np.ascontiguousarray(band).view(np.uint8).reshape(len(band), -1)
        above = np.concatenate([last, rows[:-1]])
        left, corner = (np.pad(some[:, :-step], [(0, 0), (step, 0)]) for some in (rows, above))
        residuals = np.stack([rows - left, rows - above, rows - _paeth(left, above, corner)])
        best = np.abs(residuals.view(np.int8).astype(np.int16)).sum(axis=2, dtype=np.int64).argmin(axis=0)
        out = np.empty((len(rows), 1 + rows.shape[1]), dtype=np.uint8)
        out[:, 0] = np.array([SUB, UP, PAETH])[best]
        out[:, 1:] = residuals[best, np.arange(len(rows))]
        yield out.tobytes()
        last = rows[-1:]


def _paeth(left: NDArray[np.uint8], above: NDArray[np.uint8], corner: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return, of the three neighbors, the one nearest to left + above - corner."""
    across, down = above.astype(np.int16) - corner, left.astype(np.int16) - corner
    by_left, by_above, by_corner = np.abs(across), np.abs(down), np.abs(across + down)
    nearest = np.where(by_above <= by_corner, above, corner)
    return np.where((by_left <= by_above) & (by_left <= by_corner), left, nearest)
