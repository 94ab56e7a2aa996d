"""Graceful interruption: Ctrl-C and SIGTERM end a run after the current step, once its checkpoint is written."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class GracefulInterrupt:
    """Records the first signal; a second one interrupts at once.

    >>> with GracefulInterrupt() as interrupt:
    ...     interrupt.signal
    0
    """

    def __init__(self) -> None:
        self.signal = 0  # the signal received, 0 for none
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self._previous = {number: signal.signal(number, self._record) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def stop(self, checkpoint: str | os.PathLike[str] | None, step: int) -> None:
        """End the run as the signal would have."""
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        where = "nothing was saved, as there is no checkpoint"
        if checkpoint is not None:
            where = f"resume from {checkpoint} with resume=True (nestcode fit: --resume)"
        raise KeyboardInterrupt(f"stopped after step {step}: {where}")
