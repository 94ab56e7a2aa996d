"""The cache of experiments, their names, and the report on what is in a folder."""

import json
import shutil
from collections.abc import Callable
from html import escape
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from nestcode.errors import InvalidInput
from nestcode.reproduce import NAMES, Images, Lab, reproduce
from nestcode.reproduce.lab import Arrays
from nestcode.reproduce.runner import find_experiments, write_report
from tests.reproduce.toy import run


def quiet(folder: Path, *, fresh: bool = False) -> Lab:
    return Lab(folder, scale="toy", fresh=fresh, console=Console(quiet=True))


def counted() -> tuple[Callable[[], Arrays], list[int]]:
    calls: list[int] = []

    def compute() -> Arrays:
        calls.append(1)
        return {"values": np.arange(3), "one": np.array(len(calls))}

    return compute, calls


def test_cached_arrays_are_not_computed_again(tmp_path: Path) -> None:
    compute, calls = counted()
    first = quiet(tmp_path)
    computed = first.cached("some", compute, seed=0)
    again = quiet(tmp_path)
    stored = again.cached("some", compute, seed=0)
    assert len(calls) == 1
    assert computed.keys() == stored.keys()
    for name, array in computed.items():
        np.testing.assert_array_equal(stored[name], array)
    assert first.cached_seconds == 0
    assert again.cached_seconds > 0


@pytest.mark.parametrize("other", ["seed", "name", "scale", "version", "fresh", "damaged"])
def test_arrays_are_computed_again_if_anything_differs(tmp_path: Path, other: str) -> None:
    compute, calls = counted()
    quiet(tmp_path).cached("some", compute, seed=0)
    lab = quiet(tmp_path, fresh=other == "fresh")
    if other == "damaged":
        (path,) = (tmp_path / "cache").iterdir()
        path.write_bytes(path.read_bytes()[:50])
    if other == "scale":
        lab.scale = "quick"
    with patch("nestcode.__version__", "99" if other == "version" else "0.1.0"):
        stored = lab.cached("other" if other == "name" else "some", compute, seed=int(other == "seed"))
    assert len(calls) == 2
    assert stored["one"] == 2


def test_an_experiment_must_record_a_finding(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must record a finding"):
        quiet(tmp_path).to_json()


def test_experiments_are_found_by_name() -> None:
    assert [experiment.name for experiment in find_experiments(["knn", "pca", "knn"])] == ["pca", "knn"]
    assert len(find_experiments(["all"])) == len(find_experiments([])) == 13
    with pytest.raises(InvalidInput, match=r"must be one of all, pca, .* got 'pcb'"):
        find_experiments(["pcb"])


@pytest.mark.parametrize(("side", "by"), [(16, 1), (8, 1), (4, 2), (2, 4)])
def test_downsampled_images_are_means_of_squares(side: int, by: int) -> None:
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


@pytest.mark.parametrize(
    "damage", ["no figure", "bad figure", "no json", "bad json", "odd findings", "figure elsewhere"]
)
def test_damaged_results_are_left_out_of_the_report_and_computed_again(done: Path, damage: str, tmp_path: Path) -> None:
    folder = shutil.copytree(done, tmp_path / "report")
    figure, results = folder / "complexity-depth.png", folder / "complexity.json"
    if damage == "no figure":
        figure.unlink()
    elif damage == "bad figure":
        figure.write_bytes(b"not a figure")
    elif damage == "no json":
        results.unlink()
    elif damage == "bad json":
        results.write_text('{"x"')
    else:
        change = (
            {"findings": [1]} if damage == "odd findings" else {"blocks": [{"figure": "../report/complexity-depth"}]}
        )
        results.write_text(json.dumps({**json.loads(results.read_text()), **change}))
    page = write_report(folder, Console(quiet=True))
    assert "<h2 " not in page.read_text()
    assert run("complexity", folder)["findings"] == json.loads((done / "complexity.json").read_text())["findings"]
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_results_of_earlier_versions_are_reported(name: str, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "docs" / "reproduction" / f"{name}.json"
    shutil.copy(source, tmp_path)
    result = json.loads(source.read_text())
    for block in result["blocks"]:
        if "figure" in block:
            Image.new("RGB", (8, 8)).save(tmp_path / f"{block['figure']}.png")
    html = write_report(tmp_path, Console(quiet=True)).read_text()
    assert html.count("<h2 ") == 1
    assert all(escape(finding["claim"]) in html for finding in result["findings"])


def test_the_report_goes_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="is a file"):
        reproduce(["pca"], quiet(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"
