"""`nestcode reproduce`: the paper's figures and claims, on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nestcode.cli.options import messages
from nestcode.errors import InvalidInput, import_extra


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or all.", show_default="all")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with CIFAR-10; else photographs stand in.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, numbers and figures.")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Minutes on two cores; the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes, for a GPU.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="Seconds, to see that it runs.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of what is random.")] = 3,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what was kept.")] = False,
) -> None:
    """Run experiments of the paper, and write one page: what it says, and what is measured here."""
    for module in ("torch", "sklearn", "matplotlib", "PIL"):
        import_extra(module, extra="reproduce", purpose="nestcode reproduce")
    from nestcode.reproduce import Lab
    from nestcode.reproduce import reproduce as run

    if quick + full + toy > 1:
        raise InvalidInput("one scale must be chosen, of --toy, --quick and --full")
    if data is not None and not data.is_dir():
        raise InvalidInput(f"there is no folder {data}: nestcode data cifar10 --to {data} fills one")
    scale: Any = "full" if full else "toy" if toy else "quick"
    console = messages()
    print(run(names or ["all"], Lab(out, data, scale, tuple(range(seeds)), fresh, console)))
