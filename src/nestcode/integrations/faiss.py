"""FAISS's habits: an index with its methods, and codes to and from its binary indexes.

`index = NestedIndex(d)` takes the place of `index = faiss.IndexFlatL2(d)`, and the code around it stays. It does not
need FAISS; only `to_faiss`, and `from_faiss` of an index, do.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestcode.arrays import Floats, Ids, check_int, check_rows, next_ids
from nestcode.coders import CellCoder, Coder
from nestcode.codes import Codes
from nestcode.errors import InvalidInput, import_extra
from nestcode.index import Index
from nestcode.integrations._exact import ExactRows
from nestcode.integrations._habits import Filter, RangeAnswer, distance_at, merge_params, scores, selected, within
from nestcode.integrations._kept import from_record, to_record
from nestcode.search.scorer import Metric
from nestcode.storage import Record, read_record, write_record


class NestedIndex:
    """An index of nested codes with FAISS's methods.

    >>> X = np.random.default_rng(0).standard_normal((12_000, 16)).astype(np.float32)
    >>> index = NestedIndex(16, width=128)  # in place of faiss.IndexFlatL2(16)
    >>> index.add(X)
    >>> D, I = index.search(X[:3], 5)
    >>> I[:, 0], D.shape, index.ntotal
    (array([0, 1, 2]), (3, 5), 12000)

    Few vectors are kept and compared as they are. When there are `rows_to_fit` of them, a `CellCoder` is fitted to
    all there are, and from then on their codes are kept alone. `train(x)` fits it to other vectors at once.

    `D` are what FAISS gives: squared distances; inner products, the largest first; or, for "cosine", cosines, as its
    users take from inner products of vectors of length 1. Unlike a flat index of FAISS this one takes ids of yours,
    and ids stay what they are when others are removed. An `Index` has more: filters, tuning, files mapped into memory.

    Args:
        d: numbers of a vector.
        width: bits kept of each: 256, or all of the coder's, if not given.
        metric: "l2", "inner" or "cosine"; the coder's, or "l2", if not given.
        coder: a fitted coder to use in place of one fitted here.
        rows_to_fit: how many vectors are enough to fit a coder to.

    """

    is_trained = True  # nothing has to happen before add

    def __init__(
        self,
        d: int,
        width: int | None = None,
        *,
        metric: Metric | None = None,
        coder: Coder | None = None,
        rows_to_fit: int = 10_000,
    ) -> None:
        self.d = check_int(d, "d", least=1)
        self.metric: Metric = ("l2" if coder is None else coder.metric_) if metric is None else metric
        if self.metric not in ("l2", "inner", "cosine"):
            raise InvalidInput(f'metric must be "l2", "inner" or "cosine", got {metric!r}')
        self.rows_to_fit = check_int(rows_to_fit, "rows_to_fit", least=1)
        self.next_id = 0  # of what `add` adds
        self._items: ExactRows | Index = ExactRows(self.d)
        if coder is None:
            self.width = check_int(256 if width is None else width, "width", least=1)
        else:
            if coder.n_features_in_ != self.d:
                raise InvalidInput(
                    f"the coder must take vectors of {self.d} numbers, got one of {coder.n_features_in_}"
                )
            if coder.metric_ == "cosine" and self.metric != "cosine":
                raise InvalidInput(f'the coder compares by angle, so the metric must be "cosine", got {metric!r}')
            self._items = Index(coder, width=width)
            self.width = self._items.width

    @property
    def ntotal(self) -> int:
        """How many items there are."""
        return len(self._items)

    @property
    def index(self) -> Index | None:
        """The index below, with all it can do; None as long as vectors are kept as they are."""
        return self._items if isinstance(self._items, Index) else None

    def train(self, x: ArrayLike) -> None:
        """Fit a coder to vectors, (n, d), now; nothing happens if there is one, as codes depend on it.

        >>> X = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
        >>> index = NestedIndex(8, width=32)
        >>> index.train(X)
        >>> index.add(X[:10])
        >>> index.index
        Index(10 items of 32 bits, CellCoder(width=32, metric='l2', cells=None, seed=0))
        """
        if isinstance(self._items, Index):
            return
        rows = check_rows(x, self.d)
        index = Index(CellCoder(self.width, "cosine" if self.metric == "cosine" else "l2").fit(rows))
        index.add(self._items.rows, ids=self._items.ids)
        self._items = index

    def add(self, x: ArrayLike) -> None:
        """Add vectors, (n, d), under the next ids."""
        rows = check_rows(x, self.d)
        self.add_with_ids(rows, next_ids(self.next_id - 1, len(rows)))

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors, (n, d), under ids that are not in use.

        >>> index = NestedIndex(2)
        >>> index.add_with_ids([[0, 0], [1, 1]], [20, 10])
        >>> index.search([[1, 0.9]], 3)[1]
        array([[10, 20, -1]])
        """
        rows = check_rows(x, self.d)
        if not len(rows):
            return
        if isinstance(self._items, ExactRows):
            ids = self._items.check_new(ids, len(rows))
            if len(self._items) + len(rows) >= self.rows_to_fit:
                self.train(np.concatenate([self._items.rows, rows]))
        self._items.add(rows, ids=ids)
        self.next_id = max(self.next_id, int(np.max(ids)) + 1)

    def search(self, x: ArrayLike, k: int, *, params: Any = None, filter: Filter = None) -> tuple[Floats, Ids]:  # noqa: A002
        """The k nearest of each row of x: distances and ids, (n, k); ids are -1 where there are fewer.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [3, 4], [6, 8]])
        >>> D, I = index.search([[0, 0]], 2)
        >>> D, I
        (array([[ 0., 25.]], dtype=float32), array([[0, 1]]))

        `filter` are the ids that may be found, or a mask by id; `params`, a `faiss.SearchParameters(sel=...)`, says
        it by a selector, which takes longer: it is asked for every id.
        """
        rows, chosen = check_rows(x, self.d), merge_params(params, filter, self._items)
        hits = self._items.search(rows, k, metric=self.metric, filter=chosen, threads=None)
        return scores(hits.distances, hits.ids, self.metric), hits.ids

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None, filter: Filter = None) -> RangeAnswer:  # noqa: A002
        """All items nearer than `thresh` to each row of x, or with larger products: limits, distances and ids.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [3, 4], [6, 8]])
        >>> lims, D, I = index.range_search([[0, 0], [6, 8]], 26)
        >>> lims, I
        (array([0, 2, 4], dtype=uint64), array([0, 1, 2, 1]))

        Those of row i lie from `lims[i]` to `lims[i + 1]`, nearest first. Every item is compared, so that none is
        missed; `index.index.range_search(x, radius, candidates=...)` looks at fewer.
        """
        rows, chosen = check_rows(x, self.d), merge_params(params, filter, self._items)
        radius, count = distance_at(thresh, self.metric), max(self.ntotal, 1)
        hits = self._items.range_search(rows, radius, candidates=count, metric=self.metric, filter=chosen, threads=None)
        return within(hits, thresh, self.metric)

    def search_and_reconstruct(self, x: ArrayLike, k: int, *, params: Any = None) -> tuple[Floats, Ids, Floats]:
        """What `search` gives, and the vectors of the items, (n, k, d): NaN where there are fewer.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [3, 4]])
        >>> index.search_and_reconstruct([[3, 3]], 1)[2]
        array([[[3., 4.]]], dtype=float32)
        """
        distances, ids = self.search(x, k, params=params)
        vectors = np.full((*ids.shape, self.d), np.nan, dtype=np.float32)
        vectors[ids >= 0] = self.reconstruct_batch(ids[ids >= 0])
        return distances, ids, vectors

    def reset(self) -> None:
        """Remove all items; a coder stays."""
        self._items.remove(self._items.ids)
        self.next_id = 0

    def remove_ids(self, ids: Any) -> int:
        """Remove items by ids, or by one of FAISS's selectors, and say how many there were.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 1], [2, 2]])
        >>> index.remove_ids([1, 9]), index.ntotal
        (1, 2)
        """
        gone = selected(ids, self._items.ids)
        self._items.remove(gone)
        return len(gone)

    def reconstruct(self, key: int) -> Floats:
        """The vector of an item, or what its code says it was, (d,).

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 2]])
        >>> index.reconstruct(1)
        array([1., 2.], dtype=float32)
        """
        vector: Floats = self.reconstruct_batch([check_int(key, "key", least=0)])[0]
        return vector

    def reconstruct_batch(self, keys: ArrayLike) -> Floats:
        """The same of several, (n, d)."""
        return self._items.reconstruct(np.atleast_1d(np.asarray(keys)))

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> Floats:
        """The same of the items with `ni` ids from `n0` on, (ni, d): up to the number of all items if not given.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 2], [3, 4]])
        >>> index.reconstruct_n(1)
        array([[1., 2.],
               [3., 4.]], dtype=float32)
        """
        first = check_int(n0, "n0", least=0)
        if ni == -1 and self.next_id != self.ntotal:
            raise InvalidInput(
                f"ids must be 0 to {self.ntotal - 1} for all to be in a row, but some were removed or are your own: "
                "give ni, or the ids to reconstruct_batch"
            )
        count = max(self.ntotal - first, 0) if ni == -1 else check_int(ni, "ni", least=0)
        if count > self.ntotal:
            raise InvalidInput(f"ni must be at most the number of items {self.ntotal}, got {ni}: leave it out for all")
        return self.reconstruct_batch(range(first, first + count))

    def __repr__(self) -> str:
        kept = "vectors" if isinstance(self._items, ExactRows) else f"codes of {self.width} bits"
        return f"NestedIndex({self.ntotal} items of {self.d} numbers, {self.metric}, kept as {kept})"

    def to_record(self) -> Record:
        """Return the index as plain data."""
        return to_record(self)

    @classmethod
    def from_record(cls, record: Record, path: str) -> "NestedIndex":
        """Return the index in a record; errors name `path`."""
        return from_record(cls, record, path)


