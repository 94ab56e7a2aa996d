"""RotationCoder: a random rotation, then an embedded scalar quantizer. No training.

After a random rotation the coefficients of any item are nearly Gaussian and equally important. So the quantizer is
known before the data is: that of a Gaussian, the same in every direction, one bit plane after the other. That is the
code of RaBitQ (Gao and Long 2024) at one bit a dimension; extended RaBitQ (Gao et al. 2025) and TurboQuant (Zandieh et
al. 2025) take more. Theirs have one size each, ours is nested.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Floats, as_floats, check_int, check_rows, is_number, shown
from nestcode.coders.base import Metric, check_settings
from nestcode.coders.projected import ProjectedCoder
from nestcode.coders.rotation.model import RotationModel
from nestcode.codes import Codes
from nestcode.errors import InvalidInput


class RotationCoder(ProjectedCoder[RotationModel]):
    """A random rotation with ordered bit planes; needs no training, and bounds the errors of its estimates.

    Fitting takes the mean and the spread of the items, so a few hundred of them do. Every `features` bits are a plane:
    first the signs of all coefficients, then a bit that halves each interval, and so on.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((1000, 64))
    >>> coder = RotationCoder(width=256, metric="cosine").fit(X[:100])
    >>> codes = coder.encode(X)
    >>> cosines = X[:5] @ X.T / np.outer(np.linalg.norm(X[:5], axis=1), np.linalg.norm(X, axis=1))
    >>> for bits in (64, 128):
    ...     errors, bound = np.abs(coder.inner_products(X[:5], codes.prefix(bits)) - cosines), coder.error_bound(bits)
    ...     print(f"{np.mean(errors < bound):.0%} of the errors are below {bound:.2f}")
    100% of the errors are below 0.31
    100% of the errors are below 0.18

    Args:
        width: bits of a code: 1, 2 or 4 x features are usual. A direction takes at most 8.
        metric: "l2", or "cosine" to L2-normalize every item first and compare by angle.
        seed: of the rotation.

    """

    MODEL, KIND = RotationModel, "RotationCoder"

    def __init__(self, width: int, metric: Metric = "l2", seed: int = 0) -> None:
        check_settings(width, metric, seed)
        self.width = width
        self.metric = metric
        self.seed = seed

    def inner_products(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Return unbiased estimates of the inner products of queries and items, (queries, items).

        Decoded codes are shorter than the items, so their inner products are too small. The estimator divides them by
        the expected ratio (RaBitQ stores the ratio of each item). Over random rotations the estimate of an item at the
        root mean square distance from the mean is unbiased, at any length of the codes but 0.

        Args:
            queries: (n, features); for the metric "cosine" they are L2-normalized, like the items.
            codes: `Codes` of any length from 1 to the coder's width.

        """
        model = self._fitted()
        self.check_codes(codes)
        share = self._explained(codes.width)
        rows = as_floats(check_rows(queries, features=len(model.mean)), normalize=model.normalize)
        products = (rows @ model.directions.T).astype(np.float32) @ self.coefficients(codes).T / np.float32(share)
        return np.asarray(products + (rows @ model.mean)[:, None], dtype=np.float32)

    def error_bound(self, length: int, confidence: float = 0.99) -> float:
        """Return the bound that the error of `inner_products` exceeds with a probability of at most 1 - confidence.

        The bound holds for a query of norm 1 and is proportional to the norm. It is ε standard deviations, with 1 -
        confidence = 2 exp(-ε² / 2), as for any projection of a uniform direction. With one bit a dimension the
        deviation is 0.76 / sqrt(features) times the item's distance from the mean.

        Args:
            length: bits of the codes, at least 1.
            confidence: the probability over random rotations that the bound holds, between 0 and 1.

        """
        if not is_number(confidence) or not 0 < confidence < 1:
            raise InvalidInput(f"confidence must be between 0 and 1, got {shown(confidence)}: give 0.99, for example")
        length = check_int(length, "length", least=0)
        share = self._explained(length)
        return sqrt(2 * log(2 / (1 - confidence))) * self._fitted().estimate_deviation(length) if share < 1 else 0.0

    def _explained(self, length: int) -> float:
        """Return the share of the squared norm of items that codes of a length explain."""
        if length == 0:
            raise InvalidInput("codes of 0 bits estimate nothing, got length 0: give longer codes")
        whole = self.expected_error(0)
        return 1 - self.expected_error(length) / whole if whole > 0 else 1.0
