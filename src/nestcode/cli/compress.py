"""`nestcode compress`: compress images or vectors to an embedded bitstream that can be truncated."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from nestcode.cli.files import STANDARD, check_output, image_codec, item_coder, out_file, read_array, with_progress
from nestcode.cli.options import AsJson, Force, Threads, check_positive, file_name, messages, printable
from nestcode.errors import DamagedFile, InvalidInput, NestcodeError

if TYPE_CHECKING:
    from nestcode.data import ImageFiles

UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}
LARGEST = 1 << 62  # bytes of a budget
WIDTH = 256  # bits of a vector when a coder is fitted here
PIECE = 1 << 16  # vectors encoded at a time
HEADER = 1024  # bytes of a stream's header and checksums, at least
SHOWN = 3  # names of skipped files


def compress(
    inputs: Annotated[list[Path], typer.Argument(help="Images, folders of images, or one .npy file of vectors.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", parser=file_name, metavar="FILE", help="Output stream; - is standard output."),
    ],
    coder: Annotated[
        str | None,
        typer.Option(
            "--coder", "-c", help="The coder: a file or a shipped one.", show_default="photos; for vectors --fit"
        ),
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit a coder to these inputs, and embed it.")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Embed the coder in the stream.")] = False,
    length: Annotated[int | None, typer.Option(min=0, help="Prefix length of vectors in bits.")] = None,
    bpp: Annotated[
        float | None,
        typer.Option(
            callback=check_positive, help="Rate of images in bits per pixel (bpp), on average, without headers."
        ),
    ] = None,
    tune: Annotated[
        Literal["psnr", "ssim"] | None,
        typer.Option(help="Metric to optimize for images; ssim spends fewer bits on colors.", show_default="psnr"),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Size of the stream in bytes, such as 2MB.")] = None,
    psnr: Annotated[float | None, typer.Option(help="PSNR of each image, in dB.")] = None,
    ssim: Annotated[float | None, typer.Option(help="SSIM of the luma of each image, below 1.")] = None,
    lossless: Annotated[bool, typer.Option("--lossless", help="Keep images bit for bit.")] = False,
    max_error: Annotated[
        float | None, typer.Option(callback=check_positive, help="Mean squared error of vectors.")
    ] = None,
    entropy: Annotated[bool, typer.Option("--entropy", help="Entropy code the bits of vectors.")] = False,
    profiles: Annotated[bool, typer.Option(help="Keep the ICC profiles of images.")] = True,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Skip images that cannot be read.")] = False,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compress images or vectors to a stream. Every prefix that includes its header decodes.

    Images keep 16 bits per channel and their ICC profiles, and are rotated by their EXIF orientation. One of --bpp,
    --budget, --psnr and --ssim truncates them, or --lossless keeps them bit for bit; --length, --budget and --max-error
    truncate vectors.
    """
    if fit and coder is not None:
        raise typer.BadParameter("--fit and --coder exclude each other: leave out --coder, or --fit")
    from nestcode.streams import stream_info

    bytes_kept = None if budget is None else read_bytes(budget)
    vectors = [path for path in inputs if path.suffix == ".npy"]
    if vectors and len(inputs) > 1:
        raise typer.BadParameter(
            f"vectors must be one .npy file, got {len(inputs)} inputs: compress each to its own stream"
        )
    if entropy and not vectors:
        raise typer.BadParameter("--entropy is for vectors: images are always entropy coded")
    if tune is not None and vectors:
        raise typer.BadParameter(f"--tune is for images, got {tune} with vectors: leave it out")
    rates = {"--bpp": bpp, "--budget": budget, "--psnr": psnr, "--ssim": ssim}
    given = [name for name, value in rates.items() if value is not None] + ["--lossless"] * lossless
    for name, value in {"--length": length, "--max-error": max_error}.items():
        if value is not None and not vectors:
            from nestcode.arrays import shown

            given_as = shown(value).removesuffix(".0")
            raise typer.BadParameter(
                f"{name} is for vectors, got {given_as} with images: give one of {', '.join(rates)}"
            )
    if vectors and given not in ([], ["--budget"]):
        raise typer.BadParameter(
            f"{given[0]} is for images, got it with vectors: give --length, --budget or --max-error"
        )
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other: give one of them")
    check_output(out, *inputs, coder, force=force, as_json=as_json)
    shared: dict[str, Any] = {"fit": fit, "embed": embed, "budget": bytes_kept}
    with out_file(out) as path:
        if vectors:
            sizes = _compress_vectors(
                vectors[0], path, coder, entropy=entropy, length=length, max_error=max_error, **shared
            )
        else:
            kept: dict[str, Any] = {
                "bpp": bpp,
                "psnr": psnr,
                "ssim": ssim,
                "profiles": profiles,
                "tune": tune or "psnr",
                "lossless": lossless,
            }
            sizes = _compress_images(inputs, path, coder, skip_damaged=skip_damaged, threads=threads, **kept, **shared)
        raw, in_files, in_coder = sizes
        after = path.stat().st_size
        header = stream_info(path.read_bytes()).header_bytes if after > in_files else 0
    if as_json:
        facts = {
            "path": str(out), "bytes": after, "raw_bytes": raw, "file_bytes": in_files, "coder_bytes": in_coder,
            "ratio": raw / after,
        }  # fmt: skip
        print(json.dumps(facts))
    else:
        messages().print(_summary(raw, in_files, after, in_coder, header), soft_wrap=True)
        if out != STANDARD:
            print(out)


