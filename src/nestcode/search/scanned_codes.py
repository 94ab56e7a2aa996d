"""Codes as exhaustive search reads them (`cpp/nestcode/code_scan.hpp`).

They are prepared once for each run: with bits regrouped by direction, and with the norms of what they decode to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nestcode import _core
from nestcode.arrays import PIECE, Bytes, Floats, squared_norms
from nestcode.coders.base import CodebookLayout, ScalarLayout
from nestcode.codes import Codes
from nestcode.fork import lazy_property
from nestcode.search.adc import group_bits, regroup
from nestcode.search.decoded import ProjectedScorer

NO_CENTROIDS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ScannedCodes:
    """Codes of a run."""

    codes: Bytes  # (items, bytes): as the core decodes them
    centroids: NDArray[np.int64]  # (items,): of the coarse quantizer; empty without one
    squares: Floats  # (items,): squared norms of the coefficients
    norms: Floats  # (items,): norms of what codes decode to in features, the mean included

    def __len__(self) -> int:
        return len(self.squares)

    @lazy_property
    def core(self) -> _core.ScannedCodes:
        """The codes as the core reads them."""
        return _core.ScannedCodes(self.codes, self.centroids, self.squares, self.norms)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.codes.nbytes + self.centroids.nbytes + self.squares.nbytes + self.norms.nbytes


class ScannedFormat:
    """How the core decodes the codes of a scorer.

    Args:
        scorer: whose codes they are.
        layout: of bit planes, which are regrouped to bytes, or of codebooks.

    """

    def __init__(self, scorer: ProjectedScorer, layout: ScalarLayout | CodebookLayout) -> None:
        self._scorer, self._layout = scorer, layout
        self._projection = scorer.row_projection(scorer.coder.metric_, None, whole=True, scaled=False)
        if isinstance(layout, CodebookLayout):
            self._core = _core.ScannedFormat(layout.codebooks)
            return
        self._groups = group_bits(layout.planes.allocation, layout.centroids.shape[1], layout.centroid_bits)
        groups, centroids = self._groups.directions, layout.centroids[: 0 if layout.centroid_bits == 0 else None]
        directions, depths = np.zeros((2, len(groups), max(map(len, groups), default=0)), dtype=np.int32)
        for g, group in enumerate(groups):
            directions[g, : len(group)], depths[g, : len(group)] = group, self._groups.depths[list(group)]
        self._core = _core.ScannedFormat(
            directions, depths, layout.planes.levels, np.ascontiguousarray(centroids, dtype=np.float32)
        )

    def prepare(self, codes: Codes) -> ScannedCodes:
        """Return codes with their norms; this decodes all of them once."""
        scorer, squares, norms = self._scorer, np.empty(len(codes), np.float32), np.empty(len(codes), np.float32)
        for first in range(0, len(codes), PIECE):
            some = codes[first : first + PIECE]
            decoded = scorer.coder.coefficients(some).astype(np.float64)
            own = squares[first : first + PIECE] = np.einsum("nd,nd->n", decoded, decoded)
            if scorer.coder.metric_ == "cosine":
                full = np.maximum(own + 2 * decoded @ scorer.mean + scorer.mean_square, 0)
            else:  # around a mean far from 0, too few digits of the norm would be left
                full = squared_norms(scorer.coder.decode(some))
            norms[first : first + PIECE] = np.sqrt(full)
        if isinstance(self._layout, CodebookLayout):
            return ScannedCodes(codes.packed, NO_CENTROIDS, squares, norms)
        bits = self._layout.centroid_bits
        centroids = codes.leading_bits(bits) if bits else NO_CENTROIDS
        return ScannedCodes(regroup(codes.packed, self._groups), centroids, squares, norms)

    def scan(self, runs: Sequence[ScannedCodes]) -> _core.CodeScan:
        """Return what scans the codes of runs."""
        return _core.CodeScan(self._projection, self._core, [run.core for run in runs])


def scanned_format(scorer: object, width: int) -> ScannedFormat | None:
    """Return how the core decodes a scorer's codes of `width` bits, or None where only their coder can."""
    layout = scorer.coder.layout(width) if isinstance(scorer, ProjectedScorer) else None
    if isinstance(layout, ScalarLayout) or (isinstance(layout, CodebookLayout) and layout.exact):
        assert isinstance(scorer, ProjectedScorer)
        return ScannedFormat(scorer, layout)
    return None
