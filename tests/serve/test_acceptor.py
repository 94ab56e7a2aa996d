"""Connections wait outside until their first request has arrived, and clients come in by turns."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nestcode.serve import Limits, Service, acceptor, create_app, in_thread
from nestcode.serve.acceptor import GROUPS
from nestcode.serve.fair import EACH, FairQueue, client_of
from nestcode.serve.protocol import LimitedProtocol
from tests.serve.conftest import PATIENCE, wait_for
from tests.serve.test_attacks import alive, closed

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOME = "127.0.0.1"
AWAY = next(  # another machine, by a group of its own
    host
    for host in (f"127.0.0.{number}" for number in range(2, 255))
    if hash(client_of(host)) % GROUPS != hash(client_of(HOME)) % GROUPS
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[LimitedProtocol]:
    """Return the protocols that are made."""
    found: list[LimitedProtocol] = []
    connection_made = LimitedProtocol.connection_made

    def note(one: LimitedProtocol, transport: Any) -> None:
        found.append(one)
        connection_made(one, transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", note)
    return found


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def connect(url: str, stack: contextlib.ExitStack, source: str = HOME) -> socket.socket:
    address = urlsplit(url)
    one = socket.create_connection((address.hostname, address.port), timeout=PATIENCE, source_address=(source, 0))
    return stack.enter_context(one)


def test_a_connection_without_a_head_costs_no_protocol(
    folder: Path, made: list[LimitedProtocol], stack: contextlib.ExitStack
) -> None:
    with in_thread(create_app(Service(folder))) as url:
        for length in range(len(ASK)):
            connect(url, stack).sendall(ASK[:length])
        one = connect(url, stack)
        one.sendall(ASK)
        assert b" 200 " in one.recv(65536)
        assert len(made) == 1


@pytest.mark.parametrize("size", [1, 7, len(ASK) - 1])
def test_a_head_may_arrive_in_pieces(folder: Path, stack: contextlib.ExitStack, size: int) -> None:
    with in_thread(create_app(Service(folder))) as url:
        one = connect(url, stack)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(ASK), size):
            one.sendall(ASK[start : start + size])
        assert b" 200 " in one.recv(65536)


def test_what_is_no_http_is_refused_before_a_head_ends(folder: Path, stack: contextlib.ExitStack) -> None:
    with in_thread(create_app(Service(folder))) as url:
        one = connect(url, stack)
        one.sendall(b"\x16\x03\x01\x02\x00")  # a client that expects TLS
        assert b" 400 " in one.recv(65536)


def test_silent_connections_of_others_close_nobody(folder: Path, stack: contextlib.ExitStack) -> None:
    """Those of the client with the most are closed."""
    limits = Limits(connections=8, seconds=PATIENCE)
    with in_thread(create_app(Service(folder)), limits) as url:
        honest = connect(url, stack)
        silent = [connect(url, stack, AWAY) for _ in range(5 * limits.connections)]
        silent[0].setblocking(False)
        wait_for(lambda: closed(silent[0]))
        honest.sendall(ASK)
        assert b" 200 " in honest.recv(65536)


def test_more_requests_than_may_wait_for_their_turn_are_all_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stack: contextlib.ExitStack
) -> None:
    monkeypatch.setattr(acceptor, "QUEUE", 3)
    with in_thread(create_app(Service(folder))) as url:
        many = [connect(url, stack) for _ in range(60)]
        for one in many:
            one.sendall(ASK)
        assert all(b" 200 " in one.recv(65536) for one in many)


def test_a_server_without_files_accepts_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, refusals = socket.socket.accept, iter([OSError(24, "Too many open files")] * 2)

    def refuse(one: socket.socket) -> Any:
        error = next(refusals, None)
        if error is not None:
            raise error
        return accept(one)

    monkeypatch.setattr(socket.socket, "accept", refuse)
    with in_thread(create_app(Service(folder))) as url:
        assert alive(url)


def test_a_client_waits_for_one_call_of_each_other_client() -> None:
    async def order(queue: FairQueue) -> list[tuple[str, int]]:
        done: list[tuple[str, int]] = []
        for client, count in {"a": 100, "b": 5, "c": 1}.items():
            for number in range(count):
                queue.put(client, partial(done.append, (client, number)))
        turns = 0
        while len(done) < 106:
            await asyncio.sleep(0)
            turns += 1
            assert len(done) <= EACH * turns
        return done

    done = asyncio.run(order(FairQueue()))
    assert done.index(("c", 0)) == 2
    assert done.index(("b", 4)) < 11
    for client in "abc":  # in their order
        numbers = [number for one, number in done if one == client]
        assert numbers == sorted(numbers)
