"""The process that serves: uvicorn with the settings that the service needs."""

import asyncio
import contextlib
import errno
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from nestcode.errors import InvalidInput
from nestcode.serve.acceptor import QUEUE, Acceptor
from nestcode.serve.guard import is_loopback
from nestcode.serve.limits import Limits
from nestcode.serve.protocol import limited
from nestcode.storage import allow_files

GRACE = 30  # seconds that requests have to finish after a signal
UNSENT = 128 << 10  # bytes of an answer that the system takes beyond those on their way
SPARE_FILES = 1024  # beside connections: of the index, streams and images
FEWEST = 16  # characters of a token


def check_token(host: str, token: str | None) -> None:
    """Raise if other machines can reach the server without a token, or with a token that is easy to guess.

    >>> check_token("127.0.0.1", None)
    """
    if token is None and not is_loopback(host):
        raise InvalidInput(
            f"a server for other machines needs a token, got host {host} without one: set NESTCODE_TOKEN or give "
            "--token-file, or bind to 127.0.0.1"
        )
    if token is not None and len(token) < FEWEST:
        raise InvalidInput(f"a token must have at least {FEWEST} characters, got {len(token)}: openssl rand -hex 16")


def address_of(listening: socket.socket) -> str:
    """Return an address at which this machine reaches a server, also one that is bound to all interfaces.

    >>> with listen("0.0.0.0", 0) as listening:
    ...     address_of(listening).rpartition(":")[0]
    'http://127.0.0.1'
    """
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=QUEUE)
    except (OSError, UnicodeError) as error:  # the latter of a host that cannot be a name
        number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, "no name of a host")
        taken = number in (errno.EADDRINUSE, errno.EACCES)
        remedy = "give another --port" if taken else "give an address of this machine as --host"
        raise InvalidInput(f"cannot listen on {host} port {port} ({reason}): {remedy}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it: answers leave at once
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # else the system takes megabytes for a client that does not read
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listening


class Server(uvicorn.Server):
    """A server with `Acceptor` in the place of asyncio's."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept."""
        await super().startup(sockets=[])
        http: Any = self.config.http_protocol_class

        def make(early: bytes) -> asyncio.Protocol:
            made: asyncio.Protocol = http(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                early=early,
            )
            return made

        self._acceptors = [Acceptor(one, make, http.turns, http.most, http.seconds) for one in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and finish what was begun."""
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)


def run(app: ASGIApp, limits: Limits, listening: socket.socket) -> None:
    """Serve until a signal, in a process that does nothing else."""
    gc.freeze()  # a collection that looks at all that is loaded would stop all requests for a tenth of a second
    make_server(app, limits).run(sockets=[listening])


def make_server(app: ASGIApp, limits: Limits) -> Server:
    """Return the server of an application; `run(sockets=[…])` runs it until a signal."""
    allow_files(4 * limits.connections + QUEUE + SPARE_FILES)
    return Server(
        uvicorn.Config(
            app,
            http=limited(limits.seconds, limits.connections),
            access_log=False,  # /metrics counts
            log_level="warning",
            server_header=False,
            ws="none",
            limit_concurrency=3 * limits.connections,  # beyond `connections`, idle ones are closed first
            timeout_graceful_shutdown=GRACE,
        )
    )


@contextlib.contextmanager
def in_thread(app: ASGIApp, limits: Limits | None = None) -> Iterator[str]:
    r"""Serve in a thread, on a free port of this machine, and yield the address.

    >>> import tempfile, urllib.request
    >>> from nestcode.serve import Service, create_app
    >>> with in_thread(create_app(Service(streams=tempfile.gettempdir()))) as url:
    ...     urllib.request.urlopen(f"{url}/healthz").read()
    b'ok\n'
    """
    server, listening = make_server(app, limits or Limits()), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="nestcode-server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
