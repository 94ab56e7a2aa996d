"""Rate-distortion and speed of images against codecs: PSNR and SSIM by bits per pixel (bpp), headers included; MB/s.

Ours is one embedded stream, truncated at each rate, decoded without and with the network that refines images. Codecs
are measured at several settings, and interpolated over the logarithm of the rate. Progressive JPEG is also truncated,
at the best of several quality settings, as after an interrupted download.
"""

import argparse
import io
import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps

from _compression_speed import one_thread
from _compression_task import Task
from _report import seconds_each, show
from nestcode import _core, compress_images, data, decompress_images, metrics, stream_info
from nestcode.errors import InvalidInput
from nestcode.images import ImageCodec, Refiner
from nestcode.images.codec import ImageDecoder
from nestcode.reproduce.lab.codecs import CODECS, Codec, decode
from nestcode.reproduce.lab.images import Pixels

RATES = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)  # bpp
TIMED = 0.5  # bpp at which codecs are timed
OURS, REFINED = "nestcode, one truncated stream", "the same, refined"
TRUNCATED = "progressive JPEG, truncated"
TRUNCATED_QUALITIES = (10, 25, 50, 75)
MOST = 1.3  # bpp up to which codecs are measured
SETTINGS: dict[str, tuple[float, ...]] = {  # from worst to best
    "JPEG": (2, 5, 8, 12, 18, 25, 35, 50, 65, 80, 90, 95),
    "JPEG 2000": (*RATES, 1.2),
    "WebP": (0, 2, 5, 10, 20, 35, 50, 65, 80, 90, 97),
    "AVIF": (5, 12, 20, 28, 36, 45, 55, 65, 75, 85, 92, 97),
    "AVIF 4:4:4": (5, 12, 20, 28, 36, 45, 55, 65, 75, 85, 92, 97),
    "JPEG XL": (1, 5, 10, 20, 30, 45, 60, 70, 80, 88, 94),
}
COLORS = {
    REFINED: "#7a0010", OURS: "#c1121f", "JPEG XL": "#7b2cbf", "AVIF 4:4:4": "#b35c00", "AVIF": "#f0941f",
    "JPEG 2000": "#0b7a75", "WebP": "#4caf50", "JPEG": "#1565c0", TRUNCATED: "#8d8d8d",
}  # fmt: skip
JPEG_XL = Codec(
    "JPEG XL", "JXL", SETTINGS["JPEG XL"], lambda _, quality: {"quality": int(quality), "num_threads": 1}, len
)


@dataclass(frozen=True)
class Point:
    """What a method does to an image at a rate."""

    image: str
    method: str
    bpp: float
    psnr: float
    ssim: float
    setting: float | None = None  # of a codec


def measure(task: Task) -> list[dict[str, Any]]:
    """Measure all methods, print the tables and return their rows."""
    options = task.options
    images, codecs = read_images(options), peers()
    points = [point for name, image in images.items() for point in all_points(options.points, name, image, codecs)]
    groups = {name: [name] for name in images} if len(images) < 3 else {f"mean of {len(images)} images": list(images)}
    for quality, unit in (("psnr", "PSNR in dB"), ("ssim", "SSIM of luma")):
        for named, group in groups.items():
            some = [point for point in points if point.image in group]
            show(f"{unit} by bpp, {named}", table(some, quality), "Codecs interpolated between their settings.")
    with one_thread():
        speeds = time_all(images, codecs, points, rounds=0 if options.quick else 1)
    methods, rows = dict.fromkeys(point.method for point in points), []
    for ours in (OURS, REFINED):
        compared = [compare(points, ours, method, speeds.get(method)) for method in methods]
        show(
            f"{ours}, against each: PSNR up to 0.5 bpp, BD-rate (negative: we need less), and speed",
            compared,
            f"BD-rate: mean over images. MB/s of raw pixels at {TIMED:g} bpp, processor time of one thread.",
        )
        rows += [{"ours": ours, **row} for row in compared]
    with one_thread():
        streams = time_streams(list(images.values()), rounds=0 if options.quick else 1)
    show("Streams (compress_images)", streams, "Processor time of one thread, with the error that a stream states.")
    rows += streams
    few = list(images.values())[: 1 if options.quick else 4]
    threads = time_threads(few, rounds=0 if options.quick else 2)
    note = f"Wall-clock time of four shifted copies of each of the first {len(few)} images, at {TIMED:g} bpp."
    show("Threads of one stream", threads, note)
    rows += threads
    if options.photos_figure is not None:
        draw(points, groups, options.photos_figure)
    return [{**vars(point)} for point in points] + rows


