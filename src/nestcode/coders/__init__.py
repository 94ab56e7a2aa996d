"""Coders: they fit data, encode items to codes and decode any prefix back.

`base.py` says what every coder does; each coder is one file. `linear.py`, `residual.py` and `cells.py` need
NumPy only; `choose.py` picks the better of the first two, and `cells.py` is made for search.
"""

import os

from nestcode.coders.base import Coder
from nestcode.coders.cells import CellCoder
from nestcode.coders.choose import fit
from nestcode.coders.linear import LinearCoder
from nestcode.coders.residual import ResidualCoder
from nestcode.errors import DamagedFile
from nestcode.storage import read_record

__all__ = ["CellCoder", "Coder", "LinearCoder", "ResidualCoder", "fit", "load_coder"]

_KINDS: dict[str, type[Coder]] = {"CellCoder": CellCoder, "LinearCoder": LinearCoder, "ResidualCoder": ResidualCoder}


def load_coder(path: str | os.PathLike[str]) -> Coder:
    """Load a coder that `save` wrote.

    >>> import tempfile
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = LinearCoder(width=16).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     coder.save(f"{folder}/eight.coder")
    ...     load_coder(f"{folder}/eight.coder").encode(X) == coder.encode(X)
    True
    """
    record = read_record(path)
    if record.kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise DamagedFile(f"{path} holds a {record.kind}, this version knows {known}: upgrade nestcode")
    return _KINDS[record.kind]._from_record(record, path)
