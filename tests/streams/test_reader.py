"""Streams of items read from files: as in memory, in batches, and verified when they are read."""

from pathlib import Path

import numpy as np
import pytest

from nestcode import StreamDecoder, StreamReader, decompress
from nestcode.errors import DamagedFile, InvalidInput
from tests.streams.collections import decoded_info, skewed, some_coder, some_items, stream, stream_info


@pytest.mark.parametrize("data", [stream(some_items(40)), skewed(120)], ids=["plain", "entropy"])
@pytest.mark.parametrize("share", [0, 0.3, 0.77, 1])
@pytest.mark.parametrize("length", [None, 40, 64, 100])
def test_a_reader_reads_what_decompress_returns(data: bytes, share: float, length: int | None, tmp_path: Path) -> None:
    start = stream_info(data).header_bytes
    data = data[: start + int(share * (len(data) - start))]
    (tmp_path / "a.nest").write_bytes(data)
    expected = decompress(data, some_coder(), length=length)
    with StreamReader(tmp_path / "a.nest", some_coder(), length=length) as reader:
        assert (len(reader), reader.shape, reader.dtype) == (len(expected), (24,), np.dtype(np.float32))
        assert reader.info == decoded_info(data)
        for part in (slice(None), slice(3, 17), slice(-5, None), slice(30, 10), slice(38, 1000)):
            np.testing.assert_allclose(reader[part], expected[part], atol=1e-5)
        for at in (0, 13, -1):
            np.testing.assert_allclose(reader[at], expected[at], atol=1e-5)
        np.testing.assert_allclose(np.stack(list(reader)), expected, atol=1e-5)
        batches = list(reader.batches(7))
        assert {len(batch) for batch in batches[:-1]} == {7}
        np.testing.assert_allclose(np.concatenate(batches), expected, atol=1e-5)


def test_a_reader_verifies_only_the_blocks_it_reads(tmp_path: Path) -> None:
    data = bytearray(stream(some_items(40)))
    start = stream_info(data).header_bytes
    data[start + 68 * 6 + 1] ^= 1  # bits past 64 of some items
    (tmp_path / "a.nest").write_bytes(data)
    with StreamReader(tmp_path / "a.nest", some_coder()) as reader:
        reader[0]
        with pytest.raises(DamagedFile, match="block 6 of"):
            reader[:]
        assert reader.info.damaged == 6
    with StreamReader(tmp_path / "a.nest", some_coder(), length=64) as reader:
        np.testing.assert_allclose(reader[:], decompress(stream(some_items(40)), some_coder(), length=64), atol=1e-5)


def test_of_several_damaged_blocks_the_first_is_reported(tmp_path: Path) -> None:
    """Even where the reader meets another one first: what precedes the reported block is intact."""
    data = bytearray(stream(some_items(40)))
    start = stream_info(data).header_bytes
    for block in (2, 4, 7):
        data[start + 68 * block + 1] ^= 1
    (tmp_path / "a.nest").write_bytes(data)
    with StreamReader(tmp_path / "a.nest", some_coder()) as reader:
        reader[0]  # in blocks 0, 5 and 10
        for items in (slice(35, 38), 18, slice(None)):
            with pytest.raises(DamagedFile, match="block 2 of 12 does not match its checksum, 64 bits of 16 items"):
                reader[items]
        assert reader.info.damaged == 2
    with pytest.raises(DamagedFile, match="block 2 of"):
        decompress(data, some_coder())
    decoder = StreamDecoder(some_coder())
    with pytest.raises(DamagedFile, match="block 2 of"):
        decoder.feed(data)


def test_a_reader_of_an_entropy_coded_stream_verifies_all_blocks(tmp_path: Path) -> None:
    data = bytearray(skewed(120))
    data[stream_info(data).header_bytes + 68 * 2] ^= 1
    (tmp_path / "a.nest").write_bytes(data)
    with pytest.raises(DamagedFile, match="block 2 of"):
        StreamReader(tmp_path / "a.nest", some_coder())


def test_wrong_reads_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nest"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        StreamReader(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidInput, match="must have its whole header"):
        StreamReader(path)
    path.write_bytes(stream(some_items(3)))
    reader = StreamReader(path, some_coder())
    with pytest.raises(IndexError, match="between 0 and 2, got 3"):
        reader[3]
    with pytest.raises(InvalidInput, match="without steps"):
        reader[::2]
    with pytest.raises(InvalidInput, match="positions and slices"):
        reader["a"]  # type: ignore[index]
    reader.close()
    with pytest.raises(InvalidInput, match="is closed"):
        reader[0]


@pytest.mark.parametrize("entropy", [False, True])
def test_a_reader_keeps_what_precedes_damage_if_requested(tmp_path: Path, entropy: bool) -> None:
    data = bytearray(skewed(50) if entropy else stream(some_items(50)))  # in blocks of 64 bytes
    start = stream_info(bytes(data)).header_bytes
    data[start + 68 + 5] ^= 1  # in the second block
    (tmp_path / "bad.nest").write_bytes(data)
    with pytest.warns(UserWarning, match="block 1"):
        reader = StreamReader(tmp_path / "bad.nest", some_coder(), on_damage="keep")
    assert stream_info(bytes(data)).entropy == entropy
    assert (reader[:] == decompress(bytes(data[: start + 64]), some_coder())).all()
