"""Zero vectors by angle are at distance 2 from everything, however codes are searched."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from nestcode import AdaptiveCoder, CellCoder, Index, LinearCoder, ResidualCoder, RotationCoder
from nestcode.coders import Coder
from nestcode.index import compaction
from nestcode.index.snapshot import Snapshot
from nestcode.search.zeros import among, zero_codes
from nestcode.stores import SqliteStore
from tests import twins

ROWS, FEATURES = 1200, 12
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((ROWS, FEATURES)) * np.arange(1, FEATURES + 1) ** -0.5).astype(np.float32)
ZEROS = np.arange(ROWS) % 9 == 0
X[ZEROS] = 0
Q = RNG.standard_normal((40, FEATURES)).astype(np.float32)
Q[3] = 0
CODERS: dict[str, Coder] = {
    "linear": LinearCoder(40, metric="cosine"),
    "by l2": LinearCoder(40),
    "rotation": RotationCoder(64, metric="cosine"),
    "residual": ResidualCoder(40, metric="cosine", beams=2),
    "cell": CellCoder(40, metric="cosine", cells=16),
    "adaptive": AdaptiveCoder(96, metric="cosine", beams=1),
}
kinds = pytest.mark.parametrize("kind", CODERS)


@cache
def fitted(kind: str, zeros: bool) -> Coder:
    return CODERS[kind].fit(X if zeros else X[~ZEROS])


@cache
def filled(kind: str, zeros: bool = True, graph: bool = False) -> Index:
    """Two segments and the buffer, with tombstones."""
    index = Index(fitted(kind, zeros), graph=graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SIZE_RATIO", 0)
        patch.setattr(compaction, "MIN_GRAPH", 100)
        for first, last in ((0, 800), (800, 1100), (1100, ROWS)):
            index.add(X[first:last])
            if last < ROWS:
                index._live.write(Snapshot.flush)
        index.wait()
        index.remove(np.arange(0, ROWS, 7))
    return index


def true_distances(decoded: Any, ids: Any) -> twins.Doubles:
    """From all queries to what codes decode to, but for zero vectors."""
    decoded = decoded.copy()
    decoded[ZEROS[ids]] = 0
    return twins.distances(Q, decoded, "cosine")


@pytest.mark.parametrize("zeros", [True, False], ids=["with zeros", "without"])
@kinds
def test_zero_vectors_are_at_distance_2_by_codes(kind: str, zeros: bool) -> None:
    index = filled(kind, zeros)
    ids, how = index.ids, dict[str, Any](metric="cosine")
    true = true_distances(index.reconstruct(ids), ids)
    twins.check_all(index.search(Q, 200, candidates=ROWS, **how), true, ids, 1e-4)
    for candidates in (100, 400):
        hits = index.search(Q, 200, candidates=candidates, **how)
        twins.check_hits(hits, true, ids, 1e-4)
        one = index.search(Q[5], 200, candidates=candidates, **how)
        np.testing.assert_allclose(one.distances, hits.distances[5], rtol=1e-4, atol=1e-4)
    some = ids[::5]
    twins.check_all(index.search(Q, 300, filter=some, **how), true[:, ::5], some, 1e-4)
    for query, near in zip(Q[:5], true, strict=False):
        found = index.range_search(query, 2.0, candidates=ROWS, **how)
        inside = ids[near < 2 - 1e-4]
        assert np.isin(inside, found.ids).all()
        assert np.isin(ids[ZEROS[ids]], found.ids).all()
        assert index.search(query, 3, filter=ids[ZEROS[ids]], **how).distances.tolist() == [2, 2, 2]


@pytest.mark.parametrize("kind", ["linear", "rotation"])
def test_walks_find_them_at_distance_2(kind: str) -> None:
    index = filled(kind, graph=True)
    ids = index.ids
    true = true_distances(index.reconstruct(ids), ids)
    for candidates in (60, 300):
        twins.check_hits(index.search(Q, 20, candidates=candidates, rank="asymmetric"), true, ids, 1e-4)


@kinds
def test_stores_find_them_at_distance_2(kind: str) -> None:
    coder, ids = fitted(kind, True), np.arange(ROWS)
    with SqliteStore.create(":memory:", coder) as store:
        store.add(X, ids)
        true = true_distances(coder.decode(coder.encode(X)), ids)
        twins.check_all(store.search(Q, 200, candidates=ROWS, rerank=ROWS, metric="cosine"), true, ids, 1e-4)
        twins.check_hits(store.search(Q, 20, candidates=200, metric="cosine"), true, ids, 1e-4)


@kinds
def test_prefixes_of_any_length_keep_ordinary_items(kind: str) -> None:
    """Where codes are too short to tell zero vectors, nothing is taken for one."""
    coder = fitted(kind, False)
    codes = coder.encode(X[~ZEROS])
    for width in (1, 2, 4, 8, 12, 16, 40):
        assert among(codes.prefix(width), zero_codes(coder, width)).mean() < 0.01, width


def test_equal_items_are_no_zeros() -> None:
    rows = np.repeat(Q[:1], 50, axis=0)
    with pytest.warns(UserWarning, match="the data fills"):
        index = Index(LinearCoder(16, metric="cosine").fit(rows))
    index.add(rows)
    assert (index.search(Q[0], 50).distances < 1e-5).all()
