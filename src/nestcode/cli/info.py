"""`nestcode info`: describe a file of Nestcode, or the installation."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import nestcode
from nestcode.cli.files import STANDARD, stream_file
from nestcode.cli.options import AsJson, printable
from nestcode.cli.plot import plot_errors, some_lengths
from nestcode.errors import DamagedFile

if TYPE_CHECKING:
    from nestcode.storage import Record

OPTIONAL = {
    "torch": "torch", "scikit-learn": "reproduce", "matplotlib": "reproduce", "pillow": "reproduce", "pyarrow": "arrow",
}  # fmt: skip
ERRORS = "expected_errors"
FILES = {  # kinds of records that are no coders, of the integrations
    "NestedIndex": "index", "NestcodeVectorStore": "store", "NestcodeLlamaIndexStore": "store",
    "NestcodeDocumentStore": "store",
}  # fmt: skip
GIVE = "give a coder, an index, a stream or codes (.npy)"


def info(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="A coder, an index or the folders of its parts, codes, or a stream, whole "
            "or truncated; - reads a stream from standard input.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a file; without a file, the version, SIMD kernels and optional packages of this installation.

    The key "file" of --json is coder, index, stream, codes (any rows of bytes), array, checkpoint or store.
    """
    if not files:
        _show(gather(), as_json=as_json)
        return
    file = files[0]
    if len(files) > 1 or (file != STANDARD and file.is_dir()):
        from nestcode.index.manifest import MANIFEST

        for folder in files:
            if not (folder / MANIFEST).exists():
                raise _foreign(f"there is no index in {folder}")
        _show_index(files, as_json=as_json)
    elif file != STANDARD and not file.exists():
        from nestcode.images.pretrained import PRETRAINED, pretrained_path

        if str(file) not in PRETRAINED:
            raise FileNotFoundError(f"there is no file {file}: {GIVE}")
        _show(coder_facts(pretrained_path(str(file))), as_json=as_json)
    else:
        start = _start(file)
        if start.startswith(b"\x93NUMPY"):
            _show(codes_facts(file), as_json=as_json)
        elif start[6:9] == b"\0\0{":  # the size of a header, and JSON
            _show(coder_facts(file), as_json=as_json)
        elif start.startswith(b"nestcode checkpoint"):
            _show({"file": "checkpoint", "bytes": file.stat().st_size}, as_json=as_json)
        else:
            _show_stream(file, as_json=as_json)


def _show_index(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print what an index in one folder or several holds."""
    from nestcode.index.folders import check_distinct, check_same
    from nestcode.index.manifest import checked_name
    from nestcode.index.store import CODER, Store

    check_distinct(paths)
    manifests = [Store(path, write=False).describe() for path in paths]
    manifest = manifests[0]
    check_same(paths, [{name: one.get(name) for name in ("width", "coder", "vectors")} for one in manifests])
    segments = [entry for one in manifests for entry in one["segments"]]
    removed = sum(entry["removed"]["count"] for entry in segments if entry["removed"])
    facts: dict[str, Any] = {
        "file": "index", **({"folders": len(paths)} if len(paths) > 1 else {}), "version": manifest["version"],
        "count": sum(entry["count"] for entry in segments) - removed, "width": manifest["width"],
        **({"vectors": manifest["vectors"]["dtype"]} if "vectors" in manifest else {}),
        "segments": len(segments), "removed": removed, "largest_id": max(one["largest"] for one in manifests),
        "bytes": sum(entry.stat().st_size for path in paths for entry in path.iterdir()),
    }  # fmt: skip
    if all(one.get("graph") for one in manifests):
        facts["graphs"] = sum(bool(entry.get("graph")) for entry in segments)
    if manifest.get("effort") is not None and all(one.get("effort") == manifest["effort"] for one in manifests):
        facts["effort"] = manifest["effort"]
    if manifest["coder"] is not None:
        about = coder_facts(paths[0] / checked_name(manifest["coder"]["name"], CODER), manifest["width"])
        errors = about.pop(ERRORS, {})
        facts |= {
            "coder": {name: about[name] for name in about if name not in ("file", "bytes", "chosen", "trained_on")}
        }
        if "chosen" in about:
            facts["chosen"] = about["chosen"]
        facts[ERRORS] = errors
    _show(facts, as_json=as_json)


def coder_facts(path: Path, width: int | None = None) -> dict[str, Any]:
    """Return the facts in a coder's file, with errors of up to `width` bits; PyTorch is not needed to read it."""
    from nestcode.coders.base import Selection
    from nestcode.images.pretrained import PRETRAINED, find_pretrained, loaded_fingerprint
    from nestcode.storage import read_record

    record = read_record(path)
    settings = {name: value for name, value in record.settings.items() if isinstance(value, str | int | float)}
    file = FILES.get(record.kind, "coder")
    facts: dict[str, Any] = {"file": file, "kind": record.kind, "version": record.version, **settings}
    if file != "coder":
        return {**facts, "count": len(record.arrays.get("ids", ())), "bytes": path.stat().st_size}
    try:
        selection = Selection.from_notes(record.notes)
        if selection is not None:
            facts["chosen"] = vars(selection)
        features = _features(record)
        if features is not None:
            facts["features"] = features
        name = find_pretrained(loaded_fingerprint(record))
        if name is not None:
            facts["trained_on"] = PRETRAINED[name]
        facts |= {"bytes": path.stat().st_size, "fingerprint": record.fingerprint}
        errors = record.arrays.get("errors")
        if errors is not None and features:
            lengths = some_lengths(len(errors) - 1 if width is None else width)
            facts[ERRORS] = {length: float(errors[length]) / features for length in lengths}
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path} is not a valid coder ({error}): restore a copy") from error
    return facts


