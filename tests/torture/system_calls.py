"""Writers that meet a fault at a random system call: they are killed there, or the disk fails.

Afterwards the folder holds the last complete commit or the one that was under way, and writing goes on.
"""

import ctypes
import errno
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.torture.run import Outcome, Trial
from tests.torture.writers import REFUSED, STATES, WRITERS, Files, Writer

READS = (4, 30)  # system calls, about, that read a database and an index
KILL, SHORT, FULL = -1, -2, -3  # as in faults.c
DISK_FAULTS = (SHORT, FULL, errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


def trials(random: Random, folder: Path, writers: Sequence[Writer] = WRITERS) -> Iterator[Trial]:
    """Every writer with a kill, with one of the other faults, and with one in reading, again and again."""
    faults = ctypes.CDLL(None)
    counts: dict[Writer, int] = {}
    while True:
        for writer in writers:
            if writer not in counts:
                counts[writer] = begin(faults, writer, folder / writer.name, folder / "work")
            for what, fault in (("killed", KILL), ("disk fails", random.choice(DISK_FAULTS))):
                at = random.randrange(counts[writer])
                yield (
                    f"{writer.name}: {what}",
                    partial(meet, faults, writer, fault, at, folder / writer.name, folder / "work"),
                )
            if not isinstance(writer, Files):  # whose bytes are compared, and read by no reader of ours
                fault, at = random.choice([SHORT, errno.EIO]), random.randrange(random.choice(READS))
                yield f"{writer.name}: reading fails", partial(read, faults, writer, fault, at, folder / writer.name)


def begin(faults: ctypes.CDLL, writer: Writer, begun: Path, work: Path) -> int:
    """Make the first state, and return how many system calls the others take."""
    begun.mkdir()
    writer.commit(begun, 0)
    copy(begun, work)
    faults.fault_arm(str(work).encode(), ctypes.c_long(-1), 0, 0)
    for number in range(1, STATES):
        writer.commit(work, number)
    faults.fault_disarm()
    return int(faults.fault_count())


def meet(faults: ctypes.CDLL, writer: Writer, fault: int, at: int, begun: Path, work: Path) -> Outcome:
    """Let a forked writer meet a fault at its system call number `at`, and judge what it leaves."""
    copy(begun, work)
    listen, report = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            faults.fault_arm(str(work).encode(), ctypes.c_long(at), fault, 0)
            for number in range(1, STATES):
                writer.commit(work, number)
                os.write(report, bytes([number]))
            code = 0
        except REFUSED:
            code = 2
        finally:
            os._exit(code)
    os.close(report)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    complete = max(os.read(listen, STATES), default=0)
    os.close(listen)
    if ended == 1 or (ended < 0 and ended != -signal.SIGKILL):
        raise AssertionError(f"fault {fault} at call {at}: the writer ended with {ended}")
    try:
        found = writer.found(work)
    except Exception as error:
        raise AssertionError(f"fault {fault} at call {at}: {error!r}") from error
    if found not in (complete, complete + 1):
        return "lost"
    for number in range(found + 1, STATES):  # writing goes on
        writer.commit(work, number)
    assert writer.found(work) == STATES - 1
    return "intact" if ended == 0 else "refused"


def read(faults: ctypes.CDLL, writer: Writer, fault: int, at: int, begun: Path) -> Outcome:
    """Read what was written while a system call fails, or returns less than it could."""
    faults.fault_arm(str(begun).encode(), ctypes.c_long(at), fault, 1)
    try:
        found = writer.found(begun)
    except REFUSED:
        return "refused"
    finally:
        faults.fault_disarm()
    return "intact" if found == 0 else "wrong"


def copy(begun: Path, work: Path) -> None:
    """Put a copy of the first state in the place of what an earlier trial left."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(begun, work)
