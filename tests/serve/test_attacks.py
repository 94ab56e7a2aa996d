"""Hostile requests are refused with a reason, and the server goes on."""

import contextlib
import gc
import gzip
import json
import os
import socket
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from nestcode import Index
from nestcode.arrays import Floats
from nestcode.cli.serve import _check_hub, token_of
from nestcode.errors import DamagedFile, InvalidInput, Unavailable
from nestcode.serve import Items, Limits, Service, app, create_app, in_thread, protocol, server
from nestcode.serve.guard import check_origins
from nestcode.serve.protocol import PIPELINED, LimitedProtocol
from nestcode.serve.server import check_token, listen
from nestcode.wire import CODES, FLOAT32, HITS
from tests.serve.conftest import FEATURES, PATIENCE, WIDTH, error_of, wait_for

SMALL = Limits(body=20_000, rows=50, k=20, seconds=PATIENCE)
IMPATIENT = replace(SMALL, seconds=0.3)
TOKEN = "correct horse battery staple"
ROW = [0.5] * FEATURES
END = b"Connection: close\r\n\r\n"
LAST = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with small limits, items and a folder of streams beside a secret."""
    place = tmp_path_factory.mktemp("files")
    (place / "streams").mkdir()
    (place / "streams" / "a.nest").write_bytes(bytes(range(100)))
    (place / "streams" / "notes.txt").write_text("secret")
    (place / "secret.nest").write_text("secret")
    service = Service(folder, items=Items("text", ["one", "two"]), streams=place / "streams", limits=SMALL)
    with in_thread(create_app(service), SMALL) as url, httpx.Client(base_url=url, timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture(scope="module")
def impatient(folder: Path) -> Iterator[str]:
    """The address of a server that does not wait; busy clients may come too late, and try again."""
    with in_thread(create_app(Service(folder, limits=IMPATIENT)), IMPATIENT) as url:
        yield url


def talk(url: str, *parts: bytes) -> bytes:
    """Send raw bytes, and return what comes back until the server closes."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1, 2]", "object"),
        (b'{"vectors": [[1, 2]]}', "12 features each, got one of 2"),
        (json.dumps({"vectors": [[*ROW[1:], "2"]]}).encode(), "vectors[0][11]: Expected float, got str, got '2'"),
        (b'{"vectors": {"a": [1]}}', "vectors: Expected array, got object"),
        (b'{"vectors": [1, 2]}', "1 to 50 vectors, got 0"),
        (b'{"vectors": null, "ids": null}', "got none"),
        (b'{"ids": [1, [2]]}', "ids[1]: Expected int, got array"),
        (b'{"ids": [1, 2.5]}', "ids[1]: Expected int, got float, got 2.5"),
        (b'{"ids": [' + b"1, " * 50 + b"1]}", "1 to 50 ids, got 51"),
        (b'{"vectors": []}', "1 to 50 vectors, got 0"),
        (json.dumps({"vectors": [ROW, ROW[1:]]}).encode(), "got one of 11"),
        (json.dumps({"vectors": [[float("nan"), *ROW[1:]]]}).encode(), "the body must be JSON"),
        (json.dumps({"vectors": [[1e300, *ROW[1:]]]}).encode(), "within float32, got 1e+300 in row 0"),
        (json.dumps({"vectors": [ROW] * 51}).encode(), "1 to 50 vectors, got 51"),
        (json.dumps({"vectors": [ROW], "k": 21}).encode(), "k must be at most 20, got 21"),
        (json.dumps({"vectors": [ROW], "k": 10**30}).encode(), "k"),
        (json.dumps({"vectors": [ROW], "k": 0}).encode(), "k: Expected int >= 1, got 0"),
        (json.dumps({"vectors": [ROW], "rank": "best"}).encode(), "rank"),
        (json.dumps({"vectors": [ROW], "codes": ["00"]}).encode(), "exactly one of"),
        (json.dumps({"vectors": [ROW], "odd": 1}).encode(), "odd"),
        (json.dumps({"vectors": [ROW], "filter": [-1]}).encode(), "filter[0]: Expected int >= 0, got -1"),
        (json.dumps({"codes": ["00"]}).encode(), "12 hexadecimal digits each, got one of 2"),
        (json.dumps({"codes": ["zz" * 6]}).encode(), "codes must be hexadecimal"),
        (json.dumps({"ids": [99999]}).encode(), "99999"),
        (json.dumps({"texts": ["a"]}).encode(), "no model of text"),
        (json.dumps({}).encode(), "got none"),
        (json.dumps({"ids": []}).encode(), "1 to 50 ids, got 0: send at least one"),
        (b'{"texts": ["\\ud800"]}', "a lone surrogate"),
        (b'{"texts": ["\\ud83d\\ude00', "the body must be JSON, got Input data was truncated"),
        (b'{"vectors": ' + b"[" * 9000, "JSON"),
        (b"\xff\xfe", "JSON"),
        (b'{"ids": [8], "filter": "\xff"}', "must be UTF-8, got the byte 0xff"),
        (b'{"\xff": 1}', "must be UTF-8, got the byte 0xff"),
        (b'{"ids": [8], "k": "x", "filter": "\xff"}', "k: Expected int, got str"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_json_is_refused_with_the_reason(small: httpx.Client, body: bytes, reason: str) -> None:
    answer = small.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert reason in error_of(answer)


@pytest.mark.parametrize(
    ("url", "kind", "body", "status", "reason"),
    [
        ("/v1/search", FLOAT32, b"abc", 400, "48 bytes each, got 3 in all"),
        ("/v1/search", FLOAT32, b"", 400, "1 to 50 rows, got 0"),
        ("/v1/search", FLOAT32, np.full(FEATURES, np.nan, "<f4").tobytes(), 400, "NaN or inf in row 0"),
        ("/v1/search", FLOAT32, bytes(48 * 51), 400, "1 to 50 rows, got 51"),
        ("/v1/search?k=x", FLOAT32, bytes(48), 400, "k: "),
        ("/v1/search?k=99", FLOAT32, bytes(48), 400, "k must be at most 20"),
        ("/v1/search?odd=1", FLOAT32, bytes(48), 400, "odd"),
        ("/v1/search?k=2&filter=a%3D5", FLOAT32, bytes(48), 400, "the URL: Object contains unknown field filter"),
        ("/v1/search?k=3&k=4", FLOAT32, bytes(48), 400, "k must be given once, got 3, 4"),
        ("/v1/search?k=3", "application/json", b'{"ids": [1]}', 400, "options of a JSON body are its keys, got ?k=3"),
        ("/v1/nested?length=3", "application/json", b'{"ids": [1]}', 400, "are its keys, got ?length=3"),
        ("/v1/neighborhood?size=5", "application/json", b'{"ids": [1]}', 400, "are its keys, got ?size=5"),
        ("/v1/search", CODES, bytes(WIDTH // 8 + 1), 400, "6 bytes each"),
        ("/v1/search", "text/plain", b"{}", 415, "Content-Type must be"),
        ("/v1/search", FLOAT32, bytes(20_001), 413, "at most 20,000 bytes"),
        ("/v1/encode?length=49", FLOAT32, bytes(48), 400, "width 48"),
        ("/v1/encode", "application/json", b'{"vectors": []}', 400, "1 to 50 vectors, got 0"),
        ("/v1/encode", "application/json", b'{"vectors": [[]]}', 400, "12 features each"),
        ("/v1/decode?length=-1", CODES, bytes(6), 400, "length"),
        ("/v1/nested", "application/json", b'{"ids": [1, 2]}', 400, "one query"),
        ("/v1/nested", "application/json", b'{"ids": [1], "length": 99}', 400, "width 48, got 99"),
        ("/v1/neighborhood", "application/json", b'{"ids": [1], "limit": 21}', 400, "limit must be at most 20"),
        ("/v1/neighborhood", "application/json", b'{"ids": [1], "fraction": 2}', 400, "fraction"),
        ("/v1/items", FLOAT32, bytes(48), 403, "--writable"),
        ("/v1/items/delete", "application/json", b'{"ids": [1]}', 403, "--writable"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(
    small: httpx.Client, url: str, kind: str, body: bytes, status: int, reason: str
) -> None:
    answer = small.post(url, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, reason in error_of(answer)) == (status, True), answer.text


def test_compressed_bodies_are_refused(small: httpx.Client) -> None:
    headers = {"Content-Type": FLOAT32, "Content-Encoding": "gzip"}
    answer = small.post("/v1/search", content=gzip.compress(bytes(48)), headers=headers)
    assert (answer.status_code, "Content-Encoding gzip: send plain bytes" in error_of(answer)) == (415, True)
    assert small.post("/v1/search", content=bytes(48), headers={**headers, "Content-Encoding": "identity"}).is_success


def test_unknown_routes_are_refused_in_json(small: httpx.Client) -> None:
    for method, path, status in (("GET", "/odd", 404), ("GET", "/v1/search", 405), ("PUT", "/static/api.js", 405)):
        answer = small.request(method, path)
        assert (answer.status_code, "/openapi.json lists all routes" in error_of(answer)) == (status, True)


@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"%x": 0' % i for i in range(200_000)) + b"}",
        b'{"vectors": [' + b"[], " * 500_000 + b"[]]}",
        b'{"vectors": [[' + b"0, " * 500_000 + b"0]]}",
        b'{"ids": [' + b"0, " * 500_000 + b"0]}",
        b'{"vectors": ' + b"[" * 2_000_000,
        b'{"k": ' + b"9" * 2_000_000 + b"}",
    ],
    ids=["keys", "empty rows", "a long row", "ids", "depth", "a long number"],
)
def test_json_takes_no_more_memory_than_it_has_bytes(folder: Path, body: bytes) -> None:
    """What a body holds is counted before it is read."""
    asked = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    asked += b"Content-Length: %d\r\n" % len(body) + END
    with in_thread(create_app(Service(folder))) as url:
        alive(url)
        tracemalloc.start()
        try:
            answer = talk(url, asked, body)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert peak < 4 * len(body)  # it arrives in parts, which are joined


def test_json_has_a_limit_of_its_own(folder: Path, rows: Floats) -> None:
    limits = Limits(json=5000)
    with in_thread(create_app(Service(folder, limits=limits))) as url:
        answer = httpx.post(f"{url}/v1/search", json={"vectors": rows[:100].tolist()}, timeout=PATIENCE)
        assert (answer.status_code, "at most 5,000 bytes" in error_of(answer)) == (413, True)
        headers = {"Content-Type": FLOAT32, "Accept": HITS}
        sent = httpx.post(f"{url}/v1/search", content=rows[:200].tobytes(), headers=headers, timeout=PATIENCE)
        assert sent.status_code == 200


def test_bodies_share_memory_and_small_ones_are_always_taken(folder: Path) -> None:
    """Of large bodies that do not arrive whole, only as many are held as there is memory for."""
    limits = Limits(body=1 << 19, rows=10_000, seconds=4 * PATIENCE)
    large = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n" % FLOAT32.encode()
    large += b"Content-Length: %d\r\n\r\n" % limits.body + bytes(limits.body - 1)
    with in_thread(create_app(Service(folder, limits=limits)), limits) as url, contextlib.ExitStack() as stack:
        address = urlsplit(url)

        def post(count: int) -> httpx.Response:
            headers = {"Content-Type": FLOAT32, "Accept": HITS}
            content = np.zeros((count, FEATURES), "<f4").tobytes()
            return httpx.post(f"{url}/v1/search", params={"k": 1}, content=content, headers=headers, timeout=PATIENCE)

        for _ in range(4):
            one = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=PATIENCE))
            one.sendall(large)
        wait_for(lambda: post(10_000).status_code == 503)
        refused = post(10_000)
        assert "take all memory set aside" in error_of(refused)
        assert refused.headers["retry-after"] == "1"
        assert post(1).status_code == 200
        stack.close()
        wait_for(lambda: post(10_000).status_code == 200)


def test_a_body_of_unknown_size_is_cut_off_and_a_slow_one_too(small: httpx.Client, impatient: str) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(30):
            yield bytes(1000)

    answer = small.post("/v1/search", content=chunks(), headers={"Content-Type": FLOAT32})
    assert answer.status_code == 413
    head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nContent-Length: 48\r\n\r\n"
    answers: list[bytes] = []

    def refused() -> bool:
        with contextlib.suppress(OSError):  # it was closed before all was sent
            answers.append(talk(impatient, head.encode(), bytes(5)))
        return any(answers)

    wait_for(refused)
    assert b" 408 " in answers[-1].split(b"\r\n")[0]
    assert b"within 0.3 s" in answers[-1]


def test_heads_without_end_are_cut_off(small: httpx.Client, impatient: str) -> None:
    with pytest.raises(OSError, match=r"reset|[Pp]ipe"):
        talk(str(small.base_url), b"GET / HTTP/1.1\r\nA: ", *[bytes(b"a" * 65536)] * 40)
    wait_for(lambda: closes(impatient, b"GET / HTTP/1.1\r\nA: b"))
    wait_for(lambda: closes(impatient))
    assert b" 400 " in talk(str(small.base_url), b"\x16\x03\x01 no HTTP at all\r\n\r\n")
    assert small.get("/healthz").text == "ok\n"
    wait_for(lambda: alive(impatient))


def closes(url: str, *sent: bytes) -> bool:
    """Return whether a server closes a connection without an answer; False where it did so before all was sent."""
    with contextlib.suppress(OSError):
        assert talk(url, *sent) == b""
        return True
    return False


def alive(url: str) -> bool:
    """Return whether a server answers; an impatient one may have closed the connection before the request."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
    return False


def closed(one: socket.socket) -> bool:
    """Return whether the server has closed a connection that does not block."""
    with contextlib.suppress(BlockingIOError):
        assert one.recv(1) == b""
        return True
    return False


def test_silent_connections_lock_nobody_out(folder: Path) -> None:
    """Where too many are open, the one that has waited longest for a request is closed; requests in progress go on."""
    limits = Limits(connections=8, seconds=PATIENCE)
    with in_thread(create_app(Service(folder)), limits) as url, contextlib.ExitStack() as stack:
        address = urlsplit(url)
        head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nContent-Length: 48\r\n"
        working = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=PATIENCE))
        working.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b" 100 " in working.recv(65536)  # its head has arrived
        working.sendall(bytes(5))
        silent = [socket.create_connection((address.hostname, address.port), timeout=PATIENCE) for _ in range(20)]
        for one in silent:
            stack.enter_context(one)
            one.setblocking(False)
        assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
        wait_for(lambda: closed(silent[0]))
        with pytest.raises(BlockingIOError):
            silent[-1].recv(1)
        working.sendall(bytes(43))
        assert b" 200 " in working.recv(65536)


def test_a_connection_whose_request_is_on_its_way_is_not_closed_for_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all others are being answered, the newest ones wait longest."""
    monkeypatch.setattr(protocol, "FIRST_SECONDS", 10 * PATIENCE)
    limits, begun, go_on = Limits(connections=4, seconds=PATIENCE), threading.Semaphore(0), threading.Event()
    service = Service(folder, limits=limits)
    search = service.search

    def slow(*given: Any) -> Any:
        begun.release()
        assert go_on.wait(PATIENCE)
        return search(*given)

    monkeypatch.setattr(service, "search", slow)
    head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nContent-Length: 48\r\n"
    with in_thread(create_app(service), limits) as url, contextlib.ExitStack() as stack:
        address = urlsplit(url)

        def connect() -> socket.socket:
            one = socket.create_connection((address.hostname, address.port), timeout=PATIENCE)
            return stack.enter_context(one)

        for _ in range(limits.connections):
            connect().sendall(f"{head}\r\n".encode() + bytes(48))
        assert begun.acquire(timeout=PATIENCE)  # they may be searched together
        honest, _, _ = connect(), connect(), connect()
        try:
            assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
            honest.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in honest.recv(65536)
        finally:
            go_on.set()


def test_connections_that_were_answered_and_stay_do_not_reset_one_whose_request_is_late(folder: Path) -> None:
    """Beyond twice the limit a connection is reset at once, of the kind that most of them are."""
    limits = Limits(connections=8, seconds=PATIENCE)
    with in_thread(create_app(Service(folder)), limits) as url, contextlib.ExitStack() as stack:
        address, ask = urlsplit(url), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def connect() -> socket.socket:
            one = socket.create_connection((address.hostname, address.port), timeout=PATIENCE)
            return stack.enter_context(one)

        def stay(count: int) -> None:
            for _ in range(count):
                other = connect()
                other.sendall(ask)
                assert b" 200 " in other.recv(65536)

        stay(2 * limits.connections)
        honest = connect()
        stay(3 * limits.connections)
        honest.sendall(ask)
        assert b" 200 " in honest.recv(65536)


def answers_of(url: str, sent: bytes) -> int:
    """Return how many answers come to what one connection sends, until the server closes it."""
    address, received = urlsplit(url), b""
    connection = socket.create_connection((address.hostname, address.port), timeout=PATIENCE)
    with connection, contextlib.suppress(OSError):  # it may be closed before all was sent or read
        connection.sendall(sent)
        while piece := connection.recv(1 << 20):
            received += piece
    return received.count(b"HTTP/1.1 ")


def test_pipelined_requests_are_bounded(folder: Path) -> None:
    """Whoever sends thousands of requests at once is answered a few; a few are all answered."""
    with in_thread(create_app(Service(folder), token=TOKEN)) as url:
        request = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n"
        assert answers_of(url, (request + b"\r\n") * 5000) <= PIPELINED
        for count in range(1, PIPELINED):
            assert answers_of(url, (request + b"\r\n") * (count - 1) + request + END) == count
        assert alive(url)


def test_stalled_bodies_lock_nobody_out(folder: Path) -> None:
    limits = Limits(connections=4, seconds=4 * PATIENCE)
    head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: 48\r\n\r\n"
    with in_thread(create_app(Service(folder)), limits) as url, contextlib.ExitStack() as stack:
        address = urlsplit(url)
        for _ in range(8):
            one = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=PATIENCE))
            one.sendall(head % FLOAT32.encode() + bytes(5))
        wait_for(lambda: alive(url))


