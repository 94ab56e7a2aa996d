"""The filters of the benchmark of filtered search: random, around the query and far from it, categories and tags."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _engine_task import Task
from nestcode.arrays import Floats, Ids

K = 10
SHARES = (0.5, 0.1, 0.01, 0.001, 0.0001)  # of the items that a filter allows
NEAR_SHARES, FAR_SHARES = (0.5, 0.1, 0.01), (0.5, 0.1)
CENTERS = 100  # a category is the items nearest to one of them
COMMON, RARE = 0.1, 5  # words in a larger share of the sentences, or in fewer sentences, are no tags

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Items:
    """Items with their columns, and queries with theirs."""

    task: Task
    columns: dict[str, Any]  # of the items: number, cluster, and tags where there are sentences
    clusters: Sequence[str]  # of the queries
    words: Sequence[Sequence[str]]  # of the queries: those that are tags

    def __str__(self) -> str:
        return f"{self.task}, {len(self.task.queries)} queries"


@dataclass(frozen=True)
class Condition:
    """One condition in each method's language."""

    column: str
    values: tuple[Any, ...]  # number: below the first; cluster: equals it; tags: has all of them

    def sql(self) -> str:
        """Return it as Nestcode takes it."""
        first = self.values[0]
        if self.column == "number":
            return f"number < {first}"
        if self.column == "cluster":
            return f"cluster = '{first}'"
        return " AND ".join(f"array_contains(tags, '{word}')" for word in self.values)


@dataclass(frozen=True)
class Filtered:
    """Queries with a filter each."""

    name: str
    queries: Floats
    masks: Sequence[Mask]  # of each query
    conditions: Sequence[Condition] | None  # the same, if they are written down
    kth: Sequence[float]  # the squared distance of each query's k-th allowed item

    @property
    def share(self) -> float:
        """The mean share of the items that is allowed."""
        return float(np.mean([mask.mean() for mask in self.masks]))

    def recall(self, task: Task, found: Sequence[Ids]) -> float:
        """Return the recall of the first queries, whose ids were found; items that are not allowed count as missing."""
        each = []
        for query, mask, kth, ids in zip(self.queries, self.masks, self.kth, found, strict=False):
            own = ids[ids >= 0]
            own = own[mask[own]]
            count = min(K, int(mask.sum()))
            each.append(task.recall(query[None], own[None], np.array([kth]), count))
        return float(np.mean(each))


def make_items(task: Task, texts: Sequence[str] | None, item_count: int) -> Items:
    """Return items with their columns: `texts` are of the items, then of the queries."""
    rng = np.random.default_rng(0)
    count = len(task.base)
    centers = task.base[rng.choice(count, CENTERS, replace=False)]
    near = [np.argmin(task.distances(rows, centers), axis=1) for rows in (task.base, task.queries)]
    names = [f"c{i:02}" for i in range(CENTERS)]
    columns: dict[str, Any] = {"number": rng.permutation(count), "cluster": [names[i] for i in near[0]]}
    words: list[list[str]] = []
    if texts is not None:
        found = [sorted(set(re.findall(r"[a-z]{3,}", text.lower()))) for text in texts]
        often = Counter(word for some in found[:item_count] for word in some)
        known = {word for word, n in often.items() if RARE <= n <= COMMON * count}
        tags = [[word for word in some if word in known] for some in found]
        columns["tags"], words = tags[:item_count], tags[item_count:]
    return Items(task, columns, [names[i] for i in near[1]], words)


def filters(items: Items) -> Iterator[Filtered]:
    """Yield every kind of filter."""
    task = items.task
    count, number = len(task.base), items.columns["number"]
    for share in SHARES:
        bound = max(round(share * count), 1)
        yield _filtered(
            task, f"random {share:.2%}", [number < bound] * len(task.queries), Condition("number", (bound,))
        )
    nearest_first = np.argsort(task.distances(task.queries, task.base), axis=1, kind="stable")
    for side, shares, ranked in (
        ("nearest", NEAR_SHARES, nearest_first),
        ("farthest", FAR_SHARES, nearest_first[:, ::-1]),
    ):
        for share in shares:
            masks = np.zeros(ranked.shape, dtype=np.bool_)
            np.put_along_axis(masks, ranked[:, : round(share * count)], True, axis=1)
            yield _filtered(task, f"{side} {share:.0%}", list(masks))
    clusters = np.array(items.columns["cluster"])
    own = [Condition("cluster", (name,)) for name in items.clusters]
    yield _filtered(task, "its category", [clusters == one.values[0] for one in own], *own)
    if items.words:
        yield from _by_tags(items)


def _by_tags(items: Items) -> Iterator[Filtered]:
    """Yield the filters of one and of two words of the query's sentence, which some items have."""
    rng, holders = np.random.default_rng(1), _holders(items.columns["tags"], len(items.task.base))
    for words, name in ((1, "one word"), (2, "two words")):
        chosen, masks, queries = [], [], []
        for query, own in zip(items.task.queries, items.words, strict=True):
            if len(own) < words:
                continue
            for _ in range(20):
                some = tuple(str(word) for word in rng.choice(own, words, replace=False))
                mask = np.logical_and.reduce([holders(word) for word in some])
                if mask.any():
                    chosen.append(Condition("tags", some))
                    masks.append(mask)
                    queries.append(query)
                    break
        if chosen:
            yield _filtered(items.task, name, masks, *chosen, queries=np.array(queries))


def _holders(tags: Sequence[Sequence[str]], count: int) -> Any:
    where: dict[str, list[int]] = {}
    for i, words in enumerate(tags):
        for word in words:
            where.setdefault(word, []).append(i)

    def holders(word: str) -> Mask:
        mask = np.zeros(count, dtype=np.bool_)
        mask[where.get(word, [])] = True
        return mask

    return holders


def _filtered(
    task: Task, name: str, masks: Sequence[Mask], *conditions: Condition, queries: Floats | None = None
) -> Filtered:
    queries = task.queries if queries is None else queries
    if len(conditions) == 1:
        conditions *= len(queries)
    kth = [
        float(task.kth_distances(query[None], min(K, int(mask.sum())), np.flatnonzero(mask))[0])
        for query, mask in zip(queries, masks, strict=True)
    ]
    return Filtered(name, queries, masks, conditions or None, kth)
