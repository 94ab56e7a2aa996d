"""The index of `NestedIndex` and of the stores for other frameworks, chosen by the first rows once there are enough."""

from numpy.typing import ArrayLike

from nestcode.arrays import check_rows
from nestcode.coders import CellCoder, Coder
from nestcode.coders.base import Metric
from nestcode.index import Index
from nestcode.index.autotune import Choice
from nestcode.index.autotune.candidates import MAX_BITS_PER_FEATURE
from nestcode.search.planner import Effort
from nestcode.search.vectors import VectorType

RECALL = 0.99  # who replaces an exact index expects a high recall
WIDTH = 256  # bits where no trial chooses them
EFFORT = Effort(candidates=5_000, items=10_000, rerank=200, k=10)  # of a coder that no trial chose


def choose_index(rows: ArrayLike, metric: Metric, vectors: VectorType | None) -> Index | None:
    """Return an empty index that suits the rows, as `Index.build` chooses it, or None if a scan is as fast.

    Graphs are not tried: a store changes often, and its file holds none.

    Args:
        rows: (n, features), the first ones of the store.
        metric: of the distances.
        vectors: how vectors are stored; None stores codes only, which no trial compares.

    """
    if vectors is None:
        return index_of_width(rows, None, metric, vectors)
    chosen = Index.build(rows, metric=metric, recall=RECALL, graph=False)
    assert isinstance(chosen.choice, Choice)
    if chosen.choice.chosen.structure == "scan":
        return None
    index = Index(chosen.coder, width=chosen.width, vectors=vectors)
    index.effort = chosen.effort
    return index


def index_of_width(rows: ArrayLike, width: int | None, metric: Metric, vectors: VectorType | None) -> Index:
    """Return an empty index of a `CellCoder` of the caller's width, or of a default width."""
    if width is None:
        width = min(WIDTH, MAX_BITS_PER_FEATURE * check_rows(rows).shape[1])
    return index_with(CellCoder(width, metric).fit(rows), None, vectors)


def index_with(coder: Coder, width: int | None, vectors: VectorType | None) -> Index:
    """Return an empty index of the caller's coder."""
    index = Index(coder, width=width, vectors=vectors)
    index.effort = EFFORT
    return index
