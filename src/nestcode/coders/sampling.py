"""The training data of coders: moments and a uniform sample in one pass, principal directions, projected samples.

Outliers are clipped first. The squared error of one broken row can exceed the sum of all other errors, and then every
direction and every bit would serve that row.
"""

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import PIECE, Doubles, Floats, as_floats, center, pieces, squared_norms
from nestcode.errors import InvalidInput
from nestcode.metrics import exact_neighbors
from nestcode.pca import Covariance, FactoredCovariance, Moments, rayleigh_ritz, solve

DENSE, SHARE = 1024, 8  # a full eigendecomposition is faster up to DENSE features, or for more than 1 / SHARE of them
SAMPLE_ROWS, SAMPLE_BYTES = 25_000, 1 << 28  # that bit planes are trained on
TRAIN_ROWS = 1 << 19  # that codebooks are trained on
FEW_ROWS = 1 << 13  # that codebooks and directions would suit, and no other rows
OUTLIERS, FAR = 0.002, 5.0  # the share of rows that may be outliers, and times as far as the others that they lie
ANY_OUTLIER = 50  # rows, of which one may be an outlier, though it is a larger share
CENTER_ROWS, DISTANCE_ROWS = 256, 1 << 14  # that the center of the data and the distances from it are estimated from
NEIGHBORS, NEAR = 8, 2.0  # that a synthetic row is made of, and their squared distance relative to the nearest


