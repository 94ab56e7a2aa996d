"""A few outliers in the data of a fit change little of what the other rows get."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import nestcode as nc
from nestcode.coders import Coder, RotationCoder
from nestcode.metrics import recall
from nestcode.search.scorer import SearchMetric

ROWS, FEATURES, K = 2000, 24, 10
OUTLIERS = np.arange(7, 9)  # 0.1 % of the rows
CODERS: dict[str, Callable[[], Coder]] = {
    "linear": lambda: nc.LinearCoder(96),
    "cell": lambda: nc.CellCoder(96),
    "residual": lambda: nc.ResidualCoder(16, beams=1),
    "adaptive": lambda: nc.AdaptiveCoder(16, beams=1),
    "rotation": lambda: RotationCoder(96),
}
coders = pytest.mark.parametrize("name", CODERS)


def gaussian(rows: int, seed: int) -> NDArray[np.float32]:
    mixing = np.random.default_rng(0).standard_normal((FEATURES, FEATURES)) / 5
    return (np.random.default_rng(seed).standard_normal((rows, FEATURES)) @ mixing + 1).astype(np.float32)


def with_outliers(factor: float) -> NDArray[np.float32]:
    rows = gaussian(ROWS, seed=1)
    rows[OUTLIERS] *= np.float32(factor)
    return rows


def fit(name: str, rows: NDArray[np.float32], row: str = "row") -> Coder:
    with pytest.warns(UserWarning, match=f"{row} .* times as far from the center"):
        return CODERS[name]().fit(rows)


def recall_of_others(coder: Coder, rows: NDArray[np.float32], metric: SearchMetric, *, graph: bool) -> float:
    index = nc.Index(coder, vectors="float32", graph=graph)
    index.add(rows)
    index.wait()
    queries, k = gaussian(200, seed=2), K + len(OUTLIERS)
    # Lists of short codes by codebooks differ more between fits to 99 % of the rows than by outliers: all are probed.
    listed = isinstance(coder, nc.LinearCoder | nc.CellCoder)
    candidates = 50 if graph else ROWS // 4 if listed else ROWS
    return recall(
        others(index.search(queries, k=k, metric=metric, candidates=candidates, rerank=50).ids),
        others(index.search(queries, k=k, metric=metric, rank="exact").ids),
    )


def others(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first K ids of each row that are not outliers."""
    return np.array([row[~np.isin(row, OUTLIERS)][:K] for row in ids])


@coders
@pytest.mark.parametrize("factor", [20, 1e12])
def test_codes_of_other_rows_are_as_good(name: str, factor: float) -> None:
    clean, rows = CODERS[name]().fit(gaussian(ROWS, seed=1)), gaussian(1000, seed=3)
    coder = fit(name, with_outliers(factor))
    errors = [float(np.mean((rows - one.decode(one.encode(rows))) ** 2)) for one in (clean, coder)]
    assert errors[1] < 1.15 * errors[0]


@pytest.mark.parametrize("metric", ["l2", "inner"])
@pytest.mark.parametrize(
    ("name", "graph"), [*((name, False) for name in CODERS if name != "rotation"), ("linear", True), ("rotation", True)]
)
def test_recall_stays(name: str, graph: bool, metric: SearchMetric) -> None:
    clean, rows = gaussian(ROWS, seed=1), with_outliers(1e4)
    before = recall_of_others(CODERS[name]().fit(clean), clean, metric, graph=graph)
    after = recall_of_others(fit(name, rows), rows, metric, graph=graph)
    assert after > before - 0.02


@coders
def test_the_farthest_row_is_named_whatever_the_pieces(name: str) -> None:
    rows = with_outliers(100)
    rows[0] *= 10_000
    coder = fit(name, rows, "row 0")
    with pytest.warns(UserWarning, match="row 0 "):
        pieces = CODERS[name]().fit(iter([rows[:1], rows[1:300], rows[300:]]))
    assert pieces.expected_error(0) == pytest.approx(coder.expected_error(0), rel=0.02)


def test_rows_beyond_the_sample_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The covariance is of all rows, so one outlier that is not in the sample would decide it."""
    monkeypatch.setattr("nestcode.coders.sampling.SAMPLE_ROWS", 1000)
    clean = nc.LinearCoder(96).fit(gaussian(ROWS, seed=1))
    for row in range(0, ROWS, 500):
        rows = gaussian(ROWS, seed=1)
        rows[row] *= 1e6
        assert fit("linear", rows, f"row {row}").expected_error(96) < 1.2 * clean.expected_error(96)


@coders
def test_ordinary_rows_are_not_clipped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laplace = np.random.default_rng(0).laplace(size=(ROWS, 4))
    few = gaussian(49, seed=1)
    few[0] *= 1e6  # of fewer than 50 rows, none is an outlier
    zeros = np.zeros((ROWS, 4), np.float32)
    zeros[:90] = gaussian(90, seed=1)[:, :4]  # the other rows are equal, and say nothing of distances
    clustered = np.repeat(gaussian(10, seed=1), ROWS // 10, axis=0)
    data: list[NDArray[np.floating]] = [gaussian(ROWS, seed=1), laplace, few, zeros, clustered]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the data fills")
        fits = [CODERS[name]().fit(rows).fingerprint for rows in data]
        monkeypatch.setattr("nestcode.coders.sampling.FAR", np.inf)
        assert fits == [CODERS[name]().fit(rows).fingerprint for rows in data]


@pytest.mark.parametrize("name", sorted(CODERS.keys() - {"rotation"}))  # which states no error of the data
def test_a_small_cluster_far_away_is_data(name: str) -> None:
    def clustered(rows: int, seed: int) -> NDArray[np.float32]:
        data = gaussian(rows, seed)
        data[: rows // 100] += 100
        return data

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coder = CODERS[name]().fit(clustered(ROWS, seed=1))
    fresh = clustered(10 * ROWS, seed=4)  # codebooks have half as many entries as there are rows, and overfit those
    error = float(np.mean((fresh - coder.decode(coder.encode(fresh))) ** 2))
    # 100 held-out rows leave a standard error of 4 %; the bit planes of the others state the error of their own rows,
    # which is 13 % below.
    assert coder.expected_error(coder.width) == pytest.approx(error, rel=0.2)


@pytest.mark.parametrize("goal", ["search", "graph"])
def test_recall_stays_with_the_coder_that_fit_chooses(goal: nc.coders.auto.Goal) -> None:
    clean, rows = gaussian(ROWS, seed=1), with_outliers(1e4)
    before = recall_of_others(nc.fit(clean, 64, goal=goal), clean, "l2", graph=goal == "graph")
    with pytest.warns(UserWarning, match="row 7|row 8"):
        coder = nc.fit(rows, 64, goal=goal)
    # Two coders are almost equally good here, and the choice may change.
    assert recall_of_others(coder, rows, "l2", graph=goal == "graph") > before - 0.05
