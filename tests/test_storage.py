"""Records are checked; atomic writes leave the old file or the new one, never a part."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode.errors import DamagedFile
from nestcode.storage import (
    Mapped,
    Record,
    Storable,
    parse_record,
    read_record,
    record_bytes,
    write_array,
    write_atomic,
)


def test_write_atomic_creates_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file.bin"
    write_atomic(path, b"first")
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_leaves_no_draft(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(type(failure)):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_a_plain_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("name", ["x" * 237, "x" * 238, "x" * 255, "é" * 127 + "x", ".hidden"])
def test_every_legal_file_name_works(name: str, tmp_path: Path) -> None:
    write_atomic(tmp_path / name, b"complete")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"complete"


def test_folders_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("pipe")
    before = sorted(tmp_path.rglob("*"))
    for name, why in [("folder", "a folder"), ("pipe", "a pipe"), ("link", "a pipe"), ("file/below", "is a file")]:
        with pytest.raises(OSError, match=f"{tmp_path / name} must be .*{why}"):
            write_atomic(tmp_path / name, b"new")
    for device in ("/dev/null", "/dev/stdout", "/dev/fd/1"):
        with pytest.raises(OSError, match=f"{device} must be a file"):
            write_atomic(device, b"new")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("exists", [True, False])
def test_symbolic_links_are_followed(exists: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == link.read_bytes() == b"new"


RECORD = Record("Kind", 1, {"width": 8}, {"values": np.arange(3)}, {"selection": {"goal": "search"}})


def edited(change: Callable[[dict[str, str]], Any]) -> bytes:
    """Return the bytes of RECORD with other metadata."""
    data = record_bytes(RECORD)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def test_notes_are_kept_outside_the_fingerprint() -> None:
    assert parse_record(record_bytes(RECORD), "it").notes == RECORD.notes
    assert Record("Kind", 1, {"width": 8}, {"values": np.arange(3)}).fingerprint == RECORD.fingerprint
    assert parse_record(edited(lambda metadata: metadata.pop("notes_sha256")), "it").notes == RECORD.notes


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata.update(notes=metadata["notes"].replace("search", "sparch")),
        lambda metadata: metadata.update(notes_sha256="0" * 64),
        lambda metadata: metadata.pop("notes"),
        lambda metadata: (metadata.update(notes="[]"), metadata.pop("notes_sha256")),
        lambda metadata: (metadata.update(notes="5"), metadata.pop("notes_sha256")),
        lambda metadata: (metadata.update(notes="{"), metadata.pop("notes_sha256")),
    ],
)
def test_damaged_notes_are_refused(change: Callable[[dict[str, str]], Any]) -> None:
    with pytest.raises(DamagedFile, match="it is damaged"):
        parse_record(edited(change), "it")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "BF16", "F4"])
def test_types_that_numpy_lacks_are_refused(dtype: str, tmp_path: Path) -> None:
    data = record_bytes(Record("LinearCoder", 1, {}, {"x": np.zeros(16, np.uint8)}))
    size = {"BF16": 8, "F4": 32}.get(dtype, 16)
    forged = data.replace(b'"dtype":"U8","shape":[16]', f'"dtype":"{dtype}","shape":[{size}]'.encode())
    text = forged[8:-16].rstrip()
    text = text.ljust(-(-len(text) // 8) * 8)
    (tmp_path / "a.coder").write_bytes(len(text).to_bytes(8, "little") + text + data[-16:])
    with pytest.raises(DamagedFile, match="damaged or not a Nestcode file"):
        read_record(tmp_path / "a.coder")
    with pytest.raises(DamagedFile, match="damaged or not a Nestcode file"):
        parse_record((tmp_path / "a.coder").read_bytes(), "it")


def test_a_file_that_is_truncated_while_it_is_mapped_is_refused(tmp_path: Path) -> None:
    path, values = tmp_path / "values.npy", np.arange(3000)
    mapped = Mapped(path, values.dtype, values.shape, write_array(path, values))
    mapped.verify()
    os.truncate(path, 5000)
    for read in (mapped.check_size, mapped.verify, lambda: mapped.touch(0, 8)):
        with pytest.raises(DamagedFile, match=r"was truncated from 24128 bytes to 5000 since it was opened: restore"):
            read()
    path.write_bytes(bytes(24128))
    mapped.check_size()
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        mapped.verify()


class Stored(Storable):
    """One array, in the second version of its layout."""

    VERSION = 2

    def __init__(self, array: Any, version: int = 2) -> None:
        self.array, self.version = np.asarray(array), version

    def to_record(self) -> Record:
        return Record("Stored", self.version, {"b": 1, "a": 2}, {"array": self.array})

    @classmethod
    def _read(cls, record: Record) -> "Stored":
        return cls(record.arrays["array"], record.version)


LARGEST = float(np.finfo(np.float16).max)


@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (np.array([0, 0], np.float32), np.float16),
        (np.array([0.5, -0.002], np.float32), np.float16),
        (np.array([0.002], np.float32), np.float16),
        (np.array([0.0009, -0.0005], np.float32), np.float32),  # which float16 would round to few digits
        (np.array([LARGEST - 100, 1], np.float32), np.float16),
        (np.array([-LARGEST, 1], np.float32), np.float32),
        (np.array([1e6], np.float32), np.float32),
        (np.array([0.5], np.float64), np.float64),
        (np.array([1, 2], np.uint8), np.uint8),
    ],
)
def test_only_float32_in_the_range_of_float16_is_stored_so(array: Any, stored: Any, tmp_path: Path) -> None:
    Stored(array).save(tmp_path / "half", dtype="float16")
    Stored(array).save(tmp_path / "whole")
    assert read_record(tmp_path / "half").arrays["array"].dtype == stored
    assert read_record(tmp_path / "whole").arrays["array"].dtype == array.dtype
    found = Stored.from_record(read_record(tmp_path / "half"), "half").array
    assert found.dtype == array.dtype
    np.testing.assert_allclose(found, array, rtol=1e-3)


def test_files_of_earlier_versions_are_read_and_of_later_ones_refused() -> None:
    for version in (1, 2):
        assert Stored.from_record(Stored([1.0], version).to_record(), "file").version == version
    with pytest.raises(DamagedFile, match="file has version 3 of the Stored layout, this nestcode reads up to 2: upg"):
        Stored.from_record(Stored([1.0], 3).to_record(), "file")
    with pytest.raises(DamagedFile, match="file is not a Stored as it should be"):
        Stored.from_record(Record("Stored", 2, {}, {}), "file")


def test_equal_records_have_equal_bytes_with_a_sorted_and_aligned_header() -> None:
    for length in range(9):
        record = Record("Stored", 1, {"name": "x" * length}, {"b": np.arange(3), "a": np.arange(2.0)})
        data = record_bytes(record)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        assert data[8 : 8 + size].rstrip() == json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        assert size % 8 == 0
        assert size - len(data[8 : 8 + size].rstrip()) < 8
        assert {record_bytes(record) for _ in range(5)} == {data}


def test_a_record_with_another_fingerprint_is_refused() -> None:
    data = record_bytes(Stored([1.0, 2.0]).to_record())
    last = data[-1]
    for byte in range(0, 256, 5):  # fingerprints before and after the right one
        if byte != last:
            with pytest.raises(DamagedFile, match="checksum does not match"):
                parse_record(data[:-1] + bytes([byte]), "file")
