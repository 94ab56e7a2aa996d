"""Commands with damaged inputs and hostile options: they end with an error of one line, and change no input."""

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from typer.testing import CliRunner

import nestcode as nc
from nestcode.cli.app import app
from nestcode.errors import NestcodeError
from tests.damage import Files, flipped, foreign, overwritten, resized
from tests.torture.files import CODER, ITEMS, make_index, put
from tests.torture.run import Outcome, Trial

COMMANDS = [
    "info a.coder",
    "info items.nest --json",
    "info items.npy",
    "info an.index",
    "encode items.npy -c a.coder -o out.npy -f",
    "decode codes.npy -c a.coder -o out.npy -f",
    "compress items.npy -c a.coder -o out.nest -f",
    "compress items.npy -c a.coder --entropy --embed -o out.nest -f",
    "decompress items.nest -c a.coder -o out.npy -f",
    "decompress items.nest -c a.coder -o out.npy -f --on-damage keep",
    "search an.index items.npy -k 3",
    "search an.index items.npy -o out.npz -f",
    "index verify an.index",
    "index add an.index items.npy",
    "index build items.npy -c a.coder -o out.index -f",
]
OPTIONS = ["--length", "--bpp", "--budget", "--max-error", "--limit", "-k", "--candidates", "--threads", "--size", "-o"]
VALUES = ["-1", "0", "1", "1e9", "nan", "inf", "9" * 400, "", "x", "../x", "a.coder", "items.npy", "an.index"]
VALUES += ["/dev/null", "\x1b[2J"]


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Each command with a damaged input, an option it may not know, or both."""
    warnings.simplefilter("ignore")
    os.chdir(folder)
    CODER.save("a.coder")
    Path("items.nest").write_bytes(nc.compress(ITEMS[:60], CODER))
    np.save("items.npy", ITEMS[:40])
    np.save("codes.npy", CODER.encode(ITEMS[:40]).packed)
    make_index(folder / "an.index", seed=0)
    files = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    while True:
        for command in COMMANDS:
            words = command.split()
            inputs = {name: data for name, data in files.items() if name.split("/")[0] in words}
            damage = random.choice([flipped, resized, overwritten, foreign])
            changed = damage(inputs, random) if random.random() < 0.7 else {}
            if random.random() < 0.4:
                words += [random.choice(OPTIONS), random.choice(VALUES)]
            yield (
                " ".join(command.split()[: 2 if command.startswith("index") else 1]),
                partial(invoke, words, set(command.split()), files, changed, folder),
            )


def invoke(words: list[str], inputs: set[str], files: Files, changed: Files, folder: Path) -> Outcome:
    """Run a command in this process, and put back what it had to read."""
    put(changed, folder)
    try:
        result = CliRunner().invoke(app, words)
        error = result.exception
        if error is not None and not isinstance(error, NestcodeError | OSError | SystemExit | MemoryError):
            raise error
        replaced = {"an.index"} if "add" in words else {words[-1]} - inputs if words[-2] == "-o" else set()
        expected = {name: data for name, data in (files | changed).items() if name.split("/")[0] not in replaced}
        lost = [name for name, data in expected.items() if Path(name).read_bytes() != data]
        assert not lost, f"{' '.join(words)} changed {lost}"
        assert not list(Path().glob(".*")), "a draft is left"
        return "intact" if result.exit_code == 0 else "refused"
    finally:
        for name in [str(path) for path in Path("an.index").iterdir() if str(path) not in files]:
            Path(name).unlink()
        put(
            {name: data for name, data in files.items() if not Path(name).exists() or Path(name).read_bytes() != data},
            folder,
        )
