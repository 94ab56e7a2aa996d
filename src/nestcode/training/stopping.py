"""Ctrl-C and SIGTERM ask a run to stop after its step; what it has learnt is saved first."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Stopping:
    """Turns the first signal into a wish; a second one interrupts at once.

    >>> with Stopping() as stopping:
    ...     stopping.asked
    0
    """

    def __init__(self) -> None:
        self.asked = 0  # the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number

    def stop(self, checkpoint: str | os.PathLike[str] | None, step: int) -> None:
        """End the run as the signal would have."""
        if self.asked == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        where = "nothing was kept, as there is no checkpoint" if checkpoint is None else f"resume from {checkpoint}"
        raise KeyboardInterrupt(f"stopped after step {step}: {where}")
