"""The linear coder: principal directions and ordered bit planes.

PCA is the exact solution of nested dropout for a linear autoencoder (section 3 of the paper), and `_planes.py` turns
its units into bits in order of importance. It needs no training loop, and it is the bar that learned coders must clear.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Doubles, Floats, center, check_int, check_rows, pieces, project, squared_norms
from nestcode.coders import sampling as _principal
from nestcode.coders.base import Coder, error_at, warn_of_useless_bits
from nestcode.coders.bit_planes import Planes, check_planes, order_bits, pack_bits, read_bits
from nestcode.coders.sampling import Reservoir, moments_and_sample, principal_directions
from nestcode.codes import CORES, Codes
from nestcode.errors import InvalidInput
from nestcode.search import adc as _tables
from nestcode.search.sums import PlaneRanking, SumRanking
from nestcode.storage import Record, check_arrays


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
        check_int(width, "width", least=1)
        check_int(seed, "seed", least=0)
        if metric not in ("l2", "cosine"):
            raise InvalidInput(f'metric must be "l2" or "cosine", got {metric!r}')
        self.width = width
        self.metric = metric
        self.seed = seed
        self._model: tuple[Doubles, Floats, Planes] | None = None  # mean, directions as rows, bit planes
        self._normalize = False  # of the fit: a setting changed since waits for the next one

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: object = None) -> Self:  # noqa: ARG002
        """Learn from data, (n, features): an array, a memory map, or an iterable of arrays larger than memory."""
        rng = np.random.default_rng(self.seed)
        normalize = self.metric == "cosine"
        sample_of = Reservoir(rng, _principal.SAMPLE_ROWS, _principal.SAMPLE_BYTES)
        moments, rows = moments_and_sample(pieces(X), normalize=normalize, reservoir=sample_of)
        mean = moments.mean()
        directions = principal_directions(moments.covariance(), min(self.width, len(mean)), rng)
        sample = [center(part, mean, normalize=normalize) for part in pieces(rows)]
        total = float(sum(squared_norms(part).sum() for part in sample) / len(rows))
        for count in (len(directions) // 2 + 1, len(directions)):  # half of them is mostly enough, and half the work
            coefficients = np.concatenate([part @ directions[:count].T for part in sample])
            planes = order_bits(coefficients, total, self.width)
            if len(planes.thresholds) < count:
                break
        self._model = mean, np.ascontiguousarray(directions[: len(planes.thresholds)]), planes
        self._normalize = normalize
        useful = int((planes.owners >= 0).sum())
        if useful < self.width:
            warn_of_useless_bits(useful, self.width)
        self._learn_columns(X)
        return self

    def encode(self, X: ArrayLike) -> Codes:
        """(n, features) -> codes of `width` bits."""
        mean, _, planes = self._fitted()
        rows = check_rows(X, features=len(mean))
        packed = np.empty((len(rows), -(-len(planes.owners) // 8)), dtype=np.uint8)
        done = 0
        for part in pieces(rows):
            pack_bits(self._project(part), planes, packed[done : done + len(part)])
            done += len(part)
        return Codes.unchecked(packed, len(planes.owners))

    def decode(self, codes: Codes) -> Floats:
        """Codes of any length from 0 to `width` -> (n, features); length 0 gives the mean."""
        mean, directions, planes = self._fitted()
        coefficients = self._coefficients(codes)
        used = int(planes.owners[: codes.width].max(initial=-1)) + 1
        out: Floats = coefficients[:, :used] @ directions[:used]
        out += mean.astype(np.float32)
        return out

    def expected_error(self, length: int) -> float:
        """The mean squared error of a feature at `length` bits, as measured on the sample the bits were grown on."""
        mean, _, planes = self._fitted()
        return error_at(length, planes.errors, len(mean))

    def asymmetric_distances(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Squared distances from raw queries to decoded codes, (queries, items), by table look-ups.

        With metric "cosine" decoded items are scaled to length 1, as the queries are: what counts is the angle.

        >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
        >>> coder = LinearCoder(width=20).fit(X)
        >>> codes = coder.encode(X).prefix(15)
        >>> slow = ((X[:3, None] - coder.decode(codes)) ** 2).sum(axis=2)
        >>> np.allclose(coder.asymmetric_distances(X[:3], codes), slow, atol=1e-4)
        True
        """
        centers = self._fitted()[2].centers

        def term(numbers: Floats, direction: int, depth: int) -> Floats:
            square: Floats = (numbers[:, None] - centers[direction, 1 << depth : 2 << depth]) ** 2
            return square

        distances = self._by_tables(queries, codes, term, outside=True)
        return self._by_angle(queries, codes, distances) if self._normalize else distances

    def cell_distances(self, queries: ArrayLike, codes: Codes) -> Floats:
        """Squared distances from queries to the cells of codes, (queries, items): how far it is at least to an item.

        The cell of a code is all that shares it: a box in the principal directions. Up to rounding its distance is 0
        for the query's own code, never falls as codes grow longer, and is at most that to any item with that code.

        >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
        >>> coder = LinearCoder(width=20).fit(X)
        >>> bool(coder.cell_distances(X, coder.encode(X)).diagonal().max() < 1e-9)
        True
        """
        thresholds = self._fitted()[2].thresholds

        def term(numbers: Floats, direction: int, depth: int) -> Floats:
            edges = _edges(thresholds[direction], depth)
            beyond: Floats = np.maximum(edges[:-1] - numbers[:, None], numbers[:, None] - edges[1:])
            return np.maximum(beyond, 0) ** 2

        return self._by_tables(queries, codes, term, outside=False)

    def _by_tables(
        self, queries: ArrayLike, codes: Codes, term: Callable[[Floats, int, int], Floats], *, outside: bool
    ) -> Floats:
        """Sum a direction's term over all directions in use; `outside` adds what lies beyond them."""
        mean, directions, planes = self._fitted()
        self._check_length(codes, len(planes.owners))
        rows = check_rows(queries, features=len(mean))
        layout = _tables.plan(planes.owners[: codes.width], len(directions))
        cells = _tables.regroup(codes.packed, layout, CORES)
        used = np.flatnonzero(layout.depths)
        distances = np.empty((len(rows), len(codes)), dtype=np.float32)
        for first in range(0, len(rows), 256):  # tables take 1 kB for each query and byte of code
            centered = center(rows[first : first + 256], mean, normalize=self._normalize)
            coefficients: Floats = centered @ directions.T
            terms = {int(d): term(coefficients[:, d], int(d), int(layout.depths[d])) for d in used}
            sums = _tables.sum_up(cells, _tables.combine(layout, terms, len(centered)), CORES)
            if outside:
                rest = squared_norms(centered) - squared_norms(coefficients[:, used])
                sums += np.maximum(rest, 0)[:, None].astype(np.float32)
            distances[first : first + 256] = sums
        return distances

    @property
    def n_features_in_(self) -> int:
        """How many features the coder was fitted on."""
        return len(self._fitted()[0])

    def _fitted(self) -> tuple[Doubles, Floats, Planes]:
        if self._model is None:
            raise self._not_fitted()
        return self._model

    def _project(self, queries: ArrayLike) -> Floats:
        """Rows in principal directions around the mean, (n, directions)."""
        mean, directions, _ = self._fitted()
        return project(queries, mean, directions, normalize=self._normalize)

    def _basis(self) -> tuple[Doubles, Floats]:
        """The mean, and the directions that `_coefficients` are in."""
        mean, directions, _ = self._fitted()
        return mean, directions

    def _coefficients(self, codes: Codes, threads: int = CORES) -> Floats:
        """What codes decode to in principal directions around the mean, (n, directions)."""
        planes = self._fitted()[2]
        self._check_length(codes, len(planes.owners))
        return read_bits(codes.packed, planes, codes.width, threads=threads)

    def _ranking(self, width: int) -> SumRanking:
        mean, directions, planes = self._fitted()
        return PlaneRanking(self, mean, directions, planes, width)

    def to_record(self) -> Record:
        """Return the fitted coder as a record."""
        mean, directions, planes = self._fitted()
        arrays = {"mean": mean, "directions": directions, **vars(planes)}
        metric = "cosine" if self._normalize else "l2"
        settings = {"width": len(planes.owners), "metric": metric, "seed": int(self.seed)}
        return Record("LinearCoder", self.VERSION, settings, arrays)

    @classmethod
    def _read(cls, record: Record) -> Self:
        coder = cls(**record.settings)
        planes = Planes(**{name: record.arrays[name] for name in ("owners", "errors", "thresholds", "centers")})
        mean, directions = record.arrays["mean"], record.arrays["directions"]
        shapes: dict[str, tuple[type[Any], tuple[int, ...]]] = {
            "mean": (np.float64, mean.shape[:1]),
            "directions": (np.float32, (len(directions), len(mean))),
        }
        check_arrays(record.arrays, shapes)
        check_planes(planes, coder.width, len(directions))
        coder._model, coder._normalize = (mean, directions, planes), coder.metric == "cosine"
        return coder


def _edges(tree: Floats, depth: int) -> Floats:
    """The borders of a tree's cells from left to right, (2^depth + 1,)."""
    edges = np.array([-np.inf, np.inf], dtype=np.float32)
    for level in range(depth):
        finer = np.empty(2 * len(edges) - 1, dtype=np.float32)
        finer[::2], finer[1::2] = edges, tree[1 << level : 2 << level]
        edges = finer
    return edges
