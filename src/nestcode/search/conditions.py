r"""Conditions on attributes, as people write them: a small subset of SQL's WHERE, or an expression of pyarrow.

    condition := and { OR and }          and := not { AND not }          not := NOT not | predicate
    predicate := ( condition ) | column of booleans | array_contains(column, value)
               | operand = != <> < <= > >= operand | column [NOT] IN (value, …) | column [NOT] IN ?
               | column [NOT] BETWEEN value AND value | column [NOT] LIKE 'pattern' | column IS [NOT] NULL
    operand   := column | value          column := name | "name"
    value     := 7 | -1.5e3 | 'text' | TRUE | FALSE | NULL | DATE '2024-05-01' | TIMESTAMP '2024-05-01 12:00' | ?

In the pattern of LIKE, % stands for any text, _ for one character, and \ before a character for that character.

A text is parsed into functions on Arrow arrays; nothing of it is ever executed as code. Columns and types are checked
by the schema while it is parsed, so errors name the place. Logic has three values, as SQL's: a comparison with NULL is
unknown, and items for which a condition is unknown are not found. Numbers are compared exactly.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from nestcode.arrays import shown
from nestcode.errors import InvalidInput
from nestcode.search.attributes import Attributes, arrow_type, pa, pc, unknown_column
from nestcode.search.filters import Filter, Kept
from nestcode.search.postings import Postings
from nestcode.search.runs import SortedRun
from nestcode.search.schema import TIMESTAMP, Schema, family

MAX_CHARACTERS, MAX_DEPTH, MAX_PREDICATES, MAX_VALUES = 1 << 16, 50, 1000, 1 << 16
CACHED_CONDITIONS = 256
TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))|(?P<string>'(?:[^']|'')*')"""
    r"""|(?P<name>[^\W\d]\w*)|"(?P<quoted>(?:[^"]|"")+)"|(?P<symbol><>|!=|<=|>=|==|[=<>(),?+-]))"""
)
ESCAPED = re.compile(r"\\.", re.DOTALL)  # a character that stands for itself in a pattern of LIKE
WILD = {"%": ".*", "_": "."}
COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
SPELLED = {"==": "=", "<>": "!="}
HOLDS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})
UNKNOWN = pa.scalar(None, pa.bool_())


class Columns(NamedTuple):
    """The columns that a condition looks at."""

    kinds: Schema
    attributes: Attributes

    def __call__(self, name: str) -> Any:
        """Return a column as an array: of a run from before it was added, nulls."""
        own = name in self.attributes.schema
        return self.attributes.column(name) if own else pa.nulls(len(self.attributes), arrow_type(self.kinds[name]))

    def postings(self, name: str) -> Postings | None:
        """Return the items of each text in a column of lists, once it pays to build them."""
        return self.attributes.postings(name) if name in self.attributes.schema else None


Evaluate = Callable[[Columns], Any]  # returns an array of true, false and null, or one of them for all items


