"""Asymmetric distance computation (ADC): queries as they are, items as codes, distances by lookup tables.

A squared distance is a sum over the directions of an orthonormal projection. Each term depends on the query and a few
bits of the code. A table with 256 entries for each byte of a code holds the terms for one query, so the distance to an
item is one lookup and one addition a byte (product quantization: Jégou, Douze, Schmid 2011).

The bytes of a residual quantizer are table indices as they are. Bit planes lie scattered in a code, in order of
importance: `group_bits` regroups them, the bits of a direction side by side, eight bits to a byte.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Bytes, Doubles, Floats, as_floats, center, check_rows, squared_norms
from nestcode.coders import Coder
from nestcode.coders.base import CodebookLayout, ScalarLayout
from nestcode.coders.codebooks import ENTRIES
from nestcode.coders.scalar_quantizer import bits_per_direction
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.search.decoded import ProjectedScorer
from nestcode.search.inverted_lists import all_codes
from nestcode.search.planner import NS_PER_ADC_BYTE
from nestcode.search.scorer import NO_NORMS, ScanLayout, SearchMetric

QUERIES = 256  # whose tables are in memory at once: 1 kB for each query and byte of code


def asymmetric_distances(coder: Coder, queries: ArrayLike, codes: Codes) -> Floats:
    """Return squared distances from queries to decoded codes, (queries, items), by lookup tables where possible.

    >>> from nestcode import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    >>> coder = LinearCoder(width=20).fit(X)
    >>> codes = coder.encode(X).prefix(15)
    >>> by_decoding = ((X[:3, None] - coder.decode(codes)) ** 2).sum(axis=2)
    >>> np.allclose(asymmetric_distances(coder, X[:3], codes), by_decoding, atol=1e-4)
    True

    Args:
        coder: the fitted coder that made the codes. With metric "cosine", queries and decoded items are L2-normalized.
        queries: (n, features).
        codes: of any length up to the coder's width.

    """
    coder.check_codes(codes)
    rows = check_rows(queries, features=coder.n_features_in_)
    layout = coder.layout(codes.width)
    if isinstance(layout, ScalarLayout):
        by_squares = layout.centroid_bits == 0
        distances = (_scalar_distances if by_squares else _residual_distances)(coder, layout, rows, codes)
    elif isinstance(layout, CodebookLayout) and layout.exact:
        distances = _codebook_distances(coder, layout, rows, codes)
    else:
        distances = _decoded_distances(coder, rows, codes)
    return _by_angle(coder, rows, codes, distances) if coder.metric_ == "cosine" else distances


def cell_distances(coder: Coder, queries: ArrayLike, codes: Codes) -> Floats:
    """Return squared distances from queries to the quantization cells of codes, (queries, items).

    The cell of a code holds all vectors with that code: a box in the principal directions. Its distance is a lower
    bound of the distance to any item with that code. It is 0 for the query's own code and never falls as codes grow
    longer.

    >>> from nestcode import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    >>> coder = LinearCoder(width=20).fit(X)
    >>> bool(cell_distances(coder, X, coder.encode(X)).diagonal().max() < 1e-9)
    True

    Args:
        coder: a fitted `LinearCoder`, whose cells are boxes.
        queries: (n, features).
        codes: of any length up to the coder's width.

    """
    coder.check_codes(codes)
    layout = coder.layout(codes.width)
    if not isinstance(layout, ScalarLayout) or layout.centroid_bits:
        raise InvalidInput(
            f"cell_distances needs cells that are boxes, got a {type(coder).__name__}: fit a LinearCoder"
        )
    thresholds = layout.planes.thresholds

    def terms(coefficients: Floats, direction: int, depth: int) -> Floats:
        edges = _cell_edges(thresholds[direction], depth)
        beyond: Floats = np.maximum(edges[:-1] - coefficients[:, None], coefficients[:, None] - edges[1:])
        return np.maximum(beyond, 0) ** 2

    rows = check_rows(queries, features=coder.n_features_in_)
    return _sum_terms(coder, layout, rows, codes, terms, outside=False)


@dataclass(frozen=True)
class BitGroups:
    """Which directions' bits share a table index."""

    directions: tuple[tuple[int, ...], ...]  # of each group, the highest bits first
    depths: NDArray[np.int64]  # (directions,): how many bits each has
    sources: NDArray[np.int32]  # (size * groups,): the bit of a code that each bit of the groups is, or -1


