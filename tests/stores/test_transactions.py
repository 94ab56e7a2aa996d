"""The user's transactions, filters in SQL, broken connections, and readers beside a writer."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.rows import dict_row

from nestcode import Codes, Index, LinearCoder
from nestcode.errors import DamagedFile, InvalidInput
from nestcode.index.ordered import Scan
from nestcode.stores import SqliteStore, postgres
from nestcode.stores.lmdb import LmdbStore
from nestcode.stores.postgres import PostgresStore
from tests.stores.conftest import Create
from tests.stores.server import make_cluster, private_folder, programs, started
from tests.stores.test_laws import IDS, QUERIES, X, clustered

NUMBERS = count()
CODER = LinearCoder(width=32).fit(X)
CODES = clustered(40, 13)


@pytest.fixture(params=["sqlite", "postgres"])
def sql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[type[Any], Callable[..., Any], str]]:
    """Return a class of SQL stores, a function that connects to a database, and its placeholder."""
    opened: list[Any] = []
    kind: type[Any]
    if request.param == "sqlite":
        kind, mark = SqliteStore, "?"

        def connect(**how: Any) -> Any:
            return sqlite3.connect(tmp_path / "codes.db", **how)
    else:
        dsn = request.getfixturevalue("dsn")
        schema = f"schema_{next(NUMBERS)}"
        with psycopg.connect(dsn, autocommit=True) as first:
            first.execute(f"CREATE SCHEMA {schema}".encode())
        kind, mark = PostgresStore, "%s"

        def connect(**how: Any) -> Any:
            return psycopg.connect(dsn, options=f"-c search_path={schema}", **how)

    def connected(**how: Any) -> Any:
        opened.append(connect(**how))
        return opened[-1]

    yield kind, connected, mark
    for connection in opened:
        connection.close()


Sql = tuple[type[Any], Callable[..., Any], str]


def test_changes_of_a_given_connection_are_the_users_to_commit(sql: Sql) -> None:
    kind, connect, _ = sql
    connection, other = connect(), connect()
    store = kind.create(connection, width=13)
    connection.commit()
    store.add(CODES[:9], np.arange(9))
    assert len(store) == 9
    assert len(kind.open(other)) == 0
    connection.rollback()
    assert len(store) == 0
    store.add(CODES[:9], np.arange(9))
    store.remove([3])
    connection.commit()
    other.rollback()
    assert len(kind.open(other)) == 8
    store.close()
    assert len(store) == 8  # a given connection stays open
    rolled_back = connect()
    kind.create(rolled_back, width=13, table="second")
    rolled_back.rollback()
    with pytest.raises(InvalidInput, match="there is no store"):
        kind.open(rolled_back, table="second")


def test_an_error_leaves_the_users_transaction_as_it_was(sql: Sql) -> None:
    kind, connect, mark = sql
    connection = connect()
    store = kind.create(connection, width=13)
    connection.execute("CREATE TABLE notes (id integer PRIMARY KEY, note text)")
    connection.commit()
    for _ in range(2):  # with statements before it, and as the first of a transaction
        with pytest.raises(InvalidInput, match="ids must be distinct"):
            store.add(CODES[:2], [1, 1])
        store.add(CODES[:9], np.arange(9))
        connection.execute(f"INSERT INTO notes VALUES ({mark}, 'kept')", (7,))
        with pytest.raises(InvalidInput, match="ids must be new, but 8 is in use"):
            store.add(CODES[9:12], [30, 8, 31])
        with pytest.raises(InvalidInput, match="but 99 is not"):
            store.remove([1, 99])
        connection.commit()
        assert len(store) == 9
        assert connection.execute("SELECT note FROM notes").fetchall() == [("kept",)]
        store.remove(np.arange(9))
        connection.execute("DELETE FROM notes")
        connection.commit()
    with pytest.raises(InvalidInput, match="but 99 is not"):
        store.remove([99])
    assert not getattr(connection, "in_transaction", False)  # SQLite would block other writers


def test_a_connection_in_autocommit_mode_commits_whole_calls(sql: Sql) -> None:
    kind, connect, _ = sql
    connection = connect(isolation_level=None) if kind is SqliteStore else connect(autocommit=True)
    store = kind.create(connection, width=13)
    store.add(CODES[:9], np.arange(9))
    with pytest.raises(InvalidInput, match="ids must be new"):
        store.add(CODES[9:20], np.arange(19, 8, -1) - 1)
    assert len(kind.open(connect())) == 9
    named = connect()  # whose rows are dictionaries
    named.row_factory = dict_row if kind is PostgresStore else lambda *_: {}
    named.text_factory = bytes
    assert len(store.using(named)) == len(kind.open(named)) == 9
    assert kind.open(named).neighborhood(CODES[0], size=9).count == 9


def test_settings_that_are_no_settings_are_refused(sql: Sql) -> None:
    kind, connect, _ = sql
    connection = connect()
    kind.create(connection, width=13)
    for change in ("UPDATE codes_settings SET width = 0", "DELETE FROM codes_settings"):
        connection.execute(change)
        with pytest.raises(DamagedFile, match="the store codes must have one row of settings"):
            kind.open(connection)


def test_a_table_that_exists_is_taken_with_its_items_and_columns(sql: Sql) -> None:
    kind, connect, mark = sql
    connection, code = connect(), "BLOB" if kind is SqliteStore else "bytea"
    connection.execute(f"CREATE TABLE codes (id bigint PRIMARY KEY, code {code} NOT NULL, price real)")
    connection.execute(f"INSERT INTO codes VALUES (7, {mark}, 3.5)", (CODES.packed[7].tobytes(),))
    store = kind.create(connection, width=13)
    store.add(CODES[:3], np.arange(3))
    assert store.neighborhood(CODES[7], size=4).count == store._estimated_count() == 4
    assert store.search(CODES[:1], k=2, filter="price > 3").ids.tolist() == [[7, -1]]
    with pytest.raises(InvalidInput, match="the store 'codes' exists: open it"):
        kind.create(connection, width=13)


def test_a_table_that_cannot_hold_items_is_refused(sql: Sql) -> None:
    kind, connect, _ = sql
    connection, code = connect(), "BLOB" if kind is SqliteStore else "bytea"
    wrong = {
        f"(code {code}, name text)": "the table 'codes' must have columns id and code, got code, name: add",
        "(id bigint PRIMARY KEY, name text)": "the table 'codes' must have columns id and code, got id, name: add",
        f"(id bigint, code {code})": "ids of the table 'codes' must be unique, but no index ensures it: make id",
        f"(id bigint, code {code}, PRIMARY KEY (code, id))": "must be unique",
    }
    for columns, message in wrong.items():
        connection.execute(f"CREATE TABLE codes {columns}")
        with pytest.raises(InvalidInput, match=message):
            kind.create(connection, width=13)
        connection.execute("DROP TABLE codes")
    connection.execute(f"CREATE TABLE codes (id bigint, code {code})")
    for where in ("(lower('a'), id)", "(id) WHERE id > 5"):  # an id may come twice
        connection.execute(f"CREATE UNIQUE INDEX others ON codes {where}")
        with pytest.raises(InvalidInput, match="must be unique"):
            kind.create(connection, width=13)
        connection.execute("DROP INDEX others")
    connection.execute("CREATE UNIQUE INDEX one ON codes (id)")
    store = kind.create(connection, width=13)
    store.add(CODES[:2], [1, 2])
    with pytest.raises(InvalidInput, match="ids must be new"):
        store.add(CODES[:2], [2, 3])


def test_an_index_of_another_table_takes_no_name_away(sql: Sql) -> None:
    kind, connect, _ = sql
    connection = connect()
    connection.execute("CREATE TABLE others (code integer)")
    for name in ("codes_code", "codes_code_id_idx"):
        connection.execute(f"CREATE INDEX {name} ON others (code)")
    store = kind.create(connection, width=13)
    store.add(CODES[:9], np.arange(9))
    assert store.neighborhood(CODES[0], size=9).count == 9


@pytest.mark.parametrize("table", ["codes", "aux.codes"])
@pytest.mark.parametrize("text", [str, bytes])
def test_codes_in_sqlite_have_one_index(table: str, text: type) -> None:
    connection = sqlite3.connect(":memory:")
    connection.text_factory = text
    connection.execute("ATTACH ':memory:' AS aux")
    for place in ("main", "aux"):  # a name that is taken by another table
        connection.execute(f"CREATE TABLE {place}.others (Code)")
        connection.execute(f"CREATE INDEX {place}.Codes_Code ON others (Code)")
    SqliteStore.create(connection, width=13, table=table)
    plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT id FROM {table} WHERE code > x'00'").fetchall()
    assert text is bytes or "USING COVERING INDEX codes_code1" in plan[0][-1]
    connection.execute(f"DROP TABLE {table}_settings")
    SqliteStore.create(connection, width=13, table=table)  # takes the table with its index
    place = table.replace("codes", "sqlite_master") if "." in table else "sqlite_master"
    made = f"SELECT count(*) FROM {place} WHERE type = 'index' AND tbl_name = 'codes'"
    assert connection.execute(made).fetchone() == (1,)
    connection.close()


def test_a_filter_on_repeated_ids_is_refused(sql: Sql) -> None:
    kind, connect, mark = sql
    connection = connect()
    connection.execute("CREATE TABLE variants (id integer, color text)")
    rows = [(int(item), color) for item in IDS[:30] for color in ("red", "blue")]
    connection.cursor().executemany(f"INSERT INTO variants VALUES ({mark}, {mark})", rows)
    store = kind.create(connection, CODER, items="variants")
    store.add(X, IDS)
    assert len(set(store.search(X[3], filter="color = 'red'").ids)) == 10
    for find in (store.search, partial(store.neighborhood, size=12)):
        with pytest.raises(InvalidInput, match="each id once, got some twice"):
            find(X[3], filter="color <> 'green'")


def test_writers_that_replace_the_same_items_wait_for_each_other(sql: Sql) -> None:
    kind, connect, _ = sql
    how: dict[str, Any] = {"autocommit": True} if kind is PostgresStore else {"timeout": 60, "check_same_thread": False}
    first = connect(**how)
    kind.create(first, width=13)
    first.commit()

    def replace() -> None:
        connection = connect(**how)
        for _ in range(10):
            kind.open(connection).add(CODES, range(40), on_duplicate="replace")
            connection.commit()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(replace) for _ in range(3)]:
            done.result()
    assert len(kind.open(first)) == 40


def test_filters_are_conditions_on_the_users_columns(sql: Sql) -> None:
    kind, connect, mark = sql
    connection = connect()
    connection.execute("CREATE TABLE products (id integer PRIMARY KEY, price real, code text)")
    rows = [(int(item), float(place), "a" if place % 3 else "b") for place, item in enumerate(IDS)]
    connection.cursor().executemany(f"INSERT INTO products VALUES ({mark}, {mark}, {mark})", rows)
    store = kind.create(connection, CODER, items="products")
    store.add(X, IDS)
    index = Index(CODER)
    index.add(X, IDS)
    wanted: dict[str, Any] = {
        "price < 20": IDS[:20],  # few items: all of them are compared
        "price >= 100 AND products.code = 'a'": [item for item, price, code in rows if price >= 100 and code == "a"],
        "price < 0": [],
    }
    for condition, ids in wanted.items():
        for given in (
            condition,
            (condition,),
            (f"{condition} AND price <> {mark}", -1),
            (f"{condition} AND price <> {mark}", [-1]),
            (f"{condition} AND price <> {mark}", (-1,)),
            (f"{condition} AND price <> {mark}", np.array([-1])),
            (condition, []),
        ):
            own, other = store.search(QUERIES, filter=given), index.search(QUERIES, filter=ids, candidates=900)
            assert own.ids.tolist() == other.ids.tolist()
        probed = store.search(QUERIES, filter=condition, candidates=50)
        assert probed.ids.tolist() == index.search(QUERIES, filter=ids, candidates=50, rerank=50).ids.tolist()
        few = Index(CODER)
        few.add(X[np.isin(IDS, ids)], ids)
        for size in (1, 7):
            for query in QUERIES:
                hood, expected = (
                    store.neighborhood(query, size=size, filter=condition),
                    few.neighborhood(query, size=size),
                )
                assert (hood.length, sorted(hood.ids)) == (expected.length, sorted(expected.ids))
    bare = kind.open(connection)
    assert bare.search(X[5], k=1, filter=(f"id = {mark}", int(IDS[7]))).ids.tolist() == [IDS[7]]
    for cast in (np.int64, np.float32, np.float64):  # as plain numbers
        scalar = (f"price < {mark}", cast(20))
        assert (
            store.search(QUERIES, filter=scalar).ids.tolist() == store.search(QUERIES, filter="price < 20").ids.tolist()
        )
        assert store.neighborhood(X[5], size=4, filter=scalar).count == store.neighborhood(
            X[5], size=4, filter="price < 20"
        ).count  # fmt: skip
    by_table = f"id IN (SELECT id FROM products WHERE price < {mark})"
    assert bare.search(QUERIES, filter=(by_table, 20)).ids.tolist() == store.search(
        QUERIES, filter=("price < " + mark, 20)
    ).ids.tolist()  # fmt: skip
    connection.commit()
    with pytest.raises(InvalidInput, match=r'condition on "codes", got .price < 3.*open the store with items='):
        bare.search(X[5], filter="price < 3")
    connection.rollback()
    message = f"a filter is a condition on .* a value for each {re.escape(mark)}"
    for wrong in (
        (f"price < {mark}",),
        ("price < 3", 5),
        f"price < {mark}",
        "price <",
        "price < 3 -- cheap",
        ("price < 3", [5]),
        (f"price < {mark}", []),
        (f"price < {mark}", [1, 2]),
    ):
        for find in (store.search, partial(store.neighborhood, size=4)):
            with pytest.raises(InvalidInput, match=message):
                find(X[5], filter=wrong)
            connection.rollback()
    if kind is SqliteStore:
        for unbound in (2**70, object(), [1]):
            with pytest.raises(InvalidInput, match=message):
                store.search(X[5], filter=("price < ?", [unbound]))
    with pytest.raises(InvalidInput, match="a filter must have no null characters"):
        store.search(X[5], filter="products.code = '\0'")
    for undecoded in (
        "products.code = '\ud800'",
        (f"products.code = {mark}", "\ud800"),
        (f"price < {mark}", ["\udfff"]),
    ):
        with pytest.raises(InvalidInput, match="a filter must be Unicode, got a lone surrogate in"):
            store.search(X[5], filter=undecoded)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_database_is_named(share: float, tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    with SqliteStore.create(path, CODER) as store:
        store.add(np.repeat(X, 4, axis=0), np.arange(4 * len(X)))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data)) // 4096 * 4096 + 100])
    with pytest.raises(DamagedFile, match=r"codes\.db is damaged .*: restore a copy"):
        SqliteStore.open(path).search(X, candidates=4 * len(X))


def test_a_store_in_another_thread_names_the_remedy(tmp_path: Path) -> None:
    with SqliteStore.create(tmp_path / "codes.db", CODER) as store, ThreadPoolExecutor(1) as pool:
        store.add(X, IDS)
        calls: list[Callable[[], Any]] = [
            lambda: len(store), lambda: store.search(X[0]), lambda: store.neighborhood(X[0], size=3),
            lambda: store.remove(IDS[:1]),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(InvalidInput, match="open a store in each thread, or give"):
                pool.submit(call).result()
        assert len(store) == len(IDS)


def test_many_items_arrive_in_several_messages(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "COPIED", 7)
    monkeypatch.setattr(postgres, "COUNTED", 10)
    with PostgresStore.create(dsn, CODER, table="public.messages") as store:
        store.add(X, IDS)
        assert len(store) == 900
        assert store.codes(IDS) == CODER.encode(X)
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("ANALYZE messages")
        index = Index(CODER)
        index.add(X, IDS)
        own = store.search(QUERIES, candidates=90)
        assert own.ids.tolist() == index.search(QUERIES, candidates=90, rerank=90).ids.tolist()


def test_what_is_no_connection() -> None:
    with pytest.raises(InvalidInput, match=r"expected a connection string or a psycopg.Connection, got int"):
        PostgresStore.open(5432)  # type: ignore[arg-type]


def test_constraints_of_the_users_own_are_reported_as_they_are(sql: Sql) -> None:
    kind, connect, _ = sql
    connection = connect()
    store = kind.create(connection, width=13)
    connection.execute("CREATE UNIQUE INDEX distinct_codes ON codes (code)")
    store.add(CODES[:1], [1])
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        store.add(CODES[:1], [2])
    assert len(store) == 1


def test_a_table_of_the_users_own_may_be_partitioned(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE parted (id bigint NOT NULL, code bytea NOT NULL) PARTITION BY RANGE (code)")
        bounds = ("MINVALUE", r"'\x40'", r"'\x80c3'", "MAXVALUE")
        for place, (low, high) in enumerate(pairwise(bounds)):
            part = f"CREATE TABLE parted_{place} PARTITION OF parted FOR VALUES FROM ({low}) TO ({high})"
            connection.execute(part.encode())
        connection.execute("CREATE INDEX ON parted (code) INCLUDE (id)")
        store, index = PostgresStore.create(connection, CODER, table="parted"), Index(CODER)
        for items in (store, index):
            items.add(X, IDS)
            items.remove(IDS[:100])
        own = store.search(QUERIES, candidates=90)
        assert own.ids.tolist() == index.search(QUERIES, candidates=90, rerank=90).ids.tolist()
        for hood, expected in zip(
            store.neighborhood(QUERIES, size=9), index.neighborhood(QUERIES, size=9), strict=True
        ):
            assert (hood.length, sorted(hood.ids)) == (expected.length, sorted(expected.ids))


def test_a_connection_that_drops_while_items_arrive_leaves_none(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresStore.create(dsn, width=13, table="dropped") as store, psycopg.connect(dsn, autocommit=True) as other:
        store.add(CODES[:5], np.arange(5))
        backend = store._value("SELECT pg_backend_pid()", ())
        messages = postgres._copy_messages

        def interrupted(items: Scan) -> Iterator[bytes]:
            for place, message in enumerate(messages(items)):
                if place == 3:
                    other.execute("SELECT pg_terminate_backend(%s)", (backend,))
                yield message

        monkeypatch.setattr(postgres, "_copy_messages", interrupted)
        monkeypatch.setattr(postgres, "COPIED", 4)
        with pytest.raises(psycopg.OperationalError):
            store.add(CODES[5:], np.arange(5, 40))
        monkeypatch.undo()
        again = store.using(other)
        assert len(again) == 5
        again.add(CODES[5:], np.arange(5, 40))
        assert again.codes(np.arange(40)) == CODES


def test_a_server_that_is_killed_keeps_what_it_acknowledged() -> None:
    """Between two calls, and while items arrive: a store that is opened again goes on."""
    if programs() is None or not Path("/proc/self/task").exists():
        pytest.skip("PostgreSQL on Linux is needed: apt-get install postgresql")
    with private_folder() as folder:
        make_cluster(folder)
        with started(folder) as (dsn, server):
            store = PostgresStore.create(dsn, width=13, table="killed")
            store.add(CODES[:5], np.arange(5))
            kill(server)
            for _ in range(2):
                with pytest.raises(psycopg.OperationalError):
                    store.add(CODES[5:9], np.arange(5, 9))
                with pytest.raises(psycopg.OperationalError):
                    len(store)
            store.close()
            with pytest.raises(psycopg.OperationalError):
                PostgresStore.open(dsn, table="killed")
        with started(folder) as (dsn, server), PostgresStore.open(dsn, table="killed") as store:
            assert store.codes(np.arange(5)) == CODES[:5]
            messages = postgres._copy_messages

            def interrupted(items: Scan) -> Iterator[bytes]:
                for place, message in enumerate(messages(items)):
                    if place == 3:
                        kill(server)
                    yield message

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(postgres, "_copy_messages", interrupted)
                patch.setattr(postgres, "COPIED", 4)
                with pytest.raises(psycopg.OperationalError):
                    store.add(CODES[5:], np.arange(5, 40))
        with started(folder) as (dsn, _), PostgresStore.open(dsn, table="killed") as store:
            assert len(store) == 5
            store.add(CODES[5:], np.arange(5, 40))
            assert store.codes(np.arange(40)) == CODES


def kill(server: subprocess.Popen[bytes]) -> None:
    """End a server and its processes, as a power failure of its machine would."""
    for own in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(int(own), signal.SIGKILL)
    server.kill()
    server.wait()


DYING = """
import os, sys
import numpy as np
from nestcode import Codes
from nestcode.index.ordered import Scan
from nestcode.stores import LmdbStore, SqliteStore

