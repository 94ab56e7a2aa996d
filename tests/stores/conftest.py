"""Fixtures of the stores' tests: every test of `stores` runs on each of them."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nestcode.stores import CodeStore, SqliteStore
from nestcode.stores.lmdb import LmdbStore
from nestcode.stores.postgres import PostgresStore
from tests.stores.server import private_folder, programs, running_server

Create = Callable[..., CodeStore]
NUMBERS = count()


@pytest.fixture(scope="session")
def dsn() -> Iterator[str]:
    if programs() is None:
        pytest.skip("PostgreSQL is needed: apt-get install postgresql")
    with private_folder() as folder, running_server(folder) as started:
        yield started


@pytest.fixture(params=["sqlite", "lmdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[type[Any], Any, dict[str, Any]]:
    """Return a class of stores, a database for it, and what names a table there."""
    if request.param == "lmdb":
        return LmdbStore, tmp_path / "lmdb", {}
    table = {"table": f"codes_{next(NUMBERS)}"}
    if request.param == "sqlite":
        return SqliteStore, tmp_path / "codes.db", table
    return PostgresStore, request.getfixturevalue("dsn"), table


@pytest.fixture
def create(place: tuple[type[Any], Any, dict[str, Any]]) -> Iterator[Create]:
    """Return a function that creates a store."""
    kind, database, table = place
    opened: list[CodeStore] = []

    def created(*args: Any, **settings: Any) -> CodeStore:
        opened.append(kind.create(database, *args, **table, **settings))
        return opened[-1]

    yield created
    for store in opened:
        store.close()