def group_bits(owners: NDArray[np.int32], directions: int, first: int = 0, size: int = 8) -> BitGroups:
    """Pack directions into groups of `size` bits by best fit, those with most bits first.

    Bit planes begin at bit `first` of a code. Of directions with more than `size` bits, the first ones are taken.
    """
    depths = np.minimum(bits_per_direction(owners, directions), size)
    groups: list[list[int]] = []
    free: list[int] = []
    by_free: list[list[int]] = [[] for _ in range(size + 1)]  # heaps of groups, by how many bits are free
    for direction in np.argsort(-depths, kind="stable")[: np.count_nonzero(depths)].tolist():
        depth = int(depths[direction])
        best = next((left for left in range(depth, size) if by_free[left]), size)
        if best == size:
            by_free[size].append(len(groups))
            groups.append([])
            free.append(size)
        group = heappop(by_free[best])
        groups[group].append(direction)
        free[group] = best - depth
        heappush(by_free[best - depth], group)
    return BitGroups(tuple(map(tuple, groups)), depths, _sources(groups, free, owners, depths, first))


def _sources(
    groups: list[list[int]], free: list[int], owners: NDArray[np.int32], depths: NDArray[np.int64], first: int
) -> NDArray[np.int32]:
    """Return where the bits of groups lie in a code: each group's directions, one after the other, at its low end."""
    positions: dict[int, list[int]] = {}
    for position, owner in enumerate(owners.tolist(), start=first):
        positions.setdefault(owner, []).append(position)
    sources = [
        [-1] * left + [p for d in group for p in positions[d][: depths[d]]]
        for group, left in zip(groups, free, strict=True)
    ]
    return np.array(sources, dtype=np.int32).reshape(-1)


def regroup(packed: Bytes, groups: BitGroups, threads: int = CORES) -> Bytes:
    """Return the table indices of codes, (items, groups)."""
    out = np.empty((len(packed), len(groups.directions)), dtype=np.uint8)
    _core.permute_bits(packed, groups.sources, out, threads=threads)
    return out


def lookup_tables(groups: BitGroups, terms: dict[int, Floats], queries: int) -> Floats:
    """Return the tables of groups, (queries, groups, 256), from each direction's terms, (queries, 2^depth)."""
    tables = np.zeros((queries, len(groups.directions), ENTRIES), dtype=np.float32)
    for place, group in enumerate(groups.directions):
        table = np.zeros((queries, 1), dtype=np.float32)
        for direction in group:
            both = table[:, :, None] + terms[direction][:, None, :]
            table = both.reshape(queries, both.shape[1] * both.shape[2])
        tables[:, place, : table.shape[1]] = table
    return tables


def sum_tables(indices: Bytes, tables: Floats, threads: int = CORES) -> Floats:
    """Add up the looked-up terms: (items, groups), (queries, groups, 256) -> (queries, items)."""
    out = np.empty((len(tables), len(indices)), dtype=np.float32)
    _core.sum_lookup_tables(indices, tables, out, threads=threads)
    return out


def _scalar_distances(coder: Coder, layout: ScalarLayout, rows: NDArray[np.generic], codes: Codes) -> Floats:
    """Return distances by tables of squared differences: without a coarse quantizer, directions are independent."""
    levels = layout.planes.levels

    def terms(coefficients: Floats, direction: int, depth: int) -> Floats:
        square: Floats = (coefficients[:, None] - levels[direction, 1 << depth : 2 << depth]) ** 2
        return square

    return _sum_terms(coder, layout, rows, codes, terms, outside=True)


