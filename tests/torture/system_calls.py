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

KILL, SHORT, FULL = -1, -2, -3  # as in faults.c
CHANGES, READS, ALL = 1, 2, 3  # the calls that a fault is for
DISK_FAULTS = (SHORT, FULL, errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EINTR)
READ_FAULTS = (SHORT, errno.EIO, errno.EINTR, errno.ENOMEM, errno.EMFILE)


def trials(random: Random, folder: Path, writers: Sequence[Writer] = WRITERS) -> Iterator[Trial]:
    """Every writer with a kill, with a disk that fails, also in what the writer reads, and every reader with that."""
    faults = ctypes.CDLL(None)
    counts: dict[tuple[Writer, int], int] = {}
    while True:
        for writer in writers:
            begun, work = folder / writer.name, folder / "work"
            if (writer, ALL) not in counts:
                begun.mkdir()
                writer.commit(begun, 0)
                for which in (CHANGES, READS, ALL):
                    counts[writer, which] = count(faults, writer, which, begun, work)
            for what, fault, which in (
                ("killed", KILL, CHANGES),
                ("disk fails", random.choice(DISK_FAULTS), CHANGES),
                ("a call fails", random.choice(READ_FAULTS), ALL),
            ):
                at = random.randrange(counts[writer, which])
                yield f"{writer.name}: {what}", partial(meet, faults, writer, fault, which, at, begun, work)
            if not isinstance(writer, Files):  # whose bytes are compared, and read by no reader of ours
                fault, at = random.choice(READ_FAULTS), random.randrange(counts[writer, READS])
                yield f"{writer.name}: reading fails", partial(read, faults, writer, fault, at, begun)


def count(faults: ctypes.CDLL, writer: Writer, which: int, begun: Path, work: Path) -> int:
    """Return how many system calls the states after the first one take, or how many one reader makes."""
    copy(begun, work)
    faults.fault_arm(str(work).encode(), ctypes.c_long(-1), 0, which)
    if which == READS:
        writer.found(work)
    else:
        for number in range(1, STATES):
            writer.commit(work, number)
    faults.fault_disarm()
    return max(1, int(faults.fault_count()))


def meet(faults: ctypes.CDLL, writer: Writer, fault: int, which: int, at: int, begun: Path, work: Path) -> Outcome:
    """Let a forked writer meet a fault at its system call number `at`, and judge what it leaves."""
    copy(begun, work)
    listen, report = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            faults.fault_arm(str(work).encode(), ctypes.c_long(at), fault, which)
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
    faults.fault_arm(str(begun).encode(), ctypes.c_long(at), fault, READS)
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
