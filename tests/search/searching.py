"""Indexes that search is tested on, their plain twins, and comparisons of hits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import CellCoder, Index, LinearCoder, ResidualCoder
from nestcode.coders import Coder
from nestcode.index import compaction
from nestcode.index.snapshot import Snapshot
from nestcode.search.hits import Hits
from tests import twins

ROWS, FEATURES = 1200, 12
X = twins.clustered(ROWS)
FRESH = twins.clustered(ROWS, seed=1)  # what items are updated to
Q = twins.clustered(16, seed=2)
KINDS = ["linear", "residual", "cell"]
METRICS = [("l2", "l2"), ("l2", "cosine"), ("l2", "inner"), ("cosine", "cosine")]  # the coder's, the search's
ERROR = 2e-4  # of distances between rows whose squared norms are about 100

kinds = pytest.mark.parametrize("kind", KINDS)
metrics = pytest.mark.parametrize(("own", "metric"), METRICS)
ranks = pytest.mark.parametrize("rank", ["asymmetric", "exact"])


@cache
def fitted(kind: str, metric: Any = "l2") -> Coder:
    coders: dict[str, Coder] = {
        "linear": LinearCoder(40, metric=metric),
        "residual": ResidualCoder(24, metric=metric, beams=2),
        "cell": CellCoder(40, metric=metric, cells=16),
    }
    return coders[kind].fit(X)


@dataclass(frozen=True)
class Filled:
    """An index, its ids, and the vectors of its items by id."""

    index: Index
    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.index, self.ids, self.vectors))

    def distances(self, queries: NDArray[Any], metric: str, rank: str = "asymmetric") -> twins.Doubles:
        """From queries to all items, in the order of `ids`."""
        rows = self.vectors[self.ids] if rank == "exact" else self.index.reconstruct(self.ids)
        return twins.distances(queries, rows, metric)


def fill(index: Index, vectors: bool = True) -> Filled:
    """Fill three segments and the buffer, delete from all of them and update; items are vectors or codes."""
    rows, changed = X.copy(), np.arange(5, ROWS, 11)
    removed = np.arange(0, ROWS, 7)
    rows[changed] = FRESH[changed]
    assert index.coder is not None or not vectors
    items, fresh = (part if vectors else fitted("cell").encode(part).prefix(index.width) for part in (X, FRESH))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SIZE_RATIO", 0)  # so that nothing is merged
        for first, last in ((0, 700), (700, 900), (900, 1100), (1100, ROWS)):
            index.add(items[first:last], ids=np.arange(first, last))
            if last < ROWS:
                index._live.write(Snapshot.flush)
        index.update(fresh[changed], changed)
        index.remove(removed)
    assert len(index._live.current.segments) == 3
    assert len(index._live.current.buffer) > 0
    return Filled(index, np.setdiff1d(np.arange(ROWS), removed), rows)


@cache
def filled(kind: str, metric: Any = "l2", width: int | None = None) -> Filled:
    return fill(Index(fitted(kind, metric), width=width))


@cache
def bare(width: int = 40) -> Filled:
    return fill(Index(width=width), vectors=False)


def plain(kind: str, rows: NDArray[Any] = X) -> Index:
    """One segment."""
    index = Index(fitted(kind))
    index.add(rows)
    index.compact()
    return index


def by_rank(rank: str, vectors: NDArray[Any], metric: str | None = None) -> dict[str, Any]:
    """The arguments of a search by a rank."""
    return {"rank": rank, "metric": metric, "vectors": vectors if rank == "exact" else None}


def assert_same(a: Hits, b: Hits) -> None:
    for one, other in zip(vars(a).values(), vars(b).values(), strict=True):
        assert np.array_equal(one, other)


def assert_close(a: Hits, b: Hits) -> None:
    """Equal up to rounding, which may reorder ties."""
    assert np.array_equal(a.ids >= 0, b.ids >= 0)
    np.testing.assert_allclose(a.distances, b.distances, rtol=1e-4, atol=ERROR)
    assert np.mean(a.ids == b.ids) > 0.7
