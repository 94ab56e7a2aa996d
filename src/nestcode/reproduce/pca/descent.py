"""Descent on the nested objective under theorem 3's constraint, without any eigendecomposition of the data.

With orthonormal columns Γ the best encoder is Γᵀ, whatever the length, and the expected loss of a covariance V is
tr V − Σ_k S_k γ_kᵀVγ_k with S_k = P(b ≥ k). It is minimized over the Stiefel manifold: gradients are projected onto its
tangent space, and steps retracted by the polar factor, which treats all columns alike and so favors no order.

    exact_descent     nonlinear conjugate gradients with a strong Wolfe line search on the exact loss
    sampled_descent   stochastic gradients: each example truncated at a sampled length, the paper's procedure
"""

import numpy as np

from nestcode.arrays import Doubles
from nestcode.lengths import Lengths
from nestcode.training.strong_wolfe import Trial, Wolfe, line_search

TRIALS = 20  # of a line search
WOLFE = {"c1": 1e-4, "c2": 0.1}


def polar(matrix: Doubles) -> Doubles:
    """Return the nearest matrix with orthonormal columns.

    >>> polar(np.array([[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right, dtype=np.float64)


def tangent(decoder: Doubles, direction: Doubles) -> Doubles:
    """Project a direction onto the tangent space at a decoder."""
    inner = decoder.T @ direction
    return np.asarray(direction - decoder @ (inner + inner.T) / 2)


class _Line:
    """The exact loss along a direction from a decoder, retracted onto the manifold."""

    def __init__(self, covariance: Doubles, survival: Doubles, decoder: Doubles, direction: Doubles) -> None:
        self.covariance, self.survival = covariance, survival
        self.decoder, self.direction = decoder, direction

    def at(self, step: float) -> tuple[Doubles, float, Doubles]:
        """Return the decoder at a step, its loss up to a constant, and its gradient."""
        moved = polar(self.decoder + step * self.direction) if step else self.decoder
        products = self.covariance @ moved
        value = -float((moved * products).sum(axis=0) @ self.survival)
        return moved, value, tangent(moved, -2 * products * self.survival)

    def __call__(self, step: float) -> Trial:
        moved, value, gradient = self.at(step)
        return Trial(step, value, float((gradient * tangent(moved, self.direction)).sum()))


def exact_descent(covariance: Doubles, decoder: Doubles, survival: Doubles, steps: int) -> Doubles:
    """Minimize the exact expected loss from a decoder with orthonormal columns."""
    line = _Line(covariance, survival, decoder, decoder)
    _, _, gradient = line.at(0.0)
    line.direction, first = -gradient, 0.01 / max(float(np.linalg.norm(gradient)), 1e-300)
    for _ in range(steps):
        if (gradient * line.direction).sum() >= 0:
            line.direction = -gradient
        start = line(0.0)
        found = line_search(line, start, first, Wolfe(**WOLFE, noise=1e-15 * abs(start.value)), TRIALS)
        if found is None:  # converged, up to rounding
            break
        moved, _, after = line.at(found.step)
        before = tangent(moved, gradient)
        beta = max(0.0, float((after * (after - before)).sum() / (gradient * gradient).sum()))
        line = _Line(covariance, survival, moved, beta * tangent(moved, line.direction) - after)
        gradient, first = after, found.step
    return line.decoder


def sampled_descent(
    root: Doubles, width: int, lengths: Lengths, steps: int, rng: np.random.Generator, *, batch: int = 256, rate: float
) -> Doubles:
    """Minimize the loss of sampled truncations of Gaussian examples with covariance root · root, from a random start.

    The rate of the steps falls linearly to 0.
    """
    decoder = polar(rng.standard_normal((len(root), width)))
    for step in range(steps):
        rows = rng.standard_normal((batch, len(root))) @ root
        kept = lengths.sample(batch, width, rng)[:, None] > np.arange(width)
        gradient = rows.T @ (rows @ decoder * kept) / batch
        decoder = polar(decoder + rate * (1 - step / steps) * tangent(decoder, gradient))
    return decoder
