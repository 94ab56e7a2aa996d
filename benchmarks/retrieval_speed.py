"""The paper's timing figure (section 5.2): linear scan, semantic hashing and ordered retrieval, on one thread.

Codes and queries are random, with bits that are 1 with probability beta. The scan computes every Hamming distance with
the fastest kernel. Semantic hashing probes a hash table with every code in a Hamming ball; above two million probes the
time is extrapolated and marked "~". Ordered retrieval descends the prefix tree to the deepest node with at least R
items, and gathers their ids; times are CPU times. "recall" is recall@10 by Hamming distance within the neighborhood.
Random codes have no near neighbors, so the last table uses real images and their true neighbors: CIFAR-10 with --data
DIR, else patches of the sample images.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from _report import arguments, images, save, show
from _report import seconds_each as timed
from _semantic_hashing import HashTable
from nestcode import Codes, Index, LinearCoder
from nestcode.index import PrefixTree
from nestcode.metrics import exact_neighbors, recall

SIZES, BETAS = (2, 32, 512), (0.5, 0.2)
PROBES = 2_000_000
Row = dict[str, Any]
seconds_each = partial(timed, clock=time.process_time)


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    count = 2000 if options.quick else 1_000_000
    widths = (16, 128) if options.quick else (16, 32, 64, 128, 256, 512, 1024, 2048)
    counts = (1000, 2000) if options.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    tables: dict[str, list[Row]] = {"figure": [], "headline": [], "growth": [], "images": []}
    for beta in BETAS:
        codes, queries = draw(count, widths[-1], beta, seed=0), draw(min(count, 100_000), widths[-1], beta, seed=1)
        tables["figure"] += [figure(shortened(codes, width), shortened(queries, width), beta) for width in widths]
        tables["headline"].append(headline(codes, queries, beta))
    for beta in BETAS:
        codes, queries = draw(counts[-1], 128, beta, seed=0), draw(10_000, 128, beta, seed=1)
        tables["growth"] += [growth(codes[:n], queries, beta) for n in counts]
    tables["images"] = on_images(options)
    show(
        f"Microseconds per query, {count:,} codes, one thread",
        tables["figure"],
        "SH r: semantic hashing of radius r (~ extrapolated); empty: share of queries without a result at radius "
        "0/1/2/3.\nOR R: ordered retrieval with ids, in batches; x scan and recall: at R = 32.",
    )
    show(
        f"One query against {count:,} codes of {widths[-1]} bits, R = 32",
        tables["headline"],
        "range: of a batch, without ids; the others are with ids. x: speedup over the scan.\n"
        "recall: recall@10 by Hamming distance.",
    )
    show(
        "Depth of the neighborhood and log2(N / R) / H(beta), at 128 bits and R = 32",
        tables["growth"],
        "fraction ns: with fraction=0.01 in place of size=32.",
    )
    show(
        "Neighborhoods of real images",
        tables["images"],
        "recall: recall@10 by L2 distance of pixels and by Hamming distance of codes; kept: share of all items.",
    )
    for beta in BETAS:
        slope, intercept = fit([row for row in tables["growth"] if row["beta"] == beta])
        print(f"beta = {beta}: depth = {slope:.2f} * log2(N / R) / H(beta) {intercept:+.2f}")
    if options.figure is not None:
        draw_figure([row for row in tables["figure"] if row["beta"] == BETAS[0]], count).savefig(
            options.figure, dpi=150
        )
    save(options.json, [{"table": name, **row} for name, rows in tables.items() for row in rows], ["nestcode", "numpy"])


def draw(count: int, width: int, beta: float, seed: int) -> Codes:
    """Return codes whose bits are 1 with probability beta, to within 1/512."""
    rng, below = np.random.default_rng(seed), round(256 * beta)
    packed = np.empty((count, width // 8), dtype=np.uint8)
    for start in range(0, count, 1 << 16):
        part = packed[start : start + (1 << 16)]
        part[:] = np.packbits(rng.integers(0, 256, (len(part), width), dtype=np.uint8) < below, axis=1)
    return Codes.unchecked(packed, width)


def shortened(codes: Codes, width: int) -> Codes:
    """Return prefixes as contiguous codes of that width."""
    return Codes.unchecked(codes.prefix(width).packed.copy(), width)


def figure(codes: Codes, queries: Codes, beta: float) -> Row:
    """Return one code length of the paper's figure, in microseconds per query."""
    tree = PrefixTree(codes)
    hashing = HashTable(tree.codes)
    scan = seconds_each({"scan": lambda: queries[0].hamming(codes)}, rounds=5)["scan"]
    row: Row = {"beta": beta, "bits": codes.width, "scan": 1e6 * scan}
    balls = [semantic_hashing(hashing, queries, radius) for radius in range(4)]
    row |= {f"SH {radius}": time for radius, (time, _) in enumerate(balls)}
    row["empty"] = "/".join(empty for _, empty in balls)
    batch = queries[:10_000]
    best = seconds_each({f"OR {size}": batch_of(tree, batch, size) for size in SIZES}, rounds=5)
    row |= {name: 1e6 * seconds / len(batch) for name, seconds in best.items()}
    row["x scan"] = round(scan / (best["OR 32"] / len(batch)))
    row["recall"] = hamming_recall(tree, codes, queries[:10])
    return row


