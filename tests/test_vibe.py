"""The module for VIBE, called as VIBE calls it."""

import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from nestcode.data import digits
from nestcode.metrics import exact_neighbors, recall
from tests.algorithms import BaseANN, load_algorithm

FOLDER = Path(__file__).parents[1] / "benchmarks" / "vibe"
PACKAGE = "vibe.algorithms"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_algorithm(monkeypatch, "vibe", FOLDER)


@pytest.mark.filterwarnings("ignore:the data fills")  # 64 features
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "normalized"])
def test_the_configured_grid_runs_and_all_candidates_are_exact(module: ModuleType, metric: str) -> None:
    X, _ = digits()
    if metric == "normalized":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    base, queries = X[:-20], X[-20:]
    exact = exact_neighbors(queries, base, 10, "l2" if metric == "euclidean" else "cosine")
    (entry,) = yaml.safe_load((FOLDER / "config.yml").read_text())["float"][metric]
    assert entry["module"] == f"{PACKAGE}.nestcode"
    arguments = [metric if value == "@metric" else value for value in entry["base_args"]]
    for group in entry["run_groups"].values():
        build = [values[0] for values in group["args"].values()]
        algorithm: Any = getattr(module, entry["constructor"])(*arguments, *build)
        assert issubclass(type(algorithm), BaseANN)
        algorithm.fit(base)
        found = []
        for setting in itertools.product(*((values[0], values[-1]) for values in group["query_args"].values())):
            algorithm.set_query_arguments(*setting)
            assert all(str(value) in str(algorithm) for value in (*build, *setting))
            ids = [algorithm.query(query, 10) for query in queries]
            assert all(len(set(row.tolist())) == len(row) <= 10 for row in ids)
            found.append(recall(ids, exact))
        assert found[-1] == max(found) > found[0]
        algorithm.set_query_arguments(1.0, 8)
        ids = [algorithm.query(query, 10) for query in queries]
        assert recall(ids, exact) > (0.99 if "float16" in build else 0.8)
