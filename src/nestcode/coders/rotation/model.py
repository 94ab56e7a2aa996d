"""The fitted rotation coder: the mean and the spread of the data. Rotation and quantizers follow from the settings."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Doubles, as_floats
from nestcode.coders.base import ScalarLayout
from nestcode.coders.bit_planes import BitPlaneModel
from nestcode.coders.rotation.hadamard import random_rotation
from nestcode.coders.sampling import SAMPLE_BYTES, SAMPLE_ROWS, Outliers, Reservoir
from nestcode.coders.scalar_quantizer import DEPTH, BitPlanes, TreeQuantizer
from nestcode.errors import InvalidInput
from nestcode.storage import Arrays, check_arrays

QUANTILES = 1 << 14  # of the Gaussian that the quantizer is computed for
MOST_VALUES = 1 << 26  # of a rotation: a file of a few bytes for each feature stands for all of them


class GaussianQuantizer(NamedTuple):
    """The tree-structured quantizer of a standard Gaussian; its first two planes are those of Lloyd and Max."""

    thresholds: Doubles  # (2^8,): of each node of the tree
    levels: Doubles  # (2^9,): what each node decodes to
    errors: Doubles  # (9,): the mean squared error after each plane
    products: Doubles  # (9, 2): of a value x and its level y after each plane, the variance of xy and its covariance
    # with x^2 over sqrt(2), the standard deviation of x^2


class Spread:
    """The mean of rows and their squared distances from it, accumulated in pieces."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(1), 0.0

    def add(self, rows: NDArray[np.floating[Any]]) -> None:
        """Add rows, (n, features)."""
        if len(rows) == 0:
            return
        own = rows.mean(axis=0, dtype=np.float64)
        step = own - self.mean if self.count else 0 * own  # the pairwise update of Chan, Golub and LeVeque
        share = len(rows) / (self.count + len(rows))
        self.squares += float(np.sum((rows - own) ** 2)) + float(step @ step) * self.count * share
        self.mean = self.mean + share * step if self.count else own
        self.count += len(rows)


