"""Atomic, checksummed, versioned files: records of named arrays, and memory-mapped arrays checked block by block.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "note.txt"
...     write_atomic(path, b"complete")
...     path.read_bytes()
b'complete'
"""

import errno
import fcntl
import hashlib
import json
import math
import mmap
import os
import resource
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.errors import DamagedFile, InvalidInput, OutOfMemory

FORMAT = "nestcode"
Arrays = Mapping[str, NDArray[Any]]
FloatType = Literal["float32", "float16"]  # dtype of float arrays on disk
PIECE = 1 << 24  # bytes per write
BLOCK = 1 << 16  # bytes under one checksum
LONGEST = 255  # bytes in a file name


@dataclass(frozen=True)
class Record:
    """Named arrays with their settings: the form of a fitted coder on disk."""

    kind: str  # the class, for example "LinearCoder"
    version: int  # of the layout of this kind
    settings: dict[str, Any]  # JSON values
    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any] = field(default_factory=dict)  # JSON values outside the fingerprint, such as provenance

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of kind, version, settings and arrays, the same on every machine."""
        digest = hashlib.sha256(f"{self.kind}\n{self.version}\n{json.dumps(self.settings, sort_keys=True)}\n".encode())
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record as one safetensors file, atomically."""
    write_atomic(path, record_bytes(record))


def record_bytes(record: Record) -> bytes:
    """Return a record as the bytes of a safetensors file."""
    from safetensors.numpy import save

    metadata = {
        "format": FORMAT,
        "kind": record.kind,
        "version": str(record.version),
        "settings": json.dumps(record.settings, sort_keys=True),
        "sha256": record.fingerprint,
    }
    if record.notes:
        metadata["notes"] = json.dumps(record.notes, sort_keys=True)
        metadata["notes_sha256"] = hashlib.sha256(metadata["notes"].encode()).hexdigest()
    data = save({name: np.ascontiguousarray(array) for name, array in record.arrays.items()}, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    text = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # safetensors shuffles metadata; equal records need equal bytes
    return len(text).to_bytes(8, "little") + text + data[end:]


def read_record(path: str | os.PathLike[str]) -> Record:
    """Return the record in a file, after checking its checksum."""
    from safetensors import safe_open

    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be the file of a coder, but it is a folder: give the file in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path that was saved to")

    def read() -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    return _verified(read, str(path))


def parse_record(data: bytes, name: str) -> Record:
    """Return the record in the bytes of `record_bytes`; errors call it `name`."""
    from safetensors.numpy import load

    def read() -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
        arrays = load(data)  # validates the header
        return parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {}), arrays

    return _verified(read, name)