class Ids(list):
    def tolist(self):
        yield from range(3, 8)
        os._exit(9)

codes = Codes(np.arange(20, dtype=np.uint8).reshape(10, 2), 16)
for kind, path in ((SqliteStore, sys.argv[1]), (LmdbStore, sys.argv[2])):
    if os.fork() == 0:
        store = kind.create(path, width=16)
        store.add(codes[:3], [0, 1, 2])
        store._insert(Scan(Ids(), codes), replace=False)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
"""


def test_a_process_that_dies_while_items_arrive_leaves_none(tmp_path: Path) -> None:
    paths: dict[Any, Path] = {SqliteStore: tmp_path / "codes.db", LmdbStore: tmp_path / "lmdb"}
    subprocess.run([sys.executable, "-c", DYING, *paths.values()], check=True)
    for kind, path in paths.items():
        with kind.open(path) as store:
            assert len(store) == 3
            store.add(Codes(np.full((1, 2), 7, dtype=np.uint8), 16), [3])
            assert store.range(Codes(np.zeros((1, 0), dtype=np.uint8), 0)).ids.tolist() == [0, 1, 2, 3]


def test_an_environment_that_is_full_says_so(tmp_path: Path) -> None:
    with LmdbStore.create(tmp_path / "small", width=2048, map_size=1 << 16) as store:
        with pytest.raises(
            InvalidInput, match="may have at most 65536 bytes, which are used up: open it with a larger"
        ):
            store.add(clustered(300, 2048), np.arange(300))
        assert len(store) == 0


def test_sixteen_clients_read_while_one_writes(place: tuple[type[Any], Any, dict[str, Any]], create: Create) -> None:
    """The writer moves all items from one state to another and back: every answer is that of one of the two."""
    kind, database, table = place
    states = clustered(300, 13), clustered(300, 13, seed=9)
    queries, ids, flips = states[0][3:5], np.arange(300), 4
    writer = create(width=13)
    writer.add(states[0], ids)

    def answers(store: Any) -> list[Any]:
        hoods = store.neighborhood(queries, size=6)
        return [(hood.length, tuple(sorted(hood.ids.tolist()))) for hood in hoods] + [
            (hits.compared, tuple(hits.distances.tolist()))
            for query in queries
            for hits in (store.search(query, k=4, candidates=limit) for limit in (200, 300))
        ]

    allowed = []
    for state in (*reversed(states), states[0])[:2]:
        writer.add(state, ids, on_duplicate="replace")
        allowed.append(answers(writer))
    assert allowed[0] != allowed[1]
    wrong: list[Any] = []
    done, counted = threading.Event(), []

    def read() -> None:
        try:
            store = writer if kind is LmdbStore else kind.open(database, **table)
            while not done.is_set():
                found = answers(store)
                wrong.extend(own for own, *known in zip(found, *allowed, strict=True) if own not in known)
                counted.append(1)
            if store is not writer:
                store.close()
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(16)]
    for reader in readers:
        reader.start()
    for flip in range(flips):
        writer.add(states[flip % 2], ids, on_duplicate="replace")
    while len(counted) < 16 and not wrong:
        threading.Event().wait(0.01)
    done.set()
    for reader in readers:
        reader.join(60)
    assert not any(reader.is_alive() for reader in readers)
    assert wrong == []
