"""Attributes: columns that stay with their items through every change, commit and merge; a dictionary is their twin."""

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index import buffer, compaction
from nestcode.index.manifest import read_manifest
from nestcode.search.attributes import Attributes

Row = dict[str, Any]


def codes(count: int, seed: int = 0) -> Codes:
    return Codes.from_bits(np.random.default_rng(seed).random((count, 16)) < 0.5)


def row(number: int) -> Row:
    """A row of every type, with nulls."""
    cells = {
        "flag": number % 2 == 0,
        "small": number % 100,
        "price": number / 4,
        "lang": ["en", "de", "fr"][number % 3],
        "text": f"text {number} " * (number % 5),
        "raw": bytes([number % 256]),
        "tags": [f"t{tag}" for tag in range(number % 4)],
        "at": datetime(2000 + number % 30, 1, 1, tzinfo=UTC),
        "day": date(2000 + number % 30, 1, 1),
    }
    return {name: None if number % (7 + i) == 0 else cell for i, (name, cell) in enumerate(cells.items())}


KINDS: dict[str, Any] = {
    "flag": pa.bool_(), "small": pa.int8(), "price": pa.float64(), "lang": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(), "raw": pa.binary(), "tags": pa.list_(pa.string()), "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
}  # fmt: skip
SCHEMA = {
    "flag": "bool", "small": "int8", "price": "float64", "lang": "category", "text": "string", "raw": "bytes",
    "tags": "strings", "at": "timestamp[us, UTC]", "day": "date",
}  # fmt: skip
NOTHING = dict.fromkeys(KINDS)


def table(numbers: Any) -> pa.Table:
    rows = [row(int(number)) for number in numbers]
    return pa.table({name: pa.array([one[name] for one in rows], kind) for name, kind in KINDS.items()})


def check(index: Index, expected: dict[int, Row]) -> None:
    """Compare all attributes with what they should be, also in another order, by columns and by conditions."""
    ids = sorted(expected)
    assert index.ids.tolist() == ids
    shuffled = np.random.default_rng(0).permutation(ids).astype(np.int64)
    assert index.attributes(shuffled).to_pylist() == [expected[i] for i in shuffled.tolist()]
    assert index.attributes(shuffled, "text")["text"].to_pylist() == [expected[i]["text"] for i in shuffled.tolist()]
    tests: dict[str, Callable[[Row], bool]] = {
        "lang = 'en' AND small > 20": lambda one: one["lang"] == "en" and (one["small"] or 0) > 20,
        "text LIKE 'text 1%'": lambda one: (one["text"] or "").startswith("text 1"),
        "price IS NULL": lambda one: one["price"] is None,
        "array_contains(tags, 't1')": lambda one: "t1" in (one["tags"] or ()),
    }
    for condition, holds in tests.items():
        assert index.matching(condition).tolist() == [i for i in ids if holds(expected[i])]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "plain", "one", "replace", "update", "keep", "remove", "compact", "truncate", "commit", "rollback",
             "reopen", "merge", "wait"]
        ),
        st.integers(0, 10**6),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=25)
@given(st.booleans(), CHANGES)
def test_attributes_stay_with_their_items(late: bool, changes: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer, "BUFFER_ITEMS", 8)
        folder = Path(name) / "index"
        Index(width=16).save(folder)
        index, expected = Index.open(folder, mode="a"), {}
        largest = -1
        if late:  # items came before the columns
            index.add(codes(5))
            expected, largest = dict.fromkeys(range(5), NOTHING), 4
        index.add(codes(2), attributes=table([largest + 1, largest + 2]))
        expected |= {i: row(i) for i in (largest + 1, largest + 2)}
        largest += 2
        index.commit()
        committed = dict(expected), largest
        for change, seed in changes:
            rng = np.random.default_rng(seed)
            some = rng.permutation(sorted(expected))[: rng.integers(0, 6)].astype(np.int64)
            count = {"one": 1, "add": 20, "plain": 3, "merge": 4}.get(change, 0)
            new = np.arange(largest + 1, largest + 1 + count)
            if change in ("add", "one"):
                index.add(codes(count, seed).prefix(index.width), attributes=table(new))
                expected |= {int(i): row(int(i)) for i in new}
            elif change == "plain":
                index.add(codes(count, seed).prefix(index.width))
                expected |= {int(i): NOTHING for i in new}
            elif change == "merge":
                other = Index(width=index.width)
                other.add(codes(count, seed).prefix(index.width), ids=new, attributes=table(new))
                index.merge(other)
                expected |= {int(i): row(int(i)) for i in new}
            elif change in ("replace", "update") and len(some):
                numbers = rng.integers(0, 1000, len(some))
                if change == "update":
                    index.update(codes(len(some), seed).prefix(index.width), some, attributes=table(numbers))
                else:
                    items = codes(len(some), seed).prefix(index.width)
                    index.add(items, some, attributes=table(numbers), on_duplicate="replace")
                expected |= {int(i): row(int(number)) for i, number in zip(some, numbers, strict=True)}
            elif change == "keep" and len(some):
                index.update(codes(len(some), seed).prefix(index.width), some)
            elif change == "remove":
                index.remove(some)
                for i in some.tolist():
                    del expected[i]
            elif change == "compact":
                index.compact()
            elif change == "truncate" and index.width > 12:
                index.truncate(index.width - 1)
            elif change == "commit":
                index.commit()
                committed = dict(expected), largest + count
            elif change == "rollback":
                index.rollback()
                expected, largest = dict(committed[0]), committed[1]
                count = 0
            elif change == "reopen":
                index.commit()
                index.close()
                index = Index.open(folder, mode="a")
                committed = dict(expected), largest
            elif change == "wait":
                index.wait()
            if change in ("add", "one", "plain", "merge"):
                largest += count
            check(index, expected)
        index.commit()
        index.close()
        for memory in (None, "all", "codes"):
            check(Index.open(folder, memory=memory), expected)
        Index.open(folder).verify()


