"""What commands share: files that come and go, and coders by name."""

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from nestcode.errors import DamagedFile, InvalidInput

if TYPE_CHECKING:
    from nestcode.coders import Coder
    from nestcode.images import ImageCodec

Piece = TypeVar("Piece")
STANDARD = Path("-")  # standard input, or output


def check_out(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written or must not be replaced, before any work."""
    from nestcode.storage import writable

    check_place(writable(path))
    if os.path.lexists(path) and not force:
        raise InvalidInput(f"{path} is there already: give another name, or --force to replace it")


def check_place(path: Path) -> None:
    """Refuse to write where that is not allowed."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written, as {above} must not be changed: give another name")


def check_output(out: Path, *sources: Path, force: bool, as_json: bool) -> None:
    """The same for what may go to standard output, and is made of other files."""
    if out != STANDARD:
        check_out(out, force=force)
        if out.exists() and any(source.exists() and out.samefile(source) for source in sources):
            raise InvalidInput(f"{out} would be replaced by what is made of it: give another name")
    elif as_json:
        raise typer.BadParameter("--json prints to standard output, as the result: leave it out, or give -o a name")
    elif sys.stdout is None:
        raise InvalidInput("standard output is closed: give -o a name")
    elif sys.stdout.isatty():
        raise InvalidInput("what comes out is nothing to look at: send standard output to a file or a command")


def check_array_name(out: Path) -> None:
    """Refuse a name that does not say what is written."""
    if out != STANDARD and out.suffix != ".npy":
        raise typer.BadParameter(f"arrays go into a .npy file, got {out}: give a name that ends so")


@contextmanager
def stream_file(path: Path) -> Iterator[Path]:
    """The file of a stream: this one, or a copy of what a pipe or standard input holds."""
    if path != STANDARD and path.is_dir():
        raise InvalidInput(f"{path} must be a stream, but it is a folder: give the path of a stream")
    if path != STANDARD and not path.exists():
        raise FileNotFoundError(f"there is no file {path}: give the path of a stream")
    if path != STANDARD and path.is_file():
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        if path == STANDARD:
            _copy_stream(standard_input(), copy)
        else:
            with path.open("rb") as file:
                _copy_stream(file, copy)
        copy.flush()
        yield Path(copy.name)


def standard_input() -> BinaryIO:
    """What comes by standard input."""
    if sys.stdin is None:
        raise InvalidInput("standard input is closed: send a file to it, or give the name of one")
    return sys.stdin.buffer


def _copy_stream(source: BinaryIO, target: Any) -> None:
    from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC

    start = source.read(len(ITEMS_MAGIC))
    target.write(start)
    if start in (ITEMS_MAGIC, IMAGES_MAGIC):  # whatever else comes may have no end
        shutil.copyfileobj(source, target)


@contextmanager
def out_file(path: Path) -> Iterator[Path]:
    """The file to write: this one, or one that goes to standard output once it is whole."""
    if path != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "stream"
        yield draft
        try:
            with draft.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # whoever receives it may stop, and Python is not to complain when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_space(path: Path, size: int) -> None:
    """Refuse to write more than the disk has room for."""
    above = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(above).free
    if size > free:
        raise InvalidInput(
            f"what comes out takes about {size:,} bytes, but the disk of {above} has {free:,} free: make room, or "
            "write elsewhere"
        )


def image_codec(name: str) -> "ImageCodec":
    """Return an image codec by its file or the name of one that ships with Nestcode."""
    from nestcode.coders.pretrained import pretrained_names
    from nestcode.images import ImageCodec

    if name in pretrained_names("items") and not Path(name).exists():
        raise InvalidInput(
            f"--coder must be an image codec, got {name}, which codes items (rows of a .npy file): leave it out, or "
            f"give one of {', '.join(pretrained_names('images'))}"
        )
    return ImageCodec.load(name)


def item_coder(name: str) -> "Coder":
    """Return a coder of items by its file or the name of one that ships with Nestcode."""
    from nestcode.coders import load_coder
    from nestcode.coders.pretrained import pretrained_names

    if name in pretrained_names("images") and not Path(name).exists():
        raise InvalidInput(
            f"--coder must be a coder of items, got {name}, which codes images: leave it out, or give one of "
            f"{', '.join(pretrained_names('items'))}"
        )
    return load_coder(name)


def read_array(path: Path, *, least: int = 2, name: str | None = None) -> Any:
    """An array in a .npy file, of so many dimensions at least, mapped into memory; errors call it `name`."""
    import numpy as np

    said = name or str(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {said}: give the path of an array")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a strange header causes many kinds, whose words help nobody
        raise DamagedFile(
            f"{said} cannot be read as an array of numbers, it is damaged or no .npy file: save one by np.save"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DamagedFile(f"{said} holds several arrays: save one of them by np.save")
    if array.ndim < least or not len(array):
        shape = "(n, …)" if least > 1 else "(n,)"
        raise InvalidInput(f"{said} must hold an array {shape} of at least one item, got shape {array.shape}")
    if isinstance(array, np.memmap) and path.stat().st_size != array.offset + array.nbytes:
        raise DamagedFile(f"{said} goes on after its array: give one array at a time")
    return array


def write_array(path: Path, dtype: Any, shape: tuple[int, ...], pieces: Iterable[Any]) -> None:
    """Write an array that comes in pieces as a .npy file, whole or not at all."""
    import numpy as np

    from nestcode.storage import write_pieces

    head = io.BytesIO()
    facts = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, facts)
    write_pieces(path, chain([head.getvalue()], (piece.tobytes() for piece in pieces)))


def followed(work: Iterable[Piece], title: str, total: int, console: Console) -> Iterable[Piece]:
    """Work with a progress bar where somebody can see it."""
    return track(work, title, total=total, console=console, transient=True, disable=not console.is_terminal)
