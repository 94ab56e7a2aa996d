"""Reranking by decoded items, if no projection has their distances: codes of networks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import Floats
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.search.planner import NS_PER_NETWORK_PARAMETER
from nestcode.search.request import Request
from nestcode.search.scorer import Scorer, SearchMetric


class DecodedScorer(Scorer):
    """Estimates by the scorer of a base, and reranks by another decoder of the same bits."""

    base: Scorer

    def __init__(self, coder: Coder, base: Scorer) -> None:
        super().__init__(base.width, base)
        self.coder, self.features = coder, coder.n_features_in_
        self.projected, self.ns_per_estimated = base.projected, base.ns_per_estimated
        self.ns_per_decoded = NS_PER_NETWORK_PARAMETER * coder.decoder_parameters

    def distances(self, request: Request, codes: Codes) -> Floats:
        """Return the distances from each query to its own share of the codes, (queries, codes / queries)."""
        return compare(request.rows, self.coder.decode(codes), request.metric, request.threads)

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return self.base.list_bits(count)

    def list_distances(self, request: Request, bits: int) -> Floats:
        """Return the distances from queries to all inverted lists, (queries, 2^bits), by the base."""
        return self.base.list_distances(request, bits)


def compare(queries: NDArray[Any], items: NDArray[Any], metric: SearchMetric, threads: int) -> Floats:
    """Return the distances from each query to its own share of the items, (queries, items / queries)."""
    rows, vectors = (np.ascontiguousarray(part, dtype=np.float32) for part in (queries, items))
    places = np.arange(len(vectors)).reshape(len(rows), -1)
    distances = np.empty(places.shape, dtype=np.float32)
    _core.VectorRuns(vectors).rerank(rows, places, metric, distances, threads)
    return distances
