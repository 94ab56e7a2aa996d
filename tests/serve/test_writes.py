"""Writes are acknowledged when they are durable; readers take up commits without dropping a request."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from nestcode import Codes, Index, LinearCoder
from nestcode.arrays import Floats
from nestcode.client import Client
from nestcode.errors import DamagedFile, InvalidInput, Unavailable
from nestcode.index import compaction
from nestcode.serve import Limits, Service, app, create_app, in_thread
from tests.serve.conftest import PATIENCE, error_of, wait_for

WIDTH = 16


def codes_of(ids: np.ndarray) -> Codes:
    """Return a code that tells the id of its item."""
    return Codes(ids.astype(">u2").view(np.uint8).reshape(-1, 2), WIDTH)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    Index(width=WIDTH).save(tmp_path / "index")
    return tmp_path / "index"


def test_items_are_added_and_removed(empty: Path) -> None:
    with in_thread(create_app(Service(empty, writable=True))) as url, Client(url) as client:
        client.add(codes_of(np.arange(5)), ids=np.arange(5))
        assert len(Index.open(empty)) == 5  # durable
        client.remove([1, 3])
        assert Index.open(empty).ids.tolist() == [0, 2, 4]
        with pytest.raises(InvalidInput, match="2"):
            client.add(codes_of(np.array([9, 2])), ids=[9, 2])
        with pytest.raises(InvalidInput, match="7"):
            client.remove([2, 7])
        assert Index.open(empty).ids.tolist() == [0, 2, 4]  # nothing of a refused write
        client.add(codes_of(np.array([9])), ids=[2], on_duplicate="replace")
        assert client.search(codes_of(np.array([9])), k=1).ids.tolist() == [[2]]
        asked = {"codes": ["0007"], "ids": [7]}
        assert httpx.post(f"{url}/v1/items", json=asked, timeout=PATIENCE).json() == {"count": 4}
        assert "ids" in error_of(httpx.post(f"{url}/v1/items", json={"codes": ["0007"]}, timeout=PATIENCE))
        assert "bytes each" in error_of(
            httpx.post(
                f"{url}/v1/items",
                content=b"123",
                headers={"Content-Type": "application/vnd.nestcode.codes"},
                timeout=PATIENCE,
            )
        )


def test_many_items_are_written_by_several_requests(empty: Path) -> None:
    service = Service(empty, writable=True, limits=Limits(rows=4))
    with in_thread(create_app(service)) as url, Client(url) as client:
        client.add(codes_of(np.arange(10)), ids=np.arange(10))
        assert Index.open(empty).codes(np.arange(10)) == codes_of(np.arange(10))
        with pytest.raises(InvalidInput, match=r"3 is in use.*; the first 4 of 10 items were added"):
            client.add(codes_of(np.arange(10)), ids=[20, 21, 22, 23, 3, 25, 26, 27, 28, 29])
        assert Index.open(empty).ids.tolist() == [*range(10), 20, 21, 22, 23]
        client.remove([*range(10)])
        assert Index.open(empty).ids.tolist() == [20, 21, 22, 23]


def test_vectors_are_added_in_bytes_and_in_json(rows: Floats, tmp_path: Path) -> None:
    Index(LinearCoder(24).fit(rows), vectors="float32").save(tmp_path)
    with in_thread(create_app(Service(tmp_path, writable=True))) as url, Client(url) as client:
        client.add(rows[:50], ids=np.arange(100, 150))
        httpx.post(
            f"{url}/v1/items", json={"vectors": rows[50:60].tolist(), "ids": list(range(10))}, timeout=PATIENCE
        ).raise_for_status()
        np.testing.assert_array_equal(Index.open(tmp_path).vectors(np.arange(100, 150)), rows[:50])
        np.testing.assert_array_equal(Index.open(tmp_path).vectors(np.arange(10)), rows[50:60])


def test_concurrent_writes_are_all_durable_when_acknowledged(empty: Path) -> None:
    """Each is in the index that another process would open as soon as it returned."""
    with in_thread(create_app(Service(empty, writable=True))) as url:

        def write(start: int) -> None:
            with Client(url) as client:
                for place in range(start, 40, 8):
                    client.add(codes_of(np.array([place])), ids=[place])
                    assert place in Index.open(empty)

        threads = [threading.Thread(target=write, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Index.open(empty).ids.tolist() == list(range(40))


def test_a_failed_commit_is_reported_leaves_nothing_and_may_be_repeated(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(create_app(Service(empty, writable=True))) as url, Client(url) as client:
        client.add(codes_of(np.array([1])), ids=[1])
        with monkeypatch.context() as patch:
            patch.setattr(Index, "commit", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(Unavailable, match="No space left"):
                client.add(codes_of(np.array([2])), ids=[2])
            with pytest.raises(Unavailable, match="No space left"):
                client.remove([1])
        assert client.search(codes_of(np.array([2])), k=2).ids.tolist() == [[1, -1]]
        client.add(codes_of(np.array([3])), ids=[3])
        assert Index.open(empty).ids.tolist() == [1, 3]  # nothing of a refused write
        client.add(codes_of(np.array([2])), ids=[2])
        client.remove([1])
        assert Index.open(empty).ids.tolist() == [2, 3]


def test_a_write_that_is_refused_does_not_happen(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for others too long is withdrawn; one that has begun is answered however long it takes."""
    begun, go_on, add = threading.Event(), threading.Event(), Index.add

    def slow(index: Index, *arguments: object, **options: object) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        add(index, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "add", slow)
    answers: list[httpx.Response] = []
    with in_thread(create_app(Service(empty, writable=True, limits=Limits(seconds=0.3)))) as url:

        def post(item: int) -> httpx.Response:
            asked = {"codes": ["0007"], "ids": [item]}
            return httpx.post(f"{url}/v1/items", json=asked, timeout=PATIENCE)

        first = threading.Thread(target=lambda: answers.append(post(1)))
        first.start()
        assert begun.wait(PATIENCE)
        refused = post(2)
        assert (refused.status_code, "was withdrawn" in error_of(refused)) == (503, True)
        assert refused.headers["retry-after"] == "1"
        assert answers == []
        go_on.set()
        first.join()
        assert answers[0].json() == {"count": 1}
        assert post(3).json() == {"count": 2}
    assert Index.open(empty).ids.tolist() == [1, 3]


