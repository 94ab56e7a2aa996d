"""Every number that a command takes: an answer, or an error of one line; never a traceback, whatever the number is."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import nestcode as nc
from nestcode.cli.app import app
from nestcode.data.png import png_bytes
from nestcode.serve import server
from tests.cli.running import nestcode_command

INVALID = ["9" * 5000, "nan", "x"]
VALID = ["9" * 400, str(2**63), "-1", "0", "1e300", "inf"]
LONG = ("--steps", "--seeds", "--deadline", "--seconds", "--period", "--threads")  # what may take as long as it says
X = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
COMMANDS = {
    "fit": "items.npy -o new.coder --width 8",
    "encode": "items.npy -c a.coder -o new.npy",
    "decode": "codes.npy -c a.coder -o new.npy",
    "search": "an.index items.npy",
    "tune": "an.index items.npy",
    "evaluate": "an.index items.npy",
    "serve": "an.index",
    "compress": "items.npy -o new.nest -c a.coder",
    "decompress": "items.nest -o new.npy -c a.coder",
    "images compress": "images -o new.nest",
    "images decompress": "images.nest -o out",
    "images view": "images.nest -o new.png",
    "simulate-bandwidth": "--mean 50 --periods 20 --items 1 --width 8 --steps 1",
    "demo": "",
    "bench": "items.npy --width 8",
    "reproduce": "",
    "index build": "items.npy -o new.index -c a.coder",
    "index add": "an.index items.npy",
    "index remove": "an.index",
    "index truncate": "an.index",
    "index health": "an.index",
}
UNTRIED = ("demo", "reproduce", "bench", "simulate-bandwidth")  # which train for long: only what is invalid


@cache
def numbers() -> dict[str, list[str]]:
    """Return the options of each command that are numbers, arguments as an empty name."""
    found: dict[str, list[str]] = {}

    def walk(command: Any, name: str) -> None:
        for part, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {part}".strip())
        for one in command.params:
            kind = one.type_descriptor.annotation
            if kind in (int, float, list[int]):
                found.setdefault(name, []).append(next((word for word in one.opts if word.startswith("--")), ""))

    walk(typer.main.get_command(app), "")
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "run", lambda *_: None)
    coder = nc.LinearCoder(8).fit(X)
    coder.save("a.coder")
    np.save("items.npy", X)
    np.save("codes.npy", coder.encode(X).packed)
    Path("images").mkdir()
    images = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    for name, image in enumerate(images):
        Path(f"images/{name}.png").write_bytes(png_bytes(image))
    Path("images.nest").write_bytes(nc.compress_images(list(images)))
    Path("items.nest").write_bytes(nc.compress(X, coder))
    index = nc.Index(coder, vectors="float32")
    index.add(X)
    index.save("an.index")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", numbers())
def test_numbers_of_commands_are_answered_or_refused(command: str) -> None:
    assert command in COMMANDS, "say what else it needs"
    for option in numbers()[command]:
        for value in INVALID if command in UNTRIED or option in LONG else INVALID + VALID:
            words = [*command.split(), *COMMANDS[command].split()]
            if option:
                words.append(f"{option}={value}")
            else:
                words += ["--", value]
            if any(word.startswith("-o") for word in words):
                words[len(command.split()) : len(command.split())] = ["-f"]
            run = nestcode_command(*words)
            shown = f"{' '.join(words)[:80]} printed {run.stderr[-300:]}"
            assert run.returncode in (0, 1, 2), shown
            assert "is a bug" not in run.stderr, shown
            assert "Traceback" not in run.stderr, shown
            assert len(run.stderr) < 2000, shown
            assert run.returncode == 0 or value not in INVALID or run.stderr, shown
