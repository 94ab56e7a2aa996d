"""Distances in a coder's projection: queries are projected and compared with decoded coefficients."""

from abc import abstractmethod
from functools import lru_cache, partial
from typing import Any
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import LARGEST_SQUARE, Bytes, Floats
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.decoded import compare
from nestcode.search.inverted_lists import ListCentroids
from nestcode.search.request import Request
from nestcode.search.scorer import Scorer, SearchMetric

COMPLEMENT = 1 << 28  # products of values: .1 s
NEAR_ONE = 0.05  # norms that differ less from 1 are taken for it


class ProjectedScorer(Scorer):
    """Reranks by distances between coefficients of a projection, and probes lists by their centroids there."""

    def __init__(self, coder: Coder, width: int) -> None:
        super().__init__(width)
        projection = coder.projection()
        assert projection is not None, "a coder with a layout has a projection"
        self.coder, self.features, self._projection = coder, coder.n_features_in_, projection
        self.mean = (projection.directions @ projection.mean).astype(np.float32)
        self.mean_square = float(projection.mean @ projection.mean)
        self._mean_rest = _outside(projection.directions, projection.mean)
        self._rest_norm = float(np.linalg.norm(self._mean_rest))
        variance = coder.expected_error(0) * len(projection.mean)
        norm = np.float32(np.sqrt(self.mean_square + variance))  # of an item, as a root mean square
        self.unit = float(norm) if norm > 0 and abs(norm - 1) >= NEAR_ONE else 1.0
        self._list_centroids = lru_cache(maxsize=4)(partial(_list_centroids, proxy(self)))  # no reference cycle
        self._code_formats = lru_cache(partial(_code_format, proxy(self)))

    @property
    def projected(self) -> "ProjectedScorer":  # type: ignore[override]
        """The scorer itself."""
        return self

    # by whole codes

    def distances(self, request: Request, codes: Codes) -> Floats:
        """Return the distances from each query to its own share of the codes, (queries, codes / queries).

        One more coefficient stands for the part of a query, or of the mean, outside of the directions.
        """
        coefficients, products = self._project(request)
        decoded = self.coder.coefficients(codes, request.threads)
        if request.metric == "l2":  # a difference of squares would cancel far from the mean
            rest = request.rows - self._projection.mean - coefficients @ self._projection.directions
            more, own = np.sqrt(np.einsum("nf,nf->n", rest, rest)), 0.0
        elif request.metric == "inner":
            more, own = products, 1.0
        else:
            decoded, own = decoded + self.mean, self._rest_norm
            more = (products - coefficients @ self.mean) / (own or 1.0)
        return compare(
            np.column_stack([coefficients, more]),
            np.column_stack([decoded, np.full(len(decoded), own)]),
            request.metric,
            request.threads,
        )

    def _project(self, request: Request) -> tuple[Floats, NDArray[np.float64]]:
        """Return the coefficients of queries, around the mean for "l2", and their inner products with the mean."""
        mean, rows = self._projection.mean, request.rows
        centered = rows - mean if request.metric == "l2" else rows
        return centered.astype(np.float32, copy=False) @ self._projection.directions.T, rows @ mean

    @property
    @abstractmethod
    def decoder(self) -> _core.CoefficientDecoder:
        """The format by which the core decodes single codes."""

    def code_format(self, metric: SearchMetric) -> _core.CodeFormat:
        """Return how the core decodes codes to scan them."""
        return self._code_formats(metric == "l2")

    @abstractmethod
    def _make_code_format(self, origin: Floats) -> _core.CodeFormat:
        """Return how the core decodes codes to scan them, given the coordinates of the mean, (directions + 2,)."""

    @abstractmethod
    def scanned_codes(self, codes: Codes) -> tuple[Bytes, NDArray[np.int64]]:
        """Return codes in that format, and the centroid of each if there is more than one."""

    # by lists

    @abstractmethod
    def split_centroids(self, bits: int) -> tuple[Floats, Floats]:
        """Return the two parts of the centroids of lists named by `bits` bits: (coarse, directions), (fine, …)."""

    @abstractmethod
    def list_scoring(self, metric: SearchMetric, bits: int) -> _core.ListScoring:
        """Return how the core ranks lists named by `bits` bits and estimates the distances of their items."""

    @property
    def used_directions(self) -> int:
        """How many leading directions estimates read."""
        return len(self._projection.directions)

    def list_distances(self, request: Request, bits: int) -> Floats:
        """Return the distances from queries to the centroids of all lists, (queries, 2^bits), up to a shared term."""
        coefficients, products = self._project(request)
        parts = self._list_centroids(bits)
        scales, shifts = parts.by_metric[request.metric]
        coarse, fine = (coefficients[:, : part.shape[1]] @ part.T for part in (parts.coarse, parts.fine))
        both = coarse[:, :, None] + fine[:, None]
        if request.metric == "cosine":
            both += products[:, None, None]
        return (both * scales + shifts).reshape(len(coefficients), -1).astype(np.float32, copy=False)

    def row_projection(self, metric: SearchMetric, bits: int | None, *, whole: bool) -> _core.RowProjection:
        """Return the projection of rows for lists named by `bits` bits, if any: on all directions, or those in use."""
        mean, directions = self._projection.mean, self._projection.directions
        normalized = self.coder.metric_ == "cosine"
        coarse: Floats | NDArray[np.uint16] = np.zeros((0, len(mean)), dtype=np.float32)
        used = 0
        if bits is not None:
            parts = self._list_centroids(bits)
            coarse, leading = np.ascontiguousarray(parts.coarse), parts.coarse.shape[1]
            used = max(self.used_directions, parts.fine.shape[1])
            if coarse.size + max(leading - used, 0) * len(mean) < len(coarse) * len(mean):  # many centroids
                used = max(used, leading)
                if normalized and not whole:  # of L2-normalized items, and lists are all it ranks
                    coarse = coarse.astype(np.float16).view(np.uint16)
            else:
                coarse = np.ascontiguousarray(coarse @ directions[:leading], dtype=np.float32)
        return _core.RowProjection(
            metric,
            normalized,
            self._norm_of_queries(metric),
            mean,
            directions,
            len(directions) if whole else used,
            coarse,
            self._complement if whole else np.zeros((0, len(mean)), dtype=np.float32),
            self.mean,
            self.mean_square,
            self._mean_rest,
        )

    @lazy_property
    def _complement(self) -> Floats:
        """An orthonormal basis of the complement of the directions, or none if it takes long to find or use."""
        directions = self._projection.directions.astype(np.float64)
        count, features = directions.shape
        missing = features - count
        if 2 * missing > count or missing * directions.size > COMPLEMENT:
            missing = 0
        rows = np.random.default_rng(0).standard_normal((missing, features))
        for _ in range(2):  # the second time what rounding left
            rows -= rows @ directions.T @ directions
            rows = np.linalg.qr(rows.T)[0].T
        return np.ascontiguousarray(rows, dtype=np.float32)

    def _norm_of_queries(self, metric: SearchMetric) -> float:
        """Return the norm of an item, to which queries of the cosine are scaled, so that "l2" ranks them alike."""
        if metric == "cosine" and self.unit**2 >= LARGEST_SQUARE:
            raise InvalidInput(
                f"the squared norm of an item must be below {LARGEST_SQUARE:g}, so that estimates fit float32, "
                f'got {self.unit**2:.2g} on average: rescale the data, or fit a coder with metric="cosine"'
            )
        return self.unit if metric == "cosine" else 1.0

    def _list_parts(self, metric: SearchMetric, bits: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what all products with coarse parts lack, the fine parts, and the scale and shift of each list."""
        parts = self._list_centroids(bits)
        offsets = np.zeros(len(parts.coarse), dtype=np.float32)
        if metric == "cosine":
            offsets += parts.coarse @ self.mean[: parts.coarse.shape[1]]
        return offsets, parts.fine, *parts.by_metric[metric]


def _list_centroids(scorer: ProjectedScorer, bits: int) -> ListCentroids:
    return ListCentroids(*scorer.split_centroids(bits), scorer.mean, scorer.mean_square)


def _outside(directions: Floats, row: NDArray[Any]) -> NDArray[np.float64]:
    """Return the part of a row outside of orthonormal directions; zeros where that is only the rest of rounding."""
    rest = row.astype(np.float64)
    for _ in range(2):  # a rest of rounding lies in the directions again
        before = rest
        rest = before - (directions @ before) @ directions
    return rest if np.linalg.norm(rest) > np.linalg.norm(before) / 2 else np.zeros_like(rest)


def _code_format(scorer: ProjectedScorer, around_mean: bool) -> _core.CodeFormat:
    """Return the format of codes that are decoded relative to the mean, or to 0."""
    mean = np.append(scorer.mean, [scorer._rest_norm, 0]).astype(np.float32)
    return scorer._make_code_format(np.zeros_like(mean) if around_mean else mean)
