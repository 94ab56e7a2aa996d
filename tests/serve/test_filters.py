"""Conditions and columns over HTTP: what an index answers, a server and its client answer; hostile ones are refused."""

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from nestcode import Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.client import Client
from nestcode.errors import InvalidInput
from nestcode.serve import Limits, Service, create_app, in_thread
from nestcode.serve.batching import Options
from tests.serve.conftest import PATIENCE, error_of

COUNT = 600
TABLE = pa.table(
    {
        "lang": pa.array(["en", "de", None] * (COUNT // 3)).dictionary_encode(),
        "year": pa.array(np.arange(COUNT) % 40 + 1985, pa.int16()),
        "title": [f"item {i} <b>&" for i in range(COUNT)],
        "at": pa.array([datetime(2020, 1 + i % 12, 1, tzinfo=UTC) for i in range(COUNT)], pa.timestamp("us", "UTC")),
        "tags": [["a"] * (i % 3) for i in range(COUNT)],
        "AND": [i % 2 == 0 for i in range(COUNT)],
    }
)


@pytest.fixture(scope="module")
def folders(rows: Floats, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of two halves, and of the whole."""
    place, coder = tmp_path_factory.mktemp("filters"), LinearCoder(32).fit(rows)
    for name, some in (("a", slice(0, 300)), ("b", slice(300, COUNT)), ("whole", slice(0, COUNT))):
        index = Index(coder, vectors="float16")
        index.add(rows[some], np.arange(COUNT)[some], attributes=TABLE.take(np.arange(COUNT)[some]))
        index.save(place / name)
    return [place / name for name in ("a", "b", "whole")]


@pytest.fixture(scope="module")
def whole(folders: list[Path]) -> Index:
    return Index.open(folders[2])


@pytest.fixture(scope="module")
def urls(folders: list[Path]) -> Iterator[list[str]]:
    with (
        in_thread(create_app(Service(folders[0]))) as a,
        in_thread(create_app(Service(folders[1]))) as b,
        in_thread(create_app(Service(folders[2], limits=Limits(columns=5_000)))) as all_of_it,
    ):
        yield [a, b, all_of_it]


CONDITIONS: list[Any] = [
    "lang = 'en' AND year > 2010",
    ("year > ? AND lang IN ?", [2010, ["en", "fr"]]),
    ("at >= ?", [datetime(2020, 6, 1, tzinfo=UTC)]),
    ("title = ?", ["' OR 1=1 --"]),
    ("lang = ?", [None]),
    "array_contains(tags, 'a') AND \"AND\"",
    "lang IS NULL",
]


@pytest.mark.parametrize("wanted", CONDITIONS, ids=str)
def test_a_client_finds_what_its_index_finds(urls: list[str], whole: Index, rows: Floats, wanted: Any) -> None:
    expected = whole.search(rows[:5], k=7, filter=wanted)
    with Client(urls[2]) as one, Client(urls[:2]) as halves:
        for client in (one, halves):
            found = client.search(rows[:5], k=7, filter=wanted)
            np.testing.assert_array_equal(found.ids, expected.ids)
            assert client.attributes(found.ids, ["year", "at"]).equals(whole.attributes(expected.ids, ["year", "at"]))
            assert (
                client.attributes(found.ids[0, :2], "tags").to_pylist()
                == whole.attributes(found.ids[0, :2], "tags").to_pylist()
            )
            for ids in ([-1, 5], [-1], []):
                assert client.attributes(ids).equals(whole.attributes(ids))
            for wrong in ([-1, 10**9, 5], [-2], [0.5]):
                with pytest.raises(InvalidInput) as own:
                    whole.attributes(wrong)
                with pytest.raises(InvalidInput, match=re.escape(str(own.value).partition(":")[0])):
                    client.attributes(wrong)
            for text in ({"filter": "title = '\ud800'"}, {"filter": ("title = ?", ["\ud800"])}):
                with pytest.raises(InvalidInput, match="a lone surrogate"):
                    client.search(rows[:1], **text)
            with pytest.raises(InvalidInput, match="a lone surrogate"):
                client.attributes([5], "\ud800")


def test_columns_come_with_hits(urls: list[str], whole: Index) -> None:
    with httpx.Client(base_url=urls[2], timeout=PATIENCE) as http:
        asked = {"ids": [7, 8], "k": 3, "filter": "year > ?", "parameters": [2010], "columns": ["title", "at"]}
        found = http.post("/v1/search", json=asked).json()
        for ids, shown in zip(found["ids"], found["attributes"], strict=True):
            expected = whole.attributes(ids, ["title", "at"]).to_pylist()
            assert [one["title"] for one in shown] == [one["title"] for one in expected]
            assert [datetime.fromisoformat(one["at"]) for one in shown] == [one["at"] for one in expected]
        assert http.post("/v1/search", json={"ids": [7], "columns": []}).json()["attributes"] == [[{}] * 10]
        assert http.get("/v1/info").json()["columns"] == whole.columns
        found = http.post("/v1/attributes", json={"ids": [3, 2, 10**9], "columns": ["year"]}).json()
        assert found == {"ids": [2, 3], "rows": [{"year": 1987}, {"year": 1988}]}


@pytest.mark.parametrize(
    ("request_of", "named"),
    [
        ({"filter": "year >"}, "a condition must have a column or a value, got its end"),
        ({"filter": "__import__('os')"}, "a column must be one that the index has"),
        ({"filter": "year > 1; DROP TABLE items"}, "got '; DROP TABLE items'"),
        ({"filter": "year = 'x'"}, "column 'year' is int16"),
        ({"filter": "(" * 60 + "year = 1" + ")" * 60}, "at most 50 parentheses"),
        ({"filter": "NOT " * 100 + "year = 1"}, "at most 50 parentheses and NOT"),
        ({"filter": " OR ".join(["year = 1"] * 101)}, "at most 100 comparisons here, got 101"),
        ({"filter": "year = 1" + " " * 5000}, "at most 4,096 characters here, got 5,008"),
        ({"filter": "lang = 'open"}, "must be names, numbers"),
        ({"filter": ""}, "must not be empty"),
        ({"filter": "year = ?"}, "a parameter for each ?"),
        ({"filter": "year = 1", "parameters": [1]}, "a parameter for each ?"),
        ({"filter": "year IN ?", "parameters": [list(range(70_000))]}, "at most 65536 values"),
        ({"filter": "year = ?", "parameters": [{"a": 1}]}, "parameters[0]"),
        ({"filter": "year = ?", "parameters": [[[1]]]}, "parameters[0]"),
        ({"filter": [1], "parameters": [1]}, "parameters belong to a condition"),
        ({"parameters": [1]}, "parameters belong to a condition"),
        ({"filter": {"year": 1}}, "filter"),
        ({"columns": ["nothing"]}, "a column must be one that the index has"),
        ({"columns": ["year", "year"]}, "columns must be distinct"),
        ({"columns": "year"}, "columns: Expected array"),
        ({"columns": ["title"], "k": 600}, "at most 5,000 bytes"),
    ],
    ids=range(22),
)
def test_hostile_filters_are_refused_by_name(urls: list[str], request_of: dict[str, Any], named: str) -> None:
    with httpx.Client(base_url=urls[2], timeout=PATIENCE) as http:
        answer = http.post("/v1/search", json={"ids": [7], **request_of})
        assert answer.status_code == 400
        assert named in error_of(answer)
        assert http.post("/v1/search", json={"ids": [7], "k": 1}).json()["ids"] == [[7]]


@pytest.mark.parametrize("text", ["item 7", {"title": "b ITEM 9"}, "nothing"])
@pytest.mark.parametrize("wanted", [None, "year > 2010", [7, 9, 17]])
def test_a_client_fuses_rankings_as_its_index_does(
    urls: list[str], whole: Index, rows: Floats, text: Any, wanted: Any
) -> None:
    expected = whole.search(rows[:5], k=7, text=text, filter=wanted)
    with Client(urls[2]) as one:
        found = one.search(rows[:5], k=7, text=text, filter=wanted)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_hostile_texts_are_refused_by_name(urls: list[str], rows: Floats) -> None:
    with httpx.Client(base_url=urls[2], timeout=PATIENCE) as http:
        for text, named in (
            ("a " * 3000, "at most 4,096 characters and 100 different words here, got 6,000 and 1"),
            (" ".join(map(str, range(101))), "got 293 and 101"),
            ({"lang": "en"}, "a column must be one that the index has, title, got 'lang' for text"),
            ({}, "text must name one column, got 0"),
            ({"title": 5}, "text"),
            (["a"], "text"),
            (5, "text"),
        ):
            answer = http.post("/v1/search", json={"ids": [7], "text": text})
            assert answer.status_code == 400
            assert named in error_of(answer)
    with Client(urls[:2]) as halves, pytest.raises(InvalidInput, match="only searched by distance, got 2: search each"):
        halves.search(rows[0], text="item")
    wrong: Any = ["item", "7"]
    with Client(urls[2]) as client, pytest.raises(InvalidInput, match="takes one text for all queries, or"):
        client.search(rows[:2], text=wrong)


@pytest.mark.parametrize("wanted", [None, "lang = 'en'", range(50)])
def test_a_client_finds_what_is_within_a_radius(urls: list[str], whole: Index, rows: Floats, wanted: Any) -> None:
    radius = float(np.median(whole.search(rows[:5], k=90, filter=wanted).distances[:, 40]))
    expected: Any = whole.range_search(rows[:5], radius, filter=wanted)
    assert max(len(one.ids) for one in expected) > 30
    with Client(urls[2]) as one, Client(urls[:2]) as halves:
        for client in (one, halves):
            several: Any = client.range_search(rows[:5], radius, filter=wanted)
            for found, own in zip(
                [*several, client.range_search(rows[0], radius, filter=wanted)], [*expected, expected[0]], strict=True
            ):
                np.testing.assert_array_equal(found.ids, own.ids)
        one._about["limits"]["k"] = 20
        with pytest.raises(InvalidInput, match="at most 20 items within here, got more: make it smaller"):
            one.range_search(rows[:5], radius, filter=wanted)


def test_equal_numbers_of_other_types_are_not_mixed_up(urls: list[str]) -> None:
    assert Options(1, filter="a = ?", parameters=b"[1]") != Options(1, filter="a = ?", parameters=b"[true]")
    with httpx.Client(base_url=urls[2], timeout=PATIENCE) as http:
        for value, status in ((True, 200), (1, 400), (1.0, 400)) * 2:
            asked = {"ids": [7], "filter": '"AND" = ?', "parameters": [value]}
            assert http.post("/v1/search", json=asked).status_code == status


def test_an_index_without_attributes_says_so(http: httpx.Client, client: Client, rows: Floats) -> None:
    for path, asked in (
        ("/v1/search", {"ids": [7], "filter": "year > 1"}),
        ("/v1/search", {"ids": [7], "columns": ["year"]}),
        ("/v1/attributes", {"ids": [7]}),
    ):
        answer = http.post(path, json=asked)
        assert (answer.status_code, "this index has" in error_of(answer)) == (400, True)
    with pytest.raises(InvalidInput, match="has none"):
        client.search(rows[:1], filter="year > 1")
    for wanted, named in (
        (("year > ?", 5), "a text and a list"),
        (("year > ?", [object()]), "a value must be"),
        (pa.compute.field("year") > 1, "conditions as texts"),
    ):
        with pytest.raises((InvalidInput, TypeError), match=named):
            client.search(rows[:1], filter=wanted)


def test_items_are_added_with_their_attributes(folders: list[Path], rows: Floats, tmp_path: Path) -> None:
    shutil.copytree(folders[2], tmp_path / "copy")
    some, limits = TABLE.take(np.arange(100)), Limits(json=20_000)
    with in_thread(create_app(Service(tmp_path / "copy", writable=True, limits=limits))) as url, Client(url) as client:
        client.add(rows[:100], np.arange(1000, 1100), attributes=some)  # by several requests
        assert client.attributes(np.arange(1000, 1100)).to_pylist() == some.to_pylist()
        client.add(rows[:1], [1000], attributes=[{"year": 1}], on_duplicate="replace")
        assert client.attributes([1000]).to_pylist() == [dict.fromkeys(TABLE.column_names) | {"year": 1}]
        deep: Any = "x"
        for _ in range(400):
            deep = [deep]
        for wrong, named in (
            ([{"yaer": 1}], "got 'yaer' too"),
            ([{"year": "x"}], "column 'year' holds int16"),
            ([{"year": 10**9}], "column 'year' holds int16"),
            ([{"at": "yesterday"}], "in ISO 8601, got 'yesterday'"),
            ([{"year": {"a": 1}}], "column 'year' must hold"),
            ([{"tags": deep}], "column 'tags' must hold"),
            ([{}], "a row for each item"),
            ([], "a row for each item, got 0 rows"),
            ([{"title": "x" * 30_000}], "at most 20,000 bytes"),
        ):
            asked = {"ids": [2000], "vectors": rows[:1].tolist(), "attributes": wrong}
            with httpx.Client(base_url=url, timeout=PATIENCE) as http:
                answer = http.post("/v1/items", json=asked)
                assert answer.status_code in (400, 413), answer.text
                assert named in error_of(answer)
        with pytest.raises(InvalidInput, match="attributes takes"):
            client.add(rows[:1], [2000], attributes=[{"title": "x" * 30_000}])
        assert len(client) == COUNT + 100
