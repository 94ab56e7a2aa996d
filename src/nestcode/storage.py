"""Files that are either whole or not there, and that know what they hold.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "note.txt"
...     write_atomic(path, b"all of it")
...     path.read_bytes()
b'all of it'
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.errors import DamagedFile

FORMAT = "nestcode"
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Record:
    """Named arrays with the settings that made them: what a fitted coder is on disk."""

    kind: str  # what it is, for example "LinearCoder"
    version: int  # of this kind's layout
    settings: dict[str, Any]  # JSON values
    arrays: dict[str, NDArray[Any]]

    @property
    def fingerprint(self) -> str:
        """A checksum of all of it, the same wherever and whenever it is computed."""
        digest = hashlib.sha256(f"{self.kind}\n{self.version}\n{json.dumps(self.settings, sort_keys=True)}\n".encode())
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record as one safetensors file, whole or not at all."""
    from safetensors.numpy import save

    metadata = {
        "format": FORMAT,
        "kind": record.kind,
        "version": str(record.version),
        "settings": json.dumps(record.settings, sort_keys=True),
        "sha256": record.fingerprint,
    }
    write_atomic(path, save({name: np.ascontiguousarray(array) for name, array in record.arrays.items()}, metadata))


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record and prove that it is what was written."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path that was saved to")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != FORMAT:
            raise DamagedFile(f"{path} was not written by Nestcode: give a file that a coder's save() wrote")
        record = Record(metadata["kind"], int(metadata["version"]), json.loads(metadata["settings"]), arrays)
        expected = metadata["sha256"]
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(
            f"{path} is damaged or not a Nestcode file ({error}): save it again or restore a copy"
        ) from error
    if record.fingerprint != expected:
        raise DamagedFile(f"{path} is damaged, its checksum does not match: save it again or restore a copy")
    return record


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file at `path` by `data`; a crash or Ctrl-C leaves the old file or the new one.

    The folder is made if it is not there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
