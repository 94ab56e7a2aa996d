"""The command line as a whole: version, help, global options, errors."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import nestcode
from nestcode import _core
from nestcode.cli import app as commands
from nestcode.cli.app import app
from tests.cli.running import nestcode_command


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nestcode", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version() -> None:
    run = process("--version")
    assert (run.returncode, run.stdout) == (0, f"nestcode {nestcode.__version__}\n")


def test_info_of_the_installation() -> None:
    facts = json.loads(nestcode_command("info", "--json").stdout)
    assert facts["nestcode"] == nestcode.__version__
    assert facts["simd"] == _core.simd_names()
    shown = nestcode_command("info").stdout
    assert f"{_core.simd_names()[-1]} (of" in shown


HEAVY = {"PIL", "matplotlib", "nestcode.codes", "numpy", "pyarrow", "sklearn", "torch"}
HELP = f"""
import sys
from nestcode.cli import main
sys.argv = ["nestcode", "--help"]
try:
    main()
finally:
    print("heavy:", *{HEAVY} & set(sys.modules))
"""


def test_help_loads_nothing_heavy() -> None:
    run = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1] == "heavy:"
    for said in ("Usage: ", "--install-completion", "130 when interrupted"):
        assert said in run.stdout


INDEX = ("add", "build", "compact", "health", "remove", "truncate", "verify")
IMAGES = ("compress", "decompress", "view")
COMMANDS = (
    "bench", "compress", "data", "decode", "decompress", "demo", "encode", "evaluate", "fit", "info", "reproduce",
    "search", "serve", "simulate-bandwidth", "tune", *(f"index {name}" for name in INDEX),
    *(f"images {name}" for name in IMAGES),
)  # fmt: skip


def test_the_list_of_commands_is_complete() -> None:
    groups = get_command(app).commands  # type: ignore[attr-defined]
    assert {*groups} == {"index", "images", *(name for name in COMMANDS if " " not in name)}
    assert {*groups["index"].commands} == {*INDEX}
    assert {*groups["images"].commands} == {*IMAGES}


@pytest.mark.parametrize("command", [*COMMANDS, "index", "images"])
def test_help_has_an_example(command: str) -> None:
    run = CliRunner().invoke(app, [*command.split(), "--help"])
    assert run.exit_code == 0
    assert "Usage: " in run.stdout
    assert f"Example: nestcode {command}" in run.stdout


def test_global_options_may_stand_anywhere(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((50, 2))
    np.save(tmp_path / "x.npy", X)
    fit = ["fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "x.coder"), "--kind", "linear", "--width", "4", "-f"]
    loud = CliRunner().invoke(app, fit)
    assert "LinearCoder of 4 bits" in loud.stderr
    for quiet in (["--quiet", *fit], [*fit, "--quiet"], [*fit[:2], "--quiet", *fit[2:]]):
        run = CliRunner().invoke(app, quiet)
        assert (run.exit_code, run.stdout, run.stderr) == (0, loud.stdout, "")
    assert CliRunner().invoke(app, fit).stderr == loud.stderr  # --quiet does not outlast its command
    run = CliRunner().invoke(app, ["info", "--", "--quiet"])
    assert "there is no file --quiet" in str(run.exception)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    short, inner = process("info", tmp_path / "none"), nestcode_command("info", tmp_path / "none")
    assert (short.returncode, len(short.stderr.splitlines())) == (1, 1)
    assert (inner.returncode, inner.stdout, inner.stderr) == (1, short.stdout, short.stderr)
    run = process("info", tmp_path / "none", "--debug")
    assert run.returncode == 1
    assert "Traceback" in run.stderr


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(commands, "app", broken)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() changes it
    with pytest.raises(SystemExit, match="1"):
        commands.main()
    line = "error: KeyError ('lost') is a bug in nestcode: please report the output of --debug\n"
    assert capsys.readouterr().err == line
    monkeypatch.setattr(sys, "argv", ["nestcode", "--debug"])
    with pytest.raises(KeyError):
        commands.main()


def test_errors_are_one_line_and_a_status(tmp_path: Path) -> None:
    assert nestcode_command("no-such-command").returncode == 2
    (tmp_path / "file").write_text("in the way")
    run = nestcode_command("demo", "--steps", "1", "--out", tmp_path / "file")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in run.stderr


def test_a_missing_extra_is_one_line() -> None:
    source = "import sys; sys.modules['matplotlib'] = None; sys.argv = ['nestcode', 'demo']\n"
    source += "from nestcode.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install 'nestcode[demo]'" in run.stderr
    assert "Traceback" not in run.stderr
