"""Reranking by decoded codes: distances from queries to what codes decode to.

Where decoding is linear in a projection, queries are projected once and all distances are those of coefficients.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import LARGEST_SQUARE, Floats
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.inverted_lists import ListCentroids
from nestcode.search.scorer import NO_CODES, NO_NORMS, PreparedCodes, QueryBatch, ScanLayout, Scorer, SearchMetric
from nestcode.search.zeros import zero_codes

COMPLEMENT = 1 << 28  # products of values: .1 s
NEAR_ONE = 0.05  # norms that differ less from 1 are taken for it


class DecodedScorer(Scorer):
    """Reranks by distances to what a coder decodes, in features."""

    def __init__(self, coder: Coder) -> None:
        self.coder = coder
        self.mean = np.zeros(coder.n_features_in_, dtype=np.float32)  # in the space of the coefficients
        self.mean_square = 0.0  # the squared norm of the mean, also outside that space
        self.unit = np.float32(1)  # the norm that `project` gives to queries of norm 1, for "cosine"

    def project(self, queries: NDArray[np.floating[Any]], metric: SearchMetric) -> QueryBatch:
        """Return queries, (n, features), as coefficients; for "cosine" they are L2-normalized already."""
        rows = np.ascontiguousarray(queries, dtype=np.float32)
        zeros = np.zeros(len(rows), dtype=np.float32)
        return QueryBatch(metric, rows, zeros, zeros, NO_CODES)

    def rerank(self, queries: QueryBatch, codes: Codes, threads: int) -> Floats:
        """Return distances from each query to its own share of the codes, (queries, codes / queries)."""
        decoded = self.coder.coefficients(codes, threads)
        items = np.arange(len(codes)).reshape(len(queries.coefficients), -1)
        out = np.empty(items.shape, dtype=np.float32)
        if queries.metric == "cosine":
            coefficients = self._around_zero(queries) / self.unit
            outside = (queries.mean_products / self.unit - coefficients @ self.mean).astype(np.float32)
            square = max(self.mean_square - float(self.mean @ self.mean), 0.0)
            _core.rerank(decoded, coefficients, items, "cosine", out, threads, self.mean, square, outside)
            return out
        _core.rerank(decoded, queries.coefficients, items, queries.metric, out, threads, NO_NORMS, 0.0, NO_NORMS)
        return out + queries.outside[:, None] if queries.metric == "l2" else out - queries.mean_products[:, None]

    def score(self, queries: QueryBatch, codes: Codes, threads: int) -> Floats:
        """Return distances for choosing the codes to rerank, of the same shape: estimates where decoding is slow."""
        return self.rerank(queries, codes, threads)

    def zero_codes(self, width: int) -> Codes:
        """Return the codes of `width` bits that only zero vectors have."""
        if width not in self._zero_codes:
            self._zero_codes[width] = zero_codes(self.coder, width)
        return self._zero_codes[width]

    @lazy_property
    def _zero_codes(self) -> dict[int, Codes]:
        return {}

    @property
    def projected(self) -> "ProjectedScorer | None":
        """What estimates distances in a projection, if anything does: this, or the scorer of a base."""
        return None

    def _around_zero(self, queries: QueryBatch) -> Floats:
        return queries.coefficients if queries.metric == "inner" else queries.coefficients + self.mean


class ProjectedScorer(DecodedScorer):
    """Reranks by distances between coefficients of a projection, and probes lists by their centroids there."""

    def __init__(self, coder: Coder, width: int) -> None:
        projection = coder.projection()
        assert projection is not None, "a coder with a layout has a projection"
        self.coder, self._width, self._projection = coder, width, projection
        self.mean = (projection.directions @ projection.mean).astype(np.float32)
        self.mean_square = float(projection.mean @ projection.mean)
        variance = coder.expected_error(0) * len(projection.mean)
        norm = np.float32(np.sqrt(self.mean_square + variance))  # of an item, as a root mean square
        self.unit = norm if norm > 0 and abs(norm - 1) >= NEAR_ONE else np.float32(1)
        self._list_centroids = lru_cache(maxsize=4)(partial(_list_centroids, proxy(self)))  # no reference cycle

    @property
    def projected(self) -> "ProjectedScorer | None":
        """The scorer itself."""
        return self

    @abstractmethod
    def split_centroids(self, bits: int) -> tuple[Floats, Floats]:
        """Return the two parts of the centroids of lists named by `bits` bits: (coarse, directions), (fine, …)."""

    def project(self, queries: NDArray[np.floating[Any]], metric: SearchMetric) -> QueryBatch:
        """Return queries, (n, features), as coefficients; for "cosine" they are L2-normalized already.

        For "cosine" they are scaled to the norm of items: then those at small angles are nearest by "l2" too.
        """
        mean, directions = self._projection.mean, self._projection.directions
        norm = np.float32(self._norm_of_queries(metric))
        if norm != 1:
            queries = queries * norm
        mean_products = (queries @ mean).astype(np.float32)
        centered = queries if metric == "inner" else queries - mean.astype(queries.dtype)
        rows: Floats = centered.astype(np.float32, copy=False)
        coefficients: Floats = rows @ directions.T
        outside = NO_NORMS
        if metric == "l2":
            rest = rows - coefficients @ directions  # a difference of squares would cancel far from the mean
            outside = np.einsum("nf,nf->n", rest, rest)
        return QueryBatch(metric, coefficients, mean_products, outside, NO_CODES)

    def list_distances(self, queries: QueryBatch, bits: int) -> Floats:
        """Return the distances from queries to the centroids of all lists, (queries, 2^bits), up to a shared term."""
        return self._list_centroids(bits).distances(queries.metric, *self._coefficients_for_lists(queries))

    def _coefficients_for_lists(self, queries: QueryBatch) -> tuple[Floats, Floats]:
        """Return coefficients, (queries, directions), and what their inner products with centroids lack, (queries,)."""
        by_angle = queries.metric == "cosine"
        coefficients = self._around_zero(queries) if by_angle else queries.coefficients
        return coefficients, queries.mean_products if by_angle else np.zeros(len(coefficients), dtype=np.float32)

    def row_projection(
        self, metric: SearchMetric, bits: int | None, *, whole: bool, scaled: bool = True
    ) -> _core.RowProjection:
        """Return the projection of rows for lists named by `bits` bits, if any: on all directions, or those in use.

        For the cosine, rows are scaled to the norm of items, or L2-normalized.
        """
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
        outside = max(self.mean_square - float(self.mean @ self.mean), 0.0)
        return _core.RowProjection(
            metric,
            normalized,
            self._norm_of_queries(metric) if scaled else 1.0,
            mean,
            directions,
            len(directions) if whole else used,
            coarse,
            self._complement if whole else np.zeros((0, len(mean)), dtype=np.float32),
            self.mean,
            self.mean_square,
            outside,
        )

    @lazy_property
    def _complement(self) -> Floats:
        """An orthonormal basis of what lies outside of the directions, or none where it takes long to find or use."""
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
        """Return the norm that queries of the cosine are scaled to: that of an item."""
        if metric != "cosine":
            return 1.0
        if float(self.unit) ** 2 >= LARGEST_SQUARE:
            raise InvalidInput(
                f"the squared norm of an item must be below {LARGEST_SQUARE:g}, so that estimates fit float32, "
                f'got {float(self.unit) ** 2:.2g} on average: rescale the data, or fit a coder with metric="cosine"'
            )
        return float(self.unit)

    @property
    def used_directions(self) -> int:
        """How many leading directions estimates read."""
        return len(self._projection.directions)

    @abstractmethod
    def list_scoring(self, metric: SearchMetric, bits: int) -> _core.ListScoring:
        """Return how the core ranks lists named by `bits` bits and estimates the distances of their items."""

    def _list_parts(self, metric: SearchMetric, bits: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what all products with coarse parts lack, the fine parts, and the scale and shift of each list."""
        parts = self._list_centroids(bits)
        offsets = np.zeros(len(parts.coarse), dtype=np.float32)
        if metric == "cosine":
            offsets += parts.coarse @ self.mean[: parts.coarse.shape[1]]
        return offsets, parts.fine, *parts.by_metric[metric]


