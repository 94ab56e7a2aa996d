"""Inverted lists: a query probes the nearest ones until they hold enough candidates, and no others."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.search.hits import Hits
from tests import twins
from tests.search.searching import (
    ERROR,
    ROWS,
    Filled,
    Q,
    bare,
    by_rank,
    filled,
    fitted,
    kinds,
    metrics,
    ranks,
)


def centroid_distances(some: Filled, metric: str, bits: int) -> twins.Doubles:
    """From each query to what the first bits of each item decode to."""
    coder = some.index.coder
    assert coder is not None
    queries = Q / np.linalg.norm(Q, axis=1, keepdims=True) if metric == "cosine" else Q
    return twins.distances(queries, coder.decode(some.index.codes(some.ids).prefix(bits)), metric)


def probed(lists: NDArray[np.int64], distances: twins.Doubles, candidates: int) -> NDArray[np.bool_]:
    """Which items a query scores: those of the nearest lists, until there are enough."""
    order = np.lexsort((lists, distances))
    return np.isin(lists, lists[order[:candidates]])


def lists_of(codes: Codes, bits: int) -> NDArray[np.int64]:
    lists: NDArray[np.int64] = codes.bits()[:, :bits] @ (1 << np.arange(bits)[::-1])
    return lists


@ranks
@metrics
@kinds
def test_the_nearest_lists_are_probed_and_all_their_items_reranked(kind: str, own: str, metric: str, rank: str) -> None:
    index, ids, vectors = some = filled(kind, own)
    expected = some.distances(Q, metric, rank)
    index.search(Q[0])
    bits = list(index._searcher._latest.values())[-1].prepared.list_bits
    assert bits > 2
    near, lists = centroid_distances(some, metric, bits), lists_of(index.codes(ids), bits)
    for candidates in (10, 100, 500):
        hits = index.search(Q, 10, candidates=candidates, rerank=ROWS, **by_rank(rank, vectors, metric))
        for q in range(len(Q)):
            mask = probed(lists, near[q], candidates)
            one = Hits(hits.ids[q : q + 1], hits.distances[q : q + 1], hits.compared[q])
            assert hits.compared[q] == mask.sum()
            twins.check_all(one, expected[q : q + 1, mask], ids[mask], ERROR)


@pytest.mark.parametrize("width", [40, 8, 7, 1])
def test_lists_of_codes_are_probed_by_hamming_distance(width: int) -> None:
    index, ids, _ = bare(width)
    queries = fitted("cell").encode(Q).prefix(width)
    index.search(queries)
    bits = index._searcher._latest[True, False, False].prepared.list_bits
    assert bits == min(4, width)
    codes = index.codes(ids)
    differing = twins.hamming(queries.bits(), codes.bits()).astype(float)
    near = twins.hamming(queries.bits()[:, :bits], codes.bits()[:, :bits]).astype(float)
    lists = lists_of(codes, bits)
    for candidates in (1, 100, 600):
        hits = index.search(queries, 10, candidates=candidates)
        for q in range(len(Q)):
            mask = probed(lists, near[q], max(candidates, 10))
            assert hits.compared[q] == mask.sum()
            assert np.array_equal(hits.distances[q], twins.nearest(differing[q : q + 1, mask], ids[mask], 10)[1][0])
        twins.check_hits(hits, differing, ids)
