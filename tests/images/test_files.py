"""Streams of pictures in files and in chunks: as in memory, whole or not there, and not decoded twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode.errors import DamagedFile, InvalidInput, NotFitted
from nestcode.images import (
    ImageCodec,
    ImageStreamDecoder,
    ImageStreamReader,
    ImageStreamWriter,
    compress_images,
    decompress_images,
    stream_info,
)
from nestcode.images.codec import ImageDecoder
from nestcode.streams import StreamReader, compress
from tests.images.albums import SHAPES, Picture, album, coder, header_of, photograph, same, stream
from tests.streams.collections import some_coder, some_items

LONG = ((90, 70, 3), (64, 64), (1, 1, 4))  # of several blocks


@settings(max_examples=12)
@given(
    st.lists(st.sampled_from(SHAPES), max_size=3),
    st.sampled_from([{}, {"length": 40}, {"budget": 700}, {"max_error": 0.005}, {"embed": True}]),
)
def test_a_writer_writes_what_compress_makes(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[int, ...]], options: dict[str, int]
) -> None:
    folder, pictures = tmp_path_factory.mktemp("streams"), [photograph(shape, k) for k, shape in enumerate(shapes)]
    names = [f"{k}/a" for k in range(len(shapes))]
    with ImageStreamWriter(folder / "a.nest", coder(), **options) as writer:  # type: ignore[arg-type]
        for name, picture in zip(names, pictures, strict=True):
            writer.add(name, picture)
        assert not any(folder.iterdir())  # nothing before it is whole
    assert (folder / "a.nest").read_bytes() == compress_images(pictures, coder(), names=names, **options)  # type: ignore[arg-type]
    assert [path.name for path in folder.iterdir()] == ["a.nest"]


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("length", [None, 40])
def test_a_reader_reads_what_decompress_gives(share: float, length: int | None, tmp_path: Path) -> None:
    start = stream_info(stream()).header_bytes
    data = stream()[: start + int(share * (len(stream()) - start))]
    (tmp_path / "a.nest").write_bytes(data)
    expected = decompress_images(data, coder(), length=length)
    with ImageStreamReader(tmp_path / "a.nest", coder(), length=length) as reader:
        assert (len(reader), reader.names) == (len(SHAPES), tuple(map(str, range(len(SHAPES)))))
        assert reader.info == stream_info(data)
        assert same(list(reader), expected)
        for key, number in {"3": 3, 2: 2, -1: len(SHAPES) - 1, np.int64(1): 1}.items():
            assert np.array_equal(reader[key], expected[number])  # type: ignore[index]


def test_a_reader_reads_no_more_than_it_needs_and_checks_that(tmp_path: Path) -> None:
    data = bytearray(stream(LONG))
    header = header_of(bytes(data))
    assert header.blocks > 1
    data[header.size + 4100 + 7] ^= 1  # in the second block
    (tmp_path / "a.nest").write_bytes(data)
    with ImageStreamReader(tmp_path / "a.nest", coder(), length=8 * 4096 // header.tiles) as reader:
        assert same(list(reader), decompress_images(stream(LONG), coder(), length=8 * 4096 // header.tiles))
    with ImageStreamReader(tmp_path / "a.nest", coder()) as reader:
        for _ in range(2):
            with pytest.raises(DamagedFile, match="block 1 of"):
                reader[0]
            assert reader.info.damaged == 1  # which does not make it forget


def test_wrong_reads_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nest"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ImageStreamReader(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidInput, match="cut after its header"):
        ImageStreamReader(path)
    path.write_bytes(compress(some_items(3), some_coder()))
    with pytest.raises(InvalidInput, match="stream of items and not of pictures"):
        ImageStreamReader(path)
    path.write_bytes(stream())
    with pytest.raises(InvalidInput, match="this is a stream of pictures"):
        StreamReader(path)
    reader = ImageStreamReader(path, coder())
    with pytest.raises(KeyError, match="no picture 'x' among 7"):
        reader["x"]
    for wrong in (7, -8):
        with pytest.raises(IndexError, match=f"between 0 and 6, got {wrong}"):
            reader[wrong]
    for odd in (slice(1), 1.0, True, None):
        with pytest.raises(InvalidInput, match="numbers and names"):
            reader[odd]  # type: ignore[index]
    reader.close()
    for look in (lambda: reader[0], lambda: reader.info):
        with pytest.raises(InvalidInput, match="is closed"):
            look()


def test_an_error_or_an_interrupt_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.nest"
    path.write_bytes(b"the old one")
    with pytest.raises(InvalidInput, match="a picture must be"), ImageStreamWriter(path, coder()) as writer:
        writer.add("1", np.zeros((3, 3)))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="is closed"):
        writer.add("1", photograph((9, 9)))
    with (
        pytest.raises(InvalidInput, match="budget must be at least"),
        ImageStreamWriter(path, coder(), budget=9) as writer,
    ):
        writer.add("0", photograph((9, 9)))
    for owner, name in ((ImageCodec, "_encode"), (os, "fsync")):
        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt), ImageStreamWriter(path, coder()) as writer:
            writer.add("0", photograph((9, 9)))
        monkeypatch.undo()
    assert path.read_bytes() == b"the old one"
    assert [one.name for one in tmp_path.iterdir()] == ["a.nest"]


def test_a_picture_that_is_refused_does_not_count(tmp_path: Path) -> None:
    with ImageStreamWriter(tmp_path / "a.nest", coder()) as writer:
        writer.add("0", photograph((9, 9)))
        for name, picture in (
            ("0", photograph((9, 9))),
            ("../1", photograph((9, 9))),
            ("1", np.zeros((0, 4), np.uint8)),
        ):
            with pytest.raises(InvalidInput):
                writer.add(name, picture)
        writer.add("1", photograph((5, 5)))
    writer.close()  # again, which does nothing
    expected = compress_images([photograph((9, 9)), photograph((5, 5))], coder())
    assert (tmp_path / "a.nest").read_bytes() == expected


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    source = """
import os, signal, sys
from nestcode.images import ImageStreamWriter
from tests.images.albums import coder, photograph
with ImageStreamWriter(sys.argv[1], coder()) as writer:
    writer.add("0", photograph((40, 40)))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", source, str(tmp_path / "a.nest")]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert run.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_a_writer_asks_for_a_fitted_coder(tmp_path: Path) -> None:
    with pytest.raises(NotFitted):
        ImageStreamWriter(tmp_path / "a.nest", ImageCodec())
    with pytest.raises(InvalidInput, match="must be an ImageCodec"):
        ImageStreamWriter(tmp_path / "a.nest", some_coder())  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


