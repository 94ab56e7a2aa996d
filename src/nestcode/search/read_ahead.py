"""Reading ahead: rows that stay in files are requested in one batch, if the last ones had to come from disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from resource import RUSAGE_SELF, getrusage


class DiskReads:
    """Watches whether reads came from disk. Requests take longer than reading what the system has in memory."""

    def __init__(self) -> None:
        self._cold = True

    @contextmanager
    def watch(self) -> Iterator[bool]:
        """Watch the reads of a `with` block, whose value is whether to request them."""
        before = getrusage(RUSAGE_SELF).ru_inblock
        yield self._cold
        self._cold = getrusage(RUSAGE_SELF).ru_inblock > before
