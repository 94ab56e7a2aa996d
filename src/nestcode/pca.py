"""The exact optimum of the nested objective for a linear autoencoder, from the covariance alone.

For a given span of the decoder the nested objective has a closed solution: rotate the units inside the span so that
their code is uncorrelated, largest variance first. What is left is to find the best span. So each round (1) multiplies
the span by a Chebyshev polynomial of the covariance, which is many rounds of alternating encoder and decoder updates at
once, (2) rotates inside the span, a problem of width x width, and (3) fixes the leading units that no longer change and
works on the others only: the paper's unit sweeping. The full covariance is only ever multiplied by, unless the span
is nearly all of space.

It serves `nestcode.nn.SemiLinearAutoencoder`, where it is the theory of section 3, and `nestcode.LinearCoder`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles

GROWTH = 1e9  # of the largest unit over the smallest in one round: more would drown the small ones in rounding
DEGREES = range(2, 21)
TINY, NOISE = np.finfo(np.float64).tiny, 1e-14


class Moments:
    """The mean and covariance of rows that come in pieces.

    >>> moments = Moments()
    >>> for piece in ([[0, 2], [2, 2]], [[4, 5]]):
    ...     moments.add(np.array(piece, dtype=np.float32))
    >>> moments.mean().tolist(), moments.covariance().round(3).tolist()
    ([2.0, 3.0], [[2.667, 2.0], [2.0, 2.0]])
    """

    def __init__(self) -> None:
        self.count = 0

    def add(self, rows: NDArray[Any]) -> None:
        """Take in (n, features) floats; products are made in their own precision, around their own mean and scale."""
        if len(rows) == 0:
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        centered = rows - mean.astype(rows.dtype)
        spread = float(np.abs(centered).max())
        scale = spread if spread > 0 else 1.0  # so that squares of any data stay in range
        centered /= rows.dtype.type(scale)
        centered -= centered.mean(axis=0)
        products = scale**2 * (centered.T @ centered).astype(np.float64)
        if self.count == 0:
            self._mean, self._products = mean, products
        else:
            step = mean - self._mean
            self._mean += step * (len(rows) / (self.count + len(rows)))
            self._products += products + np.outer(step, step) * (self.count * len(rows) / (self.count + len(rows)))
        self.count += len(rows)

    def mean(self) -> Doubles:
        """(features,)."""
        return np.asarray(self._mean, dtype=np.float64)

    def covariance(self) -> Doubles:
        """(features, features)."""
        return np.asarray(self._products / self.count, dtype=np.float64)


@dataclass(frozen=True)
class Solution:
    """Orthonormal decoder columns in order, and how they were reached."""

    decoder: Doubles  # (features, width)
    variances: Doubles  # (width,): of the code's units, falling
    history: list[Doubles]  # the units' variances after each round, from which the objective follows
    products: float  # how many times the covariance was multiplied by a whole decoder


def solve(
    covariance: Doubles, width: int, rng: np.random.Generator, *, tolerance: float = 1e-6, rounds: int = 50
) -> Solution:
    """Minimise the nested objective over linear autoencoders of `width` units, for every distribution with support.

    >>> covariance = np.diag([4.0, 9.0, 1.0] + [0.1] * 30)
    >>> solution = solve(covariance, width=2, rng=np.random.default_rng(0))
    >>> solution.variances.round(6).tolist(), np.abs(solution.decoder).argmax(axis=0).tolist()
    ([9.0, 4.0], [1, 0])

    Args:
        covariance: (features, features).
        width: units, at most as many as features.
        rng: draws the start.
        tolerance: a unit is fixed once |V γ − v γ| is at most this share of its variance v.
        rounds: stop after so many in any case.

    """
    features = len(covariance)
    block = min(features, width + max(16, width // 8))
    left = covariance.copy()  # the covariance without the units that are fixed
    span, variances = _rotate(left, _orthonormal(rng.standard_normal((features, block))))
    fixed, history, products = 0, [variances[:width]], block
    for _ in range(rounds):
        if block == features:  # the span holds all there is
            break
        noise = NOISE * float(variances[0])  # variances below it are rounding
        lower, upper = max(float(variances[-1]), noise), max(float(variances[fixed]), noise)
        degree = _degree(lower, upper)
        moving = _filter(left, span[:, fixed:], lower, upper, degree)
        moving, values = _rotate(left, _orthonormal(moving, against=span[:, :fixed]))
        products += (degree + 2) * moving.shape[1]
        span, variances = np.hstack([span[:, :fixed], moving]), np.append(variances[:fixed], values)
        history.append(variances[:width])
        images = left @ moving
        changes = np.linalg.norm(images - moving * values, axis=0)
        settled = int(np.logical_and.accumulate(changes <= tolerance * values + noise).sum())
        _take_out(left, moving[:, :settled], images[:, :settled])
        fixed += settled
        if fixed >= width:
            break
    return Solution(np.ascontiguousarray(span[:, :width]), np.maximum(variances[:width], 0), history, products / width)


def _rotate(covariance: Doubles, span: Doubles) -> tuple[Doubles, Doubles]:
    """The units of this span that minimise the nested objective: uncorrelated, largest variance first."""
    values, rotation = np.linalg.eigh(span.T @ (covariance @ span))
    return span @ rotation[:, ::-1], values[::-1]


def _degree(lower: float, upper: float) -> int:
    """The highest degree whose polynomial grows by no more than GROWTH between the two."""
    base = 2 * max(2 * upper / max(lower, TINY) - 1, 1)  # a Chebyshev polynomial of degree n grows as base^n / 2
    return next((n for n in reversed(DEGREES) if n * np.log(base) <= np.log(2 * GROWTH)), DEGREES[0])


def _filter(covariance: Doubles, span: Doubles, lower: float, upper: float, degree: int) -> Doubles:
    """Multiply by the Chebyshev polynomial that stays within ±1 on [0, lower] and grows fast above it."""
    half = max(lower / 2, TINY)
    first = scale = half / max(upper - half, half)  # dividing by the growth at `upper` keeps numbers in range
    before, now = span, (covariance @ span - half * span) * (scale / half)
    for _ in range(1, degree):
        following = 1 / (2 / first - scale)
        after = (covariance @ now - half * now) * (2 * following / half) - (scale * following) * before
        before, now, scale = now, after, following
    return now


def _orthonormal(columns: Doubles, against: Doubles | None = None) -> Doubles:
    """An orthonormal basis of the columns, orthogonal to `against`: matrix products, many times faster than QR."""
    for _ in range(2):  # the second time mends the rounding of the first
        if against is not None and against.shape[1]:
            columns = columns - against @ (against.T @ columns)
        columns = columns / np.maximum(np.linalg.norm(columns, axis=0), TINY)
        try:
            columns = columns @ np.linalg.inv(np.linalg.cholesky(columns.T @ columns)).T
        except np.linalg.LinAlgError:  # columns that nearly depend on each other
            columns = np.linalg.qr(columns)[0]
    return columns


def _take_out(covariance: Doubles, units: Doubles, images: Doubles) -> None:
    """Project the covariance, in place, onto what is orthogonal to `units`; `images` are its products with them."""
    covariance -= images @ units.T + units @ images.T - units @ (units.T @ images) @ units.T
