"""Memory tiers: which arrays of an opened index are read into memory, and which stay in mapped files.

    "all"         everything in memory
    "codes"       in memory what searches scan of codes, and whole codes where no vectors rerank; all else in files
    "prefix=128"  in memory what searches scan of the first 128 bits of codes; all else in files
    None          everything in mapped files, of which the system keeps in memory what fits

What stays in files is read only for the last few candidates of a search, in batches.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from nestcode.errors import InvalidInput

if TYPE_CHECKING:
    from nestcode.index.index import Index

SMALL = {"ids", "scales"}  # read with every candidate, and small beside what they belong to
SCANNED = {"blocks", "biases", "norms"}


@dataclass(frozen=True)
class Memory:
    """A memory tier.

    >>> tier = Memory.parse("prefix=128")
    >>> tier.prefix, tier.held(["codes", "ids", "heads"])
    (128, {'ids'})
    """

    everything: bool  # in memory
    prefix: int | None  # the leading bits of codes that are in memory; None is all

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the tier of this name."""
        found = re.fullmatch(r"prefix=([1-9][0-9]{0,8})", text) if isinstance(text, str) else None
        if found is None and text not in ("all", "codes"):
            raise InvalidInput(
                f'memory must be "all", "codes", "prefix=BITS" as in "prefix=128", or None, got {text!r}'
            )
        return cls(text == "all", None if found is None else int(found[1]))

    def held(self, names: Collection[str]) -> set[str]:
        """Return which arrays of a segment, by their names on disk, are read into memory."""
        if self.everything:
            return set(names)
        held = SMALL if self.prefix is not None else SMALL | SCANNED
        if self.prefix is None and not {"blocks", "vectors"} <= set(names):  # they are scanned, or rerank
            held = held | {"codes"}
        return held & set(names)


def drop_pages(index: "Index") -> None:
    """Let go of what searches have read of the mapped files of an index; the next search reads it again."""
    for one in index._live.current.segments:
        for mapped in one.segment.mapped.values():
            mapped.unmap_pages()
