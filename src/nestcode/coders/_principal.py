"""Principal directions of data that may be larger than memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.coders._rows import Floats, as_floats
from nestcode.errors import InvalidInput

Doubles = NDArray[np.float64]

DENSE = 1024  # up to this many features all directions are computed at once
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
    """The `count` largest eigenvalues, falling, and their directions as rows, (count, features)."""
    features = len(covariance)
    if features > DENSE and 3 * count < features:
        try:
            return _leading(covariance, count, rng)
        except np.linalg.LinAlgError:
            pass  # fewer directions than asked for have any variance
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values[::-1][:count], 0), np.ascontiguousarray(vectors[:, ::-1][:, :count].T, dtype=np.float32)


def _leading(covariance: Doubles, count: int, rng: np.random.Generator) -> tuple[Doubles, Floats]:
    """Subspace iteration and one rotation at the end: for many features and few directions."""
    basis = _orthonormal(rng.standard_normal((len(covariance), count + count // 8)))
    for _ in range(8):
        basis = _orthonormal(covariance @ basis)
    values, rotation = np.linalg.eigh(basis.T @ (covariance @ basis))
    directions = (basis @ rotation[:, ::-1][:, :count]).T
    return np.maximum(values[::-1][:count], 0), np.ascontiguousarray(directions, dtype=np.float32)


def _orthonormal(columns: Doubles) -> Doubles:
    """An orthonormal basis by two Cholesky factorizations, all of it matrix products; many times faster than QR."""
    for _ in range(2):
        lower = np.linalg.cholesky(columns.T @ columns)
        columns = columns @ np.linalg.inv(lower).T
    return columns
