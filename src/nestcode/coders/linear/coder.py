"""LinearCoder: PCA, then an embedded scalar quantizer with greedy bit allocation.

PCA is the exact solution of nested dropout for a linear autoencoder (section 3 of the paper), and ordered bit planes
turn its units into bits. It needs no training loop, and it is the baseline that learned coders must beat.
"""

from nestcode.coders.base import Metric, check_settings
from nestcode.coders.linear.model import LinearModel
from nestcode.coders.projected import ProjectedCoder


class LinearCoder(ProjectedCoder[LinearModel]):
    """Principal directions with ordered bit planes; best for images and other data with a steep spectrum.

    >>> import numpy as np
    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = LinearCoder(width=64).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)), 4) for k in (0, 8, 16, 32, 64)]
    [0.0733, 0.0396, 0.0274, 0.0159, 0.007]

    Args:
        width: bits of a code. A direction takes at most 8, so at most 8 x features of them are useful.
        metric: "l2", or "cosine" to L2-normalize every item first and compare by angle.
        seed: of the sample that the scalar quantizers are trained on (at most 25,000 rows).

    """

    MODEL, KIND = LinearModel, "LinearCoder"

    def __init__(self, width: int, metric: Metric = "l2", seed: int = 0) -> None:
        check_settings(width, metric, seed)
        self.width = width
        self.metric = metric
        self.seed = seed