def _sum_terms(
    coder: Coder,
    layout: ScalarLayout,
    rows: NDArray[np.generic],
    codes: Codes,
    terms: Callable[[Floats, int, int], Floats],
    *,
    outside: bool,
) -> Floats:
    """Sum the terms of all directions in use; `outside` adds the squared norm of the query in all others."""
    groups = group_bits(layout.planes.allocation, layout.centroids.shape[1])
    indices, used = regroup(codes.packed, groups), np.flatnonzero(groups.depths)
    distances = np.empty((len(rows), len(codes)), dtype=np.float32)
    for first in range(0, len(rows), QUERIES):
        centered, projected = _project(coder, rows[first : first + QUERIES])
        by_direction = {int(d): terms(projected[:, d], int(d), int(groups.depths[d])) for d in used}
        sums = sum_tables(indices, lookup_tables(groups, by_direction, len(centered)))
        if outside:
            rest = squared_norms(centered) - squared_norms(projected[:, used])
            sums += np.maximum(rest, 0)[:, None].astype(np.float32)
        distances[first : first + QUERIES] = sums
    return distances


def _residual_distances(coder: Coder, layout: ScalarLayout, rows: NDArray[np.generic], codes: Codes) -> Floats:
    """Return distances by tables of inner products with the residual, plus those with the centroid."""
    groups = group_bits(layout.planes.allocation, layout.centroids.shape[1], first=layout.centroid_bits)
    indices, chosen = regroup(codes.packed, groups), codes.leading_bits(layout.centroid_bits)
    norms = _decoded_norms(coder, codes)
    distances = np.empty((len(rows), len(codes)), dtype=np.float32)
    for first in range(0, len(rows), QUERIES):
        centered, projected = _project(coder, rows[first : first + QUERIES])
        terms = {}
        for d in np.flatnonzero(groups.depths).tolist():
            level = 1 << int(groups.depths[d])
            terms[d] = projected[:, d, None] * layout.planes.levels[d, level : 2 * level]
        products = sum_tables(indices, lookup_tables(groups, terms, len(centered)))
        products += (projected @ layout.centroids.T).take(chosen, axis=1)
        distances[first : first + QUERIES] = np.maximum(squared_norms(centered)[:, None] - 2 * products + norms, 0)
    return distances


def _codebook_distances(coder: Coder, layout: CodebookLayout, rows: NDArray[np.generic], codes: Codes) -> Floats:
    """Return distances by tables of inner products with codebook entries."""
    norms = _decoded_norms(coder, codes)
    distances = np.empty((len(rows), len(codes)), dtype=np.float32)
    for first in range(0, len(rows), QUERIES):
        centered, projected = _project(coder, rows[first : first + QUERIES])
        products = sum_tables(codes.packed, _codebook_tables(projected, layout.codebooks))
        distances[first : first + QUERIES] = np.maximum(squared_norms(centered)[:, None] - 2 * products + norms, 0)
    return distances


def _codebook_tables(coefficients: Floats, codebooks: Floats) -> Floats:
    """Return the inner products of queries with all entries, (queries, bytes, 256)."""
    products: Floats = coefficients @ codebooks.reshape(-1, codebooks.shape[2]).T
    return products.reshape(len(coefficients), len(codebooks), ENTRIES)


def _decoded_distances(coder: Coder, rows: NDArray[np.generic], codes: Codes) -> Floats:
    """Return distances by decoding every code, where no table describes it."""
    floats = as_floats(rows, normalize=coder.metric_ == "cosine").astype(np.float32)
    decoded = coder.decode(codes)
    own, norms = squared_norms(floats)[:, None], squared_norms(decoded)
    return np.maximum(own + norms - 2.0 * (floats @ decoded.T), 0).astype(np.float32)


