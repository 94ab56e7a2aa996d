"""`nestcode decompress`: what arrived of a stream, as images or as an array."""

import io
import json
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track

from nestcode.errors import InvalidInput


def decompress(
    stream: Annotated[Path, typer.Argument(help="A stream, or as much of one as there is.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for images (PNG), or a .npy file for vectors.")],
    length: Annotated[
        int | None, typer.Option(min=0, help="Bits to use: of a vector, or of 32 x 32 pixels on average.")
    ] = None,
    coder: Annotated[str | None, typer.Option(help="The coder, unless it is embedded or comes along.")] = None,
    on_damage: Annotated[
        Literal["error", "keep"], typer.Option(help="Whether to decode what precedes a damaged block.")
    ] = "error",
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Decode a stream, whole or cut after any byte."""
    from nestcode.streams.format import PICTURES

    if not stream.is_file():
        raise FileNotFoundError(f"there is no file {stream}: give the path of a stream")
    with stream.open("rb") as file:
        pictures = file.read(8) == PICTURES
    decode = _pictures if pictures else _items
    written = decode(stream, out, coder, force=force, length=length, on_damage=on_damage)
    if as_json:
        print(json.dumps({"files": [str(path) for path in written]}))
    else:
        print(out)


def _pictures(stream: Path, out: Path, coder: str | None, *, force: bool, **how: Any) -> list[Path]:
    from nestcode.coders import PictureCoder
    from nestcode.data.pictures import write_picture
    from nestcode.streams import PicturesReader

    if out.is_file():
        raise InvalidInput(f"{out} must be a folder for images, but it is a file: give another name")
    with PicturesReader(stream, None if coder is None else PictureCoder.load(coder), **how) as reader:
        paths = [out / Path(name).with_suffix(".png") for name in reader.names]
        if len(set(paths)) < len(paths):
            paths = [out / f"{name}.png" for name in reader.names]
        taken = [path for path in paths if path.exists()]
        if taken and not force:
            raise InvalidInput(f"{taken[0]} is there already: give another folder, or --force to replace it")
        for number in track(range(len(reader)), "Decoding", console=Console(stderr=True), transient=True):
            write_picture(paths[number], reader[number])
    return paths


def _items(stream: Path, out: Path, coder: str | None, *, force: bool, **how: Any) -> list[Path]:
    import numpy as np

    import nestcode
    from nestcode.storage import write_pieces
    from nestcode.streams import StreamReader

    with StreamReader(stream, None if coder is None else nestcode.load_coder(coder), **how) as reader:
        if out.suffix != ".npy":
            raise InvalidInput(f"vectors go into a .npy file, got {out}: give a name that ends so")
        if out.exists() and not force:
            raise InvalidInput(f"{out} is there already: give another name, or --force to replace it")
        head = io.BytesIO()
        facts: dict[str, Any] = {
            "descr": reader.dtype.str, "fortran_order": False, "shape": (len(reader), *reader.shape),
        }  # fmt: skip
        np.lib.format.write_array_header_1_0(head, facts)
        total = -(-len(reader) // 1024)
        pieces = track(reader.pieces(), "Decoding", total=total, console=Console(stderr=True), transient=True)
        write_pieces(out, chain([head.getvalue()], (piece.tobytes() for piece in pieces)))
    return [out]
