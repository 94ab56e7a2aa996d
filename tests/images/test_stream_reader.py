"""Streams of images read from files: as in memory, and verified when they are read."""

from pathlib import Path

import numpy as np
import pytest

from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import (
    ImageStreamReader,
    compress_images,
    decompress_images,
)
from nestcode.streams import StreamReader, compress
from tests.images.samples import SHAPES, codec, header_of, same, stream, stream_info
from tests.streams.collections import some_coder, some_items

LONG = ((90, 70, 3), (64, 64), (1, 1, 4))  # several blocks of payload


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("bpp", [None, 0.04])
def test_a_reader_reads_what_decompress_images_returns(share: float, bpp: float | None, tmp_path: Path) -> None:
    start = stream_info(stream()).header_bytes
    data = stream()[: start + int(share * (len(stream()) - start))]
    (tmp_path / "a.nest").write_bytes(data)
    expected = decompress_images(data, codec(), bpp=bpp)
    with ImageStreamReader(tmp_path / "a.nest", codec(), bpp=bpp) as reader:
        assert (len(reader), reader.names) == (len(SHAPES), tuple(map(str, range(len(SHAPES)))))
        assert reader.info == stream_info(data)
        assert same(list(reader), expected)
        for key, at in {"3": 3, 2: 2, -1: len(SHAPES) - 1, np.int64(1): 1}.items():
            assert np.array_equal(reader[key], expected[at])  # type: ignore[index]


def test_a_reader_verifies_only_the_blocks_it_reads(tmp_path: Path) -> None:
    data = bytearray(stream(LONG))
    header = header_of(bytes(data))
    assert header.blocks > 1
    data[header.size + 4100 + 7] ^= 1  # in the second block
    (tmp_path / "a.nest").write_bytes(data)
    with ImageStreamReader(tmp_path / "a.nest", codec(), bpp=8 * 4096 / header.pixels) as reader:
        assert same(list(reader), decompress_images(stream(LONG), codec(), bpp=8 * 4096 / header.pixels))
    with ImageStreamReader(tmp_path / "a.nest", codec()) as reader:
        for _ in range(2):
            with pytest.raises(DamagedFile, match="block 1 of"):
                reader[0]
            assert reader.info.damaged == 1  # and the reader still raises


def test_wrong_reads_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nest"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ImageStreamReader(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidInput, match="must have its whole header"):
        ImageStreamReader(path)
    path.write_bytes(compress(some_items(3), some_coder()))
    with pytest.raises(InvalidInput, match="stream of items and not of images"):
        ImageStreamReader(path)
    path.write_bytes(stream())
    with pytest.raises(InvalidInput, match="this is a stream of images"):
        StreamReader(path)
    reader = ImageStreamReader(path, codec())
    with pytest.raises(KeyError, match="no image 'x' among 7"):
        reader["x"]
    for wrong in (7, -8):
        with pytest.raises(IndexError, match=f"between 0 and 6, got {wrong}"):
            reader[wrong]
    for odd in (slice(1), 1.0, True, None):
        with pytest.raises(InvalidInput, match="positions and names"):
            reader[odd]  # type: ignore[index]
    reader.close()
    for look in (lambda: reader[0], lambda: reader.info):
        with pytest.raises(InvalidInput, match="is closed"):
            look()


def test_a_reader_keeps_what_precedes_damage_if_requested(tmp_path: Path) -> None:
    images = [np.random.default_rng(0).integers(0, 256, (64, 96)).astype(np.uint8)]
    data = bytearray(compress_images(images))
    start = stream_info(bytes(data)).header_bytes
    data[start + 4100 + 5] ^= 1  # in the second block
    (tmp_path / "bad.nest").write_bytes(data)
    with ImageStreamReader(tmp_path / "bad.nest") as reader, pytest.raises(DamagedFile, match="block 1"):
        reader[0]
    with pytest.warns(UserWarning, match="block 1"):
        reader = ImageStreamReader(tmp_path / "bad.nest", on_damage="keep")
    assert (reader[0] == decompress_images(bytes(data[: start + 4096]))[0]).all()
    with pytest.raises(InvalidInput, match="on_damage must be"):
        ImageStreamReader(tmp_path / "bad.nest", on_damage="ignore")  # type: ignore[arg-type]


def test_a_reader_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "one.nest").write_bytes(compress_images([np.zeros((64, 64), dtype=np.uint8)]))
    with ImageStreamReader(tmp_path / "one.nest", limit=1000) as reader, pytest.raises(InvalidInput, match="limit"):
        reader[0]
