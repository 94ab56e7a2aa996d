"""Fusion of several rankings by ranks alone, because distances and BM25 scores have no common scale."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Ids, as_array, check_ids, check_int
from nestcode.errors import InvalidInput

RANK_CONSTANT = 60  # of Cormack, Clarke and Buettcher (SIGIR 2009)


def reciprocal_rank_fusion(rankings: Sequence[ArrayLike], k: int = 10) -> Ids:
    """Return the k best ids of several rankings, best first.

    >>> reciprocal_rank_fusion([[4, 8, 2], [9, 4, -1]], k=3)
    array([4, 9, 8])

    An id scores 1 / (60 + its rank) in each ranking that has it, and ties go to the lower id. So `index.search(…).ids`
    can be fused with any other ranking, for example of a text engine. Ids of -1 are missing hits.

    Args:
        rankings: the ids of each ranking, best first.
        k: the number of ids; fewer if the rankings have fewer.

    """
    k, held = check_int(k, "k", least=1), [np.empty(0, dtype=np.int64)]
    for one in rankings:
        ranked = np.atleast_1d(as_array(one, "ranking"))
        if ranked.ndim != 1:
            raise InvalidInput(f"a ranking must be the ids of one query, got shape {ranked.shape}: fuse query by query")
        held.append(check_ids(ranked[ranked != -1]))
    scores = np.concatenate([1 / (RANK_CONSTANT + 1 + np.arange(len(ids))) for ids in held])
    ids, place = np.unique(np.concatenate(held), return_inverse=True)
    best: Ids = ids[np.argsort(-np.bincount(place, scores, len(ids)), kind="stable")[:k]]
    return best
