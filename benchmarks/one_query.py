"""One query at a time: CPU microseconds of `Index.search`, Python's share of it, and other libraries' calls beside it.

Items are rows of a .npy file (--vectors); its last rows are the queries, which are not among the items. Without a file,
items are clustered random vectors. Rounds are interleaved. Python's share is the time of the same calls with a core
that returns at once. Peers run where they are installed: SymphonyQG (PyPI's rabitqlib) and FAISS; NumPy's row is its
product with all items, then argpartition. Set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1: ours runs on one thread.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from _report import save, seconds_each, show
from graph import read
from nestcode import CellCoder, Index, LinearCoder, _core, metrics
from nestcode.arrays import Floats, Ids

Search = Callable[[Floats], Ids]  # one query to k ids
K = 10
SMALL = 1000
GRAPH_BITS, LIST_BITS = 320, 256


def main() -> None:
    """Measure, print and save."""
    options = parse()
    base, queries = read(options, options.items)
    rows = []
    for title, items, found in tables(base, options):
        jobs = {name: partial(one_by_one, search, queries) for name, search, _ in found}
        idle = {name: partial(without_core, search, queries) for name, search, index in found if index}
        rounds = 1 if options.quick else 7
        seconds = seconds_each(jobs, rounds, time.process_time)
        python = seconds_each(idle, rounds, time.process_time)
        exact = metrics.exact_neighbors(queries, items, K)
        table = [
            {
                "method": name,
                "recall@10": metrics.recall(np.stack([search(query) for query in queries]), exact),
                "us": 1e6 * seconds[name] / len(queries),
                "us of Python": f"{1e6 * python[name] / len(queries):.1f}" if name in python else "–",
            }
            for name, search, _ in found
        ]
        show(f"One query: {title}, {len(items):,} x {base.shape[1]}", table, "CPU time, one thread; best of rounds.")
        rows += [{"table": title, **row} for row in table]
    save(options.json, rows, ["nestcode", "numpy", "faiss-cpu", "rabitqlib"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="FILE", help="a .npy file of vectors, L2-normalized here")
    parser.add_argument("--items", type=int, metavar="N", help="only the first N of them")
    parser.add_argument("--queries", type=int, default=200, metavar="N")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the peers' builds")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.items, options.queries = 2000, 20
    return options


Row = tuple[str, Search, Index | None]  # a name, its search, and the index if it is ours


def tables(base: Floats, options: argparse.Namespace) -> Iterator[tuple[str, Floats, list[Row]]]:
    """Yield the title, the items and the methods of each table."""
    linear = LinearCoder(GRAPH_BITS, metric="cosine").fit(base)
    graph = filled(Index(linear, vectors="float16", graph=True), base)
    by_graph = [ours(f"graph, {ef} candidates", graph, candidates=ef) for ef in (30, 40)]
    yield "graph", base, [*by_graph, *symphony(base, options)]
    cells = CellCoder(LIST_BITS, metric="cosine").fit(base)
    lists, codes = filled(Index(cells, vectors="float16"), base), filled(Index(cells), base)
    budgets = [(len(base) * share // 1000, rerank) for share, rerank in ((38, 40), (75, 60))]
    by_lists = [ours(f"lists, {c} candidates, {r} reranked", lists, candidates=c, rerank=r) for c, r in budgets]
    yield "inverted lists", base, [*by_lists, ours("lists, codes only", codes), *faiss_lists(base)]
    few = base[:SMALL]
    for title, items in (("few items, exhaustive", few), ("all items, exhaustive", base)):
        every = {"candidates": len(items)}
        found = [ours(f"vectors, {name}", filled(Index(linear, vectors=name), items), **every) for name in FORMATS]
        found.append(ours("codes", filled(Index(linear), items), **every))
        yield title, items, [*found, ("NumPy", partial(by_numpy, items), None)]


FORMATS: tuple[Any, ...] = ("float32", "float16", "int8")


def filled(index: Index, items: Floats) -> Index:
    """Return an index with these items in one segment."""
    index.add(items)
    index.compact()
    index.wait()
    return index


def ours(name: str, index: Index, **settings: Any) -> Row:
    """Return a search of an index."""
    return f"Nestcode, {name}", lambda query: index.search(query, K, **settings).ids, index


def find_nothing(*given: Any) -> bool:
    """Stand in for `RowSearcher.search`: write the numbers of compared items."""
    given[6].fill(0)
    return True


@contextmanager
def idle_core() -> Iterator[None]:
    """Let searches call a core that finds nothing."""
    with (
        patch.object(_core.RowSearcher, "search", find_nothing),
        patch.object(_core, "scan", lambda *_: True),
    ):
        yield


def without_core(search: Search, queries: Floats) -> None:
    """Search for each query by its own call, without the core."""
    with idle_core():
        one_by_one(search, queries)


def symphony(base: Floats, options: argparse.Namespace) -> list[Row]:
    """Return SymphonyQG's searches."""
    try:
        import rabitqlib
    except ImportError:
        print("rabitqlib is not installed: pip install rabitqlib adds SymphonyQG")
        return []
    index = rabitqlib.SymqgIndex(base.shape[1], 32, "ip")
    index.build(base, 200, options.threads)

    def search(ef: int, query: Floats) -> Ids:
        found: NDArray[np.uint32] = index.search(query[None], K, ef, 1)[0][0]
        return found.astype(np.int64)

    return [(f"SymphonyQG, ef {ef}", partial(search, ef), None) for ef in (30, 40, 50)]


def faiss_lists(base: Floats) -> list[Row]:
    """Return FAISS's searches by inverted lists."""
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: pip install faiss-cpu adds its inverted lists")
        return []
    faiss.omp_set_num_threads(1)
    lists = 1 << max(4, len(base).bit_length() - 8)
    kind = f"IVF{lists},PQ{base.shape[1] // 4}x4fsr,RFlat"
    index: Any = faiss.index_factory(base.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    index.train(base)
    index.add(base)

    def search(probed: int, factor: int, query: Floats) -> Ids:
        index.k_factor, faiss.extract_index_ivf(index.base_index).nprobe = factor, probed
        found: Ids = index.search(query[None], K)[1][0]
        return found

    settings = ((max(lists // 32, 1), 4), (max(lists // 16, 1), 6))
    return [
        (f"FAISS {kind}, {probed} probes, k_factor {factor}", partial(search, probed, factor), None)
        for probed, factor in settings
    ]


def by_numpy(items: Floats, query: Floats) -> Ids:
    """Return the items of largest inner product."""
    return np.argpartition(-(items @ query), K)[:K]


def one_by_one(search: Search, queries: Floats) -> None:
    """Search for each query by its own call."""
    for query in queries:
        search(query)


if __name__ == "__main__":
    main()