@dataclass(frozen=True, eq=False)
class RotationModel(BitPlaneModel):
    """A random rotation, and the same scalar quantizer in each of its directions."""

    plane_errors: Doubles  # (planes + 1,): the mean squared error of a row after each whole plane

    @classmethod
    def train(cls, parts: Iterable[NDArray[Any]], settings: dict[str, Any]) -> Self:
        """Return the model of rows that come in pieces: their mean, and their mean squared distance to it."""
        normalize = settings["metric"] == "cosine"
        spread, outliers = Spread(), Outliers()
        reservoir = Reservoir(np.random.default_rng(settings["seed"]), SAMPLE_ROWS, SAMPLE_BYTES)
        for part in parts:
            rows = as_floats(part, normalize=normalize)
            spread.add(rows)
            if not normalize:
                outliers.add(rows)
                reservoir.add(part)
        if spread.count == 0:
            raise InvalidInput("fit needs at least 1 item, got none")
        clipped = None if normalize else outliers.clip(reservoir.rows())
        if clipped is not None:
            spread = Spread()
            spread.add(clipped)
        mean = spread.mean
        planes = np.arange(_plane_count(settings, mean) + 1)
        errors = np.interp(planes, np.arange(DEPTH + 1), gaussian_quantizer().errors)
        return cls._build(settings, mean, spread.squares / spread.count * errors)

    @classmethod
    def _build(cls, settings: dict[str, Any], mean: Doubles, plane_errors: Doubles) -> Self:
        width, features = settings["width"], len(mean)
        if features * min(width, features) > MOST_VALUES:
            raise InvalidInput(
                f"a rotation has at most {MOST_VALUES:,} values, its width times the number of features, got {width} "
                f"and {features}: reduce the dimension first, or keep fewer bits"
            )
        directions = random_rotation(features, min(width, features), settings["seed"])
        useful = min(width, DEPTH * features) if plane_errors[0] > 0 else 0
        allocation = np.full(width, -1, dtype=np.int32)
        allocation[:useful] = np.arange(useful) % features
        lengths = np.minimum(np.arange(width + 1), useful)
        errors = np.interp(lengths, features * np.arange(len(plane_errors)), plane_errors)
        deepest, spread = -(-useful // features), np.sqrt(plane_errors[0] / features)  # of a coefficient
        quantizer = gaussian_quantizer()
        thresholds = (spread * quantizer.thresholds[: 1 << deepest]).astype(np.float32)
        levels = (spread * quantizer.levels[: 2 << deepest]).astype(np.float32)
        each = (len(directions), 1)
        planes = BitPlanes(allocation, errors, np.tile(thresholds, each), np.tile(levels, each))
        return cls(settings, mean, directions, errors, planes, plane_errors)

    def layout(self, length: int) -> ScalarLayout:
        """Return the first `length` bit planes, none of whose bits tells more than another."""
        return replace(super().layout(length), ordered=False)

    def estimate_deviation(self, length: int) -> float:
        """Return the largest standard deviation of estimated inner products with a query of norm 1, by its angle.

        Bits that explain a share c of an item turn it by an angle whose squared tangent is (1 - c) / c. That is the
        variance of the estimate where the query is orthogonal to the item, spread over the other directions. Where the
        query is parallel to the item, the variance is that of c itself among items of the same norm.
        """
        features, c = len(self.mean), 1 - self.errors[length] / self.errors[0]
        depth, rest = divmod(min(length, DEPTH * features), features)
        quantizer = gaussian_quantizer()
        whole, deeper = quantizer.products[depth], quantizer.products[min(depth + 1, DEPTH)]
        variance, covariance = whole + (deeper - whole) * rest / features  # averages over the coefficients
        parallel = max(variance - covariance**2, 0.0) / features / c**2
        orthogonal = (1 - c) / c / max(features - 1, 1)
        return float(np.sqrt(self.errors[0] * max(parallel, orthogonal)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays under their names on disk."""
        return {"mean": self.mean, "errors": self.plane_errors}

    @classmethod
    def from_arrays(cls, settings: dict[str, Any], arrays: Arrays) -> Self:
        """Return the model of checked settings and unchecked arrays, or raise ValueError."""
        mean, errors = arrays["mean"], arrays["errors"]
        planes = _plane_count(settings, mean)
        check_arrays(arrays, {"mean": (np.float64, (len(mean),)), "errors": (np.float64, (planes + 1,))})
        if errors.min() < 0 or (np.diff(errors) > 0).any():
            raise ValueError("its errors must be positive and fall")
        return cls._build(settings, mean, errors)


def _plane_count(settings: dict[str, Any], mean: Doubles) -> int:
    """Return how many planes of one bit for each feature a code has, the last one perhaps in part."""
    return int(-(-settings["width"] // max(len(mean), 1)))


@cache
def gaussian_quantizer() -> GaussianQuantizer:
    """Return the quantizer of a standard Gaussian, which the coefficients of a randomly rotated item nearly are."""
    sample = np.array([NormalDist().inv_cdf((i + 0.5) / QUANTILES) for i in range(QUANTILES)])
    sample /= sample.std()
    tree = TreeQuantizer(sample.astype(np.float32))
    gains = [tree.gain(depth) for depth in range(DEPTH)]
    thresholds, levels = (np.concatenate([[0.0], *rows]) for rows in (tree.thresholds, tree.levels))
    products = [np.zeros(2)]
    for depth in range(1, DEPTH + 1):
        edges = np.sort(np.concatenate(tree.thresholds[:depth]))
        product = sample * tree.levels[depth][np.searchsorted(edges, sample)]
        products.append(np.array([product.var(), np.mean(product * (sample**2 - 1)) / np.sqrt(2)]))
    return GaussianQuantizer(thresholds, levels, 1 - np.cumsum([0.0, *gains]), np.array(products))
