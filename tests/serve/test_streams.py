"""Streams are read as far as wanted, from this server and from those that ignore the header Range."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import nestcode as nc
from nestcode.client import RemoteStream
from nestcode.errors import DamagedFile, InvalidInput, Unavailable
from nestcode.serve import Service, create_app, in_thread
from tests.serve.conftest import PATIENCE, error_of


@pytest.fixture(scope="module")
def data() -> bytes:
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    return nc.compress_images([image])


@pytest.fixture(scope="module")
def folder(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("streams")
    (place / "a.nest").write_bytes(data)
    (place / "b ü.nest").write_bytes(data)
    return place


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with in_thread(create_app(Service(streams=folder))) as address:
        yield f"{address}/v1/streams/a.nest"


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url.removesuffix("/a.nest"), timeout=PATIENCE) as opened:
        yield opened


class Quiet(SimpleHTTPRequestHandler):
    """Python's own server, which ignores Range."""

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def plain_server(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read_all(url: str, step: int) -> list[bytes]:
    with RemoteStream(url) as stream:
        return [*iter(lambda: stream.read(step), b"")]


def test_pieces_are_the_stream(url: str, folder: Path, data: bytes) -> None:
    assert b"".join(read_all(url, 1000)) == data
    assert read_all(url, len(data)) == [data]
    with plain_server(folder) as plain:
        assert b"".join(read_all(f"{plain}/a.nest", 3001)) == data


def test_images_refine_as_bytes_arrive(url: str, folder: Path, data: bytes) -> None:
    with plain_server(folder) as plain:
        for address in (url, f"{plain}/a.nest"):
            decoder = nc.ImageStreamDecoder()
            with RemoteStream(address) as stream:
                for count in (700, 1300, 10**9):
                    decoder.feed(stream.read(count))
                    np.testing.assert_array_equal(decoder.images()[0], nc.decompress_images(data[: stream.position])[0])


def test_a_second_whole_file_is_named(data: bytes) -> None:
    """As a server sends it that ignores Range; what arrived before stays, and the rest may follow."""
    decoder = nc.ImageStreamDecoder()
    decoder.feed(data[:500])
    with pytest.raises(InvalidInput, match=r"ignores the header Range .* feed what follows byte 500"):
        decoder.feed(data)
    decoder.feed(data[500:])
    np.testing.assert_array_equal(decoder.images()[0], nc.decompress_images(data)[0])


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=0-9", 206, slice(0, 10)), ("bytes=10-", 206, slice(10, None)), ("bytes=-5", 206, slice(-5, None)),
        ("bytes=5-99999999", 206, slice(5, None)), (f"bytes=0-{10**30}", 206, slice(None)),
        ("bytes=99999999-", 416, None), ("bytes=-0", 416, None),
        *((malformed, 200, slice(None)) for malformed in ("bytes=9-5", "bytes=x", "items=0-1", "bytes=", "0-9")),
        ("bytes=0-1,4-5", 200, slice(None)),  # several ranges may be ignored
        ("bytes=" + ",".join(f"{2 * i}-{2 * i}" for i in range(2000)), 200, slice(None)),  # no flood of parts
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_ranges(http: httpx.Client, data: bytes, asked: str, status: int, part: slice | None) -> None:
    answer = http.get("/a.nest", headers={"Range": asked})
    assert answer.status_code == status
    if part is None:
        assert answer.headers["content-range"] == f"bytes */{len(data)}"
        assert f"within the file of {len(data)} bytes, got {asked}" in error_of(answer)
    else:
        assert answer.content == data[part]


def test_a_stream_that_is_known_is_not_sent_again(http: httpx.Client, data: bytes) -> None:
    known = http.get("/a.nest").headers
    for headers in ({"If-None-Match": known["etag"]}, {"If-Modified-Since": known["last-modified"]}):
        for more in ({}, {"Range": "bytes=0-9"}):
            answer = http.get("/a.nest", headers=headers | more)
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", known["etag"])
    assert http.get("/a.nest", headers={"If-None-Match": '"other"'}).content == data


def test_names_are_looked_up(http: httpx.Client, data: bytes) -> None:
    assert http.head("/a.nest").headers["content-length"] == str(len(data))
    assert http.get("/b%20%C3%BC.nest").content == data
    assert http.get("/c.nest").status_code == 404
    base = str(http.base_url).removesuffix("/v1/streams/")
    assert list(http.get(f"{base}/v1/info").json()["streams"]) == ["a.nest", "b ü.nest"]
    assert http.post(f"{base}/v1/search", json={"ids": [0]}).status_code == 404  # there is no index


def test_a_file_that_changes_is_noticed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.nest").write_bytes(data)
    with in_thread(create_app(Service(streams=tmp_path))) as url, RemoteStream(f"{url}/v1/streams/a.nest") as stream:
        stream.read(100)
        (tmp_path / "a.nest").write_bytes(data[:-1])
        with pytest.raises(DamagedFile, match="changed since"):
            stream.read(100)
        with RemoteStream(f"{url}/v1/streams/b.nest") as missing, pytest.raises(InvalidInput, match="no stream"):
            missing.read(1)


def test_a_file_that_shrinks_below_the_position_is_noticed(tmp_path: Path, data: bytes) -> None:
    """Also by a server that knows neither If-Range nor tags, and not as the end of the stream."""
    file = tmp_path / "a.nest"
    with in_thread(create_app(Service(streams=tmp_path))) as url, plain_server(tmp_path, Untagged) as plain:
        for address in (f"{url}/v1/streams/a.nest", f"{plain}/a.nest", f"{plain}/ranges/a.nest"):
            file.write_bytes(data)
            with RemoteStream(address) as stream:
                stream.read(1000)
                file.write_bytes(data[:500])
                with pytest.raises(DamagedFile, match="changed since"):
                    stream.read(1000)


class Weak(Quiet):
    """A server of an empty rest, whose tags are weak."""

    tag = "1"

    def do_GET(self) -> None:
        first = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
        self.send_response(416 if first else 206)
        self.send_header("Content-Range", f"bytes */{first}" if first else "bytes 0-4/5")
        self.send_header("ETag", f'W/"{self.tag}"')
        self.send_header("Content-Length", "0" if first else "5")
        self.end_headers()
        self.wfile.write(b"" if first else b"12345")


def test_a_file_of_equal_size_is_noticed_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_server(tmp_path, Weak) as url, RemoteStream(url) as stream:
        assert (stream.read(5), stream.read(5)) == (b"12345", b"")
        monkeypatch.setattr(Weak, "tag", "2")
        with pytest.raises(DamagedFile, match="changed since"):
            stream.read(5)


class Untagged(Quiet):
    """A server without tags; it knows ranges below /ranges."""

    def do_GET(self) -> None:
        data = Path(self.directory, "a.nest").read_bytes()
        first = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0]) if "ranges" in self.path else 0
        if first >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            data = b""
        else:
            self.send_response(206 if "ranges" in self.path else 200)
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first if data else 0))
        self.end_headers()
        self.wfile.write(data[first:])


