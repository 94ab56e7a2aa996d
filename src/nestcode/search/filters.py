"""Filters: which items a search may return, given as ids or as a mask by id."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Ids, StoredIds, as_array, check_ids
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.runs import Positions, SortedRun

LOOKUPS_PER_ID = 64  # items of a run that are tested against a filter while one is looked up by its id
MASK_BYTES_PER_ID = 64  # of a mask that ids are tested by


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
        if array.dtype == bool and LOOKUPS_PER_ID * np.count_nonzero(array) < len(array):
            array = np.flatnonzero(array)
        self._ids: Ids | None = None if array.dtype == bool else array.astype(np.int64, copy=False)
        self._mask = np.append(array, False) if array.dtype == bool else None

    def positions(self, run: SortedRun) -> Positions:
        """Return the positions in a run of items that may be found, ascending."""
        if self._ids is not None and LOOKUPS_PER_ID * len(self._ids) < len(run.ids):
            found = np.unique(run.find(self._ids))
            return found[found >= 0].astype(np.uint32)
        if "ids" in run.mapped:
            run.mapped.touch_rows("ids", np.arange(len(run.ids), dtype=np.uint32))
        mask = self.contains(run.ids)
        if len(run.tombstones):
            mask[run.tombstones] = False
        return mask.nonzero()[0].astype(np.uint32)

    def contains(self, ids: StoredIds) -> NDArray[np.bool_]:
        """Return whether items of these ids may be found."""
        if self._dense is None:
            assert self._ids is not None
            return np.isin(ids, self._ids)
        found: NDArray[np.bool_] = self._dense.take(ids, mode="clip")
        return found if ids.dtype.kind == "u" else found & (ids >= 0)

    @lazy_property
    def _dense(self) -> NDArray[np.bool_] | None:
        """A mask by id, whose last entry, False, is that of all ids beyond, or None where it would be long."""
        if self._ids is None:
            return self._mask
        largest = int(self._ids.max(initial=-1))
        if largest >= MASK_BYTES_PER_ID * len(self._ids):
            return None
        mask = np.zeros(largest + 2, dtype=np.bool_)
        mask[self._ids] = True
        return mask
