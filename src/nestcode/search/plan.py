"""The plan of a search: its queries, how items are ranked, and how much work it may do, all checked once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import LARGEST_SQUARE, Ids, StoredIds, as_array, as_floats, check_ids, check_int, check_rows
from nestcode.coders import Coder
from nestcode.codes import Codes, is_single, thread_count
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.decoded import DecodedScorer
from nestcode.search.hamming import HammingScorer
from nestcode.search.prepared import FEW_ITEMS, Positions, PreparedSnapshot, SortedRun
from nestcode.search.scorer import NO_COEFFICIENTS, NO_NORMS, QueryBatch, Scorer, SearchMetric
from nestcode.search.vectors import GivenVectors, VectorsById

Rank = Literal["asymmetric", "hamming", "exact"]
LOOK_UP = 64  # items of a run that are tested against a filter while one is looked up by its id
DENSE = 64  # entries of a mask that ids are tested by, for each id
VISIT = 16  # items that an exhaustive search compares while a walk visits one node of a graph
MAX_MISSING = 1 << 16  # k may exceed the number of items, as ids of -1 fill up, but not without bounds


@dataclass(frozen=True)
class Effort:
    """How much work a search does: settings that `Index.tune` measured, as they hold when an index grows.

    >>> effort = Effort(candidates=500, items=10_000, rerank=40, k=10)
    >>> effort.candidates_of(30_000), effort.rerank_for(20)  # three times the items, twice the hits
    (1500, 80)

    Args:
        candidates: the candidate budget. It is the same share of a larger index, and as many of a smaller one; in an
            index with graphs it is that of a walk (ef), whatever the number of items.
        items: of the index that it was measured on.
        rerank: how many candidates are reranked: as many for each hit of a larger k.
        k: hits of the searches that it was measured on.

    """

    candidates: int
    items: int
    rerank: int
    k: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_int(value, name, least=1)

    def candidates_of(self, count: int) -> int:
        """Return the candidate budget for `count` items."""
        return self.candidates * max(count, self.items) // self.items

    def rerank_for(self, k: int) -> int:
        """Return how many candidates to rerank for k hits."""
        return self.rerank * max(k, self.k) // self.k


@dataclass(frozen=True)
class Budget:
    """How many candidates a search estimates and reranks, by the caller's choice or by an effort."""

    chosen_candidates: int | None = None
    chosen_rerank: int | None = None
    effort: Effort | None = None  # for what the caller did not choose

    def for_snapshot(self, prepared: PreparedSnapshot) -> "Budget":
        """Return it without an effort that was measured for another way to search."""
        return self if self.effort is None or prepared.fits_effort else replace(self, effort=None)

    def candidates(self, count: int, few: int = FEW_ITEMS) -> int:
        """Return how many of `count` items to estimate; without a choice all of few, or half up to 10,000, and 2 %."""
        if self.chosen_candidates is not None:
            return check_int(self.chosen_candidates, "candidates", least=min(count, 1))
        if self.effort is not None:
            return self.effort.candidates_of(count)
        return count if count <= few else min(count // 2, 10_000) + count // 50

    def few_left(self, prepared: PreparedSnapshot) -> int:
        """Return how many items that a filter leaves are all compared, without a choice."""
        return prepared.few_left if self.effort is None or not prepared.fits_effort else FEW_ITEMS

    def graph_candidates(self, k: int) -> int:
        """Return how many candidates a walk on a graph keeps (ef) for k hits; without a choice 4 k, at least 100."""
        if self.chosen_candidates is not None:
            return check_int(self.chosen_candidates, "candidates", least=1)
        return (
            max(4 * k, 100) if self.effort is None else self.effort.candidates * max(k, self.effort.k) // self.effort.k
        )

    def rerank(self, k: int) -> int:
        """Return how many candidates to rerank for k hits; without a choice 10 k, and at least 100."""
        if self.chosen_rerank is not None:
            return max(k, check_int(self.chosen_rerank, "rerank", least=1))
        return max(10 * k, 100) if self.effort is None else self.effort.rerank_for(k)


class Plan:
    """A checked search.

    Args:
        coder: the index's coder, if it has one.
        encode: turns vectors or codes into codes of the index's width.
        queries: one vector, (n, features), or `Codes`. One vector, or one `Code`, is a single query.
        rank: what distances are computed by; None chooses the most precise that is possible.
        metric: "l2", "cosine" or "inner"; None is the coder's.
        vectors: the items themselves by id, for rank "exact".
        stored: whether the index stores vectors, which rank "exact" then takes unless `vectors` are given.
        allowed: which items may be found: a filter, their ids, or a mask by id; None is all.
        candidates: the budget of items to score by estimates; None leaves it to the effort.
        rerank: how many of these to rerank precisely; None leaves it to the effort.
        effort: what `Index.tune` chose, if it did.
        threads: how many threads share a batch of queries; None is one for each core.

    """

    def __init__(
        self,
        coder: Coder | None,
        encode: Callable[[Any], Codes],
        queries: Codes | ArrayLike,
        *,
        rank: Rank | None = None,
        metric: SearchMetric | None = None,
        vectors: VectorsById | None = None,
        stored: bool = False,
        allowed: "IdFilter | ArrayLike | Iterable[int] | None" = None,
        candidates: int | None = None,
        rerank: int | None = None,
        effort: Effort | None = None,
        threads: int | None = 1,
    ) -> None:
        codes = queries if isinstance(queries, Codes) else None
        self.coder = coder
        self.rank = _choose_rank(rank, coder, codes, vectors, stored=stored)
        self.metric = _choose_metric(metric, coder, self.rank)
        self.vectors: GivenVectors | None = None  # those of the caller
        self.codes: Codes | None
        if codes is None:
            rows = queries if isinstance(queries, np.ma.MaskedArray) else as_array(queries)
            self.single = rows.ndim == 1
            self.queries = check_rows(rows[None] if self.single else rows, coder.n_features_in_ if coder else None)
            if vectors is not None:
                self.vectors = GivenVectors(vectors, self.queries.shape[1])
            self.rows = as_floats(self.queries, normalize=self.metric == "cosine")  # L2-normalized for "cosine"
            if self.metric != "cosine":
                _check_norms(self.rows)
            self.codes = encode(self.queries) if self.rank == "hamming" else None
        else:
            self.single = is_single(codes)
            self.codes = encode(codes)
            self.queries = self.rows = np.empty((len(codes), 0), dtype=np.float32)
        self.allowed = allowed if allowed is None or isinstance(allowed, IdFilter) else IdFilter(allowed)
        self.budget = Budget(candidates, rerank, effort)
        self.threads = thread_count(threads)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, scorer: Scorer, first: int, last: int) -> QueryBatch:
        """Return queries `first` to `last` as a scorer takes them."""
        if isinstance(scorer, DecodedScorer):
            return scorer.project(self.rows[first:last], self.metric)
        assert self.codes is not None
        assert isinstance(scorer, HammingScorer)
        packed = np.ascontiguousarray(self.codes[slice(first, last)].prefix(scorer.width).packed)
        return QueryBatch(self.metric, NO_COEFFICIENTS, NO_NORMS, NO_NORMS, packed)


