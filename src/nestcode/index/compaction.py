"""The compaction policy: which segments are merged next.

It is size-tiered: a segment is merged with all smaller ones once these together are no longer small beside it. So an
index of n items has about log n segments, and each item is copied about log n times.
"""

from collections.abc import Sequence

from nestcode.index.segment import LiveSegment

SIZE_RATIO = 32  # a segment is at least this many times as large as all smaller ones together, or they are merged
MAX_DELETED = 1 / 4  # of a segment's items; with more tombstones it is rewritten
STALL = 24  # segments; with more, writers wait for compaction


def pick_segments(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    """Return the segments to merge next; none where the policy holds."""
    by_size = sorted(segments, key=len)
    chosen, smaller = 0, 0
    for count, one in enumerate(by_size, start=1):
        if count > 1 and len(one) < SIZE_RATIO * smaller:
            chosen = count
        smaller += len(one)
    if chosen:
        return by_size[:chosen]
    return [one for one in segments if len(one.tombstones) > MAX_DELETED * len(one.segment)][:1]
