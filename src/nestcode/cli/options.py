"""Options that commands share, and what `--quiet` and `--threads` do."""

import math
import os
import random
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def be_quiet(wanted: bool) -> None:
    """Print no notes, warnings and progress from now on, or do."""
    _quiet.set(wanted)


def messages() -> Console:
    """Where notes and progress go."""
    return Console(stderr=True, quiet=_quiet.get())


def limit_cores(ctx: typer.Context, threads: int | None) -> int | None:
    """Use so many processor cores until the command ends, whoever starts the threads: Nestcode, NumPy or PyTorch."""
    if threads is not None:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, random.sample(sorted(before), min(threads, len(before))))
        ctx.call_on_close(lambda: os.sched_setaffinity(0, before))
    return threads


def above_0(number: float | None) -> float | None:
    """Refuse a number that is not above 0, or none at all."""
    if number is not None and not 0 < number < math.inf:
        raise typer.BadParameter(f"it must be a number above 0, got {number:g}")
    return number


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there.")]
Threads = Annotated[
    int | None, typer.Option(min=1, callback=limit_cores, help="Processor cores to use.", show_default="all")
]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is random.")]

Data = Annotated[
    Path,
    typer.Argument(
        help="Items: a .npy, .npz or .parquet file, or a folder of images; - is standard input, as .npy.",
        show_default=False,
    ),
]
ArrayName = Annotated[
    str | None, typer.Option("--array", help="Which array of a .npz file, or which column of a .parquet file.")
]
Size = Annotated[int, typer.Option(min=1, help="Pixels of a side, where items are the images of a folder.")]
AreCodes = Annotated[
    bool, typer.Option("--codes", help="Items are packed codes, as nestcode encode writes them, not vectors.")
]
_coder = typer.Option(
    "--coder", "-c", help="A coder: a file, or cifar10-small or photos-small, which come along.", show_default=False
)
CoderName = Annotated[str, _coder]
CoderIfAny = Annotated[str | None, _coder]
