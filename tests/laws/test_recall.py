"""The law of recall: a default search of stored vectors finds the nearest items, whatever the data."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestcode import CellCoder, Coder, Index, LinearCoder, ResidualCoder, RotationCoder
from nestcode.coders.base import Metric
from nestcode.search.vectors import VectorFormat, VectorType

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


def low_rank(count: int, features: int, rng: np.random.Generator) -> Rows:
    rank = int(rng.integers(1, 9))
    return isotropic(count, rank, rng) @ isotropic(rank, features, rng) + 1e-3 * isotropic(count, features, rng)


def sparse(count: int, features: int, rng: np.random.Generator) -> Rows:
    return isotropic(count, features, rng) * (rng.random((count, features)) < 0.05)


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
QUERY_SCALES = [0.1, 1, 10]  # near the center, as the items, or far outside
CODERS: dict[str, Callable[[Metric], Coder]] = {
    "cell": lambda metric: CellCoder(128, metric=metric),
    "linear": lambda metric: LinearCoder(128, metric=metric),
    "rotation": lambda metric: RotationCoder(64, metric=metric),
    "residual": lambda metric: ResidualCoder(32, metric=metric, beams=1),
}


def distances(queries: Rows, rows: Rows, metric: Metric) -> NDArray[np.float64]:
    """Return distances in float64 by products of matrices: pair by pair they take ten times as long."""
    pairs = [np.asarray(values, dtype=np.float64) for values in (queries, rows)]
    squares = [np.square(values).sum(axis=1) for values in pairs]
    products: NDArray[np.float64] = pairs[0] @ pairs[1].T
    if metric == "cosine":  # which is 0 with a zero vector
        norms = np.sqrt(np.maximum(np.outer(*squares), np.finfo(np.float64).tiny))
        products, squares = products / norms, [np.ones(len(values)) for values in squares]
    found: NDArray[np.float64] = squares[0][:, None] + squares[1] - 2 * products
    return found


def recall(index: Index, rows: Rows, queries: Rows, metric: Metric, k: int, stored: VectorType = "float16") -> float:
    """The share of the nearest items that a default search finds; items as near as the k-th stand for each other.

    Distances are those of stored rows: rounding decides which items are the nearest, not whether they are found.
    """
    true = distances(queries, VectorFormat(stored, rows.shape[1]).round(rows).floats(), metric)
    last = np.partition(true, k - 1, axis=1)[:, k - 1 :][:, :1]
    found = np.take_along_axis(true, index.search(queries, k).ids, axis=1)
    return float(np.mean(found <= last + 1e-6 * (np.abs(last) + (metric == "cosine"))))  # of float32


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


@dataclass(frozen=True)
class Case:
    family: Callable[..., Rows]
    features: int
    kind: str
    metric: Metric
    graph: bool
    stored: VectorType
    k: int
    scale: float
    seed: int


CASES = st.builds(
    Case,
    family=st.sampled_from([*FAMILIES, low_rank, sparse]),
    features=st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34, 55]),
    kind=st.sampled_from(sorted(CODERS)),
    metric=st.sampled_from(["l2", "cosine"]),
    graph=st.sampled_from([False, False, True]),  # which takes longest to build
    stored=st.sampled_from(["float32", "float16", "int8"]),
    k=st.sampled_from([1, 10, 100]),
    scale=st.sampled_from(QUERY_SCALES),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of data that needs fewer bits, has outliers, or rounds to little
@settings(max_examples=settings().max_examples // 4)
@given(CASES)
def test_no_data_make_default_searches_miss_the_nearest(case: Case) -> None:
    """Among more items than lists estimate at first, or than get a graph."""
    kind = {"cell": "linear", "residual": "rotation"}.get(case.kind, case.kind) if case.graph else case.kind
    data = case.family((4200 if case.graph else 11_000) + QUERIES, case.features, np.random.default_rng(case.seed))
    rows, queries = data[QUERIES:].astype(np.float32), np.float32(case.scale) * data[:QUERIES].astype(np.float32)
    index = Index(CODERS[kind](case.metric).fit(rows[:3000]), vectors=case.stored, graph=case.graph)
    index.add(rows)
    index.wait()
    assert recall(index, rows, queries, case.metric, case.k, case.stored) >= LEAST


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
