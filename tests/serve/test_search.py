"""A server answers as its index does, in JSON and in bytes, and a client is used as an index."""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from nestcode import Codes, Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.client import Client, _Rows
from nestcode.errors import InvalidInput, Unavailable
from nestcode.search.hits import Hits, merge
from nestcode.serve import Limits, Service, app, create_app, in_thread
from nestcode.wire import CODES, FLOAT32
from tests.serve.conftest import FEATURES, WIDTH, wait_for

ALL = 10**6  # candidates: an exhaustive search


def assert_equal(found: Hits, expected: Hits) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.compared, expected.compared)
    assert (found.ids.dtype, found.distances.dtype) == (expected.ids.dtype, expected.distances.dtype)
    assert type(found.compared) is type(expected.compared)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"k": 1}, {"k": 7, "candidates": 50, "rerank": 20}, {"rank": "asymmetric"}, {"metric": "cosine"},
        {"candidates": ALL}, {"filter": [5, 6, 700]}, {"filter": np.arange(2900) % 2 == 0}, {"filter": iter([1, 2])},
        {"filter": {1, 2, 3}}, {"filter": 7, "k": np.int64(2)}, {"filter": [], "candidates": np.int64(100)},
    ],
    ids=["default", "one", "effort", "asymmetric", "cosine", "all", "ids", "mask", "iterator", "set", "id", "none"],
)  # fmt: skip
def test_a_client_finds_what_its_index_finds(
    client: Client, index: Index, rows: Floats, options: dict[str, Any]
) -> None:
    ours = dict(options)
    if "filter" in options and hasattr(options["filter"], "__next__"):
        ours, options = {"filter": iter([1, 2])}, {"filter": iter([1, 2])}
    assert_equal(client.search(rows[-100:], **options), index.search(rows[-100:], **ours))


def test_a_client_knows_its_items_and_refuses_texts_that_are_not_unicode(client: Client, index: Index) -> None:
    for item in (0, 2899, np.int64(3), 2900, -1, 2**63, True, "3", 1.0):
        assert (item in client) == (item in index)
    with pytest.raises(InvalidInput, match="a lone surrogate"):
        client.search(index.codes([3]), text="\ud800")


def test_large_bodies_are_answered(client: Client, index: Index, rows: Floats) -> None:
    """They arrive in several reads, the last of which may be larger than a head may be."""
    many = np.resize(rows, (4000, rows.shape[1]))
    assert many.nbytes > 1 << 17
    for count in (4000, 3000, 2000, 1000) * 3:
        assert_equal(client.search(many[:count], k=1), index.search(many[:count], k=1))


def test_one_query_gives_arrays_of_one_dimension(client: Client, index: Index, rows: Floats) -> None:
    assert_equal(client.search(rows[-1]), index.search(rows[-1]))
    for codes in (index.codes([3]), index.codes([3])[0]):
        assert_equal(client.search(codes, k=4), index.search(codes, k=4))
    assert_equal(client.search(rows[-1:], k=3), index.search(rows[-1:], k=3))


def test_codes_are_queries_too(client: Client, index: Index, rows: Floats) -> None:
    codes = client.encode(rows[:70])
    assert codes == index.codes(np.arange(70))
    assert_equal(client.search(codes, k=5), index.search(codes, k=5))


def test_decoding_takes_any_length(client: Client, index: Index) -> None:
    assert index.coder is not None
    for ids in ([1, 2, 3], []):
        codes = index.codes(ids)
        for length in (0, 1, 13, WIDTH, None):
            kept = codes if length is None else codes.prefix(length)
            np.testing.assert_array_equal(client.decode(codes, length=length), index.coder.decode(kept))


