"""Sizes of images coded losslessly by codecs, each at its smallest, in bits per pixel with headers; and MB/s."""

import io
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from _compression_photos import read_images
from _compression_speed import one_thread
from _compression_task import Task
from _report import show_markdown
from nestcode import compress_images, decompress_images
from nestcode.reproduce.lab.images import Pixels

OURS = "nestcode"
# The step at which residuals begin was chosen on these, and on images of other packages.
CHOSEN_ON = ("Painting-Colors_by__herobrine7gamer", "free_by_Peter_Nerlich", "greentock_by_Peter_Nerlich")
SETTINGS: dict[str, dict[str, Any]] = {
    "PNG": {"format": "PNG", "optimize": True},
    "JPEG 2000": {"format": "JPEG2000", "irreversible": False, "mct": 1},
    "WebP": {"format": "WEBP", "lossless": True, "method": 6, "quality": 100},
}
JPEG_XL = {"format": "JXL", "lossless": True, "effort": 7, "num_threads": 1}


def measure(task: Task) -> list[dict[str, Any]]:
    """Code each image with all codecs, check that it comes back, print the tables and return their rows."""
    settings = dict(SETTINGS)
    if find_spec("pillow_jxl") is not None:
        import_module("pillow_jxl")  # registers its format with Pillow
        settings["JPEG XL"] = JPEG_XL
    if task.options.quick:
        settings["WebP"] = {**settings["WebP"], "method": 0}
    rows: list[dict[str, Any]] = []
    spent = {name: np.zeros(2) for name in (*settings, OURS)}  # seconds of encoding and decoding
    values = 0
    with one_thread():
        for name, image in read_images(task.options).items():
            sizes = {}
            for codec, how in settings.items():
                sizes[codec], seconds = _with_pillow(image, how)
                spent[codec] += seconds
            sizes[OURS], seconds = _with_nestcode(image)
            spent[OURS] += seconds
            values += image.size
            pixels = image.shape[0] * image.shape[1]
            rows.append({"image": name, **{codec: 8 * size / pixels for codec, size in sizes.items()}})
    held_out = [row for row in rows if Path(row["image"]).stem not in CHOSEN_ON]
    means = [
        {"image": f"mean of {len(some)}{which}", **{codec: _mean(some, codec) for codec in spent}}
        for which, some in (("", rows), (" that no choice looked at", held_out))
    ]
    speeds = [
        {"image": what, **{codec: values / 1e6 / seconds[way] for codec, seconds in spent.items()}}
        for way, what in enumerate(("encode, MB/s", "decode, MB/s"))
    ]
    show_markdown("Bits per pixel, lossless", [*rows, *means, *speeds])
    return [*rows, *means, *speeds]


def _mean(rows: list[dict[str, Any]], codec: str) -> float:
    return float(np.mean([row[codec] for row in rows]))


def _with_pillow(image: Pixels, how: dict[str, Any]) -> tuple[int, tuple[float, float]]:
    """Return bytes, and seconds of encoding and decoding."""
    buffer = io.BytesIO()
    encode = _seconds(lambda: Image.fromarray(image).save(buffer, **how))
    decoded: list[Pixels] = []
    decode = _seconds(lambda: decoded.append(np.asarray(Image.open(io.BytesIO(buffer.getvalue())).convert("RGB"))))
    if not np.array_equal(decoded[0], image):
        raise AssertionError(f"{how['format']} is not lossless here")
    return len(buffer.getvalue()), (encode, decode)


def _with_nestcode(image: Pixels) -> tuple[int, tuple[float, float]]:
    streams: list[bytes] = []
    encode = _seconds(lambda: streams.append(compress_images([image], lossless=True)))
    decoded: list[Any] = []
    decode = _seconds(lambda: decoded.extend(decompress_images(streams[0])))
    if not np.array_equal(decoded[0], image):
        raise AssertionError("the stream is not lossless")
    return len(streams[0]), (encode, decode)


def _seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start
