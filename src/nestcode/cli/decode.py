"""`nestcode decode`: decode packed codes, or their prefixes, to vectors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from nestcode.cli.files import (
    STANDARD,
    check_array_name,
    check_output,
    check_space,
    item_coder,
    out_file,
    with_progress,
    write_array,
)
from nestcode.cli.options import AsJson, CoderName, Force, Threads, messages
from nestcode.errors import InvalidInput


def decode(
    codes: Annotated[
        Path,
        typer.Argument(
            help="Packed codes: a .npy file that nestcode encode wrote; - is standard input.", show_default=False
        ),
    ],
    coder: CoderName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output .npy file of vectors; - is standard output.")],
    length: Annotated[int | None, typer.Option(min=0, help="Prefix length in bits.", show_default="all")] = None,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Decode packed codes to rows of float32; shorter prefixes give coarser vectors.

    Give the coder that encoded them: codes do not name it, and another coder decodes them to something else.
    """
    check_output(out, codes, coder, force=force, as_json=as_json)
    check_array_name(out)
    from nestcode.cli.inputs import PIECE, code_width, read_packed
    from nestcode.codes import Codes

    chosen = item_coder(coder)
    packed = read_packed(codes)
    width, features = code_width(codes, packed, chosen.width_), chosen.n_features_in_
    kept = width if length is None else length
    if kept > width:
        raise InvalidInput(
            f"length must be at most the {width} bits of the codes in {codes}, got {kept}: give a shorter one"
        )
    if out != STANDARD:
        check_space(out, 4 * len(packed) * features)
    step = max(PIECE // features, 1)
    starts = with_progress(range(0, len(packed), step), "Decoding", -(-len(packed) // step), messages())
    pieces = (chosen.decode(Codes(packed[first : first + step], width).prefix(kept)) for first in starts)
    with out_file(out) as path:
        write_array(path, "<f4", (len(packed), features), pieces)
    if as_json:
        print(json.dumps({"path": str(out), "count": len(packed), "features": features, "length": kept}))
    elif out != STANDARD:
        print(out)
