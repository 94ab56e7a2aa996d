"""The errors Nestcode raises on purpose.

NestcodeError
├── InvalidInput (ValueError)    a value breaks a rule; the message names the rule, the value, the remedy
│   └── NotFitted (AttributeError)   a coder or model was used before fit
├── DamagedFile (ValueError)     a file is cut short, changed, foreign or newer than this version
├── Diverged (ArithmeticError)   training went wrong: its loss is no longer a number
├── OutOfMemory (MemoryError)    a batch does not fit into a device's memory; the message says what to lower
└── MissingExtra (ImportError)   an optional dependency is absent; the message holds the pip command

>>> import nestcode as nc
>>> try:
...     nc.Codes.from_bits([[True, False]]).prefix(5)
... except nc.errors.NestcodeError as error:
...     print(error)
length must be between 0 and the code's width 2, got 5: shorten the prefix or make wider codes
"""

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Self


class NestcodeError(Exception):
    """The root: catches everything Nestcode raises on purpose."""


class InvalidInput(NestcodeError, ValueError):
    """A value breaks a rule."""


class NotFitted(InvalidInput, AttributeError):
    """A coder or model was used before `fit`; where scikit-learn is loaded, its `NotFittedError` too."""

    def __new__(cls, *args: object) -> Self:  # noqa: D102
        theirs = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
        return super().__new__(cls if theirs is None else _also(theirs), *args)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return NotFitted, self.args  # a class made on the way has no name to be found by


@cache
def _also(theirs: type[Exception]) -> type[Any]:
    """`NotFitted` that is another library's error too."""
    return type("NotFitted", (NotFitted, theirs), {"__module__": __name__})


class DamagedFile(NestcodeError, ValueError):
    """A file does not hold what it should."""


class Diverged(NestcodeError, ArithmeticError):
    """The loss of a training run is no longer a number."""


class OutOfMemory(NestcodeError, MemoryError):
    """A batch does not fit into a device's memory."""


class MissingExtra(NestcodeError, ImportError):
    """An optional dependency is not installed."""


def import_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which `extra` of Nestcode brings it.

    >>> import_extra("math", extra="torch", purpose="arithmetic").__name__
    'math'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the dependency is there but broken: its own error says more
        raise MissingExtra(
            f"{purpose} needs {module}, which is not installed: pip install 'nestcode[{extra}]'"
        ) from None
