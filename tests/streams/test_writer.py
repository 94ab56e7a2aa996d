"""Streams of items written to files: as in memory, complete or not there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nestcode.streams.items
from nestcode import ImageStreamWriter, LinearCoder, StreamWriter, compress
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from tests.streams.collections import few_items, some_coder, some_items, stream_info


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), max_size=4), st.booleans(), st.booleans(), st.sampled_from([None, 0, 100]))
def test_a_writer_writes_what_compress_makes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], embed: bool, entropy: bool, length: int | None
) -> None:
    folder, items = tmp_path_factory.mktemp("streams"), few_items(sum(sizes))
    with StreamWriter(folder / "a.nest", some_coder(), embed=embed, entropy=entropy, length=length) as writer:
        for last, size in zip(np.cumsum(sizes), sizes, strict=True):
            writer.add(items[last - size : last])
        assert not any(folder.iterdir())  # nothing before it is complete
    data = (folder / "a.nest").read_bytes()
    assert data == compress(items, some_coder(), embed=embed, entropy=entropy, length=length)
    assert stream_info(data).entropy == entropy or len(items) < 30 or length == 0
    assert [path.name for path in folder.iterdir()] == ["a.nest"]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.nest").write_bytes(b"the old one")
    with pytest.raises(InvalidInput, match="finite"), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.add(np.concatenate([some_items(5), np.full((1, 24), np.nan, dtype=np.float32)]))
    assert (tmp_path / "a.nest").read_bytes() == b"the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["a.nest"]
    with pytest.raises(InvalidInput, match="is closed"):
        writer.add(some_items(5))


def test_refused_items_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nestcode.streams.items, "BATCH", 24 * 2)  # two items: some are spooled before the NaN
    bad = np.concatenate([some_items(5), np.full((1, 24), np.nan, dtype=np.float32)])
    with StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        for items in (some_items(7), some_items(3)):
            with pytest.raises(InvalidInput, match="finite"):
                writer.add(bad if writer.count else bad.astype(np.float64))
            writer.add(items)
    assert (tmp_path / "a.nest").read_bytes() == compress(np.concatenate([some_items(7), some_items(3)]), some_coder())


def test_a_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="must be a file or not exist"):
        StreamWriter(tmp_path, some_coder())
    with pytest.raises(IsADirectoryError, match="must be a file or not exist"):
        ImageStreamWriter(tmp_path)


def test_an_interrupt_while_encoding_or_writing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Codes:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearCoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.add(some_items(5))
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.add(some_items(5))
    assert not any(tmp_path.iterdir())


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    source = """
import os, signal, sys
from nestcode import StreamWriter
from tests.streams.collections import some_coder, some_items
with StreamWriter(sys.argv[1], some_coder()) as writer:
    writer.add(some_items(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", source, str(tmp_path / "a.nest")]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert run.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_items_of_a_writer_must_share_shape_and_type(tmp_path: Path) -> None:
    with StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.add(some_items(5))
        for other in (some_items(5).astype(np.float64), some_items(5).reshape(5, 4, 6)):
            with pytest.raises(InvalidInput, match="as the first ones"):
                writer.add(other)
        writer.add(some_items(2))
        assert writer.count == 7
    writer.close()  # closing twice does nothing
    assert (tmp_path / "a.nest").read_bytes() == compress(np.concatenate([some_items(5), some_items(2)]), some_coder())


def test_a_writer_needs_a_fitted_coder(tmp_path: Path) -> None:
    unfitted: Coder = LinearCoder(width=8)
    with pytest.raises(InvalidInput, match="not fitted"):
        StreamWriter(tmp_path / "a.nest", unfitted)
    assert not any(tmp_path.iterdir())
