"""Records: named arrays with their settings and a checksum, as one safetensors file; and what is saved as one."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile, InvalidInput, OutOfMemory
from nestcode.storage.files import check_path, write_atomic

FORMAT = "nestcode"
Arrays = Mapping[str, NDArray[Any]]
FloatType = Literal["float32", "float16"]  # dtype of float arrays on disk


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

    check_path(path)
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
