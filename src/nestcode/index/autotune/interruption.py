"""Ctrl-C during trials: the best so far is built."""

import signal
import threading
from typing import Any, Self


class Interruption:
    """Notices Ctrl-C inside a `with` block, once; a second one is raised as usual.

    Python drops a KeyboardInterrupt that is raised inside a callback of a weak reference, and trials have many.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._notice)
        return self

    def _notice(self, *_: object) -> None:
        self.came = True
        signal.signal(signal.SIGINT, self._before)
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self.came |= kind is KeyboardInterrupt
        return kind is KeyboardInterrupt
