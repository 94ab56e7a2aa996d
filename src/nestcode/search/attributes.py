"""Attributes: columns of items, as Arrow arrays.

    Schema      the columns of an index: their types by name
    Attributes  the columns of one run, by position: in memory, or mapped from a file

In a file they are one record batch of an Arrow IPC stream, which is read without a copy. Conditions read whole columns
(`column`), hits read rows (`take`): large texts stay in the file until they are requested. Columns read from files are
verified by their checksums, and validated by Arrow before it computes with them: a forged one leads nowhere.

Nothing here is imported by an index without attributes: pyarrow is an extra.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Bytes, Ids
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.fork import lazy_property
from nestcode.search.postings import Postings
from nestcode.search.schema import MAX_COLUMNS, NUMBERS, TIMESTAMP, Schema, family
from nestcode.search.words import Words
from nestcode.storage import Mapped

pa = import_extra("pyarrow", extra="arrow", purpose="attributes of items")
pc = import_extra("pyarrow.compute", extra="arrow", purpose="attributes of items")

SCANS_PER_POSTINGS = 6  # of a column of lists: postings take as long to build
CATEGORY = pa.dictionary(pa.int32(), pa.large_string())
TYPES = {
    "bool": pa.bool_(),
    **{name: pa.type_for_alias(name) for name in NUMBERS},
    "string": pa.large_string(),
    "bytes": pa.large_binary(),
    "category": CATEGORY,
    "strings": pa.large_list(pa.large_string()),
    "date": pa.date32(),
}
NAMES = {kind: name for name, kind in TYPES.items()}


def arrow_type(name: str) -> Any:
    """Return the Arrow type of a column, or raise ValueError.

    >>> arrow_type("category"), arrow_type("timestamp[us, UTC]")
    (DictionaryType(dictionary<values=large_string, indices=int32, ordered=0>), TimestampType(timestamp[us, tz=UTC]))
    """
    stamp = TIMESTAMP.fullmatch(name)
    if stamp:
        return pa.timestamp(*stamp.groups())
    if name not in TYPES:
        raise ValueError(f"{name!r} is no type of a column")
    return TYPES[name]


def _arrow_schema(schema: Schema) -> Any:
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in schema.items()])


class Attributes:
    """The columns of one run, by position.

    >>> some = Attributes.read({"year": [2020, None, 2022], "lang": ["en", "de", "en"]}, count=3)
    >>> some.schema
    {'year': 'int64', 'lang': 'string'}
    >>> some.take(np.array([2, 1])).to_pydict()
    {'year': [2022, None], 'lang': ['en', 'de']}

    Args:
        schema: the columns.
        count: how many items there are.
        batch: the columns in memory.
        file: the bytes of an Arrow IPC stream, in place of these.
        mapped: the mapped arrays that have the bytes, if a file does.

    """

    def __init__(
        self, schema: Schema, count: int, batch: Any = None, file: Bytes | None = None, mapped: Mapped | None = None
    ) -> None:
        self.schema, self._count = schema, count
        self._file, self._mapped = file, mapped
        self._valid: set[str] = set()  # columns of a file that were verified whole
        self._lists_scanned, self._postings = Counter[str](), dict[str, Postings]()  # by columns of lists
        self._words: dict[str, Words] = {}  # by columns of texts
        if batch is not None:
            vars(self)["batch"] = batch

    @classmethod
    def read(cls, given: Any, count: int, schema: Schema | None = None) -> Self:
        """Return the caller's attributes, checked, as columns of a schema; without a schema all given columns.

        Args:
            given: a table of pyarrow, pandas or polars, a dictionary of arrays, or a list of dictionaries.
            count: rows that there must be.
            schema: the columns of the index, if it has some; missing columns are null.

        """
        table = _as_table(given)
        if table.num_rows != count:
            raise InvalidInput(f"attributes must have a row for each item, got {table.num_rows} rows for {count} items")
        _check_names(table.column_names, schema)
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        if schema is None:
            schema = {name: _type_of(name, column.type) for name, column in columns.items()}
        kinds = {name: arrow_type(kind) for name, kind in schema.items()}
        arrays = [
            _cast(name, columns[name], kind) if name in columns else pa.nulls(count, kind)
            for name, kind in kinds.items()
        ]
        return cls(schema, count, pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(schema)))

    @classmethod
    def nulls(cls, schema: Schema, count: int) -> Self:
        """Return null attributes."""
        kinds = _arrow_schema(schema)
        return cls(
            schema, count, pa.RecordBatch.from_arrays([pa.nulls(count, one.type) for one in kinds], schema=kinds)
        )

    @classmethod
    def concat(cls, parts: Sequence["Attributes"]) -> Self:
        """Return the attributes of several runs, one after the other."""
        return cls.gather(parts, None)

    @classmethod
    def gather(cls, parts: Sequence["Attributes"], sources: Ids | None) -> Self:
        """Return attributes by their positions in all runs together; all of them by default."""
        schema = max((one.schema for one in parts), key=len)  # runs from before a column have nulls there
        table = pa.concat_tables([one._complete(schema) for one in parts]).unify_dictionaries()
        if sources is not None:
            table = table.take(pa.array(sources))
        columns = []
        for name in schema:
            column = _combined(table.column(name))
            if column.type == CATEGORY and sources is not None:  # values that no item has any more are dropped
                column = column.dictionary_decode().dictionary_encode()
            columns.append(column)
        return cls(schema, table.num_rows, pa.RecordBatch.from_arrays(columns, schema=_arrow_schema(schema)))

    def _complete(self, schema: Schema) -> Any:
        """Return all columns of a schema, verified, as a table."""
        own, kinds = self.verified(), _arrow_schema(schema)
        arrays = [own.column(one.name) if one.name in self.schema else pa.nulls(self._count, one.type) for one in kinds]
        return pa.Table.from_arrays(arrays, schema=kinds)

    def table(self) -> Any:
        """Return all columns as a table."""
        return pa.Table.from_batches([self.batch])

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, in memory or in the file."""
        return int(self.batch.nbytes) if self._file is None else self._file.nbytes

    def __getitem__(self, positions: NDArray[np.integer[Any]]) -> "Attributes":
        return Attributes(self.schema, len(positions), self.take(positions))

    @lazy_property
    def batch(self) -> Any:
        """All columns; columns of a file are not verified yet."""
        assert self._file is not None
        data, at = pa.py_buffer(self._file), 0
        reader = pa.BufferReader(data)
        try:
            while True:  # verify the messages' metadata, which Arrow parses, and not their bodies
                self._touch(at, at + 8)
                size = int(self._file[at + 4 : at + 8].view("<i4")[0])
                if size == 0 and at + 8 == len(self._file):
                    break
                if not 0 < size <= len(self._file) - at - 8:
                    raise ValueError("a message does not fit the file")
                self._touch(at + 8, at + 8 + size)
                pa.ipc.read_message(reader)
                at = reader.tell()
            stream = pa.ipc.open_stream(data)
            if stream.schema != _arrow_schema(self.schema):
                raise ValueError("its columns are not those of the manifest")
            batch = stream.read_next_batch()
            if batch.num_rows != self._count:
                raise ValueError(f"it has {batch.num_rows} rows for {self._count} items")
            for column in batch.columns:
                column.validate()
        except (pa.ArrowException, ValueError, TypeError, LookupError, OSError, StopIteration, MemoryError) as error:
            raise self._damaged(error) from error
        return batch

    def file(self) -> Bytes:
        """Return the bytes of an Arrow IPC stream of one record batch."""
        if self._file is not None:
            return self._file
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self.batch.schema) as stream:
            stream.write_batch(self.batch)
        return np.frombuffer(out.getvalue(), dtype=np.uint8)

    def column(self, name: str) -> Any:
        """Return a whole column, verified."""
        column = self.batch.column(name)
        if self._file is not None and name not in self._valid:
            own = column.dictionary.buffers() if column.type == CATEGORY else []
            for buffer in filter(None, [*column.buffers(), *own]):
                start = buffer.address - self._file.ctypes.data
                self._touch(start, start + buffer.size)
            self._validate(column)
            self._valid.add(name)
        return column

    def postings(self, name: str) -> Postings | None:
        """Return the items of each text in a column of lists; None at first, as scans take less time than these."""
        known = self._postings.get(name)
        if known is None:
            self._lists_scanned[name] += 1
            if self._lists_scanned[name] > SCANS_PER_POSTINGS:
                known = self._postings[name] = Postings(self.column(name))
        return known

    def words(self, name: str) -> Words:
        """Return the words of each text in a column; a run from before the column was added has none."""
        known = self._words.get(name)
        if known is None:
            known = self._words[name] = Words(
                self.column(name) if name in self.schema else pa.nulls(len(self), pa.large_string())
            )
        return known

    def verified(self) -> Any:
        """Return all columns, verified."""
        for name in self.schema:
            self.column(name)
        return self.batch

    def take(self, positions: NDArray[np.integer[Any]], schema: Schema | None = None) -> Any:
        """Return the rows at some positions: a record batch of some columns, all by default; missing ones are null."""
        kinds, found = _arrow_schema(self.schema if schema is None else schema), []
        rows = pa.array(np.asarray(positions, dtype=np.int64))
        for name, kind in zip(kinds.names, kinds.types, strict=True):
            if name not in self.schema:
                found.append(pa.nulls(len(rows), kind))
                continue
            column = self._rows_verified(name, np.asarray(positions, dtype=np.int64)).take(rows)
            if self._file is not None and name not in self._valid:
                self._validate(column)
            found.append(column)
        return pa.RecordBatch.from_arrays(found, schema=kinds)

    def _rows_verified(self, name: str, rows: Ids) -> Any:
        """Return a column of which some rows were verified: of texts, which may be large, no others are read."""
        column = self.batch.column(name)
        if self._file is None or name in self._valid or self.schema[name] not in ("string", "bytes"):
            return self.column(name)
        validity, offsets, data = column.buffers()
        start, base = self._file.ctypes.data, offsets.address - self._file.ctypes.data
        if validity is not None:
            self._touch(validity.address - start, validity.address - start + validity.size)
        for row in rows.tolist():
            self._touch(base + 8 * row, base + 8 * row + 16)
        ends = np.frombuffer(offsets, dtype=np.int64)
        begins, ends, size = ends[rows], ends[rows + 1], 0 if data is None else data.size
        if len(rows) and (begins.min() < 0 or (begins > ends).any() or ends.max() > size):
            raise self._damaged(ValueError(f"offsets of column {name!r} do not fit its values"))
        if data is not None:
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                self._touch(data.address - start + begin, data.address - start + end)
        return column

    def _touch(self, begin: int, end: int) -> None:
        """Verify some bytes of the file; all of it for what Arrow had to copy, as where nothing is aligned."""
        if self._mapped is not None and begin < end:
            size = self._mapped.array.nbytes
            self._mapped.touch(*((begin, end) if 0 <= begin <= end <= size else (0, size)))

    def _validate(self, column: Any) -> None:
        try:
            column.validate(full=True)
            if column.type == CATEGORY:
                column.dictionary.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> DamagedFile:
        if isinstance(error, DamagedFile):
            return error
        name = "the attributes of a segment" if self._mapped is None else str(self._mapped.path)
        return DamagedFile(f"{name} are damaged ({error}): restore a copy")


