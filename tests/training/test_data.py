"""Sources return the same rows whatever they read from; batches are a fair and repeatable order."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from nestcode.data import ImageFolder
from nestcode.errors import InvalidInput
from nestcode.training import data
from nestcode.training.data import Source, as_source, batch_count, batches

X = np.random.default_rng(0).normal(size=(20, 2, 3)).astype(np.float32)
BYTES = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)


class Items(Dataset[Any]):
    """A map-style dataset of anything."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        self.asked.append(number)
        return self.items[number]


class Arrays(Items):
    """One that gives many items at a time."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [self[number] for number in numbers]


class Lazy:
    """As h5py and zarr: convertible to an array, but not in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, number: int) -> NDArray[Any]:
        item: NDArray[Any] = self.array[number]
        return item

    def __array__(self) -> NDArray[Any]:
        raise AssertionError("read whole")


def mapped(folder: Path, array: NDArray[Any], **options: Any) -> np.memmap[Any, Any]:
    path = folder / "x.npy"
    np.save(path, np.asarray(array, **options))
    opened = np.load(path, mmap_mode="r")
    assert isinstance(opened, np.memmap)
    return opened


SOURCES: dict[str, Callable[[Path, NDArray[Any]], object]] = {
    "array": lambda _, array: array,
    "reversed array": lambda _, array: array[::-1].copy()[::-1],
    "Fortran array": lambda _, array: np.asfortranarray(array),
    "big-endian array": lambda _, array: array.astype(array.dtype.newbyteorder(">")),
    "memory map": mapped,
    "view of a map": lambda folder, array: np.asarray(mapped(folder, array))[:],
    "Fortran map": lambda folder, array: mapped(folder, array, order="F"),
    "tensor": lambda _, array: torch.tensor(array),
    "tensor with gradient": lambda _, array: torch.tensor(array).requires_grad_(array.dtype == np.float32),
    "tensors": lambda _, array: TensorDataset(torch.tensor(array), torch.arange(len(array))),
    "subset": lambda _, array: Subset(TensorDataset(torch.tensor(array)), range(len(array))),
    "list": lambda _, array: list(array),
    "nested lists": lambda _, array: array.tolist() if array.dtype != np.uint8 else list(array),
    "nested tuples in a list": lambda _, array: [
        tuple(tuple(row) if row.ndim else row for row in item) for item in array
    ],
    "list of tensors": lambda _, array: list(torch.tensor(array)),
    "dataset": lambda _, array: Items(list(array)),
    "dataset with labels": lambda _, array: Items([(torch.tensor(item), 7, "name") for item in array]),
    "dataset of many": lambda _, array: Arrays([(item, 3) for item in array]),
    "lazy array": lambda _, array: Lazy(array),
}
RESIDENT = {name for name in SOURCES if "array" in name or "list" in name or "tensor" in name} - {"lazy array"}


