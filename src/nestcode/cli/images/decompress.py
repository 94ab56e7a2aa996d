"""`nestcode images decompress`: decode a stream of images, whole or truncated."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

import nestcode
from nestcode.cli.files import (
    STANDARD,
    check_distinct,
    check_out,
    check_size,
    check_space,
    image_refiner,
    stream_file,
    with_progress,
)
from nestcode.cli.options import AsJson, Codec, Limit, OnDamage, Rate, Refine, Scale, Threads, messages, read_scale
from nestcode.cli.streams import check_kind, note_unverified
from nestcode.errors import InvalidInput

PNG = 4  # compression ratio of PNG files that is rarely exceeded


def decompress(
    stream: Annotated[Path, typer.Argument(help="A stream of images, whole or truncated; - is standard input.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="A folder. An image name.jpg is written as name.png; images with equal stems as name.jpg.png.",
        ),
    ],
    bpp: Rate = None,
    refine: Refine = False,
    scale: Scale = "1",
    codec: Codec = None,
    on_damage: OnDamage = "error",
    limit: Limit = None,
    threads: Threads = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite existing outputs; inputs are never overwritten.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decode a stream of images, whole or truncated anywhere after its header, to PNG files."""
    if out == STANDARD:
        raise typer.BadParameter("the output must be a folder, not standard output: give -o a name")
    size = read_scale(scale, refine=refine)
    with stream_file(stream) as path:
        check_kind(path, images=True)
        how = {"bpp": bpp, "refiner": image_refiner(refine), "scale": size, "on_damage": on_damage}
        written = _decompress(path, out, codec, force=force, limit=limit, threads=threads, **how)
    print(json.dumps({"files": [str(path) for path in written]}) if as_json else out)


def _decompress(
    stream: Path, out: Path, codec: str | None, *, force: bool, limit: int | None, threads: int | None, **how: Any
) -> list[Path]:
    from nestcode.data.images import png_paths, write_image
    from nestcode.images import ImageCodec, ImageStreamReader

    if out.exists() and not out.is_dir():
        raise InvalidInput(f"images need a folder, got {out}, which is a file: choose another name")
    if out.suffix == ".npy":
        raise InvalidInput(f"images need a folder, got {out}: choose another name")
    with ImageStreamReader(stream, None if codec is None else ImageCodec.load(codec), **how) as reader:
        paths, marker = png_paths(out, reader.names), out / _marker(stream, how)
        last = marker.stat().st_ctime_ns if marker.exists() and not force else 0
        missing = [at for at, path in enumerate(paths) if not (path.is_file() and path.stat().st_ctime_ns <= last)]
        for at in missing:
            check_out(paths[at], force=force, folder=out)
            check_distinct(paths[at], stream, codec)
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
        note_unverified(reader.info.unverified)
    return paths


def _marker(stream: Path, how: dict[str, Any]) -> str:
    """Return the name of the file that marks a folder as incomplete, for one stream and the options it is decoded with.

    It is made before the first image, where none of the images exist, and touched after each. Files are written
    atomically, so files that are no newer are whole images of this stream, and another command wrote newer
    files. The time of change (ctime) tells, as `cp -p` cannot set it.
    """
    options = [nestcode.__version__, how["bpp"], how["refiner"] is not None, how["scale"], how["on_damage"]]
    with stream.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr(options).encode())
    return f".{digest.hexdigest()[:16]}.incomplete"