def test_json_and_bytes_agree(http: httpx.Client, client: Client, rows: Floats) -> None:
    asked = rows[-3:]
    found = http.post("/v1/search", json={"vectors": asked.tolist(), "k": 4}).json()
    hits = client.search(asked, 4)
    assert found["ids"] == hits.ids.tolist()
    assert found["distances"] == hits.distances.tolist()
    assert found["compared"] == hits.compared.tolist()
    raw = http.post("/v1/search?k=4", content=asked.tobytes(), headers={"Content-Type": FLOAT32})
    assert raw.json() == found
    codes = http.post("/v1/encode", json={"vectors": asked.tolist()}).json()["codes"]
    packed = client.encode(asked).packed
    assert codes == [row.tobytes().hex() for row in packed]
    by_hex = http.post("/v1/search", json={"codes": codes, "k": 4}).json()
    by_bytes = http.post("/v1/search?k=4", content=packed.tobytes(), headers={"Content-Type": CODES}).json()
    assert by_hex == by_bytes
    short = http.post("/v1/encode?length=5", json={"vectors": asked.tolist()}).json()["codes"]
    assert short == [row.tobytes().hex() for row in client.encode(asked).prefix(5).packed]


def test_items_are_queries_too(http: httpx.Client, index: Index) -> None:
    found = http.post("/v1/search", json={"ids": [8, 9], "k": 2}).json()
    assert found["ids"] == index.search(index.vectors([8, 9]), k=2).ids.tolist()
    assert [ids[0] for ids in found["ids"]] == [8, 9]


def test_fewer_items_than_k_are_left_out_of_json(http: httpx.Client) -> None:
    found = http.post("/v1/search", json={"ids": [8], "k": 9, "filter": [1, 8]}).json()
    assert sorted(found["ids"][0]) == [1, 8]
    assert len(found["distances"][0]) == 2


def test_neighborhoods_are_those_of_the_index(http: httpx.Client, index: Index, rows: Floats) -> None:
    for asked in ({"vectors": rows[-4:].tolist()}, {"vectors": rows[-1:].tolist()}, {"ids": [4]}):
        found = http.post("/v1/neighborhood", json={**asked, "size": 20, "limit": 15}).json()
        queries = index.vectors([4]) if "ids" in asked else np.array(asked["vectors"])
        hoods = list(index.neighborhood(queries, size=20))
        assert found["length"] == [hood.length for hood in hoods]
        assert found["count"] == [hood.count for hood in hoods]
        assert found["ids"] == [hood.ids[:15].tolist() for hood in hoods]
    part = http.post("/v1/neighborhood", json={"ids": [4], "fraction": 0.5}).json()
    assert part["count"][0] >= len(index) / 2


def test_nested_neighborhoods_shrink_to_the_query(http: httpx.Client, index: Index) -> None:
    found = http.post("/v1/nested", json={"ids": [4], "limit": 1000}).json()
    hoods = index.nested(index.vectors([4]))
    assert found["count"] == hoods.count.tolist()
    assert (found["length"], found["ids"]) == (WIDTH, [4])
    assert found["code"] == index.codes([4]).packed[0].tobytes().hex()
    for length in (3, 7):
        at = http.post("/v1/nested", json={"ids": [4], "length": length, "limit": 1000}).json()
        assert at["ids"] == hoods[length].ids[:1000].tolist()


def test_the_client_has_the_signature_of_the_index() -> None:
    ours, theirs = inspect.signature(Index.search).parameters, inspect.signature(Client.search).parameters
    assert list(theirs) == [*ours, "allow_partial"]  # of a cluster
    assert [one.default for one in ours.values()] == [theirs[name].default for name in ours]


def test_what_a_client_cannot_send_is_named(client: Client, rows: Floats) -> None:
    with pytest.raises(InvalidInput, match=r"leave vectors out"):
        client.search(rows[0], vectors=rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"take prefix\(48\)"):
        client.search(Codes.from_bits(np.zeros((1, 5), dtype=bool)))
    with pytest.raises(InvalidInput, match="12 features"):
        client.search(rows[:, :5])
    with pytest.raises(InvalidInput, match=r"k must be at most 1,000, got 5,000"):
        client.search(rows[0], k=5000)
    with pytest.raises(InvalidInput, match="NaN or inf in row 1"):
        client.search(np.where(np.arange(3)[:, None] == 1, np.nan, rows[:3]))
    with pytest.raises(InvalidInput, match="at least one server"):
        Client([])
    with pytest.raises(Unavailable, match="does not answer"):
        Client("http://127.0.0.1:9")
    for wrong in ("localhost:9", "http://", "ftp://host", "http://a:b"):
        with pytest.raises(InvalidInput, match="is not the address of a server"):
            Client(wrong)
    assert len(client) == 2900


