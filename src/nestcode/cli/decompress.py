"""`nestcode decompress`: decode a stream of vectors, whole or truncated."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from nestcode.cli.files import (
    STANDARD,
    check_distinct,
    check_out,
    check_size,
    check_space,
    item_coder,
    stream_file,
    with_progress,
    write_array,
)
from nestcode.cli.options import AsJson, Force, Limit, OnDamage, Threads, messages
from nestcode.cli.streams import check_kind, note_unverified
from nestcode.errors import InvalidInput


def decompress(
    stream: Annotated[Path, typer.Argument(help="A stream of vectors, whole or truncated; - is standard input.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .npy file.")],
    length: Annotated[int | None, typer.Option(min=0, help="Prefix length in bits.", show_default="all")] = None,
    coder: Annotated[str | None, typer.Option("--coder", "-c", help="The coder, unless it is embedded.")] = None,
    on_damage: OnDamage = "error",
    limit: Limit = None,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Decode a stream of vectors, whole or truncated anywhere after its header."""
    if out == STANDARD:
        raise typer.BadParameter("the output must be a .npy file, not standard output: give -o a name")
    with stream_file(stream) as path:
        check_kind(path, images=False)
        _decompress(path, out, coder, force=force, limit=limit, length=length, on_damage=on_damage)
    print(json.dumps({"files": [str(out)]}) if as_json else out)


def _decompress(stream: Path, out: Path, coder: str | None, *, force: bool, limit: int | None, **how: Any) -> None:
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
        note_unverified(reader.info.unverified)
