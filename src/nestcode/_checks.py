"""What the constructors of distributions accept."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.errors import InvalidInput


def check_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """A list of weights as an array: finite, not negative, not all 0."""
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"weights must be a list of numbers, got {weights!r}") from None
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"weights must be a list of at least one number, got an array of shape {array.shape}")
    with np.errstate(over="ignore"):
        total = array.sum()
    if not np.isfinite(total) or (array < 0).any() or total <= 0:
        raise InvalidInput(f"weights must be finite, also in sum, not negative and not all 0, got {array}")
    return array


def check_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """A list of lengths as an array: integers of at least 1."""
    array = np.asarray(lengths)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"lengths must be a list of at least one, got an array of shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(f"lengths must be integers, got {array.dtype}: round them, as in x.astype(int)")
    if array.min() < 1 or array.max() >= 2**62:
        wrong = array.min() if array.min() < 1 else array.max()
        raise InvalidInput(f"lengths must be at least 1 and below 2^62, got {wrong}: leave out receivers of no bits")
    return array.astype(np.int64)
