"""Examples and benchmarks run, and the classifier shows what it is there to show."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("[a-z]*.py")), ids=lambda path: path.name)
def test_benchmarks_run_and_save_their_figures(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, str(script), "--quick", "--json", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    facts = json.loads(out.read_text())
    assert facts["rows"]
    assert facts["versions"]["nestcode"]


def test_the_classifier_example_is_ordered_by_nested_dropout_only() -> None:
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
