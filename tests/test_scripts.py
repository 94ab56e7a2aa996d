"""Benchmarks and examples run."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from nestcode.data import digits

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("[a-z]*.py")), ids=lambda path: path.name)
def test_benchmarks_run_and_save_their_results(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, str(script), "--quick", "--json", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    facts = json.loads(out.read_text())
    assert facts["rows"]
    assert facts["versions"]["nestcode"]


def test_doctests_of_shared_benchmark_modules() -> None:
    scripts = [str(path) for path in sorted((ROOT / "benchmarks").glob("_*.py"))]
    assert scripts
    # One process: importing their libraries takes seconds, the tests milliseconds.
    run = subprocess.run([sys.executable, "-m", "doctest", *scripts], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("distance", ["angular", "euclidean"])
def test_the_search_benchmark_reads_hdf5_of_ann_benchmarks(distance: str, tmp_path: Path) -> None:
    file, out, figure = tmp_path / "digits.hdf5", tmp_path / "figures.json", tmp_path / "fronts.png"
    rows, _ = digits()
    with h5py.File(file, "w") as data:
        data["train"], data["test"] = rows[:-50], rows[-50:]
        data.attrs["distance"] = distance
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "search.py"),
        "--quick",
        "--tables",
        "speed",
        "--peers",
        "usearch",
    ]
    command += ["--hdf5", str(file), "--json", str(out), "--figure", str(figure)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    saved = json.loads(out.read_text())["rows"]
    assert {row["data"].split(",")[0] for row in saved} == {"digits"}
    assert {row["method"] for row in saved} > {"usearch f32", "usearch i8"}
    assert all(row["recall"] > 0.9 for row in saved if row["method"] == "usearch f32" and row.get("front"))
    assert figure.stat().st_size > 10_000


def test_only_nested_losses_order_the_classifier() -> None:
    spec = importlib.util.spec_from_file_location("classifier", ROOT / "examples" / "classifier.py")
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    accuracy = {
        name: dict(zip(example.SHOWN, example.accuracy_by_length(*method, epochs=25, seed=0), strict=True))
        for name, method in example.METHODS.items()
    }
    assert accuracy["nested"][4] > accuracy["ordinary"][4] + 0.1
    assert accuracy["Matryoshka"][8] > accuracy["ordinary"][8] + 0.1
    assert accuracy["nested"][64] > 0.9
    assert accuracy["ordinary"][64] > 0.9
