"""`nestcode demo`: the guided tour."""

from pathlib import Path
from typing import Annotated

import typer

from nestcode.cli.options import messages


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and its pictures.")] = Path("report"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the ordinary autoencoder.")] = 400,
) -> None:
    """Learn nested codes of real images and write a page of pictures."""
    from nestcode.demo import NEXT, run

    console = messages()
    page = run(out, steps=steps, console=console)
    console.print("\nTry next:")
    for purpose, command in NEXT:
        console.print(f"  {purpose}: [bold]{command}[/]", soft_wrap=True, highlight=False)
    console.print("\nOpen this page in a browser:")
    print(page)