def read_images(options: argparse.Namespace) -> dict[str, Pixels]:
    """Return scikit-learn's two sample images, or those of a folder, scaled down."""
    if options.photos is None:
        both = data.sample_images()
        return {"flower": both["flower"][:96, :96]} if options.quick else both
    files = data.ImageFiles([options.photos])
    return {name: read_scaled(path, options.side) for name, path in zip(files.names, files.paths, strict=True)}


def read_scaled(path: Path, side: int) -> Pixels:
    """Return an image in RGB with at most `side` pixels along its longer side; scaling removes a JPEG file's errors."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


def peers() -> dict[str, Codec]:
    """Return the codecs to compare with; JPEG XL if `pillow-jxl-plugin` is installed."""
    found = {name: CODECS[name] for name in ("JPEG", "JPEG 2000", "WebP", "AVIF", "AVIF 4:4:4")}
    if find_spec("pillow_jxl") is None:
        print("JPEG XL is left out: pip install 'nestcode[peers]'")
        return found
    __import__("pillow_jxl")
    return {**found, "JPEG XL": JPEG_XL}


def all_points(file: Path | None, name: str, image: Pixels, codecs: dict[str, Codec]) -> list[Point]:
    """Return the points of an image, ours and those of codecs; what a file of earlier runs has is kept."""
    weights = zlib.crc32(repr(_core.image_filter_weights()).encode())
    ours, checksum = [ImageCodec.load().fingerprint, refiner().fingerprint, weights], zlib.crc32(image.tobytes())
    return [
        *kept_points(file, name, [checksum, *ours], lambda: our_points(name, image)),
        *kept_points(file, name, [checksum, *codecs], lambda: codec_points(name, image, codecs)),
    ]


def kept_points(file: Path | None, name: str, key: list[Any], measured: Callable[[], Iterator[Point]]) -> list[Point]:
    """Return points of an image: those in a file under its name and a key, or measured now and added to it."""
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        kept = json.loads(line)
        if (kept["key"], kept["name"]) == (key, name):
            return [Point(**point) for point in kept["points"]]
    points = list(measured())
    if file is not None:
        with file.open("a") as lines:
            print(json.dumps({"key": key, "name": name, "points": [vars(point) for point in points]}), file=lines)
    return points


def point(name: str, image: Pixels, method: str, size: int, decoded: Any, setting: float | None = None) -> Point:
    """Return what `size` bytes of a method decode to, as a point."""
    quality = metrics.psnr(image, decoded), metrics.ssim(image, decoded)
    return Point(name, method, 8 * size / (image.shape[0] * image.shape[1]), *quality, setting)


def budgets(image: Pixels) -> list[int]:
    """Return the bytes of an image at each rate."""
    return [int(rate * image.shape[0] * image.shape[1] / 8) for rate in RATES]


def our_points(name: str, image: Pixels) -> Iterator[Point]:
    """Yield what our stream decodes to at each rate that it reaches, without and with the network."""
    stream = compress_images([image])
    for budget in budgets(image):
        if budget >= stream_info(stream).header_bytes:
            yield point(name, image, OURS, budget, decompress_images(stream[:budget])[0])
            yield point(name, image, REFINED, budget, decompress_images(stream[:budget], refiner=refiner())[0])


def codec_points(name: str, image: Pixels, codecs: dict[str, Codec]) -> Iterator[Point]:
    """Yield what each codec decodes to at each setting, and what truncated files do at each rate."""
    pixels = image.shape[0] * image.shape[1]
    for codec in codecs.values():
        for setting in SETTINGS[codec.name]:
            file = codec.encode(image, setting)
            yield point(name, image, codec.name, len(file), decode(file), setting)
            if 8 * len(file) > MOST * pixels:
                break
    files = [CODECS["progressive JPEG"].encode(image, quality) for quality in TRUNCATED_QUALITIES]
    for budget in budgets(image):
        decoded = [some for some in (decode_truncated(file[:budget], image) for file in files) if some is not None]
        if decoded:
            best = max(decoded, key=lambda some: metrics.psnr(image, some))
            yield point(name, image, TRUNCATED, budget, best)


@cache
def refiner() -> Refiner:
    """Return the refiner that ships with Nestcode, for one thread."""
    return Refiner.load(threads=1)


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


def curve(points: list[Point], image: str, method: str, quality: str) -> tuple[list[float], list[float]]:
    """Return the rates and qualities of a method on an image, of those points where quality rises with the rate."""
    best: list[tuple[float, float]] = []
    for point in sorted((p for p in points if (p.image, p.method) == (image, method)), key=lambda p: p.bpp):
        value = getattr(point, quality)
        if not best or (point.bpp > best[-1][0] and value > best[-1][1]):
            best.append((point.bpp, value))
    return [rate for rate, _ in best], [value for _, value in best]


def at_rate(points: list[Point], image: str, method: str, quality: str, rate: float) -> float | None:
    """Return the quality at a rate, interpolated over the logarithm of the rate; None outside of the method's rates."""
    rates, values = curve(points, image, method, quality)
    if not rates or not rates[0] <= 1.001 * rate or not rate <= 1.001 * rates[-1]:
        return None
    return float(np.interp(np.log(rate), np.log(rates), values))


