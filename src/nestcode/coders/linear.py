"""The linear coder: principal directions and ordered bit planes.

PCA is the exact solution of nested dropout for a linear autoencoder (section 3 of the paper), and `_planes.py` turns
its units into bits in order of importance. It needs no training loop, and it is the bar that learned coders must clear.
"""

import os
from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.coders import _tables
from nestcode.coders._planes import DEPTH, Planes, order_bits
from nestcode.coders._principal import measure, principal_directions
from nestcode.coders._rows import Floats, as_floats, check_rows, pieces
from nestcode.coders.base import Coder, warn_of_useless_bits
from nestcode.codes import Codes
from nestcode.errors import InvalidInput, whole_number
from nestcode.principal import Doubles
from nestcode.storage import Record

THREADS = os.cpu_count() or 1


class LinearCoder(Coder):
    """Principal directions with ordered bit planes; best for images and other data with a steep spectrum.

    >>> from nestcode.data import digits
    >>> X, _ = digits()
    >>> coder = LinearCoder(width=64).fit(X)
    >>> codes = coder.encode(X)
    >>> [round(float(np.mean((X - coder.decode(codes.prefix(k))) ** 2)), 4) for k in (0, 8, 16, 32, 64)]
    [0.0733, 0.0396, 0.0274, 0.0159, 0.007]

    Args:
        width: bits of a code. A direction takes at most 8, so at most 8 x features of them can be useful.
        metric: "l2", or "cosine" to scale every item to length 1 first.
        seed: of the sample that the bit planes are grown on (at most 25,000 rows).

    """

    def __init__(self, width: int, metric: Literal["l2", "cosine"] = "l2", seed: int = 0) -> None:
        whole_number(width, "width", least=1)
        whole_number(seed, "seed", least=0)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        self.width = width
        self.metric = metric
        self.seed = seed
        self._model: tuple[Floats, Floats, Planes] | None = None  # mean, directions as rows, bit planes

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        rng = np.random.default_rng(self.seed)
        moments, sample = measure(pieces(X), normalize=self._normalize, rng=rng)
        mean, covariance = moments.mean().astype(np.float32), moments.covariance()
        most = min(self.width, len(mean))
        directions, planes = self._order(covariance, sample, mean, most // 2 + 1, rng)
        if len(planes.thresholds) > most // 2:  # every direction got bits, so more of them may deserve some
            directions, planes = self._order(covariance, sample, mean, most, rng)
        self._model = mean, np.ascontiguousarray(directions[: len(planes.thresholds)]), planes
        useful = int((planes.owners >= 0).sum())
        if useful < self.width:
            warn_of_useless_bits(useful, self.width)
        return self

    def _order(
        self, covariance: Doubles, sample: NDArray[Any], mean: Floats, count: int, rng: np.random.Generator
    ) -> tuple[Floats, Planes]:
        """The leading `count` directions, and the bits spent on them."""
        variances, directions = principal_directions(covariance, count, rng)
        coefficients = np.concatenate([self._project(part, mean, directions) for part in pieces(sample)])
        return directions, order_bits(coefficients, variances, float(np.trace(covariance)), self.width)

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        mean, directions, planes = self._fitted()
        rows = check_rows(X, features=len(mean))
        depths = np.bincount(planes.owners[planes.owners >= 0], minlength=len(directions)).astype(np.uint8)
        width = len(planes.owners)  # of the fit: a setting changed since waits for the next one
        sources = np.full(-(-width // 8) * 8, -1, dtype=np.int32)
        sources[:width] = np.where(planes.owners >= 0, 8 * planes.owners + _levels(planes.owners), -1)
        packed = np.empty((len(rows), len(sources) // 8), dtype=np.uint8)
        done = 0
        for part in pieces(rows):
            coefficients = self._project(part, mean, directions)
            cells = np.empty(coefficients.shape, dtype=np.uint8)
            _core.find_cells(coefficients, planes.thresholds, depths, cells, threads=THREADS)
            _core.permute_bits(cells, sources, packed[done : done + len(part)], threads=THREADS)
            done += len(part)
        return Codes._wrap(packed, width)

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean."""
        mean, directions, planes = self._fitted()
        self._check_length(codes, len(planes.owners))
        depths = np.bincount(planes.owners[: codes.width][planes.owners[: codes.width] >= 0], minlength=len(directions))
        active = np.flatnonzero(depths)
        sources = np.full((len(active), 8), -1, dtype=np.int32)
        for row, direction in enumerate(active):  # a direction's bits, at the low end of a byte
            sources[row, 8 - depths[direction] :] = np.flatnonzero(planes.owners[: codes.width] == direction)
        out = np.empty((len(codes), len(mean)), dtype=np.float32)
        for first in range(0, len(codes), 4096):
            part = codes.packed[first : first + 4096]
            cells = np.empty((len(part), len(active)), dtype=np.uint8)
            _core.permute_bits(part, sources.reshape(-1), cells, threads=THREADS)
            nodes = cells.astype(np.intp) + (1 << depths[active])
            coefficients = planes.centers[active, nodes]
            np.matmul(coefficients, directions[active], out=out[first : first + 4096])
        out += mean
        return out

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature when `length` bits are kept, as measured on the training data."""
        mean, _, planes = self._fitted()
        if whole_number(length, "length", least=0) >= len(planes.errors):
            raise InvalidInput(f"length must be between 0 and the coder's width {len(planes.owners)}, got {length}")
        return float(planes.errors[length] / len(mean))

    def asymmetric_distances(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Squared distances from raw queries to decoded codes, (queries, items), without decoding any.

        >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
        >>> coder = LinearCoder(width=20).fit(X)
        >>> codes = coder.encode(X).prefix(15)
        >>> slow = ((X[:3, None] - coder.decode(codes)) ** 2).sum(axis=2)
        >>> np.allclose(coder.asymmetric_distances(X[:3], codes), slow, atol=1e-4)
        True
        """
        coefficients, outside, layout = self._prepare(queries, codes)
        centers = self._fitted()[2].centers
        terms = {}
        for d in np.flatnonzero(layout.depths):
            terms[int(d)] = (coefficients[:, d, None] - centers[d, 1 << layout.depths[d] : 2 << layout.depths[d]]) ** 2
            outside -= coefficients[:, d] ** 2
        return self._sum(codes, layout, terms, len(coefficients)) + np.maximum(outside, 0)[:, None]

    def cell_distances(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Squared distances from queries to the cells of codes, (queries, items): how far it is at least to an item.

        The cell of a code is all that shares it: a box in the principal directions. Its distance is 0 for the query's
        own code, never falls as codes grow longer, and is at most the distance to any item with that code.

        >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
        >>> coder = LinearCoder(width=20).fit(X)
        >>> float(coder.cell_distances(X, coder.encode(X)).diagonal().max())
        0.0
        """
        coefficients, _, layout = self._prepare(queries, codes)
        thresholds = self._fitted()[2].thresholds
        terms = {}
        for d in np.flatnonzero(layout.depths):
            edges = _edges(thresholds[d], int(layout.depths[d]))
            numbers = coefficients[:, d, None]
            terms[int(d)] = np.maximum(np.maximum(edges[:-1] - numbers, numbers - edges[1:]), 0) ** 2
        return self._sum(codes, layout, terms, len(coefficients))

    def _prepare(self, queries: ArrayLike, codes: Codes) -> tuple[Floats, Floats, _tables.Layout]:
        """The queries' coefficients and squared lengths, and where the codes keep what is compared with them."""
        mean, directions, planes = self._fitted()
        self._check_length(codes, len(planes.owners))
        centered = as_floats(check_rows(queries, features=len(mean)), normalize=self._normalize) - mean
        layout = _tables.plan(planes.owners[: codes.width], len(directions))
        coefficients: Floats = np.matmul(centered, directions.T)
        squares: Floats = np.einsum("ij,ij->i", centered, centered)
        return coefficients, squares, layout

    def _sum(self, codes: Codes, layout: _tables.Layout, terms: dict[int, Floats], queries: int) -> Floats:
        cells = _tables.regroup(codes.packed, layout, THREADS)
        return _tables.sum_up(cells, _tables.combine(layout, terms, queries), THREADS)

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return len(self._fitted()[0])

    @property
    def _normalize(self) -> bool:
        return self.metric == "cosine"

    def _project(self, rows: NDArray[np.generic], mean: Floats, directions: Floats) -> Floats:
        coefficients: Floats = np.matmul(as_floats(rows, normalize=self._normalize) - mean, directions.T)
        return coefficients

    def _fitted(self) -> tuple[Floats, Floats, Planes]:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def _to_record(self) -> Record:
        mean, directions, planes = self._fitted()
        arrays = {"mean": mean, "directions": directions, **vars(planes)}
        settings = {"width": len(planes.owners), "metric": self.metric, "seed": int(self.seed)}
        return Record("LinearCoder", self.VERSION, settings, arrays)

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        planes = Planes(**{name: record.arrays[name] for name in ("owners", "errors", "thresholds", "centers")})
        mean, directions = record.arrays["mean"], record.arrays["directions"]
        depths = np.bincount(planes.owners[planes.owners >= 0], minlength=len(directions))
        deepest = int(depths.max(initial=0))
        expected = {
            "mean": (mean, np.float32, mean.shape[:1]),
            "directions": (directions, np.float32, (len(depths), len(mean))),
            "owners": (planes.owners, np.int32, (coder.width,)),
            "errors": (planes.errors, np.float64, (coder.width + 1,)),
            "thresholds": (planes.thresholds, np.float32, (len(depths), 1 << deepest)),
            "centers": (planes.centers, np.float32, (len(depths), 2 << deepest)),
        }
        for name, (array, dtype, shape) in expected.items():
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}, expected {dtype} of {shape}")
        if deepest > DEPTH:
            raise ValueError(f"a direction has {deepest} bits, at most {DEPTH} are possible")
        coder._model = mean, directions, planes
        return coder


def _levels(owners: NDArray[np.int32]) -> NDArray[np.int32]:
    """Which bit of its direction each bit is, from 0."""
    levels = np.zeros(len(owners), dtype=np.int32)
    seen = np.zeros(owners.max(initial=-1) + 2, dtype=np.int32)
    for place, owner in enumerate(owners):
        levels[place] = seen[owner]
        seen[owner] += 1
    return levels


def _edges(tree: Floats, depth: int) -> Floats:
    """The borders of a tree's cells from left to right, (2^depth + 1,)."""
    edges = np.array([-np.inf, np.inf], dtype=np.float32)
    for level in range(depth):
        finer = np.empty(2 * len(edges) - 1, dtype=np.float32)
        finer[::2], finer[1::2] = edges, tree[1 << level : 2 << level]
        edges = finer
    return edges
