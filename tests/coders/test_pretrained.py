"""The registry of shipped coders: it lists every file, and finds each by the fingerprint that it has once loaded."""

from pathlib import Path

import pytest

from nestcode import ImageCodec, load_coder
from nestcode.coders import pretrained
from nestcode.coders.pretrained import PRETRAINED, find_pretrained, pretrained_names, pretrained_path
from nestcode.errors import InvalidInput

FINGERPRINTS = {
    "cifar10-small": "69a5dc3b4ed34daf3a412c73259459a7683a5c8522d0ce88b7f0856caa330a30",
    "photos-small": "57c9851d9e1facf228c1b5f7ab86bed9387c791759a48cc73b17dfde11f7fe8d",
    "photos": "0ebfdb2dbcfb318a5cb2ef909b99f6e5b8d7f9cf794df7c100ce5e409597d4cd",
    "photos-1": "a887733e8a8c31be344e719c429a033d20316d5e2ec814b1390d5ff71a74720f",
}


def test_the_registry_lists_every_shipped_file() -> None:
    files = Path(pretrained.__file__).parent.glob("*.coder")
    assert {path.name.removesuffix(".coder") for path in files} == PRETRAINED.keys()
    assert sorted(pretrained_names("items") + pretrained_names("images")) == sorted(PRETRAINED)
    assert all(pretrained_path(name).stat().st_size < 5_000_000 for name in PRETRAINED)


def test_fingerprints_never_change() -> None:
    """Receivers find a coder by its fingerprint: another one would orphan the streams that were sent without it."""
    assert FINGERPRINTS.keys() == PRETRAINED.keys()
    for name, fingerprint in FINGERPRINTS.items():
        assert find_pretrained(fingerprint, PRETRAINED[name].codes) == name


@pytest.mark.parametrize("name", pretrained_names("images"))
def test_image_codecs_are_found_by_their_fingerprint(name: str) -> None:
    fingerprint = ImageCodec.load(name).fingerprint
    assert find_pretrained(fingerprint, "images") == name
    assert find_pretrained(fingerprint, "items") is None
    with pytest.raises(InvalidInput, match="ImageCodec"):
        load_coder(name)


@pytest.mark.parametrize("name", pretrained_names("items"))
def test_coders_are_found_by_their_fingerprint(name: str) -> None:
    pytest.importorskip("torch")
    fingerprint = load_coder(name).fingerprint
    assert find_pretrained(fingerprint, "items") == name
    assert find_pretrained(fingerprint, "images") is None
    with pytest.raises(InvalidInput, match="must hold an image codec"):
        ImageCodec.load(pretrained_path(name))


def test_a_name_wins_over_a_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").write_text("mine")
    assert ImageCodec.load("photos").step == 4
    with pytest.raises(ValueError, match="damaged or not a Nestcode file"):
        ImageCodec.load("./photos")
