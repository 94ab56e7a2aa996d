"""The items of a prepared snapshot that a search may return: those that a filter allows and nobody deleted."""

import numpy as np

from nestcode import _core
from nestcode.arrays import Ids
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search.filters import EVERYTHING, Filter
from nestcode.search.hits import Hits
from nestcode.search.prepared import PreparedSnapshot
from nestcode.search.runs import Positions
from nestcode.search.vectors import BESIDE_CODES, NO_SCALES, RunVectors, StoredVectors
from nestcode.search.zeros import DISTANCE

GATHERED_BYTES = 1 << 26  # of the vectors that scans read side by side, for all filters of a snapshot together


class Selection:
    """The items of a prepared snapshot that a search may return: those that a filter allows and nobody deleted.

    Args:
        prepared: the snapshot.
        allowed: the filter.
        apart: whether operators skip zero vectors, which `with_zeros` adds: by angle, their decoded codes are
            meaningless.

    """

    def __init__(self, prepared: PreparedSnapshot, allowed: Filter = EVERYTHING, *, apart: bool = False) -> None:
        self.prepared = prepared
        self._kept = [allowed.kept(run) for run in prepared.runs]
        zeros = [self._set_apart(r) for r in range(len(prepared.runs) if apart else 0)]
        self.zeros = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *zeros]))  # ids
        self.count = sum(kept.count for kept in self._kept)
        self._scanned: set[RunVectors] = set()
        self._gathered: dict[RunVectors, tuple[_core.VectorRuns, Positions]] = {}

    def _set_apart(self, r: int) -> Ids:
        """Keep a run's zero vectors from the operators, and return their ids."""
        run, kept = self.prepared.runs[r], self._kept[r]
        zeros = self.prepared.cache.zeros(run)
        zeros = zeros[kept.contains(zeros)]
        self._kept[r] = kept.without(zeros)
        run.mapped.touch_rows("ids", zeros)
        return run.ids[zeros].astype(np.int64, copy=False)

    def with_zeros(self, hits: Hits) -> Hits:
        """Return hits, of a single query or several, with the zero vectors among them."""
        if not len(self.zeros):
            return hits
        k = hits.ids.shape[-1]
        shape = (*hits.ids.shape[:-1], min(k, len(self.zeros)))
        ids = np.concatenate([hits.ids, np.broadcast_to(self.zeros[:k], shape)], axis=-1)
        distances = np.concatenate([hits.distances, np.full(shape, DISTANCE)], axis=-1)
        order = np.lexsort((ids, distances))[..., :k]
        ids, distances = (np.take_along_axis(array, order, axis=-1) for array in (ids, distances))
        return Hits(ids, distances, hits.compared + len(self.zeros))

    @lazy_property
    def core(self) -> _core.Selection:
        """The bitmaps of all runs, as lists and graphs take them."""
        return _core.Selection(self.prepared.lists, [kept.bitmap for kept in self._kept])

    @lazy_property
    def positions(self) -> Positions:
        """The positions of the items in all runs together, ascending."""
        runs = zip(self._kept, self.prepared.ends.tolist(), strict=True)
        found = [kept.positions + np.uint32(end - kept.size) for kept, end in runs]
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, dtype=np.uint32), *found])

    def scanned(self, vectors: RunVectors) -> tuple[_core.VectorRuns, Positions]:
        """Return vectors of all runs, and the positions of the items among them.

        From the second scan on, the items lie side by side while there is room: items anywhere in memory take longer to
        read than to compare.
        """
        known = self._gathered.get(vectors)
        if known is None:
            known, gathered = (vectors.core, self.positions), self.prepared.gathered
            nbytes = vectors.scanned_type.itemsize * vectors.features * self.count
            fits = self.count < self.prepared.stored and sum(list(gathered.values())) + nbytes <= GATHERED_BYTES
            if vectors in self._scanned and fits and not vectors.in_files:
                rows = vectors.rows(self.positions.astype(np.int64)).astype(vectors.scanned_type, copy=False)
                known = RunVectors([StoredVectors(rows, NO_SCALES)]).core, np.arange(self.count, dtype=np.uint32)
                self._gathered[vectors] = known
                gathered[self] = gathered.get(self, 0) + nbytes
            self._scanned.add(vectors)
        return known

    @lazy_property
    def ids(self) -> Ids:
        """The ids of the items, in the order of `positions`."""
        return self.prepared.ids_at(self.positions)

    @lazy_property
    def sorted_ids(self) -> Ids:
        """The ids of the items, ascending: the order in which given vectors lie in memory."""
        return np.sort(self.ids)

    def items(self) -> list[tuple[Ids, Codes]]:
        """Return the ids and the codes of the items, run by run."""
        found, prepared = [], self.prepared
        for run in prepared.runs:
            run.mapped.touch(but=BESIDE_CODES)
        for run, rows, kept in zip(prepared.runs, prepared.rows, self._kept, strict=True):
            ids = run.ids
            if kept.count < kept.size:
                ids, rows = ids[kept.positions], rows[kept.positions]
            found.append((ids.astype(np.int64, copy=False), Codes.unchecked(rows, prepared.snapshot.width)))
        return found