def _features(record: "Record") -> int | None:
    if "features" in record.settings:
        return int(record.settings["features"])
    mean = record.arrays.get("mean", record.arrays.get("base.mean"))
    return None if mean is None else len(mean)


def codes_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a .npy file: of codes if it holds rows of bytes."""
    from nestcode.cli.files import read_array

    array = read_array(path, least=1)
    size = path.stat().st_size
    if array.dtype != "u1" or array.ndim != 2:
        return {"file": "array", "shape": array.shape, "dtype": str(array.dtype), "bytes": size}
    most = 8 * array.shape[1]
    return {"file": "codes", "count": len(array), "width_at_most": most, "bytes": size}


def _foreign(why: str) -> DamagedFile:
    return DamagedFile(f"{why}: {GIVE}")


def _start(path: Path) -> bytes:
    """Return the first bytes of a file; none of a pipe, which can be read only once."""
    if path == STANDARD or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(32)


def _show_stream(path: Path, *, as_json: bool) -> None:
    from nestcode.container.files import FileView
    from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC
    from nestcode.streams import ItemStreamInfo, stream_info
    from nestcode.streams.format import parse_header

    with stream_file(path) as found:
        data = FileView(found)
    if not len(data) or not any(magic.startswith(bytes(data[:8])) for magic in (ITEMS_MAGIC, IMAGES_MAGIC)):
        raise _foreign(f"{'standard input' if path == STANDARD else path} is not a file of Nestcode")
    known = stream_info(data)
    if as_json:
        print(json.dumps({"file": "stream", **vars(known)}, indent=2))
        return
    print(printable(str(known)))
    if isinstance(known, ItemStreamInfo):
        errors = parse_header(data).errors
        at = [min(64 * place, known.width) for place in range(len(errors))]
        shown = {at[place]: errors[place] for place in some_lengths(len(errors) - 1)}
        print(f"\n{plot_errors(shown)}")


def gather() -> dict[str, Any]:
    """Return the facts of this installation by name; None for a package that is missing."""
    from importlib.metadata import version

    from nestcode import _core

    return {
        "nestcode": nestcode.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count() or 1,
        "simd": _core.simd_names(),
        "numpy": version("numpy"),
        **{package: _installed(package) for package in OPTIONAL},
    }


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _show(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    errors = facts.pop(ERRORS, None)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(f"[bold]{escape(printable(name.replace('_', ' ')))}[/]", _shown(name, value))
    Console().print(table)
    if errors:
        print(f"\n{plot_errors(errors)}")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return f"not installed: pip install 'nestcode\\[{OPTIONAL[name]}]'"
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, list):
        return f"{value[-1]} (of {', '.join(value)})"
    if name == "chosen":
        return escape(printable(f"by nestcode.fit for {value['goal']}: {value['reason']}"))
    if isinstance(value, dict):
        settings = ", ".join(f"{key}={value[key]}" for key in value if key != "kind")
        return escape(printable(f"{value['kind']}({settings})" if "kind" in value else settings))
    counted = isinstance(value, int) and name in ("count", "bytes", "removed")
    return f"{value:,}" if counted else escape(printable(str(value)))
