"""The candidates that trials compare: a structure, a coder, the width of its codes, and the type of stored vectors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from nestcode.coders import CellCoder, Coder, LinearCoder, ResidualCoder
from nestcode.coders.base import Metric
from nestcode.search.graph import BITS, degree_beside
from nestcode.search.vectors import VectorFormat, VectorType

if TYPE_CHECKING:
    from nestcode.index.index import Index

Structure = Literal["scan", "lists", "graph"]
Kind = type[CellCoder] | type[LinearCoder] | type[ResidualCoder]
MAX_BITS_PER_FEATURE = 8  # bit planes use no more
SCAN_BITS = 64  # of codes that no search reads while it scans vectors
LIST_BITS = (128, 512)  # of codes beside vectors: the wider the codes, the fewer vectors are reranked
GRAPH_BITS = (BITS // 2, BITS)
CODE_BITS: dict[Kind, tuple[int, ...]] = {  # without vectors the width decides which recall is reached
    LinearCoder: (128, 256, 512, 1024),
    CellCoder: (128, 256, 512),
    ResidualCoder: (64, 128, 256),  # the highest recall of few bits, and by far the longest to fit
}
KINDS: tuple[Kind, ...] = (CellCoder, LinearCoder, ResidualCoder)  # the quickest to fit first
ID_BYTES = 4


@dataclass(frozen=True)
class Candidate:
    """An index that may suit the data.

    >>> print(Candidate("graph", LinearCoder, 320, "float16"))
    graph, LinearCoder(320), float16 vectors
    """

    structure: Structure
    kind: Kind
    width: int
    vectors: VectorType | None

    def coder(self, metric: Metric, seed: int) -> CellCoder | LinearCoder | ResidualCoder:
        """Return its coder, to be fitted."""
        return self.kind(self.width, metric, seed=seed)

    def index(self, coder: Coder) -> "Index":
        """Return an empty index of it; the coder may be wider."""
        from nestcode.index.index import Index

        return Index(coder, width=self.width, vectors=self.vectors, graph=self.structure == "graph")

    def least_bytes(self, features: int) -> int:
        """Return the least bytes of an item in such an index: its id, code, vector and record in a graph."""
        stored = 0 if self.vectors is None else VectorFormat(self.vectors, features).row_bytes
        degree = degree_beside(self.vectors) if self.structure == "graph" else 0
        graph = degree * (4 + min(self.width, BITS) // 8)
        return ID_BYTES + -(-self.width // 8) + stored + graph

    def __str__(self) -> str:
        vectors = "no vectors" if self.vectors is None else f"{self.vectors} vectors"
        return f"{self.structure}, {self.kind.__name__}({self.width}), {vectors}"


def list_candidates(features: int, precise: VectorType, max_bytes: float | None, *, small: bool) -> list[Candidate]:
    """Return the candidates that fit the bound, the quickest to build first.

    Without a bound these are one of each structure: lists of a `CellCoder` and a graph of the widest codes, which
    are searched fastest, and a scan.

    Args:
        features: of the vectors.
        precise: the vector type to store without a bound; its rounding hardly changes which items are the nearest.
        max_bytes: the most bytes of an item; None is no bound.
        small: whether to include candidates that take less memory even without a bound.

    """
    kept: list[VectorType] = [precise, *(one for one in ("float16", "int8") if _bytes(one) < _bytes(precise))]
    if max_bytes is None and not small:
        kept = [precise]
    found = [Candidate("scan", LinearCoder, _bits(SCAN_BITS, features), one) for one in kept]
    if max_bytes is None and not small:
        found += [Candidate("lists", CellCoder, _bits(LIST_BITS[-1], features), precise)]
        found += [Candidate("graph", LinearCoder, _bits(GRAPH_BITS[-1], features), precise)]
    else:
        found += [Candidate("lists", CellCoder, _bits(bits, features), one) for one in kept for bits in LIST_BITS]
        found += [Candidate("graph", LinearCoder, _bits(bits, features), one) for one in kept for bits in GRAPH_BITS]
        found += [
            Candidate("lists", kind, _bits(bits, features), None)
            for kind, widths in CODE_BITS.items()
            for bits in widths
        ]
    distinct = sorted(dict.fromkeys(found), key=lambda one: KINDS.index(one.kind))
    return [one for one in distinct if max_bytes is None or one.least_bytes(features) <= max_bytes]


def _bits(width: int, features: int) -> int:
    return min(width, MAX_BITS_PER_FEATURE * features)


def _bytes(vectors: VectorType) -> int:
    return np.dtype(vectors).itemsize
