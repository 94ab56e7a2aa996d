"""Inverted lists: the choice of lists that a query probes.

The codes that share their first `bits` bits are one inverted list. They lie side by side in a sorted array of codes, so
a list is a range of positions, and its decoded bits are the list's centroid.

    query ──▶ coarse distances to all centroids ──▶ probe the nearest lists until they hold `candidates` items

Centroids are sums of a coarse and a fine part, so that the inner products with 2^bits centroids come from two small
matrix products. `cpp/nestcode/inverted_lists.hpp` adds them up and probes.
"""

import numpy as np

from nestcode.arrays import Floats
from nestcode.codes import Codes
from nestcode.search.scorer import SearchMetric

MAX_LIST_BITS = 14


def default_list_bits(count: int, width: int) -> int:
    """Return how many bits name a list without a coarse quantizer: lists hold 64 to 128 of `count` items on average."""
    return max(0, min(count.bit_length() - 7, MAX_LIST_BITS, width))


def all_codes(bits: int) -> Codes:
    """Return every code of `bits` bits, in order."""
    return Codes.from_bits((np.arange(1 << bits)[:, None] >> np.arange(bits)[::-1] & 1).astype(bool))


class ListCentroids:
    """The centroids of all inverted lists: each is the sum of a coarse and a fine part.

    Args:
        coarse: (coarse, directions): the decoded first bits of a list's name.
        fine: (fine, directions): the contribution of its other bits.
        mean: the projection's mean in its own directions, (directions,).
        mean_square: the squared norm of the mean.

    """

    def __init__(self, coarse: Floats, fine: Floats, mean: Floats, mean_square: float) -> None:
        both = coarse[:, None] + fine[None]
        norms = np.einsum("cfd,cfd->cf", both, both, dtype=np.float64)
        lengths = np.sqrt(np.maximum(norms + 2 * (both @ mean) + mean_square, 1e-30))
        zeros, minus_two = np.zeros(norms.shape, dtype=np.float32), np.full(norms.shape, -2, dtype=np.float32)
        self.by_metric: dict[SearchMetric, tuple[Floats, Floats]] = {  # distance = product * scale + shift
            "l2": (minus_two, norms.astype(np.float32)),
            "cosine": ((-2 / lengths).astype(np.float32), zeros),
            "inner": (minus_two, zeros),
        }
        self.coarse, self.fine = _without_trailing_zeros(coarse), _without_trailing_zeros(fine)


def _without_trailing_zeros(centroids: Floats) -> Floats:
    """Drop the last directions in which all centroids are 0, but for one."""
    used = int(np.flatnonzero(centroids.any(axis=0)).max(initial=0)) + 1
    return np.ascontiguousarray(centroids[:, :used])
