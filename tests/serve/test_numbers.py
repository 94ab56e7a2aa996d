"""Every number of a request: an answer, or a refusal that says why; never a failure of the server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from nestcode import Index
from nestcode.serve import Limits, Service, create_app, in_thread, schemas
from nestcode.wire import CODES, FLOAT32
from tests.serve.conftest import FEATURES, PATIENCE, WIDTH, error_of
from tests.serve.test_attacks import talk

NUMBERS = ["9" * 400, "9" * 5000, "-" + "9" * 400, str(2**64), str(2**63), str(2**63 - 1), "-1", "0", "1e400", "1e300"]
NUMBERS += ["2.5", "1e-320", "NaN", "Infinity", "true", '"3"', '""', "null", "[3]", "{}", "0x10", "1_0"]
ROUTES: dict[str, tuple[type[schemas.Body], dict[str, Any]]] = {  # what else a body needs
    "/v1/search": (schemas.SearchRequest, {"ids": [1]}),
    "/v1/neighborhood": (schemas.NeighborhoodRequest, {"ids": [1]}),
    "/v1/nested": (schemas.NestedRequest, {"ids": [1]}),
    "/v1/attributes": (schemas.AttributesRequest, {"ids": [1]}),
    "/v1/items": (schemas.AddRequest, {"ids": [1], "vectors": [[0.5] * FEATURES], "on_duplicate": "replace"}),
    "/v1/items/delete": (schemas.RemoveRequest, {"ids": [1]}),
}
QUERIES: dict[str, tuple[type[schemas.Body], str, int]] = {
    "/v1/search": (schemas.SearchOptions, FLOAT32, 4 * FEATURES),
    "/v1/encode": (schemas.EncodeOptions, FLOAT32, 4 * FEATURES),
    "/v1/decode": (schemas.DecodeOptions, CODES, WIDTH // 8),
}


@pytest.fixture(scope="module")
def url(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A writable server of an index with attributes, with a stream."""
    pytest.importorskip("pyarrow")
    place = tmp_path_factory.mktemp("numbers")
    (place / "a.nest").write_bytes(bytes(100))
    assert index.coder is not None
    own, rows = Index(index.coder), np.ones((20, FEATURES), np.float32)
    own.add(rows, attributes={"year": list(range(20)), "share": [0.5] * 20})
    own.save(place / "index")
    service = Service(place / "index", streams=place, writable=True, limits=Limits(seconds=PATIENCE))
    with in_thread(create_app(service)) as address:
        yield address


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE) as opened:
        yield opened


def check(answer: httpx.Response, what: str) -> None:
    """Fail unless a request was answered, or refused with a reason."""
    assert answer.status_code in (200, 400, 404, 416), f"{what[:80]} gave {answer.status_code}: {answer.text[:300]}"
    assert answer.status_code == 200 or len(error_of(answer)) < 500, what[:80]


@pytest.mark.parametrize("route", ROUTES)
def test_numbers_in_json(http: httpx.Client, route: str) -> None:
    model, given = ROUTES[route]
    for field in (one.name for one in msgspec.structs.fields(model)):
        for number in NUMBERS:
            others = json.dumps({name: value for name, value in given.items() if name != field})[1:-1]
            for value in (
                number,
                f"[{number}]",
                f"[[{number}]]",
                f'[{{"year": {number}}}]',
                f'[{{"share": {number}}}]',
            ):
                body = "{" + ", ".join(part for part in (others, f'"{field}": {value}') if part) + "}"
                check(http.post(route, content=body, headers={"Content-Type": "application/json"}), f"{route} {body}")


@pytest.mark.parametrize("route", ["/v1/encode", "/v1/decode", *ROUTES])
def test_bytes_that_are_no_text_are_refused(http: httpx.Client, route: str) -> None:
    for field in ("codes", "texts", "filter", "ids", "vectors", "attributes", "columns", "odd"):
        for value in (b'"\xff"', b'["\xff"]', b'[{"\xff": "\xff"}]', b'"\\ud800"'):
            body = b'{"%b": %b}' % (field.encode(), value)
            answer = http.post(route, content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, bool(error_of(answer))) == (400, True), body


def test_numbers_in_conditions(http: httpx.Client) -> None:
    for number in NUMBERS:
        for rule in ("year > {}", "share <= {}", "year IN ({})", "year = -{}"):
            check(http.post("/v1/search", json={"ids": [1], "filter": rule.format(number)}), rule.format(number))
        body = f'{{"ids": [1], "filter": "year > ? OR share < ?", "parameters": [{number}, {number}]}}'
        check(http.post("/v1/search", content=body, headers={"Content-Type": "application/json"}), body)


@pytest.mark.parametrize("route", QUERIES)
def test_numbers_in_urls(http: httpx.Client, route: str) -> None:
    model, kind, size = QUERIES[route]
    for field in (one.name for one in msgspec.structs.fields(model)):
        for number in [*NUMBERS, "+3", " 3", "3 ", "٣"]:
            answer = http.post(route, params={field: number}, content=bytes(size), headers={"Content-Type": kind})
            check(answer, f"{route}?{field}={number}")
    for number in NUMBERS:
        answer = http.get(f"/v1/items/{number}")
        assert answer.status_code in (400, 404, 405), number[:80]


def test_numbers_in_heads(http: httpx.Client, url: str) -> None:
    for number in NUMBERS:
        for span in (f"bytes={number}-", f"bytes=0-{number}", f"bytes=-{number}", f"bytes={number}-{number}"):
            answer = http.get("/v1/streams/a.nest", headers={"Range": span})
            assert answer.status_code in (200, 206, 400, 416), span[:80]
        head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nContent-Length: {number}\r\n"
        first = talk(url, head.encode() + b"Connection: close\r\n\r\n" + bytes(4 * FEATURES))[:12]
        assert first in (b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 200"), f"{number[:40]}: {first!r}"
