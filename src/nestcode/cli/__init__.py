"""The `nestcode` command: one small file per subcommand.

`app.py` registers them; `options.py`, `files.py` and `inputs.py` hold what several share.
"""

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
    """Exit with status 130: before a command starts, an interrupt in an import would surface as another error."""
    os.write(2, b"interrupted\n")
    os._exit(130)