def _summary(raw: int, files: int, stream: int, coder: int, header: int) -> str:
    """Return a line that compares sizes in bytes: of raw values, input files, stream, embedded coder and header."""
    line = f"{raw:,} bytes raw, {files:,} in files, {stream:,} in the stream"
    if coder:
        line += f", {'most' if 2 * coder > stream else 'some'} of it the embedded coder ({coder:,} bytes)"
    if stream > files and header >= files:  # the header includes the coder
        remedy = "embed no coder" if header - coder < files else "keep them, or put more into one stream"
        line += f"; that is more than the files, as is the header alone ({header:,} bytes): {remedy}"
    elif stream > files:
        line += "; that is more than the files: keep fewer bytes, as by --budget"
    return f"{line}."


def _compress_images(
    inputs: Sequence[Path],
    out: Path,
    coder: str | None,
    *,
    fit: bool,
    embed: bool,
    skip_damaged: bool,
    profiles: bool,
    threads: int | None,
    **rate: Any,
) -> tuple[int, int, int]:
    """Return how many bytes the pixels take, their files take, and the embedded codec takes."""
    from nestcode.data import ImageFiles
    from nestcode.images import ImageCodec, ImageStreamWriter
    from nestcode.storage import record_bytes

    console = messages()
    files = ImageFiles(inputs)
    if files.skipped:
        _note_skipped(files.skipped, console)
    chosen = ImageCodec.load() if coder is None else image_codec(coder)
    inside = len(record_bytes(chosen.to_record())) if embed or fit else 0  # the size does not depend on the fit
    budget = rate["budget"]
    if budget is not None and inside > budget:
        raise InvalidInput(
            f"budget must leave room for the coder of {inside:,} bytes, got {budget:,}: raise it, or leave out "
            f"{'--fit' if fit else '--embed'}"
        )
    if fit:
        chosen = ImageCodec().fit(_Readable(files, "Training", console, skip_damaged=skip_damaged))
    before = in_files = 0
    with ImageStreamWriter(out, chosen, embed=embed or fit, **rate) as writer:
        readable = _Readable(files, "Encoding", console, skip_damaged=skip_damaged)

        def named() -> Iterator[tuple[str, Any, bytes]]:
            nonlocal before, in_files
            for image in readable:
                before += image.nbytes
                in_files += files.paths[readable.at].stat().st_size
                yield files.names[readable.at], image, files.profile(readable.at) if profiles else b""

        writer.add_all(named(), threads)
        for error in readable.errors:
            console.print(f"skipped: {escape(printable(str(error)))}", soft_wrap=True)
        if not before:
            raise InvalidInput("at least one image must be readable, got none: check the files")
    return before, in_files, inside


