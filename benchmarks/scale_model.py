"""What an index of any size takes: predicted from constants that a small one measures, and checked by building it.

Bytes, memory and time of a build in shards (`nestcode.scale`), of opening it mapped and of single queries come from
indexes of 1.25 and 5 million items. `--build N` predicts an index of N items, prints the prediction, builds the
index in the folder (going on where it was interrupted) and prints both side by side. Last comes the plan for 1 and
100 billion items: machines, memory, cost, throughput and latency.

Times are processor seconds, one query at a time on one core. Items are mixtures of real rows (`_scale_build.py`).
The machines of the plan are assumptions, not measured: set them with --cores, --memory, --bandwidth, --price and
--round-trip. A machine has a part for each core, so that a query takes as long as its slowest part and the network.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.optimize import nnls

from _report import images, save, show
from _scale_build import Build, Figures, make_items, measured, memory_of_all, read_rows, timed
from nestcode import Index, LinearCoder
from nestcode.scale.shards import SAMPLE
from nestcode.search.inverted_lists import default_list_bits
from nestcode.search.planner import default_candidates

SMALL, SHARD, PART, WIDTH = 5_000_000, 500_000, 5_000_000, 256
TINY = 4  # times fewer items of another, whose lists are shorter
SHARES = (0.002, 0.005, 0.02)  # of the items that searches score
GRAPH = 50_000  # items of the larger graph that is measured; another has a quarter of them
USABLE = 0.8  # share of a machine's memory
HOURS = 730  # of a month
TURNS = 3  # in which searches are timed, as the speed of a machine varies
Z99 = 2.326  # standard deviations from the median to the 99th percentile of a normal distribution
Constants = dict[str, float]


def fit_cost(name: str, seconds: Sequence[float], **terms: Sequence[float]) -> Constants:
    """Return the constants of a cost, `start + constant * term + ...`: not negative, of least squared relative errors.

    >>> fit_cost("query", [3, 5, 4], list=[1, 2, 1], candidate=[0, 0, 4])
    {'query': 1.0, 'query, by list': 2.0, 'query, by candidate': 0.25}
    """
    measured = np.stack([np.ones(len(seconds)), *map(np.asarray, terms.values())], axis=1)
    found = nnls(measured / np.asarray(seconds)[:, None], np.ones(len(seconds)))[0]
    names = [name, *(f"{name}, by {term}" for term in terms)]
    return {one: round(float(value), 15) for one, value in zip(names, found, strict=True)}


def cost(constants: Constants, name: str, **terms: float) -> float:
    """Return what something takes.

    >>> cost({"query": 1, "query, by list": 2}, "query", list=3)
    7
    """
    return constants[name] + sum(constants[f"{name}, by {term}"] * count for term, count in terms.items())


def main() -> None:
    """Measure, predict, build, print and save."""
    options = parse()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        path = write_rows(options, Path(scratch) / "rows.npy")
        folder = options.folder or Path(scratch)
        small = Build(path, folder / "small", options.small, options.shard, options.small // 2, options.width)
        tiny = replace(small, folder=folder / "tiny", count=small.count // TINY)
        constants = measure_build(small) | measure_queries([tiny, small], options.turns)
        show("Constants", [{"constant": name, "value": value} for name, value in constants.items()], "seconds, bytes")
        rows: list[dict[str, Any]] = []
        for count in options.build:
            predicted = predict(constants, count, options)
            show(
                f"Predicted: {count:,} items", [{"": name, "predicted": value} for name, value in predicted.items()], ""
            )
            large = replace(small, folder=folder / f"{count}", count=count, part=options.part, workers=options.workers)
            rows += compare(large, predicted, options.turns)
        if rows:
            show("Predicted and measured", rows, "GB and seconds of processor time; queries: ms, k = 10, codes alone")
        planned = plan(options, constants | measure_graphs(small, options.graph))
        show("Plan", planned, f"a month has {HOURS} h; latency without queueing, throughput at full load")
        save(options.json, [*rows, *planned], ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of real rows (image patches)")
    parser.add_argument("--features", type=int, default=128, help="leading principal components of the rows (128)")
    parser.add_argument("--workers", type=int, default=1, help="processes that build at a time (1)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to build, and to go on (a temporary folder)")
    parser.add_argument("--build", type=int, nargs="+", default=[], metavar="N", help="items to build an index of")
    parser.add_argument("--cores", type=int, default=64, help="of a machine of the plan (64)")
    parser.add_argument("--memory", type=float, default=512, metavar="GB", help="of such a machine (512)")
    parser.add_argument("--bandwidth", type=float, default=200, metavar="GB/S", help="of its memory (200)")
    parser.add_argument("--price", type=float, default=4, metavar="USD", help="an hour of it (4)")
    parser.add_argument("--round-trip", type=float, nargs=2, default=[1, 2], metavar="MS", help="p50, p99 (1, 2)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    options.small, options.shard, options.part, options.width, options.graph = SMALL, SHARD, PART, WIDTH, GRAPH
    if options.quick:
        options.small, options.shard, options.part, options.width, options.graph = 2000, 1000, 2000, 64, 1000
        options.build = options.build or [4000]
    options.turns = 1 if options.quick else TURNS
    options.data = None
    return options


def write_rows(options: argparse.Namespace, path: Path) -> Path:
    """Write the real rows to a file: their leading principal components, without centering, which keeps angles."""
    rows = images(options)[1] if options.vectors is None else np.load(options.vectors)
    rows = rows.astype(np.float32) - (rows.mean() if options.vectors is None else 0)
    components = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, : options.features]
    np.save(path, rows @ components)
    return path


def default_budget(count: float) -> int:
    """Return the candidates of a search that names none."""
    return default_candidates(round(count))


def budgets_of(count: int) -> list[int]:
    """Return the candidate budgets of searches that are predicted: the default, and a tenth of it."""
    return [default_budget(count), default_budget(count) // 10]


def measure_build(build: Build) -> Constants:
    """Return what an item takes in lists."""
    build.run()
    merged = build.figures("merge", "items")
    scanned = Index.open(build.parts).nbytes_by_part()
    return {
        "bytes an item": sum(scanned.values()) / build.count,
        "bytes scanned a candidate": sum(scanned[name] for name in ("blocks", "biases", "norms")) / build.count,
        "encode, an item": sum(build.figures("encode", "CPU")) / build.count,
        "encode, peak bytes": max(build.figures("encode", "peak")),
        "split, an item": build.figures("split", "CPU")[0] / build.count,
        "merge, an item": sum(build.figures("merge", "CPU")) / build.count,
        "merge, peak bytes an item": max(build.figures("merge", "peak")) / max(merged),
        "memory, bytes an item": build.step("memory", memory_of_all, build)["memory"] / build.count,
    }


def measure_queries(builds: list[Build], turns: int) -> Constants:
    """Return what a query takes by its lists and candidates, and a first one by items: from builds of two sizes."""
    for build in builds:
        build.run()
    budgets = [[math.ceil(build.count * share) for share in SHARES] for build in builds]
    found = search_in_turns(builds, budgets, turns)
    points = [(build.count, c) for build, some in zip(builds, budgets, strict=True) for c in some]
    items, candidates = zip(*points, strict=True)
    lists = [probed_lists(count, c, builds[0].width) for count, c in points]
    seconds = {name: [found[count][c][name] for count, c in points] for name in ("p50", "p99", "first")}
    return {
        **fit_cost("query p50", seconds["p50"], list=lists, candidate=candidates),
        **fit_cost("query p99", seconds["p99"], list=lists, candidate=candidates),
        **fit_cost("first query", seconds["first"], item=items, candidate=candidates),
    }


def search_in_turns(builds: list[Build], budgets: list[list[int]], turns: int) -> dict[int, dict[int, Figures]]:
    """Return the figures of searches by the items of a build and the candidates: the best of turns that alternate."""
    searches = [
        (build, c, build.search(c, turn))
        for turn in range(turns)
        for build, some in zip(builds, budgets, strict=True)
        for c in some
    ]
    best: dict[int, dict[int, Figures]] = {build.count: {} for build in builds}
    for build, c, figures in searches:
        known = best[build.count].setdefault(c, figures)
        best[build.count][c] = {name: min(known[name], value) for name, value in figures.items()}
    return best


def probed_lists(count: int, candidates: int, width: int) -> float:
    """Return how many of the inverted lists of `count` items hold so many candidates.

    Parts are ranges of codes, as lists are, so that a list lies in one part, however many there are.
    """
    return candidates / count * (1 << default_list_bits(count, width))


def measure_graphs(build: Build, most: int) -> Constants:
    """Return what an item takes in a graph, from two graphs."""
    sizes = [most // 4, most]
    graphs = [build.step(f"graph {size}", measure_graph, build.vectors, build.width, size) for size in sizes]
    logs = [math.log2(size) for size in sizes]
    return {
        "graph: bytes an item": graphs[-1]["memory"] / most,
        "graph: build, an item and log2": graphs[-1]["CPU"] / most / logs[-1],
        **fit_cost("graph: query p50", [one["p50"] for one in graphs], doubling=logs),
        **fit_cost("graph: query p99", [one["p99"] for one in graphs], doubling=logs),
    }


def measure_graph(path: Path, width: int, count: int) -> dict[str, float]:
    """Return the figures of an index with a graph, in memory."""
    base, queries = read_rows(path)
    index = Index(LinearCoder(width, metric="cosine").fit(base), graph=True)
    items = make_items(base, 0, count)

    def build() -> None:
        index.add(items)
        index.compact()
        index.wait()

    figures = measured(build)
    index.search(queries[0])
    return {"CPU": figures["CPU"], "memory": max(index.nbytes, 1), **timed(index, queries, 100)}


def predict(constants: Constants, count: int, options: argparse.Namespace) -> dict[str, float]:
    """Return what an index of `count` items takes."""
    parts = max(1, round(count / options.part))
    each = count / parts
    budgets = budgets_of(count)
    lists = [probed_lists(count, budget, options.width) for budget in budgets]
    return {
        "bytes, GB": count * constants["bytes an item"] / 1e9,
        "encode, s": count * constants["encode, an item"],
        "encode, peak GB": constants["encode, peak bytes"] / 1e9,
        "split, s": count * constants["split, an item"],
        "merge, s": count * constants["merge, an item"],
        "merge, peak GB": largest_part(each, parts) * constants["merge, peak bytes an item"] / 1e9,
        "memory, GB": count * constants["memory, bytes an item"] / 1e9,
        "first query, s": cost(constants, "first query", item=count, candidate=budgets[0]),
        **{
            f"query, {budget:,} candidates, {p} ms": 1e3 * cost(constants, f"query {p}", list=many, candidate=budget)
            for budget, many in zip(budgets, lists, strict=True)
            for p in ("p50", "p99")
        },
    }


def largest_part(each: float, parts: int) -> float:
    """Return the expected items of the largest of some parts that have `each` on average.

    Parts lie between items of a sample, SAMPLE apart, so that the standard deviation of a size is its square root.

    >>> round(largest_part(1e6, 1)), round(largest_part(1e6, 10))
    (1000000, 1042222)
    """
    return each * (1 + NormalDist().inv_cdf(parts / (parts + 1)) / math.sqrt(SAMPLE))


def compare(build: Build, predicted: dict[str, float], turns: int) -> list[dict[str, Any]]:
    """Build an index, and return rows with predicted and measured figures."""
    build.run()
    budgets = budgets_of(build.count)
    found = search_in_turns([build], [budgets], turns)[build.count]
    size = sum(file.stat().st_size for part in build.parts for file in part.iterdir())
    measures = {
        "bytes, GB": size / 1e9,
        "encode, s": sum(build.figures("encode", "CPU")),
        "encode, peak GB": max(build.figures("encode", "peak")) / 1e9,
        "split, s": build.figures("split", "CPU")[0],
        "merge, s": sum(build.figures("merge", "CPU")),
        "merge, peak GB": max(build.figures("merge", "peak")) / 1e9,
        "memory, GB": build.step("memory", memory_of_all, build)["memory"] / 1e9,
        "first query, s": found[budgets[0]]["first"],
        **{f"query, {c:,} candidates, {p} ms": 1e3 * found[c][p] for c in budgets for p in ("p50", "p99")},
    }
    rows = [
        {
            "items": f"{build.count:,}",
            "": name,
            "predicted": predicted[name],
            "measured": value,
            "error": f"{predicted[name] / value - 1:+.0%}" if value else "",
        }
        for name, value in measures.items()
    ]
    for c in budgets:
        one = found[c]
        name = f"wall ms p50 / p99, {c:,} candidates; recall@10"
        rows.append({"items": f"{build.count:,}", "": name, "predicted": "",
                     "measured": f"{1e3 * one['wall p50']:.3g} / {1e3 * one['wall p99']:.3g}; {one['recall']:.3f}",
                     "error": ""})  # fmt: skip
    return rows


def plan(options: argparse.Namespace, constants: Constants) -> list[dict[str, Any]]:
    """Return rows that say what billions of items take."""
    memory = USABLE * options.memory * 1e9
    rows = []
    for count in (10**9, 10**11):
        for name in ("lists, 2 %", "lists, 0.2 %", "graphs"):
            graph = name == "graphs"
            held = constants["graph: bytes an item"] if graph else constants["memory, bytes an item"]
            machines = math.ceil(count * held / memory)
            parts = machines * options.cores
            each = count / parts
            seconds = {}
            for p in ("p50", "p99"):
                if graph:
                    seconds[p] = cost(constants, f"graph: query {p}", doubling=math.log2(each))
                    continue
                budget = default_budget(each) // (10 if name.endswith("0.2 %") else 1)
                lists = probed_lists(round(each), budget, options.width)
                scanned = budget * options.cores * constants["bytes scanned a candidate"]
                seconds[p] = max(
                    cost(constants, f"query {p}", list=lists, candidate=budget), scanned / options.bandwidth / 1e9
                )
            sigma = math.log(seconds["p99"] / seconds["p50"]) / Z99
            slowest = [seconds["p50"] * math.exp(sigma * NormalDist().inv_cdf(q ** (1 / parts))) for q in (0.5, 0.99)]
            work = sum(constants[f"{step}, an item"] for step in ("encode", "split", "merge"))
            work += math.log2(each) * constants["graph: build, an item and log2"] if graph else 0
            rows.append(
                {
                    "items": f"{count:,}",
                    "search by": name,
                    "TB in memory": count * held / 1e12,
                    "machines": machines,
                    "USD a month": round(machines * options.price * HOURS),
                    "core hours to build": round(count * work / 3600),
                    "hours to build": each * work / 3600,
                    "p50, ms": 1e3 * slowest[0] + options.round_trip[0],
                    "p99, ms": 1e3 * slowest[1] + options.round_trip[1],
                    "queries/s": round(1 / seconds["p50"]),
                }
            )
    return rows


if __name__ == "__main__":
    main()
