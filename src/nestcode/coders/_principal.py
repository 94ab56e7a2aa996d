"""Principal directions of data that may be larger than memory."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders._rows import Floats, as_floats
from nestcode.errors import InvalidInput
from nestcode.principal import Doubles, Moments, solve

DENSE = 4096  # up to this many features it is quicker to compute all directions
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28


def measure(
    parts: Iterable[NDArray[Any]], *, normalize: bool, rng: np.random.Generator
) -> tuple[Moments, NDArray[Any]]:
    """Pass over the data once: its moments, and a fair sample of rows in the data's own type."""
    moments, reservoir = Moments(), _Reservoir(rng)
    for part in parts:
        moments.add(as_floats(part, normalize=normalize))
        reservoir.add(part)
    if moments.count == 0:
        raise InvalidInput("fit needs at least 1 item, got none")
    return moments, reservoir.rows()


class _Reservoir:
    """A uniform sample of rows that does not depend on how they were cut into pieces."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._rows: NDArray[Any] | None = None
        self._keys = np.empty(0)

    def add(self, rows: NDArray[Any]) -> None:
        keys = np.append(self._keys, self._rng.random(len(rows)))
        every = rows if self._rows is None else np.concatenate([self._rows, rows])
        size = max(min(SAMPLE_ROWS, SAMPLE_BYTES // (every.itemsize * every.shape[1])), 1)
        kept = np.sort(np.argpartition(keys, size)[:size]) if len(keys) > size else slice(None)
        self._rows, self._keys = every[kept], keys[kept]

    def rows(self) -> NDArray[Any]:
        assert self._rows is not None
        return self._rows


def principal_directions(covariance: Doubles, count: int, rng: np.random.Generator) -> Floats:
    """The `count` directions of largest variance, as rows, (count, features)."""
    if len(covariance) > DENSE and 2 * count < len(covariance):
        decoder = solve(covariance, count, rng, tolerance=1e-3).decoder
    else:
        decoder = np.linalg.eigh(covariance)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(decoder.T, dtype=np.float32)
