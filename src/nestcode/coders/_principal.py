"""Principal directions of data that may be larger than memory."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders._rows import Floats, Sample, as_floats
from nestcode.errors import InvalidInput
from nestcode.principal import Doubles, Moments, solve

DENSE = 4096  # up to this many features it is quicker to compute all directions
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28  # that bit planes are grown on


def measure(parts: Iterable[NDArray[Any]], *, normalize: bool, sample: Sample) -> tuple[Moments, NDArray[Any]]:
    """Pass over the data once: its moments, and a fair sample of rows in the data's own type."""
    moments = Moments()
    for part in parts:
        moments.add(as_floats(part, normalize=normalize))
        sample.add(part)
    if moments.count == 0:
        raise InvalidInput("fit needs at least 1 item, got none")
    return moments, sample.rows()


def principal_directions(covariance: Doubles, count: int, rng: np.random.Generator) -> Floats:
    """The `count` directions of largest variance, as rows, (count, features)."""
    if len(covariance) > DENSE and 2 * count < len(covariance):
        decoder = solve(covariance, count, rng, tolerance=1e-3).decoder
    else:
        decoder = np.linalg.eigh(covariance)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(decoder.T, dtype=np.float32)
