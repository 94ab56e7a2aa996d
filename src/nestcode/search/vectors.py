"""The vectors of items, and exact distances to them: stored by an index beside its codes, or given by the caller.

    VectorFormat   how an index stores vectors: float32, float16, or int8 with one scale per vector
    StoredVectors  the vectors of one sorted run, by position; mapped from files, or in memory
    RunVectors     the vectors of all runs of a snapshot
    GivenVectors   the vectors that the caller of a search passes, by id

Stored vectors are compared where they lie (`cpp/nestcode/vector_rows.hpp`): a search reads only the rows it reranks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode import _core
from nestcode.arrays import CORES, LARGEST_SQUARE, PIECE, Floats, Ids, as_array, as_floats, check_rows, squared_norms
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.fork import lazy_property
from nestcode.search.scorer import SearchMetric
from nestcode.storage import MappedArrays, page_faults

VectorType = Literal["float32", "float16", "int8"]
VectorsById = ArrayLike | Mapping[int, ArrayLike] | Callable[[Ids], ArrayLike]
NO_SCALES = np.zeros(0, dtype=np.float32)
LARGEST_INT8 = 127
BESIDE_CODES = ("vectors", "scales", "attributes")  # names on disk of what scans of codes do not read
CORE_TYPES = tuple(map(np.dtype, get_args(VectorType)))  # that the core reads, in the native byte order


@dataclass(frozen=True)
class VectorFormat:
    """How vectors are stored.

    >>> VectorFormat("int8", features=2).round(np.array([[1.0, -0.5]])).rows
    array([[127, -64]], dtype=int8)
    """

    dtype: VectorType
    features: int

    def __post_init__(self) -> None:
        if self.dtype not in get_args(VectorType):
            raise InvalidInput(f'vectors must be "float32", "float16", "int8" or None, got {self.dtype!r}')

    @property
    def row_bytes(self) -> int:
        """Bytes of a vector."""
        return self.features * np.dtype(self.dtype).itemsize + 4 * (self.dtype == "int8")

    def empty(self, count: int) -> "StoredVectors":
        """Return room for `count` vectors."""
        scales = np.empty(count if self.dtype == "int8" else 0, dtype=np.float32)
        return StoredVectors(np.empty((count, self.features), dtype=self.dtype), scales)

    def round(self, X: ArrayLike) -> "StoredVectors":
        """Return vectors, (n, features), rounded to nearest."""
        rows = as_floats(check_rows(X, self.features))
        square = float(squared_norms(rows).max(initial=0))
        if square >= LARGEST_SQUARE:
            raise InvalidInput(
                f"the squared norm of a stored vector must be below {LARGEST_SQUARE:g}, so that distances fit float32, "
                f"got {square:.2g}: rescale the data"
            )
        stored = self.empty(len(rows))
        for first in range(0, len(rows), PIECE):
            stored.write(first, self._round(rows[first : first + PIECE]))
        return stored

    def _round(self, rows: Floats) -> "StoredVectors":
        if self.dtype == "int8":
            scales = (np.abs(rows).max(axis=1) / LARGEST_INT8).astype(np.float32)
            steps = rows / np.where(scales > 0, scales, 1)[:, None]
            return StoredVectors(np.rint(steps).clip(-LARGEST_INT8, LARGEST_INT8).astype(np.int8), scales)
        with np.errstate(over="ignore"):
            rounded = rows.astype(self.dtype)
        if not np.isfinite(rounded).all():
            raise InvalidInput(
                f"vectors stored as float16 must be within 65504, got {np.abs(rows).max():.6g}: rescale them, or store "
                'them as vectors="float32"'
            )
        return StoredVectors(rounded, NO_SCALES)


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Vectors by position, as an index stores them."""

    rows: NDArray[Any]  # (n, features): float32, float16 or int8
    scales: Floats  # (n,): what the integers of a row are multiplied by; empty for floats
    guard: _core.ChecksumGuard | None = None  # of mapped rows
    scales_guard: _core.ChecksumGuard | None = None
    read_ahead: bool = False  # rows stay in files: read those of a search in one batch

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, positions: NDArray[np.integer[Any]] | slice) -> "StoredVectors":
        return StoredVectors(self.rows[positions], self.scales[positions] if len(self.scales) else self.scales)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.rows.nbytes + self.scales.nbytes

    @property
    def format(self) -> VectorFormat:
        """How they are stored."""
        return VectorFormat(self.rows.dtype.name, self.rows.shape[1])  # type: ignore[arg-type]

    def floats(self) -> Floats:
        """Return the vectors as float32, (n, features)."""
        rows = np.empty(self.rows.shape, dtype=np.float32)
        _core.VectorRuns([self.core]).expand(np.arange(len(rows)), rows, CORES)
        return rows

    @lazy_property
    def core(self) -> _core.VectorRows:
        """The vectors as the core reads them."""
        return _core.VectorRows(self.rows, self.scales, self.guard, self.scales_guard)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names on disk."""
        return {"vectors": self.rows, **({"scales": self.scales} if self.rows.dtype == np.int8 else {})}

    def concat(self, other: "StoredVectors") -> "StoredVectors":
        """Return these vectors followed by others of the same format."""
        return StoredVectors(np.concatenate([self.rows, other.rows]), np.concatenate([self.scales, other.scales]))

    def write(self, first: int, other: "StoredVectors") -> None:
        """Copy vectors of the same format to the positions from `first` on."""
        self.rows[first : first + len(other)] = other.rows
        if len(other.scales):
            self.scales[first : first + len(other)] = other.scales

    @classmethod
    def gather(cls, runs: Sequence["StoredVectors"], sources: Ids) -> Self:
        """Return vectors by their positions in all runs together."""
        rows = np.empty((len(sources), runs[0].rows.shape[1]), dtype=runs[0].rows.dtype)
        scales = np.empty(len(sources) if len(runs[0].scales) else 0, dtype=np.float32)
        start = 0
        for run in runs:
            mine = np.flatnonzero((sources >= start) & (sources < start + len(run)))
            rows[mine] = run.rows[sources[mine] - start]
            if len(scales):
                scales[mine] = run.scales[sources[mine] - start]
            start += len(run)
        return cls(rows, scales)


class Vectors(ABC):
    """Vectors of items by key: by id, or by position."""

    @abstractmethod
    def rows(self, keys: Ids) -> NDArray[Any]:
        """Return the vectors of these keys, (keys, features)."""

    @abstractmethod
    def direct(self, keys: Ids) -> _core.VectorRuns | None:
        """Return all vectors as the core reads them by key, or None where these keys have to be fetched."""

    @abstractmethod
    def check(self) -> None:
        """Raise if a checksum failed in what was read so far."""

    def rerank(self, queries: NDArray[np.floating[Any]], keys: Ids, metric: SearchMetric, threads: int) -> Floats:
        """Return distances from each query to the vectors of its keys, (queries, keys); infinite for keys of -1."""
        vectors, compared = self.direct(keys), keys
        if vectors is None:
            kept, keys = np.unique(keys[keys >= 0]), keys.copy()
            keys[keys >= 0] = np.searchsorted(kept, keys[keys >= 0])
            rows = self.rows(kept)
            fine = np.result_type(rows.dtype, np.float32) != np.float32
            if metric == "l2" and fine:  # far from 0, float32 would round differences away
                center = median(queries)
                queries, rows = queries - center, rows - center
            rows = np.ascontiguousarray(rows, dtype=np.float32)
            vectors = _core.VectorRuns(rows)
        out = np.empty(keys.shape, dtype=np.float32)
        own = np.ascontiguousarray(queries, dtype=np.float32)
        vectors.rerank(own, np.ascontiguousarray(keys), metric, out, threads)
        self.check()
        if np.isnan(out).any():
            if np.isfinite(self.rows(np.unique(compared[np.isnan(out)]))).all():
                raise InvalidInput(
                    "inner products must be within float32, but some overflow: rescale the data and queries"
                )
            raise InvalidInput("vectors must be finite, but some compared vectors hold NaN: drop or impute these rows")
        return out


class RunVectors(Vectors):
    """Vectors of the runs of an index, by their positions in all runs together.

    Args:
        stored: the vectors of each run.
        mapped: the mapped arrays, if any.

    """

    def __init__(self, stored: Sequence[StoredVectors], mapped: Sequence[MappedArrays] = ()) -> None:
        self._stored, self._mapped = stored, mapped
        self.core = _core.VectorRuns([stored.core for stored in self._stored])
        self.features = stored[0].rows.shape[1] if stored else 0
        self.in_files = any(stored.read_ahead for stored in self._stored)
        self.integers = any(len(stored.scales) > 0 for stored in self._stored)
        halves = bool(stored) and all(stored.rows.dtype == np.float16 for stored in self._stored)
        self.scanned_type = np.dtype(np.float16 if halves else np.float32)  # that a scan reads fastest
        self._ahead = ReadAhead()

    def rerank(self, queries: NDArray[np.floating[Any]], keys: Ids, metric: SearchMetric, threads: int) -> Floats:
        """Return distances from each query to the vectors at its positions; infinite for positions of -1."""
        if not self.in_files:
            return super().rerank(queries, keys, metric, threads)
        with self._ahead.reading(lambda: self._request(np.unique(keys[keys >= 0]))):
            return super().rerank(queries, keys, metric, threads)

    def _request(self, positions: Ids) -> bool:
        """Ask the system for vectors in files, and return whether some were not in memory."""
        start, missing = 0, False
        for stored in self._stored:
            own = positions[(positions >= start) & (positions < start + len(stored))] - start
            missing |= stored.read_ahead and _core.read_ahead(stored.rows, stored.guard, own)
            start += len(stored)
        return missing

    def rows(self, keys: Ids) -> Floats:
        """Return the vectors at these positions, (positions, features)."""
        adjacent = _as_slice(keys)
        if len(self._stored) == 1 and adjacent is not None:
            only = self._stored[0]
            if only.rows.dtype == np.float32 and only.guard is None:
                return only.rows[adjacent]
        out = np.empty((len(keys), self.features), dtype=np.float32)
        self.core.expand(np.ascontiguousarray(keys), out, CORES)
        self.check()
        return out

    def direct(self, keys: Ids) -> _core.VectorRuns:  # noqa: ARG002
        """Return all vectors as the core reads them."""
        return self.core

    def check(self) -> None:
        """Raise if a checksum failed in what was read so far."""
        for arrays in self._mapped:
            arrays.check()


class ReadAhead:
    """Requests rows before they are read, until all of them are in memory, and again after a page fault on disk.

    So searches with everything in memory do not pay for requests.
    """

    def __init__(self) -> None:
        self._cold = True

    @contextmanager
    def reading(self, request: Callable[[], bool]) -> Iterator[None]:
        """Call `request`, which returns whether something was not in memory, before the reads of a `with` block."""
        faults = page_faults()
        missing = self._cold and request()
        yield
        self._cold = missing or page_faults() > faults


class GivenVectors(Vectors):
    """The vectors that a caller passes, by id.

    Args:
        source: an array or a memory map with a row for each id, a mapping from ids to vectors, or a function that
            returns the vectors of an array of ids, (ids, features).
        features: of a vector.

    """

    def __init__(self, source: VectorsById, features: int) -> None:
        if isinstance(source, Codes):
            raise InvalidInput("vectors must be a numeric array, got Codes: give the items that were encoded")
        self.source, self._features = source, features
        self._array: NDArray[Any] | None = None
        self.core: _core.VectorRuns | None = None  # the array as the core reads it
        if type(source) is not np.ndarray and (isinstance(source, Mapping) or callable(source)):
            return
        array = self._array = as_array(source, "vectors")
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise InvalidInput(
                f"vectors must be numeric in 2 dimensions, a row for each id, got {array.dtype} of shape {array.shape}"
            )
        if array.shape[1] != features:
            raise InvalidInput(f"vectors must have the queries' {features} features, got {array.shape[1]}")
        if array.dtype in CORE_TYPES and array.flags.c_contiguous and array.flags.aligned:
            self.core = _core.VectorRuns(array)

    @property
    def is_array(self) -> bool:
        """Whether they are an array or a memory map, all of which can be compared."""
        return self._array is not None

    def rows(self, keys: Ids) -> NDArray[Any]:
        """Return the vectors of these ids, (ids, features)."""
        self._check_ids(keys)
        if self._array is not None:
            adjacent = _as_slice(keys)
            rows: NDArray[Any] = self._array[keys if adjacent is None else adjacent]
            return rows
        if not len(keys):
            return np.empty((0, self._features), dtype=np.float32)
        if isinstance(self.source, Mapping):
            rows = np.array([self.source[key] for key in keys.tolist()])
        else:
            assert callable(self.source)
            rows = as_array(self.source(keys), "vectors")
        if rows.shape != (len(keys), self._features) or rows.dtype.kind not in "fiu":
            raise InvalidInput(
                f"vectors must be numeric with the queries' {self._features} features, a row for each of {len(keys)} "
                f"ids, got {rows.dtype} of shape {rows.shape}"
            )
        return rows

    def direct(self, keys: Ids) -> _core.VectorRuns | None:
        """Return the array as the core reads it, or None for other sources and dtypes."""
        self._check_ids(keys)
        return self.core

    def check(self) -> None:
        """Do nothing: the caller is responsible for these vectors."""

    def _check_ids(self, keys: Ids) -> None:
        """Raise unless there is a vector for each of these ids."""
        if self._array is not None and keys.max(initial=-1) >= len(self._array):
            raise InvalidInput(
                f"vectors must have a row for each id, but id {keys.max()} is beyond their {len(self._array)} rows"
            )
        if isinstance(self.source, Mapping):
            missing = next((key for key in keys.reshape(-1).tolist() if key >= 0 and key not in self.source), None)
            if missing is not None:
                raise InvalidInput(f"vectors must have an entry for each id, but id {missing} is not in the mapping")


def _as_slice(keys: Ids) -> slice | None:
    """Return keys that follow each other as a slice, which copies nothing, or None."""
    if not len(keys) or keys[-1] - keys[0] != len(keys) - 1 or not (np.diff(keys) == 1).all():
        return None
    return slice(int(keys[0]), int(keys[-1]) + 1)


def median(queries: NDArray[Any]) -> NDArray[Any]:
    """Return the median of queries, one of their own values: squares around it are small where data is far from 0."""
    center: NDArray[Any] = np.partition(queries, len(queries) // 2, axis=0)[len(queries) // 2]
    return center
