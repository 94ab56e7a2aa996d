"""Images of a folder are rotated, cropped and resized, and unreadable files are named."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nestcode.data import ImageFolder, sample_images
from nestcode.errors import DamagedFile, InvalidInput

RNG = np.random.default_rng(0)


def noise(height: int, width: int, *bands: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (height, width, *bands), dtype=np.uint8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of seven images with unordered names, and a file that is no image."""
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name in ("z.png", "a.PNG", "b/2.bmp", "b/10.ppm", "b/deep/x.webp", "c.gif", "d.jpeg"):
        noise(12, 12, 3).save(tmp_path / name, lossless=True)
    noise(5, 5).save(tmp_path / ".hidden" / "not-me.png")
    noise(5, 5).save(tmp_path / ".not-me.png")
    (tmp_path / "readme.txt").write_text("not an image")
    return tmp_path


def test_images_come_in_the_order_of_their_names(folder: Path) -> None:
    images = ImageFolder(folder, size=12)
    names = [path.relative_to(folder).as_posix() for path in images.paths]
    assert names == ["a.PNG", "b/10.ppm", "b/2.bmp", "b/deep/x.webp", "c.gif", "d.jpeg", "z.png"]
    assert len(images) == 7
    assert repr(images) == "ImageFolder(7 images of 12 x 12 x 3)"


@pytest.mark.parametrize("color", [True, False])
def test_an_image_of_the_requested_size_is_unchanged(folder: Path, color: bool) -> None:
    images = ImageFolder(folder, 12, color)
    assert images.shape == ((12, 12, 3) if color else (12, 12))
    for i, path in enumerate(images.paths):
        with Image.open(path) as image:
            expected = np.asarray(image.convert("RGB" if color else "L"))
        difference = np.abs(images[i].astype(int) - expected).mean()
        assert difference <= (0.5 if path.suffix == ".jpeg" else 0)  # a JPEG stores its own gray channel


def test_every_kind_of_index_gives_the_same_images(folder: Path) -> None:
    images = ImageFolder(folder, size=6)
    every = np.stack([images[i] for i in range(7)])
    assert every.dtype == np.uint8
    keys: list[Any] = [
        slice(None),
        slice(1, 6, 2),
        [3, 3, 0],
        np.array([-1, 2]),
        -7,
        np.int64(4),
        every[:, 0, 0, 0] > 99,
    ]
    for key in keys:
        assert np.array_equal(images[key], every[key])
    assert np.array_equal(np.stack(list(images)), every)  # type: ignore[call-overload]
    order = np.array([6, 0, 6])
    assert np.array_equal(images.rows(order), every[order].reshape(3, -1))
    assert np.array_equal(images.whole(), every.reshape(7, images.features))
    assert images.rows(order[:0]).shape == (0, 108)
    assert np.array_equal(pickle.loads(pickle.dumps(images)).whole(), images.whole())
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        images[7]


@pytest.mark.parametrize(("height", "width"), [(12, 40), (41, 12), (12, 13)])
def test_the_central_square_is_cropped(tmp_path: Path, height: int, width: int) -> None:
    image = noise(height, width, 3)
    image.save(tmp_path / "long.png")
    top, left = (height - 12) // 2, (width - 12) // 2
    middle = np.asarray(image)[top : top + 12, left : left + 12]
    assert np.array_equal(ImageFolder(tmp_path, size=12)[0], middle)


def test_downscaling_averages(tmp_path: Path) -> None:
    """A checkerboard becomes gray; subsampling would give black or white."""
    board = np.indices((64, 96)).sum(axis=0) % 2 * 255
    Image.fromarray(board.astype(np.uint8)).save(tmp_path / "board.png")
    small = ImageFolder(tmp_path, size=8, color=False)[0]
    assert np.abs(small.astype(int) - 127).max() <= 2


@pytest.mark.parametrize("color", [True, False])
def test_draft_decoding_of_large_jpegs_gives_the_same_image(tmp_path: Path, color: bool) -> None:
    image = Image.fromarray(sample_images()["china"])
    image.save(tmp_path / "china.jpg", quality=95)
    with Image.open(tmp_path / "china.jpg") as whole:
        plain = whole.convert("RGB" if color else "L").crop((106, 0, 533, 427))
    plain = plain.resize((32, 32), Image.Resampling.LANCZOS)
    difference = ImageFolder(tmp_path, 32, color)[0].astype(int) - np.asarray(plain)
    assert np.abs(difference).mean() < 2


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    image = noise(16, 16).resize((16, 16))
    image.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "upright.png")
    turned, upright = ImageFolder(tmp_path, size=16, color=False)[:]
    assert np.array_equal(turned, np.rot90(upright, k=-1))


