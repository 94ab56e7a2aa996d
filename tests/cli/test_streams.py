"""`nestcode compress`, `decompress` and `info FILE`: images and vectors from files to files."""

import base64
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image, ImageCms
from typer.testing import CliRunner, Result

import nestcode
from nestcode import metrics
from nestcode.cli.app import app, main
from nestcode.cli.streams import read_bytes
from nestcode.data.image_file import read_image, read_profile
from nestcode.data.images import write_image
from nestcode.errors import DamagedFile, InvalidInput, NestcodeError
from nestcode.images import ImageCodec, ImageStreamReader, Refiner
from nestcode.images.image import Image as Pixels
from nestcode.streams import decompress
from nestcode.streams.format import parse_header
from tests.images.samples import crop, error, stream_info
from tests.streams.collections import some_coder, some_items
from tests.streams.collections import stream as item_stream
from tests.streams.collections import stream_info as item_stream_info

PIECE = crop((40, 60, 3), seed=3)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fine(*arguments: object) -> str:
    """Return the output of a command that must succeed."""
    result = run(*arguments)
    assert result.exception is None, result.exception
    return result.stdout


def refused(*arguments: object) -> str:
    """Return the error of a command that must fail."""
    result = run(*arguments)
    assert isinstance(result.exception, NestcodeError | OSError), (result.output, result.exception)
    return str(result.exception)


def misused(*arguments: object) -> str:
    """Return the usage error of an invalid command line."""
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    return " ".join(result.stderr.replace("│", " ").split())


