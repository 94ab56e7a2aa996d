"""Rate-distortion of images against codecs: PSNR and SSIM by bits per pixel (bpp), headers included.

Ours is one embedded stream, truncated at each rate. A codec uses its best quality setting at each rate; progressive
JPEG is also truncated, at the best of several quality settings, as after an interrupted download.
"""

import argparse
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageFile

from _compression_task import Task
from _report import show
from nestcode import compress_images, data, decompress_images, metrics, stream_info
from nestcode.errors import InvalidInput
from nestcode.reproduce.lab.codecs import CODECS, Codec, decode
from nestcode.reproduce.lab.images import Pixels

RATES = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)  # bpp
OURS, TRUNCATED = "nestcode, one truncated stream", "progressive JPEG, truncated"
TRUNCATED_QUALITIES = (10, 25, 50, 75)
REQUESTED = tuple(rate * share for rate in RATES for share in (0.9, 0.95, 0.98, 1.0))  # of JPEG 2000


def measure(task: Task) -> list[dict[str, Any]]:
    """Measure all methods at all rates, print the tables and return their rows."""
    options = task.options
    points = [
        {
            "image": name,
            "method": method,
            "bpp": rate,
            "PSNR": round(metrics.psnr(image, decoded), 2),
            "SSIM": round(metrics.ssim(image, decoded), 4),
        }
        for name, image in read_images(options).items()
        for method, rate, decoded in all_points(image)
    ]
    for measure, unit in (("PSNR", "PSNR in dB"), ("SSIM", "SSIM")):
        show(f"{unit} by bpp", table(points, measure), note(points))
    if options.photos_figure is not None:
        draw(points, options.photos_figure)
    return points


def read_images(options: argparse.Namespace) -> dict[str, Pixels]:
    """Return scikit-learn's two sample images, or those of a folder."""
    if options.photos is not None:
        files = data.ImageFiles([options.photos])
        return {name: files[i] for i, name in enumerate(files.names)}
    both = data.sample_images()
    return {"flower": both["flower"][:96, :96]} if options.quick else both


def all_points(image: Pixels) -> Iterator[tuple[str, float, Pixels]]:
    """Yield what each method decodes to at each rate that it reaches."""
    pixels = image.shape[0] * image.shape[1]
    budgets = {rate: int(rate * pixels / 8) for rate in RATES}
    stream = compress_images([image])
    least = stream_info(stream).header_bytes
    for rate, budget in budgets.items():
        if budget >= least:
            yield OURS, rate, decompress_images(stream[:budget])[0]
    for name in ("JPEG", "JPEG 2000", "WebP", "AVIF"):
        files = list(encode_all(CODECS[name], image))
        for rate, budget in budgets.items():
            fitting = [file for file in files if len(file) <= budget]
            if fitting:
                yield name, rate, decode(max(fitting, key=len))
    files = [CODECS["progressive JPEG"].encode(image, quality) for quality in TRUNCATED_QUALITIES]
    for rate, budget in budgets.items():
        decoded = [some for some in (decode_truncated(file[:budget], image) for file in files) if some is not None]
        if decoded:
            yield TRUNCATED, rate, max(decoded, key=lambda some: metrics.psnr(image, some))


def encode_all(codec: Codec, image: Pixels) -> Iterator[bytes]:
    """Yield the files of all quality settings."""
    settings = REQUESTED if codec.name == "JPEG 2000" else codec.qualities
    yield from (codec.encode(image, quality) for quality in settings)


def decode_truncated(file: bytes, image: Pixels) -> Pixels | None:
    """Return what a truncated file decodes to, if it decodes."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with Image.open(io.BytesIO(file)) as opened:
            decoded = np.asarray(opened.convert("RGB"))
    except OSError:
        return None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    return decoded if decoded.shape == image.shape else None


def table(points: list[dict[str, Any]], measure: str) -> list[dict[str, Any]]:
    """Return a row for each image and method, with a column for each rate."""
    values = {(point["image"], point["method"], point["bpp"]): point[measure] for point in points}
    names, methods = (list(dict.fromkeys(point[key] for point in points)) for key in ("image", "method"))
    return [
        {"image": name, "method": method, **{f"{rate:g}": values.get((name, method, rate), "-") for rate in RATES}}
        for name, method in product(names, methods)
    ]


def note(points: list[dict[str, Any]]) -> str:
    """Summarize the PSNR difference to each codec, up to 0.5 bpp, and the BD-rate over all rates."""
    psnr = {(point["image"], point["method"], point["bpp"]): point["PSNR"] for point in points}
    parts = []
    for method in dict.fromkeys(point["method"] for point in points):
        gains = [
            psnr[name, OURS, rate] - value
            for (name, other, rate), value in psnr.items()
            if other == method != OURS and rate <= 0.5 and (name, OURS, rate) in psnr
        ]
        if gains:
            parts.append(f"{method} {min(gains):+.2f} to {max(gains):+.2f} dB{bd_rate(points, method)}")
    return "Ours less theirs, PSNR up to 0.5 bpp and mean BD-rate: " + "; ".join(parts) + "."


def bd_rate(points: list[dict[str, Any]], method: str) -> str:
    """Return our BD-rate against a method, mean over the images where both PSNR curves rise and overlap."""

    def curve(image: str, method: str) -> tuple[list[float], list[float]]:
        best: dict[float, float] = {}  # the lowest rate of each PSNR
        for point in points:
            if (point["image"], point["method"]) == (image, method):
                best.setdefault(point["PSNR"], point["bpp"])
        return list(best.values()), list(best)

    rates = []
    for image in dict.fromkeys(point["image"] for point in points):
        with suppress(InvalidInput):  # too few points, or no common PSNR
            rates.append(metrics.bd_rate(*curve(image, OURS), *curve(image, method)))
    return f", {np.mean(rates):+.0%}" if rates else ""


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """Draw PSNR by bpp, a panel for each image."""
    names = list(dict.fromkeys(point["image"] for point in points))[:4]
    colors = {
        OURS: "#c1121f", "JPEG 2000": "#0b7a75", "WebP": "#4caf50", "AVIF": "#f0941f", "JPEG": "#1565c0",
        TRUNCATED: "#8d8d8d",
    }  # fmt: skip
    figure = Figure(figsize=(5 * len(names), 4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        for method, color in colors.items():
            line = [(p["bpp"], p["PSNR"]) for p in points if p["image"] == name and p["method"] == method]
            if line:
                panel.plot(*zip(*line, strict=True), "o-", color=color, markersize=3, label=method)
        panel.set(title=name, xscale="log", xlabel="bits per pixel")
        panel.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("PSNR in dB")
    panels[0][0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
