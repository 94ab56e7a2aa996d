"""A state made ready for search: its parts in the order of their codes, with what ranking needs."""

from collections.abc import Sequence
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.codes import Codes
from nestcode.index.segment import NONE, Part, Segment
from nestcode.index.state import State, Tail
from nestcode.search.scorer import PreparedCodes, QueryBatch, Scorer

Places = NDArray[np.uint32]
Scalar = TypeVar("Scalar", bound=np.generic)


class Allowed(Protocol):
    """Which items a search may find."""

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether it may, for each id."""


class Prepared:
    """What ranking made of segments, kept as long as they are."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._ready: WeakKeyDictionary[Segment, tuple[int, PreparedCodes]] = WeakKeyDictionary()

    def ready(self, holder: Part | Tail, bits: int) -> PreparedCodes:
        """A holder's codes made ready."""
        if isinstance(holder, Tail):
            return self.scorer.prepare(holder.codes(), bits)
        known = self._ready.get(holder.segment)
        if known is None or known[0] != bits:
            holder.segment.touch()  # all of it is read
            known = self._ready[holder.segment] = bits, self.scorer.prepare(holder.segment.codes, bits)
        return known[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return sum(ready.nbytes for _, ready in self._ready.values())


class View:
    """A state that can be searched."""

    def __init__(self, state: State, prepared: Prepared, allowed: Allowed | None = None) -> None:
        self.state, self.scorer = state, prepared.scorer
        self.bits = prepared.scorer.list_bits(len(state))
        self._ready = [prepared.ready(holder, self.bits) for holder in state.holders]
        self.ids = [holder.ids() if isinstance(holder, Tail) else holder.segment.ids for holder in state.holders]
        self._skipped = [_skipped(h, ids, allowed) for h, ids in zip(state.holders, self.ids, strict=True)]
        self._ends = np.cumsum([len(ids) for ids in self.ids])
        self.count = sum(map(len, self.ids)) - sum(map(len, self._skipped))
        parts = [ready.part(skip) for ready, skip in zip(self._ready, self._skipped, strict=True)]
        self._searcher = _core.Searcher(parts) if parts else None

    def rough(
        self, batch: QueryBatch, count: int, candidates: int, keep: int, threads: int
    ) -> tuple[NDArray[np.float32], Places, NDArray[np.int64]]:
        """The best hits of each of `count` queries: rough distances, places, and how many items were compared."""
        distances = np.empty((count, keep), dtype=np.float32)
        places, compared = np.empty((count, keep), dtype=np.uint32), np.empty(count, dtype=np.int64)
        if self._searcher is not None:
            out = _core.SearchResults(distances, places, compared)
            self.scorer.estimate(self._searcher, batch, self.bits, candidates, out, threads)
        return distances, places, compared

    def ids_at(self, places: Places) -> NDArray[np.int64]:
        """The ids of items by their places in all parts, -1 for none."""
        found = self._take(self.ids, places.reshape(-1)).reshape(places.shape)
        found[places == np.iinfo(np.uint32).max] = -1
        return found

    def codes_at(self, places: Places) -> Codes:
        """The codes of items by their places in all parts; any for none."""
        rows = self._take([ready.rows for ready in self._ready], places.reshape(-1))
        return Codes.unchecked(rows, self.state.width)

    def _take(self, arrays: Sequence[NDArray[Scalar]], places: Places) -> NDArray[Scalar]:
        """Rows of the parts' arrays by places in all parts; the last one for places beyond."""
        if len(arrays) == 1:
            return arrays[0].take(places, axis=0, mode="clip")
        places = np.minimum(places, self._ends[-1] - 1).astype(np.uint32)
        out = np.empty((len(places), *arrays[0].shape[1:]), dtype=arrays[0].dtype)
        owner = np.searchsorted(self._ends, places, side="right")
        for p, array in enumerate(arrays):
            mine = owner == p
            out[mine] = array[places[mine] - (self._ends[p] - len(array))]
        return out

    def items(self) -> list[tuple[NDArray[np.int64], Codes]]:
        """The ids and codes of all that may be found, part by part."""
        found = []
        for ids, ready, skipped in zip(self.ids, self._ready, self._skipped, strict=True):
            rows = ready.rows
            if len(skipped):
                kept = np.delete(np.arange(len(ids)), skipped)
                ids, rows = ids[kept], rows[kept]
            found.append((ids, Codes.unchecked(rows, self.state.width)))
        return found


def _skipped(holder: Part | Tail, ids: NDArray[np.int64], allowed: Allowed | None) -> NDArray[np.uint32]:
    """The places that must not be found, ascending."""
    dead = NONE if isinstance(holder, Tail) else holder.dead
    if allowed is None:
        return dead
    refused = ~allowed(ids)
    refused[dead] = True
    return np.flatnonzero(refused).astype(np.uint32)
