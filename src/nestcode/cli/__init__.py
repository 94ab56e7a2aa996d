"""The `nestcode` command: one thin file for each of its commands."""

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    from nestcode.cli.app import main as run

    run()


def end(*_: object) -> None:
    """What Ctrl-C does until a command begins: nothing was done yet, and imports would make other errors of it."""
    os.write(2, b"interrupted\n")
    os._exit(130)
