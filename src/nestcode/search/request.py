"""The request of a search: its queries, and what they are compared by, checked once."""

from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import LARGEST_SQUARE, as_array, as_floats, check_int, check_rows
from nestcode.coders import Coder
from nestcode.codes import Codes, is_single, thread_count
from nestcode.errors import InvalidInput
from nestcode.search.filters import EVERYTHING, Filter
from nestcode.search.scorer import SearchMetric
from nestcode.search.vectors import GivenVectors, VectorsById

Rank = Literal["asymmetric", "hamming", "exact"]
MAX_MISSING = 1 << 16  # k may exceed the number of items, as ids of -1 fill up, but not without bounds
NATIVE_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})  # that the core reads


class Request:
    """What a search is asked for.

    Rows of native floats are given to the core as they are, which tells whether all of them are finite: only where it
    refuses them are they checked, so that an error says why.

    Args:
        coder: the index's coder, if it has one.
        width: of the codes that are compared.
        queries: one vector, (n, features), or `Codes`. One vector, or one `Code`, is a single query.
        rank: what distances are computed by; None chooses the most precise that is possible.
        metric: "l2", "cosine" or "inner"; None is the coder's.
        vectors: the items themselves by id, for rank "exact".
        stored: whether the index stores vectors, which rank "exact" then takes unless `vectors` are given.
        allowed: the filter of the items.
        threads: how many threads share a batch of queries; None is one for each core.
        place: what holds the items, as errors name it.

    """

    def __init__(
        self,
        coder: Coder | None,
        width: int,
        queries: Codes | ArrayLike,
        *,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        stored: bool = False,
        allowed: Filter = EVERYTHING,
        threads: int | None = 1,
        place: str = "index",
    ) -> None:
        codes = queries if isinstance(queries, Codes) else None
        self._coder, self._width, self._place = coder, width, place
        self.rank = _choose_rank(rank, coder, codes, vectors, stored=stored)
        self.metric = _choose_metric(metric, coder, self.rank)
        self.threads = thread_count(threads)
        self.by_codes = self.rank == "hamming"
        self.codes: Codes | None = None  # the queries', where they are compared
        self.vectors: GivenVectors | None = None  # those of the caller
        self.given: NDArray[Any]  # as the core reads them: (n, features), or (features,) of a single query
        self._queries: NDArray[Any] | None = None  # checked
        self._rows: NDArray[np.floating[Any]] | None = None
        if codes is not None:
            self.single, self.codes = is_single(codes), self._encode(codes)
            self._queries = self._rows = self.given = np.empty((len(codes), 0), dtype=np.float32)
        elif self.by_codes or coder is None or not _is_native(queries, coder):
            rows = queries if isinstance(queries, np.ma.MaskedArray) else as_array(queries)
            self.single = rows.ndim == 1
            self._queries = check_rows(rows[None] if self.single else rows, coder.n_features_in_ if coder else None)
            self.codes = self._encode(self._queries) if self.by_codes else None
            floats = as_floats(self._queries)  # finite, or it raises
            self.given = floats[0] if self.single else floats
        else:
            self.given = queries  # type: ignore[assignment]
            self.single = self.given.ndim == 1
        if vectors is not None:
            self.vectors = GivenVectors(vectors, self.given.shape[-1])
        self.allowed = allowed

    def __len__(self) -> int:
        return 1 if self.given.ndim == 1 else len(self.given)

    def __getitem__(self, some: slice | NDArray[np.integer[Any]]) -> "Request":
        """Return the same request of some of the queries, as a batch."""
        own = copy(self)
        own.single, own.given = False, self.batch[some]
        own._queries = None if self._queries is None else self._queries[some]
        own._rows = None if self._rows is None else self._rows[some]
        own.codes = None if self.codes is None else self.codes[some]
        return own

    @property
    def batch(self) -> NDArray[Any]:
        """The rows as the core reads them, (n, features)."""
        return self.given[None] if self.given.ndim == 1 else self.given

    @property
    def queries(self) -> NDArray[Any]:
        """The vectors that were given, checked: (n, features)."""
        if self._queries is None:
            self._queries = check_rows(self.batch, self.given.shape[-1])
        return self._queries

    @property
    def rows(self) -> NDArray[np.floating[Any]]:
        """The same as floats, L2-normalized for the cosine; raises where one is not finite, or too long."""
        if self._rows is None:
            self._rows = as_floats(self.queries, normalize=self.metric == "cosine")
            if self.metric != "cosine":
                _check_norms(self._rows)
        return self._rows

    def check(self) -> None:
        """Raise where a query is not finite, or too long."""
        if not self.by_codes:
            _ = self.rows

    def _encode(self, queries: Codes | NDArray[Any]) -> Codes:
        return encode_to(self._width, queries, self._coder, self._place)

    def packed(self, width: int) -> NDArray[np.uint8]:
        """Return the first bits of the queries' codes, packed."""
        if self.codes is None:
            self.codes = self._encode(self.rows)
        return np.ascontiguousarray(self.codes.prefix(width).packed)


