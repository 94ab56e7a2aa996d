"""`Index(graph=True)` beside SymphonyQG (PyPI's rabitqlib), one thread: recall, QPS, latency, memory, build.

Items are rows of a .npy file (--vectors); its last rows are the queries, which are not among the items. Rows of other
files may be queries too (--query-vectors). Without a file, items are clustered random vectors. Times are CPU seconds of
interleaved rounds; builds use all cores, in seconds. Memory is that of the saved files, and what a process gains by
loading them and searching for all queries.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from _graph_methods import Method, Search, build, methods
from _report import save, seconds_each, show
from nestcode import metrics
from nestcode.arrays import PIECE, Floats, Ids
from nestcode.search.graph import BITS

K = 10
TARGETS = (0.90, 0.95)  # of the growth
RECALLS = (0.90, 0.95, 0.975, 0.99)  # at which methods are compared
SLACK = 0.01  # of recall, which walks without vectors may lose to a full scan


def main() -> None:
    """Measure, print and save."""
    options = parse()
    if options.growth:
        growth = [grown(options, count) for count in options.growth]
        show("Growth with the number of items", growth, "One thread, CPU time; QPS and visited nodes at recall@10.")
        save(options.json, growth, ["nestcode", "numpy"])
        return
    base, queries = read(options, options.items)
    built = list(methods(base, queries, options.bits, options.vector_types, alone=options.alone))
    rows: list[dict[str, Any]] = []
    others = {path.stem: normalize(np.load(path).astype(np.float32)) for path in options.query_vectors}
    for (name, own), k in product({"its own": queries, **others}.items(), options.k):
        points = measure(built, base, own, k, options)
        title = f"{len(base):,} x {base.shape[1]}, {len(own):,} queries: {name}"
        show(title, points, "One thread; best of interleaved rounds.")
        compared = compare(built, points, k)
        title = f"At equal recall@{k}, queries: {name}"
        show(title, compared, "Interpolated between efforts. Ratios: ours over the better SymphonyQG.")
        rows += [{"queries": name, **row} for row in points + compared]
    exact = metrics.exact_neighbors(queries, base, K) if options.codes else np.empty((0, 0), np.int64)
    by_codes = [row for width in options.codes for row in codes_only(base, queries, exact, width, options)]
    if by_codes:
        show(
            "Without vectors",
            by_codes,
            "One thread; a full scan's QPS are those of 100 queries. The last row is interpolated.",
        )
    save(options.json, rows + by_codes, ["nestcode", "numpy", "rabitqlib"])


def measure(
    built: list[Method], base: Floats, queries: Floats, k: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row for each method and effort."""
    exact = metrics.exact_neighbors(queries, base, k)
    efforts = [ef for ef in options.ef if ef >= k] or [k]
    keys = {f"{method.name} ef {ef}": (method, ef) for method in built for ef in efforts}
    batches = {label: partial(method.search, queries, k, ef) for label, (method, ef) in keys.items()}
    singles = {label: partial(one_by_one, method.search, queries, k, ef) for label, (method, ef) in keys.items()}
    rounds = 1 if options.quick else options.rounds
    batched = seconds_each(batches, rounds, time.process_time)
    single = seconds_each(singles, max(rounds // 2, 1), time.process_time)
    return [
        {
            "method": method.name,
            "ef": ef,
            f"recall@{k}": metrics.recall(batches[label](), exact),
            "QPS": len(queries) / batched[label],
            "us, one query": 1e6 * single[label] / len(queries),
            "build s": method.build_s,
            "bytes of files": method.saved_bytes / len(base),
            "resident bytes": method.resident_bytes / len(base),
        }
        for label, (method, ef) in keys.items()
    ]


def compare(built: list[Method], points: list[dict[str, Any]], k: int) -> list[dict[str, Any]]:
    """Return a row for each method: QPS and microseconds of one query at equal recall, and ratios to the best peer."""
    qps = {method.name: at_recalls(points, method.name, k, "QPS") for method in built}
    us = {method.name: at_recalls(points, method.name, k, "us, one query") for method in built}
    peers = [method.name for method in built if not method.ours]
    best = np.max([qps[name] for name in peers], axis=0, initial=0) if peers else np.full(len(RECALLS), np.nan)
    least = np.min([us[name] for name in peers], axis=0) if peers else np.full(len(RECALLS), np.nan)
    rows = []
    for method in built:
        row: dict[str, Any] = {"method": method.name}
        for i, recall in enumerate(RECALLS):
            row[f"QPS {recall}"] = round(qps[method.name][i]) if qps[method.name][i] else "–"
            row[f"us {recall}"] = f"{us[method.name][i]:.1f}" if np.isfinite(us[method.name][i]) else "–"
            if peers:
                shown = method.ours and qps[method.name][i] and best[i]
                row[f"ratios {recall}"] = (
                    f"{qps[method.name][i] / best[i]:.2f}, {us[method.name][i] / least[i]:.2f}" if shown else "–"
                )
        rows.append(row)
    return rows


def at_recalls(points: list[dict[str, Any]], name: str, k: int, column: str) -> Floats:
    """Return a column at each of RECALLS, interpolated; where one is not reached, the worst value there is."""
    mine = sorted((row[f"recall@{k}"], row[column]) for row in points if row["method"] == name)
    recalls, values = np.maximum.accumulate([one for one, _ in mine]), [value for _, value in mine]
    never = 0.0 if column == "QPS" else np.inf
    reached = [recalls[0] <= recall <= recalls[-1] for recall in RECALLS]
    found = [np.interp(recall, recalls, values) if ok else never for recall, ok in zip(RECALLS, reached, strict=True)]
    return np.array(found)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of vectors, L2-normalized here")
    parser.add_argument(
        "--items", type=int, metavar="N", help="the first N of them; where there are fewer, perturbed copies follow"
    )
    parser.add_argument("--queries", type=int, default=1000, metavar="N")
    parser.add_argument(
        "--query-vectors", type=Path, nargs="+", default=[], metavar="FILE", help=".npy files of other queries"
    )
    parser.add_argument("--k", type=int, nargs="+", default=[10], metavar="N", help="nearest items: 10 100")
    parser.add_argument("--bits", type=int, nargs="+", default=[BITS], help="widths of the codes that navigate")
    parser.add_argument(
        "--vector-types", nargs="+", default=["float16", "int8"], choices=["float32", "float16", "int8"]
    )
    parser.add_argument(
        "--codes", type=int, nargs="*", default=[], metavar="BITS", help="widths of indexes without vectors"
    )
    parser.add_argument(
        "--rerank", type=int, nargs="+", metavar="N", help="rank N of a pool by whole codes (default: all of it)"
    )
    parser.add_argument(
        "--growth", type=int, nargs="*", default=[], metavar="N", help="instead: our graph among N items, for each N"
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


def one_by_one(search: Search, queries: Floats, k: int, ef: int) -> None:
    """Search for each query by its own call."""
    for i in range(len(queries)):
        search(queries[i : i + 1], k, ef)


if __name__ == "__main__":
    main()