def draw_figure(rows: list[Row], count: int) -> Figure:
    """Draw the paper's figure 3: time over code length, on logarithmic scales."""
    figure = Figure(figsize=(8, 4.8))
    axes = figure.subplots()
    bits = [row["bits"] for row in rows]
    axes.plot(bits, [row["scan"] for row in rows], "k-", linewidth=2, label="linear scan")
    for radius, shade in zip(range(4), ("#f2b880", "#e8873a", "#c75b12", "#7f3300"), strict=True):
        times = [str(row[f"SH {radius}"]) for row in rows]
        label = f"semantic hashing, radius {radius}"
        axes.plot(bits, [float(time.lstrip("~")) for time in times], "--", color=shade, label=label)
        measured = [(b, float(time)) for b, time in zip(bits, times, strict=True) if not time.startswith("~")]
        axes.plot(*zip(*measured, strict=True), "o", color=shade, markersize=4)
    for size, shade in zip(SIZES, ("#1b4f9c", "#4f83cc", "#9dbfe8"), strict=True):
        label = f"ordered retrieval, R = {size}"
        axes.plot(bits, [row[f"OR {size}"] for row in rows], "-", color=shade, linewidth=2, label=label)
    axes.set(xlabel="code length (bits)", ylabel="microseconds per query", xscale="log", yscale="log", xticks=bits)
    axes.set_xticklabels(bits)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_title(f"{count:,} random codes, one thread; dashed lines without dots are extrapolated", fontsize=10)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    return figure


def batch_of(tree: PrefixTree, queries: Codes, size: int) -> Callable[[], object]:
    """Return a job that finds the ids of a batch."""
    return lambda: tree.neighborhood(queries, size=size).ids


