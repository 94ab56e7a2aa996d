"""Try everything that can go wrong, for some minutes, and print the table of what came of it.

python -m tests.torture --minutes 60 --page docs/reliability.md    which `make torture` runs
python -m tests.torture --minutes 1 --kind files --seed 7          one kind, from this seed on
python -m tests.torture --json FILE                                the counts too, and what failed

Each processor runs one kind at a time. A kind that has more than half of a processor's time is split: its parts start
from other seeds.
"""

import argparse
import json
import math
import os
import platform
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.torture.run import SEEDS, Tally, run

KINDS = {  # the share of the time, and the heading
    "system_calls": (0.18, "Writers killed, and disks that fail, at a random system call"),
    "power": (0.10, "Power loss"),
    "service": (0.04, "A service killed while clients write"),
    "chaos": (0.04, "Hostile clients beside an honest one"),
    "cluster": (0.04, "A cluster whose actors, nodes and files fail while clients search"),
    "files": (0.14, "Damaged files"),
    "forged": (0.10, "Forged files with valid checksums"),
    "arrays": (0.14, "Hostile arrays"),
    "commands": (0.04, "Commands with damaged inputs and hostile options"),
    "concurrency": (0.08, "Readers beside writers"),
    "determinism": (0.05, "Determinism"),
    "peers": (0.05, "The same damage to peers"),
}
COLUMNS = ("tried", "refused", "crashes", "hangs", "lost", "wrong")
MARKS = re.compile(r"(?<=<!-- torture -->\n).*(?=<!-- /torture -->)", re.DOTALL)


def main() -> None:
    """Run all kinds, print the table, and fail if a trial of ours ended as it should not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=[*KINDS], help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=Path, help="a page to write the table into, between its marks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts and the notes to this file")
    given = parser.parse_args()
    parts = split({kind: KINDS[kind][0] for kind in given.kind}, given.minutes, given.jobs)
    broken: list[str] = []

    def done(part: tuple[str, float, int]) -> tuple[str, dict[str, Tally]]:
        kind, seconds, seed = part
        try:
            return kind, run(kind, seconds, given.seed + seed)
        except RuntimeError as error:  # so that the others are not lost
            broken.append(f"{kind}: {error}")
            return kind, {}

    with ThreadPoolExecutor(given.jobs) as pool:
        tallies = merge(pool.map(done, parts))
    text = table(tallies, given.minutes, given.jobs)
    print(text)
    if given.json is not None:
        counts = {kind: {row: asdict(tally) for row, tally in rows.items()} for kind, rows in tallies.items()}
        given.json.write_text(json.dumps({"minutes": given.minutes, "jobs": given.jobs, "kinds": counts}, indent=1))
    if given.page is not None:
        given.page.write_text(MARKS.sub(lambda _: text, given.page.read_text()))
    failures = broken + [
        f"{kind}, {row}: {note} (seed {seed})"
        for kind, rows in tallies.items()
        for row, tally in rows.items()
        for note, seed in tally.notes.items()
        if kind != "peers" or row.startswith("Nestcode")
    ]
    print(*failures, sep="\n", file=sys.stderr)
    sys.exit(bool(failures))


def split(shares: dict[str, float], minutes: float, jobs: int) -> list[tuple[str, float, int]]:
    """Return parts of all kinds, the longest first: the kind, seconds, and what is added to the seed.

    >>> split({"files": 0.2, "power": 0.3}, minutes=1, jobs=1)
    [('files', 24.0, 0), ('power', 18.0, 0), ('power', 18.0, 1000)]

    """
    whole, parts = sum(shares.values()), []
    for kind, share in shares.items():
        seconds = 60 * minutes * jobs * share / whole
        count = math.ceil(seconds / (30 * minutes))
        parts += [(kind, seconds / count, SEEDS * part) for part in range(count)]
    return sorted(parts, key=lambda part: -part[1])


def merge(done: Iterable[tuple[str, dict[str, Tally]]]) -> dict[str, dict[str, Tally]]:
    """Add up the parts of each kind."""
    tallies: dict[str, dict[str, Tally]] = {}
    for kind, rows in done:
        for row, tally in rows.items():
            tallies.setdefault(kind, {}).setdefault(row, Tally()).add(tally)
    return {kind: tallies[kind] for kind in KINDS if kind in tallies}


def table(tallies: dict[str, dict[str, Tally]], minutes: float, jobs: int) -> str:
    """Return the tallies as tables of Markdown, one for each kind."""
    parts = []
    for kind, rows in tallies.items():
        parts += [f"\n### {KINDS[kind][1]}\n", f"| | {' | '.join(COLUMNS)} |", f"|---|{'--:|' * len(COLUMNS)}"]
        for row, tally in rows.items():
            parts.append(f"| {row} | {' | '.join(f'{getattr(tally, column):,}' for column in COLUMNS)} |")
    ours = [t for kind, rows in tallies.items() if kind != "peers" for t in rows.values()]
    parts.append(
        f"\n{sum(t.tried for t in ours):,} trials of Nestcode, {sum(t.failures for t in ours)} of which failed, in "
        f"{minutes:g} minutes of {jobs} processes on {platform.machine()} with {os.cpu_count()} cores, Python "
        f"{platform.python_version()} and NumPy {np.__version__}.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    main()