GROWING = st.lists(
    st.tuples(
        st.sampled_from(["add", "column", "remove", "compact", "commit", "rollback", "reopen"]), st.integers(0, 99)
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=25)
@given(GROWING)
def test_added_columns_are_null_before(changes: list[tuple[str, int]]) -> None:
    kinds = {
        "int64": 7,
        "string": "new",
        "category": "some",
        "strings": ["a"],
        "timestamp[us, UTC]": datetime(2020, 1, 1, tzinfo=UTC),
    }
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer, "BUFFER_ITEMS", 4)
        folder = Path(name)
        Index(width=16).save(folder)
        index, rows, columns = Index.open(folder, mode="a"), {}, {}  # type: ignore[var-annotated]
        reader, committed, largest = Index.open(folder), (rows, columns), -1
        for change, seed in changes:
            if change == "column":
                kind = list(kinds)[seed % len(kinds)]
                new = f"c{len(columns)}"
                index.add_columns({new: kind})
                columns = {**columns, new: kinds[kind]}
            elif change == "add" and columns:
                count, given = 1 + seed % 6, dict(list(columns.items())[seed % len(columns) :])
                ids = np.arange(largest + 1, largest + 1 + count)
                index.add(codes(count, seed), ids=ids, attributes=[given] * count)
                rows, largest = {**rows, **dict.fromkeys(ids.tolist(), given)}, int(ids[-1])
            elif change == "remove" and rows:
                gone = sorted(rows)[seed % len(rows)]
                index.remove(gone)
                rows = {i: one for i, one in rows.items() if i != gone}
            elif change == "compact":
                index.compact()
            elif change == "commit":
                index.commit()
                committed = rows, columns
            elif change == "rollback":
                index.rollback()
                rows, columns = committed
            elif change == "reopen":
                index.commit()
                index.close()
                index, committed = Index.open(folder, mode="a"), (rows, columns)
            reader.refresh()
            for one, (own, known) in ((index, (rows, columns)), (reader, committed)):
                assert list(one.columns) == list(known)
                if known:
                    full = [dict.fromkeys(known) | own[i] for i in sorted(own)]
                    assert one.attributes(one.ids).to_pylist() == full
                for column in known:
                    without = [i for i in sorted(own) if column not in own[i]]
                    assert one.matching(f"{column} IS NULL").tolist() == without
        index.close()


def test_added_columns_are_new_and_have_types() -> None:
    index = Index(width=16)
    index.add(codes(2), attributes={"lang": ["en", "de"]})
    wanted = index.filter("lang = 'en'")
    for mistake, named in (
        ({"lang": "string"}, "columns must be new, but 'lang' is string"),
        ({"n": "int"}, "'int' is no type"),
        ({7: "int8"}, "7 is no name"),
        ({"": "int8"}, "'' is no name"),
        ({"\ud800": "int8"}, "surrogates not allowed"),
        (["x"], "types by name"),
        (None, "types by name"),
    ):
        with pytest.raises(InvalidInput, match=named):
            index.add_columns(mistake)  # type: ignore[arg-type]
    index.add_columns({"year": "int64"})
    index.add(codes(1), attributes=[{"lang": "en", "year": 3}])
    hits = index.search(codes(3), k=3, filter=wanted)  # prepared before
    assert set(hits.ids.ravel().tolist()) == {0, 2, -1}
    other = Index(width=16)
    other.add(codes(2), attributes={"year": [1, 2]})
    with pytest.raises(InvalidInput, match=r"prepare it by index\.filter"):
        other.search(codes(1), filter=wanted)


