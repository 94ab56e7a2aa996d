"""The time of `import nestcode` and of the command line in a new process, against `import numpy` and no import."""

import subprocess
import sys
from functools import partial

from _report import arguments, save, seconds_each, show


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    best = seconds_each(
        {name: partial(run, source) for name, source in SOURCES.items()}, rounds=2 if options.quick else 15
    )
    rows = [{"process": name, "ms": 1e3 * seconds} for name, seconds in best.items()]
    rows.append({"process": "import nestcode alone", "ms": 1e3 * (best["import nestcode"] - best["nothing"])})
    show("New process: ms", rows, "Best of interleaved rounds.")
    save(options.json, rows, ["nestcode", "numpy"])


SOURCES = {
    "nothing": "pass",
    "import nestcode": "import nestcode",
    "import numpy": "import numpy",
    "nestcode --version": "import sys; sys.argv[1:] = ['--version']; from nestcode.cli import main; main()",
}


def run(source: str) -> None:
    """Run a process from start to exit."""
    subprocess.run([sys.executable, "-c", source], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
