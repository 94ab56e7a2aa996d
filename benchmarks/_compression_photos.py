"""Photographs beside codecs: PSNR and SSIM by bits a pixel, headers counted.

Ours is one stream, cut at each size. A codec may choose its best quality for each size; progressive JPEG is also cut,
at the best of several qualities, as whoever stops a download has it.
"""

import argparse
import io
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageFile

from _compression_task import Task
from _report import show
from nestcode import compress_images, data, decompress_images, metrics, stream_info
from nestcode.reproduce.lab.codecs import CODECS, Codec, decode
from nestcode.reproduce.lab.images import Pixels

SIZES = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)  # bits a pixel
OURS, CUT = "nestcode, one stream cut", "progressive JPEG, cut"
CUT_QUALITIES = (10, 25, 50, 75)
RATES = tuple(size * share for size in SIZES for share in (0.9, 0.95, 0.98, 1.0))  # asked of JPEG 2000


def measure(task: Task) -> list[dict[str, Any]]:
    """Compare at all sizes, print the tables and return their rows."""
    options = task.options
    pictures = sample_images(options)
    points = [
        {
            "picture": name,
            "method": method,
            "bits a pixel": size,
            "PSNR": round(metrics.psnr(picture, made), 2),
            "SSIM": round(metrics.ssim(picture, made), 4),
        }
        for name, picture in pictures.items()
        for method, size, made in all_cuts(picture)
    ]
    for measured in ("PSNR", "SSIM"):
        show(f"{measured} of photographs by bits a pixel", table(points, measured), note(points))
    if options.photos_figure is not None:
        draw(points, options.photos_figure)
    return points


def sample_images(options: argparse.Namespace) -> dict[str, Pixels]:
    """The two that come with scikit-learn, or those of a folder."""
    if options.photos is not None:
        files = data.ImageFiles([options.photos])
        return {name: files[i] for i, name in enumerate(files.names)}
    both = data.sample_images()
    return {"flower": both["flower"][:96, :96]} if options.quick else both


def all_cuts(picture: Pixels) -> Iterator[tuple[str, float, Pixels]]:
    """Each method at each size that it can have."""
    pixels = picture.shape[0] * picture.shape[1]
    budgets = {size: int(size * pixels / 8) for size in SIZES}
    stream = compress_images([picture])
    least = stream_info(stream).header_bytes
    for size, budget in budgets.items():
        if budget >= least:
            yield OURS, size, decompress_images(stream[:budget])[0]
    for name in ("JPEG", "JPEG 2000", "WebP", "AVIF"):
        files = list(every_quality(CODECS[name], picture))
        for size, budget in budgets.items():
            fitting = [blob for blob in files if len(blob) <= budget]
            if fitting:
                yield name, size, decode(max(fitting, key=len))
    files = [CODECS["progressive JPEG"].encode(picture, quality) for quality in CUT_QUALITIES]
    for size, budget in budgets.items():
        cuts = [made for made in (decode_cut(blob[:budget], picture) for blob in files) if made is not None]
        if cuts:
            yield CUT, size, max(cuts, key=lambda made: metrics.psnr(picture, made))


def every_quality(codec: Codec, picture: Pixels) -> Iterator[bytes]:
    """Files of all sizes that it can have."""
    yield from (codec.encode(picture, quality) for quality in (RATES if codec.name == "JPEG 2000" else codec.qualities))


def decode_cut(blob: bytes, picture: Pixels) -> Pixels | None:
    """What a file cut short decodes to, if to anything."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with Image.open(io.BytesIO(blob)) as image:
            made = np.asarray(image.convert("RGB"))
    except OSError:
        return None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    return made if made.shape == picture.shape else None


def table(points: list[dict[str, Any]], measured: str) -> list[dict[str, Any]]:
    """A row for each picture and method, a column for each size."""
    found = {(point["picture"], point["method"], point["bits a pixel"]): point[measured] for point in points}
    names, methods = (list(dict.fromkeys(point[key] for point in points)) for key in ("picture", "method"))
    return [
        {"picture": name, "method": method, **{f"{size:g}": found.get((name, method, size), "-") for size in SIZES}}
        for name, method in product(names, methods)
    ]


def note(points: list[dict[str, Any]]) -> str:
    """By how much ours is better or worse than each rival, at its worst and up to half a bit a pixel."""
    found = {(point["picture"], point["method"], point["bits a pixel"]): point["PSNR"] for point in points}
    said = []
    for method in dict.fromkeys(point["method"] for point in points):
        gains = [
            found[name, OURS, size] - value
            for (name, other, size), value in found.items()
            if other == method != OURS and size <= 0.5 and (name, OURS, size) in found
        ]
        if gains:
            said.append(f"{method} {min(gains):+.2f} to {max(gains):+.2f}")
    return "Ours less theirs in dB, up to 0.5 bits a pixel: " + "; ".join(said) + "."


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """PSNR by bits a pixel, a panel for each picture."""
    names = list(dict.fromkeys(point["picture"] for point in points))[:4]
    colors = {
        OURS: "#c1121f", "JPEG 2000": "#0b7a75", "WebP": "#4caf50", "AVIF": "#f0941f", "JPEG": "#1565c0",
        CUT: "#8d8d8d",
    }  # fmt: skip
    figure = Figure(figsize=(5 * len(names), 4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        for method, color in colors.items():
            line = [(p["bits a pixel"], p["PSNR"]) for p in points if p["picture"] == name and p["method"] == method]
            if line:
                panel.plot(*zip(*line, strict=True), "o-", color=color, markersize=3, label=method)
        panel.set(title=name, xscale="log", xlabel="bits a pixel")
        panel.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("PSNR, dB")
    panels[0][0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
