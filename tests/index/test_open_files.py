"""What nobody refers to any more has no file open, without waiting for the garbage collector."""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestcode as nc
from nestcode.data import digits
from nestcode.errors import DamagedFile
from nestcode.index import compaction
from nestcode.streams import StreamReader

X = digits()[0][:300].astype(np.float32)
CODER = nc.LinearCoder(64).fit(X)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def open_files(folder: Path) -> list[str]:
    """The files below a folder that this process has open, deleted ones too."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself, and what another thread closes meanwhile
            found.append(str(handle.readlink()))
    return [path for path in found if path.startswith(str(folder.resolve()))]


@pytest.fixture(params=[{}, {"vectors": "float16"}, {"graph": True}], ids=["codes", "vectors", "graph"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compaction, "MIN_GRAPH", 64)
    options: dict[str, Any] = request.param
    index = nc.Index(CODER, **options)
    index.add(X)
    index.compact()
    index.save(tmp_path / "index")
    return tmp_path / "index"


def test_an_index_that_was_searched(folder: Path) -> None:
    def use() -> None:
        index = nc.Index.open(folder)
        assert open_files(folder)
        index.search(X[:2], k=3)
        index.search(X[0], k=3, candidates=50)
        index.search(CODER.encode(X[:2]), k=3)
        index.neighborhood(X[0], size=5)

    use()
    assert open_files(folder) == []


def test_a_writer_that_committed(folder: Path) -> None:
    def use() -> None:
        with nc.Index.open(folder, mode="a") as index:
            index.update(X[:5] / 2, ids=range(5))
            index.search(X[:2], k=3)
            index.compact()
            index.commit()

    use()
    assert open_files(folder) == []


def test_an_index_that_is_damaged(folder: Path) -> None:
    (folder / "000001.ids.npy").write_bytes(b"other")
    with contextlib.suppress(DamagedFile):
        pytest.fail(f"{nc.Index.open(folder)} is damaged")
    assert open_files(folder) == []


def test_a_stream(tmp_path: Path) -> None:
    (tmp_path / "s.nest").write_bytes(nc.compress(X, CODER))
    reader = StreamReader(tmp_path / "s.nest", coder=CODER)
    assert open_files(tmp_path)
    del reader
    assert open_files(tmp_path) == []