class Condition(NamedTuple):
    """A rule that looks at attributes."""

    columns: Schema  # that it looks at
    evaluate: Evaluate
    schema: Schema  # all columns of the index
    comparisons: int = 1  # that it makes of each item

    def kept(self, run: SortedRun) -> Kept:
        """Return the items of a run for which it is true."""
        attributes, count = run.attributes, len(run.ids)
        if attributes is None:  # one row of nulls stands for all
            found = self._of(Attributes.nulls(self.columns, 1))
            return Kept(count) if found.count else Kept(count, at=np.empty(0, dtype=np.uint32))
        early = all(map(operator.eq, attributes.schema.items(), self.schema.items()))  # only added columns are missing
        for name, kind in self.columns.items():
            if attributes.schema.get(name, kind if early else None) != kind:
                raise InvalidInput(
                    f"a filter must be of an index with its columns, but column {name!r} is {kind} in one and "
                    f"{attributes.schema.get(name, 'missing')} in the other: prepare it by index.filter of the index"
                )
        return self._of(attributes)

    def _of(self, attributes: Attributes) -> Kept:
        found, count = self.evaluate(Columns(self.columns, attributes)), len(attributes)
        if isinstance(found, pa.Scalar):
            return Kept(count) if found.as_py() else Kept(count, at=np.empty(0, dtype=np.uint32))
        found = found.fill_null(False) if found.null_count else found
        if found.offset % 8 or not count:
            return Kept.of_mask(found.to_numpy(zero_copy_only=False))
        first = found.offset // 8  # Arrow's bits are laid out as ours
        return Kept.of_bits(np.frombuffer(found.buffers()[1], dtype=np.uint8)[first : first + -(-count // 8)], count)


def condition_filter(wanted: Any, schema: Schema) -> Filter:
    """Return the filter of a condition; equal texts get the same filter, with its cache.

    >>> condition_filter("lang = 'en' AND year > 2020", {"lang": "string", "year": "int64"})
    Filter(lang = 'en' AND year > 2020)
    """
    if isinstance(wanted, pc.Expression):
        return Filter(_of_expression(wanted, schema), str(wanted))
    text, *given = wanted if isinstance(wanted, tuple) else (wanted, ())
    if len(given) != 1 or isinstance(given[0], str | bytes) or not isinstance(given[0], Sequence | np.ndarray):
        raise InvalidInput(
            f"a condition with parameters must be a text and a list, as in ('year > ?', [2020]), got {shown(wanted)}"
        )
    values = tuple(_parameter(value) for value in (text, *given[0]))[1:]
    try:
        return _cached(text, tuple(schema.items()), *values)
    except TypeError:  # a parameter that has no hash: no column is compared with such
        return _cached.__wrapped__(text, tuple(schema.items()), *values)


def _parameter(value: Any) -> Any:
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidInput(f"a condition must be Unicode, got a lone surrogate in {value!r:.80}: decode it again")
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item() if not np.isnat(value) else None
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return tuple(_parameter(one) for one in value)
    return value


@lru_cache(CACHED_CONDITIONS, typed=True)
def _cached(text: str, schema: tuple[tuple[str, str], ...], *values: Any) -> Filter:
    parser = _Parser(text, dict(schema), values)
    return Filter(parser.condition(), text if len(text) < 80 else f"{text[:77]}…")


class _Token(NamedTuple):
    kind: str  # number, string, name, quoted, symbol or end
    text: str
    at: int


class _Name(NamedTuple):
    """A column in a condition."""

    name: str
    kind: str
    at: int


class _Value(NamedTuple):
    """A value in a condition."""

    value: Any  # None is NULL; a tuple is a list of values, which only a parameter is
    at: int


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, schema: Schema, values: Sequence[Any]) -> None:
        if len(text) > MAX_CHARACTERS:
            raise InvalidInput(
                f"a condition must have at most {MAX_CHARACTERS} characters, got {len(text)}: give long lists as "
                "parameters, as in ('lang IN ?', [langs])"
            )
        self._text, self._schema, self._values = text, schema, values
        self._tokens, self._next = self._tokenize(), 0
        self._parameters = self._depth = self._predicates = 0
        self._used: dict[str, str] = {}

    def condition(self) -> Condition:
        """Return the condition that the text is."""
        if self._token.kind == "end":
            raise InvalidInput(
                f"a condition must not be empty, got {self._text!r:.40}: compare a column, as in 'year > 2020', or "
                "leave the filter out"
            )
        evaluate = self._or()
        if self._token.kind != "end":
            raise self._error("the end, AND or OR")
        if self._parameters != len(self._values):
            raise InvalidInput(
                f"a condition must have a parameter for each ?, got {len(self._values)} for {self._parameters}: "
                f"give one value for each placeholder of {self._text!r:.80}"
            )
        return Condition(self._used, evaluate, self._schema, self._predicates)

    # tokens

    def _tokenize(self) -> list[_Token]:
        tokens, at = [], 0
        end = len(self._text.rstrip())
        while at < end:
            match = TOKEN.match(self._text, at)
            if match is None:
                while self._text[at].isspace():
                    at += 1
                raise self._wrong(
                    f"must be names, numbers, 'texts' and operators, got {self._text[at : at + 20]!r}", at
                )
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *wanted: str) -> str:
        """Take the next token if it is one of these words or symbols, and return it in capitals, or nothing."""
        token = self._token
        if token.kind in ("name", "symbol") and token.text.upper() in wanted:
            self._next += 1
            return token.text.upper()
        return ""

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._error(wanted)

    def _error(self, wanted: str) -> InvalidInput:
        token = self._token
        got = "its end" if token.kind == "end" else repr(self._text[token.at : token.at + 20])
        return self._wrong(f"must have {wanted}, got {got}", token.at)

    def _wrong(self, why: str, at: int) -> InvalidInput:
        return InvalidInput(
            f"a condition {why} at character {at + 1} of {self._text!r:.120}: see docs/how-to/filter.md"
        )

    # grammar

    def _or(self) -> Evaluate:
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        return _join(pc.or_kleene, parts)

    def _and(self) -> Evaluate:
        parts = [self._not()]
        while self._take("AND"):
            parts.append(self._not())
        return _join(pc.and_kleene, parts)

    def _not(self) -> Evaluate:
        at, self._depth = self._token.at, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"must have at most {MAX_DEPTH} parentheses and NOT inside each other", at)
        found = _invert(self._not()) if self._take("NOT") else self._predicate()
        self._depth -= 1
        return found

    def _predicate(self) -> Evaluate:
        if self._take("("):
            found = self._or()
            self._expect(")")
            return found
        self._predicates += 1
        if self._predicates > MAX_PREDICATES:
            raise self._wrong(f"must have at most {MAX_PREDICATES} comparisons: give lists with IN", self._token.at)
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if self._token.text.upper() == "ARRAY_CONTAINS" and self._token.kind == "name" and following.text == "(":
            return self._array_contains()
        left = self._operand()
        sign = self._take(*COMPARE, *SPELLED)
        if sign:
            return self._comparison(SPELLED.get(sign, sign), left, self._operand())
        if isinstance(left, _Value):
            raise self._wrong("must compare a column, got a value alone", left.at)
        if self._take("IS"):
            name, negated = left.name, bool(self._take("NOT"))
            self._expect("NULL")
            return (lambda column: pc.is_valid(column(name))) if negated else (lambda column: pc.is_null(column(name)))
        negated = bool(self._take("NOT"))
        if self._take("IN"):
            found = self._in(left)
        elif self._take("BETWEEN"):
            low = self._comparison(">=", left, self._value())
            self._expect("AND")
            found = _join(pc.and_kleene, [low, self._comparison("<=", left, self._value())])
        elif self._take("LIKE"):
            found = self._like(left)
        elif negated:
            raise self._error("IN, BETWEEN or LIKE after NOT")
        elif left.kind != "bool":
            raise self._error(f"a comparison of {left.name!r}")
        else:
            name = left.name
            found = lambda column: column(name)  # noqa: E731
        return _invert(found) if negated else found

    def _operand(self) -> _Name | _Value:
        token = self._token
        word = token.text.upper() if token.kind == "name" else ""
        moment = word in ("DATE", "TIMESTAMP") and self._tokens[self._next + 1].kind == "string"
        if token.kind == "quoted" or (word and word not in KEYWORDS and not moment):
            self._next += 1
            name = token.text.replace('""', '"') if token.kind == "quoted" else token.text
            if name not in self._schema:
                place = f" at character {token.at + 1} of {self._text!r:.120}"
                raise unknown_column(name, self._schema, f"{place} (a text is in single quotes)")
            self._used[name] = self._schema[name]
            return _Name(name, self._schema[name], token.at)
        return self._value()

    def _value(self) -> _Value:
        token = self._token
        sign = self._take("-", "+")
        if self._token.kind == "number":
            text = self._token.text
            self._next += 1
            number = int(text) if text.isdigit() and len(text) < 1000 else float(text)
            return _Value(-number if sign == "-" else number, token.at)
        if sign:
            raise self._error("a number")
        word = self._take("NULL", "TRUE", "FALSE", "DATE", "TIMESTAMP", "?")
        if word == "?":
            self._parameters += 1
            if self._parameters > len(self._values):
                raise self._wrong(f"must have a parameter for each ?, got {len(self._values)}", token.at)
            return _Value(self._values[self._parameters - 1], token.at)
        if word in ("NULL", "TRUE", "FALSE"):
            return _Value({"NULL": None, "TRUE": True, "FALSE": False}[word], token.at)
        if self._token.kind != "string":
            raise self._error("a column or a value" if not word else f"a text after {word}")
        text = self._token.text[1:-1].replace("''", "'")
        self._next += 1
        if word:
            return _Value(self._moment(text, token.at), token.at)
        return _Value(text, token.at)

    def _moment(self, text: str, at: int) -> date | datetime:
        try:
            return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
        except ValueError:
            raise self._wrong(f"must have dates and times as '2024-05-01 12:00:00', got {text!r:.40}", at) from None

    # predicates

    def _comparison(self, sign: str, left: _Name | _Value, right: _Name | _Value) -> Evaluate:
        if isinstance(left, _Value):
            if isinstance(right, _Value):
                raise self._wrong("must compare a column, got two values", left.at)
            return self._comparison(FLIPPED[sign], right, left)
        if isinstance(right, _Value):
            return _by_value(left, self._convert(right, left), _compare(sign))
        return self._columns(sign, left, right)

    def _columns(self, sign: str, left: _Name, right: _Name) -> Evaluate:
        families = [family(one.kind) for one in (left, right)]
        if families[0] != families[1] or families[0] == "strings":
            raise self._wrong(f"must compare like with like, got {left.kind} and {right.kind}", right.at)
        kinds, compare, names = {left.kind, right.kind}, COMPARE[sign], (left.name, right.name)
        common = None
        if families[0] == "number" and len(kinds) > 1:
            floats = any(kind.startswith("float") for kind in kinds)
            common = pa.float64() if floats else pa.decimal128(20) if "uint64" in kinds else None

        def evaluate(column: Columns) -> Any:
            a, b = (_plain(column(name)) for name in names)
            return compare(a, b) if common is None else compare(a.cast(common, safe=False), b.cast(common, safe=False))

        return evaluate

    def _in(self, left: _Name) -> Evaluate:
        at = self._token.at
        if self._take("("):
            given = [self._value()]
            while self._take(","):
                given.append(self._value())
            self._expect(")")
        else:
            given = [self._value()]
            if not isinstance(given[0].value, tuple):
                raise self._wrong("must have a list after IN: ('en', 'de'), or ? and a parameter that is a list", at)
        if left.kind == "strings":
            raise self._lists(left)
        values = [_Value(one, value.at) for value in given for one in _several(value.value)]
        if len(values) > MAX_VALUES:
            raise self._wrong(f"must have at most {MAX_VALUES} values in a list, got {len(values)}", at)
        return _by_value(left, [self._convert(one, left) for one in values], _is_in)

    def _like(self, left: _Name) -> Evaluate:
        pattern = self._value()
        if family(left.kind) != "string":
            raise self._wrong(f"must have LIKE for texts, but column {left.name!r} is {left.kind}", left.at)
        if pattern.value is not None and not isinstance(pattern.value, str):
            raise self._wrong(f"must have a text after LIKE, got {shown(pattern.value)}", pattern.at)
        if pattern.value is not None and len(pattern.value) > MAX_CHARACTERS:
            raise self._wrong(
                f"must have at most {MAX_CHARACTERS} characters in the pattern of LIKE, got {len(pattern.value)}",
                pattern.at,
            )
        if pattern.value is not None and ESCAPED.sub("", pattern.value).endswith("\\"):
            raise self._wrong(
                rf"must have a character after \ in the pattern of LIKE (\\ is a backslash), got {pattern.value!r:.40}",
                pattern.at,
            )
        return _by_value(left, pattern.value, _is_like)

    def _array_contains(self) -> Evaluate:
        self._next += 2
        left = self._operand()
        self._expect(",")
        wanted = self._value()
        self._expect(")")
        if not isinstance(left, _Name) or left.kind != "strings":
            raise self._wrong("must have a column of lists in array_contains(column, 'text')", left.at)
        if wanted.value is not None and not isinstance(wanted.value, str):
            raise self._wrong(f"must have a text in array_contains, got {shown(wanted.value)}", wanted.at)
        name, text = left.name, wanted.value

        def evaluate(column: Columns) -> Any:
            lists = column(name)
            if text is None:
                return UNKNOWN
            postings = column.postings(name)
            if postings is not None:
                found = np.zeros(len(lists), dtype=np.bool_)
                found[postings[text]] = True
            else:
                ends = lists.offsets.to_numpy()
                hits = pc.equal(lists.values, text).fill_null(False).to_numpy(zero_copy_only=False)
                counts = np.concatenate([[0], np.cumsum(hits)])
                found = counts[ends[1:]] > counts[ends[:-1]]
            bits = pa.py_buffer(np.packbits(found, bitorder="little"))
            held = pa.Array.from_buffers(pa.bool_(), len(found), [None, bits])
            return pc.if_else(lists.is_valid(), held, UNKNOWN) if lists.null_count else held

        return evaluate

    def _convert(self, given: _Value, column: _Name) -> Any:
        """Return a value as a column compares it: numbers exactly, timestamps in their unit."""
        value, kin = given.value, family(column.kind)
        if value is None:
            return None
        if kin == "number" and isinstance(value, int | float | Fraction) and not isinstance(value, bool):
            return value
        if kin in ("string", "bool", "bytes") and isinstance(value, {"string": str, "bool": bool, "bytes": bytes}[kin]):
            return value
        if kin in ("date", "timestamp") and isinstance(value, str | date):
            moment = self._moment(value, given.at) if isinstance(value, str) else value
            return self._ticks(moment, column, given.at)
        if kin == "strings":
            raise self._lists(column)
        raise self._wrong(
            f"must compare like with like, but column {column.name!r} is {column.kind}, got {shown(value)}", given.at
        )

    def _lists(self, column: _Name) -> InvalidInput:
        return self._wrong(f"must have array_contains({column.name}, 'text') for lists", column.at)

    def _ticks(self, moment: date | datetime, column: _Name, at: int) -> Fraction | int:
        """Return a moment in the unit of a column, since 1970; a naive one is UTC where the column has a time zone."""
        stamp = TIMESTAMP.fullmatch(column.kind)
        if not isinstance(moment, datetime):
            if stamp is None:
                return (moment - date(1970, 1, 1)).days
            moment = datetime(moment.year, moment.month, moment.day)
        if moment.tzinfo is not None and (stamp is None or stamp[2] is None):
            raise self._wrong(f"must have a time without a zone for column {column.name!r}, {column.kind}", at)
        since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        microseconds = since // timedelta(microseconds=1)
        return (
            Fraction(microseconds, 86400 * 10**6)
            if stamp is None
            else Fraction(microseconds * PER_SECOND[stamp[1]], 10**6)
        )


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _join(how: Callable[[Any, Any], Any], parts: list[Evaluate]) -> Evaluate:
    return parts[0] if len(parts) == 1 else lambda column: reduce(how, (part(column) for part in parts))


