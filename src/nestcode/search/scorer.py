"""Scorers: how a search estimates the distances of many codes and reranks the best of them.

A scorer is built from what a coder reports about its codes (`Coder.layout`); `scorer_for` chooses it:

    layout           scorer           estimates by                                  reranks by
    ScalarLayout     FastScanScorer   4-bit fast-scan of the first bit planes       decoded codes
    CodebookLayout   AdcScorer        ADC lookup tables of the first bytes          decoded codes
    BaseLayout       DecodedScorer    the base's scorer                             decoded codes
    None             DecodedScorer    Hamming distance                              decoded codes
    (bare codes)     HammingScorer    Hamming distance                              –
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Bytes, Floats
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search.zeros import zero_codes

if TYPE_CHECKING:
    from nestcode.search.projected import ProjectedScorer
    from nestcode.search.request import Request

SearchMetric = Literal["l2", "cosine", "inner"]
BLOCK = 32  # items that fast-scan scores at once
NO_BLOCKS, NO_STARTS = np.zeros((0, 0, BLOCK), dtype=np.uint8), np.zeros(0, dtype=np.uint32)
NO_BIASES = np.zeros(0, dtype=np.int16)
NO_NORMS = np.zeros(0, dtype=np.float32)
NO_CODEBOOKS = np.zeros((0, 256, 0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ScanLayout:
    """The arrays that a scorer scans beside sorted codes, or instead of them; arrays that it does not need are empty.

    An index stores it with its segments, and any scorer of the same format uses it unchanged.
    """

    format: str = ""
    # (blocks, bytes, 32): the 4-bit groups of 32 items side by side
    blocks: Bytes = field(default_factory=lambda: NO_BLOCKS)
    biases: NDArray[np.int16] = field(default_factory=lambda: NO_BIASES)  # of each item in the blocks
    # of what the items in the blocks decode to, where distances are those by angle; or squared, of what codes decode to
    norms: Floats = field(default_factory=lambda: NO_NORMS)
    guards: Mapping[str, _core.ChecksumGuard] = field(default_factory=dict)  # of mapped arrays, by name

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names on disk, without empty ones."""
        arrays: dict[str, NDArray[Any]] = {"blocks": self.blocks, "biases": self.biases, "norms": self.norms}
        return {name: array for name, array in arrays.items() if array.size}

    @classmethod
    def of_arrays(
        cls, name: str, arrays: Mapping[str, NDArray[Any]], guards: Mapping[str, _core.ChecksumGuard]
    ) -> "ScanLayout":
        """Return the layout whose `arrays` these are, in a format of this name."""
        biases = arrays.get("biases", NO_BIASES)
        empty = np.zeros((len(biases) // BLOCK, 0, BLOCK), dtype=np.uint8)  # of short codes
        return cls(name, arrays.get("blocks", empty), biases, arrays.get("norms", NO_NORMS), guards)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays().values())


NO_LAYOUT = ScanLayout()


class Scorer(ABC):
    """Estimates distances from queries to the codes of an index, and computes distances to whole codes.

    Args:
        width: of the codes.
        base: the scorer that estimates distances, if this one only reranks.

    """

    layout_format = ""  # of `lay_out`: another name whenever it would return something else for the same codes
    ns_per_estimated: float  # nanoseconds that the estimate of an item takes
    ns_per_decoded = 0.0  # nanoseconds that a network takes to decode an item
    bias_unit = 0.0  # of the biases in a layout
    projected: "ProjectedScorer | None" = None  # estimates by a projection of queries; None: compares codes
    decodable: "ProjectedScorer | None" = None  # the core decodes whole codes by it; None: only the coder does
    keeps_decoded = True  # whether scans of small indexes keep decoded vectors
    features = 0  # of what codes decode to
    coder: Coder  # bare codes have none

    def __init__(self, width: int, base: "Scorer | None" = None) -> None:
        self.width, self.base = width, base

    @property
    def estimator(self) -> "Scorer":
        """The scorer that ranks lists and estimates their items: the last base, or this one."""
        return self if self.base is None else self.base.estimator

    @lazy_property
    def zero_codes(self) -> Codes:
        """The codes that only zero vectors have."""
        return zero_codes(self.coder, self.width)

    @abstractmethod
    def distances(self, request: "Request", codes: Codes) -> Floats:
        """Return the distances from each query to its own share of the codes, (queries, codes / queries)."""

    @abstractmethod
    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""

    @abstractmethod
    def list_distances(self, request: "Request", bits: int) -> Floats:
        """Return the distances from queries to all inverted lists, (queries, 2^bits), up to a term that lists share."""

    def lay_out(self, codes: Codes) -> ScanLayout:  # noqa: ARG002
        """Return the layout that estimates read in addition to sorted codes; this takes time linear in their number."""
        return NO_LAYOUT

    def block_starts(self, list_starts: NDArray[np.uint32]) -> NDArray[np.uint32]:  # noqa: ARG002
        """Return the first fast-scan block of each centroid, given where inverted lists begin."""
        return NO_STARTS
