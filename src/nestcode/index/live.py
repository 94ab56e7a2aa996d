"""A state that changes while others read it, and is kept tidy in the background."""

import contextlib
import threading
from collections.abc import Callable

from nestcode.index.segment import Part, Segment
from nestcode.index.state import State, crowded

BACKLOG = 24  # parts; changes wait for merging when there are more


class Live:
    """The present state of an index. Readers take `state` once and keep it; changes wait for each other."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._changing = threading.RLock()  # while the state is replaced
        self._merging = threading.Lock()  # while segments are merged, which takes longer
        self._merger: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._resting = False  # after a failure the background waits for compact(): it would fail again

    def change(self, edit: Callable[[State], State]) -> None:
        """Replace the state by what `edit` makes of it; if that raises, nothing has changed."""
        self._replace(edit)
        if len(self.state.parts) > BACKLOG:
            self.wait()

    def compact(self) -> None:
        """Merge all parts into one, without what was removed."""
        with self._merging:
            self._resting = False
            self._replace(State.sealed)  # and no waiting: the background may be waiting for this to end
            parts = self.state.parts
            if len(parts) > 1 or any(len(part.dead) for part in parts):
                self._merge(parts)

    def wait(self) -> None:
        """Wait until the background has nothing left to merge."""
        merger = self._merger
        if merger is not None and merger is not threading.current_thread():
            merger.join()

    def _replace(self, edit: Callable[[State], State]) -> None:
        with self._changing:
            self._raise_failure()
            before, self.state = self.state, edit(self.state)
            if self.state.parts is not before.parts:
                self._tidy()

    def _tidy(self) -> None:
        """Have the background merge what is crowded."""
        if not self._resting and (self._merger is None or not self._merger.is_alive()) and crowded(self.state.parts):
            # Not a daemon: one that is stopped in the middle of the core would take the interpreter down with it.
            merger = threading.Thread(target=self._merge_crowded, name="nestcode-merge")
            with contextlib.suppress(RuntimeError):  # no thread to be had: a later change or compact() will merge
                merger.start()
                self._merger = merger  # once it runs, as others may wait for it at any moment

    def _merge_crowded(self) -> None:
        try:
            while True:
                with self._merging:
                    parts = crowded(self.state.parts)
                    if parts:
                        self._merge(parts)
                with self._changing:
                    if not crowded(self.state.parts):
                        self._merger = None  # said under the lock, so that a change that comes now starts another
                        return
        except BaseException as error:  # a full memory, a damaged file: whoever changes the index next is told
            with self._changing:
                self._failure, self._merger, self._resting = error, None, True

    def _merge(self, parts: tuple[Part, ...] | list[Part]) -> None:
        merged = Segment.merge(parts, self.state.width)
        with self._changing:
            self.state = self.state.swapped(parts, merged)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
