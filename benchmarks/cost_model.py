"""What a query planner's cost model needs: the CPU nanoseconds of each step of a search on this machine.

Every constant is the slope of a line through CPU times of `Index.search` while one setting varies:

    scanned vector   candidates=len(index), by the number of items; single queries and a batch; all features, and few
    scanned code     the same without vectors
    estimated item   candidates, by items compared: CellCoder and LinearCoder by fast-scan, ResidualCoder by ADC
    kept candidate   the same with many and few that are reranked, by the estimates that are among the best so far
    list             cells of a CellCoder, with few candidates
    visited node     candidates of a walk (ef), by nodes visited
    reranked item    rerank, by vectors of each format and by whole codes; all features, and few
    decoded item     parameters of a PyTorch decoder, by items of a batch; where PyTorch is installed
    hit              k, at one rerank, and of scans, by the items that are among the k best when they are met
    filter           items of a mask, and ids of a filter by ids, beside the same search without a filter

Intercepts are the fixed costs of a query. Lines are fitted to relative errors; "error" is the largest of them. Items
are patches of the sample images, or rows of a .npy file (--vectors). A second table has the constants of the planner
(src/nestcode/search/planner.py) that follow from single queries; --write FILE replaces them in that file.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from _cost_lines import Line, fit_line
from _engine_task import Task, add_options, cpu_seconds, prepared, read_digits, read_patches, read_vectors
from _report import save, show
from nestcode import CellCoder, Coder, Index, LinearCoder, ResidualCoder
from nestcode.search import Hits
from nestcode.search.adc import AdcScorer
from nestcode.search.fastscan import GROUP_BITS, GROUPS
from nestcode.search.planner import RERANKED, RERANKED_AHEAD, expected_best
from nestcode.search.vectors import VectorType

ITEMS = 40_000
K = 10
BATCH = 64
SINGLE_QUERIES = 16
ROUNDS = 7
LIST_BITS, GRAPH_BITS, QUICK_BITS = 256, 320, 64  # the last of a smoke test
FEWER_FEATURES, FEWER_BITS = 8, 4  # times fewer, which separates the cost of an item from that of its values or bytes
BYTES: dict[VectorType, int] = {"float32": 4, "float16": 2, "int8": 1}  # of a value

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Single queries and a batch of one setting: microseconds of CPU time and items compared, each per query."""

    single_us: float
    batch_us: float
    compared: float


def main() -> None:
    """Measure, print and save."""
    options = parse()
    task = read(options)
    rows: list[Row] = []
    with threadpool_limits(1):
        few = narrowed(task)
        for one, own in ((task, f", {task.base.shape[1]} features"), (few, f", {few.base.shape[1]} features")):
            for part in (scans, reranks):
                rows += (row | {"cost": row["cost"] + own} for row in part(one, Clock(one, quick=options.quick)))
        for part in (estimates, kept, lists, walks, networks, hits, filters):
            rows += part(task, Clock(task, quick=options.quick))
    show(f"Cost model: {task}", rows, "CPU time, one thread. error: the largest relative error of the line.")
    features = task.base.shape[1], few.base.shape[1]
    found = constants(rows, features, Clock(task, quick=options.quick).bits)
    show("Constants of the planner", [{"constant": name, "ns": ns} for name, ns in found.items()], "Of single queries.")
    if options.write:
        options.write.write_text(with_constants(options.write.read_text(), found))
    save(options.json, rows, ["nestcode", "numpy"])


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="a .npy file of vectors")
    parser.add_argument("--metric", choices=("cosine", "l2"), default="cosine", help="of --vectors (default: cosine)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the planner's constants in this file")
    return parser.parse_args()


