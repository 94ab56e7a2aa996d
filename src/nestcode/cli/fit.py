"""`nestcode fit`: fit a coder to data; `torchrun -m nestcode fit` trains one in several processes."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import nestcode
from nestcode.cli.files import STANDARD, check_distinct, check_output, out_file
from nestcode.cli.options import ArrayName, AsJson, Data, Force, Seed, Size, Threads, messages
from nestcode.errors import InvalidInput, import_extra

if TYPE_CHECKING:
    from nestcode.arrays import Floats
    from nestcode.cli.inputs import InputRows
    from nestcode.coders import Coder

CODERS = {
    name: name.removesuffix("Coder").lower() for name in dir(nestcode) if name.endswith("Coder") and name != "Coder"
}
TRAINED = tuple(kind for name, kind in CODERS.items() if name not in nestcode.__all__)  # by PyTorch
if TYPE_CHECKING:
    Kind = str
else:  # Typer lists the choices, and refuses other words
    Kind = Literal["auto", *(kind for kind in CODERS.values() if kind not in TRAINED), *TRAINED]
Metric = Literal["l2", "cosine"]
Goal = Literal["search", "codes", "distortion", "graph"]


def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file of the coder; - is standard output.")],
    width: Annotated[int, typer.Option(min=1, help="Bits of a code.")] = 256,
    kind: Annotated[
        Kind,
        typer.Option(
            help="auto compares coders on held-out items by --goal. rotation needs no training. With PyTorch: refined "
            "(linear, residual or adaptive bits with a learned decoder), implicit (codebooks by a network), "
            "autoencoder (the paper's), supervised (needs --labels)."
        ),
    ] = "auto",
    goal: Annotated[
        Goal,
        typer.Option(
            help="What --kind auto optimizes: recall@10 of an index with vectors (search) or without (codes), or "
            "squared error (distortion). graph selects linear, for nestcode index build --graph."
        ),
    ] = "search",
    labels: Annotated[
        Path | None, typer.Option(help="A .npy file with one label per item, for --kind supervised.")
    ] = None,
    metric: Annotated[Metric, typer.Option(help="Squared Euclidean distance, or cosine.")] = "l2",
    seed: Seed = 0,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps of PyTorch coders.", show_default="2000; refined images 500"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the training of an interrupted fit from its checkpoint, OUT.ckpt, if it exists.",
        ),
    ] = False,
    array: ArrayName = None,
    size: Size = 32,
    threads: Threads = None,  # noqa: ARG001 (its callback does the work)
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a coder to items. Every prefix of its codes decodes."""
    if kind not in TRAINED and (resume or steps is not None):
        raise typer.BadParameter(
            f"{'--resume' if resume else '--steps'} is for PyTorch coders, got --kind {kind}: add --kind "
            f"{' or '.join(TRAINED)}, or leave it out"
        )
    if kind == "supervised" and labels is None:
        raise typer.BadParameter("--kind supervised needs labels, got none: add --labels")
    if kind != "supervised" and labels is not None:
        raise typer.BadParameter(
            f"--labels is for --kind supervised, got --kind {kind}: add --kind supervised, or leave it out"
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # that torchrun started
    if processes > 1 and (kind not in TRAINED or data == STANDARD):
        raise typer.BadParameter(
            "torchrun trains PyTorch coders, and every process reads the items: add --kind "
            f"{' or '.join(TRAINED)}, and give a file or folder, or run nestcode fit without torchrun"
        )
    if resume and out == STANDARD:
        raise typer.BadParameter("--resume reads the checkpoint beside the coder, got -o -: give -o a name")
    check_output(out, data, labels, force=force, as_json=as_json)
    if kind in TRAINED:
        _check_checkpoint(out, data, labels, resume=resume, force=force)
        import_extra("torch", extra="torch", purpose=f"nestcode fit --kind {kind}")
    from nestcode.cli.inputs import open_rows

    rows = open_rows(data, array, size)
    if kind in TRAINED:
        if resume and not _checkpoint(out).exists():
            messages().print(f"there is no checkpoint {_checkpoint(out)}: training starts anew", soft_wrap=True)
        coder = _untrained(rows, kind, width, metric, seed=seed, steps=steps)
        coder = _train(coder, rows, labels, out, resume=resume)
    else:
        with messages().status(f"Fitting a coder of {width} bits to {len(rows):,} items"):
            coder = fit_kind(rows, kind, width, metric, goal, seed)
    if processes > 1 and os.environ.get("RANK", "0") != "0":
        return  # rank 0 writes and reports
    with out_file(out) as path:
        coder.save(path)
    if kind in TRAINED and out != STANDARD:
        _checkpoint(out).unlink(missing_ok=True)
    _report(coder, rows, out, as_json=as_json)


def fit_kind(rows: "InputRows | Floats", kind: Kind, width: int, metric: Metric, goal: Goal, seed: int) -> "Coder":
    """Return a coder that needs no PyTorch, fitted to rows."""
    from nestcode import coders

    if kind == "auto":
        return coders.fit(rows, width, metric=metric, goal=goal, seed=seed)
    coder: Coder = getattr(coders, f"{kind.capitalize()}Coder")(width, metric, seed=seed).fit(rows)
    return coder


def _check_checkpoint(out: Path, *inputs: Path | None, resume: bool, force: bool) -> None:
    checkpoint = _checkpoint(out)
    check_distinct(checkpoint, *inputs)
    if out != STANDARD and checkpoint.exists() and not (resume or force):
        raise InvalidInput(
            f"{checkpoint} exists already, from an interrupted run: give --resume to continue it, or --force to restart"
        )


def _untrained(rows: "InputRows", kind: Kind, width: int, metric: Metric, *, seed: int, steps: int | None) -> "Coder":
    from nestcode import coders
    from nestcode.coders import AdaptiveCoder, ResidualCoder
    from nestcode.coders.refined import MLP, UNet
    from nestcode.training import Training

    changes = {"seed": seed} if steps is None else {"seed": seed, "steps": steps}
    if kind == "refined":
        network = UNet() if len(rows.shape) in (2, 3) else MLP()
        bases = AdaptiveCoder(width, metric, seed=seed), ResidualCoder(width, metric, seed=seed)
        return coders.RefinedCoder(bases, network, training=network.TRAINING.but(**changes))
    if kind == "implicit":
        base, implicit = ResidualCoder(width, metric, seed=seed), coders.ImplicitCoder
        return implicit(base, training=implicit.TRAINING.but(**changes))
    trained = coders.AutoencoderCoder if kind == "autoencoder" else coders.SupervisedCoder
    return trained(width, metric=metric, training=Training().but(**changes))


def _train(coder: "Coder", rows: "InputRows", labels: Path | None, out: Path, *, resume: bool) -> "Coder":
    """Train a coder, with a checkpoint beside its file until the file is written."""
    from nestcode.cli.files import read_array

    y = None if labels is None else read_array(labels, least=1)
    checkpoint, console = None if out == STANDARD else _checkpoint(out), messages()
    progress = console.is_terminal and not console.quiet
    return coder.fit(rows.to_train(), y, checkpoint=checkpoint, resume=resume, progress=progress)  # type: ignore[call-arg]


def _checkpoint(out: Path) -> Path:
    return out.with_name(f"{out.name}.ckpt")


def _report(coder: "Coder", rows: "InputRows", out: Path, *, as_json: bool) -> None:
    start, end = coder.expected_error(0), coder.expected_error(coder.width_)
    if as_json:
        facts: dict[str, Any] = {
            "path": str(out), "kind": type(coder).__name__, "width": coder.width_, "features": rows.features,
            "count": len(rows), "expected_error": end, "variance": start,
        }  # fmt: skip
        if coder.selection_ is not None:
            facts["chosen"] = coder.to_record().notes["selection"]
        print(json.dumps(facts))
        return
    quality = f"MSE {end:.4g}, {end / start:.2%} of the variance" if start else "all items are equal"
    messages().print(
        f"{type(coder).__name__} of {coder.width_} bits, fitted to {len(rows):,} items of {rows.features:,} features: "
        f"{quality}.",
        soft_wrap=True,
    )
    if coder.selection_ is not None:
        how = "on held-out rows" if coder.selection_.scores else "without a comparison"
        messages().print(f"Chosen {how}: {coder.selection_.reason}.", soft_wrap=True)
    if out != STANDARD:
        print(out)
