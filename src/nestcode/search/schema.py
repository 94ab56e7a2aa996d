"""The columns of an index by name and type, as in manifests: the part of attributes that needs no pyarrow."""

import re
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, str]  # the type of each column by name
MAX_COLUMNS = 1000
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
OTHERS = ("bool", "string", "bytes", "category", "strings", "date")
TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, ([\w/+:-]{1,64}))?\]")


def family(kind: str) -> str:
    """Return the family of a type: types of one family are compared and converted without a choice.

    >>> family("int8"), family("category"), family("timestamp[us, UTC]")
    ('number', 'string', 'timestamp')
    """
    return "number" if kind in NUMBERS else "string" if kind == "category" else kind.partition("[")[0]


def is_extended(before: Schema, after: Schema) -> bool:
    """Return whether columns begin with earlier columns, to which the rest were added.

    >>> is_extended({"lang": "string"}, {"lang": "string", "year": "int64"})
    True
    """
    return list(before.items()) == list(after.items())[: len(before)]


def check_schema(columns: Any) -> Schema:
    """Return the columns that a manifest describes, or raise ValueError.

    >>> check_schema({"year": "int64"})
    {'year': 'int64'}
    """
    if not isinstance(columns, dict) or not 0 < len(columns) <= MAX_COLUMNS:
        raise ValueError(f"its attributes should be from 1 to {MAX_COLUMNS} columns")
    for name, kind in columns.items():
        known = isinstance(kind, str) and (kind in NUMBERS or kind in OTHERS or TIMESTAMP.fullmatch(kind))
        if not isinstance(name, str) or not name:
            raise ValueError(f"{name!r} is no name of a column")
        name.encode()  # which raises ValueError for a lone surrogate
        if not known:
            raise ValueError(f"{kind!r:.80} is no type of a column")
    return columns