def _note_skipped(paths: Sequence[Path], console: Console) -> None:
    shown = ", ".join(path.name for path in paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
    files = "1 file that is" if len(paths) == 1 else f"{len(paths)} files that are"
    console.print(f"skipped {files} not in a supported image format: {escape(printable(shown))}", soft_wrap=True)


def _compress_vectors(
    path: Path,
    out: Path,
    coder: str | None,
    *,
    fit: bool,
    embed: bool,
    entropy: bool,
    length: int | None,
    budget: int | None,
    max_error: float | None,
) -> tuple[int, int, int]:
    """Return how many bytes the vectors take, their file takes, and the embedded coder takes."""
    import numpy as np

    import nestcode
    from nestcode.storage import record_bytes
    from nestcode.streams import StreamWriter
    from nestcode.streams.items import as_items

    console = messages()
    items = read_array(path)
    as_items(items[:0], math.prod(items.shape[1:]))  # raises before any work if the type is wrong
    if budget is not None and budget < HEADER:
        raise InvalidInput(
            f"budget must leave room for the header and the coder, at least {HEADER} bytes, got {budget}: raise it"
        )
    if coder is None:
        fit = True
        with console.status(f"Fitting a coder of {length or WIDTH} bits"):
            chosen: nestcode.coders.Coder = nestcode.fit(
                items.reshape(len(items), -1), width=length or WIDTH, goal="distortion"
            )
    else:
        chosen = item_coder(coder)
    inside = len(record_bytes(chosen.to_record())) if embed or fit else 0
    if budget is not None:
        start = HEADER + 24 * (chosen.width_ // 64) + inside
        room = 8 * ((budget - start) * 1024 // 1025 // len(items))  # bits of an item, in whole bytes
        if room < 0:
            smaller = f", a --length below {chosen.width_}, or a --coder that receivers have" if inside else ""
            raise InvalidInput(
                f"budget must leave room for the header and the coder, about {start:,} bytes, got {budget:,}: "
                f"raise it{smaller}"
            )
        length = min(chosen.width_ if length is None else length, room)
    if max_error is not None:
        enough = [k for k in range(chosen.width_ + 1) if chosen.expected_error(k) <= max_error]
        if not enough:
            raise InvalidInput(
                f"max_error must be at least {chosen.expected_error(chosen.width_):.3g}, the expected error of all "
                f"{chosen.width_} bits, got {max_error:g}: raise it, or fit a wider coder by --length"
            )
        length = enough[0] if length is None else min(length, enough[0])
    with StreamWriter(out, chosen, embed=embed or fit, entropy=entropy, length=length) as writer:
        starts = range(0, len(items), PIECE)
        for first in with_progress(starts, "Encoding", len(starts), console):
            writer.add(np.asarray(items[first : first + PIECE]))
    return int(items.nbytes), path.stat().st_size, inside


class _Readable(Sequence[Any]):
    """Images with a progress bar, without unreadable ones if these are to be skipped."""

    def __init__(self, files: "ImageFiles", title: str, console: Console, *, skip_damaged: bool) -> None:
        self._files, self._title, self._console, self._skip = files, title, console, skip_damaged
        self.at = 0  # the position of the last one
        self.errors: list[NestcodeError | OSError] = []  # of those that were skipped

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: Any) -> Any:
        return self._files[number]

    def __iter__(self) -> Iterator[Any]:
        from nestcode.images.format import check_name

        for number in with_progress(range(len(self)), self._title, len(self), self._console):
            self.at = number
            try:
                check_name(self._files.names[number])
                image = self._files[number]
            except (DamagedFile, InvalidInput, OSError) as error:
                if not self._skip:
                    raise type(error)(f"{error}; --skip-damaged skips it") from error
                self.errors.append(error)
            else:
                yield image


def read_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 2MB stands for.

    >>> read_bytes("2MB"), read_bytes("64 KiB"), read_bytes("100")
    (2000000, 65536, 100)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = float(found[1]) * UNITS.get(found[2].upper(), math.nan) if found else math.nan
    if not size < LARGEST:  # as NaN is not
        raise typer.BadParameter(f"budget must be a number of bytes such as 2MB or 64KiB, got {text[:40]!r}")
    return int(size)
