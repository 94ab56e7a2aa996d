"""`nestcode info`: what is installed here and what it can use."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import nestcode

OPTIONAL = {"torch": "torch", "scikit-learn": "reproduce", "matplotlib": "reproduce", "pillow": "reproduce"}


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """Say which version this is, what the processor offers and which extras are installed."""
    facts = gather()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/]", _shown(name, value))
    Console().print(table)


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
