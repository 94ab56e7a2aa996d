"""The compaction policy: which segments are merged next, and which get a graph.

It is size-tiered: a segment is merged with all smaller ones once these together are no longer small beside it. So an
index of n items has about log n segments, and each item is copied about log n times. A graph costs far more than a
copy, so a segment that has one is merged less eagerly.
"""

from collections.abc import Sequence

from nestcode.index.segment import LiveSegment

SIZE_RATIO = 32  # a segment is at least this many times as large as all smaller ones together, or they are merged
GRAPH_RATIO = 4  # the same for a segment with a graph, which merging would build anew
MIN_GRAPH = 4096  # items of a segment that gets a graph; fewer are scanned as fast
MAX_DELETED = 1 / 4  # of a segment's items; with more tombstones it is rewritten
STALL = 24  # segments; with more, writers wait for compaction


def pick_segments(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    """Return the segments to merge next; none where the policy holds."""
    by_size = sorted(segments, key=len)
    chosen, smaller = 0, 0
    for count, one in enumerate(by_size, start=1):
        if count > 1 and len(one) < (SIZE_RATIO if one.graph is None else GRAPH_RATIO) * smaller:
            chosen = count
        smaller += len(one)
    if chosen:
        return by_size[:chosen]
    return [one for one in segments if len(one.tombstones) > MAX_DELETED * len(one.segment)][:1]


def pick_for_graph(segments: Sequence[LiveSegment]) -> LiveSegment | None:
    """Return the largest segment that lacks a graph, or None where all that are large enough have one."""
    lacking = [one for one in segments if one.graph is None and len(one.segment) >= MIN_GRAPH]
    return max(lacking, key=len, default=None)
