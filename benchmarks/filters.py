"""Filtered search beside other libraries: recall@10 and CPU time of one query, by filter.

    python benchmarks/filters.py --vectors sentences.npy --sentences sentences.txt --items 20000

The first table has filters that are prepared before they are timed: bitmaps, functions, rows copied side by side. In
the second each call gets a condition as it is written, and evaluates it; "new" ones were never given before. The third
is what attributes cost, the fourth what a filter of half of the items costs in each form, by the number of items.

Each peer has its effort (ef, nprobe) chosen for each filter: the least of a grid that reaches a recall of 0.95 within
20 ms, else that of the highest recall. Nestcode has its defaults. Times are CPU time of single queries on one thread,
the least of three rounds. Items are the first rows of the file, queries its last; the lines of the text are its rows'.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

import nestcode as nc
from _engine_task import Task, prepared, read_digits
from _filter_methods import Method, Search, index_columns, methods
from _filter_tasks import Filtered, Items, K, filters, make_items
from _report import save, show_markdown
from nestcode.arrays import Floats, Ids

Row = dict[str, Any]
Make = Callable[[int | None], list[Search | None]]
TARGET, QUERIES, ROUNDS = 0.95, 24, 3
LIMIT, LEAST_QUERIES = 0.4, 5  # CPU seconds of a method with one filter and effort: later queries are left out
SLOWEST = 20_000  # µs of a query, beyond which no greater effort is tried
GROWTH = (10_000, 100_000, 1_000_000)
FEATURES, BITS, FITTED = 16, 64, 20_000  # of the items of these sizes
CALLS, FEW = 20, 40
QUICK_METHODS, QUICK_ITEMS, QUICK_QUERIES = ("nestcode", "NumPy", "FAISS", "hnswlib", "usearch"), 500, 3
PACKAGES = ["nestcode", "numpy", "pyarrow", "faiss-cpu", "hnswlib", "usearch", "pyvsag", "lancedb", "qdrant-client"]


def main() -> None:
    """Measure, print and save."""
    options = parse()
    items = read(options)
    with threadpool_limits(1):
        built = list(build(items, options.methods or (QUICK_METHODS if options.quick else None)))
        rows = compare(items, built)
        show_markdown(f"Prepared filters, recall@{K} and µs: {items}", by_method(rows, "prepared"))
        show_markdown(f"Conditions as texts, recall@{K} and µs", by_method(rows, "text"))
        costs = [] if options.quick else list(attributes(items))
        show_markdown("Attributes", costs)
        found = by_form((1000,) if options.quick else options.growth)
        show_markdown("A filter of half of the items in each form, µs of a query", found)
    save(options.json, [*rows, *costs, *found], PACKAGES)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, metavar="FILE.npy", help="embeddings; scikit-learn's digits without")
    parser.add_argument("--sentences", type=Path, metavar="FILE", help="a text with a line for each row, for tags")
    parser.add_argument("--items", type=int, default=20_000, metavar="N", help="how many items")
    parser.add_argument("--methods", nargs="+", metavar="WORD", help="words in the names of the methods to run")
    parser.add_argument("--growth", type=int, nargs="*", default=GROWTH, metavar="N", help="sizes of the last table")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    return parser.parse_args()


def read(options: argparse.Namespace) -> Items:
    """Return the items and the queries, with their columns."""
    if options.vectors is None or options.quick:
        task = read_digits("cosine")
        if options.quick:
            task = Task(task.name, task.metric, task.base[:QUICK_ITEMS], task.queries[:QUICK_QUERIES])
        return make_items(task, None, len(task.base))
    rows = np.load(options.vectors, mmap_mode="r", allow_pickle=False)
    count = min(options.items, len(rows) - QUERIES)
    base, queries = (prepared(part, "cosine") for part in (rows[:count], rows[-QUERIES:]))
    texts = None
    if options.sentences is not None:
        with options.sentences.open() as lines:
            texts = [line.strip() for line in islice(lines, len(rows))]
        texts = texts[:count] + texts[-QUERIES:]
    return make_items(Task(options.vectors.stem, "cosine", base, queries), texts, count)


def build(items: Items, words: Sequence[str] | None) -> Iterator[Method]:
    """Yield each method with all items."""
    for method in methods():
        if words and not any(word.lower() in method.name.lower() for word in words):
            continue
        start = time.process_time()
        try:
            method.build(items.task)
        except ImportError as error:
            print(f"{method.name} is left out ({error}): pip install '.[peers]'", file=sys.stderr)
            continue
        method.add_columns(items)
        print(f"{method.name}: built in {time.process_time() - start:.1f} s of CPU time", file=sys.stderr)
        yield method


def compare(items: Items, built: Sequence[Method]) -> list[Row]:
    """Return the recall and the time of each method by filter."""
    rows: list[Row] = []
    for wanted in filters(items):
        for method in built:
            for table, suffix, make in ways(method, wanted):
                found = best(items.task, wanted, method.efforts, make)
                if found:
                    row = {"table": table, "filter": wanted.name, "share": wanted.share, "method": method.name + suffix}
                    rows.append(row | found)
    return rows


def ways(method: Method, wanted: Filtered) -> Iterator[tuple[str, str, Make]]:
    """Yield a table, what it calls a method, and what makes the searches of all queries at an effort."""
    conditions = wanted.conditions or ()
    yield "prepared", "", lambda effort: [method.prepare(mask, effort) for mask in wanted.masks]
    yield "text", "", lambda effort: [method.write(one, effort) for one in conditions]
    yield "text", ", new", lambda effort: [method.write_new(one, effort) for one in conditions]


def best(task: Task, wanted: Filtered, efforts: Sequence[int | None], make: Make) -> Row:
    """Return the recall and the time with the least effort that reaches the target, else with the highest recall."""
    found: Row = {}
    for effort in efforts:
        searches = [one for one in make(effort) if one is not None]
        if not searches:
            return {}
        row = measure(task, wanted, searches) | {"effort": effort}
        if not found or row["recall"] > found["recall"]:
            found = row
        if found["recall"] >= TARGET or row["us"] > SLOWEST:
            break
    return found


def measure(task: Task, wanted: Filtered, searches: Sequence[Search]) -> Row:
    """Return the recall, and the mean over the queries of the least CPU time of each."""
    found: list[Ids] = []
    least, start = [], time.process_time()
    for query, search in zip(wanted.queries, searches, strict=True):
        if len(found) >= LEAST_QUERIES and time.process_time() - start > LIMIT:
            break
        found.append(search(query))
        rounds = ROUNDS if time.process_time() - start < LIMIT else 1
        least.append(min(cpu_seconds(search, query) for _ in range(rounds)))
    return {"recall": wanted.recall(task, found), "us": 1e6 * float(np.mean(least)), "queries": len(found)}


def cpu_seconds(search: Search, query: Floats) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    search(query)
    return time.process_time() - start


def by_method(rows: Sequence[Row], table: str) -> list[Row]:
    """Return a table with a line for each filter and a column for each method: recall and µs."""
    lines: dict[str, Row] = {}
    for row in rows:
        if row["table"] == table:
            line = lines.setdefault(row["filter"], {"filter": row["filter"], "allowed": f"{row['share']:.2%}"})
            line[row["method"]] = f"{row['recall']:.2f}, {row['us']:,.0f}"
    return list(lines.values())


def attributes(items: Items) -> Iterator[Row]:
    """Yield what the columns cost an index of codes, and LanceDB, beside the items."""
    count = len(items.task.base)
    codes = nc.Codes.from_bits(np.random.default_rng(0).random((count, 64)) < 0.5)
    seconds, index = [], nc.Index(width=64)
    for own in (None, items.columns):
        index, start = nc.Index(width=64), time.process_time()
        index.add(codes, attributes=own)
        index.compact()
        seconds.append(time.process_time() - start)
    nbytes = index.nbytes_by_part()["attributes"]
    yield {"": "nestcode", "µs an item": 1e6 * (seconds[1] - seconds[0]) / count, "bytes an item": nbytes / count}
    try:
        lancedb = import_module("lancedb")
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        table = lancedb.connect(folder).create_table("items", pa.table(items.columns))
        index_columns(table)
        us = 1e6 * (time.process_time() - start) / count
        nbytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    yield {"": "LanceDB, indexed", "µs an item": us, "bytes an item": nbytes / count}


def by_form(sizes: Sequence[int]) -> list[Row]:
    """Return what a filter costs in each form, by the number of items."""
    rows: dict[str, Row] = {}
    for size in sizes:
        rng = np.random.default_rng(0)
        base = rng.standard_normal((size + 1, FEATURES), dtype=np.float32)
        index = nc.Index(nc.CellCoder(BITS).fit(base[:FITTED]), vectors="float16")
        number = rng.permutation(size)
        index.add(base[:-1], attributes={"number": number})
        index.compact()
        for form, search in forms(index, base, number):
            calls = [search() for _ in range(CALLS)]
            rows.setdefault(form, {"filter": form})[f"{size:,} items"] = 1e6 * min(
                cpu_seconds(one, base[-1]) for one in calls
            )
    return list(rows.values())


def forms(index: nc.Index, base: Floats, number: Ids) -> Iterator[tuple[str, Callable[[], Search]]]:
    """Yield a name, and what makes the search of each call."""
    half, few, calls = number < len(number) // 2, np.flatnonzero(number < FEW), count(1)

    def same(wanted: Any) -> Callable[[], Search]:
        return lambda: lambda query: index.search(query, K, filter=wanted).ids

    def new(make: Callable[[], Any]) -> Callable[[], Search]:
        def search() -> Search:
            wanted = make()
            return lambda query: index.search(query, K, filter=wanted).ids

        return search

    text, rows = f"number < {len(number) // 2}", base[few]
    yield "none", same(None)
    yield "prepared, of all items", same(index.filter(np.ones_like(half)))
    yield "prepared", same(index.filter(half))
    yield "the same text", same(text)
    yield "a new text", new(lambda: text + " " * next(calls))
    yield "the same mask", same(half)
    yield "a new mask", new(lambda: np.random.default_rng(next(calls)).random(len(half)) < 0.5)
    yield "the same ids", same(np.flatnonzero(half))
    yield f"{FEW} ids, prepared", same(index.filter(few))
    yield f"{FEW} ids", same(few)
    yield f"NumPy on {FEW} rows", lambda: lambda query: few[np.argsort(np.square(rows - query).sum(axis=1))[:K]]


if __name__ == "__main__":
    main()
