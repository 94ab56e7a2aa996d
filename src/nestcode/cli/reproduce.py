"""`nestcode reproduce`: reproduce the paper's figures and claims."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from nestcode.cli.options import AsJson, Threads, check_positive, messages
from nestcode.errors import InvalidInput, import_extra

Name = StrEnum(
    "Name",
    "all networks pca filters pinwheel speeds complexity neighborhoods reconstructions rates information "
    "regularization knn infinite nesting",
)


def reproduce(
    names: Annotated[list[Name] | None, typer.Argument(help="Experiments to run, or all.", show_default="all")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with CIFAR-10.", show_default="patches of sample images instead")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, figures and JSON.")] = Path("report"),
    quick: Annotated[bool, typer.Option("--quick", help="Minutes per experiment on two cores; the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes; needs a GPU.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="A smoke test: minutes for all experiments.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random seeds.")] = 3,
    states: Annotated[
        Path | None,
        typer.Option(help="Folder of trained networks, to carry from machine to machine.", show_default="OUT/cache"),
    ] = None,
    piece: Annotated[
        list[str] | None, typer.Option(help="With networks: train only pieces whose names begin with this.")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            callback=check_positive,
            help="With networks: interrupt after this many seconds; the same command continues.",
        ),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Use interrupted networks without training them further.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore cached results.")] = False,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Accept uncommitted changes; the report states them.")
    ] = False,
    commit: Annotated[str | None, typer.Option(help="Commit of a copy without a repository.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="The copy has no changes to its commit.")] = False,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    as_json: AsJson = False,
) -> None:
    """Run the paper's experiments, and write one page that compares its claims with measurements.

    `networks` only trains the networks that experiments share, piece by piece, and writes no page.
    """
    if quick + full + toy > 1:
        raise typer.BadParameter("--toy, --quick and --full exclude each other: give one of them")
    for module in ("torch", "sklearn", "matplotlib", "PIL"):
        import_extra(module, extra="reproduce", purpose="nestcode reproduce")
    from nestcode.reproduce import NAMES, Lab
    from nestcode.reproduce import reproduce as run
    from nestcode.reproduce.lab.provenance import find_provenance

    if data is not None and not data.is_dir():
        raise InvalidInput(f"there is no folder {data}: nestcode data cifar10 --to {data} fills one")
    scale: Any = "full" if full else "toy" if toy else "quick"
    wanted = names or [Name.all]
    source = find_provenance(commit, clean=clean, allow_dirty=allow_dirty)
    lab = Lab(out, data, scale, tuple(range(seeds)), fresh, messages(), source, states, unfinished)
    if Name.networks in wanted:
        if len(wanted) > 1:
            raise typer.BadParameter("networks is trained alone: run the experiments by another command")
        from nestcode.reproduce.networks import train_networks

        if not train_networks(lab, piece or (), deadline):
            raise typer.Exit(75)  # EX_TEMPFAIL: try again
        return
    if piece or deadline is not None:
        raise typer.BadParameter("--piece and --deadline are for networks: run experiments without them")
    page = run(wanted, lab)
    if as_json:
        done = {name: _findings(out / f"{name}.json") for name in (NAMES if "all" in wanted else wanted)}
        print(json.dumps({"page": str(page), "experiments": done}, indent=2))
    else:
        print(page)


def _findings(path: Path) -> dict[str, Any]:
    """Return an experiment's findings and the path of its results."""
    return {"path": str(path), "findings": json.loads(path.read_text())["findings"]}
