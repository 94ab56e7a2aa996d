"""`Index.build`: reaches its target on queries that chose nothing, keeps bounds, and is the same for the same seed."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nestcode import Index, LinearCoder, data
from nestcode.errors import InvalidInput
from nestcode.index.autotune import build as building
from nestcode.index.autotune import candidates
from nestcode.index.autotune.choice import Choice, Trial
from nestcode.index.autotune.trials import Sample, run_trials

Rows = NDArray[np.float32]
TARGET = 0.9


def normal(rng: np.random.Generator, n: int, features: int) -> Rows:
    return rng.standard_normal((n, features)).astype(np.float32)


def clusters(rng: np.random.Generator, n: int, features: int) -> Rows:
    return normal(rng, 10, features)[rng.integers(10, size=n)] + 0.2 * normal(rng, n, features)


def near_copies(rng: np.random.Generator, n: int, features: int) -> Rows:
    return normal(rng, n // 5, features)[rng.integers(n // 5, size=n)] + np.float32(1e-3) * normal(rng, n, features)


def ties(rng: np.random.Generator, n: int, features: int) -> Rows:
    return rng.integers(3, size=(n, features)).astype(np.float32)


def far_from_zero(rng: np.random.Generator, n: int, features: int) -> Rows:
    return np.float32(1000) + normal(rng, n, features)


def steep(rng: np.random.Generator, n: int, features: int) -> Rows:
    return normal(rng, n, features) * (1 + np.arange(features, dtype=np.float32)) ** -1


def choice_of(index: Index) -> Choice:
    assert isinstance(index.choice, Choice)
    return index.choice


def reached(index: Index) -> float:
    recall = choice_of(index).reached
    assert recall is not None
    return recall


CASES: list[tuple[Callable[..., Rows], int, int]] = [
    (normal, 60, 3),
    (normal, 3000, 1),
    (normal, 1000, 2),
    (normal, 200, 4096),
    (steep, 5000, 64),
    (clusters, 2000, 100),
    (near_copies, 2000, 100),
    (ties, 2000, 128),
    (far_from_zero, 2500, 128),
]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize(("make", "count", "features"), CASES)
def test_reaches_its_target_on_other_queries(make: Callable[..., Rows], count: int, features: int, metric: Any) -> None:
    rows = make(np.random.default_rng(3), count + 200, features)
    items, queries = rows[:-200], rows[-200:]
    index = Index.build(items, metric=metric, recall=TARGET)
    found = index.evaluate(queries, exact=items)
    errors = np.hypot(found.standard_error, choice_of(index).standard_error)
    assert found.recall >= TARGET - 2 * errors
    assert len(index) == count
    assert index.ids.tolist() == list(range(count))


def test_same_data_and_seed_give_the_same_choice() -> None:
    rows = steep(np.random.default_rng(0), 2000, 128)
    first, second = (Index.build(rows, seed=1) for _ in range(2))
    assert first.choice == second.choice
    assert first.effort == second.effort


@pytest.mark.parametrize(("max_bytes", "stored"), [(1000.0, "float16"), (300.0, "int8"), (100.0, None)])
def test_bounds_hold(max_bytes: float, stored: str | None) -> None:
    rows = steep(np.random.default_rng(0), 1500, 200)
    index = Index.build(rows, recall=0.5, max_bytes=max_bytes)
    index.search(rows[:5])
    assert index.nbytes <= max_bytes * len(rows)
    assert index.vector_type in (stored, "int8", None)
    assert reached(index) >= 0.5


def test_attributes_are_those_of_the_rows_and_wrong_ones_are_refused_before_the_trials() -> None:
    rows = normal(np.random.default_rng(0), 300, 8)
    index = Index.build(rows, attributes={"year": np.arange(300)})
    hits = index.search(rows[299], k=1, filter="year > 297")
    assert index.attributes(hits.ids).column("year").to_pylist() == [299]
    with pytest.raises(InvalidInput, match="a row for each item, got 2 rows for 300 items"):
        Index.build(rows, attributes={"year": [1, 2]}, verbose=True)


def test_says_what_bound_is_too_small() -> None:
    rows = normal(np.random.default_rng(0), 500, 16)
    with pytest.raises(InvalidInput, match="max_bytes must be"):
        Index.build(rows, max_bytes=3)


def test_warns_where_the_target_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = normal(np.random.default_rng(0), 800, 64)
    monkeypatch.setattr(candidates, "CODE_BITS", {LinearCoder: (128, 256)})  # others take long to fit
    with pytest.warns(UserWarning, match="raise max_bytes, or lower recall"):
        index = Index.build(rows, recall=0.99, max_bytes=75)
    assert reached(index) < 0.99


@pytest.mark.parametrize("prefer", ["memory", "build"])
def test_preferences(prefer: Any) -> None:
    rows = steep(np.random.default_rng(0), 1000, 16)
    index = Index.build(rows, prefer=prefer)
    fastest = Index.build(rows)
    found = index.evaluate(steep(np.random.default_rng(1), 200, 16), exact=rows)
    assert found.recall >= 0.95 - 2 * np.hypot(found.standard_error, choice_of(index).standard_error)
    if prefer == "memory":
        assert index.nbytes <= fastest.nbytes


@pytest.mark.parametrize("count", [1, 2, 12])
def test_few_rows_are_all_found(count: int) -> None:
    rows = normal(np.random.default_rng(0), count, 5)
    index = Index.build(rows, ids=np.arange(count) * 7)
    assert index.search(rows, k=1).ids.ravel().tolist() == [7 * i for i in range(count)]


def test_where_a_scan_is_chosen_searches_scan() -> None:
    rows = steep(np.random.default_rng(0), 400, 12)
    index = Index.build(rows)
    assert "to scan all items" in choice_of(index).reason
    assert (index.explain(rows[0]).operator, index.health().recall) == ("scan", 1.0)


@pytest.mark.parametrize("count", [1700, 2600])
def test_what_is_built_is_the_best_of_what_was_tried(count: int) -> None:
    """Below the size of graphs the build is the trial of lists: where a scan takes less, the scan is built instead."""
    index = Index.build(normal(np.random.default_rng(0), count, 64))
    chosen, best = choice_of(index), choice_of(index).tried[0]
    assert best.candidate == chosen.chosen
    assert best.ns == min(one.ns for one in chosen.tried if one.reached)
    assert index.width == best.candidate.width
    assert {one.candidate.structure for one in chosen.tried} == {"scan", "lists"}


def test_equal_rows_are_an_index_too() -> None:
    index = Index.build(np.ones((300, 4), np.float32))
    assert (index.search(np.ones(4), k=3).distances == 0).all()


def test_queries_of_the_caller_and_ids() -> None:
    rng = np.random.default_rng(0)
    rows, queries = steep(rng, 2000, 128), normal(rng, 300, 128)
    ids = rng.permutation(10**6)[:2000]
    index = Index.build(rows, ids, queries=queries[:150], recall=TARGET)
    found = index.evaluate(queries[150:], exact=dict(zip(ids.tolist(), rows, strict=True)))
    assert found.recall >= TARGET - 2 * found.standard_error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recall": 0}, "recall must be above 0"),
        ({"recall": 1.5}, "recall must be above 0"),
        ({"k": 0}, "k must be"),
        ({"max_bytes": -1}, "max_bytes must be a positive"),
        ({"prefer": "luck"}, "prefer must be one of"),
        ({"metric": "inner"}, "metric must be"),
        ({"seconds": -1}, "seconds must be"),
        ({"queries": np.zeros((0, 4))}, "queries must have"),
        ({"queries": np.zeros((3, 5))}, "queries must have the 4 features of the rows, got 5"),
        ({"ids": [1, 2]}, "id"),
    ],
)
def test_refuses_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Index.build(np.ones((20, 4)), **options)


def test_a_target_of_one_allows_no_rounding() -> None:
    index = Index.build(normal(np.random.default_rng(0), 400, 6), recall=1)
    assert index.vector_type == "float32"
    assert isinstance(index.choice, Choice)
    assert index.choice.reached == 1


def test_rows_that_float32_cannot_tell_apart_have_a_remedy() -> None:
    rows = 1e9 + np.random.default_rng(0).standard_normal((300, 8))
    with pytest.warns(UserWarning, match="subtract the mean"):
        Index.build(rows)


def test_refuses_no_rows() -> None:
    with pytest.raises(InvalidInput, match="got none"):
        Index.build(np.empty((0, 4)))


def test_ctrl_c_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Iterator[Trial]:
        trials = run_trials(*arguments)
        yield next(trials)
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "run_trials", interrupted)
    rows = steep(np.random.default_rng(0), 5000, 128)
    index = Index.build(rows)
    assert len([one for one in choice_of(index).tried if one.trials]) == 1
    assert "interruption" in choice_of(index).reason


def test_ctrl_c_that_python_drops_ends_the_trials_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Iterator[Trial]:
        for trial in run_trials(*arguments):
            with contextlib.suppress(KeyboardInterrupt):  # as in the callback of a weak reference
                signal.raise_signal(signal.SIGINT)
            yield trial

    monkeypatch.setattr(building, "run_trials", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        index = Index.build(steep(np.random.default_rng(0), 2000, 128))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len([one for one in choice_of(index).tried if one.trials]) == 1


def test_an_index_that_memory_does_not_hold_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = steep(np.random.default_rng(0), 1500, 200)
    monkeypatch.setattr(building, "available_memory", lambda: 300 * len(rows))
    index = Index.build(rows, recall=0.5)
    assert index.nbytes <= 300 * len(rows)
    monkeypatch.undo()
    found = building.available_memory()
    assert found is None or found > 0


def test_choice_is_saved(tmp_path: Any) -> None:
    rows, _ = data.digits()
    index = Index.build(rows)
    index.save(tmp_path / "index")
    with Index.open(tmp_path / "index") as opened:
        assert str(opened.choice).startswith(str(choice_of(index).chosen))


def test_blind_index_finds_what_one_without_the_queries_finds() -> None:
    rows = steep(np.random.default_rng(0), 6000, 64)
    own = np.arange(300)
    coder = LinearCoder(256).fit(rows)
    whole, without = (Index(coder, vectors="float32", graph=True) for _ in range(2))
    whole.add(rows)
    without.add(rows[300:])
    for index in (whole, without):
        index.compact()
    blind = Sample(rows, rows[:300], own, "l2", 10, hidden=True).searches(whole._blind_to(own))
    for ef in (20, 40):
        expected = without.evaluate(rows[:300], candidates=ef, rerank=10, exact=rows[300:])
        found = blind.run(ef, 10)
        assert abs(found.recall - expected.recall) <= 3 * expected.standard_error
        assert len(whole) == 6000
