"""Shared by all benchmarks: options, interleaved timing, one table, one JSON file."""

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from nestcode import data
from nestcode.storage import write_atomic


def arguments(description: str | None) -> argparse.Namespace:
    """Parse `--quick` (a smoke test), `--data DIR`, `--json FILE` and `--figure FILE`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10, if the benchmark uses images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the figure, if the benchmark has one")
    return parser.parse_args()


def images(options: argparse.Namespace) -> tuple[str, NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a name, training rows and test rows: CIFAR-10 with --data, else patches of the sample images."""
    if options.data is not None:
        cifar = data.cifar10(options.data)
        return "CIFAR-10", cifar.train, cifar.test
    cut = data.patches(list(data.sample_images().values()), size=16, n=12_000, rng=np.random.default_rng(0))
    rows = cut.transpose(0, 3, 1, 2).reshape(len(cut), -1)  # channels first, as in CIFAR-10
    if options.quick:
        rows = rows[:1200, ::8]
    return "image patches", rows[: -len(rows) // 6], rows[-len(rows) // 6 :]


def seconds_each(
    jobs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the best time of each job; rounds are interleaved, so that load of the machine affects all jobs alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds + 1):  # the first round warms up the caches
        for name, job in jobs.items():
            start = clock()
            job()
            best[name] = min(best[name], clock() - start)
    return best


def show(title: str, rows: Sequence[Mapping[str, Any]], note: str) -> None:
    """Print the rows as one table, or that there are none."""
    if not rows:
        print(f"{title}: nothing was measured")
        return
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    console = Console()
    console.width = max(console.width, 140)
    console.print(table)


def show_markdown(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as a table of Markdown, as a page takes it."""
    if not rows:
        print(f"{title}: nothing was measured")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[_cell(row.get(name, "")) for name in names] for row in rows]
    rule = ["---", *["---:"] * (len(names) - 1)]
    print(f"\n{title}\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in [names, rule, *lines]))


def _cell(value: Any) -> str:
    return (
        f"{value:,.0f}"
        if isinstance(value, float) and value >= 100
        else f"{value:.3g}"
        if isinstance(value, float)
        else str(value)
    )


def save(path: Path | None, rows: Sequence[Mapping[str, Any]], packages: Sequence[str]) -> None:
    """Write the rows with machine, versions, commit and whether the tree was clean."""
    if path is None:
        return
    commit = _git("rev-parse", "HEAD")
    facts = {
        "machine": f"{platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "versions": {package: found for package in packages if (found := _version(package))},
        "commit": commit or None,
        "clean": not _git("status", "--porcelain") if commit else None,  # no uncommitted changes
        "rows": list(rows),
    }
    write_atomic(path, json.dumps(facts, indent=2).encode())


def _version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    """Return the output of a git command in this repository, empty if there is none."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
