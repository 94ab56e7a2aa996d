"""What one part of a sharded index answers to a cluster: plain arrays, of the snapshot that it was opened with."""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nestcode.arrays import Ids
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.index import Index
from nestcode.index.manifest import MANIFEST
from nestcode.search.hits import Hits
from nestcode.search.request import MAX_MISSING
from nestcode.search.vectors import VectorType


class Facts(NamedTuple):
    """What a part holds."""

    path: str
    commit: str  # a hash of its manifest
    items: int
    width: int
    coder: str | None  # the fingerprint
    vectors: VectorType | None
    columns: dict[str, str]
    bounds: Codes  # the least and the greatest code; none where it is empty


class Work(NamedTuple):
    """The plan of a search in a part, in figures that add up."""

    compared: int
    reranked: int
    ns: float
    ns_per_compared: float


class Part:
    """One part, opened mapped.

    Args:
        path: its folder.
        memory: as for `Index.open`.
        name: what the part is called, if not by its folder.

    """

    def __init__(self, path: str | os.PathLike[str], memory: str | None = None, name: str | None = None) -> None:
        self.path, self._folder = os.fspath(path) if name is None else name, os.fspath(path)
        before = commit_of(self._folder)
        self._index = Index.open(self._folder, memory=memory)
        self.commit = commit_of(self._folder)
        if self.commit != before:  # a writer came between
            self._index.refresh()
            self.commit = commit_of(self._folder)
        bounds, coder = self._index.bounds(), self._index.coder
        if len(bounds):  # prepares what the first request would wait for
            self._index.search(bounds[:1] if coder is None else coder.decode(bounds[:1]), k=1)

    def facts(self) -> Facts:
        """Return what the part holds."""
        index = self._index
        coder = None if index.coder is None else index.coder.fingerprint
        return Facts(
            self.path, self.commit, len(index), index.width, coder, index.vector_type, index.columns, index.bounds()
        )

    def latest(self) -> str:
        """Return the hash of the last commit in the folder, which may be another than was opened."""
        return commit_of(self._folder)

    def coder(self) -> Coder | None:
        """Return the coder of the index."""
        return self._index.coder

    def search(self, queries: Any, k: int, options: dict[str, Any]) -> Hits:
        """Return the k nearest items of the part to each query, within the limits of `Index.search`."""
        return self._index.search(queries, min(k, max(len(self._index), MAX_MISSING)), **options)

    def range_search(self, queries: Any, radius: float, options: dict[str, Any]) -> list[Hits]:
        """Return the items of the part within a radius of each query."""
        return [*self._index.range_search(queries, radius, **options)]

    def explain(self, queries: Any, k: int, options: dict[str, Any]) -> Work:
        """Return the work that a search expects to do."""
        plan = self._index.explain(queries, min(k, max(len(self._index), MAX_MISSING)), **options)
        return Work(plan.compared, plan.reranked, plan.ns[plan.operator], plan.ns_per_compared)

    def matching(self, wanted: Any) -> Ids:
        """Return the ids of the items that a filter allows."""
        return self._index.ids if wanted is None else self._index.matching(wanted)

    def neighborhoods(self, queries: Codes, size: int) -> list[tuple[int, Ids]]:
        """Return the length and the ids of each query's neighborhood among the items of the part."""
        hoods = self._index.neighborhood(queries, size=size)
        return [(hood.length, hood.ids) for hood in hoods]

    def counts(self, queries: Codes) -> Any:
        """Return how many items share the first bits of each query, (n, width + 1) by the number of bits."""
        counts = np.zeros((len(queries), queries.width + 1), dtype=np.int64)
        for row, query in enumerate(queries):
            nested = self._index.nested(query)
            counts[row, : len(nested)] = nested.count
        return counts

    def members(self, queries: Codes, lengths: list[int]) -> list[Ids]:
        """Return the ids of the items that share the first `length` bits of each query."""
        found = []
        for query, length in zip(queries, lengths, strict=True):
            nested = self._index.nested(query)
            found.append(nested[length].ids if length < len(nested) else np.empty(0, dtype=np.int64))
        return found

    def look_up(self, what: str, ids: Ids, *arguments: Any) -> tuple[Any, Any]:
        """Return which ids are of items in the part, as positions, and their codes, vectors or attributes."""
        own = np.flatnonzero(self._index.contains(ids))
        return own, getattr(self._index, what)(ids[own], *arguments)


def commit_of(folder: str) -> str:
    """Return a hash of the manifest of an index: another commit has another."""
    path = Path(folder) / MANIFEST
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()
