"""The law of recall: a default search of stored vectors finds the nearest items, whatever the data."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import CellCoder, Coder, Index, LinearCoder, ResidualCoder, RotationCoder
from nestcode.coders.base import Metric
from tests import twins

Rows = NDArray[np.float32]
K, QUERIES, LEAST = 10, 40, 0.9


def isotropic(count: int, features: int, rng: np.random.Generator) -> Rows:
    return rng.standard_normal((count, features), dtype=np.float32)


def far_clusters(count: int, features: int, rng: np.random.Generator) -> Rows:
    """Tight ones: the distances between clusters are a thousand times those inside."""
    centers = 100 * isotropic(50, features, rng)
    return (centers[rng.integers(0, 50, count)] + 0.1 * isotropic(count, features, rng)).astype(np.float32)


def heavy_tailed(count: int, features: int, rng: np.random.Generator) -> Rows:
    return (isotropic(count, features, rng) * np.exp(1.2 * rng.standard_normal((count, 1)))).astype(np.float32)


def near_copies(count: int, features: int, rng: np.random.Generator) -> Rows:
    rows = isotropic(count, features, rng)
    return (rows[rng.integers(0, count // 20, count)] + 1e-3 * isotropic(count, features, rng)).astype(np.float32)


def ties(count: int, features: int, rng: np.random.Generator) -> Rows:
    return rng.integers(0, 3, (count, features)).astype(np.float32)


def flat_and_textured(count: int, features: int, rng: np.random.Generator) -> Rows:
    """As image patches: most of the rows are nearly constant, whose neighbors differ by less than codes resolve."""
    texture = np.cumsum(isotropic(count, features, rng), axis=1) * np.exp(2 * rng.standard_normal((count, 1)) - 3)
    return (texture + 5 * rng.standard_normal((count, 1))).astype(np.float32)


def unit_vectors(count: int, features: int, rng: np.random.Generator) -> Rows:
    rows = isotropic(count, features, rng)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-9))
    return rows


def one_far_row(count: int, features: int, rng: np.random.Generator) -> Rows:
    """An outlier, whose distance is a thousand times that of the others."""
    rows = isotropic(count, features, rng)
    rows[-1] += 1e3
    return rows


FAMILIES = [
    isotropic,
    far_clusters,
    heavy_tailed,
    near_copies,
    ties,
    flat_and_textured,
    unit_vectors,
    one_far_row,
]
QUERY_SCALES = [1, 10]  # as the items, or far outside
CODERS: dict[str, Callable[[Metric], Coder]] = {
    "cell": lambda metric: CellCoder(128, metric=metric),
    "linear": lambda metric: LinearCoder(128, metric=metric),
    "rotation": lambda metric: RotationCoder(64, metric=metric),
    "residual": lambda metric: ResidualCoder(32, metric=metric, beams=1),
}


def recall(index: Index, rows: Rows, queries: Rows, metric: Metric, k: int) -> float:
    """The share of the nearest items that a default search finds; items as near as the k-th stand for each other."""
    true = twins.distances(queries, rows, metric)
    last = np.partition(true, k - 1, axis=1)[:, k - 1 :][:, :1]
    found = np.take_along_axis(true, index.search(queries, k).ids, axis=1)
    slack = 2e-3 * np.abs(last) + 1e-6 * np.square(queries, dtype=np.float64).sum(axis=1)[:, None]  # stored as float16
    return float(np.mean(found <= last + slack))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of data that needs fewer bits, or has outliers
@pytest.mark.parametrize("kind", CODERS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_default_searches_find_the_nearest(family: Callable[..., Rows], kind: str) -> None:
    """On both sides of the size from which not all items are estimated; shapes and metrics are drawn for each case."""
    rng = np.random.default_rng([FAMILIES.index(family), sorted(CODERS).index(kind)])
    features, metric = int(rng.choice([1, 2, 7, 40, 150, 1000])), rng.choice(["l2", "cosine"]).item()
    k, scale = int(rng.choice([1, 10, 100])), np.float32(rng.choice(QUERY_SCALES))
    count = 12_000 if features < 1000 else 4097
    data = family(count + QUERIES, features, rng)
    rows, queries = data[QUERIES:], scale * data[:QUERIES]
    index = Index(CODERS[kind](metric).fit(rows[:3000]), vectors="float16")
    first = count // 2
    index.add(rows[:first])
    assert recall(index, rows[:first], queries, metric, k) >= LEAST
    index.add(rows[first:])
    assert recall(index, rows, queries, metric, k) >= LEAST


# The nearest by the vectors that an index stores: integers are rounded


def share_of_exhaustive(index: Index, queries: Rows, metric: Metric) -> float:
    """The share of hits of a default search that are as near as those of an exhaustive search."""
    exact = index.search(queries, K, metric=metric, candidates=len(index)).distances[:, -1:]
    found = index.search(queries, K, metric=metric).distances
    return float(np.mean(found <= exact + 1e-4 * np.abs(exact) + 1e-6))


def clusters(count: int, features: int, rng: np.random.Generator) -> Rows:
    """As far apart as they are wide: none of a cluster's items is on the way to another cluster."""
    centers = 3 * isotropic(10, features, rng)
    return centers[rng.integers(0, 10, count)] + isotropic(count, features, rng)


def few_tight_clusters(count: int, features: int, rng: np.random.Generator) -> Rows:
    """Codes tell clusters apart and nothing else: within one, all the bits that navigate are alike."""
    centers = 100 * isotropic(10, features, rng)
    return centers[rng.integers(0, 10, count)] + np.float32(0.01) * isotropic(count, features, rng)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of data that needs fewer bits
@pytest.mark.parametrize("family", [isotropic, clusters, few_tight_clusters], ids=lambda family: family.__name__)
def test_default_walks_find_the_nearest(family: Callable[..., Rows]) -> None:
    """On both sides of the size from which segments have graphs."""
    data = family(4097 + QUERIES, 128, np.random.default_rng(0))
    rows, queries = data[QUERIES:], data[:QUERIES]
    index = Index(LinearCoder(256).fit(rows), vectors="float32", graph=True)
    index.add(rows[:-1])
    index.wait()
    assert share_of_exhaustive(index, queries, "l2") >= LEAST
    index = Index(index.coder, vectors="float32", graph=True)
    index.add(rows)
    index.wait()
    assert share_of_exhaustive(index, queries, "l2") >= LEAST


@pytest.mark.filterwarnings("ignore::UserWarning")  # of data that needs fewer bits
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_few_features_that_a_coder_of_distances_has(features: int, metric: Metric) -> None:
    """Codes of eight bits for a feature tell few of the items apart, and nothing of angles."""
    data = isotropic(12_000 + QUERIES, features, np.random.default_rng(features))
    index = Index(LinearCoder(64).fit(data), vectors="float16")
    index.add(data[QUERIES:])
    assert share_of_exhaustive(index, data[:QUERIES], metric) >= LEAST


@pytest.mark.parametrize("family", [clusters, near_copies], ids=lambda family: family.__name__)
def test_integers_are_searched_as_well(family: Callable[..., Rows]) -> None:
    data = family(12_000 + QUERIES, 64, np.random.default_rng(1))
    index = Index(CellCoder(128).fit(data[:3000]), vectors="int8")
    index.add(data[QUERIES:])
    assert share_of_exhaustive(index, data[:QUERIES], "l2") >= LEAST
