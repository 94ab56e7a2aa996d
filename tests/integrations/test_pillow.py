"""Pillow opens and saves streams of images: the same pixels as `decompress_images`, cut, in frames, and at scales."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, UnidentifiedImageError

import nestcode as nc
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.integrations.pillow import MODES, NestImageFile
from tests.images.samples import crop

PROFILE = b"a profile"


def opened(data: bytes) -> NestImageFile:
    image = Image.open(io.BytesIO(data))
    assert isinstance(image, NestImageFile)
    return image


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("share", [0.5, 1])
def test_pixels_are_those_of_decompress_images(channels: int, share: float) -> None:
    shape = (40, 60) if channels == 1 else (40, 60, channels)
    data = nc.compress_images([crop(shape)], profiles=[PROFILE])
    cut = data[: int(share * len(data))]
    image = opened(cut)
    assert (image.format, image.mode, image.size) == ("NEST", MODES[channels], (60, 40))
    assert image.info == {"name": "0", "icc_profile": PROFILE}
    np.testing.assert_array_equal(np.asarray(image), nc.decompress_images(cut)[0])


def test_16_bits_are_kept_for_gray_and_rounded_for_colors() -> None:
    gray, colors = crop((20, 30)).astype(np.uint16) * 257 + 3, crop((20, 30, 3)).astype(np.uint16) * 257
    data = nc.compress_images([gray, colors], lossless=True)
    image = opened(data)
    assert image.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(image), gray)
    image.seek(1)
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), colors // 257)


def test_images_of_a_stream_are_frames() -> None:
    images = [crop((40, 60, 3)), crop((30, 20)), crop((10, 10, 4))]
    data = nc.compress_images(images)
    image = opened(data)
    assert (image.n_frames, image.is_animated) == (3, True)
    for frame, expected in enumerate(nc.decompress_images(data)):
        image.seek(frame)
        assert image.tell() == frame
        np.testing.assert_array_equal(np.asarray(image), expected)
    with pytest.raises(EOFError, match="between 0 and 2, got 3"):
        image.seek(3)
    again = io.BytesIO()
    image.seek(0)
    image.save(again, "NEST", save_all=True, lossless=True)
    for kept, expected in zip(nc.decompress_images(again.getvalue()), nc.decompress_images(data), strict=True):
        np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize(("wanted", "scale"), [((60, 40), 1), ((30, 20), 1 / 2), ((15, 9), 1 / 4), ((2, 2), 1 / 8)])
def test_drafts_are_decoded_at_a_scale(wanted: tuple[int, int], scale: float) -> None:
    data = nc.compress_images([crop((41, 61, 3))])
    image = opened(data)
    image.draft(None, wanted)
    np.testing.assert_array_equal(np.asarray(image), nc.decompress_images(data, scale=scale)[0])


def test_thumbnails_are_near_those_of_the_whole_image() -> None:
    data = nc.compress_images([crop((200, 320, 3))])
    small, whole = opened(data), Image.fromarray(nc.decompress_images(data)[0])
    small.thumbnail((40, 40))
    whole.thumbnail((40, 40))
    assert small.size == whole.size
    assert nc.metrics.psnr(np.asarray(whole), np.asarray(small)) > 35


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "P", "CMYK", "I;16"])
def test_every_mode_is_saved(mode: str, tmp_path: Path) -> None:
    image = Image.fromarray(crop((30, 40))).convert(mode) if mode != "I;16" else Image.new(mode, (40, 30), 7000)
    image.save(tmp_path / "a.nest", lossless=True, icc_profile=PROFILE)
    with Image.open(tmp_path / "a.nest") as found:
        assert found.info["icc_profile"] == PROFILE
        expected = image.convert(found.mode) if mode in ("1", "P", "CMYK") else image
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_orientation_is_applied() -> None:
    image, out = Image.fromarray(crop((30, 40, 3))), io.BytesIO()
    image.getexif()[0x0112] = 6
    image.save(out, "NEST", lossless=True)
    np.testing.assert_array_equal(np.asarray(opened(out.getvalue())), np.asarray(ImageOps.exif_transpose(image)))


def test_rates_are_those_of_compress_images() -> None:
    array, out = crop((100, 120, 3)), io.BytesIO()
    Image.fromarray(array).save(out, "NEST", bpp=0.5, tune="ssim")
    assert out.getvalue() == nc.compress_images([array], bpp=0.5, tune="ssim")


def test_damage_raises_unless_truncated_images_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(nc.compress_images([crop((100, 120, 3))]))
    data[-2000] ^= 1
    image = opened(bytes(data))
    with pytest.raises(DamagedFile, match="does not match its checksum"):
        image.load()
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    assert np.asarray(image).shape == (100, 120, 3)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_modes_without_a_range_are_refused(mode: str) -> None:
    with pytest.raises(InvalidInput, match=f"mode {mode} has no range of values: convert it"):
        Image.new(mode, (4, 4)).save(io.BytesIO(), "NEST")


def test_a_stream_without_images_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no image"):
        opened(nc.compress_images([]))


@pytest.mark.parametrize("data", [b"", b"\x89", b"\x89PNG", b"NEST"])
def test_other_files_are_left_to_other_formats(data: bytes) -> None:
    with pytest.raises(UnidentifiedImageError):
        Image.open(io.BytesIO(data))


def test_every_frame_is_within_the_pixels_that_pillow_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = nc.compress_images([crop((10, 10)), crop((30, 40)), crop((40, 60))])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    image = opened(data)
    with pytest.warns(Image.DecompressionBombWarning, match="at most 1,000 pixels, got 1,200"):
        image.seek(1)
    with pytest.raises(Image.DecompressionBombError, match="at most 1,000 pixels, got 2,400"):
        image.seek(2)
    assert image.tell() == 1
    image.seek(0)
    image.load()
