"""Conditions: equal to a plain twin row by row, for random tables and conditions; hostile ones are refused by name."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import Codes, Index
from nestcode.errors import InvalidInput
from nestcode.search import conditions
from nestcode.search.attributes import Attributes, arrow_type, pa, pc
from nestcode.search.conditions import Condition, condition_filter
from nestcode.search.postings import Postings
from nestcode.search.schema import NUMBERS

SCHEMA = {
    "year": "int16",
    "big": "uint64",
    "score": "float32",
    "lang": "category",
    "title": "string",
    "tags": "strings",
    "open": "bool",
    "at": "timestamp[ms]",
    "seen": "timestamp[us, UTC]",
    "day": "date",
    "raw": "bytes",
}
TEXTS = st.sampled_from(["", "a", "A", "ab", "ba", "é", "it's", "100%", "a_b", "a\\"])
MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2030, 1, 1)).map(lambda t: t.replace(microsecond=500_000))
FLOATS = st.sampled_from([0.0, -0.0, 1.5, 0.1, -3.0, math.inf, -math.inf, math.nan])
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "year": st.sampled_from([-(2**15), -1, 0, 1, 2, 2**15 - 1]),
    "big": st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]),
    "score": FLOATS.map(lambda x: float(np.float32(x))),
    "lang": TEXTS,
    "title": TEXTS,
    "tags": st.lists(st.none() | TEXTS, max_size=3),
    "open": st.booleans(),
    "at": MOMENTS,
    "seen": MOMENTS.map(lambda t: t.replace(tzinfo=UTC)),
    "day": MOMENTS.map(lambda t: t.date()),
    "raw": st.sampled_from([b"", b"a", b"\xff"]),
}
PARAMETERS = {
    **CELLS,
    "year": CELLS["year"] | FLOATS | st.sampled_from([2**70, -(2**70), 1.5, 2.0]),
    "big": CELLS["big"] | FLOATS | st.sampled_from([-1, 2**70, 0.5]),
    "score": FLOATS | st.sampled_from([1, 0, 2**70]),
    "at": MOMENTS | MOMENTS.map(str) | st.just(datetime(2000, 1, 1, microsecond=1)),
    "seen": CELLS["seen"] | CELLS["seen"].map(lambda t: t.astimezone(timezone(timedelta(hours=5)))),
    "day": CELLS["day"] | CELLS["day"].map(str),
}
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Truth = bool | None
Row = dict[str, Any]


@dataclass(frozen=True)
class Plain:
    """A condition as text with parameters, and its twin: what it is for one row, None where that is unknown."""

    text: str
    values: tuple[Any, ...]
    of: Callable[[Row], Truth]


def known(column: str, value: Any) -> Any:
    """A parameter as Python compares it with a cell."""
    if isinstance(value, str) and column in ("at", "seen"):
        return datetime.fromisoformat(value)
    return date.fromisoformat(value) if isinstance(value, str) and column == "day" else value


def unless_null(test: Callable[..., bool], *values: Any) -> Truth:
    return None if any(value is None for value in values) else bool(test(*values))


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def every(truths: list[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


def some(truths: list[Truth]) -> Truth:
    return True if True in truths else None if None in truths else False


def matches(cell: str, pattern: str) -> bool:
    """Whether a pattern of LIKE is a text, character by character."""
    if not pattern:
        return not cell
    if pattern[0] == "%":
        return any(matches(cell[i:], pattern[1:]) for i in range(len(cell) + 1))
    escaped = pattern[0] == "\\"
    one, rest = pattern[escaped], pattern[1 + escaped :]
    return bool(cell) and (cell[0] == one or (one == "_" and not escaped)) and matches(cell[1:], rest)


@st.composite
def predicates(draw: st.DrawFn) -> Plain:
    name = draw(st.sampled_from(list(SCHEMA)))
    value = st.none() | PARAMETERS[name]
    spelled = draw(st.sampled_from([name, f'"{name}"']))
    kinds = ["null"] if name == "tags" else ["sign", "flipped", "in", "list", "between", "null", "columns"]
    kind = draw(st.sampled_from([*kinds, *{"tags": ["contains"], "open": ["bare"]}.get(name, [])]))
    if kind in ("sign", "flipped"):
        sign, x = draw(st.sampled_from(list(SIGNS))), draw(value)
        if kind == "sign":
            return Plain(f"{spelled} {sign} ?", (x,), lambda row: unless_null(SIGNS[sign], row[name], known(name, x)))
        return Plain(f"? {sign} {spelled}", (x,), lambda row: unless_null(SIGNS[sign], known(name, x), row[name]))
    if kind in ("in", "list"):
        xs, negated = draw(st.lists(value, min_size=1, max_size=4)), draw(st.booleans())
        text = f"{spelled} {'NOT ' if negated else ''}IN "
        text += "?" if kind == "list" else f"({', '.join('?' for _ in xs)})"

        def within(row: Row) -> Truth:
            found = some([unless_null(operator.eq, row[name], known(name, x)) for x in xs])
            return negate(found) if negated else found

        return Plain(text, (xs,) if kind == "list" else tuple(xs), within)
    if kind == "between":
        low, high = draw(value), draw(value)

        def between(row: Row) -> Truth:
            ends = (
                unless_null(operator.ge, row[name], known(name, low)),
                unless_null(operator.le, row[name], known(name, high)),
            )
            return every(list(ends))

        return Plain(f"{spelled} BETWEEN ? AND ?", (low, high), between)
    if kind == "columns":
        sign = draw(st.sampled_from(list(SIGNS)))
        other = {"year": "score", "title": "lang", "lang": "title"}.get(name, name)
        return Plain(f"{spelled} {sign} {other}", (), lambda row: unless_null(SIGNS[sign], row[name], row[other]))
    if kind == "contains":
        wanted = draw(st.none() | TEXTS)

        def contains(row: Row) -> Truth:
            return unless_null(lambda tags, one: one in tags, row["tags"], wanted)

        return Plain("array_contains(tags, ?)", (wanted,), contains)
    if kind == "bare":
        return Plain(spelled, (), lambda row: row["open"])
    if draw(st.booleans()):
        return Plain(f"{spelled} IS NULL", (), lambda row: row[name] is None)
    return Plain(f"{spelled} is not null", (), lambda row: row[name] is not None)


@st.composite
def likes(draw: st.DrawFn) -> Plain:
    name, negated = draw(st.sampled_from(["title", "lang"])), draw(st.booleans())
    parts = st.lists(st.sampled_from([*"ab%_Aé\n.", "\\%", "\\_", "\\\\", "\\a"]), max_size=4)
    pattern = draw(st.none() | parts.map("".join))

    def like(row: Row) -> Truth:
        found = unless_null(matches, row[name], pattern)
        return negate(found) if negated else found

    return Plain(f"{name} {'NOT ' if negated else ''}LIKE ?", (pattern,), like)


def combine(inner: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    def joined(parts: list[Plain], word: str, how: Callable[[list[Truth]], Truth]) -> Plain:
        text = f" {word} ".join(f"({part.text})" for part in parts)
        return Plain(text, sum((part.values for part in parts), ()), lambda row: how([part.of(row) for part in parts]))

    several = st.lists(inner, min_size=2, max_size=3)
    return (
        several.map(lambda parts: joined(parts, "AND", every))
        | several.map(lambda parts: joined(parts, "or", some))
        | inner.map(lambda part: Plain(f"NOT ({part.text})", part.values, lambda row: negate(part.of(row))))
    )


PLAIN = st.recursive(predicates() | likes(), combine, max_leaves=6)
CELLS_OR_NULL = {name: st.none() | cells for name, cells in CELLS.items()}
ROWS = st.lists(st.fixed_dictionaries(CELLS_OR_NULL), min_size=1, max_size=8)


def index_of(rows: list[Row]) -> Index:
    index = Index(width=8)
    kinds = {name: pa.string() if kind == "category" else arrow_type(kind) for name, kind in SCHEMA.items()}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    columns["lang"] = columns["lang"].dictionary_encode()
    index.add(Codes.from_bits((np.arange(len(rows))[:, None] * 37 >> np.arange(8)) & 1), attributes=pa.table(columns))
    return index


@settings(max_examples=100)
@given(ROWS, PLAIN)
def test_a_condition_is_its_plain_twin_row_by_row(rows: list[Row], plain: Plain) -> None:
    index = index_of(rows)
    assert index.columns == SCHEMA
    expected = [i for i, row in enumerate(rows) if plain.of(row) is True]
    assert index.matching((plain.text, plain.values)).tolist() == expected


@given(ROWS, st.data())
def test_literals_are_parameters(rows: list[Row], data: st.DataObject) -> None:
    """Numbers, texts, booleans, dates and times that are written out."""
    index = index_of(rows)
    text = data.draw(TEXTS)
    quoted = "'" + text.replace("'", "''") + "'"
    number = data.draw(st.sampled_from(["0", "-1", "+2", "1.5", ".5", "1e0", "2.", "99999999999999999999"]))
    moment = data.draw(MOMENTS)
    pairs: list[tuple[str, tuple[str, list[Any]]]] = [
        (f"title={quoted}", ("title = ?", [text])),
        (f"lang in ({quoted},'a')", ("lang IN ?", [[text, "a"]])),
        (f"year<{number} or big>={number}", ("year < ? OR big >= ?", [float(number)] * 2)),
        (f"at >= TIMESTAMP '{moment}'", ("at >= ?", [moment])),
        (f"at >= '{moment}'", ("at >= ?", [moment])),
        (f"day = DATE '{moment.date()}'", ("day = ?", [moment.date()])),
        ("open = TRUE", ("open = ?", [True])),
        ("open", ("open = ?", [np.True_])),
        ("open = NULL", ("open = ?", [None])),
        ("year = 2", ("year = ?", [np.int64(2)])),
    ]
    for one, other in pairs:
        assert index.matching(one).tolist() == index.matching(other).tolist()


@given(st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=3), max_size=9), st.integers(0, 9))
def test_postings_of_a_text_are_the_lists_that_hold_it(lists: list[list[str | None] | None], first: int) -> None:
    postings = Postings(pa.array(lists, arrow_type("strings")).slice(first))
    for text in ("", "a", "ab", "é", "missing"):
        holders = [i for i, some in enumerate(lists[first:]) if text in (some or ())]
        assert np.unique(postings[text]).tolist() == holders


def test_lists_are_searched_again_and_again() -> None:
    rows: list[list[str | None] | None] = [["a", "b"], None, ["b", None], [], ["c", "a", "a"]]
    index = Index(width=3)
    index.add(Codes.from_bits(np.arange(5)[:, None] >> np.arange(3) & 1), attributes={"tags": rows})
    for text in ("a", "b", "c", "d", "a") * 2:
        holders = [i for i, some in enumerate(rows) if text in (some or ())]
        assert index.matching(("array_contains(tags, ?)", [text])).tolist() == holders
        others = [i for i, some in enumerate(rows) if some is not None and text not in some]
        assert index.matching(f"NOT array_contains(tags, '{text}')").tolist() == others


@given(ROWS)
def test_expressions_of_pyarrow_are_conditions(rows: list[Row]) -> None:
    index = index_of(rows)
    field = pc.field
    pairs = [
        ("year > 0 AND lang = 'a'", (field("year") > 0) & (field("lang") == "a")),
        ("NOT (year > 0 OR title LIKE 'a%')", ~((field("year") > 0) | pc.starts_with(field("title"), "a"))),
        ("score IS NULL", field("score").is_null()),
    ]
    for text, expression in pairs:
        assert index.matching(expression).tolist() == index.matching(text).tolist()
    assert set(condition_filter(pairs[0][1], SCHEMA).rule.columns) == {"year", "lang"}  # type: ignore[union-attr]


@pytest.mark.parametrize("cells", [["", "\\", "a_b", "axb", "a\\b", "a\\\\", "100 %", "100 €", ".\n("]])
def test_a_backslash_in_like_takes_the_next_character_as_itself(cells: list[str]) -> None:
    index = Index(width=4)
    index.add(Codes.from_bits(np.arange(len(cells))[:, None] >> np.arange(4) & 1), attributes={"t": cells})
    for pattern in (
        r"a\_b",
        r"a_b",
        r"\\",
        r"a\\%",
        r"%\\",
        r"%\\\\",
        r"%\\%",
        r"%\%",
        r"%\%%",
        r"\a\x\b",
        "\\.\\\n\\(",
    ):
        found = [i for i, cell in enumerate(cells) if matches(cell, pattern)]
        assert index.matching(f"t LIKE '{pattern}'").tolist() == found


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_not_a_number_differs_from_every_number(kind: str) -> None:
    index = Index(width=2)
    index.add(Codes.from_bits([[0, 1], [1, 1]]), attributes=pa.table({"x": pa.array([math.nan, 0.5], kind)}))
    for without in ("x = 0.1", "x < 0.1", "x > 0.6", "x BETWEEN 0 AND 0.1", "x IN (0.1)", "x = x AND x < 0"):
        assert index.matching(without).tolist() == []
    for within in ("x != 0.5", "NOT x = 0.5", "x NOT IN (0.5)", "x NOT BETWEEN 0 AND 1", "NOT x < 1", "x != x"):
        assert index.matching(within).tolist() == [0]


def test_items_without_attributes_are_null() -> None:
    index = Index(width=2)
    codes = Codes.from_bits([[0, 1], [1, 1], [0, 0]])
    index.add(codes)
    index._live.write(lambda snapshot: snapshot.flush())
    index.add(codes, attributes={"year": [1, None, 3]})
    assert index.matching("year IS NULL").tolist() == [0, 1, 2, 4]
    assert index.matching("year > 0").tolist() == [3, 5]
    assert index.matching("NOT year > 2").tolist() == [3]


HOSTILE = {
    "": "must not be empty, got ''",
    "  ": "must not be empty, got '  '",
    "year = ١": "must be names, numbers, 'texts' and operators, got '١' at character 8",
    "title LIKE '\\'": r"must have a character after \\ in the pattern of LIKE \(\\\\ is a backslash\), got '\\\\' at",
    "title LIKE 'a\\\\\\'": r"must have a character after \\ in the pattern of LIKE",
    "year >": "must have a column or a value, got its end at character 7",
    "year > 1 lang": "must have the end, AND or OR, got 'lang' at character 10",
    "yaer > 1": "a column must be one that the index has, year, big, .* got 'yaer' at character 1",
    "(year > 1": r"must have \), got its end",
    "year > 'a'": "must compare like with like, but column 'year' is int16, got 'a' at character 8",
    "title = 1": "must compare like with like",
    "open = 1": "must compare like with like",
    "title": "must have a comparison of 'title'",
    "1 = 1": "must compare a column, got two values at character 1",
    "TRUE": "must compare a column, got a value alone",
    "year; DROP TABLE x": "must be names, numbers, 'texts' and operators, got '; DROP TABLE x' at character 5",
    "__import__('os')": "a column must be one that the index has",
    "title = 'a": "must be names, numbers, 'texts' and operators",
    "tags = 'a'": r"must have array_contains\(tags, 'text'\) for lists",
    "tags IN (NULL)": r"must have array_contains\(tags, 'text'\) for lists",
    "array_contains(title, 'a')": "must have a column of lists",
    "array_contains(tags, 1)": "must have a text in array_contains",
    "year LIKE '1%'": "must have LIKE for texts",
    "title LIKE 1": "must have a text after LIKE",
    "year IN 5": "must have a list after IN",
    "year NOT 5": "must have IN, BETWEEN or LIKE after NOT",
    "year BETWEEN 1": "must have AND, got its end",
    "year = title": "must compare like with like, got int16 and string",
    "at > 'yesterday'": "must have dates and times as '2024-05-01 12:00:00', got 'yesterday'",
    "at > '2024-01-01T00:00:00+01:00'": "must have a time without a zone",
    "year > ?": "must have a parameter for each",
    "year = - title": "must have a number",
    "2020abc > 1": "must be names",
    "(" * 60 + "open" + ")" * 60: "must have at most 50 parentheses and NOT",
    "NOT " * 60 + "open": "must have at most 50 parentheses and NOT",
    " OR ".join(["open"] * 1001): "must have at most 1000 comparisons",
    "open OR " * 10_000 + "open": "must have at most 65536 characters, got",
}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_hostile_conditions_are_refused_by_name(text: str) -> None:
    index = index_of([dict.fromkeys(SCHEMA)])
    for use in (index.filter, index.matching, lambda text: index.search(index.codes([0]), filter=text)):
        with pytest.raises(InvalidInput, match=HOSTILE[text]):
            use(text)


def test_wrong_parameters_are_refused() -> None:
    index: Any = index_of([dict.fromkeys(SCHEMA)])
    with pytest.raises(InvalidInput, match=r"a condition must have a parameter for each \?, got 2 for 1"):
        index.filter(("year > ?", [1, 2]))
    for wrong in ("ab", 5, {1: 2}):
        with pytest.raises(InvalidInput, match="must be a text and a list"):
            index.filter(("year > ?", wrong))
    for value in ({"a": 1}, object(), [1], 1j, "x", {"a": 10**5000}):
        with pytest.raises(InvalidInput, match="must compare like with like"):
            index.filter(("year > ?", [value]))
    for text in ("title = ?", "title IN ?", "title LIKE ?", "array_contains(tags, ?)", "at > ?"):
        with pytest.raises(InvalidInput, match=r"got (\[|\()?an integer of 16,610 bits|must have a list"):
            index.filter((text, [10**5000]))
    with pytest.raises(InvalidInput, match="must be a text and a list"):
        index.filter(("title = ?", 10**5000))
    with pytest.raises(InvalidInput, match="must have at most 65536 values in a list, got 70000"):
        index.filter(("year IN ?", [list(range(70_000))]))
    with pytest.raises(InvalidInput, match="must have at most 65536 characters in the pattern of LIKE, got 65537"):
        index.filter(("title LIKE ?", ["%_" + "a" * 65535]))
    for longest in ("_" * 65536, "%_" * 32768, r"\%_a" * 16384):
        assert index.matching(("title LIKE ?", [longest])).tolist() == []
    with pytest.raises(InvalidInput, match="must be an expression of the index's columns"):
        index.filter(pc.field("nothing") > 1)
    with pytest.raises(InvalidInput, match="must be true or false"):
        index.filter(pc.field("year") + 1)
    with pytest.raises(InvalidInput, match="must compare a column, got true"):
        index.filter(pc.scalar(True))
    with pytest.raises(InvalidInput, match="a condition looks at attributes, but this index has none"):
        Index(width=8).filter("year > 1")


def test_a_filter_of_another_index_is_refused_where_columns_differ() -> None:
    one, other = Index(width=2), Index(width=2)
    codes = Codes.from_bits([[0, 1], [1, 1]])
    one.add(codes, attributes={"year": [1, 2]})
    other.add(codes, attributes={"year": ["a", "b"]})
    with pytest.raises(InvalidInput, match="column 'year' is int64 in one and string in the other"):
        other.search(codes, filter=one.filter("year > 1"))


def test_equal_conditions_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    index, computed = index_of([dict.fromkeys(SCHEMA, None)] * 3), []
    of = Condition._of

    def counted(condition: Condition, attributes: Attributes) -> Any:
        computed.append(sorted(condition.columns))
        return of(condition, attributes)

    monkeypatch.setattr(Condition, "_of", counted)
    for _ in range(3):
        index.search(index.codes([0]), filter=("year = ? OR big = 17", [16]))
    assert computed == [["big", "year"]]
    assert index.filter(("year = ?", [1])) is not index.filter(("year = ?", [1.0]))
    assert conditions._cached.cache_info().maxsize == conditions.CACHED_CONDITIONS


def test_all_types_of_numbers_are_compared_exactly() -> None:
    values = [0, 1, 100]
    index = Index(width=2)
    index.add(
        Codes.from_bits([[0, 1], [1, 1], [1, 0]]),
        attributes=pa.table({name: pa.array(values, arrow_type(name)) for name in NUMBERS}),
    )
    for name in NUMBERS:
        assert index.matching(f"{name} >= 0.5").tolist() == [1, 2]
        assert index.matching(f"{name} IN (0, 100.0, 0.5, -7, 1e300)").tolist() == [0, 2]
        assert index.matching(f"{name} < 1e300 AND {name} > -1e300").tolist() == [0, 1, 2]
        for other in NUMBERS:
            assert index.matching(f"{name} = {other}").tolist() == [0, 1, 2]


def test_values_beyond_all_others_are_compared() -> None:
    index = Index(width=8)
    index.add(Codes.from_bits(np.eye(8)[:3] > 0), attributes={"x": [1.5, -np.inf, np.inf], "n": [1, 2, 3]})
    for huge, below in ((10**400, [0, 1]), (-(10**400), [])):
        assert index.matching(("x < ?", [huge])).tolist() == below
        assert len(index.matching(("n < ?", [huge]))) == (3 if below else 0)
    assert index.matching(("n > ?", [np.array(2)])).tolist() == [2]
    for text, values in (("x = ?", ["\ud800"]), ("x IN ?", [["a", "\udfff"]]), ("x = '\ud800'", [])):
        with pytest.raises(InvalidInput, match="must be Unicode, got a lone surrogate"):
            index.matching((text, values))
