"""Files are whole or not there."""

import os
from pathlib import Path

import pytest

from nestcode.storage import write_atomic


def test_it_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file.bin"
    write_atomic(path, b"first")
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_no_litter(
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


def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("name", ["x" * 237, "x" * 238, "x" * 255, "é" * 127 + "x", ".hidden"])
def test_any_name_that_a_file_may_have(name: str, tmp_path: Path) -> None:
    write_atomic(tmp_path / name, b"all of it")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"all of it"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("there", [True, False])
def test_links_are_written_through(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == link.read_bytes() == b"new"
