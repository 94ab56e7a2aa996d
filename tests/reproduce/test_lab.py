"""The cache of experiments, their names, and the report on what is in a folder."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

import nestcode
from nestcode.errors import InvalidInput
from nestcode.reproduce import NAMES, Images, Lab, complexity, reproduce
from nestcode.reproduce.lab import Arrays
from nestcode.reproduce.lab.provenance import Provenance, find_provenance
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
    with patch("nestcode.__version__", "99" if other == "version" else nestcode.__version__):
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


def test_a_finding_is_of_the_paper_or_ours_and_has_a_verdict(tmp_path: Path) -> None:
    lab = Lab(tmp_path, scale="toy", seeds=(3, 4), where="section 9")
    lab.finding("one", paper="yes", ours="yes", holds=True)
    lab.finding("two", ours="no", holds=False, seeds=())
    lab.finding("three", paper="yes", ours="too noisy", holds=None, where="figure 9", seeds=(3,))
    assert [(f.of, f.where, f.verdict, f.seeds) for f in lab.findings] == [
        ("paper", "section 9", "holds", (3, 4)),
        ("ours", "section 9", "differs", ()),
        ("paper", "figure 9", "inconclusive", (3,)),
    ]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_results_come_from_a_clean_commit(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "code").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = find_provenance(package=tmp_path)
    assert clean.commit is not None
    assert clean.clean
    assert str(clean) == f"commit {clean.commit[:12]}"
    (tmp_path / "code").write_text("2")
    with pytest.raises(InvalidInput, match="1 files differ from it, such as code: commit them"):
        find_provenance(package=tmp_path)
    dirty = find_provenance(package=tmp_path, allow_dirty=True)
    assert dirty == Provenance(clean.commit, clean=False)
    assert str(dirty).endswith("uncommitted changes")
    with pytest.raises(InvalidInput, match="the repository is at commit"):
        find_provenance("1234567", package=tmp_path)


def test_a_copy_without_a_repository_states_its_commit(tmp_path: Path) -> None:
    assert find_provenance(package=tmp_path) == Provenance(None, None)
    assert find_provenance("abc", package=tmp_path) == Provenance("abc", clean=False)
    assert find_provenance("abc", clean=True, package=tmp_path) == Provenance("abc", clean=True)
    with pytest.raises(InvalidInput, match="give the commit too"):
        find_provenance(clean=True, package=tmp_path)


@pytest.mark.parametrize(("side", "by"), [(16, 1), (8, 1), (4, 2), (2, 4)])
def test_downsampled_images_are_means_of_squares(side: int, by: int) -> None:
    rows = np.random.default_rng(0).integers(256, size=(5, 3 * 8 * 8), dtype=np.uint8)
    images = Images("noise", 8, rows, rows[:2], None, None).downsampled(side)
    pixels = rows.reshape(5, 3, 8, 8).astype(float)
    plain = sum(pixels[:, :, i::by, j::by] for i in range(by) for j in range(by)) / by**2
    assert images.side == 8 // by
    np.testing.assert_array_equal(images.train, np.round(plain).reshape(5, -1))
    np.testing.assert_array_equal(images.test, images.train[:2])


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def draw(lab: Lab) -> None:
        lab.finding("it holds", paper="yes", ours="yes", holds=True)
        lab.figure("complexity-depth", Figure((1, 1)), "empty")

    monkeypatch.setattr(complexity, "EXPERIMENT", replace(complexity.EXPERIMENT, run=draw))
    run("complexity", tmp_path / "done")
    return tmp_path / "done"


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
    again, before = run("complexity", folder), json.loads((done / "complexity.json").read_text())
    assert [finding["ours"] for finding in again["findings"]] == [finding["ours"] for finding in before["findings"]]
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
    of_paper = [finding["verdict"] for finding in result["findings"] if finding["of"] == "paper"]
    assert f"Claims of the paper: {of_paper.count('holds')} hold, {of_paper.count('differs')} differ" in html


def test_the_report_goes_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="is a file"):
        reproduce(["pca"], quiet(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"
