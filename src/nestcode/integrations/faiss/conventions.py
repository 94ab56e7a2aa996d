"""FAISS's conventions: scores instead of distances, open ranges, selectors inside search parameters."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, is_number, shown
from nestcode.errors import InvalidInput
from nestcode.search.hits import RangeHits
from nestcode.search.scorer import SearchMetric

RangeResult = tuple[NDArray[np.uint64], Floats, Ids]  # lims, D, I
Filter = ArrayLike | Iterable[int] | None
MISSING = np.finfo(np.float32).max  # FAISS's distance of missing items, which have id -1


def scores(distances: Floats, ids: Ids, metric: SearchMetric) -> Floats:
    """Return our distances as FAISS's: squared distances for l2, otherwise similarities, the largest first."""
    if metric == "l2":
        return np.where(ids >= 0, distances, MISSING)
    return np.where(ids >= 0, -distances if metric == "inner" else 1 - distances / 2, -MISSING)


def radius_of(thresh: float, metric: SearchMetric) -> float:
    """Return our distance at which FAISS's score is `thresh`."""
    infinite = isinstance(thresh, float | np.floating) and np.isinf(thresh)
    if not infinite and not is_number(thresh):
        raise InvalidInput(f"thresh must be a number, got {shown(thresh)}: give a squared distance, or a similarity")
    thresh = float(thresh)
    distance = thresh if metric == "l2" else -thresh if metric == "inner" else 2 - 2 * thresh
    return float(np.clip(distance, -MISSING, MISSING))


def flatten_range(hits: RangeHits, thresh: float, metric: SearchMetric) -> RangeResult:
    """Return the hits of all queries concatenated, with the limits of each; scores equal to `thresh` are excluded."""
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *(one.ids for one in hits)])
    distances = np.concatenate([np.zeros(0, dtype=np.float32), *(one.distances for one in hits)])
    found = scores(distances, ids, metric)
    wide = found.astype(np.float64)  # thresh may exceed float32's range
    inside = wide < thresh if metric == "l2" else wide > thresh
    ends = np.cumsum([0, *(len(one.ids) for one in hits)])
    lims = np.concatenate([[0], np.cumsum(inside)])[ends]
    return lims.astype(np.uint64), found[inside], ids[inside]


def select_ids(ids: Any, known: Ids) -> Ids:
    """Return the known ids that are listed, or that a selector of FAISS accepts."""
    if hasattr(ids, "is_member"):
        members = np.array([ids.is_member(one) for one in known.tolist()], dtype=bool)
        return np.compress(members, known)
    wanted = np.asarray(ids)
    if wanted.size and wanted.dtype.kind not in "iu":
        raise InvalidInput(f"ids must be integers or a selector of FAISS, got {wanted.dtype}: convert them first")
    found: Ids = np.intersect1d(known, wanted.astype(np.int64))
    return found


def check_params(params: Any) -> None:
    """Raise unless FAISS's search parameters are of the kind that has a selector and nothing else."""
    if type(params).__name__ != "SearchParameters":
        raise InvalidInput(
            f"params must be faiss.SearchParameters(sel=...), got {type(params).__name__}: instead of nprobe or "
            "efSearch, set index.index.effort, or call index.index.tune"
        )
