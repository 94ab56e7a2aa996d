"""Checkpoints: the state from which a run continues as if it had not stopped, in a file that is whole or absent."""

import hashlib
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from nestcode.errors import DamagedFile, InvalidInput
from nestcode.storage import make_folder, write_atomic

KIND = "nestcode checkpoint 1\n"


def write_checkpoint(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write tensors and plain values; a crash leaves the previous checkpoint."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    head = KIND + hashlib.sha256(data).hexdigest() + "\n"
    write_atomic(path, head.encode() + data)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state of a checkpoint, verified by its checksum."""
    whole = Path(path).read_bytes()
    kind, digest, data = whole[: len(KIND)], whole[len(KIND) : len(KIND) + 64], whole[len(KIND) + 65 :]
    if kind != KIND.encode():
        raise DamagedFile(f"{path} is not a checkpoint of this version: give another, or start again without resume")
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise DamagedFile(f"{path} is damaged, its checksum does not match: start again without resume")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise DamagedFile(f"{path} cannot be read ({error}): start again without resume") from error
    return state


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise before training if a checkpoint cannot be written there, or would replace another kind of file."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InvalidInput(f"checkpoint must be the path of a file, got {path!r}")
    file = Path(path)
    try:
        make_folder(file.parent)
        kind = KIND.encode()
        if file.exists():
            with file.open("rb") as opened:  # its first bytes only: networks are large
                kind = opened.read(len(KIND))
    except OSError as error:
        raise InvalidInput(f"checkpoint must be a writable file, got {path}: {error}") from error
    if kind not in (KIND.encode(), b""):
        raise InvalidInput(f"{path} exists and is not a checkpoint: give another path, or remove it")
    if not os.access(file.parent, os.W_OK):
        raise InvalidInput(f"checkpoint must be in a writable folder, got {path}")


def check_identity(path: str | os.PathLike[str], found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise if a checkpoint is of a run with other settings, data or model."""
    for name, value in expected.items():
        if json.dumps(found.get(name), sort_keys=True) == json.dumps(value, sort_keys=True):
            continue
        what = f"other {name}" if name in ("data", "model") else f"{name}={found.get(name)!r}, not {value!r}"
        raise InvalidInput(
            f"{path} is from a run with {what}: resume with the same settings, data and model, or to another path"
        )
