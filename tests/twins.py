"""Plain twins of the fast paths, and the data that laws are tested on."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.search.hits import Hits

Bits = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]


def bit_arrays(width: int | None = None, max_items: int = 6, max_width: int = 300) -> st.SearchStrategy[Bits]:
    """(items, width) booleans; Hypothesis shrinks toward few items, narrow codes and zeros."""
    widths = st.integers(0, max_width) if width is None else st.just(width)
    shapes = st.tuples(st.integers(0, max_items), widths)
    return shapes.flatmap(lambda shape: hnp.arrays(np.bool_, shape))


def code_pairs(max_items: int = 6) -> st.SearchStrategy[tuple[Codes, Codes]]:
    """Two arrays of codes of the same width, often with shared prefixes."""

    def of_width(width: int) -> st.SearchStrategy[tuple[Codes, Codes]]:
        codes = bit_arrays(width, max_items).map(Codes.from_bits)
        return st.tuples(codes, codes)

    return st.integers(0, 300).flatmap(of_width)


def hamming(a: Bits, b: Bits) -> NDArray[np.int64]:
    distances: NDArray[np.int64] = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    return distances


def common_prefix(a: Bits, b: Bits) -> NDArray[np.int64]:
    agree = a[:, None, :] == b[None, :, :]
    shared: NDArray[np.int64] = np.logical_and.accumulate(agree, axis=2).sum(axis=2)
    return shared


def random_codes(items: int, width: int, seed: int = 0) -> Codes:
    return Codes.from_bits(np.random.default_rng(seed).random((items, width)) < 0.5)


class BitTree:
    """The paper's tree as it is written there: a node for every prefix, with the items below it."""

    def __init__(self, bits: Bits, ids: NDArray[np.int64]) -> None:
        self.ids = sorted(ids.tolist())
        self.children: list[BitTree] = []
        if bits.shape[1] and len(bits):
            self.children = [BitTree(bits[bits[:, 0] == side, 1:], ids[bits[:, 0] == side]) for side in (False, True)]

    def family(self, query: NDArray[np.bool_]) -> list[list[int]]:
        """The members of N_0, N_1, ... as long as there are any, and of N_0 always."""
        family, node = [self.ids], self
        for bit in query.tolist():
            if not node.children or not node.children[bit].ids:
                break
            node = node.children[bit]
            family.append(node.ids)
        return family

    def neighborhood(self, query: NDArray[np.bool_], size: int) -> tuple[int, list[int]]:
        """Descend until fewer than `size` are left, and return the neighborhood before that."""
        length, members = 0, self.ids
        for deeper, ids in enumerate(self.family(query)):
            if deeper and len(ids) >= size:
                length, members = deeper, ids
        return length, members


# Search


def clustered(n: int, features: int = 12, seed: int = 0) -> NDArray[np.float32]:
    """Rows around 40 centroids far from 0, with a decaying spectrum."""
    centers = np.random.default_rng(7).standard_normal((40, features))
    rng = np.random.default_rng(seed)
    rows = centers[rng.integers(0, 40, n)] + 0.3 * rng.standard_normal((n, features))
    return (3 + rows * np.arange(1, features + 1) ** -0.5).astype(np.float32)


def distances(queries: NDArray[Any], rows: NDArray[Any], metric: str) -> Doubles:
    """Distances from each query to each row, pair by pair in float64: (queries, rows)."""
    a, b = (np.asarray(part, dtype=np.float64) for part in (queries, rows))
    if metric == "inner":
        return -(a @ b.T)
    if metric == "cosine":
        a, b = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300) for part in (a, b))
    squares: Doubles = ((a[:, None] - b[None]) ** 2).sum(axis=2)
    if metric == "cosine":  # 2 - 2 cos, and the cosine with a zero vector is 0
        squares[~a.any(axis=1)], squares[:, ~b.any(axis=1)] = 2, 2
    return squares


def nearest(distances: Doubles, ids: Ids, k: int) -> tuple[Ids, Doubles]:
    """The k nearest of each row by distance and then by id; -1 and infinity where there are no more."""
    found = np.full((len(distances), k), -1, dtype=np.int64)
    near = np.full((len(distances), k), np.inf)
    for row, own in enumerate(distances):
        order = np.lexsort((ids, own))[:k]
        found[row, : len(order)], near[row, : len(order)] = ids[order], own[order]
    return found, near


def check_hits(hits: Hits, distances: Doubles, ids: Ids, error: float = 1e-5) -> None:
    """Check what holds for any search: hits are in order, each once, with their own distances, and missing ones last.

    `distances` are those of each query to all items that may be found, `ids` theirs; they are known up to `error`.
    """
    assert hits.ids.shape == hits.distances.shape
    assert hits.ids.dtype == np.int64
    assert hits.distances.dtype == np.float32
    there = hits.ids >= 0
    assert (np.diff(there.astype(int), axis=1) <= 0).all()
    assert np.isposinf(hits.distances[~there]).all()
    assert (hits.distances[:, 1:] >= hits.distances[:, :-1]).all()
    assert np.isin(hits.ids[there], ids).all()
    by_id = np.argsort(ids)
    for row, known, near in zip(hits.ids, distances, hits.distances, strict=True):
        found = row[row >= 0]
        assert len(np.unique(found)) == len(found)
        places = by_id[np.searchsorted(ids, found, sorter=by_id)]
        assert np.allclose(near[: len(found)], known[places], rtol=1e-4, atol=error)


def check_all(hits: Hits, distances: Doubles, ids: Ids, error: float = 1e-5) -> None:
    """Check what holds for an exhaustive search: it finds the nearest items, up to ties and rounding."""
    check_hits(hits, distances, ids, error)
    _, near = nearest(distances, ids, hits.ids.shape[1])
    assert np.array_equal(hits.ids >= 0, np.isfinite(near))
    found = np.isfinite(near)
    assert np.allclose(hits.distances[found], near[found], rtol=1e-4, atol=error)


def check_scan(ids: Ids, distances: NDArray[np.float32], true: Doubles, of: Ids) -> None:
    """Check the hits of a scan: the nearest of all items, with their distances up to one rounding to float32.

    `true` are the distances of each query to the items of ids `of`. Ties are in order of ids, but for those that
    float64 rounds apart.
    """
    with np.errstate(over="ignore"):
        rounding = 2.0**-23 * np.abs(true) + 1e-14 * np.abs(true).max(initial=0) * (true < 0).any() + 1e-15
    wanted, near = nearest(true.astype(np.float32).astype(np.float64), of, ids.shape[1])
    there = wanted >= 0
    assert np.array_equal(ids >= 0, there)
    assert np.isposinf(distances[~there]).all()
    order = np.argsort(of)
    for row, found, close, known, error in zip(ids, distances, near, true, rounding, strict=True):
        places = order[np.searchsorted(of, row[row >= 0], sorter=order)]
        assert len(np.unique(places)) == len(places)
        assert (np.abs(found[: len(places)] - known[places]) <= error[places]).all()
        found, close = found[: len(places)], close[: len(places)]
        assert (np.abs(found - close) <= 2 * error[places]).all()
        same = found[1:] == found[:-1]
        assert (np.diff(row[: len(places)])[same] > 0).all()
