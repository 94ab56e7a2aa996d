"""`nestcode fit`: learn a coder from data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.files import STANDARD, check_output, out_file
from nestcode.cli.options import ArrayName, AsJson, Data, Force, Seed, Size, Threads, messages
from nestcode.errors import InvalidInput, import_extra

if TYPE_CHECKING:
    from nestcode.cli.inputs import Rows
    from nestcode.coders import Coder

Kind = Literal["auto", "linear", "residual", "adaptive", "cell", "deep"]
Metric = Literal["l2", "cosine"]


def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The coder; - is standard output.")],
    width: Annotated[int, typer.Option(min=1, max=1 << 20, help="Bits of a code.")] = 256,
    kind: Annotated[
        Kind,
        typer.Option(help="auto takes the better of linear and residual; adaptive is for images, cell for search."),
    ] = "auto",
    deep: Annotated[bool, typer.Option("--deep", help="Train a network that decodes, as --kind deep does.")] = False,
    metric: Annotated[Metric, typer.Option(help="How items are compared.")] = "l2",
    seed: Seed = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps of --deep.", show_default="500 for images, else 2000")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of a --deep run that was stopped.")
    ] = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn a coder of items. Every prefix of its codes decodes."""
    if deep and kind not in ("auto", "deep"):
        raise typer.BadParameter(f"--deep is --kind deep, got --kind {kind} too: leave one of them out")
    kind = "deep" if deep else kind
    if kind != "deep" and (resume or steps is not None):
        raise typer.BadParameter(f"{'--resume' if resume else '--steps'} is for training: add --deep, or leave it out")
    if resume and out == STANDARD:
        raise typer.BadParameter("--resume goes on from a checkpoint beside the coder: give -o a name")
    check_output(out, data, force=force, as_json=as_json)
    if kind == "deep":
        _check_checkpoint(out, resume=resume, force=force)
        import_extra("torch", extra="torch", purpose="nestcode fit --deep")
    from nestcode.cli.inputs import open_rows

    rows = open_rows(data, array, size)
    if kind == "deep":
        coder = _train(rows, out, width, metric, seed=seed, steps=steps, resume=resume)
    else:
        with messages().status(f"Fitting a coder of {width} bits to {len(rows):,} items"):
            coder = _learn(rows, kind, width, metric, seed)
    with out_file(out) as path:
        coder.save(path)
    if kind == "deep" and out != STANDARD:
        _checkpoint(out).unlink(missing_ok=True)
    _tell(coder, rows, out, as_json=as_json)


def _learn(rows: "Rows", kind: Kind, width: int, metric: Metric, seed: int) -> "Coder":
    from nestcode import coders

    if kind == "auto":
        return coders.fit(rows, width, metric, seed)
    kinds: dict[str, Any] = {
        "linear": coders.LinearCoder, "residual": coders.ResidualCoder, "adaptive": coders.AdaptiveCoder,
        "cell": coders.CellCoder,
    }  # fmt: skip
    coder: Coder = kinds[kind](width, metric, seed=seed).fit(rows)
    return coder


def _check_checkpoint(out: Path, *, resume: bool, force: bool) -> None:
    kept = _checkpoint(out)
    if out != STANDARD and kept.exists() and not (resume or force):
        raise InvalidInput(
            f"{kept} is there, of a run that was stopped: --resume goes on from it, --force starts again"
        )


def _train(
    rows: "Rows", out: Path, width: int, metric: Metric, *, seed: int, steps: int | None, resume: bool
) -> "Coder":
    """Train a network, with a checkpoint beside the coder as long as it goes on."""
    from nestcode.coders.deep import DeepCoder
    from nestcode.coders.deep.coder import REFINING

    items = rows.to_train()
    kept = None if out == STANDARD else _checkpoint(out)
    training = REFINING["images" if len(rows.shape) in (2, 3) else "vectors"].but(seed=seed)
    training = training if steps is None else training.but(steps=steps)
    coder = DeepCoder(width, metric=metric, training=training)
    console = messages()
    return coder.fit(items, checkpoint=kept, resume=resume, progress=console.is_terminal and not console.quiet)


def _checkpoint(out: Path) -> Path:
    return out.with_name(f"{out.name}.ckpt")


def _tell(coder: "Coder", rows: "Rows", out: Path, *, as_json: bool) -> None:
    start, end = coder.expected_error(0), coder.expected_error(coder.width)
    if as_json:
        facts = {
            "path": str(out), "kind": type(coder).__name__, "width": coder.width, "features": rows.features,
            "count": len(rows), "expected_error": end, "variance": start,
        }  # fmt: skip
        print(json.dumps(facts))
        return
    left = f"{end / start:.2%} of the variance is left" if start else "all items are the same"
    messages().print(
        f"{type(coder).__name__} of {coder.width} bits, learnt from {len(rows):,} items of {rows.features:,} numbers: "
        f"{left}.",
        soft_wrap=True,
    )
    if out != STANDARD:
        print(out)
