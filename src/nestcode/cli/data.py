"""`nestcode data`: fetch data sets."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def data(
    name: Annotated[Literal["cifar10"], typer.Argument(help="Which data set.")],
    to: Annotated[Path, typer.Option(help="Folder to put it into.")] = Path("data"),
    source: Annotated[
        Path | None, typer.Option("--from", help="A local copy of the official archive; by default it is downloaded.")
    ] = None,
) -> None:
    """Fetch a data set, check it byte for byte and lay it out for the other commands."""
    from nestcode.data import fetch_cifar10

    assert name == "cifar10"
    with Console(stderr=True).status("Fetching CIFAR-10 (170 MB)"):
        print(fetch_cifar10(to, source))
