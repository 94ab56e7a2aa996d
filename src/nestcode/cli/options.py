"""Options that several commands share, and the implementation of `--quiet` and `--threads`."""

import math
import os
import random
import sys
from contextvars import ContextVar
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal
from unicodedata import category

import typer
from rich.console import Console

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def set_quiet(quiet: bool) -> None:
    """Turn notes, warnings and progress bars off or on."""
    _quiet.set(quiet)


class Notes(Console):
    """A console on standard error: if its reader is gone, its output is lost and the command continues."""

    def on_broken_pipe(self) -> None:
        """Discard what is printed from now on."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def messages() -> Console:
    """Return the console for notes, warnings and progress bars: standard error."""
    return Notes(stderr=True, quiet=_quiet.get())


def printable(text: str) -> str:
    r"""Return text with control characters other than newlines escaped.

    Names and settings in a file come from whoever wrote it; raw escape sequences could control the terminal.

    >>> print(printable("red: \x1b[31m"))
    red: \x1b[31m
    """
    return "".join(
        char if char == "\n" or category(char) not in ("Cc", "Cf") else char.encode("unicode_escape").decode()
        for char in text
    )


def limit_cores(ctx: typer.Context, threads: int | None) -> int | None:
    """Pin the process to this many cores until the command ends, which limits Nestcode, NumPy and PyTorch alike."""
    if threads is not None:
        if sys.platform != "linux":
            raise typer.BadParameter("only Linux can pin a process to cores: set OMP_NUM_THREADS instead")
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, random.sample(sorted(before), min(threads, len(before))))
        ctx.call_on_close(lambda: os.sched_setaffinity(0, before))
    return threads


def file_name(text: str) -> Path:
    """Return the path of an output file; raise if its name ends as a folder's does.

    >>> file_name("images.nest").name
    'images.nest'
    """
    if text.endswith(("/", os.sep)):
        raise typer.BadParameter(f"the output must be a file, got the folder {text}: give a name in it, as {text}out")
    return Path(text)


def check_positive(number: float | None) -> float | None:
    """Raise unless a number is positive and finite."""
    if number is not None and not 0 < number < math.inf:
        raise typer.BadParameter(f"it must be a positive number, got {number:g}")
    return number


def read_scale(scale: str, *, refine: bool) -> float:
    """Return a scale as a number; raise if images are to be refined at one below 1."""
    if refine and scale != "1":
        raise typer.BadParameter(f"--refine is for images of scale 1, got --scale {scale}: leave out one of them")
    return float(Fraction(scale))


Rate = Annotated[
    float | None, typer.Option("--bpp", min=0, help="Rate in bits per pixel (bpp), on average.", show_default="all")
]
Codec = Annotated[str | None, typer.Option("--codec", "-c", help="The codec, if it is neither embedded nor shipped.")]
OnDamage = Annotated[
    Literal["error", "keep"], typer.Option(help="Fail at a damaged block, or keep the data before it.")
]
Limit = Annotated[
    int | None,
    typer.Option(min=0, help="Most bytes to decode.", show_default="1000 times the stream, at least 256 MiB"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Overwrite an existing output; inputs are never overwritten.")
]
Refine = Annotated[bool, typer.Option("--refine", help="Refine images by the learned decoder.")]
Scale = Annotated[
    Literal["1", "1/2", "1/4", "1/8"],
    typer.Option(help="Scale at which images are decoded."),
]
Threads = Annotated[
    int | None, typer.Option(min=1, callback=limit_cores, help="Number of processor cores.", show_default="all")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]

Data = Annotated[
    Path,
    typer.Argument(
        help="Items: a .npy, .npz or .parquet file, or a folder of images; - reads .npy from standard input.",
        show_default=False,
    ),
]
ArrayName = Annotated[
    str | None, typer.Option("--array", help="Name of the array in a .npz file, or of the column in a .parquet file.")
]
Size = Annotated[int, typer.Option(min=1, help="Side in pixels to which the images of a folder are resized.")]
AreCodes = Annotated[
    bool, typer.Option("--codes", help="The items are packed codes, as written by nestcode encode, not vectors.")
]
_coder = typer.Option("--coder", "-c", help="The file of a coder.", show_default=False)
CoderName = Annotated[str, _coder]
CoderIfAny = Annotated[str | None, _coder]