def test_a_writer_that_met_damage_goes_on_once_a_copy_is_restored(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that only a commit meets; the manifest is the same before and after."""
    monkeypatch.setattr(app, "REFRESH", 0.01)
    commit = Index.commit
    damaged: list[Index] = []

    def meet(index: Index) -> None:
        damaged[:] = damaged or [index]
        if damaged[0] is index:  # as long as it is not opened again
            raise DamagedFile("a block is damaged: restore a copy")
        commit(index)

    with in_thread(create_app(Service(empty, writable=True))) as url, Client(url) as client:
        monkeypatch.setattr(Index, "commit", meet)
        with pytest.raises(Unavailable, match="DamagedFile"):
            client.add(codes_of(np.array([1])), ids=[1])

        def writes() -> bool:
            try:
                client.add(codes_of(np.array([2])), ids=[2])
            except Unavailable:
                return False
            return True

        wait_for(writes)
    assert Index.open(empty).ids.tolist() == [2]


def test_a_new_commit_is_picked_up_while_requests_go_on(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.01)
    failures: list[BaseException] = []
    stop = threading.Event()

    def search(url: str) -> None:
        try:
            with Client(url) as client:
                while not stop.is_set():
                    hits = client.search(codes_of(np.array([3])), k=5)
                    found = hits.ids[hits.ids >= 0]
                    assert len(set(found.tolist())) == len(found)
        except BaseException as error:
            failures.append(error)

    with in_thread(create_app(Service(empty))) as url, Client(url) as client:
        thread = threading.Thread(target=search, args=(url,))
        thread.start()
        with Index.open(empty, mode="a") as writer:
            for step in range(1, 6):
                writer.add(codes_of(np.arange(10 * step, 10 * step + 10)), ids=np.arange(10 * step, 10 * step + 10))
                writer.commit()
                wait_for(lambda: len(client) == 10 * step)  # noqa: B023 (called now)
        stop.set()
        thread.join()
        other = Index(width=8)  # another index in the same folder
        other.add(Codes.from_bits(np.eye(8) > 0))
        other.save(empty, overwrite=True)
        wait_for(lambda: len(client) == 8)
    assert failures == []


@pytest.mark.parametrize("writable", [False, True])
def test_a_damaged_index_is_logged_and_served_once_a_copy_is_restored(
    rows: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, writable: bool
) -> None:
    monkeypatch.setattr(app, "REFRESH", 0.01)
    index = Index(LinearCoder(24).fit(rows))
    index.add(rows)
    index.save(tmp_path)
    file = next(tmp_path.glob("*.codes.npy"))
    good = file.read_bytes()
    file.write_bytes(good[:128] + bytes(len(good) - 128))
    with in_thread(create_app(Service(tmp_path, writable=writable))) as url, Client(url) as client:
        wait_for(lambda: "the index was not refreshed" in caplog.text)
        assert httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 503
        with pytest.raises(Unavailable, match=r"the server failed \(DamagedFile\)") as caught:
            client.search(rows[0])
        assert str(tmp_path) not in str(caught.value)
        assert f"/v1/search failed: {file}" in caplog.text
        (tmp_path / "copy").write_bytes(good)
        (tmp_path / "copy").replace(file)
        wait_for(lambda: httpx.get(f"{url}/readyz", timeout=PATIENCE).status_code == 200)
        assert client.search(rows[0], k=1).ids.tolist() == index.search(rows[0], k=1).ids.tolist()
        if writable:
            client.add(rows[:1], ids=[10_000])
            assert 10_000 in Index.open(tmp_path)


@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.parametrize("refresh", [True, False])
def test_a_restored_copy_is_never_overwritten(
    rows: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, refresh: bool, damaged: bool
) -> None:
    """Neither by a write, nor when the server opens it or ends, by graphs that were built since the last commit."""
    monkeypatch.setattr(compaction, "MIN_GRAPH", 100)
    index = Index(LinearCoder(24).fit(rows), graph=True)
    index.add(rows[:500])
    index.save(tmp_path)
    copy = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"}
    with closing(Service(tmp_path, writable=True)) as service:
        assert service.writer is not None
        asyncio.run(service.writer.write(lambda index: index.add(rows[500:1000])))
        assert isinstance(service.index, Index)
        service.index.wait()
        if damaged:
            service.note(DamagedFile("a block"))
        for path in tmp_path.glob("*.npy"):
            path.unlink()
        for path, data in copy.items():
            path.write_bytes(data)
        with pytest.raises(OSError, match="holds another now, as after a copy was restored"):
            asyncio.run(service.writer.write(lambda index: index.add(rows[1000:1001])))
        if refresh:
            assert service.refresh()
            assert not service.refresh()
            assert len(service.index) == 500
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "lock"} == copy


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `nestcode serve` in a process, and yield it with its address."""
    command = [sys.executable, "-m", "nestcode", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            url = running.stdout.readline().strip().rstrip("/")
            assert url.startswith("http://127.0.0.1:"), running.stderr and running.stderr.read()
            yield running, url
        finally:
            running.kill()


def refused(host: str, port: int) -> bool:
    """Return whether nobody accepts connections."""
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_sigterm_finishes_what_was_begun(empty: Path) -> None:
    with process(str(empty), "--writable") as (running, url), Client(url) as client:
        client.add(codes_of(np.arange(3)), ids=np.arange(3))
        host, _, port = url.removeprefix("http://").partition(":")
        body = b'{"codes": ["0007"], "ids": [7]}'
        head = f"POST /v1/items HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(head.encode())
            assert b" 100 " in connection.recv(65536)  # the request has begun
            connection.sendall(body[:10])
            running.send_signal(signal.SIGTERM)
            wait_for(lambda: refused(host, int(port)))
            connection.sendall(body[10:])
            assert b" 200 " in connection.recv(65536)
        assert running.wait(PATIENCE) in (0, -signal.SIGTERM)
        with Index.open(empty, mode="a") as index:  # the lock is free
            assert 7 in index
