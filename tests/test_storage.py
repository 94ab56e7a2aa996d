"""Records are checked; atomic writes leave the old file or the new one, never a part."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from re import fullmatch
from typing import Any

import numpy as np
import pytest

from nestcode.errors import DamagedFile
from nestcode.storage import (
    Mapped,
    Record,
    Storable,
    check_arrays,
    lock_file,
    open_file,
    parse_json,
    parse_record,
    read_record,
    record_bytes,
    unlock_file,
    write_array,
    write_atomic,
    write_pieces,
)


def test_write_atomic_creates_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file.bin"
    write_atomic(path, b"first")
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["mkdir", "open", "fsync", "replace"])
def test_a_full_disk_is_named_with_the_remedy(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file.bin"

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(OSError, match="cannot be written, as its disk is full: make room, or choose") as raised:
        write_atomic(path, b"new")
    assert str(raised.value).startswith(f"{path if step in ('open', 'replace') else path.parent} ")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("number", "kind"), [(errno.EFBIG, OSError), (errno.EACCES, PermissionError)])
def test_errors_of_the_system_name_the_file_and_not_its_draft(
    number: int, kind: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match=f"file.bin cannot be written .{os.strerror(number)}.: choose") as raised:
        write_atomic(tmp_path / "file.bin", b"new")
    assert str(raised.value).startswith(f"{tmp_path / 'file.bin'} ")
    assert raised.value.errno == number


def test_errors_of_reading_what_is_written_stay_as_they_are(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        yield (tmp_path / "input").read_bytes()

    with pytest.raises(FileNotFoundError) as raised:
        write_pieces(tmp_path / "file.bin", pieces())
    assert raised.value.filename == str(tmp_path / "input")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt("Ctrl-C")])
def test_a_failure_keeps_the_old_file_and_leaves_no_draft(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.bin"
    write_atomic(path, b"old")

    def fail(*_: object, **__: object) -> None:
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(type(failure), match=str(failure)):
            write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_renamed_was_synced_whole_and_new_names_are_synced_in_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, int]] = []
    drafts: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append((path, 0 if path.is_dir() else path.stat().st_size))
        sync(handle)

    def replace(self: Path, target: Path) -> Path:
        drafts.append(self.name)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    folder = tmp_path.resolve() / "a" / "b"
    write_atomic(folder / "file", b"complete")
    assert fullmatch(r"\.file\.[0-9a-f]{16}", drafts[0])  # by which an index recognizes what a crash left
    made = [(folder.parent, 0), (tmp_path.resolve(), 0)]
    assert synced == [*made, (folder / drafts[0], len(b"complete")), (folder, 0)]


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
    os.truncate(path, 24129)
    mapped.verify()  # more than was mapped harms nobody
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
    for length in range(17):
        record = Record("Stored", 1, {"name": "x" * length}, {"b": np.arange(3), "a": np.arange(2.0)})
        data = record_bytes(record)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        assert data[8 : 8 + size].rstrip() == json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        assert size % 8 == 0
        assert size - len(data[8 : 8 + size].rstrip()) < 8
        assert {record_bytes(record) for _ in range(5)} == {data}
        assert parse_record(data, "it").settings == record.settings


def test_a_record_with_another_fingerprint_is_refused() -> None:
    data = record_bytes(Stored([1.0, 2.0]).to_record())
    last = data[-1]
    for byte in range(0, 256, 5):  # fingerprints before and after the right one
        if byte != last:
            with pytest.raises(DamagedFile, match="checksum does not match"):
                parse_record(data[:-1] + bytes([byte]), "file")


def test_other_types_and_shapes_and_what_is_not_finite_are_refused() -> None:
    expected = {"x": (np.float32, (2, 3))}
    check_arrays({"x": np.zeros((2, 3), np.float32)}, expected)
    for dtype, shape in [(np.float16, (2, 3)), (np.float64, (2, 3)), (np.float32, (2, 2)), (np.float32, (2, 4))]:
        with pytest.raises(ValueError, match="its x are"):
            check_arrays({"x": np.zeros(shape, dtype)}, expected)
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="not finite"):
            check_arrays({"x": np.full((2, 3), value, np.float32)}, expected)


@pytest.mark.parametrize("name", ["", "nestcodd", "nestcodf", None])
def test_records_of_other_formats_are_refused(name: str | None) -> None:
    change = {} if name is None else {"format": name}
    with pytest.raises(DamagedFile, match="it was not written by Nestcode"):
        parse_record(edited(lambda metadata: (metadata.pop("format"), metadata.update(change))), "it")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', b'[{"a": {"b": 1, "c": 2, "b": 3}}]'])
def test_json_that_repeats_a_key_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="repeats a key"):
        parse_json(text)
    assert parse_json('{"a": {"b": 1}, "b": [{}, {"a": 2}]}') == {"a": {"b": 1}, "b": [{}, {"a": 2}]}


def test_a_class_without_versions_reads_the_first() -> None:
    class First(Stored):
        VERSION = Storable.VERSION

    assert First.from_record(Stored([1.0], 1).to_record(), "file").version == 1
    with pytest.raises(DamagedFile, match="reads up to 1"):
        First.from_record(Stored([1.0], 2).to_record(), "file")


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_arrays_without_items_are_mapped(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.zeros(shape, np.float32)
    mapped = Mapped(tmp_path / "x.npy", values.dtype, shape, write_array(tmp_path / "x.npy", values))
    mapped.verify()
    mapped.touch_rows(np.zeros(1, np.uint32))
    mapped.expect_few_reads()
    mapped.unmap_pages()
    assert mapped.array.shape == np.load(tmp_path / "x.npy").shape == shape


def test_a_file_of_another_array_or_size_is_not_mapped(tmp_path: Path) -> None:
    path, values = tmp_path / "x.npy", np.arange(6, dtype=np.int64).reshape(3, 2)
    sums = write_array(path, values)
    data = path.read_bytes()
    assert np.array_equal(Mapped(path, values.dtype, (3, 2), sums).array, values)
    for dtype, shape in [(np.int32, (3, 2)), (np.uint64, (3, 2)), (np.int64, (2, 3)), (np.int64, (3,)), (np.int8, ())]:
        with pytest.raises(DamagedFile, match="it should hold"):
            Mapped(path, np.dtype(dtype), shape, sums)
    for forged in (data[:-1], data + b" ", b"\x94" + data[1:], b"\x92" + data[1:], data[:100]):
        path.write_bytes(forged)
        with pytest.raises(DamagedFile, match="it should hold"):
            Mapped(path, values.dtype, (3, 2), sums)


def test_blocks_are_checked_when_their_rows_are_read_and_no_earlier(tmp_path: Path) -> None:
    path, values = tmp_path / "x.npy", np.arange(64, dtype=np.int64).reshape(16, 4)  # 2 rows a block
    sums = write_array(path, values, block=64)
    data = bytearray(path.read_bytes())
    data[128 + 5 * 32] ^= 1  # row 5, in block 2
    path.write_bytes(data)
    for fine, bad in [([0, 1, 2, 3, 6, 15, 99], [4]), ([6, 0], [5])]:
        mapped = Mapped(path, values.dtype, values.shape, sums, block=64)
        mapped.touch_rows(np.array(fine, np.uint32))
        mapped.touch(0, 128)
        mapped.touch(192, 512)
        with pytest.raises(DamagedFile, match="block 2 of 64 bytes does not match"):
            mapped.touch_rows(np.array(bad, np.uint32))
        with pytest.raises(DamagedFile, match="block 2"):  # and what was found stays known
            mapped.check()
    with pytest.raises(DamagedFile, match="block 2"):
        Mapped(path, values.dtype, values.shape, sums, block=64).touch(128, 129)
    unguarded = Mapped(path, values.dtype, values.shape)
    unguarded.touch(0, 512)
    unguarded.touch_rows(np.arange(16, dtype=np.uint32))
    unguarded.verify()


def test_large_arrays_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestcode.storage.mapped.PIECE", 1000)
    for size in (999, 1000, 1001, 2500):
        values = np.arange(size, dtype=np.uint8)
        write_array(tmp_path / "x.npy", values)
        assert np.array_equal(np.load(tmp_path / "x.npy"), values)
    assert len(write_array(tmp_path / "x.npy", np.zeros(2 * 65536 + 1, np.uint8))) == 3  # blocks, as files have them


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(DamagedFile, match="a pipe or a device"):
        open_file(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        open_file(tmp_path)
    with open_file(tmp_path / "file") as file:
        assert file.read() == b"mine"


def test_a_lock_excludes_others_until_it_is_released(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("ab") as one, (tmp_path / "lock").open("ab") as other:
        lock_file(one)
        with pytest.raises(OSError, match="unavailable"):
            lock_file(other)
        unlock_file(one)
        lock_file(other)


@pytest.mark.parametrize("missing", ["coder", "folder"])
def test_a_record_is_read_from_a_file_that_exists(missing: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises((FileNotFoundError, IsADirectoryError), match=f"{tmp_path / missing}"):
        read_record(tmp_path / missing)
