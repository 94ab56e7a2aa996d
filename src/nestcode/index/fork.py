"""Locks that a forked child finds free: the threads that held them at the fork do not exist there."""

import os
import threading
from weakref import WeakSet


class ForkSafeLock:
    """A reentrant lock that a fork releases in the child.

    It may guard only what is consistent at every moment, as a reference to an immutable snapshot is.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = threading.RLock()


_locks: WeakSet[ForkSafeLock] = WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
