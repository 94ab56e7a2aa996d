"""The `nestcode` command: one thin file for each of its commands."""

from nestcode.cli.app import main

__all__ = ["main"]
