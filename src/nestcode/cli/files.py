"""Input and output files of the commands: checks before any work, pipes, arrays, coders by name."""

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
    from nestcode.images import Refiner

Piece = TypeVar("Piece")
STANDARD = Path("-")  # standard input or output
FREE, RATIO = 1 << 28, 1000  # bytes that any stream may decode to, and that each of its bytes may


def check_out(path: Path, *, force: bool, folder: Path | None = None) -> None:
    """Raise if a file cannot be written, or exists and --force is not given; call it before any work.

    The command creates `folder`, where it writes several files.
    """
    from nestcode.storage import writable

    check_place(writable(path), folder)
    if os.path.lexists(path) and not force:
        raise InvalidInput(f"{path} exists already: choose another name, or give --force to overwrite it")


def check_place(path: Path, folder: Path | None = None) -> None:
    """Raise if the folder that a path goes into does not exist, is not writable, or belongs to an index.

    The command creates `folder` and folders inside of it, but none above, which may be misspelled.
    """
    likely = [folder for folder in path.resolve().parents if (folder / "manifest.json").is_file()]
    if likely:
        from nestcode.index.manifest import is_index

        for folder in filter(is_index, likely):
            raise InvalidInput(f"{path} is inside of the index {folder}, whose files are its own: choose another place")
    above = (folder or path).absolute().parent
    if not above.exists():
        raise FileNotFoundError(f"{folder or path} must be in a folder that exists, {above} does not: create it first")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written, as {above} is not writable: choose another place")


def check_output(out: Path, *inputs: str | Path | None, force: bool, as_json: bool) -> None:
    """Raise if an output cannot be written, to its file or to standard output, or would overwrite an input."""
    if out != STANDARD:
        check_out(out, force=force)
        check_distinct(out, *inputs)
    elif as_json:
        raise typer.BadParameter("--json and -o - both print to standard output: leave out --json, or give -o a name")
    elif sys.stdout is None:
        raise InvalidInput("standard output is closed: give -o a name")
    elif sys.stdout.isatty():
        raise InvalidInput("binary output must not go to a terminal: redirect standard output, or give -o a name")


def check_distinct(out: Path, *inputs: str | Path | None) -> None:
    """Raise if writing `out` would overwrite an input, also one of the images in an input folder.

    Inputs are paths, names of shipped coders, or None.
    """
    if not out.exists():
        return
    for source in (Path(source) for source in inputs if source is not None):
        if source.exists() and (out.samefile(source) or _is_image_of(out, source)):
            raise InvalidInput(f"the output must not overwrite an input, got {out} for both: choose another output")


def _is_image_of(file: Path, folder: Path) -> bool:
    from nestcode.data.folder import image_files

    inside = folder.is_dir() and file.is_file() and folder.resolve() in file.resolve().parents
    return inside and any(file.samefile(image) for image in image_files(folder))


def check_array_name(out: Path) -> None:
    """Raise unless a name has the suffix of an array."""
    if out != STANDARD and out.suffix != ".npy":
        raise typer.BadParameter(f"the output must be a .npy file, got {out}: give a name that ends in .npy")


@contextmanager
def stream_file(path: Path) -> Iterator[Path]:
    """Yield the path of a stream: the file, or a temporary copy of a pipe or standard input."""
    if path != STANDARD and path.is_dir():
        raise InvalidInput(f"the input must be a stream, got {path}, which is a folder: give the path of a stream")
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
    """Return standard input as a binary file."""
    if sys.stdin is None:
        raise InvalidInput("standard input is closed: redirect a file to it, or give the name of one")
    return sys.stdin.buffer


def _copy_stream(source: BinaryIO, target: Any) -> None:
    from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC

    start = source.read(len(ITEMS_MAGIC))
    target.write(start)
    if start in (ITEMS_MAGIC, IMAGES_MAGIC):  # other input may be endless
        shutil.copyfileobj(source, target)


@contextmanager
def out_file(path: Path) -> Iterator[Path]:
    """Yield the path to write: the file, or a temporary one that is copied to standard output when complete."""
    if path != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "stream"
        yield draft
        with draft.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def check_size(stream: Path, size: int, limit: int | None) -> None:
    """Raise if a stream decodes to more bytes than a limit, or without one, than its own size justifies."""
    allowed = max(FREE, RATIO * stream.stat().st_size) if limit is None else limit
    if size > allowed:
        raise InvalidInput(
            f"the stream decodes to {size:,} bytes, more than the limit of {allowed:,}: give --limit {size} if you "
            "trust it"
        )


def check_space(path: Path, size: int) -> None:
    """Raise if the disk has too little free space for an output."""
    above = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(above).free
    if size > free:
        raise InvalidInput(
            f"the output takes about {size:,} bytes, but the disk of {above} has {free:,} free: make room, or choose "
            "another place"
        )


def image_refiner(refine: bool) -> "Refiner | None":
    """Return the refiner that ships with Nestcode, if images are to be refined."""
    if not refine:
        return None
    from nestcode.images import Refiner

    return Refiner.load()


def item_coder(name: str) -> "Coder":
    """Return the coder of items in a file."""
    from nestcode.coders import load_coder

    return load_coder(name)


def read_array(path: Path, *, least: int = 2, name: str | None = None) -> Any:
    """Return the memory-mapped array in a .npy file with at least `least` dimensions; errors call it `name`."""
    import numpy as np

    label = name or str(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {label}: give the path of an array")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a malformed header raises errors of many kinds
        raise DamagedFile(
            f"{label} is not an array of numbers; it is damaged or not a .npy file: write it with np.save"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DamagedFile(f"{label} holds several arrays: write one of them with np.save")
    if array.ndim < least or not len(array):
        shape = "(n, …)" if least > 1 else "(n,)"
        remedy = "reshape it, one item with x[None, :]" if array.ndim < least else "give rows"
        raise InvalidInput(
            f"{label} must hold an array {shape} of at least one item, got shape {array.shape}: {remedy}"
        )
    if isinstance(array, np.memmap) and path.stat().st_size != array.offset + array.nbytes:
        raise DamagedFile(f"{label} has data after its array: give one array per file")
    return array


def write_array(path: Path, dtype: Any, shape: tuple[int, ...], pieces: Iterable[Any]) -> None:
    """Write an array that comes in pieces as a .npy file, atomically."""
    import numpy as np

    from nestcode.storage import write_pieces

    head = io.BytesIO()
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, header)
    write_pieces(path, chain([head.getvalue()], (piece.tobytes() for piece in pieces)))


def with_progress(work: Iterable[Piece], title: str, total: int, console: Console) -> Iterable[Piece]:
    """Iterate with a progress bar if the console is a terminal."""
    return track(work, title, total=total, console=console, transient=True, disable=not console.is_terminal)