def mean_at(points: list[Point], method: str, quality: str, rate: float) -> float | None:
    """Return the mean quality over all images at a rate, if the method reaches it on all of them."""
    images = dict.fromkeys(point.image for point in points)
    values = [at_rate(points, image, method, quality, rate) for image in images]
    reached = [value for value in values if value is not None]
    return float(np.mean(reached)) if len(reached) == len(values) else None


def table(points: list[Point], quality: str) -> list[dict[str, Any]]:
    """Return a row for each method, with a column for each rate."""
    places = 2 if quality == "psnr" else 4
    rows = []
    for method in dict.fromkeys(point.method for point in points):
        values = {f"{rate:g}": mean_at(points, method, quality, rate) for rate in RATES}
        cells = {rate: "-" if value is None else f"{value:.{places}f}" for rate, value in values.items()}
        rows.append({"method": method, **cells})
    return rows


def compare(points: list[Point], ours: str, method: str, speed: tuple[float, float] | None) -> dict[str, Any]:
    """Return our BD-rate against a method by both qualities, and the method's speed."""
    rates = {name: bd_rate(points, ours, method, name) for name in ("psnr", "ssim")}
    shown = {name: "-" if value is None or method == ours else f"{value:+.1%}" for name, value in rates.items()}
    encode, decode = ("-", "-") if speed is None else (f"{speed[0]:.1f}", f"{speed[1]:.1f}")
    return {
        "method": method, "PSNR, ours less theirs": gains(points, ours, method), "BD-rate, PSNR": shown["psnr"],
        "BD-rate, SSIM": shown["ssim"], "encode MB/s": encode, "decode MB/s": decode,
    }  # fmt: skip


def gains(points: list[Point], ours: str, method: str) -> str:
    """Return the smallest and the largest difference in PSNR over all images and rates up to 0.5 bpp."""
    differences = []
    for image in dict.fromkeys(point.image for point in points):
        for rate in RATES:
            both = [at_rate(points, image, one, "psnr", rate) for one in (ours, method)]
            if rate <= 0.5 and both[0] is not None and both[1] is not None:
                differences.append(both[0] - both[1])
    return f"{min(differences):+.2f} to {max(differences):+.2f} dB" if differences and method != ours else "-"


def bd_rate(points: list[Point], ours: str, method: str, quality: str) -> float | None:
    """Return our BD-rate against a method, mean over the images where both curves overlap."""
    rates = []
    for image in dict.fromkeys(point.image for point in points):
        with suppress(InvalidInput):  # too few points, or no common quality
            rates.append(metrics.bd_rate(*curve(points, image, ours, quality), *curve(points, image, method, quality)))
    return float(np.mean(rates)) if rates else None


