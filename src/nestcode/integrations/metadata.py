"""Metadata of documents as columns of an index, and conditions on them.

A key may have values of any type, and of another type in each document. So it gets a column for each type, named by a
letter and the key, when the first such value comes:

    b: booleans   i: integers   f: other numbers   s: texts   d: moments   e: the elements of a list   j: other values

Elements and other values are JSON. A comparison looks at the columns of its value's type; it is true or false, never
unknown: a document without the key is like one with another value.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import numpy as np

from nestcode.errors import InvalidInput

KINDS = {
    "b": "bool",
    "i": "int64",
    "f": "float64",
    "s": "string",
    "d": "timestamp[us, UTC]",
    "e": "strings",
    "j": "string",
}
MAX_DEPTH = 20  # of filters inside each other
MAX_VALUES = 1 << 16  # of a list
ORDERINGS = (">", ">=", "<", "<=")
LIKE_LETTERS = {"i": "if", "f": "if"}  # of columns that a value of another is compared with


def columns_of(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return values by their columns.

    >>> columns_of([("year", 2020), ("lang", "en"), ("tags", ["a", 4])])
    {'i:year': 2020, 's:lang': 'en', 'j:tags': '["a",4]', 'e:tags': ['"a"', '4']}
    """
    columns: dict[str, Any] = {}
    for key, value in fields:
        letter = _letter(value)
        if letter:
            columns[f"{letter}:{key}"] = STORED.get(letter, plain)(value)
        if isinstance(value, list | tuple):
            columns[f"e:{key}"] = [_json(one) for one in value]
    return columns


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def types_of(columns: Iterable[str]) -> dict[str, str]:
    """Return the types of columns of `columns_of` by name."""
    return {name: KINDS[name[0]] for name in columns}


@dataclass(frozen=True)
class Where:
    """A condition with the values of its parameters."""

    text: str
    values: tuple[Any, ...] = ()

    def __invert__(self) -> "Where":
        return Where(f"NOT ({self.text})", self.values)


NOWHERE = Where("name IS NULL")  # every document has a name
EVERYWHERE = Where("name IS NOT NULL")


def all_of(parts: Sequence[Where]) -> Where:
    """Return a condition that holds where all do.

    >>> all_of([Where("a = ?", (1,)), Where("b = ?", (2,))])
    Where(text='(a = ?) AND (b = ?)', values=(1, 2))
    """
    return _joined(" AND ", parts) if parts else EVERYWHERE


def any_of(parts: Sequence[Where]) -> Where:
    """Return a condition that holds where one does."""
    return _joined(" OR ", parts) if parts else NOWHERE


def named(names: Sequence[str]) -> Where:
    """Return a condition that holds for the documents with these names."""
    return any_of([Where("name IN ?", (list(names[i : i + MAX_VALUES]),)) for i in range(0, len(names), MAX_VALUES)])


def _joined(how: str, parts: Sequence[Where]) -> Where:
    if len(parts) == 1:
        return parts[0]
    return Where(how.join(f"({one.text})" for one in parts), tuple(value for one in parts for value in one.values))


class Metadata:
    """What conditions on metadata are made of.

    >>> metadata = Metadata.of_columns(["i:year", "s:year"])
    >>> metadata.compare("year", ">", 2020)
    Where(text='"i:year" IS NOT NULL AND "i:year" > ?', values=(2020,))
    >>> metadata.compare("month", ">", 5)
    Where(text='name IS NULL', values=())

    Args:
        columns: the column of each letter and key.

    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    @classmethod
    def of_columns(cls, names: Iterable[str]) -> Self:
        """Return the metadata that an index with these columns has."""
        return cls({name: name for name in names if name[1:2] == ":"})

    def compare(self, key: str, sign: str, value: Any) -> Where:
        """Return where a key has a value that is =, <, <=, > or >= another."""
        value = plain(value)
        letter = _letter(value)
        if letter in ("b", "j", "") and sign in ORDERINGS:
            raise InvalidInput(f"{sign} must compare with a number or a text, got {value!r:.80} for {key!r:.80}")
        if not letter:
            return self.missing(key)
        return self._where(key, LIKE_LETTERS.get(letter, letter), sign, _json(value) if letter == "j" else value)

    def one_of(self, key: str, values: Any) -> Where:
        """Return where a key has one of some values."""
        by_letters: dict[str, list[Any]] = {}
        for value in map(plain, checked_list(key, values)):
            letter = _letter(value)
            some = by_letters.setdefault(LIKE_LETTERS.get(letter, letter), [])
            some.append(_json(value) if letter == "j" else value)
        parts = [self.missing(key)] if by_letters.pop("", None) else []
        parts += [self._where(key, "b", "=", one) for one in dict.fromkeys(by_letters.pop("b", []))]
        return any_of([*parts, *(self._where(key, letters, "IN", some) for letters, some in by_letters.items())])

    def contains(self, key: str, value: Any) -> Where:
        """Return where the value of a key is a list with an element, or a text with a part."""
        value, column = plain(value), self._column("e", key)
        parts = [] if column is None else [
            Where(f"{column} IS NOT NULL AND array_contains({column}, ?)", (_json(value),))
        ]  # fmt: skip
        return any_of([*parts, self.contains_text(key, value)] if isinstance(value, str) else parts)

    def contains_text(self, key: str, part: str) -> Where:
        """Return where the value of a key is a text with a part."""
        escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return self._where(key, "s", "LIKE", f"%{escaped}%")

    def missing(self, key: str) -> Where:
        """Return where a document lacks a key, or has null."""
        columns = filter(None, (self._column(letter, key) for letter in KINDS))
        return all_of([Where(f"{column} IS NULL") for column in columns])

    def _where(self, key: str, letters: str, sign: str, value: Any) -> Where:
        columns = filter(None, (self._column(letter, key) for letter in letters))
        return any_of([Where(f"{column} IS NOT NULL AND {column} {sign} ?", (value,)) for column in columns])

    def _column(self, letter: str, key: str) -> str | None:
        """Return a column as it is written in a condition, or None where no document has such a value."""
        name = self._columns.get(f"{letter}:{key}")
        return None if name is None else '"' + name.replace('"', '""') + '"'


def check_depth(depth: int) -> None:
    """Raise if filters are too many inside each other."""
    if depth > MAX_DEPTH:
        raise InvalidInput(f"a filter must have at most {MAX_DEPTH} filters inside each other: flatten it")


def checked_list(key: str, values: Any) -> list[Any]:
    """Return the values that a filter lists for a key."""
    if isinstance(values, list | tuple | set | frozenset | np.ndarray):
        return list(values)
    raise InvalidInput(
        f"a filter must have a list of values for {key!r:.80}, got {values!r:.80}: give one, as in [2020]"
    )


def plain(value: Any) -> Any:
    """Return a value of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _letter(value: Any) -> str:
    """Return the letter of the column that a value lies in; none for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "i" if -(2**63) <= value < 2**63 else "f"
    if isinstance(value, float):
        return "f"
    if isinstance(value, str):
        return "s"
    if isinstance(value, datetime):
        return "d"
    return "j"


def _json(value: Any) -> str:
    """Return a value as JSON; equal numbers are equal texts."""
    try:
        return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"metadata must be compared with JSON values, got {type(value).__name__} ({error}): convert it first"
        ) from error


def _whole(value: Any) -> Any:
    """Return a value with integers in place of whole floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list | tuple) else value


STORED: dict[str, Callable[[Any], Any]] = {"j": _json, "f": _as_float}  # by letters, what is not stored as it is
