"""Files that are not what they should be: truncated while they are read, pipes and devices in their place."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

import nestcode as nc
from nestcode.container.files import FileView
from nestcode.errors import DamagedFile, NestcodeError
from tests.images.samples import codec
from tests.images.samples import stream as image_stream
from tests.streams.collections import some_coder, some_items, stream


def test_slices_are_those_of_the_bytes(tmp_path: Path) -> None:
    data = bytes(range(200))
    (tmp_path / "a").write_bytes(data)
    view = FileView(tmp_path / "a")
    assert len(view) == 200
    for part in (slice(None), slice(3, 9), slice(-5, None), slice(9, 3), slice(190, 1000)):
        assert view[part] == data[part]
    view.close()
    view.close()  # closing twice does nothing


def test_a_file_truncated_by_others_raises(tmp_path: Path) -> None:
    """A mapped file would end the process by SIGBUS."""
    path = tmp_path / "a.nest"
    path.write_bytes(stream(some_items(900)))
    with nc.StreamReader(path, some_coder()) as reader:
        os.truncate(path, 5000)
        with pytest.raises(DamagedFile, match="was truncated to 5000 bytes while it was read: open it again"):
            reader[:]
    path.write_bytes(image_stream())
    with nc.ImageStreamReader(path, codec()) as images:
        os.truncate(path, 1500)
        with pytest.raises(DamagedFile, match="was truncated to 1500 bytes while it was read"):
            list(images)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_in_place_of_files_are_refused(kind: str, tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer, and reading a device may never end."""

    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")

    put(tmp_path / "a.nest")
    for read in (nc.StreamReader, nc.ImageStreamReader):
        with pytest.raises(DamagedFile, match="must be a file, but it is a pipe or a device"):
            read(tmp_path / "a.nest")
    with pytest.raises(FileNotFoundError):
        nc.load_coder(tmp_path / "a.nest")
    index = nc.Index(width=16)
    index.add(nc.Codes(np.arange(40, dtype=np.uint8).reshape(20, 2), 16))
    index.save(tmp_path / "a.index")
    for path in sorted((tmp_path / "a.index").iterdir()):
        whole = path.read_bytes()
        put(path)
        if path.name == "lock":
            nc.Index.open(tmp_path / "a.index").close()
        else:
            with pytest.raises((NestcodeError, OSError)):
                nc.Index.open(tmp_path / "a.index").search(nc.Codes(np.zeros((1, 2), np.uint8), 16), k=1)
        path.unlink()
        path.write_bytes(whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device of a full disk is Linux's")
def test_a_stream_that_fills_the_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: SIM115, PTH123
    writer = nc.ImageStreamWriter(tmp_path / "a.nest")
    with pytest.raises(OSError, match=r"a\.nest cannot be written, as its disk is full"), writer:
        writer.add("a.png", np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8))
    assert [*tmp_path.iterdir()] == []
