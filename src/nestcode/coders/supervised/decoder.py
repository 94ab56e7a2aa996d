"""The best linear decoder of every prefix at once: least squares on bits made uncorrelated one after another.

Each bit is replaced by what the bits before it do not predict (the inverse Cholesky factor of the bits' covariance).
Uncorrelated regressors have separate coefficients, so the decoder of `length` bits is the first `length` terms.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats, squared_norms
from nestcode.storage import Arrays

RIDGE = 1e-3  # added to the variance of bits, which are nearly predicted by those before them
PREFIX = "decoder."  # of the arrays in a file
NAMES = {"mean": "mean", "bit_means": "offsets", "whitening": "apart", "coefficients": "steps"}  # attribute: in a file


@dataclass(frozen=True)
class PrefixDecoder:
    """A linear decoder for every prefix of a code.

    >>> rng = np.random.default_rng(0)
    >>> bits = rng.random((500, 3)) < 0.5
    >>> decoder = PrefixDecoder.fit(bits.astype(float), bits @ np.array([[4.0], [2.0], [1.0]]))
    >>> decoder.decode(bits[:2]).round(1).tolist() == (bits[:2] @ np.array([[4.0], [2.0], [1.0]])).tolist()
    True
    """

    mean: NDArray[np.float64]  # (features,)
    bit_means: NDArray[np.float64]  # (width,)
    whitening: NDArray[np.float64]  # (width, width), lower triangular
    coefficients: NDArray[np.float64]  # (width, features), of the whitened bits

    @classmethod
    def fit(cls, bits: NDArray[np.float64], rows: Floats) -> Self:
        """Fit by least squares, (n, width), (n, features)."""
        bit_means, mean = bits.mean(axis=0), rows.mean(axis=0, dtype=np.float64)
        centered = bits - bit_means
        covariance = centered.T @ centered / len(bits) + RIDGE * np.eye(bits.shape[1])
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))
        return cls(mean, bit_means, whitening, whitening @ (centered.T @ (rows - mean)) / len(bits))

    def decode(self, bits: NDArray[np.bool_]) -> Floats:
        """Return the rows that bits of any length decode to, (n, length) -> (n, features)."""
        length = bits.shape[1]
        whitened = (bits - self.bit_means[:length]) @ self.whitening[:length, :length].T
        return (self.mean + whitened @ self.coefficients[:length]).astype(np.float32)

    def errors(self, bits: NDArray[np.float64], rows: Floats) -> NDArray[np.float64]:
        """Return the squared error of a row at every length, (width + 1,)."""
        whitened = (bits - self.bit_means) @ self.whitening.T
        residual: NDArray[Any] = rows - self.mean
        errors = [float(squared_norms(residual).mean())]
        for bit in range(bits.shape[1]):
            residual = residual - whitened[:, bit, None] * self.coefficients[bit]
            errors.append(float(squared_norms(residual).mean()))
        return np.array(errors)

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {PREFIX + name: getattr(self, attribute) for attribute, name in NAMES.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], width: int, features: int) -> Self:
        """Take out the arrays that `to_arrays` gave, and check them."""
        own = [arrays.pop(PREFIX + name) for name in NAMES.values()]
        for array, shape in zip(own, ((features,), (width,), (width, width), (width, features)), strict=True):
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"its decoder has an array of shape {array.shape}, expected finite values of {shape}")
        return cls(*own)