def read(path: Path) -> Pixels:
    return np.asarray(Image.open(path))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder with images of all kinds, and a file that is not an image."""
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    Image.fromarray(PIECE).save(folder / "color.png")
    Image.fromarray(crop((30, 20, 4))).save(folder / "opacity.png")
    Image.fromarray(PIECE[..., 1]).save(folder / "below" / "gray.png")
    Image.fromarray(PIECE[..., 1].astype(np.uint16) * 257).save(folder / "sixteen.png")
    Image.fromarray(PIECE).quantize(16).save(folder / "palette.png")
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    Image.fromarray(PIECE).save(folder / "held.jpg", quality=95, exif=turned)
    (folder / "notes.txt").write_text("no image")
    return folder


SHAPES = {
    "below/gray.png": (40, 60),
    "color.png": (40, 60, 3),
    "held.jpg": (60, 40, 3),
    "opacity.png": (30, 20, 4),
    "palette.png": (40, 60, 3),
    "sixteen.png": (40, 60),
}


def test_compress_then_decompress_a_folder(photos: Path, tmp_path: Path) -> None:
    stream, out = tmp_path / "photos.nest", tmp_path / "out"
    assert fine("images", "compress", photos, "-o", stream) == f"{stream}\n"
    known = stream_info(stream.read_bytes())
    assert dict(zip(known.names, known.shapes, strict=True)) == SHAPES
    assert fine("images", "decompress", stream, "-o", out) == f"{out}\n"
    written = {path.relative_to(out).as_posix() for path in out.rglob("*.png")}
    assert written == {str(Path(name).with_suffix(".png")) for name in SHAPES}
    upright = np.rot90(PIECE, -1)
    for name, expected in {
        "below/gray": PIECE[..., 1], "color": PIECE, "held": upright, "opacity": crop((30, 20, 4)),
    }.items():  # fmt: skip
        most = 1e-3 if name == "held" else 2e-4  # JPEG has its own errors
        assert error([expected], [read(out / f"{name}.png")]) < most, name
    assert read(out / "sixteen.png").dtype == np.uint16
    assert metrics.psnr(PIECE[..., 1].astype(np.uint16) * 257, read(out / "sixteen.png")) > 40


def test_a_lossless_stream_gives_back_all_pixels(photos: Path, tmp_path: Path) -> None:
    stream, out = tmp_path / "photos.nest", tmp_path / "out"
    facts = json.loads(fine("images", "compress", photos, "-o", stream, "--lossless", "--json"))
    assert facts["bytes"] < facts["raw_bytes"]
    assert "of a lossless stream arrived, the images bit for bit" in fine("info", stream)
    fine("images", "decompress", stream, "-o", out)
    for name in ("below/gray", "color", "opacity", "sixteen"):
        assert np.array_equal(read(photos / f"{name}.png"), read(out / f"{name}.png")), name
    assert np.array_equal(np.asarray(Image.open(photos / "palette.png").convert("RGB")), read(out / "palette.png"))
    assert "--bpp and --lossless exclude each other" in misused(
        "images", "compress", photos, "-o", stream, "--force", "--bpp", 1, "--lossless"
    )


def test_single_files_keep_their_names(photos: Path, tmp_path: Path) -> None:
    stream, out = tmp_path / "some.nest", tmp_path / "out"
    fine("images", "compress", photos / "color.png", photos / "below" / "gray.png", "-o", stream)
    facts = json.loads(fine("images", "decompress", stream, "-o", out, "--json"))
    assert facts == {"files": [str(out / "color.png"), str(out / "gray.png")]}
    (photos / "color.webp").write_bytes((photos / "color.png").read_bytes())
    fine("images", "compress", photos / "color.png", photos / "color.webp", "-o", stream, "--force", "--bpp", 0.01)
    facts = json.loads(fine("images", "decompress", stream, "-o", out, "--json"))
    assert facts == {"files": [str(out / "color.png.png"), str(out / "color.webp.png")]}
    (photos / "below" / "color.png").write_bytes((photos / "color.png").read_bytes())
    assert "got color.png twice: give the folder" in refused(
        "images", "compress", photos / "color.png", photos / "below" / "color.png", "-o", tmp_path / "twice.nest"
    )


def test_rate_options_lower_the_size(photos: Path, tmp_path: Path) -> None:
    def size(*options: object) -> int:
        facts = json.loads(
            fine("images", "compress", photos / "color.png", "-o", tmp_path / "a", "--force", "--json", *options)
        )
        assert facts["bytes"] == (tmp_path / "a").stat().st_size
        assert facts["raw_bytes"] == PIECE.nbytes
        assert facts["ratio"] == pytest.approx(PIECE.nbytes / facts["bytes"])
        return int(facts["bytes"])

    whole = size()
    assert 690 <= size("--budget", "0.7KB") <= 700
    assert stream_info((tmp_path / "a").read_bytes()).damaged is None
    assert size("--bpp", 0.06) < size("--bpp", 0.25) < whole
    for quality, wanted in (("psnr", 27), ("ssim", 0.8)):
        assert size(f"--{quality}", wanted) < whole
        fine("images", "decompress", tmp_path / "a", "-o", tmp_path / "out", "-f")
        reached = getattr(metrics, quality)(PIECE, read(tmp_path / "out" / "color.png"))
        assert wanted <= reached < 1.04 * wanted
    embedded = size("--fit", "--bpp", 0.06)
    assert embedded > 10_000
    assert size("--embed", "--bpp", 0.06) > 10_000


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_a_truncated_stream_decodes(share: float, photos: Path, tmp_path: Path) -> None:
    stream = tmp_path / "a.nest"
    fine("images", "compress", photos, "-o", stream)
    data = stream.read_bytes()
    start = stream_info(data).header_bytes
    stream.write_bytes(data[: start + int(share * (len(data) - start))])  # head -c
    result = run("images", "decompress", stream, "-o", tmp_path / "out", "--bpp", 0.3)
    assert result.exception is None
    assert ("bytes have no checksum" in result.stderr) == bool(stream_info(stream.read_bytes()).unverified)
    with ImageStreamReader(stream, bpp=0.3) as reader:
        for name, image in zip(reader.names, reader, strict=True):
            assert np.array_equal(read((tmp_path / "out" / name).with_suffix(".png")), image)
    facts = json.loads(fine("info", stream, "--json"))
    assert facts == {"file": "stream", **json.loads(stream_info(stream.read_bytes()).to_json())}
    assert "6 images: below/gray.png 60 x 40" in fine("info", stream)
    assert "images need a folder" in refused("images", "decompress", stream, "-o", tmp_path / "none.npy")
    stream.write_bytes(data[: start - 1])
    assert "must have its whole header" in refused("images", "decompress", stream, "-o", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_profiles_and_16_bits_come_back(photos: Path, tmp_path: Path) -> None:
    image, profile = PIECE.astype(np.uint16) * 257, ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    deep, stream, out = tmp_path / "deep.png", tmp_path / "a.nest", tmp_path / "out"
    write_image(deep, image, profile)
    fine("images", "compress", deep, photos / "color.png", "-o", stream)
    assert "deep.png 60 x 40 x 3 of 16 bits with ICC profile, color.png 60 x 40 x 3\n" in fine("info", stream)
    fine("images", "decompress", stream, "-o", out)
    assert metrics.psnr(image, read_image(out / "deep.png")) > 40
    assert (read_profile(out / "deep.png"), read_profile(out / "color.png")) == (profile, b"")
    fine("images", "compress", deep, "-o", stream, "--no-profiles", "--force")
    assert stream_info(stream.read_bytes()).profiles == (0,)


def test_animations_are_refused_or_skipped(photos: Path, tmp_path: Path) -> None:
    frames = [Image.fromarray(PIECE // (1 + k)) for k in range(3)]
    frames[0].save(photos / "moving.gif", save_all=True, append_images=frames[1:])
    said = refused("images", "compress", photos, "-o", tmp_path / "a.nest")
    assert "moving.gif must hold one image, got 3 frames or pages: extract" in said
    assert said.endswith("--skip-damaged skips it")
    result = run("images", "compress", photos, "-o", tmp_path / "a.nest", "--skip-damaged", "--bpp", 0.01)
    assert "moving.gif must hold one image" in result.stderr
    assert set(stream_info((tmp_path / "a.nest").read_bytes()).names) == set(SHAPES)


def test_errors_of_damaged_streams_name_the_command(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = tmp_path / "a.nest"
    fine("images", "compress", photos / "color.png", "-o", stream, "--bpp", 0.1)
    data = bytearray(stream.read_bytes())
    data[stream_info(bytes(data)).header_bytes] ^= 1
    stream.write_bytes(data)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # main() changes it
    monkeypatch.setattr("sys.argv", ["nestcode", "images", "view", str(stream)])
    with pytest.raises(SystemExit):
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("decode the intact part with decompress --on-damage keep")


def test_view_writes_one_image(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = tmp_path / "a.nest"
    shown: list[str] = []

    def fail_to_open(url: str) -> bool:
        shown.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", fail_to_open)
    fine("images", "compress", photos, "-o", stream)
    with ImageStreamReader(stream, bpp=1) as reader:
        expected = {name: reader[name] for name in reader.names}
    facts = json.loads(fine("images", "view", stream, "--image", "held.jpg", "--bpp", 1, "--json"))
    assert facts == {"path": str(tmp_path / "held.png"), "image": "held.jpg", "shape": [60, 40, 3], "depth": 8}
    assert np.array_equal(read(tmp_path / "held.png"), expected["held.jpg"])
    assert "exists already" in refused("images", "view", stream, "--image", "held.jpg")
    assert fine("images", "view", stream, "--image", 0) == f"{tmp_path / 'gray.png'}\n"
    assert (
        fine("images", "view", stream, "--image", 0, "--bpp", 1, "-o", tmp_path / "b.png") == f"{tmp_path / 'b.png'}\n"
    )
    assert np.array_equal(read(tmp_path / "b.png"), expected["below/gray.png"])
    for wrong, why in (([], "none was chosen"), (["--image", "no"], "got 'no'"), (["--image", 6], "got '6'")):
        said = refused("images", "view", stream, "-o", tmp_path / "c.png", *wrong)
        assert (
            f"6 images (below/gray.png, color.png, held.jpg, opacity.png, palette.png, …) or its number, {why}" in said
        )
    assert "a name that ends in .png" in misused("images", "view", stream, "-o", tmp_path / "c.jpg")
    assert "give -o a name" in misused("images", "view", "-")
    assert "more than the limit of 5" in refused(
        "images", "view", stream, "--image", 0, "-o", tmp_path / "c.png", "--limit", 5
    )
    assert not shown
    assert not (tmp_path / "c.png").exists()
    odd = tmp_path / os.fsdecode(b"no text \xff.nest")
    odd.write_bytes(stream.read_bytes())
    fine("images", "view", odd, "-o", tmp_path / "page.html")
    assert "<title>no text ?</title>" in (tmp_path / "page.html").read_text()
    result = run("images", "view", stream, "--image", 0, "-o", tmp_path / "b.png", "--force", "--open")
    assert shown == [(tmp_path / "b.png").as_uri()]
    assert "no viewer was found" in result.stderr
    items = tmp_path / "v.nest"
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    assert "the stream holds vectors: give it to nestcode decompress" in refused(
        "images", "view", items, "-o", tmp_path / "c.png"
    )


def test_view_writes_a_page_with_the_stream(photos: Path, tmp_path: Path) -> None:
    """tests/web/test_page.py opens such a page."""
    stream, page = tmp_path / "a.nest", tmp_path / "a.html"
    fine("images", "compress", photos / "color.png", "-o", stream)
    assert fine("images", "view", stream, "-o", page) == f"{page}\n"
    assert base64.b64encode(stream.read_bytes()).decode() in page.read_text()
    assert "exists already" in refused("images", "view", stream, "-o", page)
    for option in (["--image", 0], ["--bpp", 1], ["--refine"], ["--scale", "1/2"], ["--codec", "photos"]):
        said = misused("images", "view", stream, "-o", page, "--force", *option)
        assert "with a PNG file" in said
    items = tmp_path / "v.nest"
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    assert "the stream holds vectors: give it to nestcode decompress" in refused(
        "images", "view", items, "-o", tmp_path / "c.html"
    )
    assert not (tmp_path / "c.html").exists()


def test_refine_writes_what_the_learned_decoder_returns(photos: Path, tmp_path: Path) -> None:
    stream, out, items = tmp_path / "a.nest", tmp_path / "out", tmp_path / "v.nest"
    fine("images", "compress", photos / "color.png", "-o", stream)
    (expected,) = nestcode.decompress_images(stream.read_bytes(), bpp=1, refiner=Refiner.load())
    fine("images", "decompress", stream, "-o", out, "--bpp", 1, "--refine")
    fine("images", "view", stream, "-o", tmp_path / "b.png", "--bpp", 1, "--refine")
    assert np.array_equal(read(out / "color.png"), expected)
    assert np.array_equal(read(tmp_path / "b.png"), expected)
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    assert "the stream holds images: give it to nestcode images decompress" in refused("decompress", stream, "-o", out)


def test_scale_writes_smaller_images(photos: Path, tmp_path: Path) -> None:
    stream, out, items = tmp_path / "a.nest", tmp_path / "out", tmp_path / "v.nest"
    fine("images", "compress", photos / "color.png", "-o", stream)
    (expected,) = nestcode.decompress_images(stream.read_bytes(), scale=1 / 4)
    fine("images", "decompress", stream, "-o", out, "--scale", "1/4")
    fine("images", "view", stream, "-o", tmp_path / "b.png", "--scale", "1/4")
    assert np.array_equal(read(out / "color.png"), expected)
    assert np.array_equal(read(tmp_path / "b.png"), expected)
    for command in (
        ["images", "decompress", stream, "-o", out, "-f"],
        ["images", "view", stream, "-o", tmp_path / "c.png"],
    ):
        assert "--refine is for images of scale 1" in misused(*command, "--scale", "1/2", "--refine")
    fine("compress", vectors(tmp_path)[0], "-o", items, "--length", 16)
    assert "No such option: --scale" in misused("decompress", items, "-o", out, "--scale", "1/8")


@pytest.mark.parametrize("fit", [[], ["--fit"]])
def test_damaged_images_are_named_or_skipped(fit: list[str], photos: Path, tmp_path: Path) -> None:
    bad, stream = photos / "below" / "cut.png", tmp_path / "a.nest"
    bad.write_bytes((photos / "color.png").read_bytes()[:500])
    message = refused("images", "compress", photos, "-o", stream, *fit)
    assert str(bad) in message
    assert "--skip-damaged skips it" in message
    assert not stream.exists()
    result = run("images", "compress", photos, "-o", stream, "--skip-damaged", "--bpp", 0.01, *fit)
    assert result.exception is None
    assert f"skipped: {bad} cannot be read as an image" in result.stderr
    assert set(stream_info(stream.read_bytes()).names) == set(SHAPES)
    assert "at least one image must be readable" in refused(
        "images", "compress", bad, "-o", tmp_path / "b", "--skip-damaged", *fit
    )
    assert not (tmp_path / "b").exists()


def test_what_cannot_be_opened_or_named_is_skipped(photos: Path, tmp_path: Path) -> None:
    odd = ["link.png", "two\nlines.png"]
    (photos / odd[0]).symlink_to(tmp_path / "nowhere")
    Image.fromarray(PIECE).save(photos / odd[1])
    said = refused("images", "compress", photos, "-o", tmp_path / "a.nest")
    assert f"{photos / odd[0]}'; --skip-damaged skips it" in said
    result = run("images", "compress", photos, "-o", tmp_path / "a.nest", "--skip-damaged", "--bpp", 0.01)
    assert result.stderr.count("skipped: ") == 2
    assert "link.png" in result.stderr
    assert r"two\nlines.png" in result.stderr
    assert set(stream_info((tmp_path / "a.nest").read_bytes()).names) == set(SHAPES)


def test_a_damaged_stream_writes_no_image(photos: Path, tmp_path: Path) -> None:
    stream, out = tmp_path / "a.nest", tmp_path / "out"
    fine("images", "compress", photos, "-o", stream)
    data = bytearray(stream.read_bytes())
    data[-10] ^= 1  # in the last block, which some images do not need
    stream.write_bytes(data)
    assert "does not match its checksum" in refused("images", "decompress", stream, "-o", out)
    assert not out.exists()
    fine("images", "decompress", stream, "-o", out, "--bpp", 0.1)  # from the blocks before it
    with pytest.warns(UserWarning, match="does not match its checksum"):
        fine("images", "decompress", stream, "-o", out, "--on-damage", "keep", "--force")
    assert len([*out.rglob("*.png")]) == len(SHAPES)


def test_outputs_are_not_overwritten_without_force(photos: Path, tmp_path: Path) -> None:
    stream, out = tmp_path / "a.nest", tmp_path / "out"
    stream.write_text("mine")
    assert "give --force to overwrite it" in refused("images", "compress", photos, "-o", stream)
    assert stream.read_text() == "mine"
    fine("images", "compress", photos, "-o", stream, "-f", "--bpp", 0.01)
    out.mkdir()
    (out / "color.png").write_text("mine")
    assert f"{out / 'color.png'} exists already" in refused("images", "decompress", stream, "-o", out)
    assert [path.name for path in out.iterdir()] == ["color.png"]
    assert (out / "color.png").read_text() == "mine"
    fine("images", "decompress", stream, "-o", out, "--force")
    assert read(out / "color.png").shape == PIECE.shape
    assert "images need a folder" in refused("images", "decompress", stream, "-o", stream)


def test_an_interrupt_leaves_no_output(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "old.nest").write_text("mine")
    monkeypatch.setattr(ImageCodec, "encode_passes", interrupted)
    monkeypatch.setattr(nestcode.LinearCoder, "encode", interrupted)
    coder = vectors(tmp_path)[1]
    for inputs in ([photos], [tmp_path / "v.npy", "--coder", coder]):
        for out in ("new.nest", "old.nest"):
            assert run("images", "compress", *inputs, "-o", tmp_path / out, "--force").exit_code != 0
    assert not (tmp_path / "new.nest").exists()
    assert (tmp_path / "old.nest").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "old.nest", "v.npy", "v.coder"}


def vectors(folder: Path) -> tuple[Path, Path, np.ndarray[Any, np.dtype[np.float32]]]:
    """Write vectors and a coder for them; return both paths and the vectors."""
    items = np.random.default_rng(0).standard_normal((400, 12)).astype(np.float32) * 0.7 ** np.arange(12)
    items = items.astype(np.float32)
    np.save(folder / "v.npy", items)
    nestcode.LinearCoder(width=64).fit(items).save(folder / "v.coder")
    return folder / "v.npy", folder / "v.coder", items


def test_compress_then_decompress_vectors(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    stream, out = tmp_path / "v.nest", tmp_path / "back.npy"
    fine("compress", path, "-o", stream, "--length", 32)  # a coder is fitted and embedded
    fine("decompress", stream, "-o", out)
    back = np.load(out)
    assert (back.shape, back.dtype) == (items.shape, items.dtype)
    assert np.array_equal(back, decompress(stream.read_bytes()))
    assert np.mean((back - items) ** 2) < 0.1 * np.mean(items**2)
    assert "exists already" in refused("decompress", stream, "-o", out)
    fine("decompress", stream, "-o", out, "--length", 0, "--force")
    assert np.ptp(np.load(out), axis=0).max() == 0
    assert "vectors need a .npy file" in refused("decompress", stream, "-o", tmp_path / "folder")

    fine("compress", path, "-o", stream, "--coder", coder, "--entropy", "--force")
    assert "which is not embedded" in refused("decompress", stream, "-o", tmp_path / "b.npy")
    assert json.loads(fine("decompress", stream, "-o", out, "--coder", coder, "-f", "--json")) == {"files": [str(out)]}
    known = json.loads(fine("info", stream, "--json"))
    assert (known["count"], known["width"], known["length"], known["kind"]) == (400, 64, 64, "LinearCoder")
    assert "400 items of 12 float32, 64 bits each" in fine("info", stream)
    stream.write_bytes(stream.read_bytes()[:-700])
    fine("decompress", stream, "-o", out, "--coder", coder, "-f")
    assert np.load(out).shape == items.shape


@pytest.mark.parametrize("given", [True, False])
def test_vectors_within_a_budget(given: bool, tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    fitted = ["--coder", coder] if given else ["--length", 32]
    stream = tmp_path / "v.nest"
    whole = json.loads(fine("compress", path, "-o", stream, *fitted, "--json"))["bytes"]
    for budget in (whole - 300, whole - 1, whole + 1000):
        fine("compress", path, "-o", stream, *fitted, "--budget", budget, "-f")
        assert min(budget, whole) - 1024 - len(items) <= stream.stat().st_size <= budget
    before = stream.read_bytes()
    assert "must leave room for the header and the coder" in refused(
        "compress", path, "-o", stream, *fitted, "--budget", "500B", "-f"
    )
    assert stream.read_bytes() == before


def test_vectors_within_an_error(tmp_path: Path) -> None:
    path, coder, items = vectors(tmp_path)
    fine("compress", path, "-o", tmp_path / "v", "--coder", coder, "--max-error", 0.01)
    width = item_stream_info((tmp_path / "v").read_bytes()).width
    known = nestcode.load_coder(coder)
    assert known.expected_error(width) <= 0.01 < known.expected_error(width - 1)
    fine("decompress", tmp_path / "v", "-o", tmp_path / "back.npy", "--coder", coder)
    assert np.mean((np.load(tmp_path / "back.npy") - items) ** 2) < 0.012
    assert "max_error must be at least" in refused(
        "compress", path, "-o", tmp_path / "w", "--coder", coder, "--max-error", 1e-9
    )


def test_errors_are_named(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.nest"
    path, coder, _ = vectors(tmp_path)
    for arguments, message in [
        ((photos, "--budget", "10"), "budget must be at least the"),
        ((photos / "color.png", "--psnr", 99), "which all bits of image 'color.png' give, got 99: lower it"),
        ((photos, "--codec", coder), "must hold an image codec, got a LinearCoder"),
        ((photos, "--codec", tmp_path / "no.coder"), "no.coder"),
        ((tmp_path / "none",), "there is no file"),
        ((photos, "--codec", "none"), "give the path that was saved to, or one of photos"),
        ((tmp_path / "none.png",), "there is no file"),
        ((photos / "notes.txt",), "cannot be read as an image"),
    ]:
        assert message in refused("images", "compress", *arguments, "-o", out)
        assert not out.exists()
    for arguments, message in [
        ((path, "--coder", tmp_path / "no.coder"), "no.coder"),
        ((tmp_path / "none.npy",), "there is no file"),
    ]:
        assert message in refused("compress", *arguments, "-o", out)
        assert not out.exists()
    for arguments, message in [
        (("images", "compress", photos, "--fit", "--codec", "photos"), "leave out --codec, or --fit"),
        (("images", "compress", photos, "--bpp", 1, "--budget", 10000), "--bpp and --budget exclude each other"),
        (("images", "compress", photos, "--psnr", 30, "--ssim", 0.5), "--psnr and --ssim exclude each other"),
        (("images", "compress", photos, "--ssim", 1), "ssim must be above 0 and below 1, got 1.0"),
        (("images", "compress", photos, "--psnr", 1000), "psnr must be above 0 and below"),
        (("images", "compress", photos, "--bpp", 0), "it must be a positive number, got 0"),
        (("images", "compress", photos, "--budget", "much"), "such as 2MB or 64KiB, got 'much'"),
        (("images", "compress", photos, path), "v.npy: for vectors give nestcode compress"),
        (("compress", path, "--max-error", 0), "it must be a positive number, got 0"),
        (("compress", path, "--budget", "much"), "such as 2MB or 64KiB, got 'much'"),
        (("compress", photos), "for images give nestcode images compress"),
    ]:
        assert message in misused(*arguments, "-o", out)
    assert "the output must be a file, got the folder" in misused("images", "compress", photos, "-o", f"{out}/")
    (tmp_path / "empty").mkdir()
    assert "there are no images in" in refused("images", "compress", tmp_path / "empty", "-o", out)
    for bad in (np.zeros(3), np.zeros((0, 3)), np.array([{}])):
        np.save(tmp_path / "bad.npy", bad, allow_pickle=True)
        with pytest.raises((InvalidInput, DamagedFile), match=r"bad\.npy"):
            raise run("compress", tmp_path / "bad.npy", "-o", out).exception  # type: ignore[misc]
    for wrong, message in ((photos / "color.png", "not a stream of images"), (out, "there is no file")):
        assert message in refused("images", "decompress", wrong, "-o", tmp_path / "out")
    assert run("images", "compress", photos).exit_code == 2  # without --out
    assert run("images", "compress", photos, "-o", out, "--bpp", -1).exit_code == 2


def test_few_bytes_decode_to_many_only_if_that_is_asked_for(tmp_path: Path) -> None:
    """A header of some 400 bytes can claim any number of items, of which none need arrive."""
    header = parse_header(memoryview(item_stream(some_items(3))))
    claims = replace(header, count=3 << 20, payload=19 * (3 << 20)).data
    (tmp_path / "a.nest").write_bytes(claims)
    some_coder().save(tmp_path / "a.coder")
    options = (tmp_path / "a.nest", "-o", tmp_path / "a.npy", "-c", tmp_path / "a.coder")
    said = refused("decompress", *options)
    assert "decodes to 301,989,888 bytes, more than the limit of 268,435,456: give --limit 301989888" in said
    assert not (tmp_path / "a.npy").exists()
    assert "more than the limit of 5" in refused("decompress", *options, "--limit", 5)
    small = replace(header, count=50, payload=950).data
    (tmp_path / "a.nest").write_bytes(small)
    fine("decompress", *options, "--limit", 50 * 96)
    assert np.load(tmp_path / "a.npy").shape == (50, 24)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("12", 12), ("1.5kB", 1500), ("2 MiB", 2 << 20), (" 1gb ", 10**9), ("3B", 3)]
)
def test_byte_sizes_are_parsed(text: str, size: int) -> None:
    assert read_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e3", "2 TB", "1.", "1,5MB", "²MB", "9" * 400, "9" * 400 + "MB"])
def test_invalid_byte_sizes_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be a number of bytes"):
        read_bytes(text)


def test_an_error_is_one_line_and_a_status(tmp_path: Path) -> None:
    words = ["images", "compress", str(tmp_path / "[no].png"), "-o", str(tmp_path / "a.nest")]
    command = [sys.executable, "-m", "nestcode", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: there is no file {tmp_path / '[no].png'}")
    assert len(ended.stderr.splitlines()) == 1
