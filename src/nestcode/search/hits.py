"""The results of searches: the items found, and the work."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, init=False)
class Hits:
    """The nearest items of each query, nearest first: arrays (n, k) for n queries, (k,) for one.

    If there are fewer than k items, the last ids are -1 and their distances infinite.

    >>> from nestcode import Codes, Index
    >>> index = Index(width=3)
    >>> index.add(Codes.from_bits([[0, 0, 1], [1, 1, 1]]), ids=[4, 2])
    >>> hits = index.search(Codes.from_bits([[0, 0, 0]]), k=3)
    >>> hits.ids, hits.distances, hits.compared
    (array([[ 4,  2, -1]]), array([[ 1.,  3., inf]], dtype=float32), array([2]))
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    # how many items each query was compared with, or nodes of graphs that it visited: (n,), or an int for one query
    compared: Any

    def __init__(self, ids: NDArray[np.int64], distances: NDArray[np.float32], compared: Any) -> None:
        # A frozen dataclass sets each by a call of its own, which takes twice as long: a search has 20 µs.
        own = self.__dict__
        own["ids"], own["distances"], own["compared"] = ids, distances, compared

    def __repr__(self) -> str:
        return f"Hits(ids={self.ids.tolist()})" if self.ids.ndim == 1 else f"Hits({self.ids.shape[0]} queries)"


@dataclass(frozen=True, init=False)
class PartialHits(Hits):
    """The nearest items of the parts of an index that answered: `Hits`, and for each missing part the reason.

    >>> hits = PartialHits(np.array([[7]]), np.array([[0.5]], np.float32), np.array([100]), {"part-1": "damaged"})
    >>> hits.ids, list(hits.missing)
    (array([[7]]), ['part-1'])
    """

    missing: dict[str, str]

    def __init__(
        self, ids: NDArray[np.int64], distances: NDArray[np.float32], compared: Any, missing: dict[str, str]
    ) -> None:
        super().__init__(ids, distances, compared)
        self.__dict__["missing"] = missing


@dataclass(frozen=True)
class RangeHits:
    """All items within a radius of each query: `hits[i]` are the `Hits` of query i, nearest first.

    >>> from nestcode import Codes, Index
    >>> index = Index(width=3)
    >>> index.add(Codes.from_bits([[0, 0, 1], [1, 1, 1]]))
    >>> hits = index.range_search(Codes.from_bits([[0, 0, 0], [1, 1, 0]]), radius=1)
    >>> [one.ids.tolist() for one in hits]
    [[0], [1]]
    """

    found: tuple[Hits, ...]

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, i: int) -> Hits:
        return self.found[i]

    def __iter__(self) -> Iterator[Hits]:
        return iter(self.found)

    def __repr__(self) -> str:
        return f"RangeHits({len(self)} queries, {sum(len(hits.ids) for hits in self.found)} items)"


@dataclass(frozen=True)
class Evaluation:
    """The recall of a search and its cost.

    >>> from nestcode import Codes, Index
    >>> index = Index(width=3)
    >>> index.add(Codes.from_bits([[0, 0, 1], [1, 1, 1]]))
    >>> found = index.evaluate(Codes.from_bits([[0, 0, 0]]), k=1)
    >>> found.recall, found.compared, found.share
    (1.0, 2.0, 1.0)
    >>> found  # doctest: +ELLIPSIS
    Evaluation(recall=1, standard_error=0, compared=2, share=1, candidates=2, rerank=0, seconds=..., ns=...)
    """

    # recall@k: the share of the k nearest items that were found; a hit as near as the k-th neighbor counts too
    recall: float
    standard_error: float  # of recall, over the queries
    compared: float  # items that a query was compared with, on average
    share: float  # of all items that were compared
    candidates: int  # the candidate budget
    rerank: int  # candidates that were reranked
    seconds: float  # per query, on average, as measured now
    ns: float  # per query, by counted work and the planner's costs: the same on any machine

    def __repr__(self) -> str:
        values = (f"{name}={value:.4g}" for name, value in vars(self).items())
        return f"Evaluation({', '.join(values)})"


def merge(parts: Sequence[Hits], k: int) -> Hits:
    """Return the k nearest items of all parts, for each query: (n, …) of each part -> (n, k).

    >>> near = Hits(np.array([[4, 9]]), np.array([[0.5, 2]], dtype=np.float32), np.array([10]))
    >>> far = Hits(np.array([[3, -1]]), np.array([[0.5, np.inf]], dtype=np.float32), np.array([1]))
    >>> merge([near, far], k=3)
    Hits(1 queries)
    >>> merge([near, far], k=3).ids
    array([[3, 4, 9]])
    """
    ids = np.concatenate([hits.ids for hits in parts], axis=1)
    distances = np.concatenate([hits.distances for hits in parts], axis=1)
    missing = np.where(ids < 0, np.int64(2**63 - 1), ids)
    order = np.lexsort((missing, distances), axis=1)[:, :k]  # ties by ascending id, as in one index
    compared = np.sum([hits.compared for hits in parts], axis=0)
    return Hits(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1), compared)
