"""Codes in an SQLite database."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, groupby
from operator import itemgetter
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np

from nestcode.arrays import Ids
from nestcode.coders import Coder
from nestcode.codes import Codes
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index.ordered import Scan, key_of, keys_with
from nestcode.stores.base import DuplicateIds, MissingIds, check_settings, dump_coder, parse_settings
from nestcode.stores.neighborhood import Neighborhood
from nestcode.stores.sql import SqlStore, check_table, no_items, opened, quoted

WAIT = 60.0  # seconds for another writer
PRIMARY = 0xFF  # what an extended result code is a case of
UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FAILED = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
CACHE = 1 << 16  # KiB of pages: with SQLite's own 2 MB large additions take almost twice the time


class SqliteStore(SqlStore):
    """Codes in a table of an SQLite database.

    >>> import numpy as np
    >>> from nestcode import LinearCoder
    >>> X = np.random.default_rng(0).standard_normal((500, 8))
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, price REAL)")
    >>> _ = connection.executemany("INSERT INTO products VALUES (?, ?)", enumerate(range(500)))
    >>> store = SqliteStore.create(connection, LinearCoder(width=32).fit(X), items="products")
    >>> store.add(X, ids=np.arange(500))  # in the connection's transaction
    >>> connection.commit()
    >>> store.search(X[3], k=1, filter=("price > ?", 100)).ids[0] > 100
    np.True_

    """

    @classmethod
    def open(
        cls, database: str | PathLike[str] | sqlite3.Connection, table: str = "codes", *, items: str | None = None
    ) -> Self:
        """Open a store that `create` made.

        Args:
            database: a path, or a connection. On your connection you commit the changes; with a path each call is a
                transaction. A connection belongs to one thread, so open a store in each thread. In a read-only folder
                the file must not change while it is open.
            table: the table of the codes.
            items: your own table with a column `id`. Filters name its columns; without it they name the columns of
                `table`.

        """
        missing = InvalidInput(f"there is no store {table!r}: make it with SqliteStore.create")
        if not isinstance(database, sqlite3.Connection) and not Path(database).exists():  # or SQLite would make it
            raise missing
        connection, owned = _connect(database)
        with opened(connection, owned=owned):
            try:
                rows = _rows(connection, f"SELECT width, coder FROM {quoted(table, '_settings')}")
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                raise missing from None
            return cls(connection, table, items, *parse_settings(rows, f"the store {table}"), owned=owned)

    @classmethod
    def create(
        cls,
        database: str | PathLike[str] | sqlite3.Connection,
        coder: Coder | None = None,
        *,
        width: int | None = None,
        table: str = "codes",
        items: str | None = None,
    ) -> Self:
        """Create a store, and return it.

        Args:
            database: as for `open`. For a path it turns on the write-ahead log, so that readers and a writer do not
                wait for each other.
            coder: a fitted coder; without a coder the store accepts `Codes` only.
            width: the number of leading bits to keep; by default the coder's width.
            table: the name of the table. The items of an existing table stay; it must have columns `id` (unique) and
                `code`.
            items: as for `open`.

        """
        width, coder = check_settings(coder, width, cls.MAX_BYTES)
        connection, owned = _connect(database)
        with opened(connection, owned=owned):
            store = cls(connection, table, items, width, coder, owned=owned)
            try:
                store._create(table)
            except sqlite3.OperationalError as error:
                if str(error).startswith("no such"):
                    raise no_items(items, error) from None
                if "already exists" not in str(error):
                    raise
                raise InvalidInput(f"the store {table!r} exists: open it, or choose another name") from None
        return store

    def _create(self, table: str) -> None:
        execute = self._connection.execute
        if self._owned:
            execute("PRAGMA journal_mode = WAL")
        with _transaction(self._connection):
            if self._items is not None:
                execute(f"SELECT id FROM {self._items} LIMIT 0")
            execute(f"CREATE TABLE IF NOT EXISTS {self._table} (id INTEGER PRIMARY KEY, code BLOB NOT NULL)")
            self._index(table)
            execute(f"CREATE TABLE {self._settings} (width INTEGER, coder BLOB, items INTEGER)")
            settings = self.width, dump_coder(self.coder), len(self)
            execute(f"INSERT INTO {self._settings} VALUES (?, ?, ?)", settings)

    def _index(self, table: str) -> None:
        """Create an index over codes unless the table has one; raise if the table cannot hold items."""
        *schema, name = table.split(".")
        place = schema[0] if schema else None
        # Names as blobs: the connection may make anything of a text.
        columns = self._rows("SELECT CAST(lower(name) AS BLOB), pk FROM pragma_table_info(?, ?)", (name, place))
        parts = self._rows(
            'SELECT own.seq, own."unique", CAST(lower(part.name) AS BLOB) FROM pragma_index_list(?, ?) AS own, '
            "pragma_index_info(own.name, ?) AS part WHERE NOT own.partial ORDER BY own.seq, part.seqno",
            (name, place, place),
        )
        indexes = [[*own] for _, own in groupby(parts, key=itemgetter(0))]
        keys = [[column for _, unique, column in own if unique] for own in indexes]
        primary = [column for column, key in columns if key]
        check_table(table, [column.decode() for column, _ in columns], unique=[b"id"] in [primary, *keys])
        if any(own[0][2] == b"code" for own in indexes):
            return
        known = f"SELECT count(*) FROM {quoted(place or 'main')}.sqlite_master WHERE name = ? COLLATE NOCASE"
        free = next(one for n in count() if not self._value(known, (one := f"{name}_code{n or ''}",)))
        self._connection.execute(f"CREATE INDEX {quoted('.'.join([*schema, free]))} ON {quoted(name)} (code)")

    def _fetch(self, statement: str, values: tuple[Any, ...]) -> Scan:
        rows = self._rows(statement, values)
        return self._scan(*zip(*rows, strict=True)) if rows else self._scan([], [])

    def _value(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._rows(statement, values)[0][0]

    def _rows(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return _rows(self._connection, statement, values)
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            wrong = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR or "binding" in str(error)
            if not self._condition or not wrong:
                raise
            raise self._wrong_filter(error, column="no such column" in str(error)) from None
        except OverflowError as error:
            if not self._condition:
                raise
            raise self._wrong_filter(error, column=False) from None

    def _find_neighborhood(self, query: Codes, size: int) -> Neighborhood:
        """Return the smallest neighborhood of a query with at least `size` members.

        SQLite skips and counts keys several times as fast as it returns rows. So four keys around the query bound the
        length of the prefix, counts decide where the bounds differ, and the ids of the members are all that is read.
        """
        key = key_of(query)
        with self._reading():
            length, most = self._bound_length(key, size)
            while length < most:
                middle = (length + most + 1) // 2
                if self._count_members(key, middle, size) < size:
                    most = middle - 1
                else:
                    length = middle
            return Neighborhood(length, self._members(key, length))

    def _bound_length(self, key: bytes, size: int) -> tuple[int, int]:
        """Return bounds on the length of the smallest neighborhood with `size` members.

        Either half of the members are at least on the left, or more than half of them on the right.
        """
        half = (size + 1) // 2
        sides = [("c.code < ?", "DESC", half), ("c.code >= ?", "ASC", size - half + 1)]
        keys = [
            f"(SELECT c.code {self._from(side)} ORDER BY c.code {order} LIMIT 1 OFFSET {place - 1})"
            for side, order, near in sides
            for place in (near, size)
        ]
        ((*found,),) = self._rows(f"SELECT {', '.join(keys)}", (key, *self._values) * 4)
        self._check_codes(code for code in found if code is not None)
        before, far_before, after, far_after = (_common_bits(key, other, self.width) for other in found)
        return max(far_before, far_after, min(before, after)), max(before, after)

    def _count_members(self, key: bytes, length: int, limit: int) -> int:
        """Return how many items share the first `length` bits of a key, up to a limit."""
        within = self._from("c.code >= ?", "c.code < ?")
        values = *keys_with(key, length, self.width), *self._values, limit
        return int(self._value(f"SELECT count(*) FROM (SELECT 1 {within} LIMIT ?)", values))

    def _members(self, key: bytes, length: int) -> Ids:
        """Return the ids of items that share the first `length` bits of a key, in the order of their codes."""
        within = self._from("c.code >= ?", "c.code < ?")
        values = *keys_with(key, length, self.width), *self._values
        # As one text: rows take twice the time. As a blob: the connection may make anything of a text.
        columns = f"CAST(group_concat(id) AS BLOB), sum(size <> {self._code_bytes})"
        members = f"SELECT {columns} FROM (SELECT c.id, length(c.code) AS size {within} ORDER BY c.code)"
        ((listed, foreign),) = self._rows(members, values)
        ids: Ids = np.fromstring(listed or b"", dtype=np.int64, sep=",")
        if foreign or (ids < 0).any():
            raise self._foreign_items()
        return self._check_distinct(ids)

    def _range(self, low: bytes, high: bytes) -> Scan:
        within = self._from("c.code >= ?", "c.code < ?")
        return self._fetch(f"SELECT c.id, c.code {within} ORDER BY c.code", (low, high, *self._values))

    def _select(self, ids: Ids) -> Scan:
        among = f"FROM {self._table} WHERE id IN (SELECT value FROM json_each(?))"
        return self._fetch(f"SELECT id, code {among}", (str(ids.tolist()),))

    def _insert(self, items: Scan, *, replace: bool) -> None:
        ids, packed = items.ids.tolist(), items.codes.packed
        rows = zip(ids, (row.tobytes() for row in packed), strict=True)
        with _transaction(self._connection):
            gone = self._delete_some(items.ids) if replace else 0
            try:
                self._connection.executemany(f"INSERT INTO {self._table} (id, code) VALUES (?, ?)", rows)
            except sqlite3.IntegrityError as error:
                raise DuplicateIds from error
            self._count(len(ids) - gone)

    def _delete(self, ids: Ids) -> None:
        with _transaction(self._connection):
            gone = self._delete_some(ids)
            if gone != len(ids):
                raise MissingIds
            self._count(-gone)

    def _delete_some(self, ids: Ids) -> int:
        chosen = f"DELETE FROM {self._table} WHERE id IN (SELECT value FROM json_each(?))"
        return int(self._connection.execute(chosen, (str(ids.tolist()),)).rowcount)

    def _count(self, change: int) -> None:
        self._connection.execute(f"UPDATE {self._settings} SET items = items + ?", (change,))

    def _estimated_count(self) -> int:
        return int(self._value(f"SELECT items FROM {self._settings}", ()))  # count(*) reads the whole table

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._connection.in_transaction:
            yield
            return
        with _naming_file(self._connection):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()


def _connect(database: str | PathLike[str] | sqlite3.Connection) -> tuple[sqlite3.Connection, bool]:
    """Return a connection, and whether it was opened here."""
    if isinstance(database, sqlite3.Connection):
        return database, False
    connection = sqlite3.connect(fspath(database), timeout=WAIT, isolation_level=None)
    with opened(connection, owned=True):
        try:
            connection.execute(f"PRAGMA cache_size = -{CACHE}")
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                raise DamagedFile(f"{fspath(database)} is not an SQLite database: give the path of one") from None
            if error.sqlite_errorcode & PRIMARY in DAMAGED:
                raise DamagedFile(f"{fspath(database)} is damaged ({error}): restore a copy") from None
            path = Path(database).absolute()
            if error.sqlite_errorcode & PRIMARY not in UNWRITABLE or Path(f"{path}-wal").exists():
                raise
            connection.close()  # a write-ahead log needs a writable folder, also to read
            connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True, isolation_level=None)
    return connection, True


def _rows(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a statement as tuples, whatever rows the connection makes."""
    with _naming_file(connection):
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, values).fetchall()


