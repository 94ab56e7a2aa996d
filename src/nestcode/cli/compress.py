"""`nestcode compress`: compress vectors to an embedded bitstream that can be truncated."""

import math
from pathlib import Path
from typing import Annotated

import typer

from nestcode.cli.files import check_output, item_coder, out_file, read_array, with_progress
from nestcode.cli.options import AsJson, Force, Threads, check_positive, file_name, messages
from nestcode.cli.streams import Sizes, read_bytes
from nestcode.errors import InvalidInput

WIDTH = 256  # bits of a vector when a coder is fitted here
PIECE = 1 << 16  # vectors encoded at a time
HEADER = 1024  # bytes of a stream's header and checksums, at least


def compress(
    data: Annotated[Path, typer.Argument(help="A .npy file of vectors.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", parser=file_name, metavar="FILE", help="Output stream; - is standard output."),
    ],
    coder: Annotated[
        str | None,
        typer.Option("--coder", "-c", help="The file of a coder.", show_default="fitted to the vectors and embedded"),
    ] = None,
    embed: Annotated[bool, typer.Option("--embed", help="Embed the coder in the stream.")] = False,
    length: Annotated[int | None, typer.Option(min=0, help="Prefix length in bits.", show_default="all")] = None,
    budget: Annotated[str | None, typer.Option(help="Size of the stream in bytes, such as 2MB.")] = None,
    max_error: Annotated[
        float | None, typer.Option(callback=check_positive, help="Largest mean squared error.")
    ] = None,
    entropy: Annotated[bool, typer.Option("--entropy", help="Entropy code the bits.")] = False,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compress vectors to a stream. Every prefix that includes its header decodes.

    The options --length, --budget and --max-error truncate the codes; the smallest prefix counts. For images see
    nestcode images compress.
    """
    bytes_kept = None if budget is None else read_bytes(budget)
    if data.suffix != ".npy":
        raise typer.BadParameter(f"vectors must be one .npy file, got {data}: for images give nestcode images compress")
    check_output(out, data, coder, force=force, as_json=as_json)
    with out_file(out) as path:
        sizes = _compress(
            data, path, coder, embed=embed, entropy=entropy, length=length, budget=bytes_kept, max_error=max_error
        )
        sizes.report(out, path, as_json=as_json)


def _compress(
    path: Path,
    out: Path,
    coder: str | None,
    *,
    embed: bool,
    entropy: bool,
    length: int | None,
    budget: int | None,
    max_error: float | None,
) -> Sizes:
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
        embed = True
        with console.status(f"Fitting a coder of {length or WIDTH} bits"):
            chosen: nestcode.coders.Coder = nestcode.fit(
                items.reshape(len(items), -1), width=length or WIDTH, goal="distortion"
            )
    else:
        chosen = item_coder(coder)
    inside = len(record_bytes(chosen.to_record())) if embed else 0
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
    with StreamWriter(out, chosen, embed=embed, entropy=entropy, length=length) as writer:
        starts = range(0, len(items), PIECE)
        for first in with_progress(starts, "Encoding", len(starts), console):
            writer.add(np.asarray(items[first : first + PIECE]))
    return Sizes(int(items.nbytes), path.stat().st_size, inside)
