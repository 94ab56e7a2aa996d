"""Fuzz every parser of the C++ core with libFuzzer, and print the table of what came of it.

    python tools/fuzz.py --minutes 10 --page docs/reliability.md    which `make fuzz` runs
    python tools/fuzz.py --jobs 15 --built                          on more cores, targets that were compiled elsewhere
    build/fuzz/image crash-…                                        what a crash that it printed was made by

The targets are in `cpp/fuzz`, one for each kind of bytes of a file that C++ reads; they run under AddressSanitizer and
UndefinedBehaviorSanitizer with `float-cast-overflow`. Inputs that reach new code are kept in `build/fuzz/corpus`.
Debian's clang 14 is enough: apt-get install clang.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "fuzz"
TARGETS = {
    "stream": "entropy-coded blocks of streams",
    "image": "bitstreams of images",
    "residual": "residuals of lossless images",
    "segment": "arrays of an index's segments",
    "graph": "graphs of an index",
}
SLOWEST = 10  # seconds that one input may take
MEMORY = 1024  # MiB
MARKS = re.compile(r"(?<=<!-- fuzz -->\n).*(?=<!-- /fuzz -->)", re.DOTALL)


def main() -> None:
    """Build and run the targets, and fail if an input ended one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at the same time")
    parser.add_argument("--built", action="store_true", help="run the targets in build/fuzz as they are")
    parser.add_argument("--page", type=Path, help="a page to write the table into, between its marks")
    given = parser.parse_args()
    if given.built:
        for name in TARGETS:
            (BUILD / name).chmod((BUILD / name).stat().st_mode | stat.S_IXUSR)
    else:
        build()
    each = max(given.jobs // len(TARGETS), 1)  # processes of a target, which share what they find
    seconds = 60 * given.minutes * given.jobs / (len(TARGETS) * each)
    names = [name for name in TARGETS for _ in range(each)]
    with ThreadPoolExecutor(given.jobs) as pool:
        logs = [*zip(names, pool.map(lambda name: fuzz(name, seconds), names), strict=True)]
    text = f"{table(logs)}\n{seconds * each / 60:.0f} minutes of each target.\n"
    print(text)
    if given.page is not None:
        given.page.write_text(MARKS.sub(lambda _: text, given.page.read_text()))
    failed = [log for _, log in logs if "SUMMARY" in log]
    print(*failed, sep="\n", file=sys.stderr)
    sys.exit(bool(failed))


def build() -> None:
    """Compile the targets."""
    tools = f"{ROOT}/.venv/bin"
    options = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools}/ninja", "-DCMAKE_CXX_COMPILER=clang++"]
    for command in (["-S", str(ROOT), "-B", str(BUILD), *options, "-DNESTCODE_FUZZ=ON"], ["--build", str(BUILD)]):
        subprocess.run([f"{tools}/cmake", *command], check=True, stdout=subprocess.DEVNULL)


def fuzz(name: str, seconds: float) -> str:
    """Run one target, and return what it printed."""
    corpus = BUILD / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds:.0f}", "-max_len=4096", f"-timeout={SLOWEST}", f"-rss_limit_mb={MEMORY}"]
    command = [f"{BUILD}/{name}", *options, "-print_final_stats=1", f"-artifact_prefix={BUILD}/", str(corpus)]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace").stderr


def table(logs: Sequence[tuple[str, str]]) -> str:
    """Return a table of Markdown of what processes of the targets printed."""
    lines = ["| | inputs | edges covered | crashes | hangs | memory beyond the limit |", "|---|--:|--:|--:|--:|--:|"]
    total = 0
    for target, title in TARGETS.items():
        own = [log for name, log in logs if name == target]
        inputs = sum(int(re.findall(r"number_of_executed_units: (\d+)", log)[-1]) for log in own)
        total += inputs
        covered = max(int(re.findall(r"cov: (\d+)", log)[-1]) for log in own)
        ended = [why for log in own for why in re.findall(r"SUMMARY: (.*)", log)]  # a process stops there
        hangs, memory = (sum(why in one for one in ended) for why in ("libFuzzer: timeout", "libFuzzer: out-of-memory"))
        crashes = len(ended) - hangs - memory
        lines.append(f"| {title} | {inputs:,} | {covered:,} | {crashes} | {hangs} | {memory} |")
    return "\n".join([*lines, f"\n{total:,} inputs."])


if __name__ == "__main__":
    main()
