"""A little of every kind of `make torture`, and that its harness catches what it should."""

import os
import subprocess
import sys
import time

import pytest

from tests.torture import __main__ as torture
from tests.torture.chaos import Stopwatch
from tests.torture.run import Tally, run

SOME = {
    "system_calls": 15, "power": 40, "service": 3, "files": 340, "forged": 170, "arrays": 130, "commands": 32,
    "concurrency": 12, "chaos": 7,
}  # fmt: skip


@pytest.mark.parametrize("kind", SOME)
def test_nothing_is_lost_wrong_or_ended(kind: str) -> None:
    tallies = run(kind, 600, most=SOME[kind])
    assert {row: tally.notes for row, tally in tallies.items() if tally.failures} == {}
    assert sum(tally.tried for tally in tallies.values()) == SOME[kind]
    assert (
        kind in ("power", "concurrency", "chaos") or sum(tally.refused for tally in tallies.values()) > SOME[kind] // 4
    )


def test_a_writer_in_place_and_a_crash_are_caught() -> None:
    tallies = run("careless", 600, most=22)
    assert tallies["in place: killed"].wrong > 0
    assert tallies["in place: disk fails"].wrong > 0
    assert (tallies["crash"].tried, tallies["crash"].crashes) == (1, 1)
    assert sum(tally.tried for tally in tallies.values()) == 22  # another worker went on


@pytest.mark.parametrize("sleeps", [False, True])
def test_only_a_service_that_waits_for_a_processor_is_waited_for(sleeps: bool) -> None:
    """Four processes and one share a processor: it runs in about a fifth of the time."""
    source = "import time\nprint(flush=True)\n" + ("time.sleep(60)" if sleeps else "while True: pass")
    one = {min(os.sched_getaffinity(0))}
    children = [subprocess.Popen([sys.executable, "-S", "-c", source], stdout=subprocess.PIPE) for _ in range(5)]
    try:
        for child in children:
            os.sched_setaffinity(child.pid, one)
            assert child.stdout is not None
            child.stdout.read(1)
        watch, start = Stopwatch(children[0].pid), time.perf_counter()
        time.sleep(0.5)
        share = watch.seconds() / (time.perf_counter() - start)
    finally:
        for child in children:
            child.kill()
            child.communicate()
    assert share > 0.9 if sleeps else share < 0.6


def test_the_table_goes_between_the_marks_of_the_page() -> None:
    text = torture.table({"files": {"coder": Tally(tried=1200, refused=1199)}}, minutes=2, jobs=1)
    page = torture.MARKS.sub(lambda _: text, "a\n<!-- torture -->\nold\n<!-- /torture -->\nb\n")
    assert "| coder | 1,200 | 1,199 | 0 | 0 | 0 | 0 |" in page
    assert "old" not in page
    assert page.endswith("<!-- /torture -->\nb\n")
    assert sum(share for share, _ in torture.KINDS.values()) == pytest.approx(1)