def write_index(index: NestedIndex, path: str | os.PathLike[str]) -> None:
    """Write an index to one file, whole or not at all.

    >>> import tempfile
    >>> index = NestedIndex(2)
    >>> index.add([[0, 0], [1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_index(index, f"{folder}/two.index")
    ...     read_index(f"{folder}/two.index")
    NestedIndex(2 items of 2 numbers, l2, kept as vectors)
    """
    write_record(path, index.to_record())


def read_index(path: str | os.PathLike[str]) -> NestedIndex:
    """Read an index that `write_index` wrote, and prove that it is what was written.

    >>> read_index("nowhere.index")
    Traceback (most recent call last):
    FileNotFoundError: there is no file nowhere.index: give the path that was saved to
    """
    return NestedIndex.from_record(read_record(path), os.fspath(path))


def from_faiss(source: Any, width: int | None = None) -> Codes:
    """Codes out of packed bytes, (n, bytes) of uint8, as FAISS's binary indexes take them, or out of such an index.

    >>> from_faiss(np.array([[0b10100000], [0b11100000]], dtype=np.uint8), width=3)
    Codes(2 items of 3 bits: 101, 111)

    Args:
        source: an array, or an `IndexBinaryFlat`, in which case its codes are copied.
        width: bits of a code, if the last byte has fewer than 8.

    """
    if hasattr(source, "xb") and hasattr(source, "code_size"):
        faiss = import_extra("faiss", extra="faiss", purpose="from_faiss of an index")
        source = faiss.vector_to_array(source.xb).reshape(source.ntotal, source.code_size)
    packed = np.asarray(source)
    if packed.ndim != 2 or packed.dtype != np.uint8:
        raise InvalidInput(f"expected bytes (n, bytes) of uint8 or an IndexBinaryFlat, got {type(source).__name__}")
    return Codes(packed, 8 * packed.shape[-1] if width is None else width)


def to_faiss(codes: Codes) -> Any:
    """An `IndexBinaryFlat` of FAISS that holds the codes; item i has id i.

    >>> codes = Codes.from_bits(np.eye(16, dtype=bool))
    >>> index = to_faiss(codes)
    >>> D, I = index.search(codes.packed[3:4], 1)
    >>> int(D[0, 0]), int(I[0, 0]), from_faiss(index) == codes
    (0, 3, True)

    `codes.packed` is the array that other binary indexes take. They count in whole bytes: bits beyond the width are 0.
    """
    faiss = import_extra("faiss", extra="faiss", purpose="to_faiss")
    index = faiss.IndexBinaryFlat(8 * codes.packed.shape[1])
    index.add(np.ascontiguousarray(codes.packed))
    return index
