"""Throughput of coders and codecs on the same images, on one thread: megabytes of raw pixels per second.

Codecs write one file per image, and one file of a contact sheet with all images, which amortizes the start-up cost.
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

QUALITIES = {"JPEG": 30.0, "WebP": 20.0, "AVIF": 30.0, "JPEG 2000": 3.0}  # with similar MSE
BASE = "JPEG, one sheet"  # the reference of relative speeds


@dataclass(frozen=True)
class Method:
    """A way to encode images and to decode them."""

    encode: Callable[[], Any]
    decode: Callable[[], Any]
    raw: int  # bytes of pixels
    bits: float  # per image
    mse: float


def measure(task: Task) -> list[dict[str, Any]]:
    """Time all methods in turns, print the table and return its rows."""
    with one_thread():
        methods = dict(all_methods(task))
        jobs = {(name, part): getattr(some, part) for name, some in methods.items() for part in ("encode", "decode")}
        named = {f"{part} {name}": job for (name, part), job in jobs.items()}
        seconds = seconds_each(named, rounds=1 if task.options.quick else 3)
    rows: list[dict[str, Any]] = []
    for name, method in methods.items():
        times = {part: seconds[f"{part} {name}"] for part in ("encode", "decode")}
        speeds = {f"{part} MB/s": method.raw / 1e6 / times[part] for part in times}
        rows.append({"method": name, **speeds, "bits per image": round(method.bits), "MSE": method.mse})
    base = next(row for row in rows if row["method"] == BASE)
    for row in rows:
        row |= {f"{part} / JPEG": row[f"{part} MB/s"] / base[f"{part} MB/s"] for part in ("encode", "decode")}
    note = f"{len(task.test):,} images of {task.side} x {task.side}, one thread; / JPEG: speed relative to {BASE}."
    show(f"Speed, {task.name}", rows, note)
    return rows


def all_methods(task: Task) -> Iterator[tuple[str, Method]]:
    """Yield our coders and the codecs."""
    for name, coder in task.coders.items():
        yield f"{name}, codes", by_codes(task, coder)
        yield f"{name}, stream", by_stream(task, coder)
        yield f"{name}, entropy coded", by_stream(task, coder, entropy=True)
    sheet = contact_sheet(task.images)
    yield "ImageCodec, one sheet", by_image_codec(sheet, task.side)
    for name, quality in QUALITIES.items():
        yield f"{name}, a file each", by_codec(CODECS[name], quality, list(task.images), task.side)
        yield f"{name}, one sheet", by_codec(CODECS[name], quality, [sheet], task.side)


def by_codes(task: Task, coder: Coder) -> Method:
    """Bare codes, from values in [0, 1] to values in [0, 1]."""
    rows = as_rows(task.test)
    codes = coder.encode(rows)
    error = task.error(coder.decode(codes))
    return Method(lambda: coder.encode(rows), lambda: coder.decode(codes), task.test.nbytes, coder.width, error)


def by_stream(task: Task, coder: Coder, *, entropy: bool = False) -> Method:
    """A stream, from pixels to pixels."""
    encode = partial(compress, task.test, coder, scale=255, entropy=entropy)
    data = encode()
    error = pixel_mse(task.test, decompress(data, coder))
    bits = 8 * len(data) / len(task.test)
    return Method(encode, partial(decompress, data, coder), task.test.nbytes, bits, error)


def by_image_codec(sheet: Pixels, side: int) -> Method:
    """The bitstream of a contact sheet of images of side x side pixels, at 1.5 bpp."""
    codec, budget = ImageCodec.load(), sheet.shape[0] * sheet.shape[1] * 3 // 16
    data = codec.encode(sheet, limit=budget)
    mse = pixel_mse(sheet, codec.decode(data, sheet.shape).astype(np.uint8))
    return Method(
        lambda: codec.encode(sheet, limit=budget),
        lambda: codec.decode(data, sheet.shape),
        sheet.nbytes,
        8 * len(data) * 3 * side * side / sheet.nbytes,
        mse,
    )


def by_codec(codec: Codec, quality: float, sheets: list[Pixels], side: int) -> Method:
    """Files of sheets that hold images of side x side pixels."""
    raw = sum(sheet.nbytes for sheet in sheets)
    files = [codec.encode(sheet, quality) for sheet in sheets]
    mse = float(np.mean([pixel_mse(sheet, decode(file)) for sheet, file in zip(sheets, files, strict=True)]))
    return Method(
        lambda: [codec.encode(sheet, quality) for sheet in sheets],
        lambda: [decode(file) for file in files],
        raw,
        8 * sum(map(len, files)) * 3 * side * side / raw,
        mse,
    )


def contact_sheet(images: Pixels) -> Pixels:
    """Return images side by side, (n, side, side, 3) -> (height, width, 3); the first ones fill the last row.

    >>> contact_sheet(np.zeros((5, 4, 4, 3), dtype=np.uint8)).shape
    (8, 12, 3)
    """
    count, side = images.shape[:2]
    across = int(np.ceil(np.sqrt(count)))
    down = -(-count // across)
    places = np.resize(images, (down, across, side, side, 3))
    return places.transpose(0, 2, 1, 3, 4).reshape(down * side, across * side, 3)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit libraries to one thread, and the process to one core for those that ignore the limit."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
