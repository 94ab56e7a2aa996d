"""Reading ahead: rows that stay in files are requested in one batch, while reads come from disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nestcode.storage import page_faults


class ReadAhead:
    """Requests rows before they are read, until all of them are in memory, and again after a page fault on disk.

    So searches that find everything in memory do not pay for requests.
    """

    def __init__(self) -> None:
        self._cold = True

    @contextmanager
    def reading(self, request: Callable[[], bool]) -> Iterator[None]:
        """Call `request`, which returns whether something was not in memory, before the reads of a `with` block."""
        faults = page_faults()
        missing = self._cold and request()
        yield
        self._cold = missing or page_faults() > faults
