"""Section 5.1 of the paper: how far down the tree a query goes, and what that costs.

The paper's estimate assumes independent bits, so bits are drawn. Codes of images show what dependence does to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import Codes, LinearCoder, PrefixTree
from nestcode.arrays import Doubles
from nestcode.reproduce.complexity.figures import (
    BETAS,
    FRACTION,
    SIZES,
    entropy,
    expected_depth,
    figure_depth,
    figure_independence,
)
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.timing import seconds_each

WIDTH = 192  # the likeliest path of bits that are mostly 0 is the deepest: 150 of 10 million codes, for a tenth of ones


def draw(count: int, width: int, beta: float, rng: np.random.Generator) -> Codes:
    """Codes whose bits are 1 with probability beta, to within 1/512; the width is a multiple of 8.

    >>> codes = draw(1000, 64, 0.25, np.random.default_rng(0))
    >>> codes.width, round(float(codes.bits().mean()), 2)
    (64, 0.25)
    """
    packed = np.zeros((count, width // 8), dtype=np.uint8)
    for digit in reversed(f"{round(256 * beta):08b}".rstrip("0")):  # 0.0101 is 0 or (1 and (0 or 1)), of fair bits
        fair = np.frombuffer(rng.bytes(packed.size), dtype=np.uint8).reshape(packed.shape)
        (np.bitwise_or if digit == "1" else np.bitwise_and)(packed, fair, out=packed)
    return Codes(packed, width)


def asking(tree: PrefixTree, queries: Codes, **kind: Any) -> Callable[[], object]:
    """A batch to be timed."""
    return lambda: tree.neighborhoods(queries, **kind)


def depths(codes: Codes, queries: Codes, counts: Sequence[int]) -> dict[str, Doubles]:
    """Mean depth (counts, sizes), that at a fixed fraction (counts,), and nanoseconds of both (counts, 2)."""
    by_size, at_fraction, times = [], [], []
    for count in counts:
        tree = PrefixTree(codes[:count])
        by_size.append([tree.neighborhoods(queries, size=size).length.mean() for size in SIZES])
        at_fraction.append(tree.neighborhoods(queries, fraction=FRACTION).length.mean())
        jobs = {"size": asking(tree, queries, size=32), "fraction": asking(tree, queries, fraction=FRACTION)}
        times.append([1e9 * seconds / len(queries) for seconds in seconds_each(jobs, rounds=3).values()])
    return {"depth": np.array(by_size), "fraction": np.array(at_fraction), "times": np.array(times)}


def cardinalities(tree: PrefixTree, queries: Codes, longest: int) -> Doubles:
    """The mean size of neighborhoods of length 0, 1, ... `longest`."""
    total = np.zeros(longest + 1)
    for query in queries:
        count = tree.nested(query).count[: longest + 1]
        total[: len(count)] += count
    return total / len(queries)


def slope_of(expected: Doubles, depth: Doubles) -> tuple[float, float]:
    """Depth as a line over log2(N / R) / H: its slope and where it begins."""
    slope, start = np.polyfit(expected.ravel(), depth.ravel(), 1)
    return float(slope), float(start)


def measure_drawn(lab: Lab, counts: Sequence[int], queries: int) -> dict[str, NDArray[Any]]:
    """Depths and cardinalities of drawn codes, for every beta."""
    found: list[dict[str, Doubles]] = []
    for beta in lab.progress(BETAS, "betas"):
        rng = np.random.default_rng(lab.seeds[0])
        codes, asked = draw(counts[-1], WIDTH, beta, rng), draw(queries, WIDTH, beta, rng)
        tree = PrefixTree(codes[: counts[-2]])
        found.append(depths(codes, asked, counts) | {"sizes": cardinalities(tree, asked[:1000], 40)})
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def measure_widths(lab: Lab, count: int, widths: Sequence[int], queries: int) -> dict[str, NDArray[Any]]:
    """Mean depth and nanoseconds of a query by width of the code, (widths,); each width has codes of its own."""
    rng = np.random.default_rng(lab.seeds[0])
    trees = [(PrefixTree(draw(count, width, 0.5, rng)), draw(queries, width, 0.5, rng)) for width in widths]
    best = seconds_each({str(tree.width): asking(tree, batch, size=32) for tree, batch in trees}, rounds=5)
    return {
        "depth": np.array([tree.neighborhoods(batch, size=32).length.mean() for tree, batch in trees]),
        "ns": np.array([1e9 * seconds / queries for seconds in best.values()]),
    }


def measure_images(lab: Lab) -> dict[str, NDArray[Any]]:
    """Depths of images among growing parts of all others, by codes of a linear coder."""
    images = lab.images(lab.pick(toy=3000, quick=None, full=None), lab.pick(toy=300, quick=1000, full=None))
    coder = LinearCoder(64).fit(images.train)
    codes = coder.encode(images.train)
    counts = [len(codes) // 4**k for k in (2, 1, 0)]
    found = depths(codes, coder.encode(images.test), counts)
    return {"depth": found["depth"], "counts": np.array(counts), "entropy": entropy(codes.bits()[:, :24].mean(axis=0))}


def run(lab: Lab) -> None:
    """Every statement of section 5.1 about the cost of retrieval."""
    counts = [10**k for k in lab.pick(toy=(3, 4), quick=(3, 4, 5, 6), full=(3, 4, 5, 6, 7))]
    queries = lab.pick(toy=2000, quick=10_000, full=20_000)
    drawn = lab.cached("complexity-drawn", lambda: measure_drawn(lab, counts, queries), seed=lab.seeds[0])
    widths = lab.pick(toy=(64, 256), quick=(64, 128, 256, 512, 1024, 2048), full=(64, 128, 256, 512, 1024, 2048))
    many = lab.pick(toy=5000, quick=200_000, full=1_000_000)
    by_width = lab.cached("complexity-widths", lambda: measure_widths(lab, many, widths, queries), seed=lab.seeds[0])
    real = lab.cached("complexity-images", lambda: measure_images(lab))
    add_depth(lab, counts, drawn, real)
    add_independence(lab, counts, widths, many, drawn, by_width)
    add_decay(lab, counts[-2], drawn["sizes"])
    lab.figure(
        "complexity-depth",
        figure_depth(counts, drawn, real),
        "Left: mean depth of a query against the paper's estimate, for R = 2, 32 and 512: all fall on one line. "
        f"Right: mean sizes of neighborhoods of {counts[-2]:,} codes; lines are N (β² + (1 − β)²)^b.",
    )
    lab.figure(
        "complexity-independence",
        figure_independence(counts, widths, drawn, by_width),
        f"Bits walked by code length (left, {many:,} codes, R = 32, β = 0.5) and by number of items (right): what is "
        "constant in K, logarithmic in N, and constant in N for a fixed share of the items.",
    )
    lab.departure(
        "Drawn codes stand in for those of 80 Million Tiny Images, which was withdrawn: the estimate is about "
        "independent bits. Codes of images beside them show what it neglects."
    )
    lab.departure(
        "Cost is counted in bits walked, as in the paper's tree. Ours jumps over most of them by look-ups, so its time "
        "follows the memory that is touched rather than the depth."
    )


def add_depth(lab: Lab, counts: Sequence[int], drawn: Mapping[str, Any], real: Mapping[str, Any]) -> None:
    """Depth against log2(N / R) / H."""
    fits = {}
    for beta, depth in zip(BETAS, drawn["depth"], strict=True):
        expected = expected_depth(counts, float(entropy(beta)))
        deep = expected * entropy(beta) > 3  # neighborhoods of less than an eighth of all
        fits[beta] = slope_of(expected[deep], depth[deep])
    lab.finding(
        f"depth grows as log(N/R) / H(β), up to {counts[-1]:,} items",
        paper="slope 1",
        ours=", ".join(f"{slope:.2f}" for slope, _ in fits.values()) + " for β = 0.1, 0.2 … 0.5",
        holds=all(0.9 < slope < 1.1 for slope, _ in fits.values()),
    )
    expected = expected_depth(real["counts"].tolist(), float(real["entropy"].mean()))
    deep = expected > 3
    slope, _ = slope_of(expected[deep], real["depth"][deep])
    lab.finding("the same for codes of images, whose bits depend on each other", paper="dependence neglected",
                ours=f"slope {slope:.2f}")  # fmt: skip
    rows = [[f"{beta}", f"{float(entropy(beta)):.3f}", *line, *map(float, drawn["depth"][i, -1])]
            for i, (beta, line) in enumerate(fits.items())]  # fmt: skip
    headers = ["β", "H(β)", "slope", "start", *(f"depth, R = {size}" for size in SIZES)]
    lab.table(headers, rows, caption=f"Depth over log2(N/R)/H(β), and depth among {counts[-1]:,} codes.")
    lab.measured |= {"slopes": {str(beta): slope for beta, (slope, _) in fits.items()}, "slope of images": slope}


def add_independence(
    lab: Lab,
    counts: Sequence[int],
    widths: Sequence[int],
    many: int,
    drawn: Mapping[str, Any],
    by_width: Mapping[str, Any],
) -> None:
    """What the cost does not depend on."""
    depth, ns = by_width["depth"], by_width["ns"]
    lab.finding(
        f"cost does not depend on K, {widths[0]} to {widths[-1]} bits",
        paper="independent",
        ours=f"{depth.min():.2f} to {depth.max():.2f} bits walked; {ns[0]:.0f} ns a query at {widths[0]} bits, "
        f"{ns[-1]:.0f} ns at {widths[-1]}, {many:,} items",
        holds=np.ptp(depth) < 0.02 * depth.mean(),
    )
    spread = np.ptp(drawn["fraction"], axis=1)
    ends = ", ".join(f"{low:.1f} → {high:.1f}" for low, high in drawn["fraction"][:, [0, -1]])
    lab.finding(
        f"a fixed fraction ({FRACTION:.0%}) costs the same from {counts[0]:,} to {counts[-1]:,} items",
        paper="independent of N",
        ours=f"{ends} bits for β = 0.1, 0.2 … 0.5",
        holds=bool(np.all(spread < 0.1 * drawn["fraction"].mean(axis=1))),
    )
    rows = [
        [f"{count:,}", *(float(value) for value in (drawn["depth"][-1, i, 1], drawn["times"][-1, i, 0],
                                                      drawn["fraction"][-1, i], drawn["times"][-1, i, 1]))]
        for i, count in enumerate(counts)
    ]  # fmt: skip
    lab.table(["items", "depth, R = 32", "ns a query", f"depth, {FRACTION:.0%} of all", "ns a query"], rows,
              caption="Depth and time in batches by number of items, β = 0.5, one thread.")  # fmt: skip


def add_decay(lab: Lab, count: int, sizes: Doubles) -> None:
    """How sizes of neighborhoods fall."""
    factors, straight = [], []
    for size in sizes:
        kept = size > 1
        length = np.flatnonzero(kept)
        slope, start = np.polyfit(length, np.log2(size[kept]), 1)
        factors.append(float(2**slope))
        straight.append(float(np.abs(np.log2(size[kept]) - start - slope * length).max()))
    law = [beta**2 + (1 - beta) ** 2 for beta in BETAS]
    off = max(abs(factor / expected - 1) for factor, expected in zip(factors, law, strict=True))
    lab.finding(
        f"sizes of neighborhoods decay exponentially, {count:,} codes",
        paper="approximately",
        ours=f"a bit leaves {', '.join(f'{factor:.2f}' for factor in factors)} of them for β = 0.1, 0.2 … 0.5",
        holds=off < 0.05 and max(straight) < 1,
    )
    lab.measured |= {"factor a bit": factors, "β² + (1 − β)²": law, "largest residual, log2": max(straight)}


EXPERIMENT = Experiment(
    "complexity",
    "section 5.1",
    "Retrieval in logarithmic time, whatever the length of codes",
    "With bits that are 1 with probability β, a query goes log(N/R) / H(β) bits down the tree: logarithmic in the "
    "number of items, independent of the length of codes, and for a fixed fraction of the items independent of their "
    "number too. Sizes of nested neighborhoods decay about exponentially.",
    run,
)