def test_an_index_with_attributes_has_version_6_and_one_without_has_none(tmp_path: Path) -> None:
    index = Index(width=16)
    index.add(codes(50))
    index.save(tmp_path / "plain")
    assert read_manifest(tmp_path / "plain")["version"] == 4
    assert not list((tmp_path / "plain").glob("*attributes*"))
    index.add(codes(50), attributes=table(range(50)))
    index.compact()
    index.save(tmp_path / "some")
    manifest = read_manifest(tmp_path / "some")
    assert manifest["version"] == 6
    assert manifest["attributes"] == index.columns == SCHEMA
    file = np.load(next((tmp_path / "some").glob("*.attributes.npy")), mmap_mode="r")
    stored = pa.ipc.open_stream(file).read_all()  # as others read it
    assert stored.num_rows == 100
    assert sorted(filter(None, stored["text"].to_pylist())) == sorted(
        filter(None, table(range(50))["text"].to_pylist())
    )


def test_a_reader_sees_attributes_of_later_commits(tmp_path: Path) -> None:
    Index(width=16).save(tmp_path)
    reader = Index.open(tmp_path)
    with Index.open(tmp_path, mode="a") as writer:
        writer.add(codes(30))
        writer.commit()
        assert reader.refresh()
        with pytest.raises(InvalidInput, match="this index has no attributes"):
            reader.attributes([1])
        writer.add(codes(30), attributes=table(range(30)))
        writer.commit()
    assert reader.refresh()
    check(reader, dict.fromkeys(range(30), NOTHING) | {i + 30: row(i) for i in range(30)})


def test_shards_are_one_index(tmp_path: Path) -> None:
    for part in range(2):
        index = Index(width=16)
        index.add(
            codes(40, part), ids=range(part * 40, part * 40 + 40), attributes=table(range(part * 40, part * 40 + 40))
        )
        index.save(tmp_path / f"part-{part}")
    folders = [tmp_path / "part-0", tmp_path / "part-1"]
    check(Index.open(folders), {i: row(i) for i in range(80)})
    other = Index(width=16)
    other.add(codes(3), ids=[100, 101, 102], attributes={"year": [1, 2, 3]})
    other.save(tmp_path / "part-2")
    with pytest.raises(InvalidInput, match="differ in attributes"):
        Index.open([*folders, tmp_path / "part-2"])


FORMS: dict[str, Any] = {
    "table": lambda: pa.table({"a": [1, 2], "b": ["x", None]}),
    "batch": lambda: pa.record_batch({"a": [1, 2], "b": ["x", None]}),
    "chunks": lambda: pa.concat_tables(
        [pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [2], "b": pa.array([None], pa.string())})]
    ),
    "views": lambda: pa.table({"a": [1, 2], "b": pa.array(["x", None], pa.string_view())}),
    "pandas": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8]),
    "dict of lists": lambda: {"a": [1, 2], "b": ["x", None]},
    "dict of arrays": lambda: {"a": np.array([1, 2]), "b": np.array(["x", None], dtype=object)},
    "dict of series": lambda: {"a": pd.Series([1, 2]), "b": pd.Series(["x", None])},
    "rows": lambda: [{"a": 1, "b": "x"}, {"a": 2}],
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_all_forms_are_equivalent(form: str) -> None:
    index = Index(width=16)
    index.add(codes(2), attributes=FORMS[form]())
    assert index.columns == {"a": "int64", "b": "string"}
    assert index.attributes([1, 0]).to_pylist() == [{"a": 2, "b": None}, {"a": 1, "b": "x"}]
    index.add(codes(2), attributes=FORMS[form]())
    assert index.matching("b = 'x'").tolist() == [0, 2]


