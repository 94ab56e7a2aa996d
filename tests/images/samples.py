"""Small images of all kinds that the tests of image streams share."""

import json
import zlib
from functools import cache
from typing import Any

import numpy as np

from nestcode.data import sample_images
from nestcode.images import ImageCodec, compress_images
from nestcode.images.format import FIXED, ImageStreamHeader, parse_image_header
from nestcode.images.image import Image
from nestcode.images.info import ImageStreamInfo
from nestcode.streams import stream_info as any_stream_info

SHAPES = ((40, 50, 3), (33, 20), (1, 1), (3, 70, 4), (64, 5, 2), (1, 1, 3), (45, 31, 1))  # all kinds, wide and tall


_sample_images = cache(sample_images)


@cache
def codec() -> ImageCodec:
    """One that does not ship with Nestcode."""
    return ImageCodec().fit([crop((40, 40, 3))])


def crop(shape: tuple[int, ...], seed: int = 0) -> Image:
    """A crop of a real image; the alpha channel, if any, fades to the right."""
    rng = np.random.default_rng(seed)
    whole = _sample_images()["china" if rng.random() < 0.5 else "flower"]
    top, left = (int(rng.integers(0, most - size)) for most, size in zip(whole.shape[:2], shape[:2], strict=True))
    piece = whole[top : top + shape[0], left : left + shape[1]]
    channels = (*shape, 1)[2]
    colors = piece if channels > 2 else piece[..., 1:2]
    if channels in (2, 4):
        fading = np.broadcast_to(np.linspace(255, 90, shape[1]).astype(np.uint8)[:, None], (*shape[:2], 1))
        colors = np.concatenate([colors, fading], axis=2)
    return np.ascontiguousarray(colors).reshape(shape)


def crops(shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Image]:
    return [crop(shape, seed) for seed, shape in enumerate(shapes)]


@cache
def stream(shapes: tuple[tuple[int, ...], ...] = SHAPES) -> bytes:
    return compress_images(crops(shapes), codec())


def stream_info(data: bytes | bytearray) -> ImageStreamInfo:
    known = any_stream_info(data)
    assert isinstance(known, ImageStreamInfo)
    return known


def header_of(data: bytes) -> ImageStreamHeader:
    return parse_image_header(memoryview(data))


def error(images: list[Image], others: list[Image]) -> float:
    """Return the mean over images of the mean squared error of a pixel value in [0, 1]."""
    errors = [
        np.mean(((a - b.astype(float)) / np.iinfo(a.dtype).max) ** 2) for a, b in zip(images, others, strict=True)
    ]
    return float(np.mean(errors))


def same(images: list[Image], others: list[Image]) -> bool:
    return len(images) == len(others) and all(map(np.array_equal, images, others))


def table_of(data: bytes) -> Any:
    """Return the table of a stream as parsed JSON."""
    return json.loads(zlib.decompress(data[FIXED.size : FIXED.size + FIXED.unpack(data[: FIXED.size])[2]]))


def forged(data: bytes, table: Any = None, *, text: bytes | None = None, payload: int | None = None) -> bytes:
    """Return the stream with another table and a matching checksum, as an attacker would make it.

    A table of two parts is that of version 1.
    """
    magic, version, size, embedded, claimed, fingerprint = FIXED.unpack(data[: FIXED.size])
    if isinstance(table, list) and len(table) == 2:
        version = 1
    if text is None:
        text = json.dumps(table, separators=(",", ":")).encode()
    packed = zlib.compress(text, 9)
    start = FIXED.pack(magic, version, len(packed), embedded, claimed if payload is None else payload, fingerprint)
    start += packed
    return start + zlib.crc32(start).to_bytes(4, "little") + data[FIXED.size + size + 4 :]
