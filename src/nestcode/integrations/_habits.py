"""How FAISS says things: scores in place of distances, radii that are left out, selectors in search parameters."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids
from nestcode.errors import InvalidInput
from nestcode.search.hits import RangeHits
from nestcode.search.scorer import Metric

RangeAnswer = tuple[NDArray[np.uint64], Floats, Ids]
Filter = ArrayLike | Iterable[int] | None
FAR = np.finfo(np.float32).max  # how far FAISS says that missing items are


def scores(distances: Floats, ids: Ids, metric: Metric) -> Floats:
    """Distances of ours as FAISS gives them: squared distances, or products, the largest first."""
    if metric == "l2":
        return np.where(ids >= 0, distances, FAR)
    return np.where(ids >= 0, -distances if metric == "inner" else 1 - distances / 2, -FAR)


def distance_at(score: float, metric: Metric) -> float:
    """The distance of ours that has this score."""
    if not isinstance(score, float | int | np.floating | np.integer) or np.isnan(score):
        raise InvalidInput(f"thresh must be a number, got {score!r}: give a squared distance, or a product")
    distance = score if metric == "l2" else -score if metric == "inner" else 2 - 2 * score
    return float(np.clip(distance, -FAR, FAR))


def within(hits: RangeHits, thresh: float, metric: Metric) -> RangeAnswer:
    """Hits of several queries one after the other: where each query's begin, scores and ids; those at `thresh` go."""
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *(one.ids for one in hits)])
    near = np.concatenate([np.zeros(0, dtype=np.float32), *(one.distances for one in hits)])
    found = scores(near, ids, metric)
    wide = found.astype(np.float64)  # thresh may be beyond float32
    inside = wide < thresh if metric == "l2" else wide > thresh
    ends = np.cumsum([0, *(len(one.ids) for one in hits)])
    lims = np.concatenate([[0], np.cumsum(inside)])[ends]
    return lims.astype(np.uint64), found[inside], ids[inside]


def selected(ids: Any, known: Ids) -> Ids:
    """Those of the known ids that are listed, or that one of FAISS's selectors takes."""
    if hasattr(ids, "is_member"):
        members = np.array([ids.is_member(one) for one in known.tolist()], dtype=bool)
        return np.compress(members, known)
    wanted = np.asarray(ids)
    if wanted.size and wanted.dtype.kind not in "iu":
        raise InvalidInput(f"ids must be whole numbers or a selector of FAISS, got {wanted.dtype}: convert them first")
    found: Ids = np.intersect1d(known, wanted.astype(np.int64))
    return found


class Items(Protocol):
    """What has ids."""

    @property
    def ids(self) -> Ids:
        """All of them."""


def merge_params(params: Any, chosen: Filter, items: Items) -> Filter:
    """The filter that a search of these items goes by, given one of ours or FAISS's parameters."""
    if params is None:
        return chosen
    if type(params).__name__ != "SearchParameters":
        raise InvalidInput(
            f"params may be faiss.SearchParameters(sel=...), got {type(params).__name__}: in place of nprobe or "
            "efSearch, set index.index.candidates, or have index.index.tune choose it"
        )
    if params.sel is None:
        return chosen
    if chosen is not None:
        raise InvalidInput("params has a selector, and filter says too what may be found: give one of them")
    return selected(params.sel, items.ids)
