"""PCA, the exact optimum of the nested objective for a linear autoencoder, from the covariance alone.

`solve` is Chebyshev-filtered subspace iteration with deflation. Each round (1) multiplies the basis by a Chebyshev
polynomial of the covariance, (2) rotates it by Rayleigh–Ritz so that the code is uncorrelated with the largest variance
first, which is the optimum of the nested objective within the span, and (3) freezes the leading units that have
converged and deflates the covariance, which is like the paper's unit sweeping. It is an eigensolver: each round
decomposes the covariance within the span.

`nestcode.nn.SemiLinearAutoencoder` uses it for the theory of section 3, `nestcode.LinearCoder` for its directions.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles
from nestcode.errors import OutOfMemory
from nestcode.storage import physical_memory

FEATURES_PER_ROW = 2  # with more, a covariance is kept as its rows
GROWTH = 1e9  # of the largest unit over the smallest in one round: more would lose the small ones to rounding
DEGREES = range(2, 21)
TINY, NOISE = np.finfo(np.float64).tiny, 1e-14


class Moments:
    """The mean and covariance of rows, accumulated in pieces.

    >>> moments = Moments()
    >>> for piece in ([[0, 2], [2, 2]], [[4, 5]]):
    ...     moments.add(np.array(piece, dtype=np.float32))
    >>> moments.mean().tolist(), moments.covariance().round(3).tolist()
    ([2.0, 3.0], [[2.667, 2.0], [2.0, 2.0]])
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[NDArray[Any]] | None = []  # as long as they are few

    def add(self, rows: NDArray[Any]) -> None:
        """Add rows, (n, features); products are computed in their dtype, around their own mean and scale."""
        if len(rows) == 0:
            return
        if self._rows is None:
            self._add_products(rows)
        else:
            self._rows.append(rows.copy())
            if FEATURES_PER_ROW * sum(map(len, self._rows)) > rows.shape[1]:
                self._multiply()
        self.count += len(rows)

    def _multiply(self) -> None:
        """Replace the rows by their products."""
        kept, self._rows = self._rows or [], None
        done, self.count = self.count, 0
        for rows in kept:
            self._add_products(rows)
            self.count += len(rows)
        self.count = done

    def _add_products(self, rows: NDArray[Any]) -> None:
        if self.count == 0:
            _check_memory(rows.shape[1])
        mean = rows.mean(axis=0, dtype=np.float64)
        centered = rows - mean.astype(rows.dtype)
        spread = float(np.abs(centered).max())
        scale = spread if spread > 0 else 1.0  # keeps squares of any data in range
        centered /= rows.dtype.type(scale)
        centered -= centered.mean(axis=0)
        products = scale**2 * (centered.T @ centered).astype(np.float64)
        if self.count == 0:
            self._mean, self._products = mean, products
        else:
            step = mean - self._mean  # the pairwise update of Chan, Golub and LeVeque
            self._mean += step * (len(rows) / (self.count + len(rows)))
            self._products += products + np.outer(step, step) * (self.count * len(rows) / (self.count + len(rows)))

    def mean(self) -> Doubles:
        """Return the mean, (features,)."""
        if self._rows is not None:
            return np.asarray(np.concatenate(self._rows).mean(axis=0, dtype=np.float64))
        return np.asarray(self._mean, dtype=np.float64)

    def covariance(self) -> Doubles:
        """Return the covariance, (features, features)."""
        if self._rows is not None:
            self._multiply()
        return np.asarray(self._products / self.count, dtype=np.float64)

    def any_covariance(self) -> "Covariance":
        """Return the covariance, of few rows as these."""
        if self._rows is None:
            return self.covariance()
        return FactoredCovariance(np.concatenate(self._rows) - self.mean())


@dataclass(frozen=True)
class FactoredCovariance:
    """The covariance of few centered rows, which takes their memory: nothing of (features, features) is made.

    >>> rows = np.array([[1.0, 2, 0, 4], [-1, -2, 0, -4]])
    >>> factored = FactoredCovariance(rows)
    >>> bool(np.allclose(factored @ np.eye(4), rows.T @ rows / 2)), len(factored), factored.trace()
    (True, 4, 21.0)
    """

    rows: Doubles  # (n, features)

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def __matmul__(self, columns: NDArray[Any]) -> Doubles:
        return np.asarray(self.rows.T @ (self.rows @ columns) / len(self.rows), dtype=np.float64)

    def trace(self) -> float:
        """Return the sum of all variances."""
        return float(np.square(self.rows).sum() / len(self.rows))

    def span(self) -> Doubles:
        """Return an orthonormal basis of the rows, (features, n), which holds every direction of variance."""
        return np.asarray(np.linalg.qr(self.rows.T)[0])


Covariance = Doubles | FactoredCovariance


def _check_memory(features: int) -> None:
    """Raise if a covariance and what is computed from it exceed the memory of the machine."""
    needed = 4 * 8 * features**2  # the covariance, one batch's, a decomposition and its work space
    if needed > physical_memory():
        raise OutOfMemory(
            f"the covariance of {features:,} features takes {needed / 2**30:,.0f} GiB, more than this machine has: "
            "fit on fewer features (a random projection keeps distances), or on at most half as many rows as features"
        )