def _verified(read: Callable[[], tuple[dict[str, str], dict[str, NDArray[Any]]]], path: str) -> Record:
    """Return the record made of metadata and arrays, or raise if its checksum does not match."""
    from safetensors import SafetensorError

    try:
        metadata, arrays = read()
        if metadata.get("format") != FORMAT:
            raise DamagedFile(f"{path} was not written by Nestcode: give a file that holds a coder")
        record = Record(metadata["kind"], int(metadata["version"]), parse_json(metadata["settings"]), arrays)
        record = replace(record, notes=_notes(metadata))
        expected = metadata["sha256"]
    except MemoryError as error:
        raise OutOfMemory(f"{path} takes more memory than there is: give a smaller file, or make room") from error
    except (SafetensorError, AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(f"{path} is damaged or not a Nestcode file: save it again or restore a copy") from error
    if record.fingerprint != expected:
        raise DamagedFile(f"{path} is damaged, its checksum does not match: save it again or restore a copy")
    return record


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if an object repeats a key, which readers take differently."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("an object of its JSON repeats a key")
        return found

    return json.loads(text, object_pairs_hook=distinct)


def _notes(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the notes in a file's metadata, or raise if they are damaged; early files have no checksum of them."""
    text = metadata.get("notes", "{}")
    notes = parse_json(text)
    if not isinstance(notes, dict):
        raise ValueError(f"its notes are {text}, expected a JSON object")
    if "notes_sha256" in metadata and hashlib.sha256(text.encode()).hexdigest() != metadata["notes_sha256"]:
        raise ValueError("the checksum of its notes does not match")
    return notes


class Storable(ABC):
    """An object that is saved as one record and recognized by the record's checksum."""

    VERSION: ClassVar[int] = 1  # of the layout on disk

    @abstractmethod
    def to_record(self) -> Record:
        """Return the fitted object as a record."""

    @classmethod
    @abstractmethod
    def _read(cls, record: Record) -> Self:
        """Build the object from a record; whatever it raises is reported as a damaged file."""

    @classmethod
    def from_record(cls, record: Record, source: str | os.PathLike[str], **modules: Any) -> Self:
        """Return the object that a record describes; errors call the record `source`."""
        if record.version > cls.VERSION:
            raise DamagedFile(
                f"{source} has version {record.version} of the {record.kind} layout, "
                f"this nestcode reads up to {cls.VERSION}: upgrade nestcode"
            )
        arrays = {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in record.arrays.items()
        }
        try:
            return cls._read(replace(record, arrays=arrays), **modules)
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RuntimeError,
            MemoryError,
            ArithmeticError,
        ) as error:
            if modules:
                raise InvalidInput(
                    f"{source} must be read with the modules it was saved with, got {', '.join(modules)}: {error}"
                ) from error
            raise DamagedFile(f"{source} is not a {record.kind} as it should be: {error}") from error

    def save(self, path: str | os.PathLike[str], *, dtype: FloatType = "float32") -> None:
        """Write the fitted object to one file, whole or not at all; `nestcode.load_coder` reads coders.

        Args:
            path: the file; the folder is created if it does not exist.
            dtype: "float16" stores float32 arrays as float16. The file is about half as large. It holds another coder,
                with another fingerprint, that decodes nearly the same.

        """
        if dtype not in ("float32", "float16"):
            raise InvalidInput(f'dtype must be "float32" or "float16", got {dtype!r}')
        record = self.to_record()
        if dtype == "float16":
            arrays = {name: _as_float16(array) for name, array in record.arrays.items()}
            record = replace(record, arrays=arrays)
        write_record(path, record)

    @property
    def fingerprint(self) -> str:
        """A checksum of the fitted object: equal ones have equal fingerprints, on every machine."""
        return self.to_record().fingerprint


def _as_float16(array: NDArray[Any]) -> NDArray[Any]:
    """Return a float32 array as float16, or unchanged where its values are out of float16's range."""
    largest = float(np.abs(array).max(initial=0))
    fits = largest == 0 or 1e-3 < largest < float(np.finfo(np.float16).max)
    return array.astype(np.float16) if fits and array.dtype == np.float32 else array


def check_arrays(arrays: Arrays, expected: Mapping[str, tuple[type[Any], tuple[int, ...]]]) -> None:
    """Raise unless a record's arrays have these types and shapes and finite values."""
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}, expected {dtype} of {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"its {name} are not finite")


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


def lock_file(file: IO[bytes]) -> None:
    """Lock a file until it is unlocked or closed; raise OSError where another holds the lock."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock_file(file: IO[bytes]) -> None:
    """Release the lock of a file."""
    fcntl.flock(file, fcntl.LOCK_UN)


def physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def allow_files(count: int) -> None:
    """Let this process open more files, connections among them, than the 1,024 of most systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def page_faults() -> int:
    """Return how often this process waited for a page of a mapped file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def write_array(path: Path, array: NDArray[Any], block: int = BLOCK) -> NDArray[np.uint64]:
    """Write an array as a durable `.npy` file, and return the checksums of its blocks for `Mapped`."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = (flat[start : start + PIECE].data for start in range(0, flat.size, PIECE))
    write_new(path, chain([_npy_header(array.dtype, array.shape)], pieces))
    return _core.block_checksums(flat, block)


