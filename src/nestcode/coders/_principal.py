"""Principal directions of data that may be larger than memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders._rows import Floats, as_floats
from nestcode.errors import InvalidInput
from nestcode.principal import Doubles, solve

DENSE = 1024  # up to this many features it is quicker to compute all directions
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28


@dataclass(frozen=True)
class Moments:
    """What one pass over the data leaves: its mean, its covariance and a fair sample of rows."""

    count: int
    mean: Doubles  # (features,)
    covariance: Doubles  # (features, features)
    sample: NDArray[Any]  # (rows, features), in the data's own type


def measure(parts: Iterable[NDArray[Any]], *, normalize: bool, rng: np.random.Generator) -> Moments:
    """Pass over the data once."""
    count, shift, total, products = 0, None, None, None
    reservoir = _Reservoir(rng)
    for part in parts:
        if len(part) == 0:
            continue
        rows = as_floats(part, normalize=normalize)
        if shift is None:  # near the mean, so that squares do not drown differences
            shift = rows.mean(axis=0)
            total, products = np.zeros(len(shift)), np.zeros((len(shift), len(shift)))
        centered = rows - shift
        total += centered.sum(axis=0, dtype=np.float64)
        products += centered.T @ centered
        count += len(rows)
        reservoir.add(part)
    if shift is None or total is None or products is None:
        raise InvalidInput("fit needs at least 1 item, got none")
    offset = total / count
    covariance = products / count - np.outer(offset, offset)
    return Moments(count, shift + offset, covariance, reservoir.rows())


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


def principal_directions(covariance: Doubles, count: int, rng: np.random.Generator) -> tuple[Doubles, Floats]:
    """The `count` largest variances, falling, and their directions as rows, (count, features)."""
    if len(covariance) > DENSE and 2 * count < len(covariance):
        solution = solve(covariance, count, rng, tolerance=1e-3)
        return solution.variances, np.ascontiguousarray(solution.decoder.T, dtype=np.float32)
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values[::-1][:count], 0), np.ascontiguousarray(vectors[:, ::-1][:, :count].T, dtype=np.float32)
