"""The `nestcode` command: one thin file for each of its commands."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from nestcode.cli.app import main as run  # here, so that Ctrl-C may come at any time
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()
