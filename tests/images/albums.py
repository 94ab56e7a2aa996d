"""Small pictures of all kinds that the tests of their streams share."""

import json
import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.data import sample_images
from nestcode.images import ImageCodec, compress_images
from nestcode.images.format import FIXED, ImageStreamHeader, parse_image_header

Picture = NDArray[np.uint8]
SHAPES = ((40, 50, 3), (33, 20), (1, 1), (3, 70, 4), (64, 5, 2), (1, 1, 3), (45, 31, 1))  # all kinds, wide and tall


_photographs = cache(sample_images)


@cache
def coder() -> ImageCodec:
    """One that does not come with Nestcode."""
    return ImageCodec().fit([photograph((40, 40, 3))])


def photograph(shape: tuple[int, ...], seed: int = 0) -> Picture:
    """A piece of a real one; opacity, where there is some, fades to the right."""
    rng = np.random.default_rng(seed)
    whole = _photographs()["china" if rng.random() < 0.5 else "flower"]
    top, left = (int(rng.integers(0, most - size)) for most, size in zip(whole.shape[:2], shape[:2], strict=True))
    piece = whole[top : top + shape[0], left : left + shape[1]]
    channels = (*shape, 1)[2]
    colors = piece if channels > 2 else piece[..., 1:2]
    if channels in (2, 4):
        fading = np.broadcast_to(np.linspace(255, 90, shape[1]).astype(np.uint8)[:, None], (*shape[:2], 1))
        colors = np.concatenate([colors, fading], axis=2)
    return np.ascontiguousarray(colors).reshape(shape)


def album(shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Picture]:
    return [photograph(shape, seed) for seed, shape in enumerate(shapes)]


@cache
def stream(shapes: tuple[tuple[int, ...], ...] = SHAPES) -> bytes:
    return compress_images(album(shapes), coder())


def header_of(data: bytes) -> ImageStreamHeader:
    return parse_image_header(memoryview(data))


def error(pictures: list[Picture], others: list[Picture]) -> float:
    """Mean over pictures of the mean squared error of a pixel between 0 and 1."""
    errors = [np.mean((a / 255 - b / 255) ** 2) for a, b in zip(pictures, others, strict=True)]
    return float(np.mean(errors))


def same(pictures: list[Picture], others: list[Picture]) -> bool:
    return len(pictures) == len(others) and all(map(np.array_equal, pictures, others))


def table_of(data: bytes) -> Any:
    """The table of a stream as JSON has it."""
    return json.loads(zlib.decompress(data[FIXED.size : FIXED.size + FIXED.unpack(data[: FIXED.size])[2]]))


def forged(data: bytes, table: Any = None, *, text: bytes | None = None, payload: int | None = None) -> bytes:
    """The stream with another table and a right checksum, as somebody hostile would make it."""
    magic, version, size, embedded, said, fingerprint = FIXED.unpack(data[: FIXED.size])
    if text is None:
        text = json.dumps(table, separators=(",", ":")).encode()
    packed = zlib.compress(text, 9)
    start = FIXED.pack(magic, version, len(packed), embedded, said if payload is None else payload, fingerprint)
    start += packed
    return start + zlib.crc32(start).to_bytes(4, "little") + data[FIXED.size + size + 4 :]
