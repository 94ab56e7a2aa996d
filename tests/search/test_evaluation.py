"""Recall of a search, and the settings that reach a target."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Index
from nestcode.errors import InvalidInput
from nestcode.search import Effort, Evaluation
from tests import twins
from tests.search.searching import (
    FRESH,
    ROWS,
    Q,
    X,
    assert_close,
    assert_same,
    bare,
    by_rank,
    filled,
    fitted,
    kinds,
    metrics,
    plain,
)


@metrics
@kinds
def test_an_exhaustive_search_has_recall_1(kind: str, own: Any, metric: Any) -> None:
    index, ids, vectors = filled(kind, own)
    for rank in ("asymmetric", "exact"):
        found = index.evaluate(Q, 10, candidates=ROWS, **by_rank(rank, vectors, metric))
        assert isinstance(found, Evaluation)
        assert found.recall == 1
        assert (found.compared, found.share, found.candidates) == (len(ids), 1, ROWS)
        assert found.seconds > 0


def test_recall_is_the_share_of_true_neighbors_found() -> None:
    index, ids, vectors = some = filled("linear")
    truth, _ = twins.nearest(some.distances(Q, "l2", "exact"), ids, 5)
    for candidates in (5, 50, 300):
        hits = index.search(Q, 5, candidates=candidates, vectors=vectors)
        each = [len(np.intersect1d(a, b)) / 5 for a, b in zip(hits.ids, truth, strict=True)]
        found = index.evaluate(Q, 5, candidates=candidates, vectors=vectors)
        assert found.recall == pytest.approx(np.mean(each))
        assert found.standard_error == pytest.approx(np.std(each, ddof=1) / len(each) ** 0.5)
        assert found.compared == hits.compared.mean()
        assert found.share == found.compared / len(ids)
    assert index.evaluate(Q[0], 5, vectors=vectors).recall <= 1
    with pytest.raises(InvalidInput, match=f"items that the filter allows, got 0 and {len(ids)}"):
        index.evaluate(Q[:0], 5, vectors=vectors)
    assert index.evaluate(fitted("linear").encode(Q), 5).recall <= 1
    assert index.evaluate(Q, 2 * ROWS, candidates=ROWS).recall == 1


@pytest.mark.parametrize("rank", ["asymmetric", "exact"])
@kinds
def test_tuning_reaches_its_target_with_few_candidates(kind: str, rank: str) -> None:
    index = plain(kind)
    options = by_rank(rank, X)
    for target in (0.5, 0.9):
        found = index.tune(Q, 5, target_recall=target, **options)
        assert found.recall - found.standard_error >= target  # on other queries too, mostly
        assert 1 <= found.candidates < ROWS
        assert index.effort == Effort(found.candidates, ROWS, found.rerank, 5)
        again = index.evaluate(Q, 5, **options)  # with the settings it chose
        assert (again.recall, again.candidates, again.rerank) == (found.recall, found.candidates, found.rerank)
        assert_same(
            index.search(Q, 5, **options),
            index.search(Q, 5, candidates=found.candidates, rerank=found.rerank, **options),
        )
    assert index.tune(Q, 5, target_recall=1, **options).recall == 1
    assert index.tune(Q, 2 * ROWS, target_recall=1.0, **options).recall == 1
    with pytest.warns(UserWarning, match="at least 10 queries, got 1: give more"):
        assert index.tune(Q[0], target_recall=np.float64(0.7), **options).recall >= 0.7


def test_recall_of_codes_is_measured_against_vectors() -> None:
    """`exact` has the true neighbors' vectors, which the search does not get."""
    index = plain("linear")
    found = index.search(Q, 5, candidates=300).ids
    nearest = ((Q[:, None] - X) ** 2).sum(axis=2).argsort(axis=1)[:, :5]
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), nearest.tolist(), strict=True)]
    assert index.evaluate(Q, 5, candidates=300, exact=X).recall == pytest.approx(np.mean(shared) / 5)
    assert index.evaluate(Q, 5, candidates=300, exact=X).recall < index.evaluate(Q, 5, candidates=300).recall


