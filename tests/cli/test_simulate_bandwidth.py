"""`nestcode simulate-bandwidth`: tables, JSON, plots, and one line for each mistake."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode.coders import LinearCoder
from nestcode.data import digits
from nestcode.simulate import bitrate_ladder, bits_per_item, evaluate, play_ladder, play_truncated, read_trace
from tests.cli.running import nestcode_command
from tests.cli.test_streams import misused


def simulate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return nestcode_command("simulate-bandwidth", *arguments)


def found(*arguments: str | Path) -> dict[str, Any]:
    run = simulate(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    facts: dict[str, Any] = json.loads(run.stdout)
    return facts


@pytest.fixture(scope="module")
def coders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Coders of two widths."""
    folder, X = tmp_path_factory.mktemp("coders"), digits()[0]
    paths = {width: folder / f"{width}.coder" for width in (24, 40)}
    for width, path in paths.items():
        LinearCoder(width).fit(X).save(path)
    return paths


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "link.csv"
    path.write_text("kbit\n" + "40\n" * 20 + "3\n" * 20 + "30\n" * 20)
    return path


def test_a_trace_gives_the_results_of_the_functions(log: Path, coders: dict[int, Path]) -> None:
    facts = found(log, "--unit", "kbit", "--items", "1000", "--coder", coders[40], "--buffer", "3", "--rungs", "5")
    bits = bits_per_item(read_trace(log) * 1000, 1000)
    coder = LinearCoder(40).fit(digits()[0])
    errors = [coder.expected_error(length) for length in range(41)]
    rungs = bitrate_ladder(40, 5)
    assert (facts["periods"], facts["width"], facts["rungs"]) == (60, 40, rungs)
    assert facts["mean_bits"] == pytest.approx(bits.mean())
    expected = {
        "truncated stream": evaluate(play_truncated(bits, 40, 3), errors),
        "bitrate ladder": evaluate(play_ladder(bits, rungs, 3), errors),
    }
    assert facts["strategies"].keys() == expected.keys()
    for name, outcome in expected.items():
        assert facts["strategies"][name] == pytest.approx(outcome.as_dict())
    assert facts["strategies"]["bitrate ladder"]["stalls"] > 0


def test_another_coder_is_cut_to_the_same_lengths(log: Path, coders: dict[int, Path]) -> None:
    facts = found(log, "--coder", coders[24], "--other", coders[40], "--period", "0.5")
    cut, other = (facts["strategies"][name] for name in ("truncated stream", "truncated, other lengths"))
    assert cut["length"] == other["length"]
    run = simulate(log, "--coder", coders[40], "--other", coders[24])
    assert run.returncode == 1
    assert "at least the width 40, got 24" in run.stderr


def test_coders_are_trained_by_default(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    facts = found("--width", "16", "--steps", "5", "--periods", "200", "--generate", "uniform", "--plot", plot)
    assert list(facts["strategies"]) == ["truncated stream", "bitrate ladder", "truncated, other lengths"]
    assert facts["mean_bits"] == pytest.approx(8, rel=0.2)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_results(coders: dict[int, Path]) -> None:
    made = [found("--coder", coders[24], "--periods", "300", "--seed", seed) for seed in ("1", "1", "2")]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_a_table_and_a_figure(log: Path, coders: dict[int, Path], tmp_path: Path) -> None:
    plot = tmp_path / "new" / "plot.svg"
    run = simulate(log, "--coder", coders[40], "--plot", plot)
    assert run.returncode == 0, run.stderr
    for word in ("distortion", "time stalled", "bits unused", "truncated stream", "bitrate ladder"):
        assert word in run.stdout
    assert "<svg" in plot.read_text()


def test_help_has_an_example() -> None:
    run = simulate("--help")
    assert run.returncode == 0
    assert "Example: nestcode simulate-bandwidth" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such.csv"], "there is no file no-such.csv: give a trace"),
        (["/"], "the trace must be a file, got /, which is a folder"),
        (["--coder", "no-such.coder"], "no-such.coder"),
        (["--mean", "0.01"], "carry bits"),
    ],
)
def test_errors_are_one_line(arguments: list[str], said: str) -> None:
    run = simulate(*arguments)
    assert run.returncode == 1
    assert said in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["link.csv", "--mean", "3"], "--mean is for synthetic traces, got link.csv too"),
        (["link.csv", "--generate", "markov"], "--generate is for synthetic traces"),
        (["--plot", "figure.gif"], ".png, .svg or .pdf"),
        (["--safety", "2"], "'--safety'"),
        (["--safety", "0"], "'--safety': it must be a positive number"),
        (["--period", "0"], "'--period': it must be a positive number"),
        (["--mean", "nan"], "'--mean': it must be a positive number"),
    ],
)
def test_invalid_options_are_named(arguments: list[str], said: str) -> None:
    assert said in misused("simulate-bandwidth", *arguments)


def test_an_invalid_line_of_a_trace_is_named(log: Path) -> None:
    log.write_text(log.read_text() + "oops\n")
    run = simulate(log)
    assert run.returncode == 1
    assert "line 62 of" in run.stderr
    assert "'oops'" in run.stderr


def without_torch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import PyTorch."""
    source = "import sys; sys.modules['torch'] = None; from nestcode.cli import main; main()"
    command = [sys.executable, "-c", source, "simulate-bandwidth", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_torch_the_error_names_the_extra_and_the_option() -> None:
    run = without_torch()
    assert run.returncode == 1
    assert "pip install 'nestcode[reproduce]'" in run.stderr
    assert "--coder" in run.stderr


def test_a_given_coder_needs_no_torch(coders: dict[int, Path]) -> None:
    run = without_torch("--coder", coders[24], "--json")
    assert run.returncode == 0, run.stderr
    assert np.isfinite(json.loads(run.stdout)["strategies"]["bitrate ladder"]["error"])
