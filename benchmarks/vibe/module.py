"""Nestcode for VIBE, which has this folder as vibe/algorithms/nestcode."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import nestcode as nc

from ..base.module import BaseANN  # type: ignore[import-not-found]

METRICS: dict[str, Literal["l2", "cosine"]] = {"euclidean": "l2", "cosine": "cosine", "normalized": "cosine"}


class Nestcode(BaseANN):  # type: ignore[misc]
    """An index of `CellCoder` codes, with vectors stored as float16 to rerank by, or without (`vectors` "none")."""

    def __init__(self, metric: str, width: int, vectors: Literal["float16", "none"]) -> None:
        self.metric, self.width, self.vectors = METRICS[metric], width, vectors
        self.index: Any = None

    def fit(self, X: NDArray[Any]) -> None:
        """Fit the coder and add all items."""
        coder = nc.CellCoder(self.width, metric=self.metric).fit(X)
        self.index = nc.Index(coder, vectors=None if self.vectors == "none" else self.vectors)
        self.index.add(X)
        self.index.compact()

    def set_query_arguments(self, share: float, k_factor: int) -> None:
        """Set the candidate budget as a share of the items, and how many candidates per neighbor are reranked."""
        self.share, self.k_factor = share, k_factor

    def query(self, vector: NDArray[Any], n: int) -> NDArray[np.int64]:
        """Return the ids of at most n items."""
        candidates = max(n, round(self.share * len(self.index)))
        hits = self.index.search(vector, k=n, candidates=candidates, rerank=self.k_factor * n)
        ids: NDArray[np.int64] = hits.ids
        return ids[ids >= 0]  # missing items have id -1

    def __str__(self) -> str:
        settings = f"width={self.width}, vectors={self.vectors}, share={self.share}, k_factor={self.k_factor}"
        return f"Nestcode({settings})"
