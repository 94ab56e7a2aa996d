"""Image files are read without loss of what they hold, or refused."""

import struct
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from nestcode.data.folder import formats
from nestcode.data.image_file import read_image, read_profile
from nestcode.data.png import png_bytes
from nestcode.errors import InvalidInput

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GRAY_PROFILE = PROFILE[:16] + b"GRAY" + PROFILE[20:]
# A gray square as libavif writes it with 10 bits per channel.
TEN_BITS = (
    "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUEAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAAAAAAAAAO"
    "cGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAAGwAAAChpaW5mAAAAAAABAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAA"
    "AABqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAAAAAAEAAAABAAAAAQcGl4aQAAAAADCgoKAAAADGF2MUOBIEAAAAAAE2NvbHJuY2x4AAIAAgAG"
    "gAAAABdpcG1hAAAAAAAAAAEAAQQBAoMEAAAAI21kYXQSAAoIOAz/28CAgaQyDRlCYwTAADQAABB1hWE="
)
SIXTEEN = {1: (7, 9), 2: (7, 9, 2), 3: (7, 9, 3), 4: (7, 9, 4)}


def noise(shape: tuple[int, ...], most: int = 65535) -> NDArray[Any]:
    return np.random.default_rng(0).integers(0, most + 1, shape).astype(np.uint16 if most > 255 else np.uint8)


def turned(image: NDArray[Any]) -> NDArray[Any]:
    """Return what the EXIF orientation 6 makes of an image."""
    return np.rot90(image, -1)


def png_with(blob: bytes, kind: bytes, body: bytes) -> bytes:
    """Return a PNG file with one more chunk after its header."""
    return blob[:33] + chunk(kind, body) + blob[33:]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def tiff(image: NDArray[np.uint16], order: str, planar: int = 1, photometric: int | None = None) -> bytes:
    """Return a TIFF file of 16 bits per channel, uncompressed, as the specification lays it out."""
    height, width, count = (*image.shape, 1)[:3]
    data = np.moveaxis(image, 2, 0) if planar == 2 else image
    body = np.ascontiguousarray(data).astype(f"{order}u2").tobytes()
    small = struct.Struct(f"{order}HHIHxx")
    tags = [
        (256, width), (257, height), (258, 16), (259, 1), (262, (2 if count > 1 else 1)), (277, count), (278, height),
        (284, planar),
    ]  # fmt: skip
    if photometric is not None:
        tags[4] = (262, photometric)
    part = len(body) // (count if planar == 2 else 1)
    after = 8 + 2 + 12 * (len(tags) + 2) + 4
    depths, places, sizes = after, after + 8, after + 8 + 16
    start = after + 8 + 32
    lists = struct.pack(f"{order}4H", *[16] * 4)
    lists += struct.pack(f"{order}4I", *(start + part * at for at in range(4))) + struct.pack(f"{order}4I", *[part] * 4)
    many = count if planar == 2 else 1
    entries = []
    for tag, value in tags:
        if tag == 258 and count > 2:
            entries.append(struct.pack(f"{order}HHII", tag, 3, count, depths))
        else:
            entries.append(small.pack(tag, 3, 1, value))
    for tag, place, single in ((273, places, start), (279, sizes, part)):
        entries.append(struct.pack(f"{order}HHII", tag, 4, many, place if many > 1 else single))
    entries.sort(key=lambda entry: struct.unpack(f"{order}H", entry[:2]))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return head + struct.pack(f"{order}H", len(entries)) + b"".join(entries) + bytes(4) + lists + body


@pytest.mark.parametrize("channels", SIXTEEN)
@pytest.mark.parametrize("depth", [8, 16])
def test_png_files_keep_their_bits_and_profile(channels: int, depth: int, tmp_path: Path) -> None:
    image, path = noise(SIXTEEN[channels], 2**depth - 1), tmp_path / "a.png"
    profile = PROFILE if channels > 2 else GRAY_PROFILE
    path.write_bytes(png_bytes(image, profile))
    found = read_image(path)
    assert found.dtype == image.dtype
    assert np.array_equal(found, image)
    assert read_profile(path) == profile
    if depth == 8 or channels == 1:  # the twin: Pillow, which reads 16 bits of gray images only
        assert np.array_equal(np.asarray(Image.open(path)), image)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 3), (7, 9, 4)])