def _list_centroids(scorer: ProjectedScorer, bits: int) -> ListCentroids:
    return ListCentroids(*scorer.split_centroids(bits), scorer.mean, scorer.mean_square)


@dataclass(frozen=True)
class RefinedBatch(QueryBatch):
    """Queries as they are, and as the base's scorer takes them."""

    base: QueryBatch


class RefinedScorer(DecodedScorer):
    """Probes and estimates as the scorer of a base does, and reranks by what another decoder makes of the same bits."""

    def __init__(self, coder: Coder, base: DecodedScorer) -> None:
        super().__init__(coder)
        self._base, self.scans_codes, self.layout_format = base, base.scans_codes, base.layout_format
        self.ns_per_estimated = base.ns_per_estimated

    @property
    def projected(self) -> ProjectedScorer | None:
        """The base's."""
        return self._base.projected

    @property
    def base(self) -> DecodedScorer:
        """The base's scorer."""
        return self._base

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return self._base.list_bits(count)

    def list_distances(self, queries: QueryBatch, bits: int) -> Floats:
        """Return the distances from queries to all inverted lists, (queries, 2^bits)."""
        assert isinstance(queries, RefinedBatch)
        return self._base.list_distances(queries.base, bits)

    def score(self, queries: QueryBatch, codes: Codes, threads: int) -> Floats:
        """Return distances to what the base decodes."""
        assert isinstance(queries, RefinedBatch)
        return self._base.score(queries.base, codes, threads)

    def lay_out(self, codes: Codes) -> ScanLayout:
        """Return what the base's scorer scans."""
        return self._base.lay_out(codes)

    def prepare(self, codes: Codes, list_starts: NDArray[np.uint32], layout: ScanLayout) -> PreparedCodes:
        """Return sorted codes as the base's scorer reads them."""
        return self._base.prepare(codes, list_starts, layout)

    def project(self, queries: NDArray[np.floating[Any]], metric: SearchMetric) -> RefinedBatch:
        """Return queries, (n, features), as they are and projected for the base."""
        own = super().project(queries, metric)
        base = self._base.project(queries, metric)
        return RefinedBatch(metric, own.coefficients, own.mean_products, own.outside, NO_CODES, base)
