"""Prefixes of streams on web servers, read by Range requests."""

from functools import partial
from typing import Any, Self

from nestcode.arrays import check_int
from nestcode.connection import TIMEOUT, PerProcess, check_address, error_of, headers_of, httpx
from nestcode.errors import DamagedFile, Unavailable

__all__ = ["RemoteStream"]


def _tag_of(answer: Any) -> str | None:
    """Return the tag that identifies a version of a file."""
    tag: str | None = answer.headers.get("etag") or answer.headers.get("last-modified")
    return tag


class RemoteStream:
    """A stream on a web server, of which you read a prefix.

    Each `read` requests the next bytes. If a server ignores the header Range and sends the whole file, `read` stops
    after the requested bytes and closes the connection.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import nestcode as nc
    >>> from nestcode.serve import Service, create_app, in_thread
    >>> data = nc.compress_images([nc.data.sample_images()["china"][:96, :96]])
    >>> decoder = nc.ImageStreamDecoder()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "china.nest").write_bytes(data)
    ...     with in_thread(create_app(Service(streams=folder))) as url:
    ...         with RemoteStream(f"{url}/v1/streams/china.nest") as stream:
    ...             decoder.feed(stream.read(200))
    ...             decoder.feed(stream.read(300))
    ...             stream.position, decoder.images()[0].shape
    (500, (96, 96, 3))

    Args:
        url: the address of a file.
        token: the bearer token, if the server needs one.
        timeout: seconds to wait for an answer.

    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self._url, self.position = check_address(url), 0
        headers = {"Accept-Encoding": b"identity"} | headers_of(token)
        make = partial(httpx.Client, headers=headers, timeout=timeout, follow_redirects=True)
        self._http = PerProcess(make, httpx.Client.close)
        self._tag: str | None = None  # of the version that was read first

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes: fewer if the stream ends or the connection breaks, none after its end."""
        first = self.position
        last = first + check_int(count, "count", least=1) - 1
        headers = {"Range": f"bytes={first}-{last}"}
        if first and self._tag is not None and not self._tag.startswith("W/"):
            headers["If-Range"] = self._tag  # another version is sent whole
        http = self._http.get()
        try:
            with http.stream("GET", self._url, headers=headers) as answer:
                data = self._take(answer, first, count)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{self._url} does not answer ({reason}): check the address, or try again") from error
        self.position += len(data)
        return data

    def _take(self, answer: Any, first: int, count: int) -> bytes:
        if answer.status_code == 416:  # nothing follows
            tag = _tag_of(answer)
            other = tag is not None and tag != self._tag  # of equal size, where weak tags are no If-Range
            if (first and other) or answer.headers.get("content-range", f"bytes */{first}") != f"bytes */{first}":
                raise self._changed()
            return b""
        if answer.status_code not in (200, 206):
            answer.read()
            raise error_of(self._url, answer)
        self._check_version(_tag_of(answer))
        skipped = first
        if answer.status_code == 206:
            start = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
            if start != str(first):
                raise Unavailable(
                    f"{self._url} sent bytes from {start or '?'} on instead of {first}: its server is broken"
                )
            skipped = 0
        data = bytearray()
        try:
            for chunk in answer.iter_raw():  # leaving the loop early closes the connection
                data += chunk
                if len(data) >= skipped + count:
                    break
        except httpx.TransportError:
            if len(data) <= skipped:
                raise
        if len(data) < skipped:
            raise self._changed()
        return bytes(data[skipped : skipped + count])

    def _check_version(self, tag: str | None) -> None:
        if self.position and tag != self._tag:
            raise self._changed()
        self._tag = tag

    def _changed(self) -> DamagedFile:
        return DamagedFile(f"{self._url} changed since its first bytes were read: read it again from the start")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
