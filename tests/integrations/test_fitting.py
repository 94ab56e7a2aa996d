"""Stores without a coder and a width: trials choose both by the first rows, and a scan where it is as fast."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.integrations.collection import Collection, Row
from nestcode.integrations.faiss import NestedIndex
from nestcode.integrations.fitting import EFFORT, RECALL, choose_index
from tests import twins

FIRST, ALL, QUERIES, K = 4000, 5000, 200, 10
Rows = NDArray[np.float32]


def rows(count: int, features: int = 128) -> Rows:
    """The more features, the less each of them tells."""
    normal = np.random.default_rng(0).standard_normal((count, features), dtype=np.float32)
    return normal * (1 + np.arange(features, dtype=np.float32)) ** -1


def recall(found: NDArray[Any], queries: Rows, items: Rows, metric: Any) -> float:
    true = np.argsort(twins.distances(queries, items, metric), axis=1)[:, :K]
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]))


def test_what_trials_choose_keeps_its_recall_as_the_index_grows() -> None:
    data = rows(ALL + QUERIES)
    items, queries = data[:ALL], data[ALL:]
    index = NestedIndex(128, rows_to_fit=FIRST)
    index.add(items[:FIRST])
    assert index.index is not None
    assert index.index.effort not in (None, EFFORT)
    assert index.width == index.index.width
    assert recall(index.search(queries, K)[1], queries, items[:FIRST], "l2") >= RECALL - 0.02
    index.add(items[FIRST:])
    assert recall(index.search(queries, K)[1], queries, items, "l2") >= RECALL - 0.02


def test_few_features_are_scanned_until_there_are_twice_as_many() -> None:
    data = rows(1200, features=3)
    index, asked = NestedIndex(3, rows_to_fit=500), []
    choose = index._choose
    index._choose = lambda rows: asked.append(len(rows)) or choose(rows)  # type: ignore[method-assign, func-returns-value]
    for first in range(0, 1200, 100):
        index.add(data[first : first + 100])
    assert index.index is None
    assert asked == [500, 1000]
    assert choose_index(data, "l2", "float32") is None
    assert recall(index.search(data[:50] + 0.01, K)[1], data[:50] + np.float32(0.01), data, "l2") == 1
    index.train(data)  # which a caller may want all the same
    assert index.index is not None


def test_a_store_of_documents_chooses_too() -> None:
    data = rows(FIRST + QUERIES)
    settings = {"width": None, "rows_to_fit": FIRST, "vectors": "float16"}
    store = Collection[int]("Tested", lambda one: Row(str(one), one, []), lambda _name, _text, rest: rest, settings)
    for first in (0, FIRST // 2):
        some = range(first, first + FIRST // 2)
        store.put({str(i): i for i in some}, [data[i] for i in some])
    assert store._index.effort not in (None, EFFORT)
    queries = data[FIRST : FIRST + 50]
    found = np.array([[int(name) for name in store.nearest_names(query, K)] for query in queries])
    assert recall(found, queries, data[:FIRST], "cosine") >= RECALL - 0.02