def constants(rows: Sequence[Row], features: tuple[int, int], bits: int) -> dict[str, float]:
    """Return the planner's constants that were measured, by name, of items with all and with few features."""
    single = {row["cost"]: row for row in rows if row["batch"] == "1"}
    each = {cost: float(row["ns"]) for cost, row in single.items()}
    widths = sorted(features)
    scanned = {name: line([each[f"scan, {name}, {width} features"] for width in widths], widths) for name in BYTES}
    reranked = line([each[f"rerank by float16, {width} features"] for width in widths], widths)
    found = {f'"{name}"': value for name, (value, _) in scanned.items()}
    found["NS_PER_SCANNED_ITEM"] = float(np.mean([item for _, item in scanned.values()]))
    together = {row["cost"]: float(row["ns"]) for row in rows if row["batch"] != "1"}
    names = [f"scan, {name}, {features[0]} features" for name in BYTES]
    found["SCANNED_TOGETHER"] = float(np.mean([together[name] / each[name] for name in names]))
    coded = each[f"scan, codes of LinearCoder, {features[0]} features"] - found["NS_PER_SCANNED_ITEM"]
    found["NS_PER_SCANNED_CODE_BYTE"] = coded * 8 / bits
    found["NS_PER_RERANKED_VALUE"], found["NS_PER_RERANKED_ITEM"] = reranked
    groups = [group_bytes(own) for own in (bits // FEWER_BITS, bits)]
    estimated = [each[f"fast-scan in lists, CellCoder, {own} bits"] for own in (bits // FEWER_BITS, bits)]
    found["NS_PER_FASTSCAN_BYTE"], found["NS_PER_FASTSCAN_ITEM"] = line(estimated, groups)
    known = {
        "NS_PER_ADC_BYTE": (f"ADC in lists, ResidualCoder, {bits} bits", 8 / min(bits, 8 * AdcScorer.BYTES)),
        "NS_PER_CANDIDATE": ("estimates among the best so far", 1),
        "NS_PER_LIST": ("ranking of lists", 1),
        "NS_PER_VISITED_NODE": ("walk on a graph, float16", 1),
        "NS_PER_SCANNED_HIT": ("scan, items among the best so far", 1),
    }
    found |= {name: each[cost] * scale for name, (cost, scale) in known.items() if cost in each}
    decoded = [row["ns"] for row in rows if row["cost"] == "decoded item"]
    found |= {"NS_PER_NETWORK_PARAMETER": decoded[0]} if decoded else {}
    fixed = {
        "NS_PER_LISTS": f"rerank by float16, {features[0]} features",
        "NS_PER_WALK": "walk on a graph, float16",
        "NS_PER_SCAN": f"scan, float32, {features[0]} features",
    }
    found |= {name: single[cost]["fixed ns per query"] for name, cost in fixed.items() if cost in single}
    return {name: float(f"{ns:.2g}") for name, ns in found.items() if ns > 0}  # noise may hide a small one


def line(costs: Sequence[float], widths: Sequence[float]) -> tuple[float, float]:
    """Return the slope and the intercept of a line through two points.

    >>> line([9.0, 13.0], [8, 16])
    (0.5, 5.0)
    """
    slope = (costs[1] - costs[0]) / (widths[1] - widths[0])
    return slope, costs[0] - slope * widths[0]


def group_bytes(bits: int) -> float:
    """Return the bytes of the 4-bit groups that fast-scan reads of a code."""
    return (min(bits, GROUPS * GROUP_BITS) + GROUP_BITS - 1) // GROUP_BITS / 2


def with_constants(text: str, found: dict[str, float]) -> str:
    """Return the text of the planner with other values of its constants.

    >>> print(with_constants("NS_PER_LIST = 2.5  # that is ranked", {"NS_PER_LIST": 3.0}))
    NS_PER_LIST = 3.0  # that is ranked
    """
    for name, ns in found.items():
        text, count = re.subn(rf"({re.escape(name)}(?: =|:)) [\d.]+", rf"\g<1> {ns}", text, count=1)
        if not count:
            raise SystemExit(f"{name} must be a constant of the file: give src/nestcode/search/planner.py")
    return text


def read(options: argparse.Namespace) -> Task:
    """Return the items and queries."""
    if options.quick:
        return read_digits()
    count = options.items or ITEMS
    return read_patches(count) if options.vectors is None else read_vectors(options.vectors, options.metric, count)


class Clock:
    """Measures searches of an index by single queries and by a batch."""

    def __init__(self, task: Task, *, quick: bool) -> None:
        self.single, self.batch = task.queries[:SINGLE_QUERIES], task.queries[:BATCH]
        self.rounds = 1 if quick else ROUNDS
        self.bits = QUICK_BITS if quick else LIST_BITS  # of codes in lists

    def __call__(self, jobs: Sequence[tuple[Index, dict[str, Any]]]) -> list[Measured]:
        """Return the figures of searches with these arguments; the rounds of all are interleaved."""
        calls: list[Callable[[], Hits]] = []
        for index, arguments in jobs:
            calls += [partial(index.search, query, **arguments) for query in self.single]
            calls.append(partial(index.search, self.batch, **arguments))
        seconds = np.reshape(cpu_seconds(calls, self.rounds), (len(jobs), -1)) * 1e6
        last = [call() for call in calls[len(self.single) :: len(self.single) + 1]]
        return [
            Measured(float(row[:-1].mean()), float(row[-1] / len(self.batch)), float(np.mean(found.compared)))
            for row, found in zip(seconds, last, strict=True)
        ]


def narrowed(task: Task) -> Task:
    """Return the task of the leading features only."""
    few = max(task.base.shape[1] // FEWER_FEATURES, 1)
    base, queries = (prepared(rows[:, :few], task.metric) for rows in (task.base, task.queries))
    return replace(task, base=base, queries=queries)


def filled(task: Task, coder: Coder, count: int, vectors: VectorType | None = None, *, graph: bool = False) -> Index:
    """Return an index of the first items in one segment."""
    index = Index(coder, vectors=vectors, graph=graph)
    index.add(task.base[:count])
    index.compact()
    index.wait()
    return index


def steps(first: int, last: int, count: int = 6) -> list[int]:
    """Return numbers in geometric progression, without repetitions.

    >>> steps(10, 1000, 3)
    [10, 100, 1000]
    """
    return sorted({round(value) for value in np.geomspace(max(first, 1), max(last, 1), count)})


def both(name: str, unit: str, xs: Sequence[float], found: Sequence[Measured], per: float = 1) -> Iterator[Row]:
    """Yield the lines of single queries and of the batch; the slope is divided by `per`, such as bytes of an item.

    Nothing is fitted where nothing varies, as in an index too small for a graph.
    """
    if min(xs) == max(xs):
        return
    times = {"1": [one.single_us for one in found], str(BATCH): [one.batch_us for one in found]}
    for batch, us in times.items():
        yield row(name, unit, batch, fit_line(xs, us), per)


def row(name: str, unit: str, batch: str, line: Line, per: float = 1) -> Row:
    """Return a constant with its unit."""
    return {
        "cost": name,
        "batch": batch,
        "ns": 1e3 * line.slope / per,
        "per": unit,
        "fixed ns per query": 1e3 * line.intercept,
        "error": f"{line.error:.1%}",
        "from": f"{line.first:,.0f}",
        "to": f"{line.last:,.0f}",
    }


def scans(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of scanning vectors of each format, and codes."""
    sizes = steps(len(task.base) // 32, len(task.base))
    coder = LinearCoder(clock.bits, metric=task.metric).fit(task.base)
    for vectors in BYTES:
        found = clock([(filled(task, coder, size, vectors), {"k": K, "candidates": size}) for size in sizes])
        yield from both(f"scan, {vectors}", "item", sizes, found)
    for one in (coder, CellCoder(clock.bits, metric=task.metric).fit(task.base)):
        found = clock([(filled(task, one, size), {"k": K, "candidates": size}) for size in sizes])
        yield from both(f"scan, codes of {type(one).__name__}", "item", sizes, found)


def estimates(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of an item that is estimated in inverted lists."""
    fewer = clock.bits // FEWER_BITS
    for kind, how, bits in (
        (CellCoder, "fast-scan", clock.bits),
        (CellCoder, "fast-scan", fewer),
        (LinearCoder, "fast-scan", clock.bits),
        (ResidualCoder, "ADC", clock.bits),
    ):
        index = filled(task, kind(bits, metric=task.metric).fit(task.base), len(task.base), "float16")
        budgets = steps(len(index) // 80, len(index) // 2)
        found = clock([(index, {"k": K, "candidates": budget, "rerank": RERANKED}) for budget in budgets])
        yield from both(f"{how} in lists, {kind.__name__}, {bits} bits", "estimated item", compared(found), found)


def kept(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of an estimate that is among the best so far: of more that are kept, less those of fewer."""
    index = filled(task, LinearCoder(clock.bits, metric=task.metric).fit(task.base), len(task.base), "float16")
    many, budgets = RERANKED_AHEAD * RERANKED, steps(len(index) // 20, len(index) // 2)
    found = [clock([(index, {"k": K, "candidates": n, "rerank": kept}) for n in budgets]) for kept in (RERANKED, many)]
    pairs = list(zip(*found, strict=True))
    best = [expected_best(more.compared, many) - expected_best(more.compared, RERANKED) for _, more in pairs]
    rest = [Measured(b.single_us - a.single_us, b.batch_us - a.batch_us, b.compared) for a, b in pairs]
    yield from both("estimates among the best so far", "such estimate", best, rest)


def compared(found: Sequence[Measured]) -> list[float]:
    """Return how many items searches compared."""
    return [one.compared for one in found]


def lists(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of ranking a list, by searches of few candidates."""
    counts = [1 << bits for bits in range(4, min(12, len(task.base).bit_length() - 4))]
    coders = [CellCoder(clock.bits, metric=task.metric, cells=count).fit(task.base) for count in counts]
    found = clock(
        [(filled(task, one, len(task.base), "float16"), {"k": K, "candidates": K, "rerank": K}) for one in coders]
    )
    yield from both("ranking of lists", "list", counts, found)


def walks(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of a node that a walk on a graph visits."""
    index = filled(
        task, LinearCoder(GRAPH_BITS, metric=task.metric).fit(task.base), len(task.base), "float16", graph=True
    )
    found = clock([(index, {"k": K, "candidates": ef}) for ef in steps(20, 640)])
    yield from both("walk on a graph, float16", "visited node", compared(found), found)


def reranks(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of an item that is reranked, by vectors of each format and by whole codes."""
    coder = CellCoder(clock.bits, metric=task.metric).fit(task.base)
    candidates = len(task.base) // 4
    amounts = steps(100, candidates // 2)
    for vectors in (*BYTES, None):
        index = filled(task, coder, len(task.base), vectors)
        found = clock([(index, {"k": K, "candidates": candidates, "rerank": amount}) for amount in amounts])
        yield from both(f"rerank by {vectors or 'codes'}", "reranked item", amounts, found)


def networks(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of decoding by networks of two layers."""
    if find_spec("torch") is None:
        return
    import torch

    widths, features = steps(128, 4096, 5), task.base.shape[1]
    decoders = [
        torch.nn.Sequential(torch.nn.Linear(LIST_BITS, width), torch.nn.ReLU(), torch.nn.Linear(width, features))
        for width in widths
    ]
    rows = torch.rand(BATCH, LIST_BITS)
    with torch.inference_mode():
        seconds = cpu_seconds([partial(decoder, rows) for decoder in decoders], clock.rounds)
    sizes = [float(sum(part.numel() for part in decoder.parameters())) for decoder in decoders]
    line = fit_line(sizes, [1e6 * one / BATCH for one in seconds])
    yield row("decoded item", "parameter", str(BATCH), line)


def hits(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of a hit that is returned, at one number of reranked items."""
    index = filled(task, CellCoder(clock.bits, metric=task.metric).fit(task.base), len(task.base), "float16")
    candidates = len(task.base) // 4
    amounts = steps(10, candidates // 4)
    found = clock([(index, {"k": k, "candidates": candidates, "rerank": candidates // 4}) for k in amounts])
    yield from both("hits", "hit", amounts, found)
    found = clock([(index, {"k": k, "candidates": len(index)}) for k in amounts])
    best = [expected_best(len(index), k) for k in amounts]
    yield from both("scan, items among the best so far", "such item", best, found)


def filters(task: Task, clock: Clock) -> Iterator[Row]:
    """Yield the cost of a filter that allows few items: of each item of a mask, and of each id."""
    coder, allowed = LinearCoder(clock.bits, metric=task.metric).fit(task.base), np.arange(K)
    sizes = steps(len(task.base) // 32, len(task.base))
    found = clock([(filled(task, coder, size, "float16"), {"k": K, "filter": np.arange(size) < K}) for size in sizes])
    yield from both("filter by a mask", "item", sizes, found)
    index = filled(task, coder, len(task.base), "float16")
    rng, counts = np.random.default_rng(0), steps(len(allowed), len(task.base) // 10)
    chosen = [rng.choice(len(task.base), count, replace=False) for count in counts]
    found = clock([(index, {"k": K, "filter": ids}) for ids in chosen])
    yield from both("filter by ids, with the scan of its items", "id", counts, found)


if __name__ == "__main__":
    main()
