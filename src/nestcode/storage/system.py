"""What depends on the operating system: locks of files, the memory of the machine, limits and page faults."""

import fcntl
import os
import resource
from typing import IO


def lock_file(file: IO[bytes], *, wait: bool = False) -> None:
    """Lock a file until it is unlocked or closed; wait, or raise OSError, where another holds the lock."""
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def share_file(file: IO[bytes]) -> None:
    """Lock a file against `lock_file` of other processes, until it is unlocked or closed; any number may share it."""
    fcntl.flock(file, fcntl.LOCK_SH)


def unlock_file(file: IO[bytes]) -> None:
    """Release the lock of a file."""
    fcntl.flock(file, fcntl.LOCK_UN)


def physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def allow_files(count: int) -> None:
    """Let this process open more files, connections among them, than the 1,024 of most systems."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def page_faults() -> int:
    """Return how often this process waited for a page of a mapped file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