class Broken(Quiet):
    """A server whose connections break after a thousand bytes."""

    def do_GET(self) -> None:
        data = Path(self.directory, "a.nest").read_bytes()
        first = int(self.headers["Range"].removeprefix("bytes=").partition("-")[0])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        self.wfile.write(data[first : min(first + 1000, 3000)])


def test_what_arrived_before_a_connection_broke_is_read(folder: Path, data: bytes) -> None:
    with plain_server(folder, Broken) as url, RemoteStream(f"{url}/a.nest") as stream:
        assert [stream.read(5000) for _ in range(3)] == [data[:1000], data[1000:2000], data[2000:3000]]
        with pytest.raises(Unavailable, match="does not answer"):
            stream.read(5000)
        assert stream.position == 3000


class Wrong(Quiet):
    """A server that sends another range than was asked for."""

    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Range", "bytes 7-9/100")
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"abc")


def test_a_wrong_range_is_noticed(tmp_path: Path) -> None:
    with plain_server(tmp_path, Wrong) as url, RemoteStream(url) as stream, pytest.raises(Unavailable, match="from 7"):
        stream.read(3)


def test_links_out_of_the_folder_are_not_served(data: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "streams"
    folder.mkdir()
    for path in (tmp_path / "secret.nest", folder / "a.nest"):
        path.write_bytes(data)
    (folder / "out.nest").symlink_to(tmp_path / "secret.nest")
    (folder / "in.nest").symlink_to("a.nest")
    assert sorted(Service(streams=folder).streams()) == ["a.nest", "in.nest"]
    (tmp_path / "link").symlink_to(folder)
    assert sorted(Service(streams=tmp_path / "link").streams()) == ["a.nest", "in.nest"]