def _common_bits(key: bytes, other: bytes | None, width: int) -> int:
    """Return how many leading bits two keys share; 0 if there is no other key."""
    if other is None:
        return 0
    differ = int.from_bytes(key) ^ int.from_bytes(other)
    return min(8 * len(key) - differ.bit_length(), width)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run all statements or none; the user commits what a connection does not commit by itself."""
    commits = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    began = not connection.in_transaction
    with _naming_file(connection):
        if began:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("SAVEPOINT nestcode")
        try:
            yield
            connection.execute("RELEASE nestcode")
            if began and commits:
                connection.commit()
        except BaseException:
            if connection.in_transaction and not began:  # a full disk may have ended it
                connection.execute("ROLLBACK TO nestcode")
                connection.execute("RELEASE nestcode")
            if began:
                connection.rollback()
            raise


@contextmanager
def _naming_file(connection: sqlite3.Connection) -> Iterator[None]:
    """Let errors of a file that is damaged or cannot be written name it, and those of another thread the remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if "same thread" in str(error):
            raise InvalidInput(
                "a connection of SQLite must be used in the thread that opened it, got another one: open a store in "
                "each thread, or give store.using(connection) a connection of the thread"
            ) from error
        code = getattr(error, "sqlite_errorcode", 0) & PRIMARY  # the module's own errors have none
        if code not in (*UNWRITABLE, *FAILED, *DAMAGED):
            raise
        cursor = connection.cursor()
        cursor.row_factory = None
        path = cursor.execute("PRAGMA database_list").fetchall()[0][2] or "the database in memory"
        if code in DAMAGED:
            raise DamagedFile(f"{path} is damaged ({error}): restore a copy") from error
        if code in FAILED:
            raise OSError(f"{path} cannot be written ({error}): make room, or choose another place") from error
        raise PermissionError(f"{path} is not writable: change its permissions, or copy it") from error