def check_columns(columns: Sequence[str] | str | None, schema: Schema) -> list[str]:
    """Return the names of requested columns; all by default.

    >>> check_columns("year", {"lang": "string", "year": "int64"})
    ['year']
    """
    if columns is None:
        return list(schema)
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in schema]
    if unknown:
        raise unknown_column(unknown[0], schema)
    if len(set(names)) < len(names):
        raise InvalidInput(f"columns must be distinct, got {', '.join(names)}: name each once")
    return names


def unknown_column(name: object, schema: Schema, place: str = "") -> InvalidInput:
    """Return the error for a column that an index does not have."""
    known = ", ".join(list(schema)[:20]) + (", …" if len(schema) > 20 else "")
    remedy = "choose one of them" if schema else "add columns first, by add(…, attributes=…)"
    return InvalidInput(f"a column must be one that the index has, {known or 'none'}, got {name!r}{place}: {remedy}")


def _as_table(given: Any) -> Any:
    """Return the caller's attributes as an Arrow table."""
    try:
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if isinstance(given, Mapping):
            return pa.table({name: _as_column(column) for name, column in given.items()})
        if isinstance(given, list | tuple) and all(isinstance(row, Mapping) for row in given):
            names = dict.fromkeys(name for row in given for name in row)
            return pa.table({name: pa.array([row.get(name) for row in given]) for name in names})
        if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"attributes must be columns that Arrow reads ({error}): give each column one type"
        ) from error
    raise InvalidInput(
        f"attributes must be a table of pyarrow, pandas or polars, a dictionary of columns or a list of dictionaries, "
        f"got {type(given).__name__}: give pa.table({{'name': values}}), say"
    )


