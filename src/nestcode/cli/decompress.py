"""`nestcode decompress`: decode a stream, whole or truncated, to images or vectors."""

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import nestcode
from nestcode.cli.files import (
    STANDARD,
    check_distinct,
    check_out,
    check_size,
    check_space,
    image_codec,
    image_refiner,
    item_coder,
    stream_file,
    with_progress,
    write_array,
)
from nestcode.cli.options import AsJson, Refine, Scale, Threads, messages, read_scale
from nestcode.errors import InvalidInput

PNG = 4  # compression ratio of PNG files that is rarely exceeded


def decompress(
    stream: Annotated[Path, typer.Argument(help="A stream, whole or truncated; - is standard input.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for images, or .npy file for vectors. An image name.jpg is written as name.png; images with "
            "equal stems as name.jpg.png.",
        ),
    ],
    length: Annotated[
        int | None, typer.Option(min=0, help="Prefix length of vectors in bits.", show_default="all")
    ] = None,
    bpp: Annotated[
        float | None,
        typer.Option(min=0, help="Rate of images in bits per pixel (bpp), on average.", show_default="all"),
    ] = None,
    refine: Refine = False,
    scale: Scale = "1",
    coder: Annotated[
        str | None, typer.Option("--coder", "-c", help="The coder, if it is neither embedded nor shipped.")
    ] = None,
    on_damage: Annotated[
        Literal["error", "keep"], typer.Option(help="Fail at a damaged block, or keep the data before it.")
    ] = "error",
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Most bytes of pixels or values to decode.",
            show_default="1000 times the stream, at least 256 MiB",
        ),
    ] = None,
    threads: Threads = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite existing outputs; inputs are never overwritten.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decode a stream, whole or truncated anywhere after its header."""
    from nestcode.container.layout import IMAGES_MAGIC

    if out == STANDARD:
        raise typer.BadParameter("the output must be a folder or a .npy file, not standard output: give -o a name")
    with stream_file(stream) as path:
        with path.open("rb") as file:
            has_images = file.read(8) == IMAGES_MAGIC
        if length is not None and has_images:
            raise typer.BadParameter(f"--length is for vectors, got {length} with a stream of images: give --bpp")
        if bpp is not None and not has_images:
            raise typer.BadParameter(f"--bpp is for images, got {bpp:g} with a stream of vectors: give --length")
        if refine and not has_images:
            raise typer.BadParameter("--refine is for images, got a stream of vectors: leave it out")
        if scale != "1" and not has_images:
            raise typer.BadParameter(f"--scale is for images, got {scale} with a stream of vectors: leave it out")
        size = read_scale(scale, refine=refine)
        if has_images:
            how = {
                "bpp": bpp,
                "refiner": image_refiner(refine),
                "scale": size,
                "on_damage": on_damage,
            }
            written = _images(path, out, coder, force=force, limit=limit, threads=threads, **how)
        else:
            written = _items(path, out, coder, force=force, limit=limit, length=length, on_damage=on_damage)
    if as_json:
        print(json.dumps({"files": [str(path) for path in written]}))
    else:
        print(out)


def _images(
    stream: Path, out: Path, coder: str | None, *, force: bool, limit: int | None, threads: int | None, **how: Any
) -> list[Path]:
    from nestcode.data.images import png_paths, write_image
    from nestcode.images import ImageStreamReader

    if out.exists() and not out.is_dir():
        raise InvalidInput(f"images need a folder, got {out}, which is a file: choose another name")
    if out.suffix == ".npy":
        raise InvalidInput(f"images need a folder, got {out}: choose another name")
    with ImageStreamReader(stream, None if coder is None else image_codec(coder), **how) as reader:
        paths, marker = png_paths(out, reader.names), out / _marker(stream, how)
        last = marker.stat().st_ctime_ns if marker.exists() and not force else 0
        missing = [at for at, path in enumerate(paths) if not (path.is_file() and path.stat().st_ctime_ns <= last)]
        for at in missing:
            check_out(paths[at], force=force, folder=out)
            check_distinct(paths[at], stream, coder)
        check_size(stream, reader.nbytes, limit)
        check_space(out, reader.nbytes // PNG)
        reader.verify()  # before any file is written
        if not force:
            out.mkdir(exist_ok=True)
            marker.touch()
        written = len(paths) - len(missing)
        if written:
            messages().print(f"{written} of {len(paths)} images were written before.")
        try:
            decoded = zip(missing, reader.decode_some(missing, threads), strict=True)
            for at, image in with_progress(decoded, "Decoding", len(missing), messages()):
                write_image(paths[at], image, reader.profiles[at])
                if not force:
                    marker.touch()
                written += 1
        except KeyboardInterrupt:
            again = "" if force else ": run the command again to write the others"
            raise KeyboardInterrupt(f"{written} of {len(reader)} images were written{again}") from None
        marker.unlink(missing_ok=True)
        _note_unverified(reader.info.unverified)
    return paths


def _marker(stream: Path, how: dict[str, Any]) -> str:
    """Return the name of the file that marks a folder as incomplete, for one stream and the options it is decoded with.

    It is made before the first image, where none of the images exist, and touched after each. Files are written
    atomically, so those that are no newer are whole images of this stream; others wrote the newer ones. The time of
    change (ctime) tells, as `cp -p` cannot set it.
    """
    options = [nestcode.__version__, how["bpp"], how["refiner"] is not None, how["scale"], how["on_damage"]]
    with stream.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr(options).encode())
    return f".{digest.hexdigest()[:16]}.incomplete"


def _items(stream: Path, out: Path, coder: str | None, *, force: bool, limit: int | None, **how: Any) -> list[Path]:
    from nestcode.streams import StreamReader

    with StreamReader(stream, None if coder is None else item_coder(coder), **how) as reader:
        if out.suffix != ".npy":
            raise InvalidInput(f"vectors need a .npy file, got {out}: give a name that ends in .npy")
        check_out(out, force=force)
        check_distinct(out, stream, coder)
        size = len(reader) * math.prod(reader.shape) * reader.dtype.itemsize
        check_size(stream, size, limit)
        check_space(out, size)
        total = -(-len(reader) // 1024)
        pieces = with_progress(reader.batches(), "Decoding", total, messages())
        write_array(out, reader.dtype, (len(reader), *reader.shape), pieces)
        _note_unverified(reader.info.unverified)
    return [out]


def _note_unverified(count: int) -> None:
    if count:
        messages().print(f"The stream is truncated: its last {count:,} bytes have no checksum.", soft_wrap=True)
