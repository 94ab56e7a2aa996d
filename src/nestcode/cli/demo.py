"""`nestcode demo`: the guided tour."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nestcode.cli.options import AsJson, Threads, messages


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and its images.")] = Path("report"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the ordinary autoencoder.")] = 400,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
) -> None:
    """Run the guided tour of nested codes on real images, and write it as an HTML page."""
    from nestcode.demo import NEXT, run

    console = messages()
    tour = run(out, steps=steps, console=console)
    if as_json:
        print(json.dumps({"page": str(tour.page), "found": tour.found}))
        return
    console.print("\nTry next:")
    for purpose, command in NEXT:
        console.print(f"  {purpose}: [bold]{command}[/]", soft_wrap=True, highlight=False)
    console.print("\nExplore the patches and the stream of this tour in a browser:")
    console.print(f"  [bold]{escape(tour.explore)}[/]", soft_wrap=True, highlight=False)
    console.print("\nOpen this page in a browser:")
    print(tour.page)
