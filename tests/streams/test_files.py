"""Streams in files: as in memory, whole or not there, and read in pieces."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import LinearCoder, StreamReader, StreamWriter, compress, decompress, info
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from tests.streams.collections import few_items, skewed, some_coder, some_items, stream


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), max_size=4), st.booleans(), st.booleans(), st.sampled_from([None, 0, 100]))
def test_a_writer_writes_what_compress_makes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], embed: bool, entropy: bool, length: int | None
) -> None:
    folder, items = tmp_path_factory.mktemp("streams"), few_items(sum(sizes))
    with StreamWriter(folder / "a.nest", some_coder(), embed=embed, entropy=entropy, length=length) as writer:
        for last, size in zip(np.cumsum(sizes), sizes, strict=True):
            writer.write(items[last - size : last])
        assert not any(folder.iterdir())  # nothing before it is whole
    data = (folder / "a.nest").read_bytes()
    assert data == compress(items, some_coder(), embed=embed, entropy=entropy, length=length)
    assert info(data).entropy == entropy or len(items) < 30 or length == 0
    assert [path.name for path in folder.iterdir()] == ["a.nest"]


@pytest.mark.parametrize("data", [stream(some_items(40)), skewed(120)], ids=["plain", "entropy"])
@pytest.mark.parametrize("share", [0, 0.3, 0.77, 1])
@pytest.mark.parametrize("length", [None, 40, 64, 100])
def test_a_reader_reads_what_decompress_gives(data: bytes, share: float, length: int | None, tmp_path: Path) -> None:
    start = info(data).header_bytes
    data = data[: start + int(share * (len(data) - start))]
    (tmp_path / "a.nest").write_bytes(data)
    expected = decompress(data, some_coder(), length=length)
    with StreamReader(tmp_path / "a.nest", some_coder(), length=length) as reader:
        assert (len(reader), reader.shape, reader.dtype) == (len(expected), (24,), np.dtype(np.float32))
        assert reader.info == info(data, some_coder())
        for part in (slice(None), slice(3, 17), slice(-5, None), slice(30, 10), slice(38, 1000)):
            np.testing.assert_allclose(reader[part], expected[part], atol=1e-5)
        for at in (0, 13, -1):
            np.testing.assert_allclose(reader[at], expected[at], atol=1e-5)
        np.testing.assert_allclose(np.stack(list(reader)), expected, atol=1e-5)
        pieces = list(reader.pieces(7))
        assert {len(piece) for piece in pieces[:-1]} == {7}
        np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-5)


def test_a_reader_checks_what_it_reads(tmp_path: Path) -> None:
    data = bytearray(stream(some_items(40)))
    start = info(data).header_bytes
    data[start + 68 * 6 + 1] ^= 1  # bits past 64 of some items
    (tmp_path / "a.nest").write_bytes(data)
    with StreamReader(tmp_path / "a.nest", some_coder()) as reader:
        reader[0]
        with pytest.raises(DamagedFile, match="block 6 of"):
            reader[:]
        assert reader.info.damaged == 6
    with StreamReader(tmp_path / "a.nest", some_coder(), length=64) as reader:
        np.testing.assert_allclose(reader[:], decompress(stream(some_items(40)), some_coder(), length=64), atol=1e-5)


def test_a_reader_of_an_entropy_coded_stream_checks_all_of_it(tmp_path: Path) -> None:
    data = bytearray(skewed(120))
    data[info(data).header_bytes + 68 * 2] ^= 1
    (tmp_path / "a.nest").write_bytes(data)
    with pytest.raises(DamagedFile, match="block 2 of"):
        StreamReader(tmp_path / "a.nest", some_coder())


def test_wrong_reads_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nest"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        StreamReader(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidInput, match="cut after its header"):
        StreamReader(path)
    path.write_bytes(stream(some_items(3)))
    reader = StreamReader(path, some_coder())
    with pytest.raises(IndexError, match="between 0 and 2, got 3"):
        reader[3]
    with pytest.raises(InvalidInput, match="without steps"):
        reader[::2]
    with pytest.raises(InvalidInput, match="numbers and slices"):
        reader["a"]  # type: ignore[index]
    reader.close()
    with pytest.raises(InvalidInput, match="is closed"):
        reader[0]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.nest").write_bytes(b"the old one")
    with pytest.raises(InvalidInput, match="finite"), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.write(np.concatenate([some_items(5), np.full((1, 24), np.nan, dtype=np.float32)]))
    assert (tmp_path / "a.nest").read_bytes() == b"the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["a.nest"]
    with pytest.raises(InvalidInput, match="is closed"):
        writer.write(some_items(5))


def test_an_interrupt_while_encoding_or_writing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Codes:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearCoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.write(some_items(5))
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt), StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.write(some_items(5))
    assert not any(tmp_path.iterdir())


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    source = """
import os, signal, sys
from nestcode import StreamWriter
from tests.streams.collections import some_coder, some_items
with StreamWriter(sys.argv[1], some_coder()) as writer:
    writer.write(some_items(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", source, str(tmp_path / "a.nest")]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert run.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_items_of_a_writer_are_alike(tmp_path: Path) -> None:
    with StreamWriter(tmp_path / "a.nest", some_coder()) as writer:
        writer.write(some_items(5))
        for other in (some_items(5).astype(np.float64), some_items(5).reshape(5, 4, 6)):
            with pytest.raises(InvalidInput, match="as the first ones"):
                writer.write(other)
        writer.write(some_items(2))
        assert writer.count == 7
    writer.close()  # again, which does nothing
    assert (tmp_path / "a.nest").read_bytes() == compress(np.concatenate([some_items(5), some_items(2)]), some_coder())


def test_a_writer_asks_for_a_fitted_coder(tmp_path: Path) -> None:
    unfitted: Coder = LinearCoder(width=8)
    with pytest.raises(InvalidInput, match="not fitted"):
        StreamWriter(tmp_path / "a.nest", unfitted)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("entropy", [False, True])
def test_a_reader_keeps_what_precedes_damage_where_asked(tmp_path: Path, entropy: bool) -> None:
    data = bytearray(skewed(50) if entropy else stream(some_items(50)))  # in blocks of 64 bytes
    start = info(bytes(data)).header_bytes
    data[start + 68 + 5] ^= 1  # in the second block
    (tmp_path / "bad.nest").write_bytes(data)
    with pytest.warns(UserWarning, match="block 1"):
        reader = StreamReader(tmp_path / "bad.nest", some_coder(), on_damage="keep")
    assert info(bytes(data)).entropy == entropy
    assert (reader[:] == decompress(bytes(data[: start + 64]), some_coder())).all()
