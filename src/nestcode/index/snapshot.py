"""Snapshots: what an index holds at one moment.

A snapshot never changes; every write makes a new one, and an index changes by replacing one reference. So a search that
began on one snapshot is not disturbed by what other threads write.

    segments  sorted runs, each with its tombstones ──┐
    buffer    the newest items ───────────────────────┴──▶ runs ──▶ forest: all of it, searched as one prefix tree
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats, Ids
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.index.buffer import Buffer
from nestcode.index.segment import LayOut, LiveSegment, Segment, StoredGraph, gather_attributes
from nestcode.index.tree import Forest
from nestcode.search.filters import EVERYTHING, Filter
from nestcode.search.schema import Schema
from nestcode.search.vectors import RunVectors, StoredVectors, VectorFormat

if TYPE_CHECKING:
    from nestcode.search.attributes import Attributes

OnDuplicate = Literal["error", "replace"]
Located = tuple[NDArray[np.int64], NDArray[np.int64]]  # of each item: its run, or -1, and its position there


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Segments with their tombstones, and the write buffer."""

    width: int
    segments: tuple[LiveSegment, ...]
    buffer: Buffer

    lay_out: LayOut  # what searches scan of the codes of new segments
    vector_format: VectorFormat | None = None  # how the vectors of items are stored, if they are
    schema: Schema | None = None  # the columns of attributes, once items with some were added

    @classmethod
    def of(
        cls,
        width: int,
        segments: Sequence[LiveSegment],
        lay_out: LayOut,
        vector_format: VectorFormat | None = None,
        schema: Schema | None = None,
    ) -> Self:
        """Return a snapshot of these segments and an empty buffer."""
        return cls(width, tuple(segments), Buffer.empty(width, vector_format), lay_out, vector_format, schema)

    @lazy_property
    def forest(self) -> Forest:
        """All runs, searched as one prefix tree."""
        return Forest(self.runs, self.width)

    @property
    def runs(self) -> tuple[LiveSegment | Buffer, ...]:
        """The sorted runs: all segments, and the buffer unless it is empty."""
        return (*self.segments, self.buffer) if len(self.buffer) else self.segments

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def nbytes_by_part(self) -> dict[str, int]:
        """Return the bytes of all arrays of segments by their names on disk, of tombstones and the buffer."""
        parts = Counter({"buffer": self.buffer.nbytes})
        for one in self.segments:
            parts.update(one.segment.nbytes_by_part())
            parts["tombstones"] += one.tombstones.nbytes
            if one.graph is not None:
                parts["neighbors"] += one.graph.nbytes
        return dict(parts)

    # reads

    def check_sizes(self) -> None:
        """Raise if a mapped file was truncated."""
        for one in self.segments:
            one.check_sizes()

    def ids(self, allowed: Filter = EVERYTHING) -> Ids:
        """Return the ids of all items, or of the items that a filter allows, ascending."""
        found = [run.ids_at(allowed.kept(run).positions) for run in self.runs]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *found]))

    def largest(self) -> int:
        """Return the largest id of an item, or -1."""
        return int(self.ids().max(initial=-1))

    def locate(self, ids: Ids) -> Located:
        """Return the run and position of each id, -1 where it is not in the index."""
        run, position = np.full(len(ids), -1), np.full(len(ids), -1)
        for r, one in enumerate(self.runs):
            found = one.find(ids)
            run[found >= 0], position[found >= 0] = r, found[found >= 0]
        return run, position

    def locate_all(self, ids: Ids) -> Located:
        """Return the run and position of each id, or raise if one is not in the index."""
        run, position = self.locate(ids)
        if (run < 0).any():
            raise InvalidInput(
                f"ids must be of items in the index, but {some_ids(ids[run < 0])} not: ask `id in index`"
            )
        return run, position

    def codes(self, located: Located) -> Codes:
        """Return the codes of located items."""
        run, position = located
        packed = np.empty((len(run), -(-self.width // 8)), dtype=np.uint8)
        for r, one in enumerate(self.runs):
            packed[run == r] = one.codes_at(position[run == r]).packed
        return Codes.unchecked(packed, self.width)

    def vectors(self, located: Located) -> Floats:
        """Return the stored vectors of located items."""
        run, position = located
        starts = np.cumsum([0, *(len(one.ids) for one in self.runs)])
        assert self.vector_format is not None
        if not len(run):
            return np.empty((0, self.vector_format.features), dtype=np.float32)
        stored = [one.vectors for one in self.runs if one.vectors is not None]
        return RunVectors(stored, [one.mapped for one in self.runs]).rows(starts[run] + position).copy()

    def attributes(self, located: Located, columns: Sequence[str] | None = None) -> "Attributes | None":
        """Return some columns, or all, of located items, with nulls for missing items."""
        if self.schema is None:
            return None
        from nestcode.search.attributes import Attributes

        run, position = located
        schema = self.schema if columns is None else {name: self.schema[name] for name in columns}
        parts, order = [Attributes.nulls(schema, 0)], [np.empty(0, dtype=np.int64)]
        for r, one in enumerate((None, *self.runs), start=-1):
            mine = np.flatnonzero(run == r)
            own = None if one is None else one.attributes
            if len(mine):
                some = None if own is None else own.take(position[mine], schema)
                parts.append(
                    Attributes.nulls(schema, len(mine)) if some is None else Attributes(schema, len(mine), some)
                )
                order.append(mine)
        return Attributes.gather(parts, np.argsort(np.concatenate(order)))

    # writes: each returns a new snapshot

    def insert(
        self,
        codes: Codes,
        ids: Ids,
        vectors: StoredVectors | None = None,
        attributes: "Attributes | None" = None,
    ) -> "Snapshot":
        """Add items under new ids to the buffer; if they do not fit, flush it with them."""
        buffer, schema = self.buffer, self.schema if attributes is None else attributes.schema
        if len(codes) <= buffer.room:
            return replace(self, buffer=buffer.insert(codes, ids, vectors, attributes), schema=schema)
        if buffer.vectors is not None and vectors is not None:
            vectors = buffer.vectors.concat(vectors)
        columns = gather_attributes([(buffer.attributes, len(buffer)), (attributes, len(codes))])
        ids = np.concatenate([buffer.ids, ids])
        segment = Segment.build(buffer.codes.concat(codes), ids, vectors, self.lay_out, columns)
        return replace(self._with(*self.segments, LiveSegment(segment)), schema=schema)

    def add_columns(self, schema: Schema) -> "Snapshot":
        """Append columns of attributes, with nulls for all items."""
        return replace(self, schema={**(self.schema or {}), **schema})

    def attach(self, segments: Sequence[LiveSegment], schema: Schema | None) -> "Snapshot":
        """Add the segments of another snapshot, whose ids must be new."""
        if None not in (schema, self.schema) and schema != self.schema:
            raise InvalidInput(
                f"indexes must have the same columns of attributes to merge, got {self.schema} and {schema}: build one "
                "of them again"
            )
        # Compaction recognizes segments by identity, and the same one may be attached twice: each gets its own object.
        own = (LiveSegment(replace(one.segment), one.tombstones, one.graph) for one in segments)
        return replace(self, segments=(*self.segments, *own), schema=self.schema or schema)

    def flush(self) -> "Snapshot":
        """Turn the buffer into a segment."""
        if not len(self.buffer):
            return self
        own = self.buffer
        segment = Segment.build(own.codes, own.ids, own.vectors, self.lay_out, own.attributes)
        return self._with(*self.segments, LiveSegment(segment))

    def truncate(self, width: int) -> "Snapshot":
        """Keep the first `width` bits of each code."""
        flushed = self.flush()
        segments = (
            LiveSegment(
                one.segment.truncate(width, self.lay_out),
                one.tombstones,
                None if one.graph is None else one.graph.without_records(),
            )
            for one in flushed.segments
        )
        return Snapshot.of(width, tuple(segments), self.lay_out, self.vector_format, self.schema)

    def delete(self, located: Located) -> "Snapshot":
        """Delete located items: tombstones in segments, removal from the buffer. Segments without items are dropped."""
        run, position = located
        segments = [one.delete(position[run == r]) if (run == r).any() else one for r, one in enumerate(self.segments)]
        buffer = self.buffer.delete(position[run == len(self.segments)])
        return replace(self, segments=tuple(one for one in segments if len(one)), buffer=buffer)

    def free(self, ids: Ids, on_duplicate: OnDuplicate) -> "Snapshot":
        """Delete the items that use these ids, or raise if they must not be replaced."""
        run, position = self.locate(ids)
        taken = run >= 0
        if not taken.any():
            return self
        if on_duplicate == "error":
            raise InvalidInput(
                f'ids must be new, but {some_ids(ids[taken])} in use: give other ids, or pass on_duplicate="replace"'
            )
        return self.delete((run[taken], position[taken]))

    def replace_merged(self, sources: Sequence[LiveSegment], merged: Segment) -> "Snapshot":
        """Put a merged segment in the place of its sources, less what was deleted from them meanwhile."""
        now = {one.segment: one for one in self.segments}
        deleted = []
        for source in sources:
            left = now.pop(source.segment, None)
            alive = np.delete(np.arange(len(source.segment)), source.tombstones)
            later = alive if left is None else np.setdiff1d(left.tombstones, source.tombstones)
            deleted.append(source.segment.ids[later])
        live = LiveSegment(merged)
        if any(map(len, deleted)):
            live = live.delete(merged.find(np.concatenate(deleted).astype(np.int64, copy=False)))
        return replace(self, segments=(*((live,) if len(live) else ()), *now.values()))

    def _with(self, *segments: LiveSegment) -> "Snapshot":
        """Return these segments and an empty buffer."""
        return Snapshot.of(self.width, segments, self.lay_out, self.vector_format, self.schema)

    def add_graph(self, segment: Segment, graph: StoredGraph) -> "Snapshot":
        """Put a graph beside its segment, if that is still there."""
        segments = (
            LiveSegment(segment, one.tombstones, graph) if one.segment is segment else one for one in self.segments
        )
        return replace(self, segments=tuple(segments))


def some_ids(ids: Ids) -> str:
    """Return the first of some ids as the subject of an error, with its verb."""
    listed = ", ".join(map(str, ids[:3].tolist())) + (", …" if len(ids) > 3 else "")
    return f"{listed} {'is' if len(ids) == 1 else 'are'}"
