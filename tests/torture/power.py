"""Power loss: what a disk may hold after it, by the rules of POSIX, opens to the last commit or the one under way.

The writers run on a recorder of system calls; `tests.index.disk` replays their steps up to a random one, and loses,
keeps or reorders whatever no sync covers.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from nestcode.index import compaction
from tests.index.disk import Disk, Files, Recorder, lay_out, torn
from tests.torture.run import Outcome, Trial
from tests.torture.writers import STATES, WRITERS, Writer

EACH = 10  # crashes of one recorded run


def trials(random: Random, folder: Path) -> Iterator[Trial]:
    """Crashes of each writer of ours; databases promise the same by themselves."""
    compaction.pick_segments = lambda segments: []  # noqa: ARG005  (steps of the background would come at any time)
    while True:
        for writer in WRITERS:
            if "store" not in writer.name:
                crashes = [*crashes_of(writer, random, folder / "disk")]
                for complete, files in crashes:
                    yield writer.name, partial(recover, writer, complete, files, folder / "again")


def crashes_of(writer: Writer, random: Random, disk_folder: Path) -> Iterator[tuple[int, Files]]:
    """Record the states of a writer; yield some disks after a crash, with the last state that was complete."""
    shutil.rmtree(disk_folder, ignore_errors=True)
    disk_folder.mkdir()
    writer.commit(disk_folder, 0)
    disk, ends = Disk.of(disk_folder), [0]
    with Recorder(disk_folder) as recorder:
        for number in range(1, STATES):
            writer.commit(disk_folder, number)
            ends.append(len(list(torn(recorder.steps))))
    steps = list(torn(recorder.steps))
    stops = sorted(random.choices(range(len(steps) + 1), k=EACH // 5))
    for done in range(len(steps) + 1):
        if done:
            disk.make(steps[done - 1])
        if done in stops:
            complete = max(number for number, end in enumerate(ends) if end <= done)
            yield from ((complete, files) for _, files in disk.crashes(random))


def recover(writer: Writer, complete: int, files: Files, folder: Path) -> Outcome:
    """Open what a crash left, and go on writing."""
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(files, folder)
    found = writer.found(folder)
    if found not in (complete, complete + 1):
        return "lost"
    for number in range(found + 1, STATES):
        writer.commit(folder, number)
    assert writer.found(folder) == STATES - 1
    return "intact"
