"""Lossless streams: the whole is the original bit for bit, and every prefix is a preview."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import _core
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.images import (
    ImageStreamDecoder,
    ImageStreamReader,
    ImageStreamWriter,
    Refiner,
    compress_images,
    decompress_images,
)
from nestcode.images.image import Image
from tests.images.samples import codec, crop, crops, forged, header_of, same, stream_info, table_of

KINDS = ("flat", "gradient", "noise", "few", "extremes", "photo")


def some_image(kind: str, shape: tuple[int, ...], dtype: type[Any], seed: int) -> Image:
    rng, most = np.random.default_rng(seed), np.iinfo(dtype).max
    if kind == "photo":
        return np.asarray(crop(shape, seed).astype(dtype) * dtype(most // 255), dtype=dtype)
    grids = np.indices(shape).sum(axis=0)
    values = {
        "flat": np.full(shape, rng.integers(0, most + 1)),
        "gradient": grids * int(rng.integers(1, 5 * (most // 255) + 1)) % (most + 1),
        "noise": rng.integers(0, most + 1, shape),
        "few": rng.choice(rng.integers(0, most + 1, 3), shape),
        "extremes": rng.choice([0, most], shape),
    }
    return np.asarray(values[kind], dtype=dtype)


shapes = st.one_of(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4)),
    st.sampled_from([(1, 1), (1, 1, 4), (1, 90, 3), (90, 1, 2), (1, 90)]),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), shapes, st.sampled_from([np.uint8, np.uint16]), st.integers(0, 2**32), st.floats(0, 1))
def test_the_whole_is_the_original_and_every_prefix_decodes(
    kind: str, shape: tuple[int, ...], dtype: type[Any], seed: int, share: float
) -> None:
    image = some_image(kind, shape, dtype, seed)
    data = compress_images([image], codec(), lossless=True)
    decoded = decompress_images(data, codec())[0]
    assert decoded.dtype == image.dtype
    assert np.array_equal(decoded, image)
    start = header_of(data).size
    cut = decompress_images(data[: start + int(share * (len(data) - start))], codec())[0]
    assert (cut.shape, cut.dtype) == (image.shape, image.dtype)


def test_a_prefix_shows_what_that_of_the_lossy_stream_shows() -> None:
    images = crops()
    data, lossy = (compress_images(images, codec(), lossless=lossless) for lossless in (True, False))
    header, other = header_of(data), header_of(lossy)
    preview = int(header.sizes[:, -2].sum())
    assert 0 < preview < other.payload
    for arrived in (0, 1, preview // 3, preview):
        shown = [
            decompress_images(one[: known.size + arrived + 4 * (arrived // 4096)], codec())
            for one, known in ((data, header), (lossy, other))
        ]
        assert same(*shown)


def test_lines_become_exact_from_the_first_to_the_last() -> None:
    image = crop((60, 50, 3))
    data = compress_images([image], codec(), lossless=True)
    header = header_of(data)
    preview = decompress_images(data, codec(), bpp=8 * header.entries[0].lossy / 3000)[0]
    exact, errors = 0, []
    for arrived in np.linspace(header.entries[0].lossy, header.payload, 20).astype(int):
        shown = decompress_images(data, codec(), bpp=8 * (arrived + 0.5) / 3000)[0]
        lines = (shown == image).all(axis=(1, 2))
        leading = len(lines) if lines.all() else int(np.argmin(lines))
        assert leading >= exact
        assert np.array_equal(shown[leading + 1 :], preview[leading + 1 :])
        exact = leading
        errors.append(float(np.mean((shown.astype(float) - image) ** 2)))
        assert stream_info(data).expected_error == 0
    assert exact == len(image)
    assert all(later <= before * 1.01 for before, later in itertools.pairwise(errors))


def test_damage_in_the_residual_leaves_a_preview_and_exact_lines_before_it() -> None:
    image = crop((90, 80, 3))
    data = compress_images([image], codec(), lossless=True)
    header = header_of(data)
    changed = bytearray(data)
    changed[-20] ^= 1
    with pytest.raises(DamagedFile, match="restore a copy"):
        decompress_images(bytes(changed), codec())
    with pytest.warns(UserWarning, match="block"):
        shown = decompress_images(bytes(changed), codec(), on_damage="keep")[0]
    whole_blocks = data[: header.size + 4100 * ((len(data) - header.size) // 4100)]
    assert np.array_equal(shown, decompress_images(whole_blocks, codec())[0])
    assert np.abs(shown.astype(int) - image).mean() < 10


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from([np.uint8, np.uint16]), st.tuples(*[st.integers(1, 30)] * 2))
def test_any_bytes_decode_in_pieces_as_at_once(noise: bytes, dtype: type[Any], size: tuple[int, int]) -> None:
    channels = 1 + len(noise) % 4
    whole = np.full((*size, channels), 100, dtype=dtype)
    pieces = whole.copy()
    decoder, other = _core.ResidualDecoder(whole), _core.ResidualDecoder(pieces)
    decoder.feed(noise)
    for at in range(0, len(noise), 13):
        other.feed(noise[at : at + 13])
    assert decoder.lines == other.lines
    assert np.array_equal(whole, pieces)


@pytest.mark.parametrize("lossy", [0, 1])
def test_forged_residuals_decode_to_something(lossy: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    data = compress_images([image], codec(), lossless=True)
    header, table = header_of(data), table_of(data)
    steps = table[0][0][2]
    steps[:] = [0] * 44 + [lossy, header.payload - lossy]
    other = forged(data, table)
    with pytest.raises(DamagedFile):  # blocks have the header's checksum
        decompress_images(other, codec())
    assert decompress_images(other[: header_of(other).size + 60], codec())[0].shape == image.shape


def test_chunks_decode_as_all_at_once() -> None:
    images = crops(((40, 50, 3), (33, 20), (1, 1), (12, 9, 4)))
    data = compress_images(images, codec(), lossless=True)
    decoder, start = ImageStreamDecoder(codec()), header_of(data).size
    decoder.feed(data[:start])
    for at in range(start, len(data), 700):
        decoder.feed(data[at : at + 700])
        assert same(decoder.images(), decompress_images(data[: at + 700], codec()))
    assert same(decoder.images(), images)


def test_files_refiners_and_scales(tmp_path: Path) -> None:
    images = crops(((40, 50, 3), (33, 20)))
    data = compress_images(images, codec(), names=["a", "b"], lossless=True)
    with ImageStreamWriter(tmp_path / "two.nest", codec(), lossless=True) as writer:
        writer.add_all(zip("ab", images, [b""] * 2, strict=True), threads=2)
    assert (tmp_path / "two.nest").read_bytes() == data
    with ImageStreamReader(tmp_path / "two.nest", codec(), refiner=Refiner.load()) as reader:
        assert same([reader["a"], reader["b"]], images)
    small = decompress_images(data, codec(), scale=1 / 4)
    assert [one.shape for one in small] == [(10, 13, 3), (9, 5)]
    header = header_of(data)
    before = decompress_images(data, codec(), refiner=Refiner.load(), bpp=8 * (header.payload - 2000) / header.pixels)
    assert not same(before, images)
    assert [one.shape for one in before] == [one.shape for one in images]


def test_info_states_what_is_lossless() -> None:
    images = crops(((40, 50, 3), (33, 20)))
    data = compress_images(images, codec(), lossless=True)
    known = stream_info(data)
    assert known.lossless
    assert "of a lossless stream arrived, the images bit for bit" in str(known)
    cut = stream_info(data[:-10])
    assert cut.lossless
    assert cut.expected_error > 0
    assert "of a lossless stream arrived, expected PSNR" in str(cut)
    assert not stream_info(compress_images(images, codec())).lossless
    assert decompress_images(compress_images([], codec(), lossless=True), codec()) == []


def test_a_lossless_stream_has_no_other_target() -> None:
    with pytest.raises(InvalidInput, match="at most one of bpp, budget, psnr, ssim and lossless may be given, got bpp"):
        compress_images([crop((4, 4))], codec(), bpp=1, lossless=True)
    with pytest.raises(InvalidInput, match="lossless must be True or False, got 1"):
        compress_images([crop((4, 4))], codec(), lossless=1)  # type: ignore[arg-type]
