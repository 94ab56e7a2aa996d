"""Training data: arrays, memory maps, PyTorch datasets and folders of images, as rows of features.

A `Source` returns rows by index, so that data larger than memory is read a batch at a time; `batches` yields indices.
Not here: devices and the held-out split (`runtime/`), loaders of images (`nestcode.data`).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, TensorDataset

from nestcode.arrays import FINITE_REMEDY, check_int
from nestcode.errors import InvalidInput

Rows = NDArray[np.float32] | NDArray[np.uint8]
Indices = NDArray[np.int64]
PIECE = 1 << 24  # values checked at a time


@runtime_checkable
class Source(Protocol):
    """Rows of features that are read on demand.

    >>> source = as_source(np.arange(12.0).reshape(3, 2, 2))      # three items of 2 x 2
    >>> source.rows(np.array([2, 0]))
    array([[ 8.,  9., 10., 11.],
           [ 0.,  1.,  2.,  3.]], dtype=float32)

    Any object with these five members is a source: `nestcode.data.ImageFolder`, or a reader of your own. It may also
    have the `shape` of an item, as all sources of this module do: images are recognized by it.
    """

    features: int  # of a row
    resident: bool  # whether all rows are in memory, so that they may be copied to a device at once

    def __len__(self) -> int: ...

    def rows(self, indices: Indices) -> Rows:
        """Return the rows at these indices in their order, (n, features): float32, or uint8 where the data is."""

    def whole(self) -> Rows:
        """Return all rows; meant for resident sources."""


def as_source(X: object) -> Source:
    """Return data of any supported kind as a `Source`.

    >>> images = torch.zeros(100, 8, 8, 3, dtype=torch.uint8)
    >>> source = as_source(torch.utils.data.TensorDataset(images, torch.arange(100)))     # without the labels
    >>> len(source), source.features, source.resident, source.rows(np.array([5])).dtype
    (100, 192, True, dtype('uint8'))

    uint8 stays uint8; all other dtypes become float32, and must be finite in it. Items of more than one dimension are
    flattened.

    Args:
        X: an array or a tensor, (n, features) or (n, height, width, channels); a memory map, which stays on disk; a
            list of equal arrays; a map-style `torch` dataset (or whatever else has a length and items) whose items
            are arrays, tensors or tuples that begin with one: the rest, such as a label, is dropped. Its items are
            read one after another in the caller's thread, or many at a time if it offers `__getitems__`.
            Random items should draw from PyTorch's global generator, which a run seeds. Or a `Source`.

    """
    if isinstance(X, Source):
        return X
    if isinstance(X, str | Path):
        raise InvalidInput(
            f"data must be given, not its path, got {str(X)!r}: read it with np.load(path, mmap_mode='r') "
            "or nestcode.data.ImageFolder(path)"
        )
    if type(X) is TensorDataset:
        return as_source(X.tensors[0])
    if isinstance(X, torch.Tensor):
        return ArraySource(_from_tensor(X))
    if np.ma.is_masked(X):
        raise InvalidInput("data must have no masked values: fill them with X.filled(value), or drop their rows")
    if isinstance(X, np.ndarray):
        return MappedSource(X) if _is_mapped(X) else ArraySource(X)
    if isinstance(X, list | tuple):
        return ArraySource(_read_items(X, range(len(X))))
    if any(hasattr(X, name) for name in ("__array_interface__", "__dlpack__", "to_numpy")):  # h5py and zarr have none
        return ArraySource(np.asarray(X))
    if not isinstance(X, IterableDataset) and hasattr(X, "__len__") and hasattr(X, "__getitem__"):
        return ItemSource(X)
    raise InvalidInput(
        f"data must have a length and items by index, got {type(X).__name__}: "
        "write its items into a .npy file and open that with np.load(path, mmap_mode='r')"
    )


class ArraySource:
    """Rows of an array in memory, checked and converted at once."""

    resident = True

    def __init__(self, array: NDArray[Any]) -> None:
        self.features = _check_shape(array.shape, array.dtype)
        self.shape = array.shape[1:]
        rows = np.ascontiguousarray(array.reshape(len(array), -1))
        self._rows = _as_rows(rows, np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, indices: Indices) -> Rows:
        """Return copies of the rows at these indices."""
        return self._rows[indices]

    def whole(self) -> Rows:
        """Return all rows: the array itself, unless it is read-only, which PyTorch does not accept."""
        return self._rows if self._rows.flags.writeable else self._rows.copy()


class MappedSource:
    """Rows of a memory-mapped array, read in the order of the file."""

    resident = False

    def __init__(self, array: NDArray[Any]) -> None:
        self.features = _check_shape(array.shape, array.dtype)
        self.shape = array.shape[1:]
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def rows(self, indices: Indices) -> Rows:
        """Return the rows at these indices, in their order."""
        order = np.argsort(indices)
        read = np.asarray(self._array[indices[order]]).reshape(len(indices), self.features)
        checked = _as_rows(read, indices[order])
        rows = np.empty_like(checked)
        rows[order] = checked
        return rows

    def whole(self) -> Rows:
        """Return all rows."""
        return self.rows(np.arange(len(self)))


class ItemSource:
    """The items of a dataset as rows, without their labels."""

    resident = False

    def __init__(self, items: Any) -> None:
        first = _read_items(items, range(min(len(items), 1)))
        self.features = _check_shape(first.shape, first.dtype)
        self.shape = first.shape[1:]
        self._items, self._first = items, first[0]

    def __len__(self) -> int:
        return len(self._items)

    def rows(self, indices: Indices) -> Rows:
        """Return the items at these indices."""
        read = _read_items(self._items, indices.tolist(), like=self._first)
        return _as_rows(read.reshape(len(indices), self.features), indices)

    def whole(self) -> Rows:
        """Return all items."""
        return self.rows(np.arange(len(self)))


def batch_count(n: int, size: int) -> int:
    """Return how many batches of `size` an epoch of `n` items has; an incomplete one counts only if it is the only one.

    >>> batch_count(10, 4), batch_count(3, 4)
    (2, 1)
    """
    return max(check_int(n, "n", least=1) // check_int(size, "size", least=1), 1)


def batches(
    n: int, size: int, epoch: int, seed: int, *, parts: int = 1, part: int = 0, start: int = 0
) -> Iterator[Indices]:
    """Yield the indices of each batch of an epoch, in an order that `seed` and `epoch` determine.

    >>> list(batches(7, 4, epoch=0, seed=1))
    [array([5, 0, 1, 4])]
    >>> [next(batches(7, 4, epoch=0, seed=1, parts=2, part=part)) for part in (0, 1)]     # for two processes
    [array([5, 0]), array([1, 4])]

    An incomplete last batch is dropped, unless it is the only one.

    Args:
        n: the number of items.
        size: the number of items in a batch, of all parts together.
        epoch: the pass over the data.
        seed: any integer.
        parts: how many equal parts each batch is split into.
        part: which part to yield.
        start: how many batches to skip, when resuming.

    """
    count, size = batch_count(n, size), min(size, n)
    epoch, seed = check_int(epoch, "epoch", least=0), check_int(seed, "seed", least=0)
    parts, start = check_int(parts, "parts", least=1), check_int(start, "start", least=0)
    if not 0 <= check_int(part, "part", least=0) < parts:
        raise InvalidInput(f"part must be less than the {parts} parts, got {part}")
    if size % parts:
        raise InvalidInput(f"a batch of {size} must divide by its {parts} parts: change the size of batches")
    if start > count:
        raise InvalidInput(f"start must be at most the {count} batches of an epoch, got {start}")
    return _pieces(n, size, epoch, seed, range(start, count), slice(part * size // parts, (part + 1) * size // parts))


def _pieces(n: int, size: int, epoch: int, seed: int, batch_indices: range, piece: slice) -> Iterator[Indices]:
    order = _order(n, seed, epoch)
    for index in batch_indices:
        yield order[index * size : (index + 1) * size][piece].copy()


@lru_cache(maxsize=1)  # the parts of one process share it
def _order(n: int, seed: int, epoch: int) -> Indices:
    return np.random.default_rng([seed, epoch]).permutation(n)


def _from_tensor(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.layout != torch.strided:
        raise InvalidInput(f"data must be a dense tensor, got {tensor.layout}: convert it with X.to_dense()")
    plain = tensor.detach().cpu()
    array: NDArray[Any] = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()  # NumPy has no bfloat16
    return array


def _is_mapped(array: NDArray[Any] | None) -> bool:
    """Return whether the array is a view of a memory map."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def _read_items(items: Any, indices: Sequence[int], like: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return items of a list or dataset, which must all have the shape of `like`: (n, …)."""
    if not indices and like is None:
        raise InvalidInput("data must have at least 1 item, got none")
    many = getattr(items, "__getitems__", None)
    read = [_as_item(item) for item in (many(list(indices)) if many else (items[i] for i in indices))]
    like = like if like is not None else read[0]
    for index, item in zip(indices, read, strict=True):
        if item.shape != like.shape or (item.dtype == np.uint8) != (like.dtype == np.uint8):
            raise InvalidInput(
                f"items must all be like the first, {like.shape} of {like.dtype}, got {item.shape} of {item.dtype} at "
                f"index {index}: convert them to one shape and dtype"
            )
    return np.stack(read) if read else np.empty((0, *like.shape), like.dtype)


