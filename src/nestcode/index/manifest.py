"""The manifest of an index: which files are current, under a checksum. Every value in it is checked before use."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from nestcode.errors import DamagedFile
from nestcode.storage import open_file, parse_json, write_atomic

FORMAT, VERSION = "nestcode index", 7
MANIFEST = "manifest.json"
MALFORMED = (LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError)  # what bad ones raise


def write_manifest(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Replace the manifest of a folder atomically, in the first version that can describe it. Return it as read."""
    version = 3 if "graph" in manifest else 2 if "vectors" in manifest else 1
    version = 4 if any("arrays" in entry for entry in manifest["segments"]) else version
    version = 5 if any("layout" in entry.get("graph", ()) for entry in manifest["segments"]) else version
    version = 6 if "attributes" in manifest else version
    version = 7 if any("blocks" in entry.get("graph", ()) for entry in manifest["segments"]) else version
    manifest = {"format": FORMAT, "version": version, **manifest}
    data = json.dumps({**manifest, "sha256": sha256(_canonical(manifest))}, indent=1)
    write_atomic(folder / MANIFEST, data.encode())
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, or raise if its checksum does not match."""
    path = folder / MANIFEST
    try:
        with open_file(path) as file:
            manifest = parse_json(file.read())
        found = manifest.pop("sha256")
        known, version = manifest["format"] == FORMAT, int(manifest["version"])
        intact = found == sha256(_canonical(manifest))
    except (FileNotFoundError, NotADirectoryError):
        raise no_index(folder) from None
    except (IsADirectoryError, *MALFORMED) as error:
        raise DamagedFile(f"{path} is damaged or was not written by Nestcode: restore a copy") from error
    if known and version > VERSION:
        raise DamagedFile(f"{path} has version {version}, this nestcode reads up to {VERSION}: upgrade nestcode")
    if not known or not intact:
        raise DamagedFile(f"{path} is damaged, its checksum does not match: restore a copy")
    return dict(manifest)


def is_index(folder: Path) -> bool:
    """Return whether a folder is that of an index, also of a damaged one."""
    try:
        return FORMAT.encode() in (folder / MANIFEST).read_bytes()[:200]
    except OSError:
        return False


def file_numbers(manifest: dict[str, Any]) -> list[str]:
    """Return the numbers that the names of all files begin with, but for the coder's."""
    entries = manifest["segments"]
    beside = (entry.get(key) for entry in entries for key in ("removed", "graph"))
    return [entry["name"] for entry in (*entries, *filter(None, beside))]


def checked_name(name: str, pattern: re.Pattern[str]) -> str:
    """Return a name from a manifest, or raise if it could lead out of the folder."""
    if not pattern.fullmatch(name):
        raise ValueError(f"{name!r} is no file of an index")
    return name


def array_names(entry: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """Return the names of the arrays of a segment, in the order of their checksums."""
    if "arrays" in entry:
        return list(entry["arrays"])
    vectors = manifest.get("vectors")
    early = ["codes", "ids", "heads", "tables", "places"]
    return early + ([] if vectors is None else ["vectors", "scales"] if vectors["dtype"] == "int8" else ["vectors"])


def checked_int(value: Any, least: int, most: int) -> int:
    """Return an integer from a manifest, or raise if it is out of range."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} should be an integer from {least} to {most}")
    return value


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def no_index(path: str | os.PathLike[str]) -> FileNotFoundError:
    """Return the error for a folder without a manifest."""
    if (Path(path) / "part-0000").is_dir():
        return FileNotFoundError(
            f"{os.fspath(path)} holds the parts of an index, which Index.open reads as one: give one of them"
        )
    return FileNotFoundError(f"there is no index in {os.fspath(path)}: build one there, or give the right folder")


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()
