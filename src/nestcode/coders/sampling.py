"""What coders are trained on: moments and a uniform sample in one pass, principal directions, projected samples."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, Floats, as_floats, center, pieces, squared_norms
from nestcode.errors import InvalidInput
from nestcode.pca import Moments, rayleigh_ritz, solve

DENSE, SHARE = 1024, 8  # a full eigendecomposition is faster up to so many features, or for more than 1 / SHARE of them
FEW = 2  # times as many features as rows, and decomposing the covariance in the span of the rows is faster
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28  # that bit planes are trained on
TRAIN_ROWS = 1 << 19  # that codebooks are trained on


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


def moments_and_sample(
    parts: Iterable[NDArray[Any]], *, normalize: bool, reservoir: Reservoir
) -> tuple[Moments, NDArray[Any]]:
    """Return the moments of the data and a uniform sample of its rows, in one pass."""
    moments = Moments()
    for part in parts:
        moments.add(as_floats(part, normalize=normalize))
        reservoir.add(part)
    if moments.count == 0:
        raise InvalidInput("fit needs at least 1 item, got none")
    return moments, reservoir.rows()


def all_rows(moments: Moments, sample: NDArray[Any]) -> NDArray[Any] | None:
    """Return the sample if it is all of the data."""
    return sample if len(sample) == moments.count else None


def principal_directions(
    covariance: Doubles, count: int, rng: np.random.Generator, rows: NDArray[Any] | None = None
) -> Floats:
    """Return the `count` directions of largest variance, or one per row of fewer rows: (count, features).

    Where all rows of the data are given, and they are few, their span holds every direction.
    """
    if rows is not None and len(rows) <= len(covariance) // FEW:
        decoder = rayleigh_ritz(covariance, np.linalg.qr(rows.T.astype(np.float64))[0])[0][:, :count]
    elif len(covariance) > DENSE and SHARE * count < len(covariance):
        decoder = solve(covariance, count, rng, tolerance=1e-3).decoder
    else:
        decoder = np.linalg.eigh(covariance)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(decoder.T, dtype=np.float32)


@dataclass(frozen=True)
class ProjectedSample:
    """A sample of the data in the principal directions that deserve bits."""

    mean: Doubles
    directions: Floats  # (directions, features)
    rows: Floats  # (sample, directions), centered
    outside: float  # mean squared norm of the part that no direction explains


def project_sample(
    parts: Iterable[NDArray[Any]],
    width: int,
    rng: np.random.Generator,
    most_bytes: int,
    *,
    normalize: bool,
    slack: float = 0.5,
) -> ProjectedSample:
    """Return a sample in the directions that a code of `width` bits should describe, in one pass over the data."""
    reservoir = Reservoir(rng, TRAIN_ROWS, most_bytes)
    moments, sample = moments_and_sample(parts, normalize=normalize, reservoir=reservoir)
    mean = moments.mean()
    directions = water_filling_directions(moments.covariance(), width, rng, all_rows(moments, sample), slack)
    rows, outside = [], 0.0
    for part in pieces(sample):
        centered = center(part, mean, normalize=normalize)
        rows.append(centered @ directions.T)
        outside += float((squared_norms(centered) - squared_norms(rows[-1])).sum())
    every = np.concatenate(rows)
    return ProjectedSample(mean, directions, every, max(outside / len(every), 0.0))


def held_out_mask(count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of `count` rows errors are measured on: none where there are too few to spare."""
    held_out = np.zeros(count, dtype=bool)
    if count >= 512:
        held_out[rng.choice(count, min(count // 20, 10_000), replace=False)] = True
    return held_out


def water_filling_directions(
    covariance: Doubles, width: int, rng: np.random.Generator, rows: NDArray[Any] | None, slack: float
) -> Floats:
    """Return the principal directions to which reverse water-filling allocates bits, (directions, features).

    For Gaussian data the optimum gives a direction half of log2 of the ratio of its variance to the water level. As
    data is not Gaussian, directions down to `slack` bits below the level are kept too, at most 4 · slack per bit; the
    others would only add noise.
    """
    directions = principal_directions(covariance, min(math.ceil(4 * slack * width), len(covariance)), rng, rows)
    variances = np.maximum(np.einsum("df,fg,dg->d", directions, covariance, directions, optimize=True), 0)
    if variances[0] == 0:
        return directions[:1]
    bits = 0.5 * np.log2(np.maximum(variances / variances[0], 1e-12))
    low, high = -20.0, 0.0  # bisection of the water level, in bits
    for _ in range(50):
        level = (low + high) / 2
        low, high = (level, high) if np.maximum(bits - level, 0).sum() > width else (low, level)
    kept: Floats = directions[bits >= high - slack]
    return kept