def _as_item(item: Any) -> NDArray[Any]:
    """Return an item as an array, without its label."""
    if isinstance(item, tuple) and item and not (np.isscalar(item[0]) or isinstance(item[0], list | tuple)):
        item = item[0]
    if isinstance(item, torch.Tensor):
        return _from_tensor(item)
    if isinstance(item, dict):
        raise InvalidInput(
            "items must be arrays, or tuples that begin with one, got dict: give a dataset of one entry of each item"
        )
    try:
        return np.asarray(item)
    except ValueError as error:
        raise InvalidInput(f"items must be arrays, got {item!r} ({error})") from None


def _check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the number of features of a flattened item."""
    if len(shape) < 2:
        raise InvalidInput(
            f"data must have 2 dimensions or more, (items, features) or (items, height, width, channels), got "
            f"shape {shape}: make a batch of one item by x[None, :], items of one feature by x[:, None]"
        )
    if 0 in shape:
        raise InvalidInput(f"data must have at least 1 item and 1 feature, got shape {shape}")
    if dtype.kind not in "fiub":
        raise InvalidInput(f"data must be numeric, got {dtype}: convert it, as in X.astype(np.float32)")
    return int(np.prod(shape[1:]))


def _as_rows(rows: NDArray[Any], indices: Indices) -> Rows:
    """Return rows as uint8, or as float32 without NaN and infinities: (n, features)."""
    if rows.dtype == np.uint8:
        return rows
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is reported below
        floats = rows.astype(np.float32, copy=False)
    step = max(PIECE // floats.shape[1], 1)
    for first in range(0, len(floats), step):
        fine = np.isfinite(floats[first : first + step]).all(axis=1)
        if not fine.all():
            index = indices[first + int(fine.argmin())]
            remedy = "rescale the data" if np.isfinite(rows[first + int(fine.argmin())]).all() else FINITE_REMEDY
            raise InvalidInput(f"data must be finite and within float32, but row {index} is not: {remedy}")
    return floats
