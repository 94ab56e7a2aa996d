"""The module for ann-benchmarks, called as ann-benchmarks calls it."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nestcode.data import digits
from nestcode.metrics import exact_neighbors, recall
from tests.algorithms import BaseANN, load_algorithm

FOLDER = Path(__file__).parents[1] / "benchmarks" / "annbench"
PACKAGE = "ann_benchmarks.algorithms"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_algorithm(monkeypatch, "ann_benchmarks", FOLDER)


@pytest.mark.parametrize("metric", ["angular", "euclidean"])
@pytest.mark.parametrize("rerank_vectors", [True, False])
def test_single_queries_equal_a_batch(module: ModuleType, metric: str, rerank_vectors: bool) -> None:
    X, _ = digits()
    base, queries = X[:-50], X[-50:]
    algorithm = module.Nestcode(metric, {"width": 256, "rerank_vectors": rerank_vectors})
    assert issubclass(module.Nestcode, BaseANN)
    assert algorithm.get_memory_usage() == 0
    algorithm.fit(base)
    kilobytes = algorithm.get_memory_usage()
    assert (kilobytes > base.nbytes / 1024) == rerank_vectors
    algorithm.set_query_arguments(0.5, 80)
    assert "0.5" in str(algorithm)
    assert "80" in str(algorithm)
    algorithm.batch_query(queries, 10)
    found = algorithm.get_batch_results()
    exact = exact_neighbors(queries, base, 10, "cosine" if metric == "angular" else "l2")
    assert recall(found, exact) > (0.95 if rerank_vectors else 0.85)
    for query, ids in zip(queries[:5], found, strict=False):
        np.testing.assert_array_equal(algorithm.query(query, 10), ids)
    algorithm.set_query_arguments(0.001, 20)
    few = algorithm.query(queries[0], 10)
    assert len(set(few.tolist())) == len(few) <= 10
    assert few.min() >= 0


def test_the_configuration_fits_the_module(module: ModuleType) -> None:
    text = (FOLDER / "config.yml").read_text()
    assert "constructor: Nestcode\n" in text
    assert f"module: {PACKAGE}.nestcode\n" in text
    assert hasattr(module, "Nestcode")
