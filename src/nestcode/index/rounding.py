"""The vectors of new items, rounded as an index stores them."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import as_array
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.vectors import StoredVectors, VectorFormat

SAMPLED_ROWS = 1000  # rows of an addition whose rounding is measured
LOST_VARIANCE = 0.005  # of the variance of vectors may be lost by rounding without a warning


def round_vectors(
    items: Codes | ArrayLike, vectors: ArrayLike | None, stored_as: VectorFormat | None, coder: Coder | None
) -> StoredVectors | None:
    """Return the vectors of new items as an index stores them, or None where it does not.

    Args:
        items: vectors, or codes.
        vectors: those of codes.
        stored_as: how the index stores vectors, if it does.
        coder: of the index.

    """
    if stored_as is None:
        if vectors is not None:
            raise InvalidInput(
                'this index stores no vectors: leave vectors out, or make it with Index(coder, vectors="float16")'
            )
        return None
    if isinstance(items, Codes):
        if vectors is None:
            raise InvalidInput(
                "an index that stores vectors takes Codes together with their vectors: give vectors=, or add the "
                "vectors alone"
            )
    elif vectors is not None:
        raise InvalidInput("vectors go with Codes, but the items given are vectors already: leave vectors= out")
    rows = as_array(items if vectors is None else vectors)
    rows = rows[None] if rows.ndim == 1 else rows
    stored = stored_as.round(rows)
    if isinstance(items, Codes) and len(stored) != len(items):
        raise InvalidInput(f"there must be one vector for each code, got {len(stored)} for {len(items)} codes")
    if coder is not None and coder.metric_ == "cosine":
        lost = rows[~stored.rows.any(axis=1)]
        if lost.any():
            raise InvalidInput(
                f"a vector for the cosine must not round to 0 in {stored_as.dtype}, got values up to "
                f'{np.abs(lost).max():.2g}: normalize the vectors, or store them as vectors="float32"'
            )
    elif len(rows) > 1:
        _warn_of_rounding(rows[:SAMPLED_ROWS], stored[:SAMPLED_ROWS])
    return stored


def _warn_of_rounding(rows: NDArray[Any], stored: StoredVectors) -> None:
    """Warn where stored vectors lose what tells them apart, as with values far from 0 that differ little."""
    rows = rows.astype(np.float64)
    lost, spread = np.square(stored.floats() - rows).sum(), np.square(rows - rows.mean(axis=0)).sum()
    if lost > LOST_VARIANCE * spread > 0:
        finer = "" if stored.rows.dtype == np.float32 else ', or store them as vectors="float32"'
        warnings.warn(
            f"rounding to {stored.rows.dtype} changes vectors by {lost / spread:.2g} of their variance, and searches "
            f"compare the differences: subtract the mean of your data in float64{finer}",
            stacklevel=4,
        )