class Stream:
    """As a polars frame is read."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table({"a": [1, 2]}).__arrow_c_stream__(requested_schema)


def test_others_tables_are_read_by_the_arrow_stream_interface() -> None:
    index = Index(width=16)
    index.add(codes(2), attributes=Stream())
    assert index.attributes([1])["a"].to_pylist() == [2]


def test_later_attributes_must_fit_the_first() -> None:
    index = Index(width=16)
    index.add(codes(2), attributes={"a": [1, 2], "b": ["x", "y"], "t": pa.array([1, 2], pa.timestamp("s"))})
    refused: dict[str, Any] = {
        "attributes must have a row for each item, got 3 rows for 2 items": {"a": [1, 2, 3]},
        "must have the columns of the first ones added, a, b, t, got 'c' too: leave it out": {"a": [1, 2], "c": [1, 2]},
        "column 'a' holds int64 in this index, got string": {"a": ["1", "2"]},
        "column 'b' holds large_string in this index, got int64": {"b": [1, 2]},
        "column 'a' holds int64 in this index, got double .*truncated": {"a": [1.5, 2]},
        "column 't' holds .* in this index, got .* would lose data": {"t": pa.array([1, 2], pa.timestamp("ms"))},
        "attributes must be a table of pyarrow, pandas or polars.* got int": 5,
        "attributes must be columns that Arrow reads": {"a": [1, "x"]},
    }
    for message, wrong in refused.items():
        with pytest.raises(InvalidInput, match=message):
            index.add(codes(2), attributes=wrong)
        with pytest.raises(InvalidInput, match=message):
            index.update(codes(2), [0, 1], attributes=wrong)
    assert len(index) == 2
    assert index.attributes([0, 1], ["a", "b"]).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    index.add(codes(2), attributes={"a": np.array([3, 4], dtype=np.int8), "t": [datetime(2000, 1, 1), None]})
    index.add(codes(1), attributes={"a": [None]})
    assert index.attributes([3, 4], ["b", "a"]).to_pylist() == [{"b": None, "a": 4}, {"b": None, "a": None}]


def test_types_that_no_column_has_are_refused() -> None:
    for wrong, message in (
        (pa.array([None, None]), "all of its values are null: give it a type"),
        (pa.array([1, 2]).cast(pa.decimal128(20)), "cast decimals to float64"),
        (pa.array([[1], [2]]), "lists of strings, got list"),
        (pa.array([{"a": 1}, {"a": 2}]), "got struct"),
        (pa.array([1, 2], pa.duration("s")), "got duration"),
    ):
        with pytest.raises(InvalidInput, match=f"column 'x' must hold booleans, numbers.*{message}"):
            Index(width=16).add(codes(2), attributes={"x": wrong})
    with pytest.raises(InvalidInput, match="distinct names"):
        Index(width=16).add(codes(2), attributes=pa.table([[1, 2], [3, 4]], names=["a", "a"]))


def test_what_is_asked_for_is_checked() -> None:
    index = Index(width=16)
    index.add(codes(2), attributes={"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(InvalidInput, match="a column must be one that the index has, a, b, got 'c': choose one"):
        index.attributes([0], columns=["a", "c"])
    with pytest.raises(InvalidInput, match="columns must be distinct"):
        index.attributes([0], columns=["a", "a"])
    with pytest.raises(InvalidInput, match="ids must be of items in the index"):
        index.attributes([5])
    assert index.attributes([]).num_rows == 0
    assert index.attributes(1, "b").to_pylist() == [{"b": "y"}]
    assert index.attributes(np.array([[0, -1], [1, 0]]), ["a"])["a"].to_pylist() == [1, None, 2, 1]


def test_large_texts_stay_in_the_file(tmp_path: Path) -> None:
    """Hits read the blocks of their own rows, and conditions on other columns read none of them."""
    index, count = Index(width=16), 3000
    texts = [f"<{i:05d}>" * 300 for i in range(count)]
    index.add(codes(count), attributes={"year": list(range(count)), "text": texts})
    index.save(tmp_path)
    file = next(tmp_path.glob("*.attributes.npy"))
    data = bytearray(file.read_bytes())
    place = data.index(texts[1500].encode())
    data[place + 7] ^= 1
    file.write_bytes(data)
    opened = Index.open(tmp_path)
    assert opened.matching("year >= 1000 AND year < 1003").tolist() == [1000, 1001, 1002]
    assert opened.attributes([1000, 2999], "text")["text"].to_pylist() == [texts[1000], texts[2999]]
    with pytest.raises(DamagedFile, match=rf"{file.name} is damaged: block .* restore a copy"):
        opened.attributes([1500], "text")
    assert Index.open(tmp_path).attributes([1500], "year")["year"].to_pylist() == [1500]
    with pytest.raises(DamagedFile, match=file.name):
        Index.open(tmp_path).matching("text LIKE '<00001%'")


def forge(folder: Path, change: Any) -> Path:
    """Write an index whose attributes are changed bytes under right checksums."""
    index = Index(width=16)
    index.add(codes(60), attributes=table(range(60)))
    index._live.write(lambda snapshot: snapshot.flush())
    own = index._live.current.segments[0].segment.built_attributes
    assert own is not None
    data = change(bytearray(own.file().tobytes()))
    vars(own)["_file"] = np.frombuffer(bytes(data), dtype=np.uint8)
    shutil.rmtree(folder, ignore_errors=True)
    index.save(folder)
    return folder


def use(index: Index) -> None:
    """Read attributes in every way."""
    for name in SCHEMA:
        index.matching(f"{name} IS NOT NULL")
    index.matching("lang = 'en' OR text LIKE '%a%' OR array_contains(tags, 't1') OR flag OR price > 1 OR raw = NULL")
    index.attributes(index.ids).validate(full=True)


def compact_and_use(index: Index) -> None:
    index.compact()
    use(index)


def test_forged_attributes_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    plain = forge(tmp_path / "plain", lambda data: data)
    size = len(np.load(next(plain.glob("*.attributes.npy"))))
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(300):

        def change(data: bytearray) -> bytearray:
            for at in rng.integers(0, size, rng.integers(1, 4)):
                data[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
            return data[: rng.integers(size)] if trial % 10 == 0 else data  # noqa: B023

        folder = forge(tmp_path / "forged", change)
        for read in (
            use,
            lambda index: index.attributes([3, 50], "text").validate(full=True),
            compact_and_use,
        ):
            with Index.open(folder, mode="a") as index:
                try:
                    read(index)
                except DamagedFile:
                    refused += 1
    assert refused > 100


def test_damaged_attributes_are_never_copied(tmp_path: Path) -> None:
    index = Index(width=16)
    index.add(codes(100), attributes=table(range(100)))
    index.save(tmp_path / "index")
    file = next((tmp_path / "index").glob("*.attributes.npy"))
    data = bytearray(file.read_bytes())
    data[-500] ^= 4
    file.write_bytes(data)
    for write in (
        lambda index: index.save(tmp_path / "copy"),
        lambda index: [index.add(codes(500)), index.compact()],
        lambda index: index.verify(),
    ):
        with Index.open(tmp_path / "index", mode="a") as opened, pytest.raises(DamagedFile, match=file.name):
            write(opened)


def test_an_index_with_vectors_a_graph_and_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MIN_GRAPH", 256)
    X = np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)
    index = Index(LinearCoder(width=32).fit(X), vectors="float16", graph=True)
    index.add(X, attributes=table(range(600)))
    index.save(tmp_path)
    for opened in (index, Index.open(tmp_path)):
        hits = opened.search(X[:9], k=5, filter="lang = 'en' AND small > 20")
        wanted = opened.matching("lang = 'en' AND small > 20")
        truth = np.square(X[:9, None] - X[wanted]).sum(axis=2).argsort(axis=1)[:, :5]
        assert np.mean([np.isin(*pair).mean() for pair in zip(hits.ids, wanted[truth], strict=True)]) > 0.9
        assert opened.attributes(hits.ids, "small")["small"].to_pylist() == [
            row(int(i))["small"] for i in hits.ids.ravel()
        ]
    assert index.nbytes_by_part()["attributes"] > 0
    assert Index.open(tmp_path).nbytes_by_part()["attributes"] > 0


def test_no_search_by_others_reads_attributes(tmp_path: Path) -> None:
    """Filters by ids and searches without one verify no block of them."""
    index = Index(width=16)
    index.add(codes(100), attributes=table(range(100)))
    index.save(tmp_path)
    file = next(tmp_path.glob("*.attributes.npy"))
    data = bytearray(file.read_bytes())
    data[200:] = bytes(len(data) - 200)
    file.write_bytes(data)
    opened = Index.open(tmp_path)
    opened.search(codes(3), k=5, filter=[1, 2, 3])
    opened.neighborhood(codes(3), size=5)
    opened.ids, opened.codes([5])
    opened._live.current.truncate(8)
    with pytest.raises(DamagedFile):
        opened.matching("flag")


def test_parts_of_a_buffer_are_few() -> None:
    index = Index(width=16)
    for i in range(200):
        index.add(codes(1), attributes=table([i]))
    parts = index._live.current.buffer.row_attributes
    assert len(parts) <= 8
    assert sum(map(len, parts)) == 200
    assert all(isinstance(part, Attributes) for part in parts)
    check(index, {i: row(i) for i in range(200)})
