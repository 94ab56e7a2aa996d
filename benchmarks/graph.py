"""`Index(graph=True)` beside SymphonyQG (PyPI's rabitqlib), one thread: recall, QPS, latency, memory, build.

Items are rows of a .npy file (--vectors); its last rows are the queries, which are not among the items. Without a file,
items are clustered random vectors. Times are CPU seconds of interleaved rounds; builds use all cores, in seconds.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import save, seconds_each, show
from nestcode import Index, LinearCoder, metrics
from nestcode.arrays import CORES, PIECE, Floats, Ids
from nestcode.search.vectors import VectorType

Search = Callable[[Floats, int], NDArray[np.integer[Any]]]  # queries and ef to (queries, 10)
K = 10
TARGETS = (0.90, 0.95)
SLACK = 0.01  # of recall, which walks without vectors may lose to a full scan


def main() -> None:
    """Measure, print and save."""
    options = parse()
    if options.growth:
        rows = [grown(options, count) for count in options.growth]
        show("Growth with the number of items", rows, "One thread, CPU time; QPS and visited nodes at recall@10.")
        save(options.json, rows, ["nestcode", "numpy"])
        return
    base, queries = read(options, options.items)
    exact = metrics.exact_neighbors(queries, base, K)
    jobs: dict[tuple[str, int], Callable[[], NDArray[np.integer[Any]]]] = {}
    facts: dict[str, dict[str, Any]] = {}
    singles: dict[tuple[str, int], Callable[[], None]] = {}
    for name, seconds, nbytes, find in methods(base, options):
        facts[name] = {"build s": seconds, "bytes an item": nbytes / len(base)}
        for ef in options.ef:
            jobs[name, ef] = partial(find, queries, ef)
            singles[name, ef] = partial(one_by_one, find, queries, ef)
    labels = {f"{name} ef {ef}": (name, ef) for name, ef in jobs}
    rounds = 1 if options.quick else options.rounds
    batched = seconds_each({label: jobs[key] for label, key in labels.items()}, rounds, time.process_time)
    single = seconds_each(
        {label: singles[key] for label, key in labels.items()}, max(rounds // 2, 1), time.process_time
    )
    rows = [
        {
            "method": name,
            "ef": ef,
            "recall@10": metrics.recall(jobs[name, ef]().astype(np.int64), exact),
            "QPS": len(queries) / batched[label],
            "us, one query": 1e6 * single[label] / len(queries),
            **facts[name],
        }
        for label, (name, ef) in labels.items()
    ]
    show(f"{len(base):,} x {base.shape[1]}, {len(queries):,} queries", rows, "One thread; best of interleaved rounds.")
    by_codes = [row for width in options.codes for row in codes_only(base, queries, exact, width, options)]
    if by_codes:
        show(
            "Without vectors",
            by_codes,
            "One thread; a full scan's QPS are those of 100 queries. The last row is interpolated.",
        )
    save(options.json, rows + by_codes, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of vectors, L2-normalized here")
    parser.add_argument(
        "--items", type=int, metavar="N", help="the first N of them; where there are fewer, perturbed copies follow"
    )
    parser.add_argument("--queries", type=int, default=1000, metavar="N")
    parser.add_argument("--bits", type=int, nargs="+", default=[320], help="widths of the codes that navigate")
    parser.add_argument(
        "--codes", type=int, nargs="*", default=[], metavar="BITS", help="widths of indexes without vectors"
    )
    parser.add_argument(
        "--rerank", type=int, nargs="+", metavar="N", help="rank so many of a pool by whole codes (default: all of it)"
    )
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[], metavar="N", help="instead: our graph among so many items each"
    )
    parser.add_argument("--alone", action="store_true", help="without SymphonyQG")
    parser.add_argument("--ef", type=int, nargs="+", default=[15, 20, 30, 40, 60, 80, 120, 200])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of batches; half as many of single queries")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.items, options.queries, options.ef = 2000, 20, [20]
        options.growth = [500 for _ in options.growth]
    return options


def read(options: argparse.Namespace, items: int | None) -> tuple[Floats, Floats]:
    """Return as many items, all by default, and queries, L2-normalized."""
    if options.vectors is None:
        rng, count = np.random.default_rng(0), items or 50_000
        centers = rng.standard_normal((count // 50, 64))
        rows = centers[rng.integers(0, len(centers), count + options.queries)] + rng.standard_normal((1, 64))
        rows = rows + rng.standard_normal(rows.shape)
    else:
        rows = np.load(options.vectors, mmap_mode="r")
        rows = rows[np.random.default_rng(0).permutation(len(rows))]
    rows = normalize(rows.astype(np.float32))
    base, queries = rows[: -options.queries], np.ascontiguousarray(rows[-options.queries :])
    count = items or len(base)
    if count > len(base):
        base = np.concatenate([base, perturbed(base, count - len(base))])
    return np.ascontiguousarray(base[:count]), queries


def normalize(rows: Floats) -> Floats:
    """Return rows of length 1, in place."""
    for first in range(0, len(rows), PIECE):
        rows[first : first + PIECE] /= np.linalg.norm(rows[first : first + PIECE], axis=1, keepdims=True)
    return rows


def perturbed(rows: Floats, count: int) -> Floats:
    """Return copies of unit vectors with noise, whose cosine with them is about 0.9."""
    rng, features = np.random.default_rng(1), rows.shape[1]
    copies = np.empty((count, features), dtype=np.float32)
    for first in range(0, count, PIECE):
        some = copies[first : first + PIECE]
        rng.standard_normal(out=some, dtype=np.float32)
        some *= 0.48 / np.sqrt(features)
        some += rows[np.arange(first, first + len(some)) % len(rows)]
    return normalize(copies)


def methods(base: Floats, options: argparse.Namespace) -> Iterator[tuple[str, float, float, Search]]:
    """Yield name, build seconds, bytes and search of each method."""
    if not options.alone:
        yield from symphony(base)
    for bits in options.bits:
        start = time.perf_counter()
        index = build(base, bits, "float16")
        seconds = time.perf_counter() - start
        yield f"nestcode, {bits} bits", seconds, index.nbytes, partial(search, index)


def symphony(base: Floats) -> Iterator[tuple[str, float, float, Search]]:
    """Yield the peer, where it is installed."""
    try:
        import rabitqlib
    except ImportError:
        print("rabitqlib is not installed: pip install rabitqlib adds SymphonyQG")
    else:
        start = time.perf_counter()
        peer = rabitqlib.SymqgIndex(base.shape[1], 32, "l2")
        peer.build(base, 200, CORES)
        seconds = time.perf_counter() - start
        with tempfile.TemporaryDirectory() as folder:
            peer.save(f"{folder}/index")
            size = Path(folder, "index").stat().st_size
        yield "SymphonyQG", seconds, size, lambda queries, ef: np.asarray(peer.search(queries, K, ef)[0])


def build(base: Floats, bits: int, vectors: VectorType | None) -> Index:
    """Return an index with a graph of all items, ready to be searched."""
    index = Index(LinearCoder(bits, metric="cosine").fit(base), vectors=vectors, graph=True)
    index.add(base)
    index.compact()
    index.search(base[:1], K)
    return index


def search(index: Index, queries: Floats, ef: int) -> Ids:
    """Return the ids that an index finds; a single query is passed as one vector."""
    return index.search(queries if len(queries) > 1 else queries[0], K, candidates=ef).ids


def grown(options: argparse.Namespace, count: int) -> dict[str, Any]:
    """Return what a graph of so many items costs, at the recalls between which the efforts lie."""
    base, queries = read(options, count)
    exact = metrics.exact_neighbors(queries, base, K)
    start = time.process_time()
    index = build(base, options.bits[0], "float16")
    row: dict[str, Any] = {"items": count, "build, CPU us an item": 1e6 * (time.process_time() - start) / count}
    searches = {str(ef): partial(index.search, queries, K, candidates=ef) for ef in options.ef}
    spent = seconds_each(searches, 3, time.process_time)
    hits = [search() for search in searches.values()]
    recalls = [metrics.recall(found.ids, exact) for found in hits]
    for target in TARGETS:
        reached = recalls[0] <= target <= recalls[-1]
        us = np.interp(target, recalls, [1e6 * spent[ef] / len(queries) for ef in searches])
        visited = np.interp(target, recalls, [np.mean(found.compared) for found in hits])
        row |= {f"QPS {target:.2f}": round(1e6 / us) if reached else "–"}
        row |= {f"visited {target:.2f}": f"{visited:.1f}" if reached else "–"}
    return row


def codes_only(
    base: Floats, queries: Floats, exact: Ids, width: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the rows of an index without vectors: walks, whose pools are ranked by whole codes, and a full scan."""
    start = time.perf_counter()
    index = build(base, width, None)
    seconds = time.perf_counter() - start
    walks, points = [(ef, n) for ef in options.ef for n in options.rerank or [ef] if n <= ef], []
    searches = {(ef, n): partial(index.search, queries, k=K, candidates=ef, rerank=n) for ef, n in walks}
    names = {f"{ef} {n}": search for (ef, n), search in searches.items()}
    spent = seconds_each(names, 1 if options.quick else options.rounds, time.process_time)
    parts = index.nbytes_by_part()
    facts = {
        "build s": seconds,
        "bytes of codes": parts["codes"] / len(base),
        "bytes of the graph": (parts.get("neighbors", 0) + parts["prepared"]) / len(base),
    }
    for (ef, n), search in searches.items():
        points.append((metrics.recall(search().ids, exact), len(queries) / spent[f"{ef} {n}"]))
        yield {"bits": width, "ef": ef, "rerank": n, "recall@10": points[-1][0], "QPS": points[-1][1], **facts}
    scan = partial(index.search, k=K, candidates=len(base), rerank=len(base))
    most = metrics.recall(scan(queries, threads=None).ids, exact)
    some = queries[:100]  # full scans take long
    qps = len(some) / seconds_each({"": partial(scan, some)}, 1, time.process_time)[""]
    yield {"bits": width, "ef": "full scan", "rerank": "–", "recall@10": most, "QPS": qps, **facts}
    recalls, rates = np.array(sorted(points)).T
    reached = recalls[0] <= most - SLACK <= recalls[-1]
    within = float(np.interp(most - SLACK, recalls, rates)) if reached else "–"
    name = f"full scan - {SLACK}"
    yield {"bits": width, "ef": name, "rerank": "–", "recall@10": most - SLACK, "QPS": within, **facts}


def one_by_one(search: Search, queries: Floats, ef: int) -> None:
    """Search for each query by its own call."""
    for i in range(len(queries)):
        search(queries[i : i + 1], ef)


if __name__ == "__main__":
    main()
