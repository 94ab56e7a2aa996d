"""Memory tiers: which arrays of an opened index are read into memory, and which stay in mapped files.

    "all"    everything in memory
    "codes"  in memory what searches scan of codes, and whole codes where no vectors rerank; all else in files
    None     everything in mapped files, of which the system keeps in memory what fits

What stays in files is read only for the last few candidates of a search, in batches.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.index.reader import IndexReader

SMALL = {"ids", "scales"}  # read with every candidate, and small beside what they belong to
SCANNED = {"blocks", "biases", "norms"}


@dataclass(frozen=True)
class Memory:
    """A memory tier.

    >>> Memory.parse("codes").held(["ids", "heads"])
    {'ids'}
    """

    everything: bool  # in memory

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the tier of this name."""
        if text not in ("all", "codes"):
            raise InvalidInput(f'memory must be "all", "codes" or None, got {text!r}: choose one of them')
        return cls(text == "all")

    def held(self, names: Collection[str]) -> set[str]:
        """Return which arrays of a segment, by their names on disk, are read into memory."""
        if self.everything:
            return set(names)
        scanned = {"blocks", "vectors"} <= set(names)  # codes are neither scanned nor reranked by
        return (SMALL | SCANNED | (set() if scanned else {"codes"})) & set(names)


def drop_pages(index: "IndexReader") -> None:
    """Let go of what searches have read of the mapped files of an index; the next search reads it again."""
    for one in index._live.current.segments:
        for mapped in one.segment.mapped.values():
            mapped.unmap_pages()
