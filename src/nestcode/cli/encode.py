"""`nestcode encode`: encode items as packed codes."""

import json
from pathlib import Path
from typing import Annotated

import typer

from nestcode.cli.files import STANDARD, check_array_name, check_output, item_coder, out_file, write_array
from nestcode.cli.options import ArrayName, AsJson, CoderName, Data, Force, Size, Threads
from nestcode.errors import InvalidInput


def encode(
    data: Data,
    coder: CoderName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output .npy file of codes; - is standard output.")],
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Prefix length in bits: a multiple of 8.", show_default="the coder's width"),
    ] = None,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Encode items as packed codes: one row of bytes (uint8) per item, as np.packbits packs bits.

    The file does not store the width: the coder knows how many bits of the last byte are used.
    """
    check_output(out, data, coder, force=force, as_json=as_json)
    check_array_name(out)
    from nestcode.cli.inputs import open_rows, pieces_for

    chosen = item_coder(coder)
    width = chosen.width_ if length is None else length
    if width > chosen.width_ or (width % 8 and width != chosen.width_):
        raise InvalidInput(
            f"length must be the coder's width {chosen.width_} or a multiple of 8 below it, got {width}: round it up, "
            "and give decode the length"
        )
    rows = open_rows(data, array, size)
    codes = (chosen.encode(piece).prefix(width).packed for piece in pieces_for(chosen, rows, "Encoding"))
    with out_file(out) as path:
        write_array(path, "u1", (len(rows), -(-width // 8)), codes)
    if as_json:
        print(json.dumps({"path": str(out), "count": len(rows), "width": width, "bytes": out.stat().st_size}))
    elif out != STANDARD:
        print(out)
