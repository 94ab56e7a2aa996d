"""Memory tiers: which arrays of an opened index are read into memory, and which stay in mapped files.

    "all"    everything in memory
    "codes"  in memory what searches estimate distances by: what they scan of codes, or the leading bits that navigate
             a graph; and whole codes where no vectors rerank. All else in files: also the nodes of graphs
    None     everything in mapped files; the system caches what fits in memory

Arrays in files are read only for the last few candidates of a search, in batches, and for the nodes that a walk visits,
one block each.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.index.reader import IndexReader

SMALL = {"ids", "scales"}  # read with every candidate, and small beside what they belong to
SCANNED = {"blocks", "biases", "norms"}
NAVIGATED = {"groups", "corrections", "slots"}  # of a graph


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

    def held(self, names: Collection[str], *, walked: bool = False) -> set[str]:
        """Return which arrays of a segment, by their names on disk, are read into memory.

        Args:
            names: of all arrays.
            walked: whether the segment has a graph whose nodes searches read.

        """
        if self.everything:
            return set(names)
        if walked:
            return SMALL & set(names)
        scanned = {"blocks", "vectors"} <= set(names)  # codes are neither scanned nor reranked by
        return (SMALL | SCANNED | (set() if scanned else {"codes"})) & set(names)


def drop_pages(index: "IndexReader") -> None:
    """Drop the pages that searches have read from the mapped files of an index; the next search reads them again."""
    for one in index._live.current.segments:
        graph = [] if one.graph is None else one.graph.mapped.values()
        for mapped in (*one.segment.mapped.values(), *graph):
            mapped.unmap_pages()
