"""Hamming distances: lists are probed, and items scored, by the number of bits that differ from the query's code.

Bare codes have no other distance. Codes of a coder without a layout, such as an autoencoder's, are estimated this way
and reranked by decoding.
"""

import numpy as np

from nestcode.arrays import Floats
from nestcode.codes import Codes
from nestcode.search.inverted_lists import default_list_bits
from nestcode.search.planner import NS_PER_HAMMING_BYTE
from nestcode.search.request import Request
from nestcode.search.scorer import Scorer


class HammingScorer(Scorer):
    """Hamming distances between codes of `width` bits."""

    keeps_decoded = False

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.ns_per_estimated = 1 + NS_PER_HAMMING_BYTE * -(-width // 8)

    def distances(self, request: Request, codes: Codes) -> Floats:
        """Return Hamming distances from each query to its own share of the codes, (queries, codes / queries)."""
        rows = codes.packed.reshape(len(request), -1, codes.packed.shape[1])
        distances: Floats = np.bitwise_count(request.packed(self.width)[:, None] ^ rows).sum(axis=2, dtype=np.float32)
        return distances

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return default_list_bits(count, self.width)

    def list_distances(self, request: Request, bits: int) -> Floats:
        """Return the Hamming distances from queries to the names of all inverted lists, (queries, 2^bits)."""
        own = Codes.unchecked(request.packed(self.width), self.width).leading_bits(bits)
        distances: Floats = np.bitwise_count(own[:, None] ^ np.arange(1 << bits)).astype(np.float32)
        return distances
