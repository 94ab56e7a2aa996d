"""`NestedIndex`: FAISS's methods over exact vectors while there are few, over codes beside vectors from then on."""

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import Floats, Ids, check_int, check_rows, next_ids
from nestcode.coders import Coder, coder_from_record
from nestcode.coders.base import Metric
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import Index
from nestcode.integrations.faiss.conventions import (
    Filter,
    RangeResult,
    check_params,
    flatten_range,
    radius_of,
    scores,
    select_ids,
)
from nestcode.integrations.faiss.flat import FlatVectors, in_use
from nestcode.integrations.fitting import EFFORT, choose_index, index_of_width, index_with
from nestcode.search.planner import Effort
from nestcode.search.scorer import SearchMetric
from nestcode.search.vectors import VectorFormat, VectorType
from nestcode.storage import Arrays, Record, read_record, write_record

MAX_FEATURES = 2**31 - 1


class NestedIndex:
    """An index of nested codes with FAISS's methods.

    >>> X = np.random.default_rng(0).standard_normal((12_000, 16)).astype(np.float32)
    >>> index = NestedIndex(16, width=128)  # instead of faiss.IndexFlatL2(16)
    >>> index.add(X)
    >>> D, I = index.search(X[:3], 5)
    >>> I[:, 0], D.shape, index.ntotal
    (array([0, 1, 2]), (3, 5), 12000)

    The first vectors are all compared. Once there are `rows_to_fit` of them, trial searches choose the coder, its width
    and the effort that find 99 % of the ten nearest, as `Index.build` does (without graphs), and codes choose the
    vectors to compare. If comparing all vectors is as fast, the choice is repeated at twice the size. `train(x)`
    chooses by other vectors at once. As the index grows, searches compare the same share of its items;
    `index.index.health()` says when it has outgrown its coder.

    `D` follows FAISS: squared distances for "l2", inner products for "inner" and cosines for "cosine", the largest
    first. Unlike a flat index of FAISS this one takes your own ids, and ids do not shift when items are removed. The
    `Index` below it (`index.index`) does more: tuning, memory-mapped files, prefixes.

    Args:
        d: features of a vector.
        width: bits of a code, to fit a `CellCoder` without trials. By default trials choose, unless a coder is given.
        metric: "l2", "inner" or "cosine"; by default the coder's, or "l2".
        coder: a fitted coder to use instead of fitting one.
        rows_to_fit: the number of vectors at which a coder is chosen.
        vectors: how vectors are stored once there are codes: "float32", "float16", "int8", or None to store codes only,
            which saves most of the memory and finds fewer of the nearest.

    """

    KIND, VERSION = "NestedIndex", 3  # of the file
    is_trained = True  # add works at any time

    def __init__(
        self,
        d: int,
        width: int | None = None,
        *,
        metric: SearchMetric | None = None,
        coder: Coder | None = None,
        rows_to_fit: int = 10_000,
        vectors: VectorType | None = "float32",
    ) -> None:
        self.d = check_int(d, "d", least=1, most=MAX_FEATURES)
        self.metric: SearchMetric = ("l2" if coder is None else coder.metric_) if metric is None else metric
        if self.metric not in ("l2", "inner", "cosine"):
            raise InvalidInput(f'metric must be "l2", "inner" or "cosine", got {metric!r}')
        self.rows_to_fit = check_int(rows_to_fit, "rows_to_fit", least=1)
        self.vectors = None if vectors is None else VectorFormat(vectors, self.d).dtype
        self.next_id = 0  # the first id that `add` assigns
        self.width: int | None
        self._next_choice = self.rows_to_fit  # vectors at which a coder is chosen
        self._items: FlatVectors | Index = FlatVectors(self.d)
        if coder is None:
            self.width = None if width is None else check_int(width, "width", least=1)
        else:
            if coder.n_features_in_ != self.d:
                raise InvalidInput(
                    f"the coder must have d = {self.d} features, got {coder.n_features_in_}: "
                    f"create NestedIndex({coder.n_features_in_}, coder=coder)"
                )
            if coder.metric_ == "cosine" and self.metric != "cosine":
                raise InvalidInput(
                    f'metric must be "cosine" for a coder fitted with metric="cosine", got {metric!r}: leave it out'
                )
            self._items = index_with(coder, width, vectors)
            self.width = self._items.width

    @property
    def ntotal(self) -> int:
        """The number of items."""
        return len(self._items)

    @property
    def index(self) -> Index | None:
        """The `Index` of codes; None while there are too few vectors to fit a coder."""
        return self._items if isinstance(self._items, Index) else None

    @property
    def nprobe(self) -> int:
        """Not there: an attribute that is set in vain would pass for a setting."""
        raise AttributeError("a NestedIndex has no nprobe: see index.index.effort")

    @nprobe.setter
    def nprobe(self, value: int) -> None:
        raise InvalidInput(
            f"a NestedIndex has no nprobe, got {value!r}: set index.index.effort, or call index.index.tune"
        )

    def train(self, x: ArrayLike) -> None:
        """Choose a coder by vectors, (n, d), and fit it, unless there is one: stored codes depend on it.

        >>> X = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
        >>> index = NestedIndex(8, width=32)
        >>> index.train(X)
        >>> index.add(X[:10])
        >>> index.index
        Index(10 items of 32 bits, CellCoder(width=32, metric='l2', cells=None, seed=0), vectors='float32')
        """
        if isinstance(self._items, FlatVectors):
            rows = self._rows(x)
            index = self._choose(rows)
            self._move(index_of_width(rows, None, self._fitted_metric, self.vectors) if index is None else index)

    @property
    def _fitted_metric(self) -> Metric:
        return "cosine" if self.metric == "cosine" else "l2"

    def _choose(self, rows: NDArray[Any]) -> Index | None:
        """Return an empty index that suits the rows, or None where it is as fast to compare them all."""
        if self.width is None and self.metric != "inner":  # trials have no inner products
            return choose_index(rows, self._fitted_metric, self.vectors)
        return index_of_width(rows, self.width, self._fitted_metric, self.vectors)

    def _move(self, index: Index) -> None:
        """Go on with an index of codes."""
        index.add(np.asarray(self._items.vectors), ids=self._items.ids)
        self._items, self.width = index, index.width

    def add(self, x: ArrayLike) -> None:
        """Add vectors, (n, d), under the next ids."""
        rows = self._rows(x)
        self.add_with_ids(rows, next_ids(self.next_id - 1, len(rows)))

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors, (n, d), under ids that are not in use.

        >>> index = NestedIndex(2)
        >>> index.add_with_ids([[0, 0], [1, 1]], [20, 10])
        >>> index.search([[1, 0.9]], 3)[1]
        array([[10, 20, -1]])
        """
        rows = self._rows(x)
        if not len(rows):
            return
        if isinstance(self._items, FlatVectors):
            ids = self._items.check_new(ids, len(rows))
            count = len(self._items) + len(rows)
            if count >= self._next_choice:
                index = self._choose(np.concatenate([self._items.vectors, rows]))
                self._next_choice = 2 * count
                if index is not None:
                    self._move(index)
        try:
            self._items.add(rows, ids=ids)
        except InvalidInput:
            used = np.intersect1d(ids, self._items.ids)
            if not used.size:
                raise
            raise in_use(used[0]) from None
        self.next_id = max(self.next_id, int(np.max(ids)) + 1)

    def search(
        self,
        x: ArrayLike,
        k: int,
        *,
        params: Any = None,
        filter: Filter = None,  # noqa: A002
        **others: Any,
    ) -> tuple[Floats, Ids]:
        """Return scores and ids of the k nearest items of each row of x, (n, k); missing items have id -1.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [3, 4], [6, 8]])
        >>> D, I = index.search([[0, 0]], 2)
        >>> D, I
        (array([[ 0., 25.]], dtype=float32), array([[0, 1]]))

        `filter` restricts the search to these ids, or to a mask by id. `params`, a `faiss.SearchParameters(sel=...)`,
        does so by a selector, which is slower: FAISS tests every id.
        """
        if others:
            raise InvalidInput(
                f"search takes params and filter, got {', '.join(others)}: instead of nprobe or efSearch, set "
                "index.index.effort, or call index.index.tune"
            )
        rows, allowed = self._rows(x), self._allowed(params, filter)
        hits = self._items.search(rows, k, metric=self.metric, filter=allowed, threads=None)
        return scores(hits.distances, hits.ids, self.metric), hits.ids

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None, filter: Filter = None) -> RangeResult:  # noqa: A002
        """Return limits, scores and ids of all items nearer than `thresh` to each row of x, or more similar.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [3, 4], [6, 8]])
        >>> lims, D, I = index.range_search([[0, 0], [6, 8]], 26)
        >>> lims, I
        (array([0, 2, 4], dtype=uint64), array([0, 1, 2, 1]))

        The hits of row i are `D[lims[i]:lims[i + 1]]`, nearest first. The search is exhaustive, so it misses none;
        `index.index.range_search(x, radius, candidates=...)` scores fewer.
        """
        rows, allowed = self._rows(x), self._allowed(params, filter)
        radius, count = radius_of(thresh, self.metric), max(self.ntotal, 1)
        hits = self._items.range_search(
            rows, radius, candidates=count, metric=self.metric, filter=allowed, threads=None
        )
        return flatten_range(hits, thresh, self.metric)

    def search_and_reconstruct(self, x: ArrayLike, k: int, *, params: Any = None) -> tuple[Floats, Ids, Floats]:
        """Return what `search` returns, and the items' vectors, (n, k, d); missing items are NaN.

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
        """Remove all items; the coder stays."""
        self._items.remove(self._items.ids)
        self.next_id = 0

    def remove_ids(self, ids: Any) -> int:
        """Remove items by ids, or by a selector of FAISS, and return how many were removed.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 1], [2, 2]])
        >>> index.remove_ids([1, 9]), index.ntotal
        (1, 2)
        """
        removed = select_ids(ids, self._items.ids)
        self._items.remove(removed)
        return len(removed)

    def reconstruct(self, key: int) -> Floats:
        """Return the vector of an item, or its decoded code, (d,).

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 2]])
        >>> index.reconstruct(1)
        array([1., 2.], dtype=float32)
        """
        vector: Floats = self.reconstruct_batch([check_int(key, "key", least=0)])[0]
        return vector

    def reconstruct_batch(self, keys: ArrayLike) -> Floats:
        """Return the vectors of several items, or their decoded codes, (n, d)."""
        ids, index = np.atleast_1d(np.asarray(keys)), self.index
        return self._items.reconstruct(ids) if index is None or index.vector_type is None else index.vectors(ids)

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> Floats:
        """Return the vectors with the `ni` ids from `n0` on, (ni, d); by default up to the last.

        >>> index = NestedIndex(2)
        >>> index.add([[0, 0], [1, 2], [3, 4]])
        >>> index.reconstruct_n(1)
        array([[1., 2.],
               [3., 4.]], dtype=float32)
        """
        first, ni = check_int(n0, "n0", least=0), check_int(ni, "ni", least=-1)
        if ni == -1 and self.next_id != self.ntotal:
            raise InvalidInput(
                f"ids must be consecutive from 0 to {self.ntotal - 1}, but some were removed or are your own: "
                "give ni, or the ids to reconstruct_batch"
            )
        count = max(self.ntotal - first, 0) if ni == -1 else ni
        if count > self.ntotal:
            raise InvalidInput(f"ni must be at most the number of items {self.ntotal}, got {ni}: leave it out for all")
        return self.reconstruct_batch(range(first, first + count))

    def _rows(self, x: ArrayLike) -> NDArray[Any]:
        rows = check_rows(x)
        if rows.shape[1] != self.d:
            raise InvalidInput(
                f"vectors must have the {self.d} features of the index, got {rows.shape[1]}: embed all by one model, "
                "or make another index"
            )
        return rows

    def _allowed(self, params: Any, filter: Filter) -> Filter:  # noqa: A002
        """Return the filter of a search, given ours or FAISS's search parameters."""
        if params is None:
            return filter
        check_params(params)
        if params.sel is None:
            return filter
        if filter is not None:
            raise InvalidInput(
                "params and filter must not both restrict the ids, got a selector and a filter: give one"
            )
        return select_ids(params.sel, self._items.ids)

    def __repr__(self) -> str:
        codes = f"codes of {self.width} bits{'' if self.vectors is None else f' and {self.vectors} vectors'}"
        stored = "vectors" if isinstance(self._items, FlatVectors) else codes
        return f"NestedIndex({self.ntotal} items of {self.d} features, {self.metric}, stored as {stored})"

    def __reduce__(self) -> Any:
        raise InvalidInput(
            "a NestedIndex is not copied or pickled: write_index(index, path), and read_index(path) where it is wanted"
        )

    def to_record(self) -> Record:
        """Return the index as a record: settings, ids, and vectors or codes with their coder."""
        settings: dict[str, Any] = {
            "d": self.d,
            "width": self.width,
            "metric": self.metric,
            "rows_to_fit": self.rows_to_fit,
            "next": self.next_id,
            "vectors": self.vectors,
        }
        items = self._items
        if isinstance(items, FlatVectors):
            return Record(self.KIND, self.VERSION, settings, {"ids": items.ids, "rows": items.vectors})
        assert items.coder is not None
        coder, ids = items.coder.to_record(), items.ids
        settings["effort"] = None if items.effort is None else vars(items.effort)
        settings["coder"] = {"kind": coder.kind, "version": coder.version, "settings": coder.settings}
        arrays = {f"coder.{name}": array for name, array in coder.arrays.items()}
        arrays |= {"ids": ids, "codes": items.codes(ids).packed}
        if self.vectors is not None:
            arrays |= VectorFormat(self.vectors, self.d).round(items.vectors(ids)).arrays()
        return Record(self.KIND, self.VERSION, settings, arrays)

    @classmethod
    def from_record(cls, record: Record, path: str) -> Self:
        """Return the index in a record; errors name `path`, where the record came from."""
        if record.kind != cls.KIND or record.version > cls.VERSION:
            raise DamagedFile(
                f"{path} holds a {record.kind} of version {record.version}, not a {cls.KIND} of version {cls.VERSION}: "
                "give a file that write_index wrote, or upgrade nestcode"
            )
        try:
            return cls._read(dict(record.settings), record.arrays, path)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{path} is not a valid {cls.KIND}: {error}") from error

    @classmethod
    def _read(cls, settings: dict[str, Any], arrays: Arrays, path: str) -> Self:
        next_id, stored = check_int(settings.pop("next"), "next", least=0), settings.pop("coder", None)
        if stored is None:
            index = cls(**settings)
            index._items.add(arrays["rows"], ids=arrays["ids"])
        else:
            own = {name.removeprefix("coder."): array for name, array in arrays.items() if name.startswith("coder.")}
            # Files of version 1 hold codes only, and those of version 2 no effort.
            settings = {"vectors": None, "effort": vars(EFFORT), **settings}
            effort = settings.pop("effort")
            index = cls(**settings, coder=coder_from_record(Record(**stored, arrays=own), path))
            assert index.index is not None
            index.index.effort = None if effort is None else Effort(**effort)
            vectors = arrays.get("vectors")
            if vectors is not None and "scales" in arrays:
                vectors = vectors * arrays["scales"][:, None]
            index.index.add(Codes(arrays["codes"], index.index.width), ids=arrays["ids"], vectors=vectors)
        index.next_id = next_id
        return index


def write_index(index: NestedIndex, path: str | os.PathLike[str]) -> None:
    """Write an index to one file, atomically.

    >>> import tempfile
    >>> index = NestedIndex(2)
    >>> index.add([[0, 0], [1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_index(index, f"{folder}/two.index")
    ...     read_index(f"{folder}/two.index")
    NestedIndex(2 items of 2 features, l2, stored as vectors)
    """
    write_record(path, index.to_record())


def read_index(path: str | os.PathLike[str]) -> NestedIndex:
    """Read an index that `write_index` wrote, and verify its checksum.

    >>> read_index("nowhere.index")
    Traceback (most recent call last):
    FileNotFoundError: there is no file nowhere.index: give the path that was saved to
    """
    return NestedIndex.from_record(read_record(path), os.fspath(path))
