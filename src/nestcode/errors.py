"""The errors that Nestcode raises on purpose.

NestcodeError
├── InvalidInput (ValueError)    a value breaks a rule; the message names the rule, the value, the remedy
│   ├── NotFitted (AttributeError)   a coder or model was used before fit
│   └── NotNumeric (TypeError)       data contain objects that are not numbers
├── DamagedFile (ValueError)     a file is truncated, changed, foreign or newer than this version
├── Diverged (ArithmeticError)   training diverged: the loss is NaN or infinite
├── OutOfMemory (MemoryError)    a batch or a file exceeds the memory; the message names the remedy
├── Unavailable (ConnectionError)  a server or another process of a run does not answer, or answers that it cannot
└── MissingExtra (ImportError)   an optional dependency is missing; the message has the pip command

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
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Self

__all__ = [
    "DamagedFile",
    "Diverged",
    "InvalidInput",
    "MissingExtra",
    "NestcodeError",
    "NotFitted",
    "NotNumeric",
    "OutOfMemory",
    "Unavailable",
]


class NestcodeError(Exception):
    """The root of all errors that Nestcode raises on purpose."""


class InvalidInput(NestcodeError, ValueError):
    """A value breaks a rule."""


class NotFitted(InvalidInput, AttributeError):
    """A coder or model was used before `fit`; also a `NotFittedError` if scikit-learn is loaded."""

    def __new__(cls, *args: object) -> Self:  # noqa: D102
        other = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
        return super().__new__(cls if other is None else _combined_with(other), *args)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return NotFitted, self.args  # pickle finds no class that was created at run time


@cache
def _combined_with(other: type[Exception]) -> type[Any]:
    """Return a class of errors that is both `NotFitted` and another library's error."""
    return type("NotFitted", (NotFitted, other), {"__module__": __name__})


class NotNumeric(InvalidInput, TypeError):
    """Data are not numbers; a `TypeError` as well, as scikit-learn expects."""


class DamagedFile(NestcodeError, ValueError):
    """A file is damaged, foreign or newer than this version."""


class Diverged(NestcodeError, ArithmeticError):
    """The loss of a training run is NaN or infinite."""


class OutOfMemory(NestcodeError, MemoryError):
    """A batch exceeds a device's memory, or a file the machine's."""


class Unavailable(NestcodeError, ConnectionError):
    """A server or another process of a run does not answer, or answers that it cannot."""


class MissingExtra(NestcodeError, ImportError):
    """An optional dependency is not installed."""


def import_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Return an optional dependency, or raise an error that names the `extra` of Nestcode that installs it.

    >>> import_extra("math", extra="torch", purpose="arithmetic").__name__
    'math'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # installed but broken: its own error is more useful
        raise _missing(module, extra, purpose) from None


def extra_folder(package: str, *, extra: str, purpose: str) -> Path:
    """Return the folder of an optional dependency without importing it, or raise the error of `import_extra`.

    >>> extra_folder("json", extra="torch", purpose="arithmetic").name
    'json'
    """
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise _missing(package, extra, purpose)
    return Path(next(iter(found.submodule_search_locations)))


def _missing(module: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(f"{purpose} needs {module}, which is not installed: pip install 'nestcode[{extra}]'")
