"""`nestcode images compress`: compress images to an embedded bitstream that can be truncated."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from nestcode.cli.files import check_output, out_file, with_progress
from nestcode.cli.options import AsJson, Force, Threads, check_positive, file_name, messages, printable
from nestcode.cli.streams import Sizes, read_bytes
from nestcode.errors import DamagedFile, InvalidInput, NestcodeError

if TYPE_CHECKING:
    from nestcode.data import ImageFiles

SHOWN = 3  # names of skipped files


def compress(
    inputs: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", parser=file_name, metavar="FILE", help="Output stream; - is standard output."),
    ],
    bpp: Annotated[
        float | None,
        typer.Option(callback=check_positive, help="Rate in bits per pixel (bpp), on average, without headers."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Size of the stream in bytes, such as 2MB.")] = None,
    psnr: Annotated[float | None, typer.Option(help="PSNR of each image, in dB.")] = None,
    ssim: Annotated[float | None, typer.Option(help="SSIM of the luma of each image, below 1.")] = None,
    lossless: Annotated[bool, typer.Option("--lossless", help="Keep images bit for bit.")] = False,
    tune: Annotated[
        Literal["psnr", "ssim"], typer.Option(help="Metric to optimize; ssim spends fewer bits on colors.")
    ] = "psnr",
    profiles: Annotated[bool, typer.Option(help="Keep the ICC profiles.")] = True,
    codec: Annotated[
        str | None, typer.Option("--codec", "-c", help="A codec: a file or a shipped one.", show_default="photos")
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Train a codec on these images, and embed it.")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Embed the codec in the stream.")] = False,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Skip images that cannot be read.")] = False,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compress images to a stream. Every prefix that includes its header decodes.

    Images keep 16 bits per channel and their ICC profiles, and are rotated by their EXIF orientation. Give at most one
    of --bpp, --budget, --psnr, --ssim and --lossless.
    """
    if fit and codec is not None:
        raise typer.BadParameter("--fit and --codec exclude each other: leave out --codec, or --fit")
    bytes_kept = None if budget is None else read_bytes(budget)
    if vectors := [path for path in inputs if path.suffix == ".npy"]:
        raise typer.BadParameter(f"inputs must be images, got {vectors[0]}: for vectors give nestcode compress")
    rates = {"--bpp": bpp, "--budget": budget, "--psnr": psnr, "--ssim": ssim}
    given = [name for name, value in rates.items() if value is not None] + ["--lossless"] * lossless
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other: give one of them")
    _check_rate(bpp=bpp, budget=bytes_kept, psnr=psnr, ssim=ssim)
    check_output(out, *inputs, codec, force=force, as_json=as_json)
    rate: dict[str, Any] = {
        "bpp": bpp, "budget": bytes_kept, "psnr": psnr, "ssim": ssim, "lossless": lossless, "tune": tune,
    }  # fmt: skip
    with out_file(out) as path:
        sizes = _compress(
            inputs, path, codec, fit=fit, embed=embed, skip_damaged=skip_damaged, profiles=profiles, threads=threads,
            **rate,
        )  # fmt: skip
        sizes.report(out, path, as_json=as_json)


def _check_rate(**rate: Any) -> None:
    """Refuse a rate that no image can have, as a part of the command line."""
    from nestcode.images.stream import Target

    try:
        Target(**rate)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None


def _compress(
    inputs: Sequence[Path],
    out: Path,
    codec: str | None,
    *,
    fit: bool,
    embed: bool,
    skip_damaged: bool,
    profiles: bool,
    threads: int | None,
    **rate: Any,
) -> Sizes:
    from nestcode.data import ImageFiles
    from nestcode.images import ImageCodec, ImageStreamWriter
    from nestcode.storage import record_bytes

    console = messages()
    files = ImageFiles(inputs)
    if files.skipped:
        _note_skipped(files.skipped, console)
    chosen = ImageCodec.load("photos" if codec is None else codec)
    inside = len(record_bytes(chosen.to_record())) if embed or fit else 0  # the size does not depend on the fit
    budget = rate["budget"]
    if budget is not None and inside > budget:
        raise InvalidInput(
            f"budget must leave room for the codec of {inside:,} bytes, got {budget:,}: raise it, or leave out "
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
    return Sizes(before, in_files, inside)


def _note_skipped(paths: Sequence[Path], console: Console) -> None:
    shown = ", ".join(path.name for path in paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
    files = "1 file that is" if len(paths) == 1 else f"{len(paths)} files that are"
    console.print(f"skipped {files} not in a supported image format: {escape(printable(shown))}", soft_wrap=True)


class _Readable(Sequence[Any]):
    """Images with a progress bar, without unreadable ones if these are to be skipped."""

    def __init__(self, files: "ImageFiles", title: str, console: Console, *, skip_damaged: bool) -> None:
        self._files, self._title, self._console, self._skip = files, title, console, skip_damaged
        self.at = 0  # the position of the last one
        self.errors: list[NestcodeError | OSError] = []  # of skipped images

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
