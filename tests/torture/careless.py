"""The test of the tests: a writer that replaces its file in place, and a crash. Both are caught."""

import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from tests.torture import system_calls
from tests.torture.run import Outcome, Trial
from tests.torture.writers import Files


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Some faults of such a writer, then the end of the worker."""
    yield from islice(system_calls.trials(random, folder, [Files("in place", write_in_place)]), 20)
    yield "crash", crash


def write_in_place(path: Path, number: int) -> None:
    """Write a file over another."""
    path.write_bytes(bytes([number]) * 5000)


def crash() -> Outcome:
    """End the process."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return "intact"
