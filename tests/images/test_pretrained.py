"""The pretrained codecs: the registry lists every file, and finds each by the fingerprint that it has once loaded."""

from pathlib import Path

import pytest

from nestcode import ImageCodec, load_coder
from nestcode.errors import InvalidInput
from nestcode.images.pretrained import FOLDER, PRETRAINED, find_pretrained, pretrained_path

FINGERPRINTS = {
    "photos": "0ebfdb2dbcfb318a5cb2ef909b99f6e5b8d7f9cf794df7c100ce5e409597d4cd",
    "photos-1": "a887733e8a8c31be344e719c429a033d20316d5e2ec814b1390d5ff71a74720f",
}


def test_the_registry_lists_every_shipped_file() -> None:
    assert {path.name.removesuffix(".coder") for path in FOLDER.glob("*.coder")} == PRETRAINED.keys()
    assert all(path.stat().st_size < 5_000_000 for path in FOLDER.iterdir() if path.is_file())


def test_fingerprints_never_change() -> None:
    """Receivers find a codec by its fingerprint: another one would orphan the streams that were sent without it."""
    assert FINGERPRINTS.keys() == PRETRAINED.keys()
    for name, fingerprint in FINGERPRINTS.items():
        assert find_pretrained(fingerprint) == name


@pytest.mark.parametrize("name", PRETRAINED)
def test_codecs_are_found_by_their_fingerprint(name: str) -> None:
    assert find_pretrained(ImageCodec.load(name).fingerprint) == name
    with pytest.raises(InvalidInput, match="ImageCodec"):
        load_coder(pretrained_path(name))


def test_a_name_wins_over_a_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").write_text("mine")
    assert ImageCodec.load("photos").step == 4
    with pytest.raises(ValueError, match="damaged or not a Nestcode file"):
        ImageCodec.load("./photos")
