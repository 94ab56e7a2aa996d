"""Rows of data as coders take them: checked once, in pieces that fit the cache, as float32."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.errors import InvalidInput

Floats = NDArray[np.float32]
PIECE = 4096  # rows


def pieces(X: ArrayLike | Iterable[ArrayLike], features: int | None = None) -> Iterator[NDArray[Any]]:
    """An array, a memory map or an iterable of arrays, in pieces of a few thousand checked rows."""
    whole = X if isinstance(X, np.ndarray) or hasattr(X, "__array__") or isinstance(X, list | tuple) else None
    for part in [whole] if whole is not None else X:  # type: ignore[union-attr]
        rows = check_rows(part, features)  # type: ignore[arg-type]
        features = rows.shape[1]
        for first in range(0, len(rows), PIECE):
            yield rows[first : first + PIECE]


def check_rows(X: ArrayLike, features: int | None = None) -> NDArray[Any]:
    """Rows of numbers, (n, features), in the type they came in."""
    array = np.asarray(X)
    if array.ndim != 2:
        raise InvalidInput(
            f"data must have 2 dimensions (items, features), got shape {array.shape}: "
            "flatten images with X.reshape(len(X), -1), put one item into x[None, :]"
        )
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"data must be numbers, got {array.dtype}: convert them with X.astype(np.float32)")
    if features is not None and array.shape[1] != features:
        raise InvalidInput(
            f"data must have the {features} features the coder was fitted on, got {array.shape[1]}: "
            "fit a new coder or give the same features"
        )
    if array.shape[1] == 0:
        raise InvalidInput("data must have at least 1 feature, got 0")
    return array


def as_floats(rows: NDArray[Any], *, normalize: bool = False) -> Floats:
    """float32 rows without NaN and infinities, scaled to length 1 where asked (zeros stay zeros)."""
    with np.errstate(over="ignore"):  # what becomes infinite here is reported below
        floats = np.ascontiguousarray(rows, dtype=np.float32)
    if rows.dtype.kind == "f" and not np.isfinite(floats).all():
        first = rows[~np.isfinite(floats)][0]
        raise InvalidInput(
            f"data must be finite and within float32, but some of it is {first}: "
            "drop or impute such rows first, as in X[np.isfinite(X).all(axis=1)]"
        )
    if not normalize:
        return floats
    for norm in (np.inf, 2):  # by the largest entry first, so that no square leaves float32
        norms = np.linalg.norm(floats, ord=norm, axis=1, keepdims=True)
        floats = np.divide(floats, norms, out=np.zeros_like(floats), where=norms > 0)
    return floats
