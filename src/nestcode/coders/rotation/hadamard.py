"""A random rotation by fast Hadamard transforms: what a seed and a number of features stand for.

A round permutes the coordinates and flips their signs at random, then transforms the first and the last 2^k of them,
where 2^k is the largest power of two up to the number of features. Three rounds spread any vector over all coordinates
(Ailon and Chazelle, "The fast Johnson–Lindenstrauss transform and approximate nearest neighbors", 2009; Andoni et al.
2015 take three rounds as well).
"""

import numpy as np

from nestcode.arrays import Floats

ROUNDS = 3


def random_rotation(features: int, count: int, seed: int) -> Floats:
    """Return the first `count` rows of the random rotation of a seed, (count, features): they are orthonormal.

    >>> turn = random_rotation(features=6, count=6, seed=0)
    >>> np.allclose(turn @ turn.T, np.eye(6), atol=1e-6)
    True
    """
    block = 1 << (features.bit_length() - 1)
    # Raw bits of a generator, unlike its distributions, are the same in all versions of NumPy.
    raw = np.random.PCG64(seed).random_raw((ROUNDS, features))
    orders, signs = np.argsort(raw, axis=1), 1 - 2 * (raw & np.uint64(1)).astype(np.float32)
    columns = np.eye(features, count, dtype=np.float32)
    for order, flips in zip(orders, signs, strict=True):  # the transposed rotation: each round from its end
        if block < features:
            _hadamard(columns[-block:])
        _hadamard(columns[:block])
        columns *= flips[:, None]
        columns = columns[order]
    return np.ascontiguousarray(columns.T)


def _hadamard(columns: Floats) -> None:
    """Transform columns in place, (2^k, n), by the orthonormal Hadamard matrix."""
    half = 1
    while half < len(columns):
        pairs = columns.reshape(-1, 2, half, columns.shape[1])
        sums = pairs[:, 0] + pairs[:, 1]
        np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
        pairs[:, 0] = sums
        half *= 2
    columns /= np.float32(np.sqrt(len(columns)))
