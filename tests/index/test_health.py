"""`Index.health`: says what is wrong with an index, and names the call that mends it."""

from typing import Any

import numpy as np
import pytest

from nestcode import CellCoder, Codes, Index, LinearCoder
from nestcode.errors import InvalidInput
from tests.index.autotune.test_build import normal, steep


def filled(rows: Any, coder: Any, **options: Any) -> Index:
    index = Index(coder.fit(rows), **options)
    index.add(rows)
    index.compact()
    return index


def test_recall_of_stored_items_is_that_of_queries_that_were_never_indexed() -> None:
    rows = steep(np.random.default_rng(0), 5000, 32)
    items, queries = rows[:4600], rows[4600:]
    for graph in (False, True):
        index = filled(items, LinearCoder(64), vectors="float32", graph=graph)
        index.tune(queries[:200], target_recall=0.8)
        found, expected = index.health(target_recall=0.5), index.evaluate(queries[200:])
        assert found.ok
        assert found.recall == pytest.approx(expected.recall, abs=4 * np.hypot(found.standard_error, 0.01))
        assert found.items == 4600


def test_names_too_little_recall_and_the_call_that_mends_it() -> None:
    rng = np.random.default_rng(0)
    index = filled(normal(rng, 3000, 32), CellCoder(64), vectors="float32")
    index.tune(normal(rng, 20, 32), target_recall=0.1)
    found = index.health(target_recall=1.0)
    assert not found.ok
    assert "index.tune(queries" in str(found)
    index.tune(normal(rng, 50, 32), target_recall=1.0)
    assert index.health(target_recall=0.9).ok


def test_names_lists_that_the_items_have_outgrown() -> None:
    rng = np.random.default_rng(0)
    rows = normal(rng, 3000, 16)
    index = filled(rows[:600], CellCoder(64), vectors="float16")
    assert index.health().ok
    index.add(normal(rng, 12_000, 16))
    assert "Index.build(index.vectors(index.ids), index.ids, metric='l2')" in str(index.health())
    assert Index.build(index.vectors(index.ids), index.ids).health().ok


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_names_data_that_has_changed(metric: Any) -> None:
    rng = np.random.default_rng(0)
    rows = steep(rng, 2000, 48)
    index = filled(rows[:1500], LinearCoder(96, metric), vectors="float32")
    index.add(rows[1500:])
    assert index.health().ok
    index.add(steep(rng, 500, 48)[:, ::-1])
    assert "the data has changed" in str(index.health())


def test_codes_alone_have_no_recall_to_measure() -> None:
    index = Index(width=8)
    assert index.health().ok
    index.add(Codes.from_bits(np.eye(8) > 0))
    assert index.health().recall is None
    with pytest.raises(InvalidInput, match="target_recall must be above 0"):
        index.health(target_recall=2)
    with pytest.raises(InvalidInput, match="queries must be"):
        index.health(queries=0)
