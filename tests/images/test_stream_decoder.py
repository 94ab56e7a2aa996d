"""Streams of images decoded progressively: as decoding at once, and no image is transformed twice."""

import io
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import (
    ImageStreamDecoder,
    Refiner,
    compress_images,
    decompress_images,
)
from nestcode.images.codec import ImageDecoder
from nestcode.images.image import Image
from nestcode.streams import compress
from tests.images.samples import SHAPES, codec, crops, header_of, same, stream, stream_info
from tests.streams.collections import some_coder, some_items

LONG = ((90, 70, 3), (64, 64), (1, 1, 4))  # several blocks of payload


@settings(max_examples=20)
@given(st.sampled_from([SHAPES, LONG, ()]), st.data())
def test_chunks_of_any_size_decode_as_all_at_once(shapes: tuple[tuple[int, ...], ...], draw: st.DataObject) -> None:
    data = stream(shapes)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    decoder, start = ImageStreamDecoder(codec()), stream_info(data).header_bytes
    for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
        decoder.feed(data[first:last])
        if last < start:
            with pytest.raises(InvalidInput, match=f"not complete after {last} bytes"):
                decoder.images()
        else:
            assert decoder.bpp == pytest.approx(stream_info(data[:last]).bpp)
            assert same(decoder.images(), decompress_images(data[:last], codec()))
    assert decoder.names == stream_info(data).names


@pytest.mark.parametrize("embed", [False, True])
def test_single_bytes_decode_as_all_at_once(embed: bool) -> None:
    images = crops(((20, 30, 3), (3, 3)))
    data = compress_images(images, codec(), embed=embed)
    start = stream_info(data).header_bytes
    decoder = ImageStreamDecoder(None if embed else codec())
    decoder.feed(data[: max(start - 400, 0)])
    for at in range(max(start - 400, 0), len(data)):
        decoder.feed(data[at : at + 1])
    assert same(decoder.images(), decompress_images(data, codec()))


def test_only_images_of_which_more_arrived_are_transformed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data, header, decoder, transformed = stream(LONG), header_of(stream(LONG)), ImageStreamDecoder(codec()), []
    plain = ImageDecoder.image

    def counted(self: ImageDecoder, refiner: Refiner | None = None) -> Image:
        transformed.append(self.shape)
        return plain(self, refiner)

    monkeypatch.setattr(ImageDecoder, "image", counted)
    decoder.feed(data[: header.size])
    decoder.images()
    assert transformed == list(LONG)
    decoder.images()
    assert transformed == list(LONG)
    piece = next(header.slices(1, header.payload))
    assert piece.stop < header.block
    decoder.feed(data[header.size : header.size + piece.start])
    decoder.images()
    transformed.clear()
    decoder.feed(data[header.size + piece.start : header.size + piece.stop])
    decoder.images()
    assert transformed == [LONG[1]]


def test_a_damaged_block_raises_and_what_precedes_it_stays_decoded() -> None:
    data, decoder = stream(LONG), ImageStreamDecoder(codec())
    start = stream_info(data).header_bytes
    changed = bytearray(data)
    changed[start + 4100 + 5] ^= 4
    decoder.feed(changed[: start + 4100 + 60])
    decoder.images()  # from bytes that are not verified yet, and wrong
    for _ in range(2):
        with pytest.raises(DamagedFile, match="block 1 of"):
            decoder.feed(changed[start + 4100 + 60 :])
        assert same(decoder.images(), decompress_images(data[: start + 4100], codec()))
        assert decoder.bpp == pytest.approx(stream_info(data[: start + 4100]).bpp)


def test_what_is_not_a_stream_is_refused_at_once() -> None:
    with pytest.raises(DamagedFile, match="not a stream of images"):
        ImageStreamDecoder().feed(b"\x89P")
    with pytest.raises(InvalidInput, match="stream of items and not of images"):
        ImageStreamDecoder().feed(compress(some_items(3), some_coder()))
    with pytest.raises(InvalidInput, match="more than the limit of 1000000"):
        ImageStreamDecoder(codec(), limit=10**6).feed(stream())
    refused = ImageStreamDecoder()
    for again in (stream(), b""):
        with pytest.raises(InvalidInput, match="neither embedded nor shipped with Nestcode"):
            refused.feed(again)
    decoder = ImageStreamDecoder(codec())
    decoder.feed(stream())
    with pytest.raises(DamagedFile, match="1 bytes follow"):
        decoder.feed(b"x")
    assert same(decoder.images(), decompress_images(stream(), codec()))


def test_returned_images_are_copies() -> None:
    decoder = ImageStreamDecoder(codec())
    decoder.feed(stream())
    decoder.images()[0][:] = 0
    assert decoder.images()[0].any()


class Trickle(io.BytesIO):
    """A file that returns fewer bytes than requested, as a connection does."""

    def read(self, count: int | None = -1, /) -> bytes:
        return super().read(min(count or 0, 1000))


@pytest.mark.parametrize("file", [io.BytesIO, Trickle])
def test_a_file_is_read_as_far_as_a_width_needs(file: type[io.BytesIO]) -> None:
    data = stream(LONG)
    source, decoder, before = file(data), ImageStreamDecoder(codec()), 0
    for width in (0, 20, 5, 30, 70):
        decoder.read(source, width=width)
        needed = header_of(data).bytes_for_width(width)
        assert source.tell() >= needed
        assert file is Trickle or source.tell() == max(before, needed, 4096)
        assert same(decoder.images(), decompress_images(data[: source.tell()], codec()))
        before = source.tell()
    decoder.read(source)
    assert source.tell() == len(data)
    assert same(decoder.images(), decompress_images(data, codec()))


def test_half_the_width_needs_a_share_of_the_bits() -> None:
    data = compress_images(crops(((160, 200, 3),)), codec())
    header = header_of(data)
    wanted = [header.bytes_for_width(width) - header.size for width in (50, 100, 200, 400)]
    assert wanted[2] == wanted[3]
    for small, large in pairwise(wanted[:3]):
        assert large == pytest.approx(small * math.sqrt(8), abs=12)  # checksums too


def test_a_file_that_ends_early_decodes_as_far_as_it_goes() -> None:
    data = stream(LONG)
    decoder = ImageStreamDecoder(codec())
    decoder.read(io.BytesIO(data[:5000]))
    assert same(decoder.images(), decompress_images(data[:5000], codec()))
    decoder = ImageStreamDecoder(codec())
    decoder.read(io.BytesIO(data[:30]), width=10)
    with pytest.raises(InvalidInput, match="not complete after 30 bytes"):
        decoder.images()


@pytest.mark.parametrize("width", [-1, float("nan"), "320", True])
def test_widths_are_numbers_of_pixels(width: float) -> None:
    with pytest.raises(InvalidInput, match="width must be a number of pixels of at least 0, got"):
        ImageStreamDecoder(codec()).read(io.BytesIO(), width=width)