# Chunks.


@settings(max_examples=20)
@given(st.sampled_from([SHAPES, LONG, ()]), st.data())
def test_chunks_of_any_size_give_what_all_at_once_gives(
    shapes: tuple[tuple[int, ...], ...], draw: st.DataObject
) -> None:
    data = stream(shapes)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    decoder, start = ImageStreamDecoder(coder()), stream_info(data).header_bytes
    for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
        decoder.feed(data[first:last])
        if last < start:
            with pytest.raises(InvalidInput, match=f"not whole after {last} bytes"):
                decoder.pictures()
        else:
            assert decoder.length == pytest.approx(stream_info(data[:last]).length)
            assert same(decoder.pictures(), decompress_images(data[:last], coder()))
    assert decoder.names == stream_info(data).names


@pytest.mark.parametrize("embed", [False, True])
def test_byte_by_byte_gives_what_all_at_once_gives(embed: bool) -> None:
    pictures = album(((20, 30, 3), (3, 3)))
    data = compress_images(pictures, coder(), embed=embed)
    start = stream_info(data).header_bytes
    decoder = ImageStreamDecoder(None if embed else coder())
    decoder.feed(data[: max(start - 400, 0)])
    for at in range(max(start - 400, 0), len(data)):
        decoder.feed(data[at : at + 1])
    assert same(decoder.pictures(), decompress_images(data, coder()))


def test_only_pictures_of_which_more_arrived_are_painted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data, header, decoder, painted = stream(LONG), header_of(stream(LONG)), ImageStreamDecoder(coder()), []
    plain = ImageDecoder.picture

    def counted(self: ImageDecoder) -> Picture:
        painted.append(self.shape)
        return plain(self)

    monkeypatch.setattr(ImageDecoder, "picture", counted)
    decoder.feed(data[: header.size])
    decoder.pictures()
    assert painted == list(LONG)
    decoder.pictures()
    assert painted == list(LONG)
    piece = next(header.pieces(1, header.payload))
    assert piece.stop < header.block
    decoder.feed(data[header.size : header.size + piece.start])
    decoder.pictures()
    painted.clear()
    decoder.feed(data[header.size + piece.start : header.size + piece.stop])
    decoder.pictures()
    assert painted == [LONG[1]]


def test_a_damaged_block_raises_and_what_precedes_it_stays() -> None:
    data, decoder = stream(LONG), ImageStreamDecoder(coder())
    start = stream_info(data).header_bytes
    changed = bytearray(data)
    changed[start + 4100 + 5] ^= 4
    decoder.feed(changed[: start + 4100 + 60])
    decoder.pictures()  # with what is not verified yet, and wrong
    for _ in range(2):
        with pytest.raises(DamagedFile, match="block 1 of"):
            decoder.feed(changed[start + 4100 + 60 :])
        assert same(decoder.pictures(), decompress_images(data[: start + 4100], coder()))
        assert decoder.length == pytest.approx(stream_info(data[: start + 4100]).length)


def test_what_is_no_stream_is_refused_at_once() -> None:
    with pytest.raises(DamagedFile, match="not a stream of pictures"):
        ImageStreamDecoder().feed(b"\x89P")
    with pytest.raises(InvalidInput, match="stream of items and not of pictures"):
        ImageStreamDecoder().feed(compress(some_items(3), some_coder()))
    with pytest.raises(InvalidInput, match="more than the limit of 1000000"):
        ImageStreamDecoder(coder(), limit=10**6).feed(stream())
    refused = ImageStreamDecoder()
    for again in (stream(), b""):
        with pytest.raises(InvalidInput, match="neither comes with Nestcode nor is embedded"):
            refused.feed(again)
    decoder = ImageStreamDecoder(coder())
    decoder.feed(stream())
    with pytest.raises(DamagedFile, match="1 bytes follow"):
        decoder.feed(b"x")
    assert same(decoder.pictures(), decompress_images(stream(), coder()))


def test_pictures_are_the_callers_own() -> None:
    decoder = ImageStreamDecoder(coder())
    decoder.feed(stream())
    decoder.pictures()[0][:] = 0
    assert decoder.pictures()[0].any()


def test_damage_is_kept_away_where_asked(tmp_path: Path) -> None:
    pictures = [np.random.default_rng(0).integers(0, 256, (64, 96)).astype(np.uint8)]
    data = bytearray(compress_images(pictures))
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
