"""Print how long the set-up takes from nothing, as a Markdown table: a clean clone, its packages, the core, the demo.

    python tools/setup_times.py

CPU seconds are of all processes together. On a machine with other work, wall seconds are an upper bound.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = {  # targets of the Makefile, in order
    ".venv/demo": "install the packages of the demo",
    ".venv/core": "compile and install Nestcode",
    "demo": "run the demo",
}


def run(target: str, clone: Path) -> tuple[float, float]:
    """Make a target in the clone, without pip's cache, and return its wall and CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PIP_NO_CACHE_DIR": "1", "PYTHON": getattr(sys, "_base_executable", sys.executable)}
    subprocess.run(["make", target], cwd=clone, env=environment, check=True, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def megabytes(folder: Path) -> float:
    """Return what the files of a folder take, each counted once."""
    files = {(entry.stat().st_ino): entry.stat().st_size for entry in folder.rglob("*") if not entry.is_symlink()}
    return sum(files.values()) / 1e6


def main() -> None:
    """Time each step in a clean clone of the last commit."""
    commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    loads = [os.getloadavg()[0]]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "nestcode")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for target, step in STEPS.items():
            wall, cpu = run(target, clone)
            loads.append(os.getloadavg()[0])
            rows.append((step, wall, cpu, megabytes(clone / ".venv")))
    rows.append(("from nothing to the page", sum(row[1] for row in rows), sum(row[2] for row in rows), rows[-1][3]))
    print(
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, commit "
        f"{commit}; load average (1 minute) {min(loads):.1f} to {max(loads):.1f}.\n"
    )
    print("| step | wall s | CPU s | MB in `.venv` |\n|---|---:|---:|---:|")
    for step, wall, cpu, size in rows:
        print(f"| {step} | {wall:.0f} | {cpu:.0f} | {size:.0f} |")


if __name__ == "__main__":
    main()