def _as_column(values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) or hasattr(values, "__arrow_array__"):
        return pa.array(values)
    return pa.array(values if isinstance(values, list | tuple) or hasattr(values, "__array__") else list(values))


def _check_names(names: Sequence[Any], schema: Schema | None) -> None:
    if schema is not None:
        unknown = [name for name in names if name not in schema]
        if unknown:
            raise InvalidInput(
                f"attributes must have the columns of the first ones added, {', '.join(schema)}, got {unknown[0]!r} "
                "too: leave it out, or name it to index.add_columns first"
            )
    if not names or len(names) > MAX_COLUMNS:
        raise InvalidInput(f"attributes must have from 1 to {MAX_COLUMNS} columns, got {len(names)}: choose some")
    if len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"columns must have distinct names, got {', '.join(map(repr, names))}: rename some")


def _type_of(name: str, kind: Any) -> str:
    """Return our name of the type by which a new column is stored."""
    types, remedy = pa.types, "cast it"
    if kind in NAMES:
        return NAMES[kind]
    if types.is_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_float16(kind):
        return "float32"
    if types.is_date64(kind):
        return "date"
    if types.is_timestamp(kind):
        stamp = f"timestamp[{kind.unit}]" if kind.tz is None else f"timestamp[{kind.unit}, {kind.tz}]"
        if TIMESTAMP.fullmatch(stamp):
            return stamp
    if types.is_dictionary(kind):
        inner = _type_of(name, kind.value_type)
        return "category" if inner == "string" else inner
    if (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)) and (
        types.is_null(kind.value_type) or _type_of(name, kind.value_type) in ("string", "category")
    ):
        return "strings"
    if types.is_null(kind):
        remedy = "all of its values are null: give it a type, as in pa.array(values, pa.string())"
    elif types.is_decimal(kind):
        remedy = "cast decimals to float64, or scale them to int64"
    raise InvalidInput(
        f"column {name!r} must hold booleans, numbers, strings, categories, bytes, dates, timestamps or lists of "
        f"strings, got {kind}: {remedy}"
    )


def _cast(name: str, column: Any, kind: Any) -> Any:
    """Return a column as the index stores it; values that would change are refused."""
    if column.type == kind and kind != CATEGORY:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if family(_type_of(name, column.type)) != family(NAMES.get(kind, "timestamp")) and not (
        pa.types.is_date(column.type) and pa.types.is_timestamp(kind)
    ):
        raise InvalidInput(f"column {name!r} holds {kind} in this index, got {column.type}: cast it")
    try:
        if kind == CATEGORY:
            return column.cast(pa.large_string()).dictionary_encode()
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidInput(
            f"column {name!r} holds {kind} in this index, got {column.type} ({error}): cast it"
        ) from error


def _combined(column: Any) -> Any:
    """Return the chunks of a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