def test_a_stalled_body_does_not_keep_a_server_from_ending(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LAST_SECONDS", 0.05)
    monkeypatch.setattr(server, "GRACE", 10 * PATIENCE)
    limits = Limits(seconds=10 * PATIENCE)
    head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FLOAT32}\r\nContent-Length: 48\r\n"
    with contextlib.ExitStack() as stack:
        with in_thread(create_app(Service(folder, limits=limits)), limits) as url:
            address = urlsplit(url)
            one = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=PATIENCE))
            one.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert b" 100 " in one.recv(65536)  # its head has arrived
            one.sendall(bytes(5))
        assert one.recv(65536) == b""


def test_a_broken_item_says_nothing_of_the_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.01)

    class Broken(Items):
        def show(self, item: int) -> tuple[bytes, str]:
            raise DamagedFile(f"image {item} is cut short")

    service = Service(folder, items=Broken("text", ["one"]))
    index = service.index
    with in_thread(create_app(service)) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        wait_for(lambda: http.get("/readyz").status_code == 200)
        for _ in range(20):
            answer = http.get("/v1/items/0")
            assert (answer.status_code, "item 0 cannot be shown" in error_of(answer)) == (500, True)
        time.sleep(0.1)
        assert service.index is index  # and was not opened again


LARGE = 8 << 20  # bytes, more than the system takes for a client that does not read


