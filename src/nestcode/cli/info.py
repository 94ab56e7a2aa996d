"""`nestcode info`: what is installed here and what it can use, or what a stream holds."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import nestcode
from nestcode.cli.files import stream_file

if TYPE_CHECKING:
    from nestcode.streams import Info, PicturesInfo

OPTIONAL = {"torch": "torch", "scikit-learn": "reproduce", "matplotlib": "reproduce", "pillow": "reproduce"}


def info(
    stream: Annotated[
        Path | None, typer.Argument(help="A stream, or as much of one as there is; - is standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Say what a stream holds; without one, which version this is, what the processor offers and what is installed."""
    if stream is not None:
        known = read_stream(stream)
        print(known.to_json() if as_json else known)
        return
    facts = gather()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/]", _shown(name, value))
    Console().print(table)


def read_stream(path: Path) -> "Info | PicturesInfo":
    """What a stream in a file says of itself."""
    from nestcode.streams import info as items_info
    from nestcode.streams import pictures_info
    from nestcode.streams.format import PICTURES
    from nestcode.streams.shared import map_file

    with stream_file(path) as found:
        data = map_file(found)
    return pictures_info(data) if data[:8] == PICTURES else items_info(data)


def gather() -> dict[str, str | int | list[str] | None]:
    """The facts by name; None stands for what is not installed."""
    from nestcode import _core

    return {
        "nestcode": nestcode.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count() or 1,
        "simd": _core.simd_names(),
        "numpy": version("numpy"),
        **{package: _installed(package) for package in OPTIONAL},
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _shown(name: str, value: str | int | list[str] | None) -> str:
    if value is None:
        return f"not installed: pip install 'nestcode\\[{OPTIONAL[name]}]'"
    if isinstance(value, list):
        return f"{value[-1]} (of {', '.join(value)})"
    return str(value)
