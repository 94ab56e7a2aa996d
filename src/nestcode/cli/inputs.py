"""Items that commands read: arrays, columns of tables and folders of images, as rows in pieces."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import check_rows
from nestcode.cli.files import STANDARD, read_array, standard_input, with_progress
from nestcode.cli.options import messages
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput, import_extra

PIECE, MOST = 1 << 22, 1 << 16  # values and rows of a piece, at most
Array = NDArray[Any]


class InputRows:
    """Items as rows, (n, features), read piece by piece, any number of times.

    Attributes:
        shape: the shape of an item.
        dtype: the type of its values.

    """

    resident = False  # not in memory: training reads it piece by piece

    def __init__(self, count: int, shape: tuple[int, ...], dtype: Any) -> None:
        self._count, self.shape, self.dtype = count, shape, np.dtype(dtype)
        self.features = int(np.prod(shape))
        self.step = min(max(PIECE // max(self.features, 1), 1), MOST)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Array]:
        for first in range(0, len(self), self.step):
            yield self.rows(np.arange(first, min(first + self.step, len(self))))

    def rows(self, indices: NDArray[np.int64]) -> Array:
        """Return the rows at these indices."""
        raise NotImplementedError

    def whole(self) -> Array:
        """Return all rows."""
        return np.concatenate(list(self))

    def to_train(self) -> Any:
        """Return the items as training takes them."""
        return self


class ArrayRows(InputRows):
    """The rows of an array in memory, or of a memory-mapped one."""

    def __init__(self, array: Array) -> None:
        super().__init__(len(array), array.shape[1:], array.dtype)
        self._array, self._rows = array, array.reshape(len(array), -1)
        check_rows(self._rows[:0])  # raises before any work if the type is wrong

    def __iter__(self) -> Iterator[Array]:
        for first in range(0, len(self), self.step):
            yield np.asarray(self._rows[first : first + self.step])

    def rows(self, indices: NDArray[np.int64]) -> Array:
        """Return the rows at these indices."""
        return np.asarray(self._rows[indices])

    def whole(self) -> Array:
        """Return all rows, memory-mapped if the array is."""
        return self._rows

    def to_train(self) -> Any:
        """Return the array itself, in which images have their shape."""
        return self._array


class FolderRows(InputRows):
    """The images of a folder, channels first (RGB), scaled to 0–1 as the shipped coders expect."""

    def __init__(self, path: Path, size: int) -> None:
        from nestcode.data import ImageFolder

        self._images = ImageFolder(path, size)
        super().__init__(len(self._images), (3, size, size), np.float32)

    def rows(self, indices: NDArray[np.int64]) -> Array:
        """Return the images at these indices."""
        pixels = self._images[indices].transpose(0, 3, 1, 2).reshape(len(indices), -1)
        return pixels.astype(np.float32) / np.float32(255)


class TableRows(InputRows):
    """The rows of a .parquet file: one column of lists, or all columns as features."""

    def __init__(self, path: Path, name: str | None) -> None:
        pa: Any = import_extra("pyarrow", extra="arrow", purpose="reading .parquet files")
        parquet = import_extra("pyarrow.parquet", extra="arrow", purpose="reading .parquet files")
        self._path, self._errors = path, (pa.ArrowException, OSError)
        try:
            self._file = parquet.ParquetFile(path)
        except self._errors as error:
            raise self._damaged() from error
        kinds = {field.name: field.type for field in self._file.schema_arrow}
        is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
        lists = [key for key, kind in kinds.items() if any(test(kind) for test in is_list)]
        if name is not None and name not in kinds:
            raise InvalidInput(f"{path} has no column {name}: give --array one of {', '.join(kinds)}")
        if name is None and len(lists) == 1:
            name = lists[0]
        self._list = name if name in lists else None
        self._columns = list(kinds) if name is None else [name]
        values = {key: kind.value_type if key in lists else kind for key, kind in kinds.items()}
        numbers = [key for key, kind in values.items() if any(test(kind) for test in is_number)]
        if (name is None and lists) or not set(self._columns) <= set(numbers):
            got = ", ".join(f"{key} of {kinds[key]}" for key in self._columns[:5])
            remedy = f"give --array one of {', '.join(numbers)}" if numbers else "write numbers"
            raise InvalidInput(
                f"items must be one column of lists of numbers, or only columns of numbers, got {got} in {path}: "
                f"{remedy}"
            )
        count = self._file.metadata.num_rows
        if not count:
            raise InvalidInput(f"{path} must hold at least one item, got none: write some rows")
        features = len(next(self._batches(1))[0]) if self._list else len(self._columns)
        super().__init__(count, (features,), np.result_type(*(values[key].to_pandas_dtype() for key in self._columns)))

    def _damaged(self) -> DamagedFile:
        return DamagedFile(f"{self._path} is not a table; it is damaged or not a .parquet file: write it again")

    def __iter__(self) -> Iterator[Array]:
        for rows in self._batches(self.step):
            if rows.shape[1] != self.features:
                raise InvalidInput(f"lists in {self._path} must have {self.features} values each, got {rows.shape[1]}")
            yield rows

    def to_train(self) -> Any:
        """Return all rows."""
        return self.whole()

    def _batches(self, size: int) -> Iterator[Array]:
        try:
            yield from self._read(size)
        except self._errors as error:
            raise self._damaged() from error

    def _read(self, size: int) -> Iterator[Array]:
        for batch in self._file.iter_batches(size, columns=self._columns):
            if any(column.null_count for column in batch.columns):
                raise InvalidInput(f"{self._path} must have a value in every row, got nulls: drop these rows")
            if self._list is None:
                columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
                yield np.stack([column.astype(self.dtype) for column in columns], axis=1)
                continue
            flat = batch.column(0).flatten()
            lengths = np.unique(batch.column(0).value_lengths().to_numpy(zero_copy_only=False))
            if len(lengths) > 1 or flat.null_count:
                raise InvalidInput(
                    f"lists in {self._path} must be equally long without nulls: drop the rows that differ"
                )
            yield flat.to_numpy(zero_copy_only=False).reshape(batch.num_rows, -1)


def open_rows(path: Path, array: str | None = None, size: int = 32) -> InputRows:
    """Return the items of a file, a folder or standard input."""
    if path.is_dir():
        from nestcode.index.manifest import is_index

        if is_index(path):
            raise InvalidInput(f"items must be vectors or images, got the index {path}: give the file it was built of")
        return FolderRows(path, size)
    if path != STANDARD and not path.exists():
        raise FileNotFoundError(f"there is no file {path}: give a .npy, .npz or .parquet file, or a folder of images")
    if path.suffix == ".parquet":
        return TableRows(path, array)
    if path.suffix == ".npz":
        return ArrayRows(_from_archive(path, array))
    if array is not None:
        raise InvalidInput(f"--array is for .npz and .parquet files, got {path}, which has one array: leave it out")
    return ArrayRows(_from_input() if path == STANDARD else read_array(path))


def read_packed(path: Path, array: str | None = None) -> NDArray[np.uint8]:
    """Return packed codes, (n, bytes)."""
    packed: Array = open_rows(path, array).whole()
    if packed.dtype != np.uint8:
        raise InvalidInput(
            f"{path} must hold packed codes (uint8), got {packed.dtype}: write them with nestcode encode"
        )
    return packed


def code_width(path: Path, packed: NDArray[np.uint8], most: int) -> int:
    """Return the width of packed codes: 8 bits per byte, at most the coder's width `most`."""
    if packed.shape[1] > -(-most // 8):
        raise InvalidInput(
            f"codes of {most} bits must have {-(-most // 8)} bytes, got {packed.shape[1]} in {path}: give the "
            "coder that encoded them"
        )
    return min(8 * int(packed.shape[1]), most)


def read_codes(path: Path, array: str | None, coder: Coder | None, width: int | None) -> Codes:
    """Return the first `width` bits of packed codes, by default all; without a coder the last byte counts in full."""
    packed = read_packed(path, array)
    whole = 8 * int(packed.shape[1]) if coder is None else code_width(path, packed, coder.width_)
    kept = whole if width is None else width
    if kept > whole:
        raise InvalidInput(f"{path} must hold codes of at least {kept} bits, got {whole}: encode the items again, or "
                           f"build an index of that width")  # fmt: skip
    return Codes(packed, whole).prefix(kept)


def read_ids(path: Path) -> Array:
    """Return the ids in a .npy file."""
    return np.asarray(read_array(path, least=1))


def pieces_for(coder: Coder, rows: InputRows, title: str) -> Iterator[Array]:
    """Yield rows as a coder takes them, with a progress bar."""
    if rows.features != coder.n_features_in_:
        raise InvalidInput(
            f"items must have the {coder.n_features_in_} features the coder was fitted on, got {rows.features}: give "
            "the same features, or fit a new coder"
        )
    yield from with_progress(rows, title, -(-len(rows) // rows.step), messages())


def encode_all(coder: Coder, rows: InputRows, width: int, *, keep: bool) -> tuple[Codes, NDArray[np.float32] | None]:
    """Return the codes of all rows, and their vectors if `keep` is set; otherwise only codes are held in memory."""
    packed = np.empty((len(rows), -(-width // 8)), dtype=np.uint8)
    vectors = np.empty((len(rows), rows.features), dtype=np.float32) if keep else None
    done = 0
    for piece in pieces_for(coder, rows, "Encoding"):
        packed[done : done + len(piece)] = coder.encode(piece).prefix(width).packed
        if vectors is not None:
            vectors[done : done + len(piece)] = piece
        done += len(piece)
    return Codes(packed, width), vectors


def _from_input() -> Array:
    """Return the array on standard input, memory-mapped from an unlinked temporary copy."""
    given = standard_input()
    start = given.read(6)
    if start != b"\x93NUMPY":  # other input may be endless
        raise DamagedFile("standard input must be a .npy file, got something else: write it with np.save")
    with tempfile.NamedTemporaryFile(suffix=".npy") as copy:
        copy.write(start)
        shutil.copyfileobj(given, copy)
        copy.flush()
        array: Array = read_array(Path(copy.name), name="standard input")
    return array


def _from_archive(path: Path, name: str | None) -> Array:
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                array: Array = arrays[_chosen(path, arrays.files, name)]
            shape = array.shape  # members that are not arrays have none
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:  # zipfile and NumPy raise errors of many kinds
            raise DamagedFile(
                f"{path} does not hold arrays of numbers; it is damaged or not a .npz file: write it with np.savez"
            ) from error
    if len(shape) < 2 or not len(array):
        raise InvalidInput(f"{path} must hold an array (n, …) of at least one item, got shape {shape}: reshape it")
    return array


def _chosen(path: Path, names: list[str], name: str | None) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if name in names:
        return name
    choice = f"give --array one of {', '.join(names)}" if names else "write one with np.savez"
    raise InvalidInput(f"{path} holds {len(names)} arrays: {choice}" if name is None else
                       f"{path} has no array {name}: {choice}")  # fmt: skip
