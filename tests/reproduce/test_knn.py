"""k-NN by scan, search and neighborhood: what each finds, and how neighbors vote."""

from pathlib import Path

import numpy as np

from nestcode import Codes
from nestcode.reproduce.knn.experiment import Coded, K, Task, accuracy, classify
from tests.reproduce.toy import run


def test_the_claims_hold_at_toy_scale(tmp_path: Path) -> None:
    result = run("knn", tmp_path)
    accuracies = {name: {method: np.array(each) for method, each in by.items()}
             for name, by in result["numbers"]["digits"]["accuracy"].items()}  # fmt: skip
    for by_method in accuracies.values():
        assert by_method["scan"][0, -1] > max(0.7, by_method["scan"][0, 0] + 0.03)
        assert by_method["search"][0, -1] > by_method["scan"][0, -1] - 0.1
        assert by_method["neighborhood"][0, -1] > 0.3  # ten classes
    assert {"knn-digits.png", "knn-digits.svg"} <= {path.name for path in tmp_path.iterdir()}


def small_task() -> tuple[Task, Coded]:
    rng = np.random.default_rng(0)
    items, queries = rng.random((300, 24)) < 0.5, rng.random((20, 24)) < 0.5
    task = Task("small", items, rng.integers(3, size=300), queries, rng.integers(3, size=20), candidates=300)
    return task, Coded(Codes.from_bits(items), Codes.from_bits(queries))


def test_methods_find_what_plain_loops_find() -> None:
    task, coded = small_task()
    found = {name: ids for name, (ids, _) in classify(task, coded, 16).items()}
    for row, query in enumerate(task.queries[:, :16]):
        bits = task.X[:, :16]
        distances = np.sort((bits != query).sum(axis=1))[:K]
        for name in ("scan", "search"):
            assert np.array_equal((bits[found[name][row]] != query).sum(axis=1), distances)
        shared = np.cumprod(bits == query, axis=1).sum(axis=1)
        length = max(b for b in range(17) if (shared >= b).sum() >= K)
        assert np.array_equal(np.sort(found["neighborhood"][row]), np.flatnonzero(shared >= length))


def test_the_majority_of_the_neighbors_decides() -> None:
    task, _ = small_task()
    by_class = [np.flatnonzero(task.labels == label) for label in range(3)]
    ids = [np.concatenate([by_class[label][:3], by_class[(label + 1) % 3][:2]]) for label in task.query_labels]
    assert accuracy(ids, task) == 1
    assert accuracy([by_class[(label + 1) % 3] for label in task.query_labels], task) == 0