def _is_native(queries: object, coder: Coder) -> bool:
    """Return whether queries are rows that the core reads: other arrays are copied, or refused."""
    if type(queries) is not np.ndarray or queries.dtype not in NATIVE_FLOATS or not 1 <= queries.ndim <= 2:
        return False
    flags = queries.flags
    return bool(queries.shape[-1] == coder.n_features_in_ and flags.c_contiguous and flags.aligned)


def _check_norms(rows: NDArray[np.floating[Any]]) -> None:
    """Raise if distances to a query would exceed float32, in which estimates are computed."""
    with np.errstate(over="ignore"):
        if np.vdot(rows, rows) < LARGEST_SQUARE:  # of all queries together: mostly enough
            return
    most = float(np.square(rows, dtype=np.float64).sum(axis=1).max(initial=0))
    if most >= LARGEST_SQUARE:
        raise InvalidInput(
            f"the squared norm of a query must be below {LARGEST_SQUARE:g}, so that distances fit float32, "
            f"got {most:.2g}: rescale the data and the queries"
        )


def encode_to(width: int, items: Codes | ArrayLike, coder: Coder | None, place: str = "index") -> Codes:
    """Return vectors or codes, of this width or the coder's, as codes of a width; errors name the place they go to."""
    if isinstance(items, Codes):
        if items.width == width:
            return items
        if coder is not None and items.width == coder.width_:
            return items.prefix(width)
        longer = f"take prefix({width})" if items.width > width else f"give all {width} bits"
        raise InvalidInput(
            f"codes must have the {place}'s width {width}, got {items.width}: {longer}, "
            f"or make another {place} of that width"
        )
    if coder is None:
        raise InvalidInput(
            f"without a coder the {place} takes Codes, got {type(items).__name__}: encode them first, "
            f"or make the {place} with a coder"
        )
    rows = as_array(items)
    return coder.encode(rows[None] if rows.ndim == 1 else rows).prefix(width)


def check_k(k: int, count: int) -> int:
    """Return k, a number of hits to find among `count` items, or raise."""
    most, k = max(count, MAX_MISSING), check_int(k, "k", least=1)
    if k > most:
        raise InvalidInput(f"k must be at most {most:,} for an index of {count:,} items, got {k:,}: give a smaller k")
    return k


def _choose_rank(rank: Rank | None, coder: Coder | None, codes: Codes | None, vectors: object, *, stored: bool) -> Rank:
    if rank is None:
        bits = codes is not None or coder is None
        rank = "hamming" if bits else "exact" if stored or vectors is not None else "asymmetric"
    if rank not in ("asymmetric", "hamming", "exact"):
        raise InvalidInput(f'rank must be "asymmetric", "hamming" or "exact", got {rank!r}')
    if rank == "exact" and vectors is None and not stored:
        raise InvalidInput(
            'rank "exact" compares with the vectors themselves: give vectors=, or make the index with '
            'Index(coder, vectors="float16")'
        )
    if rank != "exact" and vectors is not None:
        raise InvalidInput(f'vectors are compared by rank "exact", got rank {rank!r}: leave one of them out')
    if rank != "hamming" and (codes is not None or coder is None):
        raise InvalidInput(
            f'rank "{rank}" compares vectors, and Codes are bits: give vectors as queries to an index with a coder, '
            'or rank="hamming"'
        )
    return rank


def _choose_metric(metric: SearchMetric | None, coder: Coder | None, rank: Rank) -> SearchMetric:
    own: SearchMetric = "l2" if coder is None else coder.metric_
    if metric is None:
        return own
    if metric not in ("l2", "cosine", "inner"):
        raise InvalidInput(f'metric must be "l2", "cosine" or "inner", got {metric!r}')
    if rank == "hamming":
        raise InvalidInput(f'rank "hamming" counts bits and has no metric, got {metric!r}: leave it out')
    if own == "cosine" and metric != "cosine":
        raise InvalidInput(
            f'the coder L2-normalizes items, so the metric can only be "cosine", got {metric!r}: '
            'fit a coder with metric="l2"'
        )
    return metric