def semantic_hashing(table: HashTable, queries: Codes, radius: int) -> tuple[str, str]:
    """Return microseconds per query, and the share of queries without a result ("-" if the time is extrapolated)."""
    needed = sum(math.comb(queries.width, flips) for flips in range(radius + 1))
    some = queries[: max(3, min(2000, PROBES // needed))]
    start = time.process_time()
    found, probes = table.search(some, radius, PROBES)
    microseconds = 1e6 * (time.process_time() - start) / probes * needed
    if needed > PROBES:
        return f"~{microseconds:.3g}", "-"
    return f"{microseconds:.3g}", f"{(found == 0).mean():.2g}"


def hamming_recall(tree: PrefixTree, codes: Codes, queries: Codes, size: int = 32, k: int = 10) -> float:
    """Return the recall@k by Hamming distance within the neighborhoods."""
    distances = queries.hamming(codes, threads=None)
    true = np.argpartition(distances, k, axis=1)[:, :k]
    hoods = tree.neighborhoods(queries, size=size)
    return recall([hood.ids for hood in hoods], true)


def headline(codes: Codes, queries: Codes, beta: float) -> Row:
    """Return the paper's headline figure with ids: 1M codes of 2048 bits, one query at a time and in batches."""
    tree, index = PrefixTree(codes), Index(width=codes.width)
    index.add(codes)
    ones = [queries[i] for i in range(1000)]

    def each(search: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            for query in ones:
                _ = search(query, size=32).ids

        return run

    best = seconds_each(
        {
            "scan": lambda: queries[0].hamming(codes),
            "range": lambda: tree.neighborhood(queries, size=32),
            "batch": batch_of(tree, queries, 32),
        },
        rounds=7,
    )
    # Timed apart from the scan, which evicts everything from the caches.
    best |= seconds_each({"tree": each(tree.neighborhood), "index": each(index.neighborhood)}, rounds=7)
    scan, batch, one, through_index = (
        best["scan"],
        best["batch"] / len(queries),
        best["tree"] / len(ones),
        best["index"] / len(ones),
    )
    return {
        "beta": beta,
        "scan ms": 1e3 * scan,
        "range ns": 1e9 * best["range"] / len(queries),
        "batch ns": 1e9 * batch,
        "PrefixTree us": 1e6 * one,
        "Index us": 1e6 * through_index,
        "x batch": round(scan / batch),
        "x PrefixTree": round(scan / one),
        "x Index": round(scan / through_index),
        "recall": hamming_recall(tree, codes, queries[:20]),
    }


def growth(codes: Codes, queries: Codes, beta: float) -> Row:
    """Return the depth of neighborhoods and the time per query for one number of items."""
    tree = PrefixTree(codes)
    hoods = tree.neighborhood(queries, size=32)
    entropy = -beta * math.log2(beta) - (1 - beta) * math.log2(1 - beta)
    jobs = {
        "size": lambda: tree.neighborhood(queries, size=32),
        "fraction": lambda: tree.neighborhood(queries, fraction=0.01),
    }
    best = seconds_each(jobs, rounds=5)
    return {
        "beta": beta,
        "items": len(codes),
        "log2(N/R)/H": math.log2(len(codes) / 32) / entropy,
        "mean depth": float(hoods.length.mean()),
        "median": int(np.median(hoods.length)),
        "largest": int(hoods.length.max()),
        "batch ns": 1e9 * best["size"] / len(queries),
        "fraction ns": 1e9 * best["fraction"] / len(queries),
    }


def fit(rows: list[Row]) -> tuple[float, float]:
    """Fit the depth as a line over log2(N / R) / H(beta)."""
    slope, intercept = np.polyfit([row["log2(N/R)/H"] for row in rows], [row["mean depth"] for row in rows], 1)
    return float(slope), float(intercept)


def on_images(options: argparse.Namespace) -> list[Row]:
    """Measure neighborhoods of real images, encoded by a linear coder."""
    name, train, test = images(options)
    test = test[:200]
    coder = LinearCoder(width=64 if options.quick else 256).fit(train)
    codes, queries = coder.encode(train), coder.encode(test)
    tree = PrefixTree(codes)
    true = exact_neighbors(test, train)
    near = np.argpartition(queries.hamming(codes, threads=None), 10, axis=1)[:, :10]
    rows = []
    for size in SIZES:
        hoods = tree.neighborhoods(queries, size=size)
        ids = [hood.ids for hood in hoods]
        rows.append(
            {
                "images": name,
                "items": len(codes),
                "bits": codes.width,
                "R": size,
                "mean length": float(hoods.length.mean()),
                "kept": float(hoods.count.mean() / len(codes)),
                "recall, L2": recall(ids, true),
                "recall, Hamming": recall(ids, near),
            }
        )
    return rows


if __name__ == "__main__":
    main()