class Reservoir:
    """A uniform sample of rows in their own dtype, whatever pieces they came in.

    Every row draws a random key, and the rows of the smallest keys stay: reservoir sampling by sorted keys.
    """

    def __init__(self, rng: np.random.Generator, most_rows: int, most_bytes: int) -> None:
        self._rng, self._most_rows, self._most_bytes = rng, most_rows, most_bytes
        self._parts: list[NDArray[Any]] = []
        self._keys: list[NDArray[np.float64]] = []
        self._size, self._largest = 1, np.inf  # key that may still enter the sample

    def add(self, rows: NDArray[Any]) -> None:
        """Offer more rows to the sample."""
        self._size = max(min(self._most_rows, self._most_bytes // (rows.itemsize * rows.shape[1])), 1)
        keys = self._rng.random(len(rows))
        entering = slice(None) if self._largest == np.inf else keys < self._largest
        self._parts.append(rows[entering])
        self._keys.append(keys[entering])
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
            self._largest = float(keys.max())
        self._parts, self._keys = [rows], [keys]


class Outliers:
    """Winsorizes rows where some lie more than `FAR` times as far from the center as 99.8 % of the rows.

    If so, all rows are clipped to the distance within which 99.8 % lie; other data does not change. A larger share of
    far rows is a part of the data that coders should describe.

    The center is the median of the first rows, which outliers do not move. It need not be the mean: all distances are
    from the same center.
    """

    def __init__(self) -> None:
        self._center: Doubles = np.zeros(0)  # not known yet
        self._waiting: list[NDArray[np.floating[Any]]] = []  # until there are enough for a median
        self._seen, self._row, self._distance = 0, -1, 0.0  # rows, the farthest of them, and its distance

    def add(self, rows: NDArray[np.floating[Any]]) -> None:
        """Look for outliers among more rows."""
        self._waiting.append(rows)
        if len(self._center) or sum(map(len, self._waiting)) >= CENTER_ROWS:
            self._measure()

    def _measure(self) -> None:
        rows = np.concatenate(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        if len(rows) == 0:
            return
        if len(self._center) == 0:
            self._center = np.median(_some(rows, CENTER_ROWS), axis=0).astype(np.float64)
        distances = self._distances(rows)
        farthest = int(np.argmax(distances))
        if distances[farthest] > self._distance:
            self._row, self._distance = self._seen + farthest, float(distances[farthest])
        self._seen += len(rows)

    def clip(self, sample: NDArray[Any], *, warn: bool = True) -> NDArray[np.floating[Any]] | None:
        """Return a sample of the rows with outliers moved toward the center, or None where the data has none."""
        if self._waiting:
            self._measure()
        radius = self._typical(sample)
        if radius == 0 or self._distance <= FAR * radius:
            return None
        if warn:
            warnings.warn(
                f"row {self._row} lies {self._distance / radius:.3g} times as far from the center of the data as "
                f"{1 - OUTLIERS:.1%} of the rows. Outliers are clipped to the distance of these in training, so that "
                "they take no bits from other rows: they decode to clipped vectors, and expected_error counts them "
                'clipped. Drop or rescale them, or fit with metric="cosine"',
                stacklevel=5,  # of the caller of a coder's fit
            )
        rows = as_floats(sample)
        for first in range(0, len(rows), PIECE):
            some = rows[first : first + PIECE]
            distances = self._distances(some)
            far = np.flatnonzero(distances > radius)
            some[far] = self._center + (some[far] - self._center) * (radius / distances[far, None])
        return rows

    def _typical(self, sample: NDArray[Any]) -> float:
        """Return the distance that all but possible outliers lie within; copies of the center do not count."""
        distances = np.sort(self._distances(as_floats(_some(sample, DISTANCE_ROWS))))
        distances = distances[distances > 0]
        outliers = max(int(OUTLIERS * len(distances)), len(distances) >= ANY_OUTLIER)
        return float(distances[-1 - outliers]) if len(distances) else 0.0

    def _distances(self, rows: NDArray[np.floating[Any]]) -> Doubles:
        return np.sqrt(squared_norms(center(rows, self._center, normalize=False)))


def clip_outliers(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows with outliers clipped, or the same rows where there are none."""
    outliers = Outliers()
    outliers.add(as_floats(rows))
    clipped = outliers.clip(rows, warn=False)
    return rows if clipped is None else clipped


def _some(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """Return about `count` evenly spaced rows, or all if there are fewer."""
    return rows[:: max(len(rows) // count, 1)]


class Summary(NamedTuple):
    """The result of one pass over the data: its moments, and a uniform sample of its rows."""

    total: int  # rows of the data
    mean: Doubles  # (features,)
    covariance: Covariance
    sample: NDArray[Any]  # (sample, features)


def summarize(parts: Iterable[NDArray[Any]], *, normalize: bool, reservoir: Reservoir) -> Summary:
    """Return the moments of the data and a uniform sample of its rows, in one pass.

    If the data has outliers, the moments are those of the sample, because outliers are known only after the pass.
    Normalized rows have none: they all lie on a sphere.
    """
    moments, outliers = Moments(), Outliers()
    for part in parts:
        rows = as_floats(part, normalize=normalize)
        moments.add(rows)
        reservoir.add(part)
        if not normalize:
            outliers.add(rows)
    total = moments.count
    if total == 0:
        raise InvalidInput("fit needs at least 1 item, got none")
    sample = reservoir.rows()
    clipped = None if normalize else outliers.clip(sample)
    if clipped is not None:
        sample, moments = clipped, Moments()
        for part in pieces(sample):
            moments.add(part)
    return Summary(total, moments.mean(), moments.any_covariance(), sample)


def principal_directions(covariance: Covariance, count: int, rng: np.random.Generator) -> Floats:
    """Return the `count` directions of largest variance, or one per row of fewer rows: (count, features)."""
    if isinstance(covariance, FactoredCovariance):
        decoder = rayleigh_ritz(covariance, covariance.span())[0][:, :count]
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
    held_out: NDArray[np.bool_]  # (sample,): rows to measure errors on; none where they are too few to spare
    outside: float  # mean squared norm of the part that no direction explains, of these rows


def project_sample(
    parts: Iterable[NDArray[Any]],
    width: int,
    rng: np.random.Generator,
    most_bytes: int,
    *,
    normalize: bool,
    slack: float = 0.5,
    spare: int = 512,
) -> ProjectedSample:
    """Return a sample in the directions that a code of `width` bits should describe, in one pass over the data.

    Some rows are held out if there are at least `spare`.
    """
    reservoir = Reservoir(rng, TRAIN_ROWS, most_bytes)
    summary = summarize(parts, normalize=normalize, reservoir=reservoir)
    total, mean, covariance, sample = summary
    held_out = held_out_mask(len(sample), rng, spare)
    if total < FEW_ROWS and held_out.any():
        others = Moments()
        others.add(as_floats(sample[~held_out], normalize=normalize))
        covariance = others.any_covariance()
    directions = water_filling_directions(covariance, width, rng, slack)
    rows, outside = [], []
    for part in pieces(sample):
        centered = center(part, mean, normalize=normalize)
        rows.append(centered @ directions.T)
        outside.append(squared_norms(centered) - squared_norms(rows[-1]))
    measured = np.concatenate(outside)[held_out if held_out.any() else ...]
    return ProjectedSample(mean, directions, np.concatenate(rows), held_out, max(float(measured.mean()), 0.0))


def held_out_mask(count: int, rng: np.random.Generator, spare: int) -> NDArray[np.bool_]:
    """Return which of `count` rows errors are measured on: none where there are fewer than `spare`."""
    held_out = np.zeros(count, dtype=bool)
    if count >= spare:
        size = min(max(count // 20, min(count // 10, 25)), 10_000)
        held_out[rng.choice(count, size, replace=False)] = True
    return held_out


def add_synthetic_rows(rows: Floats, rng: np.random.Generator) -> Floats:
    """Return few rows joined by synthetic ones, `FEW_ROWS` together, in random order; many rows are returned unchanged.

    Each coefficient of a synthetic row is that of a row or of one of its neighbors, drawn at random: a local bootstrap.
    Principal coefficients are uncorrelated, so such rows are close to the distribution of the data, and clusters stay
    apart.
    """
    (n, directions), missing = rows.shape, FEW_ROWS - len(rows)
    if missing <= 0 or n <= NEIGHBORS:
        return rows
    some = rng.permutation(n)[:missing]
    near = exact_neighbors(rows[some], rows, NEIGHBORS)  # itself first, or one equal to it
    distances = squared_norms((rows[near] - rows[some, None]).reshape(-1, directions)).reshape(near.shape)
    nearest = np.where(distances > 0, distances, np.inf).min(axis=1, keepdims=True)  # of those that are not copies
    near = np.where(distances <= NEAR * nearest, near, some[:, None])
    source = np.resize(np.arange(len(some)), missing)[:, None]
    chosen = near[source, rng.integers(0, NEIGHBORS, (missing, directions))]
    return rng.permutation(np.concatenate([rows, rows[chosen, np.arange(directions)]]))


def water_filling_directions(covariance: Covariance, width: int, rng: np.random.Generator, slack: float) -> Floats:
    """Return the principal directions to which reverse water-filling allocates bits, (directions, features).

    For Gaussian data the optimum gives a direction half of log2 of the ratio of its variance to the water level. As
    data is not Gaussian, directions down to `slack` bits below the level are kept too, at most 4 · slack per bit;
    further directions would only add noise.
    """
    directions = principal_directions(covariance, min(math.ceil(4 * slack * width), len(covariance)), rng)
    variances = np.maximum(np.sum(directions.T * (covariance @ directions.T), axis=0), 0)
    if variances[0] == 0:
        return directions[:1]
    bits = 0.5 * np.log2(np.maximum(variances / variances[0], 1e-12))
    low, high = -20.0, 0.0  # bisection of the water level, in bits
    for _ in range(50):
        level = (low + high) / 2
        low, high = (level, high) if np.maximum(bits - level, 0).sum() > width else (low, level)
    kept: Floats = directions[bits >= high - slack]
    return kept
