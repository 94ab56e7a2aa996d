"""Codes as columns of Arrow tables and Parquet files, which DuckDB, Polars, Spark and similar tools read.

A table has two columns: `code`, fixed-size binary, ascending, and `id`, int64. A sorted column is the prefix tree: the
items that share a prefix form a range, and readers skip the row groups outside it by their min/max statistics.

    low, high = prefix_range(query.prefix(12), width=64)
    duckdb.execute("SELECT id FROM 'codes.parquet' WHERE code BETWEEN ? AND ?", [low, high])
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestcode.arrays import check_ids, check_int
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput, import_extra
from nestcode.index.segment import MAX_WIDTH
from nestcode.storage import write_pieces

import_extra("pyarrow", extra="arrow", purpose="nestcode.integrations.arrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

KEY, VERSION = b"nestcode", 1
GROUP = 1 << 16  # rows per row group, which a reader reads or skips as one


@dataclass(frozen=True)
class Columns:
    """The columns of a table, in the order of its rows.

    >>> from_arrow(to_arrow(Codes.from_bits([[1, 1], [0, 1]])))
    Columns(codes=Codes(2 items of 2 bits: 01, 11), ids=array([1, 0]), coder=None)
    """

    codes: Codes
    ids: NDArray[np.int64]
    coder: str | None  # the fingerprint of the codes' coder, if it is in the metadata


def to_arrow(codes: Codes, ids: ArrayLike | None = None, *, coder: Coder | None = None) -> pa.Table:
    r"""Return a table of codes in ascending order, with width and the coder's fingerprint in its metadata.

    >>> table = to_arrow(Codes.from_bits([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    >>> table["code"].to_pylist(), table["id"].to_pylist()
    ([b' ', b'@', b'\xc0'], [2, 1, 0])

    Args:
        codes: codes of at least one bit.
        ids: an integer for each code; by default its position in `codes`.
        coder: the codes' coder. Only its fingerprint is stored; `coder.save` stores the coder.

    """
    if not isinstance(codes, Codes) or codes.width == 0:
        raise InvalidInput(
            f"codes must be Codes of at least 1 bit, got {codes!r}: wrap packed bytes as Codes(packed, width)"
        )
    item_ids = np.arange(len(codes)) if ids is None else check_ids(ids, len(codes), distinct=False)
    order = codes.sort_order()
    rows = np.ascontiguousarray(codes.packed[order])
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
    metadata = {"version": VERSION, "width": codes.width, "coder": None if coder is None else coder.fingerprint}
    fields = [pa.field("code", column.type, nullable=False), pa.field("id", pa.int64(), nullable=False)]
    return pa.table([column, pa.array(item_ids[order])], schema=pa.schema(fields, {KEY: json.dumps(metadata).encode()}))


def from_arrow(table: pa.Table, width: int | None = None) -> Columns:
    """Return the codes and ids of a table, or of the rows that a query selected, in their order.

    >>> table = to_arrow(Codes.from_bits([[1, 1, 0], [0, 1, 0], [0, 0, 1]]), ids=[10, 20, 30])
    >>> columns = from_arrow(table.slice(1))
    >>> columns.codes, columns.ids
    (Codes(2 items of 3 bits: 010, 110), array([20, 10]))

    Args:
        table: an Arrow table.
        width: bits of a code, in case a tool dropped the metadata; by default 8 per byte.

    """
    missing = [name for name in ("code", "id") if name not in table.column_names]
    if missing:
        raise InvalidInput(f"the table must have columns code and id, got {table.column_names}: rename its columns")
    stated, coder = _read_metadata(table.schema)
    if width is not None and stated not in (None, width):
        raise InvalidInput(f"width must be the table's {stated} bits, got width {width}: leave it out")
    width = stated if width is None else check_int(width, "width", least=1)
    packed = _packed(table["code"], None if width is None else -(-width // 8))
    ids = table["id"]
    if ids.null_count or not pa.types.is_integer(ids.type):
        raise InvalidInput(
            f"the column id must hold integers, got {ids.type} with {ids.null_count} nulls: cast it to int64"
        )
    codes = Codes(packed, 8 * packed.shape[1] if width is None else width)
    return Columns(codes, ids.to_numpy().astype(np.int64), coder)


def write_parquet(
    path: str | os.PathLike[str], codes: Codes, ids: ArrayLike | None = None, *, coder: Coder | None = None
) -> None:
    """Write codes to a Parquet file in ascending order, with page checksums, atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(f"{folder}/codes.parquet", Codes.from_bits([[1, 0], [0, 1]]))
    ...     read_parquet(f"{folder}/codes.parquet").codes
    Codes(2 items of 2 bits: 01, 10)
    """
    table = to_arrow(codes, ids, coder=coder)
    out = pa.BufferOutputStream()
    order = pq.SortingColumn.from_ordering(table.schema, [("code", "ascending")])
    pq.write_table(
        table, out, row_group_size=GROUP, use_dictionary=False, sorting_columns=order, write_page_checksum=True
    )
    write_pieces(path, [memoryview(out.getvalue())])


def read_parquet(path: str | os.PathLike[str], prefix: Codes | None = None) -> Columns:
    """Read the codes in a Parquet file of `write_parquet`: all codes, or the codes with a prefix.

    >>> import tempfile
    >>> codes = Codes.from_bits([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(f"{folder}/codes.parquet", codes)
    ...     read_parquet(f"{folder}/codes.parquet", prefix=codes[2].prefix(1)).ids
    array([2, 1])
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path that write_parquet wrote")
    try:
        filters = None
        if prefix is not None:
            width, _ = _read_metadata(pq.read_schema(path))
            if width is None:
                raise DamagedFile(
                    f"{path} has no width in its metadata, which a prefix needs: write it with write_parquet"
                )
            low, high = prefix_range(prefix, width)
            filters = [("code", ">=", low), ("code", "<=", high)]
        return from_arrow(pq.read_table(path, filters=filters, page_checksum_verification=True))
    except (pa.ArrowException, OSError) as error:
        raise DamagedFile(f"{path} is damaged or not a Parquet file ({error}): restore a copy") from error


def prefix_range(prefix: Codes, width: int) -> tuple[bytes, bytes]:
    r"""Return the first and the last code of `width` bits with a prefix, for SQL's `BETWEEN`.

    >>> prefix_range(Codes.from_bits([[1, 0, 1]]), width=16)
    (b'\xa0\x00', b'\xbf\xff')

    Args:
        prefix: one prefix of any length from 0 to the width.
        width: bits of the codes in the column.

    """
    width = check_int(width, "width", least=1, most=MAX_WIDTH)
    if not isinstance(prefix, Codes) or len(prefix) != 1 or prefix.width > width:
        raise InvalidInput(
            f"prefix must be one code of at most {width} bits, got {prefix!r}: give codes[0].prefix(12), say"
        )
    ends = np.zeros((2, width), dtype=bool)
    ends[:, : prefix.width] = prefix.bits()
    ends[1, prefix.width :] = True
    low, high = np.packbits(ends, axis=1)
    return low.tobytes(), high.tobytes()


def _read_metadata(schema: pa.Schema) -> tuple[int | None, str | None]:
    """Return the width and the coder's fingerprint in a table's metadata, or None for each."""
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        return None, None
    try:
        values = json.loads(text)
        width, coder, version = check_int(values["width"], "width", least=1), values["coder"], int(values["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the table's metadata is damaged ({error}): write it again") from error
    if version > VERSION:
        raise DamagedFile(f"the table has version {version}, this nestcode reads up to {VERSION}: upgrade nestcode")
    return width, coder


def _packed(column: pa.ChunkedArray, size: int | None) -> NDArray[np.uint8]:
    """Return the bytes of a binary column, (n, size), of fixed size or, as other tools return it, variable size."""
    kind = column.type
    if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InvalidInput(f"the column code must hold bytes, got {kind}: write packed codes")
    if column.null_count:
        raise InvalidInput(f"codes must not be null, got {column.null_count} nulls: drop these rows")
    if size is None:
        size = len(column[0].as_py()) if len(column) else 1
    try:
        rows = column.cast(pa.large_binary()).cast(pa.binary(size)).combine_chunks()
    except pa.ArrowInvalid as error:
        raise InvalidInput(
            f"codes must all have {size} bytes, but the sizes differ ({error}): write codes of one width"
        ) from error
    data = rows.buffers()[1] if len(rows) else b""
    return np.frombuffer(data, np.uint8, len(rows) * size, rows.offset * size).reshape(-1, size)
