"""`nestcode reproduce`: the paper's figures and claims, on this machine."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from nestcode.cli.options import AsJson, Threads, messages
from nestcode.errors import InvalidInput, import_extra

Name = StrEnum(
    "Name",
    "all pca filters pinwheel speeds complexity neighborhoods reconstructions rates information regularization knn "
    "infinite nesting",
)


def reproduce(
    names: Annotated[list[Name] | None, typer.Argument(help="Experiments, or all.", show_default="all")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with CIFAR-10; else photographs stand in.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for page, numbers and figures.")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Minutes on two cores; the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes, for a GPU.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="Minutes for all, to see that it runs.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of what is random.")] = 3,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what was kept.")] = False,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
) -> None:
    """Run experiments of the paper, and write one page: what it says, and what is measured here."""
    if quick + full + toy > 1:
        raise typer.BadParameter("one scale must be chosen, of --toy, --quick and --full: leave out the others")
    for module in ("torch", "sklearn", "matplotlib", "PIL"):
        import_extra(module, extra="reproduce", purpose="nestcode reproduce")
    from nestcode.reproduce import NAMES, Lab
    from nestcode.reproduce import reproduce as run

    if data is not None and not data.is_dir():
        raise InvalidInput(f"there is no folder {data}: nestcode data cifar10 --to {data} fills one")
    scale: Any = "full" if full else "toy" if toy else "quick"
    wanted = names or [Name.all]
    page = run(wanted, Lab(out, data, scale, tuple(range(seeds)), fresh, messages()))
    if as_json:
        done = {name: _found(out / f"{name}.json") for name in (NAMES if "all" in wanted else wanted)}
        print(json.dumps({"page": str(page), "experiments": done}, indent=2))
    else:
        print(page)


def _found(path: Path) -> dict[str, Any]:
    """What an experiment found, and the file that tells more."""
    return {"path": str(path), "findings": json.loads(path.read_text())["findings"]}
