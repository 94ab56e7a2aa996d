"""Memory tiers: which arrays of an opened index are read into memory, and which stay in mapped files.

    "all"         codes and vectors in memory
    "codes"       codes in memory; vectors in files
    "prefix=128"  the first 128 bits of codes in memory, as searches scan them; all else in files
    None          everything in mapped files, of which the system keeps in memory what fits

What stays in files is read only for the last few candidates of a search, in batches.
"""

import re
from dataclasses import dataclass
from typing import Self

from nestcode.errors import InvalidInput

SMALL = ("ids", "scales")  # read with every candidate, and small beside what they belong to
LARGE = ("vectors",)


@dataclass(frozen=True)
class Memory:
    """A memory tier.

    >>> tier = Memory.parse("prefix=128")
    >>> tier.prefix, tier.holds("codes"), tier.holds("ids")
    (128, False, True)
    """

    vectors: bool  # in memory
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

    def holds(self, name: str) -> bool:
        """Return whether an array, by its name on disk, is read into memory."""
        return name in SMALL or (self.vectors if name in LARGE else self.prefix is None)
