"""Encoding and searching on a Ray cluster: the same index and the same answers, whatever dies."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_cluster_builds_and_answers_as_one_process_whatever_dies(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'nestcode[ray]'")
    command = [sys.executable, "-m", "tests.scale.on_ray", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "INFO" not in run.stderr.partition("command\n")[2].partition("search\n")[0]
