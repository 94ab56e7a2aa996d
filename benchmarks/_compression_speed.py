"""The speed of coders and codecs on the same images, on one thread: megabytes of raw pixels a second.

Codecs write a file for each image, and one file of a sheet with all images side by side, where starting costs nothing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from _compression_task import Task
from _report import seconds_each, show
from nestcode import compress, decompress
from nestcode.coders import Coder
from nestcode.images import ImageCodec
from nestcode.reproduce.lab.codecs import CODECS, Codec, decode
from nestcode.reproduce.lab.images import Pixels, as_rows, pixel_mse

QUALITIES = {"JPEG": 30.0, "WebP": 20.0, "AVIF": 30.0, "JPEG 2000": 3.0}  # with about the same errors
BASE = "JPEG, one sheet"  # what speeds are compared with


@dataclass(frozen=True)
class Way:
    """How images become bytes and come back."""

    encode: Callable[[], Any]
    decode: Callable[[], Any]
    pixels: int  # bytes of them
    bits: float  # an image
    error: float


def measure(task: Task) -> list[dict[str, Any]]:
    """Time all in turns, print the table and return its rows."""
    with one_thread():
        ways = dict(all_ways(task))
        jobs = {(name, part): getattr(way, part) for name, way in ways.items() for part in ("encode", "decode")}
        named = {f"{part} {name}": job for (name, part), job in jobs.items()}
        seconds = seconds_each(named, rounds=1 if task.options.quick else 3)
    rows: list[dict[str, Any]] = []
    for name, way in ways.items():
        times = {part: seconds[f"{part} {name}"] for part in ("encode", "decode")}
        speeds = {f"{part} MB/s": way.pixels / 1e6 / times[part] for part in times}
        rows.append({"method": name, **speeds, "bits an image": round(way.bits), "error": way.error})
    base = next(row for row in rows if row["method"] == BASE)
    for row in rows:
        row |= {f"{part} / JPEG": row[f"{part} MB/s"] / base[f"{part} MB/s"] for part in ("encode", "decode")}
    note = (
        f"{len(task.test):,} images of {task.side} x {task.side}, one thread; / JPEG: how many times as fast as {BASE}."
    )
    show(f"Speed, {task.name}", rows, note)
    return rows


def all_ways(task: Task) -> Iterator[tuple[str, Way]]:
    """Ours and codecs."""
    for name, coder in task.coders.items():
        yield f"{name}, codes", code_way(task, coder)
        yield f"{name}, stream", stream_way(task, coder)
        yield f"{name}, entropy coded", stream_way(task, coder, entropy=True)
    sheet = as_sheet(task.pictures)
    yield "PictureCoder, one sheet", picture_way(sheet, task.side)
    for name, quality in QUALITIES.items():
        yield f"{name}, a file each", codec_way(CODECS[name], quality, list(task.pictures), task.side)
        yield f"{name}, one sheet", codec_way(CODECS[name], quality, [sheet], task.side)


def code_way(task: Task, coder: Coder) -> Way:
    """Bare codes, from numbers between 0 and 1 and to such."""
    rows = as_rows(task.test)
    codes = coder.encode(rows)
    error = task.error(coder.decode(codes))
    return Way(lambda: coder.encode(rows), lambda: coder.decode(codes), task.test.nbytes, coder.width, error)


def stream_way(task: Task, coder: Coder, *, entropy: bool = False) -> Way:
    """A stream, from pixels and to pixels."""
    encode = partial(compress, task.test, coder, scale=255, entropy=entropy)
    data = encode()
    error = pixel_mse(task.test, decompress(data, coder))
    bits = 8 * len(data) / len(task.test)
    return Way(encode, partial(decompress, data, coder), task.test.nbytes, bits, error)


def picture_way(sheet: Pixels, side: int) -> Way:
    """The bytes of one picture, which holds images of side x side pixels."""
    coder, budget = ImageCodec.load(), sheet.shape[0] * sheet.shape[1] * 3 // 16  # 1.5 bits a pixel
    data = coder.encode(sheet, limit=budget)
    error = pixel_mse(sheet, coder.decode(data, sheet.shape))
    return Way(
        lambda: coder.encode(sheet, limit=budget),
        lambda: coder.decode(data, sheet.shape),
        sheet.nbytes,
        8 * len(data) * 3 * side * side / sheet.nbytes,
        error,
    )


def codec_way(codec: Codec, quality: float, pictures: list[Pixels], side: int) -> Way:
    """Files of pictures, which hold images of side x side pixels."""
    pixels = sum(picture.nbytes for picture in pictures)
    blobs = [codec.encode(picture, quality) for picture in pictures]
    made = [decode(blob) for blob in blobs]
    error = float(np.mean([pixel_mse(*pair) for pair in zip(pictures, made, strict=True)]))
    return Way(
        lambda: [codec.encode(picture, quality) for picture in pictures],
        lambda: [decode(blob) for blob in blobs],
        pixels,
        8 * sum(map(len, blobs)) * 3 * side * side / pixels,
        error,
    )


def as_sheet(pictures: Pixels) -> Pixels:
    """Pictures side by side, (n, side, side, 3) -> (height, width, 3); the first ones again where places are left.

    >>> as_sheet(np.zeros((5, 4, 4, 3), dtype=np.uint8)).shape
    (8, 12, 3)
    """
    count, side = pictures.shape[:2]
    across = int(np.ceil(np.sqrt(count)))
    down = -(-count // across)
    places = np.resize(pictures, (down, across, side, side, 3))
    return places.transpose(0, 2, 1, 3, 4).reshape(down * side, across * side, 3)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for libraries that ask, and one core for those that do not."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
