"""What is kept between runs, and when it is made again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from rich.console import Console

from nestcode.errors import InvalidInput
from nestcode.reproduce import Images, Lab, reproduce
from nestcode.reproduce.lab import Arrays
from nestcode.reproduce.runner import find_experiments, write_report
from tests.reproduce.toy import run


def quiet(folder: Path, *, fresh: bool = False) -> Lab:
    return Lab(folder, scale="toy", fresh=fresh, console=Console(quiet=True))


def counted() -> tuple[Callable[[], Arrays], list[int]]:
    calls: list[int] = []

    def make() -> Arrays:
        calls.append(1)
        return {"numbers": np.arange(3), "one": np.array(len(calls))}

    return make, calls


def test_what_was_made_is_not_made_again(tmp_path: Path) -> None:
    make, calls = counted()
    first = quiet(tmp_path)
    made = first.cached("some", make, seed=0)
    again = quiet(tmp_path)
    found = again.cached("some", make, seed=0)
    assert len(calls) == 1
    assert made.keys() == found.keys()
    for name, array in made.items():
        np.testing.assert_array_equal(found[name], array)
    assert first.cached_seconds == 0
    assert again.cached_seconds > 0


@pytest.mark.parametrize("other", ["seed", "name", "scale", "version", "fresh", "damaged"])
def test_it_is_made_again_where_anything_differs(tmp_path: Path, other: str) -> None:
    make, calls = counted()
    quiet(tmp_path).cached("some", make, seed=0)
    lab = quiet(tmp_path, fresh=other == "fresh")
    if other == "damaged":
        (path,) = (tmp_path / "cache").iterdir()
        path.write_bytes(path.read_bytes()[:50])
    if other == "scale":
        lab.scale = "quick"
    with patch("nestcode.__version__", "99" if other == "version" else "0.1.0"):
        found = lab.cached("other" if other == "name" else "some", make, seed=int(other == "seed"))
    assert len(calls) == 2
    assert found["one"] == 2


def test_an_experiment_must_find_something(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must record a finding"):
        quiet(tmp_path).to_json()


def test_names_of_experiments() -> None:
    assert [experiment.name for experiment in find_experiments(["knn", "pca", "knn"])] == ["pca", "knn"]
    assert len(find_experiments(["all"])) == len(find_experiments([])) == 13
    with pytest.raises(InvalidInput, match=r"must be one of all, pca, .* got 'pcb'"):
        find_experiments(["pcb"])


@pytest.mark.parametrize(("side", "by"), [(16, 1), (8, 1), (4, 2), (2, 4)])
def test_shrunk_images_are_means_of_squares(side: int, by: int) -> None:
    rows = np.random.default_rng(0).integers(256, size=(5, 3 * 8 * 8), dtype=np.uint8)
    images = Images("noise", 8, rows, rows[:2], None, None).downsampled(side)
    pixels = rows.reshape(5, 3, 8, 8).astype(float)
    plain = sum(pixels[:, :, i::by, j::by] for i in range(by) for j in range(by)) / by**2
    assert images.side == 8 // by
    np.testing.assert_array_equal(images.train, np.round(plain).reshape(5, -1))
    np.testing.assert_array_equal(images.test, images.train[:2])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    run("complexity", folder)
    return folder


@pytest.mark.parametrize("harm", ["no figure", "bad figure", "no json", "bad json", "odd findings", "figure elsewhere"])
def test_what_is_damaged_is_left_out_of_the_page_and_made_again(done: Path, harm: str, tmp_path: Path) -> None:
    folder = shutil.copytree(done, tmp_path / "report")
    picture, numbers = folder / "complexity-depth.png", folder / "complexity.json"
    if harm == "no figure":
        picture.unlink()
    elif harm == "bad figure":
        picture.write_bytes(b"not a picture")
    elif harm == "no json":
        numbers.unlink()
    elif harm == "bad json":
        numbers.write_text('{"x"')
    else:
        change = {"findings": [1]} if harm == "odd findings" else {"blocks": [{"figure": "../report/complexity-depth"}]}
        numbers.write_text(json.dumps({**json.loads(numbers.read_text()), **change}))
    page = write_report(folder, Console(quiet=True))
    assert "<h2 " not in page.read_text()
    assert run("complexity", folder)["findings"] == json.loads((done / "complexity.json").read_text())["findings"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_report_goes_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="is a file"):
        reproduce(["pca"], quiet(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"
