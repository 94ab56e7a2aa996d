"""Principal directions of data that may be larger than memory, and rows in them to learn codebooks from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats, as_floats, center, pieces, squared_norms
from nestcode.errors import InvalidInput
from nestcode.pca import Moments, solve

DENSE = 4096  # up to this many features it is quicker to compute all directions
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28  # that bit planes are grown on
MOST_LEARNT = 1 << 19  # rows that codebooks are learnt from


class Reservoir:
    """A uniform sample of rows in their own dtype, whatever pieces they came in.

    Every row draws a random key, and the rows of the smallest keys stay: reservoir sampling by sorted keys.
    """

    def __init__(self, rng: np.random.Generator, most_rows: int, most_bytes: int) -> None:
        self._rng, self._most_rows, self._most_bytes = rng, most_rows, most_bytes
        self._parts: list[NDArray[Any]] = []
        self._keys: list[NDArray[np.float64]] = []
        self._size = 1

    def add(self, rows: NDArray[Any]) -> None:
        """Offer more rows to the sample."""
        self._size = max(min(self._most_rows, self._most_bytes // (rows.itemsize * rows.shape[1])), 1)
        self._parts.append(rows)
        self._keys.append(self._rng.random(len(rows)))
        if sum(map(len, self._parts)) > 2 * self._size:  # not after every piece: selecting copies
            self._select()

    def rows(self) -> NDArray[Any]:
        """Return the sample, in the order of the data."""
        self._select()
        return self._parts[0]

    def _select(self) -> None:
        rows, keys = np.concatenate(self._parts), np.concatenate(self._keys)
        if len(keys) > self._size:
            kept = np.sort(np.argpartition(keys, self._size)[: self._size])
            rows, keys = rows[kept], keys[kept]
        self._parts, self._keys = [rows], [keys]


def measure(parts: Iterable[NDArray[Any]], *, normalize: bool, sample: Reservoir) -> tuple[Moments, NDArray[Any]]:
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


@dataclass(frozen=True)
class Found:
    """The principal directions that a code can say anything about, and a sample of the data in them."""

    mean: Doubles
    directions: Floats  # (directions, features)
    rows: Floats  # (sample, directions), around the mean
    outside: float  # the mean squared length of what lies beyond the directions


def worthwhile(
    parts: Iterable[NDArray[Any]], width: int, rng: np.random.Generator, most_bytes: int, *, normalize: bool
) -> Found:
    """Pass over the data once, and keep what `width` bits could say anything about."""
    moments, sample = measure(parts, normalize=normalize, sample=Reservoir(rng, MOST_LEARNT, most_bytes))
    mean = moments.mean()
    directions = worthwhile_directions(moments.covariance(), width, rng)
    rows, outside = [], 0.0
    for part in pieces(sample):
        centered = center(part, mean, normalize=normalize)
        rows.append(centered @ directions.T)
        outside += float((squared_norms(centered) - squared_norms(rows[-1])).sum())
    every = np.concatenate(rows)
    return Found(mean, directions, every, outside / len(every))


def hold_out(count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of some rows errors are measured on: none, where there are too few to spare any."""
    held_out = np.zeros(count, dtype=bool)
    if count >= 512:
        held_out[rng.choice(count, min(count // 20, 10_000), replace=False)] = True
    return held_out


def worthwhile_directions(covariance: Doubles, width: int, rng: np.random.Generator) -> Floats:
    """The principal directions that `width` bits could say anything about, as rows; noise in the others is not learnt.

    For Gaussian data the best code spends bits on directions whose variance is above a water level, half of log2 of
    the ratio on each. Those down to half the level are kept, as data is not Gaussian.
    """
    directions = principal_directions(covariance, min(2 * width, len(covariance)), rng)
    variances = np.maximum(np.einsum("df,fg,dg->d", directions, covariance, directions, optimize=True), 0)
    if variances[0] == 0:
        return directions[:1]
    bits = 0.5 * np.log2(np.maximum(variances / variances[0], 1e-12))
    low, high = -20.0, 0.0  # the water level lies between, in the same units
    for _ in range(50):
        level = (low + high) / 2
        low, high = (level, high) if np.maximum(bits - level, 0).sum() > width else (low, level)
    kept: Floats = directions[bits >= high - 0.5]
    return kept