def test_tiff_files_keep_16_bits(order: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    image, path = noise(shape), tmp_path / "a.tif"
    path.write_bytes(tiff(image, order))
    assert np.array_equal(read_image(path), image)
    assert read_profile(path) == b""


def test_orientation_applies_to_16_bits(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for channels, shape in SIXTEEN.items():
        image, path = noise(shape), tmp_path / f"{channels}.png"
        path.write_bytes(png_with(png_bytes(image), b"eXIf", exif.tobytes()[6:]))
        assert np.array_equal(read_image(path), turned(image)), channels


@pytest.mark.parametrize("kind", ["AVIF", "JPEG", "PNG", "TIFF", "WEBP"])
def test_orientation_and_profile_of_each_format(kind: str, tmp_path: Path) -> None:
    if kind not in formats():
        pytest.skip(f"this Pillow does not read {kind}")
    path, exif = tmp_path / "a", Image.Exif()
    exif[0x0112] = 6
    image = np.repeat(np.linspace(20, 220, 32).astype(np.uint8), 3 * 48).reshape(32, 48, 3)
    Image.fromarray(image).save(path, kind, exif=exif, icc_profile=PROFILE, quality=95)
    assert np.abs(read_image(path).astype(int) - turned(image)).max() < 8
    assert read_profile(path) == PROFILE


@pytest.mark.parametrize(("kind", "frames"), [("GIF", 3), ("PNG", 3), ("WEBP", 3), ("TIFF", 2), ("AVIF", 3)])
def test_animations_and_pages_are_refused(kind: str, frames: int, tmp_path: Path) -> None:
    if kind not in formats():
        pytest.skip(f"this Pillow does not read {kind}")
    path = tmp_path / "a"
    images = [Image.fromarray(noise((16, 16, 3), 255) // (1 + at)) for at in range(frames)]
    images[0].save(path, kind, save_all=True, append_images=images[1:])
    with pytest.raises(InvalidInput, match=rf"{path} must hold one image, got {frames} frames or pages: extract"):
        read_image(path)


def test_photographs_with_a_preview_are_read(tmp_path: Path) -> None:
    image = Image.fromarray(np.full((16, 24, 3), 90, dtype=np.uint8))
    image.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[image.resize((6, 4))])
    with Image.open(tmp_path / "a.jpg") as opened:
        assert getattr(opened, "n_frames", 1) == 2
    assert read_image(tmp_path / "a.jpg").shape == (16, 24, 3)


def test_values_that_would_lose_bits_are_refused(tmp_path: Path) -> None:
    path, rule = tmp_path / "a.tif", "must have 8 or 16 bits per channel, gray or RGB, got "
    Image.fromarray(np.zeros((4, 3), np.float32)).save(path)
    with pytest.raises(InvalidInput, match=rf"{rule}F;32F: convert it"):
        read_image(path)
    Image.fromarray(np.full((4, 3), 70000, np.int32)).save(path)
    with pytest.raises(InvalidInput, match=rf"{rule}values from 70000 to 70000"):
        read_image(path)
    path.write_bytes(tiff(noise((7, 9, 3)), "<", planar=2))
    with pytest.raises(InvalidInput, match=rule):
        read_image(path)
    path.write_bytes(tiff(noise((7, 9, 4)), "<", photometric=5))
    with pytest.raises(InvalidInput, match=f"{rule}CMYK;16L"):
        read_image(path)


def test_16_bit_colors_that_stand_for_transparency(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    for shape in (SIXTEEN[1], SIXTEEN[3]):
        image = noise(shape)
        image[2, 3] = 700
        key = struct.pack(f">{image[2, 3].size}H", *[700] * image[2, 3].size)
        path.write_bytes(png_with(png_bytes(image), b"tRNS", key))
        found = read_image(path)
        colors = found[..., :-1].reshape(shape)
        assert np.array_equal(colors, image)
        assert (found[..., -1] == 0).sum() == 1
        assert found[2, 3, -1] == 0


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_gray_of_few_bits_that_stands_for_transparency(depth: int, tmp_path: Path) -> None:
    """Each row holds all values of that many bits."""
    values = np.arange(1 << depth, dtype=np.uint8)
    bits = np.unpackbits(values[:, None], axis=1)[:, -depth:]
    rows = b"\0" + np.packbits(bits).tobytes()
    for key in values:
        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(values), 1, depth, 0, 0, 0, 0))
        body = chunk(b"tRNS", struct.pack(">H", key)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        (tmp_path / "a.png").write_bytes(head + body)
        found = read_image(tmp_path / "a.png")
        assert found[0, :, 0].tolist() == (values * (255 // ((1 << depth) - 1))).tolist()
        assert (found[0, :, -1] == 0).tolist() == (values == key).tolist()


def test_the_band_a_of_lab_is_not_alpha(tmp_path: Path) -> None:
    image = Image.fromarray(noise((7, 9, 3), 255)).convert("LAB")
    image.save(tmp_path / "a.tif")
    assert read_image(tmp_path / "a.tif").shape == (7, 9, 3)


def test_bits_that_pillow_does_not_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P6 2 1 65535 " + np.arange(6, dtype=">u2").tobytes())
    with pytest.warns(UserWarning, match="has more than 8 bits per channel, and only 8 are read: convert it to PNG"):
        assert read_image(tmp_path / "a.ppm").dtype == np.uint8
    if "AVIF" in formats():
        (tmp_path / "a.avif").write_bytes(b64decode(TEN_BITS))
        with pytest.warns(UserWarning, match="only 8 are read"):
            assert read_image(tmp_path / "a.avif").shape == (16, 16, 3)


def test_profiles_for_other_colors_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (8, 8)).save(path, icc_profile=PROFILE[:16] + b"CMYK" + PROFILE[20:])
    with pytest.warns(UserWarning, match="profile for other colors than gray or RGB"):
        assert read_profile(path) == b""
    assert read_image(path).shape == (8, 8, 3)


def test_heic_files_are_read_where_the_plugin_is(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    image = Image.fromarray(np.full((32, 48, 3), 90, dtype=np.uint8))
    image.save(tmp_path / "a.heic", "HEIF", icc_profile=PROFILE, quality=95)
    assert np.abs(read_image(tmp_path / "a.heic").astype(int) - 90).max() < 4
    assert read_profile(tmp_path / "a.heic") == PROFILE
