"""Group commit: writes that arrive while one is being committed are committed together."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from nestcode.errors import DamagedFile
from nestcode.index import Index
from nestcode.serve.batching import Busy

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

    async def write(self, edit: Callable[[Index], None], seconds: float | None = None) -> None:
        """Apply a write, and return when a commit has made it durable; raise if it was not applied or not committed.

        A write that has not begun after some seconds is withdrawn. A write that has begun is awaited, so a refused
        client knows that the index did not change.
        """
        done: Future[None] = Future()
        self._queue.put((edit, done))
        answer = asyncio.wrap_future(done)
        _, waiting = await asyncio.wait([answer], timeout=seconds)
        if waiting and done.cancel():
            raise Busy(f"this write had to wait for others for {seconds} s, and was withdrawn: try again later")
        await answer

    def refresh(self) -> bool:
        """Load a copy that was restored to the folder between two commits, and return whether there was one."""
        with self._committing:
            return self._index.refresh()

    def replace(self, other: Callable[[Index], Index]) -> Index:
        """Replace the index by the result of `other`, and return it; no commit runs meanwhile."""
        with self._committing:
            self._index = other(self._index)
            return self._index

    def close(self) -> None:
        """Finish running writes."""
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
                    known = isinstance(error, (OSError, DamagedFile))  # after damage the index is opened again
                    done.set_exception(error if known else OSError(str(error)))
        else:
            for done in applied:
                done.set_result(None)
