"""What every benchmark shares: fair timing, one table, one JSON file."""

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from nestcode import data
from nestcode.storage import write_atomic


def arguments(description: str | None) -> argparse.Namespace:
    """Read `--quick` (a smoke test), `--data DIR`, `--json FILE` and `--figure FILE`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10, where a benchmark takes images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw the figure, where a benchmark has one")
    return parser.parse_args()


def images(options: argparse.Namespace) -> tuple[str, NDArray[np.uint8], NDArray[np.uint8]]:
    """A name, training rows and test rows: CIFAR-10 with --data, else patches of scikit-learn's photographs."""
    if options.data is not None:
        cifar = data.cifar10(options.data)
        return "CIFAR-10", cifar.train, cifar.test
    cut = data.patches(list(data.sample_images().values()), size=16, n=12_000, rng=np.random.default_rng(0))
    rows = cut.transpose(0, 3, 1, 2).reshape(len(cut), -1)  # planes of red, green and blue, as CIFAR-10 has them
    if options.quick:
        rows = rows[:1200, ::8]
    return "photograph patches", rows[: -len(rows) // 6], rows[-len(rows) // 6 :]


def seconds_each(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The best time of each job, taken in turns so that a busy moment hits all alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds + 1):  # the first round warms caches up: it can only be beaten
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def show(title: str, rows: Sequence[Mapping[str, Any]], note: str) -> None:
    """Print the rows as one table."""
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    console = Console()
    console.width = max(console.width, 140)
    console.print(table)


def save(path: Path | None, rows: Sequence[Mapping[str, Any]], packages: Sequence[str]) -> None:
    """Write the rows with the machine, versions and commit they belong to."""
    if path is None:
        return
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    facts = {
        "machine": f"{platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "commit": commit or None,
        "rows": list(rows),
    }
    write_atomic(path, json.dumps(facts, indent=2).encode())