@contextlib.contextmanager
def deaf(url: str, requests: int = 3) -> Iterator[socket.socket]:
    """A connection with pipelined requests for large answers, of which nothing is read."""
    address = urlsplit(url)
    with socket.socket() as connection:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else some systems take 32 MB
        connection.connect((address.hostname, address.port))
        connection.sendall(b"GET /v1/streams/large.nest HTTP/1.1\r\nHost: localhost\r\n\r\n" * requests)
        yield connection


def test_clients_that_do_not_read_lock_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "large.nest").write_bytes(bytes(LARGE))
    limits = Limits(connections=4, seconds=2 * PATIENCE)
    with in_thread(create_app(Service(streams=tmp_path)), limits) as url, contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(deaf(url))
        wait_for(lambda: alive(url))  # answers that are still being sent are not given up


def test_nothing_more_is_sent_once_a_connection_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first of pipelined requests stops too; asyncio warns of writes to a connection that is gone."""
    (tmp_path / "large.nest").write_bytes(bytes(4 * LARGE))
    with in_thread(create_app(Service(streams=tmp_path)), IMPATIENT) as url:
        for _ in range(4):
            with deaf(url) as connection:
                connection.recv(1)  # an answer has begun
        time.sleep(2 * IMPATIENT.seconds)
        wait_for(lambda: alive(url))
    assert not [one for one in caplog.messages if "socket.send()" in one]


def test_an_answer_that_nobody_reads_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.nest").write_bytes(bytes(LARGE))
    lost: list[Any] = []  # clients, also those of other servers that are still open
    connection_lost = LimitedProtocol.connection_lost

    def note(one: LimitedProtocol, error: Exception | None) -> None:
        connection_lost(one, error)
        lost.append(one.client)

    monkeypatch.setattr(LimitedProtocol, "connection_lost", note)
    with in_thread(create_app(Service(streams=tmp_path)), IMPATIENT) as url, deaf(url, 1) as connection:
        wait_for(lambda: connection.getsockname() in lost)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                received += len(piece)
        assert received < LARGE


def test_an_answer_that_is_read_by_and_by_is_not_given_up() -> None:
    """By a clock of our own: a busy client of an impatient server may be late."""
    checks: list[Callable[[], None]] = []
    left, aborted = [LARGE], threading.Event()
    slow: Any = object.__new__(LimitedProtocol)
    slow.loop = SimpleNamespace(call_later=lambda _, check: checks.append(check))
    slow.transport = SimpleNamespace(get_write_buffer_size=lambda: left[-1], abort=aborted.set)
    slow._expect_reading()
    while left[-1]:
        left.append(left[-1] - (1 << 20))
        checks[-1]()
    assert len(checks) == len(left)
    assert not aborted.is_set()
    checks[-1]()
    assert aborted.is_set()


def test_an_answer_that_takes_too_long_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, given_up = Service(folder, limits=IMPATIENT, threads=1), threading.Event()
    monkeypatch.setattr(service, "search", lambda *_: given_up.wait(PATIENCE))
    with in_thread(create_app(service)) as url:
        answer = httpx.post(f"{url}/v1/search", json={"ids": [1]}, timeout=PATIENCE)
        given_up.set()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "within 0.3 s" in error_of(answer)


def test_a_model_that_cannot_be_downloaded_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def offline() -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "get_session", offline)
    with pytest.raises(Unavailable, match=r"does not answer \(no route\), got 'nosuch': give its folder"):
        _check_hub("nosuch")


@pytest.mark.parametrize(
    "name",
    ["..%2Fsecret.nest", "%2e%2e%2fsecret.nest", "..%5csecret.nest", "notes.txt", "%00", "b.nest", "a.nest%00", ".."],
)
def test_no_path_comes_from_a_request(small: httpx.Client, name: str) -> None:
    answer = talk(
        str(small.base_url), f"GET /v1/streams/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert b" 404 " in answer.split(b"\r\n")[0], answer
    assert b"secret" not in answer.split(b"\r\n\r\n")[1].replace(b"secret.nest", b"")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/etc/passwd"])
def test_no_file_outside_of_the_page_is_sent(small: httpx.Client, path: str) -> None:
    answer = talk(str(small.base_url), f"GET {path} {LAST}".encode())
    assert b" 404 " in answer.split(b"\r\n")[0]


def test_a_line_of_text_is_an_item_whatever_it_contains(tmp_path: Path) -> None:
    texts = ["one\u2028\x0b\x0c\x1c\x85", "", "two\r", "three"]
    (tmp_path / "texts.txt").write_bytes("\n".join(texts).encode())
    items = Items.open(tmp_path / "texts.txt")
    assert [items.show(i)[0].decode() for i in range(len(items))] == [text.removesuffix("\r") for text in texts]


def test_items_are_shown_by_id_only(small: httpx.Client) -> None:
    assert small.get("/v1/items/1").text == "two"
    for wrong in ("2", "-1", "x", "99999999999999999999", "1.5"):
        assert small.get(f"/v1/items/{wrong}").status_code in (400, 404), wrong


def test_a_request_has_one_host(small: httpx.Client) -> None:
    """Proxies and servers that take different ones of two would disagree about where a request goes."""
    answer = talk(str(small.base_url), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n" + END)
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"one Host header, got 2" in answer


def test_other_hosts_are_refused_on_loopback(small: httpx.Client) -> None:
    """A page of another domain that resolves to 127.0.0.1 must not reach the server."""
    for host, status in {
        "localhost:1": 200,
        "[::1]:80": 200,
        "127.0.0.2": 200,
        "127.1": 421,
        "evil.example": 421,
        "127.0.0.1.evil.example": 421,
    }.items():
        assert small.get("/v1/info", headers={"Host": host}).status_code == status


def test_answers_that_would_block_others_are_refused(folder: Path) -> None:
    with in_thread(create_app(Service(folder))) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        body = {"vectors": [ROW] * 300}
        long = http.post("/v1/search", json={**body, "k": 1000})
        assert (long.status_code, "at most 250,000 ids, got 300 queries of 1,000" in error_of(long)) == (400, True)
        assert http.post("/v1/search", json={**body, "k": 1000}, headers={"Accept": HITS}).status_code == 200
        assert http.post("/v1/search", json={**body, "k": 10}).status_code == 200
        long = http.post("/v1/neighborhood", json={**body, "size": 2, "limit": 1000})
        assert (long.status_code, "send fewer queries" in error_of(long)) == (400, True)


def test_pages_of_other_sites_may_read_only_where_they_are_named(small: httpx.Client, folder: Path) -> None:
    ask = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in small.get("/v1/info", headers=ask).headers
    assert small.options("/v1/search", headers=ask).status_code == 405
    with in_thread(create_app(Service(folder), origins=("https://a.example",), token=TOKEN)) as url:
        assert httpx.options(f"{url}/v1/search", headers=ask, timeout=PATIENCE).status_code == 200
        other = httpx.options(f"{url}/v1/search", headers={**ask, "Origin": "https://b.example"}, timeout=PATIENCE)
        assert other.status_code == 400


def test_pages_of_other_sites_may_write_only_where_they_are_named(tmp_path: Path) -> None:
    """Browsers name the site of a page in Origin; programs send none."""
    Index(width=16).save(tmp_path)
    served = create_app(Service(tmp_path, writable=True), origins=("https://a.example", "null"))
    with in_thread(served) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        own = urlsplit(url).netloc
        sites = {None: 200, f"http://{own}": 200, "https://a.example": 200, "https://b.example": 403, "null": 403}
        sites |= dict.fromkeys((f"http://{own}.evil.example", "https://a.example.evil.example", "", "http://["), 403)
        for number, (origin, status) in enumerate(sites.items()):
            headers = {} if origin is None else {"Origin": origin}
            added = http.post("/v1/items", json={"codes": ["0007"], "ids": [number]}, headers=headers)
            removed = http.post("/v1/items/delete", json={"ids": [number]}, headers=headers)
            assert (added.status_code, removed.status_code) == (status, status)
            assert status == 200 or f"pages of {origin} may not write" in error_of(added)
            assert status == 200 or origin == "null" or "write: name that web site with --cors" in error_of(added)
        assert http.post("/v1/search", json={"codes": ["0007"]}, headers={"Origin": "https://b.example"}).is_success


def test_a_token_is_required_where_it_is_set(folder: Path) -> None:
    wrong: list[Any] = [
        None,
        "",
        "Bearer",
        "Bearer x",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        "Bearer é".encode("latin-1"),
    ]
    served = create_app(Service(folder), token=TOKEN, local=False)
    with in_thread(served) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        for path in ("/v1/info", "/metrics", "/openapi.json", "/v1/streams/a.nest", "/odd"):
            for given in wrong:
                answer = http.get(path, headers={} if given is None else {"Authorization": given})
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert http.get("/v1/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert http.get("/healthz").status_code == http.get("/").status_code == 200


def test_a_server_that_others_reach_needs_a_good_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_token(host, None)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.evil.example"):
        check_token(host, TOKEN)
        with pytest.raises(InvalidInput, match=r"NESTCODE_TOKEN or give --token-file"):
            check_token(host, None)
    with pytest.raises(InvalidInput, match="at least 16 characters, got 3"):
        check_token("127.0.0.1", "abc")


def test_a_token_may_come_from_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, f"{TOKEN}\n".encode())
    os.close(write)
    assert token_of(Path(f"/dev/fd/{read}")) == TOKEN
    os.close(read)
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="write the token into it"):
            token_of(wrong)


def test_web_sites_and_threads_are_checked(folder: Path) -> None:
    for wrong in ("foo", "https://a.example/", "https://", "https://a.example/page", "a.example", ""):
        with pytest.raises(InvalidInput, match=r"must be like https://example\.org"):
            check_origins([wrong])
    service = Service(folder)
    with pytest.raises(InvalidInput, match="must be like"):
        create_app(service, origins=("foo",))
    service.close()
    with pytest.raises(InvalidInput, match="threads must be an integer of at least 1, got -2"):
        Service(folder, threads=-2)


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidInput, match="give another --port"):
        listen("127.0.0.1", taken.getsockname()[1])
    for host in ("192.0.2.1", "a..b"):  # kept for documentation: no machine's; no name
        with pytest.raises(InvalidInput, match=f"cannot listen on {host} port 0 .*as --host"):
            listen(host, 0)


def test_failures_are_not_told_to_clients(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(folder)

    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the process")

    monkeypatch.setattr(service, "search", fail)
    with in_thread(create_app(service)) as url:
        answer = httpx.post(f"{url}/v1/search", json={"ids": [1]}, timeout=PATIENCE)
        assert (answer.status_code, error_of(answer)) == (500, "the server failed: its log says why")
        assert (
            'nestcode_requests_total{route="/v1/search",status="500"} 1.0'
            in httpx.get(f"{url}/metrics", timeout=PATIENCE).text
        )


def test_a_server_that_ended_keeps_no_index(folder: Path) -> None:
    service = Service(folder)
    index = weakref.ref(service.index)
    with in_thread(create_app(service)) as url:
        httpx.post(f"{url}/v1/search", json={"ids": [1]}, timeout=PATIENCE).raise_for_status()
    del service
    gc.collect()
    assert index() is None
