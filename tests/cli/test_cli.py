"""The command line: what it prints, where, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nestcode
from nestcode import _core


def nestcode_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nestcode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version() -> None:
    run = nestcode_command("--version")
    assert (run.returncode, run.stdout) == (0, f"nestcode {nestcode.__version__}\n")


def test_info_for_people_and_for_scripts() -> None:
    facts = json.loads(nestcode_command("info", "--json").stdout)
    assert facts["nestcode"] == nestcode.__version__
    assert facts["simd"] == _core.simd_names()
    shown = nestcode_command("info").stdout
    assert f"{_core.simd_names()[-1]} (of" in shown


@pytest.mark.parametrize("command", [[], ["info"], ["demo"], ["data"]])
def test_help_has_an_example(command: list[str]) -> None:
    run = nestcode_command(*command, "--help")
    assert run.returncode == 0
    assert "Usage: " in run.stdout
    assert not command or f"Example: nestcode {command[0]}" in run.stdout


def test_mistakes_end_with_a_status_and_one_line(tmp_path: Path) -> None:
    assert nestcode_command("no-such-command").returncode == 2
    (tmp_path / "file").write_text("in the way")
    run = nestcode_command("demo", "--steps", "1", "--out", str(tmp_path / "file"))
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in run.stderr


def test_a_missing_extra_is_an_error_line() -> None:
    source = "import sys; sys.modules['matplotlib'] = None; sys.argv = ['nestcode', 'demo']\n"
    source += "from nestcode.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install 'nestcode[reproduce]'" in run.stderr
    assert "Traceback" not in run.stderr
