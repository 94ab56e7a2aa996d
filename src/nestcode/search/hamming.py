"""Hamming scorers: lists are probed, and items scored, by how many bits differ from the query's code.

Bare codes have no other distance. Codes of a coder without a layout, such as an autoencoder's, are estimated this way
and reranked by what they decode to.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Floats
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.search.decoded import DecodedScorer
from nestcode.search.inverted_lists import default_list_bits
from nestcode.search.planner import NS_PER_HAMMING_BYTE
from nestcode.search.scorer import QueryBatch, Scorer, SearchMetric


class HammingScorer(Scorer):
    """Hamming distances between codes of `width` bits."""

    def __init__(self, width: int) -> None:
        self.width, self.ns_per_estimated = width, 1 + NS_PER_HAMMING_BYTE * -(-width // 8)

    def rerank_codes(self, queries: Codes, codes: Codes) -> Floats:
        """Return Hamming distances from each query to its own share of the codes, (queries, codes / queries)."""
        rows = codes.packed.reshape(len(queries), -1, codes.packed.shape[1])
        distances: Floats = np.bitwise_count(queries.packed[:, None] ^ rows).sum(axis=2, dtype=np.float32)
        return distances

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return default_list_bits(count, self.width)

    def list_distances(self, queries: QueryBatch, bits: int) -> Floats:
        """Return the Hamming distances from queries to the names of all inverted lists, (queries, 2^bits)."""
        own = Codes.unchecked(queries.packed, self.width).leading_bits(bits)
        distances: Floats = np.bitwise_count(own[:, None] ^ np.arange(1 << bits)).astype(np.float32)
        return distances


class HammingRerankScorer(HammingScorer, DecodedScorer):
    """Hamming distances for estimates, distances to decoded codes for reranking."""

    def __init__(self, coder: Coder, width: int) -> None:
        HammingScorer.__init__(self, width)
        DecodedScorer.__init__(self, coder)

    def score(self, queries: QueryBatch, codes: Codes, threads: int) -> Floats:  # noqa: ARG002
        """Return Hamming distances, as decoding takes a network."""
        return self.rerank_codes(Codes.unchecked(queries.packed, self.width), codes)

    def project(self, queries: NDArray[np.floating[Any]], metric: SearchMetric) -> QueryBatch:
        """Return queries with their codes, (n, features); for "cosine" they are L2-normalized already."""
        batch = super().project(queries, metric)
        codes = self.coder.encode(batch.coefficients).prefix(self.width)
        return QueryBatch(
            metric, batch.coefficients, batch.mean_products, batch.outside, np.ascontiguousarray(codes.packed)
        )
