"""The base of SQL stores: statements over a table of ids and codes, and filters on columns of the user's own table.

codes (id, code)                        an ordinary table; a b-tree over code answers every scan
codes_settings (width, coder, items)    one row: the coder travels with the codes
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np

from nestcode.arrays import Ids
from nestcode.coders import Coder
from nestcode.errors import InvalidInput
from nestcode.index.ordered import Scan
from nestcode.stores.base import Closed, CodeStore


class SqlStore(CodeStore):
    """A table of ids and codes.

    Args:
        connection: of the database's driver.
        table: the name of the table, which may have a schema: "public.codes".
        items: the user's own table with a column `id`, whose columns filters name.
        width: bits of a code.
        coder: of the items, if there is one.
        owned: whether the store opened its connection, and closes it.

    """

    PLACEHOLDER = "?"

    def __init__(
        self, connection: Any, table: str, items: str | None, width: int, coder: Coder | None, *, owned: bool
    ) -> None:
        super().__init__(width, coder)
        self._connection, self._owned = connection, owned
        self._table, self._items = quoted(table), None if items is None else quoted(items)
        self._settings = quoted(table, "_settings")
        self._condition, self._values = "", ()

    def using(self, connection: Any) -> Self:
        """Return this store on another connection, for example one out of a pool; its coder is not read again."""
        other = copy(self)
        other._connection, other._owned = connection, False
        return other

    def close(self) -> None:
        """Close the connection if the store opened it; a connection that you passed stays open."""
        if self._owned:
            self._connection.close()
            self._connection, self._owned = Closed(), False

    @abstractmethod
    def _fetch(self, statement: str, values: tuple[Any, ...]) -> Scan:
        """Return the items of a statement that selects ids and codes."""

    @abstractmethod
    def _value(self, statement: str, values: tuple[Any, ...]) -> Any:
        """Return the only value of a statement."""

    def __len__(self) -> int:
        return int(self._value(f"SELECT count(*) FROM {self._table}", ()))

    def _filtered(self, condition: Any) -> tuple[CodeStore, Ids | None]:
        condition = (condition,) if isinstance(condition, str) else condition
        if not isinstance(condition, tuple) or not condition or not isinstance(condition[0], str):
            return super()._filtered(condition)
        view = copy(self)
        several = len(condition) == 2 and isinstance(condition[1], list | tuple | np.ndarray)
        given = condition[1] if several else condition[1:]
        # Drivers would store NumPy's scalars as they are in memory, and compare that.
        values = tuple(value.item() if isinstance(value, np.generic) else value for value in given)
        for text in (condition[0], *values):
            if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise InvalidInput(f"a filter must be Unicode, got a lone surrogate in {text!r:.80}: decode it again")
        if "\0" in condition[0]:
            raise InvalidInput(f"a filter must have no null characters, got {condition[0]!r:.80}: remove them")
        view._condition, view._values = f"({condition[0]})", values
        return view, None

    def _at_most(self, budget: int) -> Scan | None:
        if not self._condition:
            return None
        few = f"SELECT count(*) FROM (SELECT 1 {self._from()} LIMIT {budget + 1}) AS few"
        if self._value(few, self._values) > budget:
            return None
        return self._fetch(f"SELECT c.id, c.code {self._from()}", self._values)

    def _packed_scan(self, ids: Ids, codes: bytes, length: int | None = None) -> Scan:
        return super()._packed_scan(self._check_distinct(ids), codes, length)

    def _check_distinct(self, ids: Ids) -> Ids:
        """Return ids; raise if one is repeated, because its item would count several times."""
        if self._items and self._condition and len(np.unique(ids)) < len(ids):
            raise InvalidInput(
                f"a filter takes a table with each id once, got some twice in {self._items}: give a view with distinct "
                "ids as items, or filter by c.id IN (SELECT id FROM …) without items"
            )
        return ids

    def _wrong_filter(self, error: Exception, *, column: bool) -> InvalidInput:
        """Return the error of a filter that is not SQL, or names a column that the table does not have."""
        remedy = f"write SQL, and give a value for each {self.PLACEHOLDER}, as in (condition, [value])"
        if column:
            remedy = (
                "name one of its columns" if self._items else "open the store with items=, the name of your own table"
            )
        return InvalidInput(
            f"a filter is a condition on {self._items or self._table}, got {self._condition} "
            f"({str(error).splitlines()[0]}): {remedy}"
        )

    def _ascend(self, key: bytes, limit: int) -> Scan:
        return self._fetch(self._ascending(limit), (key, *self._values))

    def _descend(self, key: bytes, limit: int) -> Scan:
        return self._fetch(self._descending(limit), (key, *self._values))

    # Limits are part of the text: PostgreSQL would plan a prepared statement anew for each value of a placeholder.

    def _ascending(self, limit: int) -> str:
        after = self._from(f"c.code >= {self.PLACEHOLDER}")
        return f"SELECT c.id, c.code {after} ORDER BY c.code LIMIT {limit}"

    def _descending(self, limit: int) -> str:
        before = self._from(f"c.code < {self.PLACEHOLDER}")
        return f"SELECT c.id, c.code {before} ORDER BY c.code DESC LIMIT {limit}"

    def _from(self, *conditions: str) -> str:
        """Return the tables and the condition of a statement; the values of the filter come last."""
        joined = f" JOIN {self._items} USING (id)" if self._items and self._condition else ""
        every = " AND ".join([*conditions, *filter(None, [self._condition])])
        return f"FROM {self._table} AS c{joined}" + (f" WHERE {every}" if every else "")


@contextmanager
def opened(connection: Any, *, owned: bool) -> Iterator[None]:
    """Close a connection that was opened here if what follows fails."""
    try:
        yield
    except BaseException:
        if owned:
            connection.close()
        raise


def check_table(table: str, columns: Collection[str], *, unique: bool) -> None:
    """Raise unless an existing table has the columns of items and a unique index over ids."""
    if not {"id", "code"} <= {*columns}:
        raise InvalidInput(
            f"the table {table!r} must have columns id and code, got {', '.join(columns)}: add the missing column, or "
            "choose another name"
        )
    if not unique:
        raise InvalidInput(
            f"ids of the table {table!r} must be unique, but no index ensures it: make id its primary key, or CREATE "
            "UNIQUE INDEX on (id)"
        )


def no_items(items: str | None, error: Exception) -> InvalidInput:
    """Return the error of a table that the user names and the database does not have."""
    return InvalidInput(
        f"items must name a table with a column id, got {items!r} ({str(error).splitlines()[0]}): create it first, or "
        "leave items out"
    )


def quoted(name: str, suffix: str = "") -> str:
    """Return the name of a table as SQL writes it.

    >>> quoted("public.codes", "_settings"), quoted('odd"name')
    ('"public"."codes_settings"', '"odd""name"')
    """
    if not isinstance(name, str) or not all(name.split(".")):
        raise InvalidInput(f"a table must have a name, or schema.name, got {name!r}")
    return ".".join('"' + part.replace('"', '""') + '"' for part in f"{name}{suffix}".split("."))