def _invert(part: Evaluate) -> Evaluate:
    return lambda column: pc.invert(part(column))


def _by_value(left: _Name, value: Any, test: Callable[[Any, Any], Any]) -> Evaluate:
    """Return a test of a column's values; categories are tested once each."""
    name = left.name

    def evaluate(column: Columns) -> Any:
        array = column(name)
        if pa.types.is_dictionary(array.type):
            tested = test(array.dictionary, value)
            return tested if isinstance(tested, pa.Scalar) else tested.take(array.indices)
        return test(_plain(array), value)

    return evaluate


def _plain(array: Any) -> Any:
    """Return an array in comparable form: texts for categories, integers for dates and timestamps."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date(array.type) else array


def _compare(sign: str) -> Callable[[Any, Any], Any]:
    """Return a function that compares an array with a value, exactly."""

    def compare(array: Any, value: Any) -> Any:
        if value is None:
            return UNKNOWN
        if pa.types.is_integer(array.type):
            return _compare_integers(sign, array, value)
        if pa.types.is_floating(array.type):
            value = pa.scalar(_as_float(value), pa.float64())
        return COMPARE[sign](array, pa.scalar(value, array.type) if not isinstance(value, pa.Scalar) else value)

    return compare


def _compare_integers(sign: str, array: Any, value: Any) -> Any:
    """Compare integers with any number: a fraction lies between two of them."""
    bounds = np.iinfo(array.type.to_pandas_dtype())
    if isinstance(value, float) and not math.isfinite(value):
        holds = HOLDS[sign](0.0, value)
    else:
        exact = Fraction(value)
        whole = math.floor(exact)
        if exact != whole and sign not in ("=", "!="):
            sign = "<=" if sign in ("<", "<=") else ">"
        if bounds.min <= whole <= bounds.max and (exact == whole or sign not in ("=", "!=")):
            return COMPARE[sign](array, pa.scalar(whole, array.type))
        holds = sign == "!=" if sign in ("=", "!=") else HOLDS[sign](0, exact)
    return pc.if_else(pc.is_valid(array), pa.scalar(holds), UNKNOWN)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_in(array: Any, values: list[Any]) -> Any:
    """Return whether values are in a list: unknown for nulls, and for values that a list with a null lacks."""
    some = [value for value in values if value is not None]
    if pa.types.is_integer(array.type):
        bounds = np.iinfo(array.type.to_pandas_dtype())
        finite = [Fraction(value) for value in some if not isinstance(value, float) or math.isfinite(value)]
        some = [int(value) for value in finite if value.denominator == 1 and bounds.min <= value <= bounds.max]
    elif pa.types.is_floating(array.type):
        array, some = array.cast(pa.float64()), [_as_float(value) for value in some]
        some = [value for value in some if not math.isnan(value)]
        some += [-0.0, 0.0] if 0.0 in some else []  # of equal value, and other bits
    found = pc.is_in(array, value_set=pa.array(some, array.type))
    known = pc.if_else(pc.is_valid(array), found, UNKNOWN)
    return pc.or_kleene(known, UNKNOWN) if len(values) > sum(value is not None for value in values) else known


def _is_like(array: Any, pattern: str | None) -> Any:
    if pattern is None:
        return UNKNOWN
    if "\\" not in pattern:
        return pc.match_like(array, pattern)
    # Arrow takes \ as itself in patterns that are a prefix, a suffix or a part, and as an escape in others.
    parts = (WILD.get(part) or re.escape(part[-1]) for part in re.findall(r"\\?.", pattern, re.DOTALL))
    return pc.match_substring_regex(array, f"(?s)\\A{''.join(parts)}\\z")


def _of_expression(expression: Any, schema: Schema) -> Condition:
    """Return an expression of pyarrow as a condition on the columns that it needs."""
    empty = {name: pa.array([], arrow_type(kind)) for name, kind in schema.items()}
    _evaluated(expression, empty)
    needed = {name: kind for name, kind in schema.items() if _fails_without(expression, empty, name)}
    if not needed:
        raise InvalidInput(
            f"a condition must compare a column, got {expression}: name one, as in pc.field('year') > 2020"
        )
    return Condition(needed, lambda column: _evaluated(expression, {name: column(name) for name in needed}), schema)


def _fails_without(expression: Any, columns: dict[str, Any], name: str) -> bool:
    try:
        _evaluated(expression, {other: array for other, array in columns.items() if other != name})
    except InvalidInput:
        return True
    return False


def _evaluated(expression: Any, columns: dict[str, Any]) -> Any:
    """Return an expression's array of true, false and null."""
    from pyarrow import acero

    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table(columns)))
    projected = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["found"]))
    try:
        found = acero.Declaration.from_sequence([rows, projected]).to_table(use_threads=False)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"a condition must be an expression of the index's columns, got {expression} ({error})"
        ) from error
    column = found.column("found")
    if not pa.types.is_boolean(column.type):
        raise InvalidInput(f"a condition must be true or false, got {expression}, which is {column.type}: compare it")
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
