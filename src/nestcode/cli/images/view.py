"""`nestcode images view`: write one image of a stream as a PNG file, or a page that shows all of them."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from nestcode.cli.files import STANDARD, check_distinct, check_out, check_size, image_refiner, stream_file
from nestcode.cli.images.viewer import viewer_page
from nestcode.cli.options import (
    AsJson,
    Codec,
    Force,
    Limit,
    Rate,
    Refine,
    Scale,
    Threads,
    messages,
    printable,
    read_scale,
)
from nestcode.cli.streams import check_kind
from nestcode.errors import InvalidInput

SHOWN = 5  # names in an error


def view(
    stream: Annotated[Path, typer.Argument(help="A stream of images, whole or truncated; - is standard input.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output PNG file, or an HTML page with the stream and its decoder, which opens without a server.",
            show_default="the image's name with .png, beside the stream",
        ),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Name of the image, or its number from 0.", show_default="the only one")
    ] = None,
    bpp: Rate = None,
    refine: Refine = False,
    scale: Scale = "1",
    codec: Codec = None,
    limit: Limit = None,
    opened: Annotated[bool, typer.Option("--open", help="Open the file in the system's viewer.")] = False,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write one image of a stream as a PNG file, or a page that shows all images, and open it if requested."""
    from nestcode.data.images import png_paths, write_image
    from nestcode.images import ImageCodec, ImageStreamReader
    from nestcode.storage import write_atomic

    if out is not None and out.suffix.lower() == ".html":
        if image is not None or bpp is not None or refine or scale != "1" or codec is not None:
            raise typer.BadParameter(
                "a page shows all of a stream: give --image, --bpp, --refine, --scale and --codec with a PNG file"
            )
        check_out(out, force=force)
        check_distinct(out, stream)
        with stream_file(stream) as path:
            check_kind(path, images=True)
            page = viewer_page(path.read_bytes(), stream.stem)
            write_atomic(out, page.encode(errors="replace"))  # names of files may be no text
        _finish(out, {"path": str(out)}, as_json=as_json, opened=opened)
        return
    if out == STANDARD or (out is None and stream == STANDARD):
        raise typer.BadParameter("the output must be a PNG file: give -o a name")
    size = read_scale(scale, refine=refine)
    if out is not None:
        _check_target(out, stream, codec, force=force)
    chosen = None if codec is None else ImageCodec.load(codec)
    with stream_file(stream) as path:
        check_kind(path, images=True)
        with ImageStreamReader(path, chosen, bpp=bpp) as reader:
            at = _position(image, reader.names)
            name, profile = reader.names[at], reader.profiles[at]
            target = out or stream.parent / png_paths(Path(), reader.names)[at].name
            if out is None:
                _check_target(target, stream, codec, force=force)
            check_size(path, reader.nbytes, limit)
        # The network is loaded once all else was checked.
        with ImageStreamReader(path, chosen, bpp=bpp, refiner=image_refiner(refine), scale=size) as reader:
            pixels = reader[at]
        write_image(target, pixels, profile)
    about = {"path": str(target), "image": name, "shape": pixels.shape, "depth": 8 * pixels.itemsize}
    _finish(target, about, as_json=as_json, opened=opened)


def _finish(target: Path, about: dict[str, object], *, as_json: bool, opened: bool) -> None:
    """Print what was written, and open it if requested."""
    print(json.dumps(about) if as_json else target)
    if opened and not webbrowser.open(target.absolute().as_uri()):
        messages().print(f"no viewer was found to open {printable(str(target))}", soft_wrap=True, markup=False)


def _check_target(target: Path, stream: Path, codec: str | None, *, force: bool) -> None:
    """Raise if a file is no PNG file by its name, cannot be written, or is an input."""
    if target.suffix.lower() != ".png":
        raise typer.BadParameter(
            f"the output must be a PNG file or a page, got {target}: give a name that ends in .png or .html"
        )
    check_out(target, force=force)
    check_distinct(target, stream, codec)


def _position(image: str | None, names: tuple[str, ...]) -> int:
    """Return the position of an image by its name or number; by default there must be one only."""
    if image is None and len(names) == 1:
        return 0
    if image in names:
        return names.index(image)
    if image is not None and image.isdecimal() and int(image) < len(names):
        return int(image)
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    wish = "none was chosen" if image is None else f"got {image!r}"
    raise InvalidInput(
        f"--image must be one of the stream's {len(names)} images ({shown}) or its number, {wish}: give one, or "
        "decompress all of them"
    )
