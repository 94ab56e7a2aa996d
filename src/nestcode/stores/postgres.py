"""Codes in PostgreSQL, or in a database that speaks its protocol."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any, Self

import numpy as np

from nestcode.arrays import Ids
from nestcode.coders import Coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.index.ordered import Scan
from nestcode.stores.base import (
    DuplicateIds,
    MissingIds,
    batches,
    check_settings,
    concat,
    dump_coder,
    is_enough,
    keep,
    parse_settings,
)
from nestcode.stores.search import KeyRange, list_ranges
from nestcode.stores.sql import SqlStore, check_table, no_items, opened, quoted

import_extra("psycopg", extra="postgres", purpose="PostgresStore")

import psycopg  # noqa: E402
from psycopg.pq import TransactionStatus  # noqa: E402
from psycopg.rows import tuple_row  # noqa: E402

COPIED = 1 << 13  # items that a message of COPY holds
COUNTED = 10_000  # items that are counted; more are estimated from the statistics


class PostgresStore(SqlStore):
    """Codes in a table of PostgreSQL with an ordinary b-tree, `(code) INCLUDE (id)`; no extension is needed.

        store = PostgresStore.create("dbname=shop", coder, items="products")
        store.add(X, ids=ids)
        store.search(query, k=10, filter=("price < %s", 100))

    >>> PostgresStore.open("host=/nowhere")
    Traceback (most recent call last):
        ...
    psycopg.OperationalError: ...

    """

    PLACEHOLDER = "%s"
    _held = 0.0  # items that a probed list held on average, in the last search
    MAX_BYTES = 2600  # a key of PostgreSQL's b-tree takes a third of a page at most

    @classmethod
    def open(cls, database: "str | psycopg.Connection[Any]", table: str = "codes", *, items: str | None = None) -> Self:
        """Open a store that `create` made.

        Args:
            database: a connection string, or a connection of psycopg. On your connection the store works in your
                transaction, and you commit. With a connection string each call is a transaction.
            table: the table of the codes.
            items: your own table with a column `id`. Filters name its columns; without it they name the columns of
                `table`.

        """
        connection, owned = _connect(database)
        settings = quoted(table, "_settings")
        with opened(connection, owned=owned):
            if _execute(connection, "SELECT to_regclass(%s)", (settings,)) == [(None,)]:
                raise InvalidInput(f"there is no store {table!r}: make it with PostgresStore.create")
            rows = _execute(connection, f"SELECT width, coder FROM {settings}")
            return cls(connection, table, items, *parse_settings(rows, f"the store {table}"), owned=owned)

    @classmethod
    def create(
        cls,
        database: "str | psycopg.Connection[Any]",
        coder: Coder | None = None,
        *,
        width: int | None = None,
        table: str = "codes",
        items: str | None = None,
    ) -> Self:
        """Create a store, and return it.

        Args:
            database: as for `open`.
            coder: a fitted coder; without a coder the store accepts `Codes` only.
            width: the number of leading bits to keep, at most 20,800; by default the coder's width.
            table: the name of the table. An existing table must have columns `id` and `code`, an index over `code` and
                a unique index over `id`; in a partitioned table you ensure that ids are unique.
            items: as for `open`.

        """
        width, coder = check_settings(coder, width, cls.MAX_BYTES)
        connection, owned = _connect(database)
        with opened(connection, owned=owned):
            store = cls(connection, table, items, width, coder, owned=owned)
            try:
                store._create(table)
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                raise no_items(items, error) from None
            except psycopg.errors.DuplicateTable:
                raise InvalidInput(f"the store {table!r} exists: open it, or choose another name") from None
        return store

    def _create(self, table: str) -> None:
        with self._transaction():
            if self._items is not None:
                self._execute(f"SELECT id FROM {self._items} LIMIT 0")
            if self._value("SELECT to_regclass(%s)", (self._table,)) is None:
                self._execute(f"CREATE TABLE {self._table} (id bigint PRIMARY KEY, code bytea NOT NULL)")
                self._execute(f"CREATE INDEX ON {self._table} (code) INCLUDE (id)")  # under a name that is free
            self._check_table(table)
            self._execute(f"CREATE TABLE {self._settings} (width integer NOT NULL, coder bytea NOT NULL)")
            self._execute(f"INSERT INTO {self._settings} VALUES (%s, %s)", (self.width, dump_coder(self.coder)))

    def _check_table(self, table: str) -> None:
        own = "attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        columns = self._execute(f"SELECT attname::text FROM pg_attribute WHERE {own} ORDER BY attnum", (self._table,))
        # A unique index of a partitioned table has to have what the table is partitioned by.
        key = "SELECT attnum FROM pg_attribute WHERE attrelid = own.oid AND attname = 'id'"
        keys = f"indrelid = own.oid AND indisunique AND indpred IS NULL AND indnkeyatts = 1 AND indkey[0] = ({key})"
        unique = f"own.relkind <> 'r' OR EXISTS (SELECT 1 FROM pg_index WHERE {keys})"
        found = self._value(f"SELECT {unique} FROM pg_class AS own WHERE oid = to_regclass(%s)", (self._table,))
        check_table(table, [name for (name,) in columns], unique=found)

    def _around(self, key: bytes, limit: int, length: int) -> tuple[Scan, Scan]:
        columns = self._columns(f"substring(code, 1, {-(-length // 8)})")
        sides = self._ascending(limit), self._descending(limit)
        statement = " UNION ALL ".join(f"SELECT {columns} FROM ({side}) AS side" for side in sides)
        rows = self._execute(statement, (key, *self._values) * 2)
        after, before = (self._unpack(*row, length=length) for row in rows)
        return after, before

    def _fetch(self, statement: str, values: tuple[Any, ...]) -> Scan:
        (row,) = self._execute(f"SELECT {self._columns()} FROM ({statement}) AS found", values)
        return self._unpack(*row)

    def _value(self, statement: str, values: tuple[Any, ...]) -> Any:
        ((value,),) = self._execute(statement, values)
        return value

    def _range(self, low: bytes, high: bytes) -> Scan:
        if low == b"":  # everything: in parts, as a value has at most 1 GB
            return concat(self._ranges(list_ranges(min(8, self.width), self.width)))
        within = self._from("c.code >= %s", "c.code < %s")
        return self._fetch(f"SELECT c.id, c.code {within} ORDER BY c.code", (low, high, *self._values))

    def _ranges(self, ranges: list[KeyRange]) -> list[Scan]:
        """Return the items of several ranges in one statement, so of one snapshot."""
        within = self._from("c.code >= low", "c.code < high")
        lateral = f"LATERAL (SELECT {self._columns()} FROM (SELECT c.id, c.code {within}) AS part) AS found"
        lists = "unnest(%s::bytea[], %s::bytea[]) WITH ORDINALITY AS lists (low, high, place)"
        lows, highs = (list(bounds) for bounds in zip(*ranges, strict=True))
        rows = self._execute(
            f"SELECT found.* FROM {lists} CROSS JOIN {lateral} ORDER BY place", (lows, highs, *self._values)
        )
        return [self._unpack(*row) for row in rows]

    def _probe(self, lists: list[KeyRange], budget: int, chosen: Ids | None, share: float) -> Scan:
        """Return the items of the first lists that hold `budget` items, or of all lists.

        The number of lists is predicted from earlier searches. If these lists hold too few items, a larger number is
        read again, all in one statement.
        """
        held = self._held or max(1.0, self._estimated_count() / len(lists))
        many = ceil(budget / held)
        while True:
            every = self._ranges(lists[:many])
            scans = [keep(scan, chosen) for scan in every]
            ends, passed = (np.cumsum([len(scan.ids) for scan in part]) for part in (scans, every))
            done = np.flatnonzero(is_enough(ends, passed, budget, share))
            enough = int(done[0]) + 1 if len(done) else len(ends) + 1
            self._held = max(1.0, float(ends[min(enough, len(ends)) - 1]) / min(enough, len(ends)))
            if enough <= len(ends) or many >= len(lists):
                return concat(scans[:enough])
            many = max(2 * many, ceil(budget / self._held))

    def _select(self, ids: Ids) -> Scan:
        return self._fetch(f"SELECT id, code FROM {self._table} WHERE id = ANY(%s)", (ids.tolist(),))

    def _insert(self, items: Scan, *, replace: bool) -> None:
        try:
            with self._transaction():
                if replace:
                    # Or the same ids could come back between the two statements.
                    self._execute(f"LOCK TABLE {self._table} IN SHARE ROW EXCLUSIVE MODE")
                    self._execute(f"DELETE FROM {self._table} WHERE id = ANY(%s)", (items.ids.tolist(),))
                statement = f"COPY {self._table} (id, code) FROM STDIN (FORMAT BINARY)".encode()
                with psycopg.Cursor(self._connection) as cursor, cursor.copy(statement) as copy:
                    for message in _copy_messages(items):
                        copy.write(message)
        except psycopg.errors.UniqueViolation as error:
            raise DuplicateIds from error

    def _delete(self, ids: Ids) -> None:
        with self._transaction():
            gone = self._execute(f"DELETE FROM {self._table} WHERE id = ANY(%s) RETURNING id", (ids.tolist(),))
            if len(gone) != len(ids):
                raise MissingIds

    def _estimated_count(self) -> int:
        known = self._value("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)", (self._table,))
        return len(self) if known is None or known < COUNTED else int(known)

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return _execute(self._connection, statement, values)
        except psycopg.ProgrammingError as error:  # of the server, and of the driver where values are too few
            named = isinstance(error, psycopg.errors.UndefinedColumn)
            if not self._condition or not (
                named or isinstance(error, psycopg.errors.SyntaxError) or not error.sqlstate
            ):
                raise
            raise self._wrong_filter(error, column=named) from None

    def _columns(self, code: str = "code") -> str:
        """Return the columns that a statement selects: ids, codes, and the number of codes of another size.

        Items come as two long values: thousands of them as rows take almost twice the time.
        """
        foreign = f"count(*) FILTER (WHERE octet_length(code) <> {self._code_bytes})"
        return f"string_agg(int8send(id), ''::bytea), string_agg({code}, ''::bytea), {foreign}"

    def _unpack(self, ids: bytes | None, codes: bytes | None, foreign: int, *, length: int | None = None) -> Scan:
        if foreign:
            raise self._foreign_items()
        return self._packed_scan(np.frombuffer(ids or b"", dtype=">i8").astype(np.int64), codes or b"", length)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run all statements or none; the user commits what a connection does not commit by itself."""
        idle = self._connection.info.transaction_status == TransactionStatus.IDLE
        if idle and not self._connection.autocommit:
            self._execute("SELECT 1")  # begins the user's transaction, or else this one would commit
        with self._connection.transaction():
            yield


def _connect(database: "str | psycopg.Connection[Any]") -> "tuple[psycopg.Connection[Any], bool]":
    """Return a connection, and whether it was opened here."""
    if isinstance(database, psycopg.Connection):
        return database, False
    if not isinstance(database, str):
        raise InvalidInput(f"expected a connection string or a psycopg.Connection, got {type(database).__name__}")
    return psycopg.connect(database, autocommit=True), True


def _execute(
    connection: "psycopg.Connection[Any]", statement: str, values: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, whatever rows and cursors the connection makes."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.execute(statement.encode(), values, binary=True)
    # The usual test, of `description`, takes a tenth of a query.
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def _copy_messages(items: Scan) -> Iterator[bytes]:
    """Yield the input of COPY: rows of two fields, each preceded by its length."""
    size = items.codes.packed.shape[1]
    row = np.dtype([("fields", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("code", "u1", (size,))])
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    for ids, codes in batches(items, COPIED):
        rows = np.empty(len(ids), dtype=row)
        rows["fields"], rows["a"], rows["b"] = 2, 8, size
        rows["id"], rows["code"] = ids, codes.packed
        yield rows.tobytes()
    yield b"\xff\xff"