def time_all(
    images: dict[str, Pixels], codecs: dict[str, Codec], points: list[Point], rounds: int
) -> dict[str, tuple[float, float]]:
    """Return the MB/s of encoding and decoding all images at about the same rate, by method."""
    ours, raw = ImageCodec.load(), sum(image.nbytes for image in images.values())
    jobs: dict[str, Callable[[], object]] = {}
    limits = [(image, int(TIMED * image.shape[0] * image.shape[1] / 8)) for image in images.values()]
    streams = [(ours.encode(image, limit), image.shape) for image, limit in limits]
    jobs[f"encode {OURS}"] = lambda: [ours.encode(image, limit) for image, limit in limits]
    jobs[f"decode {OURS}"] = lambda: [ours.decode(stream, shape) for stream, shape in streams]
    jobs[f"decode {REFINED}"] = lambda: [decode_refined(ours, stream, shape) for stream, shape in streams]
    for codec in codecs.values():
        chosen = [(image, nearest(points, name, codec.name)) for name, image in images.items()]
        files = [codec.encode(image, setting) for image, setting in chosen]
        jobs[f"encode {codec.name}"] = lambda codec=codec, chosen=chosen: [codec.encode(*one) for one in chosen]  # type: ignore[misc]
        jobs[f"decode {codec.name}"] = lambda files=files: [decode(file) for file in files]  # type: ignore[misc]
    seconds = seconds_each(jobs, rounds, clock=time.process_time)
    seconds[f"encode {REFINED}"] = seconds[f"encode {OURS}"]  # of the same stream
    names = (OURS, REFINED, *codecs)
    return {name: (raw / 1e6 / seconds[f"encode {name}"], raw / 1e6 / seconds[f"decode {name}"]) for name in names}


def time_streams(images: list[Pixels], rounds: int) -> list[dict[str, Any]]:
    """Return the MB/s of compressing images to a rate, to a quality and whole, into a stream each or into one."""
    jobs: dict[str, Callable[[], object]] = {
        f"bpp={TIMED:g}, a stream each": lambda: [compress_images([image], bpp=TIMED) for image in images],
        f"bpp={TIMED:g}, one stream": lambda: compress_images(images, bpp=TIMED),
        "psnr=35, a stream each": lambda: [compress_images([image], psnr=35) for image in images],
        "whole, a stream each": lambda: [compress_images([image]) for image in images],
    }
    raw = sum(image.nbytes for image in images)
    seconds = seconds_each(jobs, rounds, clock=time.process_time)
    return [{"target": name, "encode MB/s": raw / 1e6 / seconds[name]} for name in jobs]


def time_threads(images: list[Pixels], rounds: int) -> list[dict[str, Any]]:
    """Return the MB/s of a stream of copies of images by one thread and by two."""
    many = [np.ascontiguousarray(np.roll(image, 40 * copy, axis=1)) for copy in range(4) for image in images]
    stream, counts = compress_images(many, bpp=TIMED), (1, 2)
    jobs: dict[str, Callable[[], object]] = {}
    for count in counts:
        jobs[f"encode {count}"] = partial(compress_images, many, bpp=TIMED, threads=count)
        jobs[f"decode {count}"] = partial(decompress_images, stream, threads=count)
        jobs[f"decode refined {count}"] = partial(decompress_images, stream, refiner=refiner(), threads=count)
    seconds = seconds_each(jobs, rounds)
    size = sum(image.nbytes for image in many) / 1e6
    kinds = ("encode", "decode", "decode refined")
    return [{"threads": n, **{f"{kind} MB/s": size / seconds[f"{kind} {n}"] for kind in kinds}} for n in counts]


def decode_refined(codec: ImageCodec, stream: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an image as the learned decoder reads it."""
    decoder = ImageDecoder(codec, shape)
    decoder.feed(stream)
    return decoder.image(refiner())


def nearest(points: list[Point], image: str, method: str) -> float:
    """Return the setting of a codec whose rate is nearest to the one that is timed."""
    own = [point for point in points if (point.image, point.method) == (image, method)]
    return min(own, key=lambda point: abs(point.bpp - TIMED)).setting or 0


def draw(points: list[Point], groups: dict[str, list[str]], path: Path) -> None:
    """Draw PSNR and SSIM by bpp, a row of panels for each group of images."""
    figure = Figure(figsize=(11, 4.5 * len(groups)), layout="constrained")
    rows = figure.subplots(len(groups), 2, squeeze=False)
    for panels, (named, group) in zip(rows, groups.items(), strict=True):
        some = [point for point in points if point.image in group]
        for panel, quality, label in zip(panels, ("psnr", "ssim"), ("PSNR in dB", "SSIM of luma"), strict=True):
            for method, color in COLORS.items():
                line = [(rate, mean_at(some, method, quality, rate)) for rate in RATES]
                drawn = [(rate, value) for rate, value in line if value is not None]
                if drawn:
                    name = "nestcode, refined" if method == REFINED else method
                    panel.plot(*zip(*drawn, strict=True), "o-", color=color, markersize=3, label=name)
            panel.set(xscale="log", xlabel="bits per pixel", ylabel=label, title=named)
            panel.set_xticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
            panel.minorticks_off()
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.3)
    rows[0][0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