@pytest.mark.parametrize("limits", [Limits(rows=7), Limits(body=700)])
def test_many_rows_are_sent_in_several_requests(limits: Limits, folder: Path, index: Index, rows: Floats) -> None:
    with in_thread(create_app(Service(folder, limits=limits))) as url, Client(url) as client:
        assert_equal(client.search(rows[:30], 3), index.search(rows[:30], 3))
        allowed = [*range(9)]
        assert_equal(client.search(rows[:30], 3, filter=allowed), index.search(rows[:30], 3, filter=allowed))
        codes = client.encode(rows[:30])
        assert codes == index.coder.encode(rows[:30])  # type: ignore[union-attr]
        np.testing.assert_array_equal(client.decode(codes), index.coder.decode(codes))  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [FLOAT32, CODES])
def test_requests_have_as_many_rows_as_fit(kind: str) -> None:
    rows = _Rows(kind, np.random.default_rng(0).random((30, 12), dtype=np.float32).tobytes(), 30, 384, None)
    for limit in (1, 500, 20_000, 100_000):
        about = {"limits": {"rows": 100, "body": limit, "json": limit}}
        assert b"".join(part.body for part in rows.split(about)) == rows.body
        for ids in (1, 20, 9000):
            request = {"k": 10, "filter": [*range(ids)]}
            whole = len(json.dumps(request | rows.as_json()))
            if len(json.dumps(request)) > limit:
                with pytest.raises(
                    InvalidInput, match=rf"at most {limit:,} bytes of JSON, .* {ids:,} ids .*: give fewer ids"
                ):
                    next(rows.split(about, request))
                continue
            parts = [*rows.split(about, request)]
            assert b"".join(part.body for part in parts) == rows.body
            assert max(len(json.dumps(request | part.as_json())) for part in parts) <= limit
            assert len(parts) == 1 or 2 * whole > limit


def test_the_client_takes_what_the_index_takes(client: Client, index: Index, rows: Floats) -> None:
    assert_equal(client.search(rows[:0], 3), index.search(rows[:0], 3))
    assert client.encode(rows[:0]) == index.codes([])
    client.add(rows[:0], ids=[])
    client.remove([])
    for wrong in ([0, 1, 1], b"abc"):
        with pytest.raises(InvalidInput, match="filter must be ids"):
            client.search(rows[0], filter=wrong)


def test_a_token_is_any_line_of_text(folder: Path) -> None:
    token = "zwölf Boxkämpfer jagen"
    with in_thread(create_app(Service(folder), token=token)) as url, Client(url, token=token) as client:
        assert len(client) == 2900
        for wrong in ("", "a\n", " a"):
            with pytest.raises(InvalidInput, match="a token must be printable"):
                Client(url, token=wrong)
    with pytest.raises(InvalidInput, match="closed: make another"):
        client.search(np.zeros(FEATURES))
    client.close()


