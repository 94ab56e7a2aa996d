"""The errors Nestcode raises on purpose.

NestcodeError
├── InvalidInput (ValueError)    a value breaks a rule; the message names the rule, the value, the remedy
├── DamagedFile (ValueError)     a file is cut short, changed, foreign or newer than this version
└── MissingExtra (ImportError)   an optional dependency is absent; the message holds the pip command

>>> import nestcode as nc
>>> try:
...     nc.Codes.from_bits([[True, False]]).prefix(5)
... except nc.errors.NestcodeError as error:
...     print(error)
length must be between 0 and the code's width 2, got 5: shorten the prefix or make wider codes
"""

from importlib import import_module
from types import ModuleType


class NestcodeError(Exception):
    """The root: catches everything Nestcode raises on purpose."""


class InvalidInput(NestcodeError, ValueError):
    """A value breaks a rule."""


class DamagedFile(NestcodeError, ValueError):
    """A file does not hold what it should."""


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
