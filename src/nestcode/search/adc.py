"""Asymmetric distance computation (ADC): uncompressed queries, items as codes, distances by lookup tables.

A squared distance is a sum over the directions of an orthonormal projection. Each term depends on the query and a few
bits of the code. A table with 256 entries for each byte of a code holds the terms for one query, so the distance to an
item is one lookup and one addition a byte (product quantization: Jégou, Douze, Schmid 2011).

The bytes of a residual quantizer are table indices. Bit planes lie scattered in a code, in order of importance:
`group_bits` regroups them, the bits of a direction side by side, eight bits to a byte.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import CORES, PIECE, Bytes, Floats, center, check_rows, squared_norms
from nestcode.coders import Coder
from nestcode.coders.base import CodebookLayout
from nestcode.coders.scalar_quantizer import bits_per_direction
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search.inverted_lists import all_codes
from nestcode.search.planner import NS_PER_ADC_BYTE
from nestcode.search.projected import ProjectedScorer
from nestcode.search.scorer import NO_NORMS, ScanLayout, SearchMetric


def asymmetric_distances(coder: Coder, queries: ArrayLike, codes: Codes) -> Floats:
    """Return squared distances from queries to decoded codes, (queries, items).

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
    rows, by_angle = check_rows(queries, features=coder.n_features_in_), coder.metric_ == "cosine"
    origin = np.zeros(rows.shape[1])
    own = center(rows, origin, normalize=by_angle).astype(np.float64)
    if not by_angle and len(own):
        origin = own.mean(axis=0)  # squares are differences of larger ones far from it
        own -= origin
    distances = np.empty((len(own), len(codes)), dtype=np.float32)
    for first in range(0, len(codes), PIECE):
        decoded = coder.decode(codes[first : first + PIECE]) - origin
        products, squares = own @ decoded.T, np.einsum("nf,nf->n", decoded, decoded)
        if by_angle:  # the cosine with a zero vector is 0
            norms = np.sqrt(squares)
            found = 2 - 2 * np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
        else:
            found = np.maximum(np.einsum("nf,nf->n", own, own)[:, None] - 2 * products + squares, 0)
        distances[:, first : first + PIECE] = found
    return distances


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


class AdcScorer(ProjectedScorer):
    """ADC over the first bytes of a residual quantizer's codes."""

    BYTES = 8  # that distances are estimated by, at most
    LIST_BITS = 16  # of a list's name, at most

    def __init__(self, coder: Coder, layout: CodebookLayout, width: int) -> None:
        super().__init__(coder, width)
        self._layout, self._codebooks = layout, layout.codebooks[: self.BYTES]
        self.layout_format = f"norms of {len(self._codebooks)} bytes"
        self.ns_per_estimated = NS_PER_ADC_BYTE * len(self._codebooks)

    def list_bits(self, count: int) -> int:
        """Return how many leading bits name an inverted list when there are `count` items."""
        return max(0, min(count.bit_length() - 6, self.LIST_BITS, self.width))

    @property
    def decodable(self) -> ProjectedScorer | None:  # type: ignore[override]
        """The scorer itself, unless entries depend on earlier bytes."""
        return self if self._layout.exact else None

    @lazy_property
    def decoder(self) -> _core.CoefficientDecoder:
        """The format by which the core decodes single codes."""
        none = np.zeros((0, 0), dtype=np.float32)
        return _core.CoefficientDecoder(none, np.zeros(0, dtype=np.int32), none, self._layout.codebooks)

    def _make_code_format(self, origin: Floats) -> _core.CodeFormat:
        """Return how the core decodes codes to scan them."""
        return _core.CodeFormat(self._layout.codebooks, origin[None])

    def scanned_codes(self, codes: Codes) -> tuple[Bytes, NDArray[np.int64]]:
        """Return codes as they are."""
        return codes.packed, np.zeros(0, dtype=np.int64)

    def split_centroids(self, bits: int) -> tuple[Floats, Floats]:
        """Return the decoded first byte of a list's name, and the contribution of bits of the second byte."""
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
