"""The live snapshot of an index: readers take it, writers replace it, and a background thread compacts it.

`compaction.py` says which segments the thread merges, and for which it builds graphs.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from nestcode.fork import ForkSafeLock
from nestcode.index import compaction
from nestcode.index.segment import LiveSegment, Segment, StoredGraph
from nestcode.index.snapshot import Snapshot

SIZES_EVERY = 0.005  # seconds between checks of the sizes of mapped files: a neighborhood takes less than a system call


class LiveSnapshot:
    """The current snapshot of an index. Readers take it once and keep it; writers wait for each other.

    Args:
        snapshot: what the index holds at first.
        build_graph: makes the graph of a segment; None where segments get none.

    """

    def __init__(self, snapshot: Snapshot, build_graph: Callable[[Segment], StoredGraph] | None = None) -> None:
        self.current = snapshot
        self.written = snapshot  # as the last writer left it: what came after is the background's work
        self._build_graph = build_graph
        self._writing = ForkSafeLock()  # while `current` is replaced
        self._compacting = ForkSafeLock()  # while segments are merged, which takes longer
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._paused = False  # by stop(), or after a failure, which would come again; until compact()
        self._sizes_checked = time.monotonic()

    def read(self) -> Snapshot:
        """Return the current snapshot; raise if a mapped file was truncated, since reading it would be a SIGBUS."""
        snapshot, now = self.current, time.monotonic()
        if now - self._sizes_checked > SIZES_EVERY:
            snapshot.check_sizes()
            self._sizes_checked = now
        return snapshot

    def write(self, edit: Callable[[Snapshot], Snapshot]) -> None:
        """Replace the snapshot by what `edit` makes of it; if that raises, nothing has changed."""
        self._replace(edit)
        if len(self.current.segments) > compaction.STALL:
            self.wait()

    def compact(self) -> None:
        """Merge everything into one segment without tombstones, and build its graph."""
        with self._compacting:
            self._paused = False
            self._replace(Snapshot.flush)  # and no waiting: the background may be waiting for this to end
            segments = self.current.segments
            if len(segments) > 1 or any(len(one.tombstones) for one in segments):
                self._merge(segments)
            while (one := self._lacking_graph()) is not None:
                self._add_graph(one)

    def truncate(self, width: int) -> None:
        """Keep the first `width` bits of each code; writers wait."""
        with self._compacting:
            self._replace(lambda snapshot: snapshot.truncate(width))

    def restore(self, read: Callable[[], Snapshot], *, compact: bool = True) -> None:
        """Take another commit's snapshot, once a merge that runs has ended: it would take later deletions along.

        Writers wait while `read` returns it and restores what belongs to it; if that raises, nothing has changed.
        """
        with self._compacting, self._writing:
            self.current = self.written = read()
            if compact:
                self._start_compaction()

    def start(self) -> None:
        """Let the background merge and build what is left, as after a crash, unless it does so already."""
        with self._writing:
            self._start_compaction()

    def wait(self) -> None:
        """Wait until the background has nothing left to merge or to build."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def stop(self) -> None:
        """Let the background end after the merge or the graph that it is at."""
        with self._writing:
            self._paused = True

    def _replace(self, edit: Callable[[Snapshot], Snapshot]) -> None:
        with self._writing:
            self._raise_failure()
            before, self.current = self.current, edit(self.read())
            self.written = self.current
            if self.current.segments is not before.segments:
                self._start_compaction()

    def _start_compaction(self) -> None:
        running = self._thread is not None and self._thread.is_alive()
        if self._paused or running or not self._pending():
            return
        # Not a daemon: one that is stopped in the middle of the core would take the interpreter down with it.
        thread = threading.Thread(target=self._compact_in_background, name="nestcode-compaction")
        with contextlib.suppress(RuntimeError):  # no thread to be had: a later write or compact() will merge
            thread.start()
            self._thread = thread  # once it runs, because other threads may wait for it at any moment

    def _compact_in_background(self) -> None:
        try:
            while True:
                with self._compacting:
                    segments = compaction.pick_segments(self.current.segments)
                    if segments:
                        self._merge(segments)
                    elif (one := self._lacking_graph()) is not None:  # once it will not be merged
                        self._add_graph(one)
                with self._writing:
                    if self._paused or not self._pending():
                        self._thread = None  # under the lock, so that a write that comes now starts another thread
                        return
        except BaseException as error:  # out of memory, a damaged file: the next writer gets it
            with self._writing:
                self._failure, self._thread, self._paused = error, None, True

    def _pending(self) -> bool:
        return bool(compaction.pick_segments(self.current.segments)) or self._lacking_graph() is not None

    def _lacking_graph(self) -> LiveSegment | None:
        return None if self._build_graph is None else compaction.pick_for_graph(self.current.segments)

    def _add_graph(self, one: LiveSegment) -> None:
        assert self._build_graph is not None
        graph = self._build_graph(one.segment)
        with self._writing:
            self.current = self.current.add_graph(one.segment, graph)

    def _merge(self, segments: Sequence[LiveSegment]) -> None:
        merged, graph = Segment.merge(segments, self.current.width, self.current.lay_out), None
        had_graphs = any(one.graph is not None for one in segments)  # which searches use until the new one is built
        if self._build_graph is not None and had_graphs and len(merged) >= compaction.MIN_GRAPH:
            graph = self._build_graph(merged)
        with self._writing:
            replaced = self.current.replace_merged(segments, merged)
            self.current = replaced if graph is None else replaced.add_graph(merged, graph)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
