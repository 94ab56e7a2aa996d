"""Connections to servers: addresses, tokens, errors that answers report, and one connection for each process."""

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from nestcode.errors import InvalidInput, Unavailable, import_extra

httpx: Any = import_extra("httpx", extra="client", purpose="nestcode.client")

TIMEOUT = 60.0  # seconds
Result = TypeVar("Result")


class Changed(Unavailable):
    """A server has an index of another width or coder than rows were made for."""


def check_address(url: str) -> str:
    """Return the address of a server, or raise."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise InvalidInput(f"{url!r} is not the address of a server ({error}): give http://HOST:PORT") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"{url!r} is not the address of a server: give http://HOST:PORT")
    return url


def error_of(url: str, answer: Any) -> Exception:
    """Return the error that an answer reports."""
    try:
        message = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        message = f"status {answer.status_code}, which is not an answer of nestcode serve"
    kind = InvalidInput if 400 <= answer.status_code < 500 else Unavailable
    return (Changed if answer.status_code == 412 else kind)(f"{url}: {message}")


def headers_of(token: str | None) -> dict[str, bytes]:
    """Return the headers that show a token, or raise if it cannot be one."""
    if token is None:
        return {}
    if not token.isprintable() or token != token.strip() or not token:
        raise InvalidInput(
            f"a token must be printable characters without spaces around them, got {len(token)}: strip it"
        )
    return {"Authorization": f"Bearer {token}".encode()}


class PerProcess(Generic[Result]):
    """A connection for each process: after a fork, two would read each other's answers from one connection."""

    def __init__(self, make: Callable[[], Result], close: Callable[[Result], None]) -> None:
        self._make, self._close = make, close
        self._opened: tuple[int, Result] | None = (os.getpid(), make())

    def get(self) -> Result:
        """Return the connection of this process."""
        if self._opened is None:
            raise InvalidInput("this client was closed: make another")
        if self._opened[0] != os.getpid():
            self._opened = os.getpid(), self._make()
        return self._opened[1]

    def close(self) -> None:
        """Close it, unless it is another process's."""
        if self._opened is not None and self._opened[0] == os.getpid():
            self._close(self._opened[1])
        self._opened = None