@pytest.mark.parametrize("array", [X, X[:, :, 0], BYTES, BYTES[:, 0, 0]], ids=["3-D", "2-D", "images", "bytes"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_returns_the_same_rows(name: str, array: NDArray[Any], tmp_path: Path) -> None:
    source = as_source(SOURCES[name](tmp_path, array))
    plain = array.reshape(20, -1)
    assert isinstance(source, Source)
    assert (len(source), source.features) == plain.shape
    assert source.resident is (name in RESIDENT)
    for indices in ([3], [19, 0, 7, 7], list(range(19, -1, -1)), []):
        rows = source.rows(np.array(indices, dtype=np.int64))
        assert rows.dtype == array.dtype
        assert rows.dtype.isnative
        assert np.array_equal(rows, plain[indices])
        torch.from_numpy(rows)  # without a warning
    assert np.array_equal(torch.from_numpy(source.whole()).numpy(), plain)
    assert as_source(source) is source


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64", "uint16", "bool"])
@pytest.mark.parametrize("name", ["array", "memory map", "tensor", "dataset"])
def test_other_dtypes_become_float32(dtype: str, name: str, tmp_path: Path) -> None:
    array = (np.abs(X[:, 0]) * 9).astype(dtype)
    rows = as_source(SOURCES[name](tmp_path, array)).rows(np.arange(20))
    assert rows.dtype == np.float32
    assert np.array_equal(rows, array.astype(np.float32))


def test_bfloat16_tensors_become_float32() -> None:
    rows = as_source(torch.tensor(X).bfloat16()).rows(np.arange(20))
    assert np.array_equal(rows, torch.tensor(X).bfloat16().float().reshape(20, -1).numpy())


def test_an_array_of_floats_is_not_copied_and_rows_are() -> None:
    plain = X.reshape(20, 6).copy()
    source = as_source(plain)
    assert np.shares_memory(source.whole(), plain)
    assert not np.shares_memory(source.rows(np.arange(3)), plain)
    plain.flags.writeable = False
    torch.from_numpy(as_source(plain).whole())  # which warns of arrays that are read-only


def test_a_memory_map_is_read_in_file_order_and_never_whole(tmp_path: Path) -> None:
    class Watched(np.memmap[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            assert isinstance(key, np.ndarray)
            asked.extend(key.tolist())
            return np.asarray(super().__getitem__(key))

    asked: list[int] = []
    path = tmp_path / "raw"
    X.tofile(path)
    source = as_source(Watched(path, dtype=np.float32, mode="r", shape=X.shape))
    assert asked == []
    rows = source.rows(np.array([9, 2, 17, 2]))
    assert asked == [2, 2, 9, 17]
    assert np.array_equal(rows, X[[9, 2, 17, 2]].reshape(4, 6))


def test_items_are_read_on_demand_in_order() -> None:
    dataset = Items(list(X))
    source = as_source(dataset)
    dataset.asked.clear()
    source.rows(np.array([5, 3, 5]))
    assert dataset.asked == [5, 3, 5]


def test_a_folder_of_images_is_a_source(tmp_path: Path) -> None:
    for i, image in enumerate(BYTES):
        Image.fromarray(image).save(tmp_path / f"{i:02}.png")
    images = ImageFolder(tmp_path, size=4)
    source = as_source(images)
    assert source is images
    assert np.array_equal(source.rows(np.array([4, 1])), BYTES[[4, 1]].reshape(2, -1))


@pytest.mark.parametrize("name", ["array", "memory map", "tensor", "dataset", "list"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e39])
def test_the_row_that_is_not_finite_is_named(
    name: str, wrong: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PIECE", 24)  # four rows at a time
    array = X.astype(np.float64)
    array[13, 1, 1] = wrong
    with pytest.raises(InvalidInput, match="must be finite and within float32, but row 13 is not"):
        as_source(SOURCES[name](tmp_path, array)).rows(np.array([2, 19, 13, 4, 3, 5]))


def stream() -> Iterator[int]:
    yield 1


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return stream()


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "one dimension": (lambda: as_source(np.ones(5)), "must have 2 dimensions or more, (items, features) or"),
    "items of one number": (lambda: as_source(Items([1.0, 2.0])), "must have 2 dimensions or more"),
    "no items": (lambda: as_source(np.ones((0, 5))), "at least 1 item and 1 feature, got shape (0, 5)"),
    "no features": (lambda: as_source(np.ones((5, 2, 0))), "at least 1 item and 1 feature, got shape (5, 2, 0)"),
    "empty list": (lambda: as_source([]), "data must have at least 1 item, got none"),
    "empty dataset": (lambda: as_source(Items([])), "data must have at least 1 item, got none"),
    "words": (lambda: as_source(np.array([["a"]])), "data must be numeric, got <U1"),
    "complex": (lambda: as_source(torch.ones(2, 2, dtype=torch.complex64)), "data must be numeric, got complex64"),
    "dictionaries": (
        lambda: as_source(Items([{"x": 1}])),
        "items must be arrays, or tuples that begin with one, got dict",
    ),
    "masked": (lambda: as_source(np.ma.masked_less(np.eye(3), 1)), "data must have no masked values: fill them"),
    "sparse": (lambda: as_source(torch.eye(3).to_sparse()), "must be a dense tensor, got torch.sparse_coo"),
    "path": (lambda: as_source("x.npy"), "must be given, not its path, got 'x.npy'"),
    "generator": (lambda: as_source(stream()), "must have a length and items by index, got generator"),
    "iterable dataset": (lambda: as_source(Endless()), "must have a length and items by index, got Endless"),
    "number": (lambda: as_source(5), "must have a length and items by index, got int"),
    "ragged list": (
        lambda: as_source([np.ones(3), np.ones(3), np.ones(4)]),
        "items must all be like the first, (3,) of float64, got (4,) of float64 at index 2",
    ),
    "ragged nested list": (lambda: as_source([[[1], [2, 3]]]), "items must be arrays, got [[1], [2, 3]]"),
    "ragged dataset": (
        lambda: as_source(Items([np.ones(3), np.ones(3), np.ones(4)])).rows(np.array([1, 2])),
        "items must all be like the first, (3,) of float64, got (4,) of float64 at index 2",
    ),
    "bytes and floats": (
        lambda: as_source(Items([BYTES[0], X[0]])).rows(np.array([1])),
        "items must all be like the first, (4, 4, 3) of uint8, got (2, 3) of float32 at index 1",
    ),
    "part of no part": (lambda: batches(9, 4, 0, 0, parts=2, part=2), "part must be less than the 2 parts, got 2"),
    "odd parts": (lambda: batches(9, 4, 0, 0, parts=3), "a batch of 4 must divide by its 3 parts"),
    "odd parts of a small epoch": (lambda: batches(5, 8, 0, 0, parts=2), "a batch of 5 must divide by its 2 parts"),
    "past the end": (lambda: batches(9, 4, 0, 0, start=3), "start must be at most the 2 batches of an epoch, got 3"),
    "no batch": (lambda: batches(9, 0, 0, 0), "size must be an integer of at least 1, got 0"),
    "negative epoch": (lambda: batches(9, 4, -1, 0), "epoch must be an integer of at least 0, got -1"),
    "negative seed": (lambda: batches(9, 4, 0, -1), "seed must be an integer of at least 0, got -1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


@st.composite
def epochs(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """n, size, epoch, seed, parts."""
    parts = draw(st.integers(1, 4))
    size = parts * draw(st.integers(1, 8))
    n = draw(st.integers(size, 60))
    return n, size, draw(st.integers(0, 9)), draw(st.integers(0, 2**40)), parts


@given(epochs())
def test_an_epoch_takes_each_item_at_most_once_and_drops_less_than_a_batch(
    what: tuple[int, int, int, int, int],
) -> None:
    n, size, epoch, seed, _ = what
    taken = list(batches(n, size, epoch, seed))
    assert len(taken) == batch_count(n, size)
    assert all(batch.shape == (size,) and batch.dtype == np.int64 for batch in taken)
    every = np.concatenate(taken)
    assert len(np.unique(every)) == len(every) > n - size
    assert every.min() >= 0
    assert every.max() < n


@given(epochs())
def test_the_parts_of_a_batch_make_up_the_batch(what: tuple[int, int, int, int, int]) -> None:
    n, size, epoch, seed, parts = what
    pieces = [batches(n, size, epoch, seed, parts=parts, part=part) for part in range(parts)]
    for batch, *cut in zip(batches(n, size, epoch, seed), *pieces, strict=True):
        assert {len(piece) for piece in cut} == {size // parts}
        assert np.array_equal(np.concatenate(cut), batch)


@given(epochs(), st.data())
def test_resuming_continues_with_the_same_batches(what: tuple[int, int, int, int, int], draw: st.DataObject) -> None:
    n, size, epoch, seed, _ = what
    taken = [batch.tolist() for batch in batches(n, size, epoch, seed)]
    start = draw.draw(st.integers(0, len(taken)))
    for _ in range(2):
        resumed = list(batches(n, size, epoch, seed, start=start))
        assert [batch.tolist() for batch in resumed] == taken[start:]
        for batch in resumed:
            batch += 1  # what a caller does to a batch stays with the caller


def test_epochs_and_seeds_differ_and_a_small_epoch_is_one_batch() -> None:
    orders = {tuple(next(batches(30, 30, epoch, seed))) for epoch in range(3) for seed in range(3)}
    assert len(orders) == 9
    (only,) = batches(3, 8, epoch=0, seed=0)
    assert sorted(only) == [0, 1, 2]


def test_every_item_is_first_in_some_epoch() -> None:
    """The order is fair: over many epochs, each item is about as often in the first half."""
    counts = np.bincount(np.concatenate([next(batches(10, 5, epoch, seed=3)) for epoch in range(2000)]), minlength=10)
    assert (np.abs(counts - 1000) < 4.5 * np.sqrt(2000 / 4)).all()
