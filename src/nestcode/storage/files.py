"""Files that are written whole or not at all, and last: a draft, fsync, a rename, fsync of the folder.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "note.txt"
...     write_atomic(path, b"complete")
...     path.read_bytes()
b'complete'
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from nestcode.errors import DamagedFile, InvalidInput

PIECE = 1 << 24  # bytes per write
LONGEST = 255  # bytes in a file name


def check_path(path: object) -> None:
    """Raise unless a path is one that files or folders can have."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    try:
        right = isinstance(text, str) and text != "" and "\0" not in text and os.fsencode(text) != b""
    except UnicodeEncodeError:
        right = False
    if not right:
        got = f"{text!r:.80}" if isinstance(text, str) else type(path).__name__
        raise InvalidInput(
            f"a path must be a text or a pathlib.Path, not empty and without null characters, got {got}: give its "
            'name, or "." for the current folder'
        )


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file at `path` by `data`; a crash or Ctrl-C leaves the old file or the new one.

    Missing folders are created.
    """
    write_pieces(path, [data])


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[bytes | memoryview]) -> None:
    """Replace the file at `path` by the concatenated pieces, atomically like `write_atomic`."""
    path = writable(path)
    make_folder(path.parent)
    token = secrets.token_hex(8)
    name = f".{path.name}.{token}"  # an index recognizes leftover drafts by this name
    draft = path.with_name(name if len(os.fsencode(name)) <= LONGEST else f".{token}")
    try:
        write_new(draft, pieces, named=path)
        with naming_file(path):
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def writable(path: str | os.PathLike[str]) -> Path:
    """Return the real path, through links, to write a file to; refuse folders, pipes and devices."""
    check_path(path)
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file or not exist, but it is a folder: give another name")
    if (path.exists() and not path.is_file()) or str(path).startswith(("/dev/fd/", "/dev/std", "/proc/")):
        raise FileExistsError(f"{path} must be a file or not exist, but it is a pipe or a device: give another name")
    real = Path(os.path.realpath(path))
    above = next(folder for folder in real.parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(f"{path} must be in a folder, but {above} is a file: give another name")
    return real


def write_new(path: Path, pieces: Iterable[bytes | memoryview], named: Path | None = None) -> None:
    """Write a new file durably (fsync), replacing what a crash may have left at `path`.

    Errors of the system name `named`, the path itself by default; those of reading the pieces stay as they are.
    """
    path.unlink(missing_ok=True)  # never written through: it may be a link, or mapped by a reader
    naming = partial(naming_file, named or path)
    with naming():
        file = path.open("xb", buffering=0)
    with file:
        for piece in pieces:
            left = memoryview(piece)
            with naming():
                while left:
                    left = left[file.write(left) :]
        with naming():
            os.fsync(file.fileno())


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Let the system's errors name the path that is being written, not its draft, and the remedy; types stay."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # ours
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = ", as its disk is full: make room, or" if full else f" ({os.strerror(error.errno)}):"
        named = type(error)(f"{path} cannot be written{why} choose another place")
        named.errno = error.errno
        raise named from error


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with naming_file(path):
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading; a pipe or a device in its place, which could block forever, is refused."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without it, opening a pipe would wait for its writer
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} must be a file, but it is a folder: restore a copy")
    raise DamagedFile(f"{path} must be a file, but it is a pipe or a device: restore a copy")


def sync_folder(folder: Path) -> None:
    """Make creations, renames and removals in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