def count_candidates(prepared: PreparedSnapshot, budget: Budget, k: int) -> int:
    """Return the candidate budget of a search; all items where a filter leaves too few of them to walk on a graph."""
    if prepared.filtered and budget.chosen_candidates is None and prepared.count <= budget.few_left(prepared):
        return prepared.count
    if not prepared.by_graph:
        return budget.candidates(prepared.count, prepared.few)
    most = budget.graph_candidates(k)
    # A walk visits candidates / share items, and a visit takes about as long as comparing 16 items exhaustively.
    selective = prepared.count**2 <= VISIT * most * prepared.stored
    return prepared.count if selective else most


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
    most = max(count, MAX_MISSING)
    if check_int(k, "k", least=1) > most:
        raise InvalidInput(f"k must be at most {most:,} for an index of {count:,} items, got {k:,}: give a smaller k")
    return k


def check_allowed(allowed: ArrayLike | Iterable[int]) -> Ids | NDArray[np.bool_]:
    """Return a filter as ids, or as a mask by id.

    >>> check_allowed({3}), check_allowed([True, False])
    (array([3]), array([ True, False]))
    """
    if isinstance(allowed, bytes | bytearray):
        raise InvalidInput(f"filter must be ids, or a mask by id, got {type(allowed).__name__}: give a list of ids")
    plain = isinstance(allowed, np.ndarray | list | tuple | range | memoryview) or not isinstance(allowed, Iterable)
    plain |= hasattr(allowed, "__array__") or hasattr(allowed, "toarray")  # tensors, and sparse arrays to refuse
    array = as_array(allowed if plain else list(allowed), "filter")  # type: ignore[arg-type]
    if array.dtype == bool:
        if array.ndim != 1:
            raise InvalidInput(f"filter must be ids, or a mask by id in 1 dimension, got shape {array.shape}")
        return array
    try:
        chosen = check_ids(array, distinct=False)
    except InvalidInput as error:
        raise InvalidInput(f"filter must be ids, or a mask by id: {error}") from None
    if len(chosen) > 2 and chosen.max() <= 1:
        raise InvalidInput(
            f"filter must be ids, or a mask by id of bools, got {len(chosen)} integers of 0 and 1: convert a mask with "
            "mask.astype(bool), or name each id once"
        )
    return chosen


