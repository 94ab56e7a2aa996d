"""Image files: which are read, and where PNG files go."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nestcode.data.images import ImageFiles, png_paths
from nestcode.errors import DamagedFile, InvalidInput

OUT = Path("out")
NAMES = st.lists(st.text("ab./", min_size=1, max_size=6).filter(lambda name: Path(name).parts), max_size=8)


def where(*names: str) -> list[str]:
    return [path.relative_to(OUT).as_posix() for path in png_paths(OUT, names)]


def test_only_names_that_clash_keep_their_suffixes() -> None:
    assert where("a.jpg", "b/same.png", "b/same.jpg", "c/same.jpg", "plain") == [
        "a.png", "b/same.png.png", "b/same.jpg.png", "c/same.png", "plain.png",
    ]  # fmt: skip
    # A new name may be another image's name, which then keeps its suffix too.
    assert where("s.png", "s.jpg", "s.png.gif") == ["s.png.png", "s.jpg.png", "s.png.gif.png"]


@given(NAMES)
def test_paths_differ_and_none_is_inside_of_another(drawn: list[str]) -> None:
    names = list(dict.fromkeys(str(Path(name)) for name in drawn if ".." not in name and not name.startswith("/")))
    try:
        paths = png_paths(OUT, names)
    except InvalidInput:
        assert any(len(Path(name).parts) > 1 for name in names)  # only a name with a folder can be inside of another
        return
    assert len(set(paths)) == len(names)
    assert not any(above in paths for path in paths for above in path.parents)
    for name, path in zip(names, paths, strict=True):
        assert path in (OUT / f"{name}.png", (OUT / name).with_suffix(".png"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["x.png", "x.png/y.jpg"], "x.png/y.jpg would be inside of x.png"),
        (["x.jpg", "x.png/deep/y.jpg"], "would be inside of x.png"),
        (["y" * 252], "more than 255 bytes"),
        (["é" * 128 + "/y"], "more than 255 bytes"),
    ],
)
def test_names_that_cannot_be_files_together(names: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        png_paths(OUT, names)
    assert where("y" * 251 + ".jpeg", "é" * 127 + "/y") == ["y" * 251 + ".png", "é" * 127 + "/y.png"]


def test_skipped_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / ".git").mkdir()
    Image.new("L", (4, 3)).save(tmp_path / "a.png")
    for name in ("below/scan.pdf", "notes.txt", ".hidden", ".git/config"):
        (tmp_path / name).write_text("no image")
    files = ImageFiles([tmp_path])
    assert files.names == ["a.png"]
    assert files.skipped == [tmp_path / "below" / "scan.pdf", tmp_path / "notes.txt"]
    assert ImageFiles([tmp_path / "a.png"]).skipped == []


def test_the_formats_that_are_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "none.png").write_text("no image")
    with pytest.raises(DamagedFile, match=r"none of (AVIF, )?BMP, GIF, (HEIF, )?JPEG, PNG, PPM, TIFF, WEBP: "):
        ImageFiles([tmp_path / "none.png"])[0]
    (tmp_path / "below").mkdir()
    with pytest.raises(InvalidInput, match=r"give some of \.avif, \.bmp, "):
        ImageFiles([tmp_path / "below"])


def test_names_that_the_process_cannot_encode_name_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsencode", lambda name: str(name).encode("ascii"))  # as of PYTHONUTF8=0 LC_ALL=C
    with pytest.raises(InvalidInput, match=r"'.xe9t.xe9.png' has a name .*: set PYTHONUTF8=1"):
        png_paths(OUT, ["été.png"])
