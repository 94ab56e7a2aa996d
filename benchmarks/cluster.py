"""What a query to a cluster costs beside one index, and which share of the parts it needs.

Items are rows of a .npy file (--vectors) and, where more are wanted, rows of it with noise; its last rows are the
queries. Without a file, items are clustered random vectors. Ray runs here, or at $RAY_ADDRESS, with an actor for each
part.

Fan-out: a request that asks every part for nothing, the same by calls of Ray's actors without Nestcode, and searches of
one query and of 64, by one index of all parts in this process and by the cluster. CPU is that of this process and of
the actors, Ray's share included, but not that of Ray's daemons; the wall-clock times need a machine that does little
else, and as many cores as parts.

Routing: parts are ranges of codes. The client would rank parts by the nearest of their inverted lists' centroids, and
ask only the first of them. The share of parts is that which has 95 % of the true 10 nearest, on average; the least is
that of a client that knows where they are.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray

from _report import save, show
from graph import read
from nestcode import CellCoder, Index, LinearCoder, metrics
from nestcode.arrays import Floats, Ids
from nestcode.coders import Coder
from nestcode.scale import encode_shard, merge_shards
from nestcode.scale.ray import SearchCluster
from nestcode.search.inverted_lists import default_list_bits

K, WIDTH, BATCH, TARGET = 10, 256, 64, 0.95


def main() -> None:
    """Measure, print and save."""
    options = parse()
    base, queries = read(options, options.items)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        coders = LinearCoder(WIDTH, metric="cosine").fit(base), CellCoder(WIDTH, metric="cosine").fit(base)
        kinds = {type(coder).__name__: build(coder, base, Path(folder), options.parts) for coder in coders}
        true = metrics.exact_neighbors(queries, base, K)
        title = f"{len(base):,} x {base.shape[1]} in {options.parts} parts"
        found = [
            {"coder": name, **route(coder, parts, queries, true)}
            for coder, (name, parts) in zip(coders, kinds.items(), strict=True)
        ]
        show(f"Routing: {title}", found, f"Shares of the parts that have {TARGET:.0%} of the true {K} nearest.")
        rows += [{"table": "routing", **row} for row in found]
        found = fan_out(next(iter(kinds.values())), queries, true, options.rounds)
        show(f"Fan-out: {title}", found, "us a query: wall-clock times, and mean CPU times.")
        rows += [{"table": "fan-out", **row} for row in found]
    save(options.json, rows, ["nestcode", "numpy", "ray"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="FILE", help="a .npy file of vectors, L2-normalized here")
    parser.add_argument("--items", type=int, default=200_000, metavar="N")
    parser.add_argument("--queries", type=int, default=300, metavar="N")
    parser.add_argument("--parts", type=int, default=16, metavar="N")
    parser.add_argument("--rounds", type=int, default=300, metavar="N", help="requests of each kind")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.quick:
        options.items, options.queries, options.parts, options.rounds = 4000, 70, 2, 5
    return options


def build(coder: Coder, base: Floats, folder: Path, parts: int) -> list[Path]:
    """Return the parts of an index."""
    name = type(coder).__name__
    shard = encode_shard(base, range(len(base)), folder / f"{name}-shard", coder)
    return merge_shards(shard, folder / name, parts)


# Routing


def route(coder: Coder, parts: list[Path], queries: Floats, true: Ids) -> dict[str, float]:
    """Return the shares of the parts that queries need, and the recall if they ask one."""
    indexes = [Index.open(part) for part in parts]
    bits = default_list_bits(sum(map(len, indexes)), WIDTH)
    near, held = [], []
    for index in indexes:
        codes = index.codes(index.ids).prefix(bits)
        lists = coder.decode(codes[np.unique(codes.packed, axis=0, return_index=True)[1]])
        lists /= np.linalg.norm(lists, axis=1, keepdims=True)
        near.append((queries @ lists.T).max(axis=1))
        held.append(index.contains(true.ravel()).reshape(true.shape).mean(axis=1))
    similarity, recall = np.stack(near, axis=1), np.stack(held, axis=1)
    routed = np.take_along_axis(recall, np.argsort(-similarity, axis=1), axis=1).cumsum(axis=1).mean(axis=0)
    best = (-np.sort(-recall, axis=1)).cumsum(axis=1).mean(axis=0)
    return {
        "share, routed": float(np.argmax(routed >= TARGET) + 1) / len(parts),
        "share, any router": float(np.argmax(best >= TARGET) + 1) / len(parts),
        "recall of 1 part": float(routed[0]),
        "of 2": float(routed[min(1, len(parts) - 1)]),
        "of a quarter": float(routed[max(len(parts) // 4, 1) - 1]),
        "of half": float(routed[max(len(parts) // 2, 1) - 1]),
    }


# Fan-out


def fan_out(parts: list[Path], queries: Floats, true: Ids, rounds: int) -> list[dict[str, Any]]:
    """Return the cost of requests to one index, and to clusters of some of the parts and of all."""
    ray.init(os.environ.get("RAY_ADDRESS", "local"), logging_level="error", log_to_driver=False)
    rows = [{"index": "one Index", **row} for row in costs(Index.open(parts), [], queries, true, rounds)]
    for count in sorted({1, max(len(parts) // 4, 1), len(parts)}):
        with SearchCluster(parts[:count], replicas=1, num_cpus=0) as cluster:
            actors = [own[0] for own in cluster.actors()]
            name = f"cluster, {count} parts"
            own = costs(cluster, actors, queries, true if count == len(parts) else None, rounds)
            rows += [{"index": name, **row} for row in own]
    ray.shutdown()
    return rows


def costs(at: Any, actors: list[Any], queries: Floats, true: Ids | None, rounds: int) -> list[dict[str, Any]]:
    """Return the cost of requests to an index, or to a cluster that has these actors."""
    processes: list[int] = ray.get([actor.ready.remote() for actor in actors])
    items, nothing = len(at), np.empty(0, dtype=np.int64)
    budget = max(items // 50, K) // max(len(processes), 1)  # 2 % of the items, wherever they are
    requests: dict[str, tuple[int, Callable[[int], Any]]] = {
        "nothing": (1, lambda _: at.contains(nothing)),
        "1 query, 2 %": (1, lambda i: at.search(queries[i % len(queries)], K, candidates=budget)),
        "1 query, all": (1, lambda i: at.search(queries[i % len(queries)], K, candidates=items)),
        f"{BATCH} queries, 2 %": (BATCH, lambda _: at.search(queries[:BATCH], K, candidates=budget)),
    }
    if actors:
        requests["nothing, by Ray alone"] = 1, lambda _: ray.get([actor.ready.remote() for actor in actors])
    rows = []
    for name, (each, ask) in requests.items():
        for warm in range(5):
            ask(warm)
        count = max(rounds // each, 5)
        before, seconds = used(processes), []
        for number in range(count):
            start = time.perf_counter()
            ask(number)
            seconds.append(time.perf_counter() - start)
        here, there = ((after - first) / count / each for after, first in zip(used(processes), before, strict=True))
        recall = "–"
        if "2 %" in name and true is not None:
            recall = f"{metrics.recall(at.search(queries, K, candidates=budget).ids, true):.3f}"
        least, median = (1e6 * float(np.quantile(seconds, share)) / each for share in (0, 0.5))
        cpu = {"CPU here": 1e6 * here, "CPU of parts": 1e6 * there}
        rows.append({"request": name, "wall, least": least, "median": median, **cpu, "recall@10": recall})
    return rows


def used(processes: list[int]) -> tuple[float, float]:
    """Return the CPU seconds of this process, and of others."""
    threads = [task for process in processes for task in Path(f"/proc/{process}/task").glob("*/schedstat")]
    return time.process_time(), sum(int(task.read_text().split()[0]) for task in threads) / 1e9


if __name__ == "__main__":
    main()