@dataclass(frozen=True)
class Solution:
    """Principal directions in order, and the work it took to find them."""

    decoder: Doubles  # (features, width), orthonormal columns
    variances: Doubles  # (width,): of the units, nonincreasing
    history: list[Doubles]  # the units' variances after each round; they determine the objective
    products: float  # multiplications of the covariance by a decoder of full width


def solve(
    covariance: Doubles, width: int, rng: np.random.Generator, *, tolerance: float = 1e-6, rounds: int = 50
) -> Solution:
    """Return the linear autoencoder of `width` units that minimizes the nested objective, whatever the distribution.

    >>> covariance = np.diag([4.0, 9.0, 1.0] + [0.1] * 30)
    >>> solution = solve(covariance, width=2, rng=np.random.default_rng(0))
    >>> solution.variances.round(6).tolist(), np.abs(solution.decoder).argmax(axis=0).tolist()
    ([9.0, 4.0], [1, 0])

    Args:
        covariance: (features, features).
        width: number of units, at most the number of features.
        rng: draws the initial basis.
        tolerance: a unit of variance v has converged once its residual |V γ − v γ| is at most tolerance · v.
        rounds: the maximum number of rounds.

    """
    features = len(covariance)
    block = min(features, width + max(16, width // 8))
    deflated = covariance.copy()  # without the units that have converged
    span, variances = rayleigh_ritz(deflated, _orthonormal(rng.standard_normal((features, block))))
    frozen, history, products = 0, [variances[:width]], block
    for _ in range(rounds):
        if block == features:  # the span is all of space
            break
        noise = NOISE * float(variances[0])  # smaller variances are rounding errors
        lower, upper = max(float(variances[-1]), noise), max(float(variances[frozen]), noise)
        degree = _degree(lower, upper)
        moving = _chebyshev_filter(deflated, span[:, frozen:], lower, upper, degree)
        moving, values = rayleigh_ritz(deflated, _orthonormal(moving, against=span[:, :frozen]))
        products += (degree + 2) * moving.shape[1]
        span, variances = np.hstack([span[:, :frozen], moving]), np.append(variances[:frozen], values)
        history.append(variances[:width])
        images = deflated @ moving
        residuals = np.linalg.norm(images - moving * values, axis=0)
        converged = int(np.logical_and.accumulate(residuals <= tolerance * values + noise).sum())
        _deflate(deflated, moving[:, :converged], images[:, :converged])
        frozen += converged
        if frozen >= width:
            break
    return Solution(np.ascontiguousarray(span[:, :width]), np.maximum(variances[:width], 0), history, products / width)


def rayleigh_ritz(covariance: Covariance, span: Doubles) -> tuple[Doubles, Doubles]:
    """Return the Ritz vectors and values of this span: uncorrelated units, largest variance first."""
    values, rotation = np.linalg.eigh(span.T @ (covariance @ span))
    return span @ rotation[:, ::-1], values[::-1]


def _degree(lower: float, upper: float) -> int:
    """Return the highest degree whose polynomial grows by no more than GROWTH from `lower` to `upper`."""
    base = 2 * max(2 * upper / max(lower, TINY) - 1, 1)  # a Chebyshev polynomial of degree n grows as base^n / 2
    return next((n for n in reversed(DEGREES) if n * np.log(base) <= np.log(2 * GROWTH)), DEGREES[0])


def _chebyshev_filter(covariance: Doubles, span: Doubles, lower: float, upper: float, degree: int) -> Doubles:
    """Return the span times the Chebyshev polynomial that stays within ±1 on [0, lower] and grows fast above it."""
    half = max(lower / 2, TINY)
    first = scale = half / max(upper - half, half)  # dividing by the growth at `upper` keeps values in range
    before, now = span, (covariance @ span - half * span) * (scale / half)
    for _ in range(1, degree):
        following = 1 / (2 / first - scale)
        after = (covariance @ now - half * now) * (2 * following / half) - (scale * following) * before
        before, now, scale = now, after, following
    return now


def _orthonormal(columns: Doubles, against: Doubles | None = None) -> Doubles:
    """Return an orthonormal basis of the columns, orthogonal to `against`, by Cholesky QR (faster than Householder)."""
    for _ in range(2):  # the second pass removes the rounding errors of the first
        if against is not None and against.shape[1]:
            columns = columns - against @ (against.T @ columns)
        columns = columns / np.maximum(np.linalg.norm(columns, axis=0), TINY)
        try:
            columns = columns @ np.linalg.inv(np.linalg.cholesky(columns.T @ columns)).T
        except np.linalg.LinAlgError:  # nearly dependent columns
            columns = np.linalg.qr(columns)[0]
    return columns


def _deflate(covariance: Doubles, units: Doubles, images: Doubles) -> None:
    """Project the covariance in place onto the complement of `units`; `images` are its products with them."""
    covariance -= images @ units.T + units @ images.T - units @ (units.T @ images) @ units.T