class Mapped:
    """A memory-mapped `.npy` array whose blocks are checked on first use: opening it reads only the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.npy"
    ...     sums = write_array(path, np.arange(5))
    ...     mapped = Mapped(path, np.dtype(np.int64), (5,), sums)
    ...     mapped.touch(0, 40)
    ...     mapped.array.tolist(), np.load(path).tolist()
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        sums: NDArray[np.uint64] | None = None,
        block: int = BLOCK,
    ) -> None:
        self.path, self._block = path, block
        header = _npy_header(dtype, shape)
        with open_file(path) as file:
            found, bytes_there = file.read(len(header)), os.fstat(file.fileno()).st_size
            bytes_due = len(header) + dtype.itemsize * math.prod(shape)
            if found != header or bytes_there != bytes_due:
                raise DamagedFile(
                    f"{path} is damaged: it should hold {dtype} of shape {shape} in {bytes_due} bytes and has "
                    f"{bytes_there}: restore a copy"
                )
            self._map: mmap.mmap | None = None
            if bytes_due == len(header):  # mmap refuses empty ranges
                self.array: NDArray[Any] = np.empty(shape, dtype=dtype)
            else:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.array = np.ndarray(shape, dtype, self._map, len(header))
        # Without checksums the caller verifies the contents.
        self.guard = None if sums is None else _core.ChecksumGuard(self.array.reshape(-1).view(np.uint8), sums, block)

    def check_size(self) -> None:
        """Raise if the file was truncated since it was mapped: reading what it lost would be a SIGBUS."""
        if self._map is not None and (bytes_there := self._map.size()) < len(self._map):
            raise DamagedFile(
                f"{self.path} was truncated from {len(self._map)} bytes to {bytes_there} since it was opened: "
                "restore a copy, and open it again"
            )

    def touch(self, begin: int, end: int) -> None:
        """Check the blocks of a range of bytes that were not checked yet; raise if one is damaged."""
        self.check_size()
        if self.guard is not None:
            self.guard.touch(begin, end)
        self.check()

    def touch_rows(self, positions: NDArray[np.uint32]) -> None:
        """Check the blocks of some rows; raise if one is damaged. Positions beyond the last row are ignored."""
        if self.guard is not None and len(self.array):
            self.guard.touch_rows(positions, self.array.nbytes // len(self.array))
        self.check()

    def expect_few_reads(self) -> None:
        """Let go of the memory that reading took, and read no pages beside those that are needed from now on."""
        self.unmap_pages()
        if self._map is not None:
            self._map.madvise(mmap.MADV_RANDOM)

    def unmap_pages(self) -> None:
        """Let go of the memory that reading took; the system may keep it in its page cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Check all blocks again; raise if one is damaged."""
        self.check_size()
        if self.guard is not None:
            self.guard.verify()
        self.check()

    def check(self) -> None:
        """Raise if a block that was checked so far is damaged."""
        if self.guard is not None and self.guard.first_damaged >= 0:
            raise DamagedFile(
                f"{self.path} is damaged: block {self.guard.first_damaged} of {self._block:,} bytes does not match its "
                "checksum: restore a copy, or build it again"
            )


class MappedArrays(dict[str, Mapped]):
    """The mapped arrays among some, by name. Those in memory are missing, and need no verification.

    >>> MappedArrays().touch()  # all is in memory
    """

    few_reads = False  # from now on: what searches scan is held in memory

    def guard(self, name: str) -> _core.ChecksumGuard | None:
        """Return what watches an array, or None in memory."""
        return self[name].guard if name in self else None

    def touch(self, *, but: Collection[str] = ()) -> None:
        """Verify the checksums of what was not read before; call it before reading everything, or all but some."""
        for name, mapped in self.items():
            if name not in but:
                mapped.touch(0, mapped.array.nbytes)

    def touch_rows(self, name: str, positions: NDArray[np.uint32]) -> None:
        """Verify the checksums of some rows of an array; positions beyond the last one are ignored."""
        if name in self:
            self[name].touch_rows(positions)

    def verify(self) -> None:
        """Verify all checksums, also of what was read before."""
        for mapped in self.values():
            mapped.verify()

    def check(self) -> None:
        """Raise if a checksum failed in what was read so far."""
        for mapped in self.values():
            mapped.check()

    def check_sizes(self) -> None:
        """Raise if a file was truncated."""
        for mapped in self.values():
            mapped.check_size()

    def release(self) -> None:
        """Let go of arrays that were read whole, where few reads will follow."""
        if self.few_reads:
            for mapped in self.values():
                mapped.expect_few_reads()

    def stays_in_file(self, name: str) -> bool:
        """Return whether searches read a few rows of an array from its file."""
        return self.few_reads and name in self

    def read_ahead(self, name: str, positions: NDArray[np.int64]) -> bool:
        """Ask the system for rows that stay in a file, and return whether some were not in memory."""
        return self.stays_in_file(name) and _core.read_ahead(self[name].array, self[name].guard, positions)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of NumPy's format 1.0 for this array; readers compare it and need no parser."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117) + b"\n"