def _by_angle(coder: Coder, rows: NDArray[np.generic], codes: Codes, distances: Floats) -> Floats:
    """Return what squared distances become when the decoded items are L2-normalized."""
    parts = (squared_norms(coder.decode(codes[first : first + PIECE])) for first in range(0, len(codes), PIECE))
    norms = np.concatenate([np.zeros(0), *parts])
    own = squared_norms(center(rows, np.zeros(rows.shape[1]), normalize=True))[:, None]  # 1, or 0 for a zero vector
    products = (own + norms - distances) / 2
    cosines = np.divide(products, np.sqrt(norms), out=np.zeros(products.shape), where=(own > 0) & (norms > 0))
    return np.asarray(2 - 2 * cosines, dtype=np.float32)  # the cosine with a zero vector is 0


def _project(coder: Coder, rows: NDArray[np.generic]) -> tuple[Floats, Floats]:
    """Return queries around the mean, (n, features), and their coefficients, (n, directions)."""
    projection = coder.projection()
    assert projection is not None, "a coder with a layout has a projection"
    centered = center(rows, projection.mean, normalize=coder.metric_ == "cosine")
    projected: Floats = centered @ projection.directions.T
    return centered, projected


def _decoded_norms(coder: Coder, codes: Codes) -> Doubles:
    """Return the squared norms of the coefficients of codes."""
    parts = (codes[first : first + PIECE] for first in range(0, len(codes), PIECE))
    return np.concatenate([np.zeros(0), *(squared_norms(coder.coefficients(part)) for part in parts)])


def _cell_edges(tree: Floats, depth: int) -> Floats:
    """Return the edges of the intervals of a direction from left to right, (2^depth + 1,)."""
    edges = np.array([-np.inf, np.inf], dtype=np.float32)
    for level in range(depth):
        finer = np.empty(2 * len(edges) - 1, dtype=np.float32)
        finer[::2], finer[1::2] = edges, tree[1 << level : 2 << level]
        edges = finer
    return edges


class AdcScorer(ProjectedScorer):
    """ADC over the first bytes of a residual quantizer's codes."""

    BYTES = 8  # that distances are estimated by, at most
    LIST_BITS = 16  # of a list's name, at most

    def __init__(self, coder: Coder, layout: CodebookLayout, width: int) -> None:
        super().__init__(coder, width)
        self._codebooks = layout.codebooks[: self.BYTES]
        self.layout_format = f"norms of {len(self._codebooks)} bytes"
        self.ns_per_estimated = NS_PER_ADC_BYTE * len(self._codebooks)

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return max(0, min(count.bit_length() - 6, self.LIST_BITS, self._width))

    def split_centroids(self, bits: int) -> tuple[Floats, Floats]:
        """Return what the first byte of a list's name decodes to, and what bits of the second add."""
        first = self.coder.coefficients(all_codes(min(bits, 8)))
        if bits <= 8:
            return first, np.zeros((1, first.shape[1]), dtype=np.float32)
        second = self.coder.coefficients(all_codes(bits)[: 1 << (bits - 8)])
        return first, second - first[:1]

    def list_scoring(self, metric: SearchMetric, bits: int) -> _core.ListScoring:
        """Return how the core ranks lists named by `bits` bits and estimates the distances of their items."""
        return _core.ListScoring(*self._list_parts(metric, bits), NO_NORMS, None, self._codebooks)

    def lay_out(self, codes: Codes) -> ScanLayout:
        """Return the squared norms of the sums of codes' first bytes."""
        norms = np.empty(len(codes), dtype=np.float32)
        for first in range(0, len(codes), PIECE):
            packed = codes.packed[first : first + PIECE, : len(self._codebooks)]
            sums = np.zeros((len(packed), self._codebooks.shape[2]), dtype=np.float32)
            _core.sum_codebook_entries(packed, self._codebooks, sums, threads=CORES)
            norms[first : first + PIECE] = squared_norms(sums)
        return ScanLayout(self.layout_format, norms=norms)
