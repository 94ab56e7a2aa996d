"""The searches of the engine's benchmark: batches, k and filters, with the exact answer of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _engine_task import Task
from nestcode.arrays import Floats
from nestcode.search import Hits

BATCHES, FILTER_BATCHES = (1, 8, 64, 1000), (1, 64)
SINGLE_QUERIES = 24  # searched by a call each
KS, FILTER_K = (10, 100), 10
RANDOM_SHARES = (0.5, 0.1, 0.01, 0.001)  # of the items that a filter allows
NEAR_SHARES, FAR_SHARES = (0.5, 0.1), (0.1,)

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Workload:
    """Queries that are searched in batches, and the distances that make a hit right."""

    batch: int  # 1 is one vector per call
    k: int
    filter: str  # "none", or which items are allowed and how they are given
    queries: Floats
    filters: Sequence[NDArray[Any] | None]  # of each call
    kth: Mapping[int, NDArray[np.float64]]  # by k: the squared distance of each query's k-th exact neighbor
    allowed: int  # items

    def arguments(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments of each call of `Index.search`."""
        for i, given in enumerate(self.filters):
            part = self.queries[i] if self.batch == 1 else self.queries[i * self.batch : (i + 1) * self.batch]
            yield {"queries": part, "k": self.k, **({} if given is None else {"filter": given})}

    def recall(self, task: Task, hits: Sequence[Hits], k: int) -> float:
        """Return recall@k of the first k hits of each query."""
        found = np.concatenate([hit.ids.reshape(-1, self.k)[:, :k] for hit in hits])
        return task.recall(self.queries, found, self.kth[k], min(k, self.allowed))


def workloads(task: Task) -> Iterator[Workload]:
    """Yield every batch with every k, then every filter."""
    kth = {k: task.kth_distances(task.queries, k) for k in KS}
    for batch in BATCHES:
        queries = batches(task, batch)
        own = {k: distances[: len(queries)] for k, distances in kth.items()}
        for k in KS:
            yield Workload(batch, k, "none", queries, [None] * calls(queries, batch), own, len(task.base))
    for batch in FILTER_BATCHES:
        queries = batches(task, batch)
        for name, masks in filters(task, queries, batch):
            nearest = [task.kth_distances(query[None], FILTER_K, mask.nonzero()[0]) for query, mask in masks]
            given = [mask for _, mask in masks[::batch]]
            allowed = int(given[0].sum())
            for form, filters_ in (("mask", given), ("ids", [np.flatnonzero(mask) for mask in given])):
                kths = {FILTER_K: np.concatenate(nearest)}
                yield Workload(batch, FILTER_K, f"{name}, {form}", queries, filters_, kths, allowed)


def batches(task: Task, batch: int) -> Floats:
    """Return the queries of a batch size: several single queries, and one or more batches of many."""
    return task.queries[: SINGLE_QUERIES if batch < SINGLE_QUERIES else batch]


def calls(queries: Floats, batch: int) -> int:
    """Return how many calls search the queries."""
    return -(-len(queries) // batch)


def filters(task: Task, queries: Floats, batch: int) -> Iterator[tuple[str, list[tuple[Floats, Mask]]]]:
    """Yield a name and the mask of each query; only single queries have masks of their own."""
    rng, count = np.random.default_rng(1), len(task.base)
    for share in RANDOM_SHARES:
        mask = np.zeros(count, dtype=np.bool_)
        mask[rng.choice(count, max(round(share * count), 1), replace=False)] = True
        yield f"random {share:.1%}", [(query, mask) for query in queries]
    if batch > 1:
        return
    nearest_first = np.argsort(task.distances(queries, task.base), axis=1, kind="stable")
    sides = [("nearest", share, nearest_first) for share in NEAR_SHARES]
    sides += [("farthest", share, nearest_first[:, ::-1]) for share in FAR_SHARES]
    for name, share, ranked in sides:
        own = np.zeros(ranked.shape, dtype=np.bool_)
        np.put_along_axis(own, ranked[:, : max(round(share * count), 1)], True, axis=1)
        yield f"{name} {share:.1%}", list(zip(queries, own, strict=True))
