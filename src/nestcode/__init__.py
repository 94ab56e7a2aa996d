"""Nested codes: bit strings whose every prefix is a good code of its length.

>>> import nestcode as nc
>>> codes = nc.Codes.from_bits([[True, False, True], [True, True, False]])
>>> codes.prefix(1).hamming(codes.prefix(1))
array([[0, 0],
       [0, 0]], dtype=int32)

Names are imported on first use, so `import nestcode` takes a few milliseconds and loads neither NumPy nor PyTorch.
"""

import sys
from importlib import import_module
from typing import Any

if sys.byteorder != "little":
    raise ImportError(
        "Nestcode needs a little-endian machine, as x86-64 and ARM are, and this one is big-endian: serve the index on "
        "another machine, and search it over HTTP"
    )

__version__ = "1.0.0rc1"

with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 (pathlib would take longer than all else)
    # Words of a line: from MODULE import NAME as NAME. A module is its own home.
    _LINES = [line.split() for line in _stub if line.startswith("from ")]
_HOMES = {line[3]: f"nestcode.{line[3]}" if line[1] == "nestcode" else line[1] for line in _LINES}

__all__ = sorted(["__version__", *(line[3] for line in _LINES if line[-1] != "PyTorch")])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nestcode' has no attribute {name!r}")
    try:
        home = import_module(_HOMES[name])
    except ImportError as error:  # so that hasattr() and inspect skip names whose extra is missing
        raise AttributeError(f"nestcode.{name} cannot be loaded: {error}") from error
    value = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = value  # the next lookup does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*_HOMES, "__version__"})