class IdFilter:
    """Which items may be found, given ids or a mask by id.

    >>> IdFilter([3, 5]).contains(np.array([-1, 3, 4]))
    array([False,  True, False])
    """

    def __init__(self, allowed: ArrayLike | Iterable[int]) -> None:
        array = check_allowed(allowed)
        self.size = np.count_nonzero(array) if array.dtype == bool else len(array)  # ids; an index may have fewer
        if array.dtype == bool and LOOK_UP * self.size < len(array):
            array = np.flatnonzero(array)
        self._ids: Ids | None = None if array.dtype == bool else array.astype(np.int64, copy=False)
        self._mask = np.append(array, False) if array.dtype == bool else None
        self._positions: dict[SortedRun, Positions] = {}  # which a search by rows that turns to a plan reads twice

    def __call__(self, run: SortedRun) -> Positions:
        """Return the positions in a run of items that may be found, ascending."""
        if run not in self._positions:
            self._positions[run] = self._look_up(run)
        return self._positions[run]

    def _look_up(self, run: SortedRun) -> Positions:
        if self._ids is not None and LOOK_UP * len(self._ids) < len(run.ids):
            found = np.unique(run.find(self._ids))
            return found[found >= 0].astype(np.uint32)
        ids = _all_ids(run)
        if self._dense is None:
            return _not_deleted(run, self.contains(ids))
        return _not_deleted(run, self._dense.take(ids, mode="clip"))

    def contains(self, ids: StoredIds) -> NDArray[np.bool_]:
        """Return whether items of these ids may be found."""
        if self._dense is None:
            assert self._ids is not None
            return np.isin(ids, self._ids)
        return self._dense.take(ids, mode="clip") & (ids >= 0)

    @lazy_property
    def _dense(self) -> NDArray[np.bool_] | None:
        """A mask by id, whose last entry, False, is that of all ids beyond, or None where it would be long."""
        if self._ids is None:
            return self._mask
        largest = int(self._ids.max(initial=-1))
        if largest >= DENSE * len(self._ids):
            return None
        mask = np.zeros(largest + 2, dtype=np.bool_)
        mask[self._ids] = True
        return mask


def _all_ids(run: SortedRun) -> StoredIds:
    if "ids" in run.mapped:
        run.mapped.touch_rows("ids", np.arange(len(run.ids), dtype=np.uint32))
    return run.ids


def _not_deleted(run: SortedRun, mask: NDArray[np.bool_]) -> Positions:
    if len(run.tombstones):
        mask[run.tombstones] = False
    return mask.nonzero()[0].astype(np.uint32)


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
