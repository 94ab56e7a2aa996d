"""Filters: which items a search may return, given as ids, as a mask by id, or as a condition on attributes.

    Filter ──rule──▶ what ids, a mask or a condition (conditions.py) allows of a run   kept as long as its codes live
           ──less tombstones──▶ `Kept`: a bitmap, positions, their count               kept as long as the run lives

A search without a filter has `EVERYTHING`, which leaves tombstones out by the same steps.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import Ids, StoredIds, as_array, check_ids
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.runs import Positions, SortedRun

ITEMS_PER_LOOKUP = 512  # of a run, that are tested against a filter while one is looked up by its id
MASK_BITS_PER_ID = 512  # of a mask that ids are tested by
RECENT_FILTERS, RECENT_BYTES = 8, 1 << 22  # that are kept, and the largest content of one
ALL_ALLOWED = np.zeros(0, dtype=np.uint64)  # a bitmap that allows all


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


class Kept:
    """The items of a run that a filter allows: positions, ascending, or a bitmap; each is computed from the other."""

    def __init__(self, size: int, *, words: NDArray[np.uint64] | None = None, at: Positions | None = None) -> None:
        self.size, self._words, self._at = size, words, at
        if words is None and at is None:
            self.count = size
        else:
            self.count = len(at) if at is not None else int(np.bitwise_count(words).sum())  # type: ignore[arg-type]

    @classmethod
    def of_mask(cls, mask: NDArray[np.bool_]) -> "Kept":
        """Return the items where a mask is set."""
        return cls(len(mask), words=bitmap(mask))

    @classmethod
    def of_bits(cls, bits: NDArray[np.uint8], size: int) -> "Kept":
        """Return the items where bits are set, the first lowest; bits beyond the last item are ignored."""
        words = np.zeros(size // 64 + 1, dtype="<u8")
        words.view(np.uint8)[: len(bits)] = bits
        words[-1] &= np.uint64((1 << (size & 63)) - 1)
        return cls(size, words=words.astype(np.uint64, copy=False))

    @lazy_property
    def bitmap(self) -> NDArray[np.uint64]:
        """A bit for each item, the first lowest; an empty bitmap allows all."""
        if self.count == self.size:
            return ALL_ALLOWED
        if self._words is not None:
            return self._words
        assert self._at is not None
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[self._at] = True
        return bitmap(mask)

    @lazy_property
    def positions(self) -> Positions:
        """The positions of the items, ascending."""
        if self._at is not None:
            return self._at
        if self.count == self.size:
            return np.arange(self.size, dtype=np.uint32)
        assert self._words is not None
        bits = np.unpackbits(self._words.astype("<u8", copy=False).view(np.uint8), count=self.size, bitorder="little")
        return bits.nonzero()[0].astype(np.uint32)

    def contains(self, positions: Positions) -> NDArray[np.bool_]:
        """Return whether items at some positions are among these."""
        if self.count == self.size:
            return np.ones(len(positions), dtype=np.bool_)
        found: NDArray[np.bool_] = (self.bitmap[positions >> 6] >> (positions & 63).astype(np.uint64)) & 1 == 1
        return found

    def without(self, positions: Positions) -> "Kept":
        """Return these items less those at some positions, which are distinct."""
        if not len(positions):
            return self
        if self._at is not None:
            return Kept(self.size, at=np.setdiff1d(self._at, positions, True))
        words = np.full(self.size // 64 + 1, 2**64 - 1, dtype=np.uint64) if self._words is None else self._words.copy()
        if self._words is None:
            words[-1] = (1 << (self.size & 63)) - 1
        np.bitwise_and.at(words, positions >> 6, ~(np.uint64(1) << (positions & 63).astype(np.uint64)))
        return Kept(self.size, words=words)


def bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return a mask as words of 64 bits, the first item lowest."""
    packed = np.packbits(mask, bitorder="little")
    words = np.zeros(len(mask) // 64 + 1, dtype="<u8")
    words.view(np.uint8)[: len(packed)] = packed
    return words.astype(np.uint64, copy=False)


class Rule(Protocol):
    """A condition on items."""

    def kept(self, run: SortedRun) -> Kept:
        """Return the items of a run that it allows, deleted ones too."""


class Filter:
    """Which items searches may return: `Index.filter` prepares one, for any number of searches.

    >>> from nestcode import Codes, Index
    >>> index = Index(width=2)
    >>> index.add(Codes.from_bits([[0, 0], [0, 1], [1, 1]]), ids=[3, 4, 5])
    >>> wanted = index.filter([4, 5])
    >>> wanted
    Filter(2 ids)
    >>> index.search(Codes.from_bits([[0, 0]]), k=2, filter=wanted).ids
    array([[4, 5]])

    The allowed items of a run are computed once, and kept as long as the run lives. So a search takes as long as a
    search without a filter that compares the same items, and an addition costs only new runs.

    Args:
        rule: the condition on an item; None allows all items.
        text: a description for its `repr`.

    """

    def __init__(self, rule: Rule | None, text: str) -> None:
        self.rule, self._text = rule, text
        self._allowed: WeakKeyDictionary[object, Kept] = WeakKeyDictionary()  # by what outlives tombstones
        self._kept: WeakKeyDictionary[SortedRun, Kept] = WeakKeyDictionary()

    def kept(self, run: SortedRun) -> Kept:
        """Return the items of a run that are allowed, and were not deleted."""
        known = self._kept.get(run)
        if known is None:
            known = self._kept[run] = self._allowed_of(run).without(run.tombstones)
        return known

    def _allowed_of(self, run: SortedRun) -> Kept:
        if self.rule is None:
            return Kept(len(run.ids))
        known = self._allowed.get(run.owner)
        if known is None:
            known = self._allowed[run.owner] = self.rule.kept(run)
        return known

    def __repr__(self) -> str:
        return f"Filter({self._text})"


EVERYTHING: Filter = Filter(None, "everything")
Filtering = Filter | str | tuple[str, Sequence[Any]] | ArrayLike | Iterable[int]  # or an expression of pyarrow


Content = tuple[int, bytes]  # entries of a mask and its bits, or -1 and ids


class RecentFilters:
    """The filters of recent ids and masks, by their values: a repeated one costs a comparison.

    >>> recent = RecentFilters()
    >>> mask = np.array([True, False, True])
    >>> first, again = (recent.of(mask.copy(), lambda: 2, largest=2) for _ in range(2))
    >>> first is again
    True
    """

    def __init__(self) -> None:
        self._recent: tuple[tuple[Content, Filter], ...] = ()  # replaced whole, as threads share it

    def of(self, allowed: ArrayLike | Iterable[int], least: Callable[[], int], largest: int) -> Filter:
        """Return the filter of ids, or of a mask by id, as `filter_of` does for one search."""
        if type(allowed) is np.ndarray and allowed.ndim == 1 and allowed.dtype == np.int64:
            array, checked = allowed, False  # ids that are known were checked
        else:
            array, checked = check_allowed(allowed), True
        if array.dtype == bool:
            _check_length(array, least, largest)
            if array.all():
                return EVERYTHING
        content = len(array) if array.dtype == bool else -1, _bytes(array)
        recent = self._recent
        for i, (known, found) in enumerate(recent):
            if known == content:
                if i:
                    self._recent = (recent[i], *recent[:i], *recent[i + 1 :])
                return found
        found = _filter_of(array if checked else check_allowed(array))
        if len(content[1]) <= RECENT_BYTES:
            self._recent = ((content, found), *recent[: RECENT_FILTERS - 1])
        return found


def _bytes(array: Ids | NDArray[np.bool_]) -> bytes:
    return (np.packbits(array) if array.dtype == bool else array).tobytes()


def filter_of(allowed: ArrayLike | Iterable[int], least: Callable[[], int], largest: int) -> Filter:
    """Return a filter of ids, or of a mask by id, which is used after additions too.

    >>> filter_of([3, 5], lambda: 0, largest=9), filter_of([True, False], lambda: 0, largest=1)
    (Filter(2 ids), Filter(a mask of 1 among 2 ids))

    Args:
        allowed: the ids, or the mask.
        least: returns the largest id in the index, or -1: a mask has an entry for each id up to it.
        largest: the largest id that the index ever used, or -1: a mask has no entries beyond.

    """
    array = check_allowed(allowed)
    if array.dtype == bool:
        _check_length(array, least, largest)
    return _filter_of(array)


def filter_of_ids(ids: Ids) -> Filter:
    """Return a filter of ids that were checked.

    >>> filter_of_ids(np.array([3, 5]))
    Filter(2 ids)
    """
    return Filter(_AllowedIds(ids), f"{len(ids)} ids")


def _check_length(mask: NDArray[Any], least: Callable[[], int], largest: int) -> None:
    """Raise unless a mask has an entry for each id."""
    if len(mask) != largest + 1 and not least() < len(mask) <= largest + 1:
        raise InvalidInput(
            f"a mask by id must have {largest + 1} entries, one for each id up to {largest}, the largest "
            f"used, got {len(mask)}: fill it up with False or True, or give ids, as in np.flatnonzero(mask)"
        )


def _filter_of(array: Ids | NDArray[np.bool_]) -> Filter:
    if array.dtype != bool:
        return filter_of_ids(array.astype(np.int64))  # a copy: the caller may change it
    count = int(np.count_nonzero(array))
    text = f"a mask of {count:,} among {len(array):,} ids"
    if ITEMS_PER_LOOKUP * count < len(array):
        return Filter(_AllowedIds(np.flatnonzero(array)), text)
    return Filter(_Mask(array), text)


class _AllowedIds:
    """A rule that names ids."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def kept(self, run: SortedRun) -> Kept:
        """Look the ids up in the run, or the run's ids among them, whichever are fewer by far."""
        if ITEMS_PER_LOOKUP * len(self._ids) < len(run.ids):
            found = np.unique(run.owner.find(self._ids))
            return Kept(len(run.ids), at=found[found >= 0].astype(np.uint32))
        return Kept.of_mask(np.isin(_ids_of(run), self._ids)) if self._mask is None else self._mask.kept(run)

    @lazy_property
    def _mask(self) -> "_Mask | None":
        """The same as a mask, or None where it would be long."""
        largest = int(self._ids.max(initial=-1))
        if largest >= MASK_BITS_PER_ID * len(self._ids):
            return None
        mask = np.zeros(largest + 1, dtype=np.bool_)
        mask[self._ids] = True
        return _Mask(mask)


class _Mask:
    """A rule that has an entry for each id; ids beyond are not allowed."""

    def __init__(self, mask: NDArray[Any]) -> None:
        self._bits, self._size = np.packbits(mask, bitorder="little"), len(mask)

    def kept(self, run: SortedRun) -> Kept:
        """Look up each id of the run."""
        ids = _ids_of(run)
        words = np.zeros(len(ids) // 64 + 1, dtype=np.uint64)
        _core.select_ids(ids, self._bits, self._size, words)
        return Kept(len(ids), words=words)


def _ids_of(run: SortedRun) -> StoredIds:
    """Return all ids of a run, verified."""
    if "ids" in run.mapped:
        run.mapped["ids"].touch(0, run.ids.nbytes)
    return run.ids