def test_ties_count_as_found() -> None:
    """Rows of few values have few distances, and many ties."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (1500, 16)).astype(np.float32)
    queries = rng.integers(0, 2, (20, 16)).astype(np.float32)
    index = Index(CellCoder(width=64).fit(rows))
    index.add(rows)
    found = index.search(queries, 5, candidates=300).ids
    nearest = np.sort(((queries[:, None] - rows) ** 2).sum(axis=2), axis=1)[:, 4:5]
    near = ((queries[:, None] - rows[found]) ** 2).sum(axis=2) <= nearest
    assert index.evaluate(queries, 5, candidates=300, exact=rows).recall == pytest.approx(near.mean())
    assert near.mean() > 0.9


def test_codes_are_refused_as_vectors() -> None:
    index = plain("linear")
    for call in (index.search, index.evaluate, index.tune):
        with pytest.raises(InvalidInput, match="got Codes: give the items that were encoded"):
            call(Q, vectors=fitted("linear").encode(X))


def test_a_recall_out_of_reach_is_warned_of_and_searches_stay_fast() -> None:
    index = Index(fitted("linear"), width=8)
    index.add(X)
    with pytest.warns(
        UserWarning, match=r"no search reaches a recall of 0.99 by a standard error, an exhaustive one has 0\."
    ):
        found = index.tune(Q, target_recall=0.99, exact=X)
    assert found.recall >= index.evaluate(Q, candidates=ROWS, exact=X).recall - 0.01
    assert index.effort == Effort(found.candidates, ROWS, found.rerank, 10)
    assert found.candidates < ROWS


def test_effort_grows_with_the_index_and_with_k() -> None:
    """A larger index scores the same share, and a search all of the few items that a filter leaves."""
    index = plain("cell")
    index.effort = Effort(candidates=60, items=ROWS, rerank=25, k=5)
    assert_same(index.search(Q, 5), index.search(Q, 5, candidates=60, rerank=25))
    assert_same(index.search(Q, 20), index.search(Q, 20, candidates=60, rerank=100))
    assert_same(index.search(Q, 2), index.search(Q, 2, candidates=60, rerank=25))
    few = range(100)
    assert_close(index.search(Q, 5, filter=few), index.search(Q, 5, filter=few, candidates=100))
    index.add(FRESH)
    assert_same(index.search(Q, 5), index.search(Q, 5, candidates=120, rerank=25))


def test_effort_is_saved_with_the_index(tmp_path: Path) -> None:
    index = plain("cell")
    index.tune(Q, 5, target_recall=0.5)
    index.save(tmp_path)
    opened = Index.open(tmp_path)
    assert opened.effort == index.effort
    assert_same(opened.search(Q, 5), index.search(Q, 5))
    with Index.open(tmp_path, mode="a") as writer:
        writer.effort = None
        writer.commit()
    assert Index.open(tmp_path).effort is None
    with pytest.raises(InvalidInput, match="rerank must be an integer of at least 1, got 0"):
        Effort(candidates=1, items=1, rerank=0, k=1)


def test_tuning_reranks_more_where_codes_estimate_poorly() -> None:
    """Many items share one code: only their vectors differ."""
    rng = np.random.default_rng(0)
    crowd = np.concatenate([X, X[:1] + 1e-4 * rng.standard_normal((1000, X.shape[1])).astype(np.float32)])
    index = Index(fitted("cell"))
    index.add(crowd)
    queries = X[:1] + 1e-4 * rng.standard_normal((20, X.shape[1])).astype(np.float32)
    found = index.tune(queries, 2, target_recall=0.5, vectors=crowd)
    assert found.recall >= 0.5
    assert found.rerank > 20 * 2
    assert found.candidates < len(crowd)


def test_bare_codes_are_tuned_too() -> None:
    index = bare().index
    found = index.tune(fitted("cell").encode(Q), target_recall=0.8)
    assert found.recall >= 0.8
    assert found.candidates < len(index)
    index.effort = None