def test_transparent_parts_become_white_and_the_first_frame_is_used(tmp_path: Path) -> None:
    half = np.full((4, 4, 4), [200, 0, 0, 255], dtype=np.uint8)
    half[:2, :, 3] = 0
    Image.fromarray(half).save(tmp_path / "a.png")
    Image.fromarray(half).quantize(4).save(tmp_path / "b.png")  # a palette with transparent colors
    Image.fromarray(half[:, :, [0, 3]]).save(tmp_path / "c.png")  # gray with alpha
    frames = [Image.new("RGB", (4, 4), color) for color in ("blue", "green")]
    frames[0].save(tmp_path / "d.gif", save_all=True, append_images=frames[1:])
    images = ImageFolder(tmp_path, size=4)[:]
    for red in images[:2]:
        assert (red[:2] == 255).all()
        assert (red[2:] == [200, 0, 0]).all()
    assert (images[2, :2] == 255).all()
    assert (images[2, 2:] == 200).all()
    assert (images[3] == [0, 0, 255]).all()


@pytest.mark.parametrize("suffix", ["png", "ppm"])
def test_sixteen_bits_become_eight(tmp_path: Path, suffix: str) -> None:
    deep = (np.arange(16, dtype=np.uint16) * 4096 + 255).reshape(4, 4)
    if suffix == "png":
        Image.fromarray(deep).save(tmp_path / "deep.png")
    else:
        (tmp_path / "deep.ppm").write_bytes(b"P5 4 4 65535 " + deep.astype(">u2").tobytes())
    assert ImageFolder(tmp_path, size=4, color=False)[0].ravel().tolist() == [16 * i for i in range(16)]


def damage(folder: Path) -> dict[str, Path]:
    """Write files with a suffix of images that are foreign, truncated or changed."""
    for name in ("cut.png", "cut.jpg", "cut.webp", "cut.gif", "cut.bmp"):
        path = folder / name
        noise(200, 200, 3).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    (folder / "text.png").write_text("no image at all")
    (folder / "empty.jpg").touch()
    for name in ("vector.eps", "icon.ico"):  # Pillow would read these, one by starting another program
        Image.new("RGB", (9, 9)).save(folder / name)
        (folder / name).rename(folder / f"{name}.png")
    noise(30, 30).save(folder / "changed.png")
    content = bytearray((folder / "changed.png").read_bytes())
    content[200] ^= 0xFF
    (folder / "changed.png").write_bytes(content)
    return {path.name: path for path in folder.iterdir()}


def test_damaged_files_are_named_and_can_be_skipped(tmp_path: Path) -> None:
    damaged = damage(tmp_path)
    noise(8, 8, 3).save(tmp_path / "good.png")
    images = ImageFolder(tmp_path, size=8)
    assert len(images) == len(damaged) + 1 == 11
    for i, path in enumerate(images.paths):
        if path.name in damaged:
            message = f"{path} cannot be read as an image"
            with pytest.raises(DamagedFile, match=re.escape(message) + ".* remove it"):
                images.rows(np.array([i]))
    rest = ImageFolder(tmp_path, size=8, skip_damaged=True)
    assert [path.name for path in rest.paths] == ["good.png"]
    assert set(rest.damaged) == set(damaged.values())
    (tmp_path / "good.png").unlink()
    with pytest.raises(InvalidInput, match="found none among 10 files"):
        ImageFolder(tmp_path, size=8, skip_damaged=True)
    with pytest.raises(FileNotFoundError, match=r"good\.png"):  # a deleted file is not a damaged one
        rest[0]


def test_pillows_guard_against_decompression_bombs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise(50, 50).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DamagedFile, match=r"bomb\.png cannot be read as an image \(Image size \(2500 pixels\)"):
        ImageFolder(tmp_path)[0]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must hold images, found none among 0 files"):
        ImageFolder(tmp_path)
    with pytest.raises(InvalidInput, match=r"must be a folder of images, got .*nowhere"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="size must be an integer of at least 1, got 0"):
        ImageFolder(tmp_path, size=0)
