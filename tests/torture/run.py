"""Run trials in worker processes, and count what came of them.

A worker runs the trials of one kind and reports each. One that dies has crashed, one that is silent for long hangs:
both are counted with what they were at, and a new worker goes on with the next seed. So no trial ends the run.

python -m tests.torture.run KIND SEED SECONDS TRIALS FOLDER    be such a worker
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal

ROOT = Path(__file__).parents[2]
HANG = 120.0  # seconds without an outcome or a sign of life
SEEDS = 1000  # of one run: a worker that dies is followed by one with the next seed
PRELOADED = ("system_calls", "careless")  # with faults.c

REPORT: list[int] = []  # of a worker: the descriptor of its reports

Outcome = Literal["intact", "refused", "crashes", "hangs", "lost", "wrong"]  # refused: by an error that says why
Trial = tuple[str, Callable[[], Outcome]]  # the row of the table that it counts for, and what runs it
Trials = Callable[[Random, Path], Iterator[Trial]]  # of one kind: any number of them


@dataclass
class Tally:
    """What came of the trials of one row."""

    tried: int = 0
    refused: int = 0
    crashes: int = 0
    hangs: int = 0
    lost: int = 0
    wrong: int = 0
    notes: dict[str, str] = field(default_factory=dict)  # what went wrong, and the first seed that shows it

    @property
    def failures(self) -> int:
        """Trials that should not have ended as they did."""
        return self.crashes + self.hangs + self.lost + self.wrong

    def count(self, outcome: str, note: str, seed: str) -> None:
        """Add one trial."""
        self.tried += 1
        if outcome != "intact":
            setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome not in ("intact", "refused"):
            self.notes.setdefault(f"{outcome}: {note}", seed)

    def add(self, other: "Tally") -> None:
        """Add the trials of another tally."""
        for name in ("tried", "refused", "crashes", "hangs", "lost", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes = other.notes | self.notes


def run(kind: str, seconds: float, seed: int = 0, most: int = sys.maxsize) -> dict[str, Tally]:
    """Run trials of a kind for some time, or at most so many, and return the tally of each row."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as tools, tempfile.TemporaryDirectory(prefix="torture-", dir=_memory()) as place:
        preload = {"LD_PRELOAD": str(_shim(Path(tools)))} if kind in PRELOADED else {}
        for number in range(seed, seed + SEEDS):
            left, more = end - time.monotonic(), most - sum(tally.tried for tally in tallies.values())
            if left <= 0 or more <= 0:
                break
            folder = Path(place) / str(number)
            folder.mkdir()
            arguments = [kind, str(number), str(left), str(more), str(folder)]
            _watch([sys.executable, "-m", "tests.torture.run", *arguments], preload, tallies)
            shutil.rmtree(folder, ignore_errors=True)
    return dict(tallies)


def _watch(command: list[str], preload: dict[str, str], tallies: dict[str, Tally]) -> None:
    """Run one worker to its end, and count its trials."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # workers fork
    seed = command[4]
    with (
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **threads, **preload},
            start_new_session=True,
        ) as worker,
        contextlib.ExitStack() as after,
    ):
        after.callback(_end, worker)
        assert worker.stdout is not None
        row, rest, silent = "start", b"", False
        output = select.poll()  # select.select takes no descriptor above 1,023
        output.register(worker.stdout, select.POLLIN)
        while True:
            if not output.poll(1000 * HANG):
                silent = True
                _end(worker)
                break
            data = worker.stdout.read(1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                what, _, note = line.decode().partition("\t")
                if what == "begin":
                    row = note
                elif what != "alive":
                    tallies[row].count(what, note, seed)
        code = worker.wait()
        if code > 0:
            raise RuntimeError(f"{' '.join(command)} ended with {code}: mend the trials")
        if code < 0:
            tallies[row].count("hangs" if silent else "crashes", f"worker ended with {code}", seed)


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker and the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)


def _memory() -> Path | None:
    """Return a folder of files in memory, where trials take a fraction of the time, if there is one with room."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 1 << 30 else None


def _shim(folder: Path) -> Path:
    """Compile what meets system calls with faults."""
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def report_alive() -> None:
    """Tell the process that watches this worker that its trial goes on."""
    for report in REPORT:
        os.write(report, b"alive\t\n")


def work(kind: str, seed: int, seconds: float, most: int, folder: Path) -> None:
    """Run trials and report each: first its row, then its outcome."""
    report = os.dup(1)
    REPORT[:] = [report]
    os.dup2(2, 1)  # what a library prints is no report
    if kind not in PRELOADED:  # where the library of faults takes syncs; power.py simulates the disk
        os.fsync = lambda fd: None  # noqa: ARG005
    trials: Trials = import_module(f"tests.torture.{kind}").trials
    end = time.monotonic() + seconds
    for row, trial in islice(trials(Random(seed), folder), most):
        if time.monotonic() > end:
            return
        os.write(report, f"begin\t{row}\n".encode())
        note = ""
        try:
            outcome = trial()
        except BaseException as error:
            outcome, note = "wrong", traceback.format_exception_only(error)[-1].replace("\n", " ").replace("\t", " ")
            place = traceback.extract_tb(error.__traceback__)[-1]
            note += f" at {place.filename}:{place.lineno}"
        os.write(report, f"{outcome}\t{note[:500]}\n".encode())


if __name__ == "__main__":
    from tests.torture.run import work  # the module that trials import, not this one by another name

    work(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
