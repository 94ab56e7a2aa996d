"""Search in a store: probe inverted lists in the database, and rank their items on the client.

An inverted list is the range of a prefix, so the database answers it by its b-tree. Distances to decoded codes need the
coder, which the database does not have: ids and codes travel, some 40 bytes for each candidate of 256 bits.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from nestcode import _core
from nestcode.arrays import Floats, Ids
from nestcode.index.ordered import Scan, key_range
from nestcode.search.hits import Hits
from nestcode.search.inverted_lists import all_codes
from nestcode.search.request import Request
from nestcode.search.scorer import Scorer
from nestcode.search.zeros import correct

KeyRange = tuple[bytes, bytes]  # the least key, and the least key beyond


def search_lists(
    request: Request,
    scorer: Scorer,
    k: int,
    lists: Sequence[KeyRange],
    rerank: int,
    fetch: Callable[[list[KeyRange]], Scan],
) -> Hits:
    """Return the k nearest items of each query.

    Args:
        request: the queries and how items are ranked.
        scorer: of the codes.
        k: hits of a query; ids of -1 fill up.
        lists: the key ranges of all inverted lists.
        rerank: how many items are reranked.
        fetch: returns the candidates of a query, given all lists, nearest first.

    """
    n, bits = len(request), len(lists).bit_length() - 1
    ids, distances = np.full((n, k), -1, dtype=np.int64), np.full((n, k), np.inf, dtype=np.float32)
    compared = np.zeros(n, dtype=np.int64)
    for query in range(n):
        some = slice(query, query + 1)
        one = request[some]
        nearest = np.argsort(scorer.list_distances(one, bits)[0], kind="stable")
        found = fetch([lists[place] for place in nearest.tolist()])
        compared[query] = len(found.ids)
        near, own = _rank(one, scorer, found, rerank)
        _core.select_top_k(near, own[None], distances[some], ids[some])
    return Hits(ids[0], distances[0], int(compared[0])) if request.single else Hits(ids, distances, compared)


def _rank(request: Request, scorer: Scorer, found: Scan, rerank: int) -> tuple[Floats, Ids]:
    """Return the distances from a query to the best of its candidates, (1, best), and their ids."""
    ids, codes = found
    estimator = scorer if scorer.base is None else scorer.base
    if len(ids) > rerank and (request.vectors is not None or scorer.base is not None):
        best = np.argpartition(estimator.distances(request, codes)[0], rerank - 1)[:rerank]
        ids, codes = ids[best], codes[best]
    if request.vectors is not None:
        return request.vectors.rerank(request.rows, ids[None], request.metric, request.threads), ids
    distances = scorer.distances(request, codes)
    angles = not request.by_codes and request.metric == "cosine"
    return correct(distances, codes, scorer.zero_codes) if angles else distances, ids


@lru_cache(maxsize=16)
def list_ranges(bits: int, width: int) -> list[KeyRange]:
    r"""Return the key ranges of all inverted lists that are named by `bits` bits.

    >>> list_ranges(1, width=8)
    [(b'\x00', b'\x80'), (b'\x80', b'\xff\xff')]
    """
    return [key_range(name, width) for name in all_codes(bits)]
