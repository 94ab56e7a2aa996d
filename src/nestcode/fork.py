"""Locks that a forked child finds free, and properties without any: threads that held one do not exist there."""

import os
import threading
from functools import cached_property  # noqa: TID251
from typing import Any, Self, TypeVar, overload
from weakref import WeakSet

Value = TypeVar("Value")


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


class lazy_property(cached_property[Value]):  # noqa: N801 (as the class that it is)
    """A cached property that takes no lock; that of Python 3.11 has one for all objects, which a fork does not release.

    Threads may compute the value twice; all get the same.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | Value:
        if instance is None:
            return self
        assert self.attrname is not None
        value: Value = vars(instance).setdefault(self.attrname, self.func(instance))
        return value


os.register_at_fork(after_in_child=_renew_all)
