"""The `nestcode` command in this process: starting Python and importing PyTorch takes longer than most commands."""

import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from subprocess import CompletedProcess

import pytest

from nestcode.cli.app import main


def nestcode_command(*arguments: object) -> CompletedProcess[str]:
    """Run a command line as the `nestcode` program does."""
    words, out, err, status = ["nestcode", *map(str, arguments)], StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "excepthook", sys.excepthook)  # Typer changes it
        patch.setattr(warnings, "showwarning", warnings.showwarning)  # main() changes it
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return CompletedProcess(words, status, out.getvalue(), err.getvalue())
