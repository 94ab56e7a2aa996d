"""Group commit: writes that arrive while one is being committed are committed together."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from nestcode.index import Index

Write = tuple[Callable[[Index], None], Future[None]]


class Writer:
    """Applies writes to an index in one thread; a write has returned when it is durable.

    Args:
        index: opened to be changed.

    """

    def __init__(self, index: Index) -> None:
        self._index, self._committing = index, threading.Lock()
        self._queue: SimpleQueue[Write | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nestcode-writer")
        self._thread.start()

    async def write(self, edit: Callable[[Index], None]) -> None:
        """Apply a write, and return when a commit has made it durable; raise if it was not applied or not committed."""
        done: Future[None] = Future()
        self._queue.put((edit, done))
        await asyncio.wrap_future(done)

    def refresh(self) -> bool:
        """Take up a copy that was restored to the folder, and return whether there was one, between two commits."""
        with self._committing:
            return self._index.refresh()

    def replace(self, other: Callable[[Index], Index]) -> Index:
        """Write to what `other` makes of the index from now on, and return it; no commit runs meanwhile."""
        with self._committing:
            self._index = other(self._index)
            return self._index

    def close(self) -> None:
        """Finish what was begun."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty():
                one = self._queue.get()
                if one is None:
                    self._queue.put(None)
                    break
                group.append(one)
            with self._committing:
                self._commit(group)

    def _commit(self, group: list[Write]) -> None:
        applied = []
        for edit, done in group:
            if not done.set_running_or_notify_cancel():  # nobody waits for it any longer
                continue
            try:
                edit(self._index)
            except Exception as error:
                done.set_exception(error)
            else:
                applied.append(done)
        try:
            if applied:
                self._index.commit()
        except Exception as error:
            try:
                self._index.rollback()  # what is refused is neither found nor committed with a later write
            finally:
                for done in applied:  # whatever it is, no request is at fault
                    done.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
        else:
            for done in applied:
                done.set_result(None)
