"""One search, step by step: what is asked, checked once, and how a view of the index answers it."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import Floats, Ids, as_floats, check_rows
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.index.segment import check_ids
from nestcode.search.decoded import DecodedScorer
from nestcode.search.exhaustive import doubles, middle, to_decoded, to_vectors
from nestcode.search.hits import Hits
from nestcode.search.scorer import NO_COEFFICIENTS, NO_NORMS, Metric, QueryBatch, Scorer
from nestcode.search.view import Allowed, View

Rank = Literal["asymmetric", "hamming", "exact"]
BATCH, CHUNK = 256, 1 << 14  # queries at once, and items where all are compared


class Request:
    """A checked question: queries, and how items are ranked."""

    def __init__(
        self,
        coder: Coder | None,
        encode: Callable[[Any], Codes],
        queries: Codes | ArrayLike,
        rank: Rank | None,
        metric: Metric | None,
        vectors: ArrayLike | None,
    ) -> None:
        self._coder = coder
        self.codes = queries if isinstance(queries, Codes) else None
        self.rank = _choose_rank(rank, coder, self.codes, vectors)
        self.metric = _choose_metric(metric, coder, self.rank)
        self.vectors = None if vectors is None else _check_vectors(vectors)
        if self.codes is None:
            rows = np.asarray(queries)
            self.single = rows.ndim == 1
            checked = check_rows(rows[None] if self.single else rows, coder.n_features_in_ if coder else None)
            if self.vectors is not None and self.vectors.shape[1] != checked.shape[1]:
                raise InvalidInput(
                    f"vectors must have the queries' {checked.shape[1]} features, got {self.vectors.shape[1]}"
                )
            self._given = checked
            self.rows = as_floats(checked, normalize=self.metric == "cosine")
            if self.rank == "hamming":
                self.codes = encode(checked)
        else:
            self.codes, self.single = encode(self.codes), False
            self.rows = np.empty((len(self.codes), 0), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, scorer: Scorer, first: int, last: int) -> QueryBatch:
        """Some of the queries made ready."""
        if isinstance(scorer, DecodedScorer):
            return scorer.project(self.rows[first:last], self.metric)
        assert self.codes is not None
        return QueryBatch(
            self.metric, NO_COEFFICIENTS, NO_NORMS, NO_NORMS, np.ascontiguousarray(self.codes.packed[first:last])
        )

    def exact(self, first: int, last: int, ids: Ids, threads: int) -> Floats:
        """Distances from some queries to the vectors with these ids, (queries, ids); infinite for ids of -1."""
        assert self.vectors is not None
        self._check_rows_of(ids)
        queries, vectors = self.rows[first:last], self.vectors
        if not (vectors.dtype == np.float32 and vectors.flags.c_contiguous and vectors.flags.aligned):
            kept, ids = np.unique(ids[ids >= 0]), ids.copy()
            ids[ids >= 0] = np.searchsorted(kept, ids[ids >= 0])
            center = middle(queries) if self.metric == "l2" else 0  # far from 0 rounding would drown differences
            queries, vectors = queries - center, np.ascontiguousarray(vectors[kept] - center, dtype=np.float32)
        queries = queries.astype(np.float32, copy=False)
        out = np.empty(ids.shape, dtype=np.float32)
        own = np.ascontiguousarray(ids)
        _core.rerank(np.asarray(vectors), queries, own, self.metric, out, threads, NO_NORMS, 0.0, NO_NORMS)
        if np.isnan(out).any():
            raise InvalidInput("vectors must be finite, but some of those compared hold NaN: drop or impute such rows")
        return out

    def to_all(self, scorer: Scorer, ids: Ids, codes: Codes) -> Callable[[int, int], Floats]:
        """What gives distances from queries `first` to `last` to all these items, (queries, items)."""
        if self.rank == "exact":
            assert self.vectors is not None
            self._check_rows_of(ids)
            return self._to_rows(self.vectors[ids])
        if self.codes is not None:
            own = self.codes
            return lambda first, last: np.ascontiguousarray(own[first:last].hamming(codes), dtype=np.float32)
        assert isinstance(scorer, DecodedScorer)
        assert self._coder is not None
        if self.metric == "cosine" != _own_metric(self._coder):
            return self._to_rows(self._coder.decode(codes))  # short items have no angle left around a mean far from 0
        decoded = scorer.coder.coefficients(codes).astype(np.float64)
        return lambda first, last: to_decoded(scorer, self.rows[first:last], decoded, self.metric)

    def _to_rows(self, rows: NDArray[Any]) -> Callable[[int, int], Floats]:
        by_angle = self.metric == "cosine"
        items = doubles(rows, normalize=by_angle)
        return lambda first, last: to_vectors(doubles(self._given[first:last], normalize=by_angle), items, self.metric)

    def _check_rows_of(self, ids: Ids) -> None:
        if self.vectors is not None and ids.max(initial=-1) >= len(self.vectors):
            raise InvalidInput(
                f"vectors must have a row for each id, but id {ids.max()} is beyond their {len(self.vectors)} rows"
            )


def answer(
    view: View, request: Request, k: int, effort: int, keep: int, threads: int, query: int | None = None
) -> Hits:
    """The k nearest of each query, or of one of them."""
    queries = range(len(request)) if query is None else range(query, query + 1)
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    distances = np.full((len(queries), k), np.inf, dtype=np.float32)
    if effort >= view.count:
        _compare_all(view, request, queries.start, ids, distances, threads)
        return Hits(ids, distances, np.full(len(queries), view.count))
    compared = np.zeros(len(queries), dtype=np.int64)
    if request.rank == "hamming":
        keep = k
    keep = min(keep, view.count)
    for first in range(0, len(queries), BATCH):
        last = min(first + BATCH, len(queries))
        begin, end = queries.start + first, queries.start + last
        batch = request.batch(view.scorer, begin, end)
        near, places, compared[first:last] = view.rough(batch, last - first, effort, keep, threads)
        hits = view.ids_at(places)
        if request.rank == "exact":
            near = request.exact(begin, end, hits, threads)
        elif isinstance(view.scorer, DecodedScorer):
            near = view.scorer.rerank(batch, view.codes_at(places), threads)
        _core.select_top_k(near, hits, distances[first:last], ids[first:last], threads)
    return Hits(ids, distances, compared)


def _compare_all(view: View, request: Request, start: int, ids: Ids, distances: Floats, threads: int) -> None:
    """Write the nearest of all items that may be found."""
    for known, codes in view.items():
        for at in range(0, len(known), CHUNK):
            own = known[at : at + CHUNK]
            distances_of = request.to_all(view.scorer, own, codes[at : at + CHUNK])
            for first in range(0, len(ids), BATCH):
                last = min(first + BATCH, len(ids))
                near, near_ids = np.empty_like(distances[first:last]), np.empty_like(ids[first:last])
                _core.select_top_k(distances_of(start + first, start + last), own[None], near, near_ids, threads)
                both = np.concatenate([distances[first:last], near], axis=1)
                both_ids = np.concatenate([ids[first:last], near_ids], axis=1)
                _core.select_top_k(both, both_ids, distances[first:last], ids[first:last], threads)


def check_filter(chosen: ArrayLike | Iterable[int]) -> Allowed:
    """Which items may be found: ids, or a mask by id."""
    plain = isinstance(chosen, np.ndarray | list | tuple | range) or not isinstance(chosen, Iterable)
    array = np.asarray(chosen if plain else list(chosen))  # type: ignore[arg-type]
    if array.dtype == bool:
        if array.ndim != 1:
            raise InvalidInput(f"a filter's mask has 1 dimension, an entry for each id, got shape {array.shape}")

        def by_mask(ids: Ids) -> NDArray[np.bool_]:
            inside = ids < len(array)
            return inside & array[np.where(inside, ids, 0)] if len(array) else inside

        return by_mask
    wanted = check_ids(array, distinct=False)
    return lambda ids: np.isin(ids, wanted)


def _choose_rank(rank: Rank | None, coder: Coder | None, codes: Codes | None, vectors: object) -> Rank:
    if rank is None:
        bits = codes is not None or coder is None
        rank = "hamming" if bits else "asymmetric" if vectors is None else "exact"
    if rank not in ("asymmetric", "hamming", "exact"):
        raise InvalidInput(f'rank must be "asymmetric", "hamming" or "exact", got {rank!r}')
    if rank == "exact" and vectors is None:
        raise InvalidInput('rank "exact" compares with the vectors themselves: give vectors=')
    if rank != "exact" and vectors is not None:
        raise InvalidInput(f'vectors are compared by rank "exact", got rank {rank!r}: leave one of them out')
    if rank != "hamming" and (codes is not None or coder is None):
        raise InvalidInput(
            f'rank "{rank}" compares vectors, and Codes are bits: give vectors as queries to an index with a coder, '
            'or rank="hamming"'
        )
    return rank


def _choose_metric(metric: Metric | None, coder: Coder | None, rank: Rank) -> Metric:
    own = _own_metric(coder)
    if metric is None:
        return own
    if metric not in ("l2", "cosine", "inner"):
        raise InvalidInput(f'metric must be "l2", "cosine" or "inner", got {metric!r}')
    if rank == "hamming":
        raise InvalidInput(f'rank "hamming" counts bits and has no metric, got {metric!r}: leave it out')
    if own == "cosine" and metric != "cosine":
        raise InvalidInput(
            f'the coder scaled items to length 1, so the metric can only be "cosine", got {metric!r}: '
            'fit a coder with metric="l2"'
        )
    return metric


def _own_metric(coder: Coder | None) -> Metric:
    return "l2" if coder is None else coder.metric_


def _check_vectors(vectors: ArrayLike) -> NDArray[Any]:
    if isinstance(vectors, Codes):
        raise InvalidInput("vectors must be numbers, and Codes are bits: give the items that were encoded")
    array = vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InvalidInput(
            f"vectors must be numbers in 2 dimensions, a row for each id, got {array.dtype} of shape {array.shape}"
        )
    return array