def test_a_forked_client_has_connections_of_its_own(url: str, rows: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else parent and child read each other's answers, and wait for threads that only the parent has."""
    client = Client([url, url])
    parts: list[Any] = [*(server._http for server in client._servers), client._pool]
    ours = [part.get() for part in parts]
    monkeypatch.setattr("nestcode.connection.os", SimpleNamespace(getpid=lambda: -1))  # as in a child
    assert not {*map(id, ours)} & {id(part.get()) for part in parts}
    assert client.search(rows[8], k=1).ids.tolist() == [8]
    client.close()
    for opened in ours[:2]:
        assert not opened.is_closed
        opened.close()
    ours[2].shutdown()


def test_a_client_learns_of_another_index(rows: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows for one index must not be read as rows for another."""
    monkeypatch.setattr(app, "REFRESH", 0.01)

    def save(features: int) -> Index:
        index = Index(LinearCoder(2 * features).fit(rows[:, :features]))
        index.add(rows[: 100 * features, :features])
        index.save(tmp_path, overwrite=True)
        return index

    wide = save(12)
    with in_thread(create_app(Service(tmp_path))) as url, Client(url) as client, Client(url) as second:
        codes = client.encode(rows[:3])
        narrow = save(4)
        wait_for(lambda: len(client) == 400)
        with pytest.raises(InvalidInput, match="4 features"):
            client.search(rows[0])
        assert_equal(second.search(rows[:5, :4]), narrow.search(rows[:5, :4]))
        with pytest.raises(InvalidInput, match=r"width 8, got 24"):
            client.search(codes)
        assert_equal(client.search(rows[:5, :4]), narrow.search(rows[:5, :4]))
        assert client.encode(rows[:3, :4]) == narrow.codes([0, 1, 2])
        assert (client.width, wide.width) == (8, 24)


def test_shards_behind_a_client_answer_as_one_index(rows: Floats, tmp_path: Path) -> None:
    """Also where distances tie, and where a shard has fewer than k items."""
    coder = LinearCoder(24).fit(rows)
    whole = Index(coder)
    items = np.concatenate([rows[:600], rows[:40]])  # 40 items twice
    whole.add(items)
    parts = [range(300), range(300, 637), range(637, 640)]
    for place, part in enumerate(parts):
        shard = Index(coder)
        shard.add(items[part], ids=np.array(part))
        shard.save(tmp_path / str(place))
    apps = [create_app(Service(tmp_path / str(place))) for place in range(3)]
    with in_thread(apps[0]) as a, in_thread(apps[1]) as b, in_thread(apps[2]) as c, Client([a, b, c]) as client:
        assert len(client) == 640
        for queries in (rows[-20:], rows[:40], rows[5]):
            for k in (1, 10, 700):
                options: dict[str, Any] = {"k": k, "candidates": ALL, "rerank": ALL}
                assert_equal(client.search(queries, **options), whole.search(queries, **options))
        allowed = [3, 301, 638]
        assert_equal(client.search(rows[:9], 5, filter=allowed), whole.search(rows[:9], 5, filter=allowed))
        with in_thread(create_app(Service([tmp_path / str(place) for place in range(3)]))) as d, Client(d) as single:
            assert_equal(single.search(rows[-20:], **options), whole.search(rows[-20:], **options))
        with pytest.raises(InvalidInput, match="write to the one"):
            client.remove([3])
    other = Index(width=24)
    other.save(tmp_path / "other")
    one, two = (in_thread(create_app(Service(tmp_path / name))) for name in ("0", "other"))
    with one as first, two as second, pytest.raises(InvalidInput, match="same width and coder"):
        Client([first, second])


def test_merging_equals_sorting_everything() -> None:
    rng = np.random.default_rng(1)
    distances = rng.integers(0, 4, (5, 12)).astype(np.float32)  # ties
    ids = np.argsort(rng.random((5, 12)), axis=1)
    order = np.lexsort((ids, distances), axis=1)[:, :7]
    parts = []
    for columns in (slice(0, 3), slice(3, 12)):
        inner = np.lexsort((ids[:, columns], distances[:, columns]), axis=1)
        part = np.take_along_axis(ids[:, columns], inner, 1), np.take_along_axis(distances[:, columns], inner, 1)
        parts.append(Hits(*part, np.ones(5, dtype=np.int64)))
    merged = merge(parts, 7)
    np.testing.assert_array_equal(merged.ids, np.take_along_axis(ids, order, 1))
    assert merged.compared.tolist() == [2] * 5


def test_an_index_of_bare_codes_takes_codes_or_a_coder(rows: Floats, tmp_path: Path) -> None:
    coder = LinearCoder(24).fit(rows)
    codes = coder.encode(rows[:200]).prefix(20)
    index = Index(width=20)
    index.add(codes)
    index.save(tmp_path)
    with in_thread(create_app(Service(tmp_path))) as url, Client(url) as client:
        assert_equal(client.search(codes[:5]), index.search(codes[:5]))
        with pytest.raises(InvalidInput, match="takes Codes"):
            client.search(rows[0])
    with in_thread(create_app(Service(tmp_path, coder=coder))) as url, Client(url) as client:
        assert client.encode(rows[:5]) == codes[:5]
        assert_equal(client.search(rows[:5]), index.search(codes[:5]))
    with pytest.raises(InvalidInput, match="at least the index's 20 bits"):
        Service(tmp_path, coder=LinearCoder(8).fit(rows))
