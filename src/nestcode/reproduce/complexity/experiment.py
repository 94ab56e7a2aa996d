"""Depth and time of queries in the prefix tree, by number of items N, terminal size R, code width K and P(bit = 1) β.

The paper's estimate assumes independent bits, so codes are drawn at random. Codes of images show the effect of
dependence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import Codes
from nestcode.arrays import Doubles
from nestcode.index import PrefixTree
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
from nestcode.reproduce.lab.retrieval import retrieval
from nestcode.reproduce.lab.timing import seconds_each
from nestcode.reproduce.lab.verdicts import EXPONENTIAL_LOG2, is_unit_slope

WIDTH = 192  # the deepest paths are those of the likeliest bits: 150 bits for 10 million codes and β = 0.1
BETA_LIST = "β = 0.1, 0.2 … 0.5"


def run(lab: Lab) -> None:
    """Test every statement of section 5.1 on the cost of retrieval."""
    counts = [10**k for k in lab.pick(toy=(3, 4), quick=(3, 4, 5, 6), full=(3, 4, 5, 6, 7))]
    queries = lab.pick(toy=2000, quick=10_000, full=20_000)
    random = lab.cached("complexity-random", lambda: measure_random(lab, counts, queries), seed=lab.seeds[0])
    widths = lab.pick(toy=(64, 256), quick=(64, 128, 256, 512, 1024, 2048), full=(64, 128, 256, 512, 1024, 2048))
    items = lab.pick(toy=5000, quick=200_000, full=1_000_000)
    by_width = lab.cached("complexity-widths", lambda: measure_widths(lab, items, widths, queries), seed=lab.seeds[0])
    images = measure_images(lab)
    add_depth(lab, counts, random, images)
    add_independence(lab, counts, widths, items, random, by_width)
    add_decay(lab, counts[-2], random["sizes"], images["sizes"])
    lab.figure(
        "complexity-depth",
        figure_depth(counts, random, images),
        "Left: mean depth of a query against the paper's estimate for R = 2, 32 and 512. Random codes are on one line; "
        "bits of the retrieval network, β = 0.2, depend on each other, which costs depth. "
        f"Right: mean size of neighborhoods among {counts[-2]:,} codes; lines are N (β² + (1 − β)²)^b. Stars are codes "
        f"of {images['counts'][-1]:,} images.",
    )
    lab.figure(
        "complexity-independence",
        figure_independence(counts, widths, random, by_width),
        f"Depth by code width (left, {items:,} codes, R = 32, β = 0.5) and by number of items (right): constant in K, "
        "logarithmic in N, and constant in N for a fixed fraction of the items.",
    )
    lab.departure(
        "Random codes replace those of 80 Million Tiny Images, which was withdrawn: the estimate assumes independent "
        "bits. Codes of the retrieval network beside them show what it neglects."
    )
    lab.departure(
        "Cost is counted in bits walked, as in the paper's tree. Our tree skips most of them by lookup tables, so its "
        "time depends on memory accesses rather than on depth."
    )


def measure_random(lab: Lab, counts: Sequence[int], queries: int) -> dict[str, NDArray[Any]]:
    """Return depths and sizes of neighborhoods of random codes, for every β."""
    results: list[dict[str, Doubles]] = []
    for beta in lab.progress(BETAS, "random codes by β"):
        rng = np.random.default_rng(lab.seeds[0])
        codes, query_codes = random_codes(counts[-1], WIDTH, beta, rng), random_codes(queries, WIDTH, beta, rng)
        tree = PrefixTree(codes[: counts[-2]])
        results.append(depths(codes, query_codes, counts) | {"sizes": mean_sizes(tree, query_codes[:1000], 40)})
    return {name: np.array([result[name] for result in results]) for name in results[0]}


def measure_widths(lab: Lab, count: int, widths: Sequence[int], queries: int) -> dict[str, NDArray[Any]]:
    """Return the mean depth and the nanoseconds of a query by code width, (widths,); each width has its own codes."""
    rng = np.random.default_rng(lab.seeds[0])
    trees = [
        (PrefixTree(random_codes(count, width, 0.5, rng)), random_codes(queries, width, 0.5, rng)) for width in widths
    ]
    best = seconds_each({str(tree.width): batch_query(tree, batch, size=32) for tree, batch in trees}, rounds=5)
    return {
        "depth": np.array([tree.neighborhoods(batch, size=32).length.mean() for tree, batch in trees]),
        "ns": np.array([1e9 * seconds / queries for seconds in best.values()]),
    }


def measure_images(lab: Lab) -> dict[str, NDArray[Any]]:
    """Return the depths of test images among growing numbers of training images, by codes of the retrieval network."""
    found = retrieval(lab)
    counts = [len(found.codes) // 4**k for k in (2, 1, 0)]
    measured = depths(found.codes, found.queries, counts)
    rng = np.random.default_rng(lab.seeds[0])
    apart = depths(shuffled_bits(found.codes, rng), shuffled_bits(found.queries, rng), counts)
    bit_entropy = entropy(found.codes.bits()[:, :64].mean(axis=0))
    return {
        "depth": measured["depth"], "apart": apart["depth"], "counts": np.array(counts), "entropy": bit_entropy,
        "sizes": mean_sizes(PrefixTree(found.codes), found.queries[:1000], 64),
    }  # fmt: skip


def shuffled_bits(codes: Codes, rng: np.random.Generator) -> Codes:
    """Return codes whose bits each have the same share of ones, and are independent: permuted among items one by one.

    >>> codes = Codes.from_bits(np.eye(4, dtype=bool))
    >>> shuffled_bits(codes, np.random.default_rng(0)).bits().sum(axis=0)
    array([1, 1, 1, 1])
    """
    return Codes.from_bits(rng.permuted(codes.bits(), axis=0))


def random_codes(count: int, width: int, beta: float, rng: np.random.Generator) -> Codes:
    """Return codes with independent bits, 1 with probability β to within 1/512; the width is a multiple of 8.

    >>> codes = random_codes(1000, 64, 0.25, np.random.default_rng(0))
    >>> codes.width, round(float(codes.bits().mean()), 2)
    (64, 0.25)
    """
    packed = np.zeros((count, width // 8), dtype=np.uint8)
    for digit in reversed(f"{round(256 * beta):08b}".rstrip("0")):  # 0.0101 is 0 or (1 and (0 or 1)), of fair bits
        fair = np.frombuffer(rng.bytes(packed.size), dtype=np.uint8).reshape(packed.shape)
        (np.bitwise_or if digit == "1" else np.bitwise_and)(packed, fair, out=packed)
    return Codes(packed, width)


def batch_query(tree: PrefixTree, queries: Codes, **terminal: Any) -> Callable[[], object]:
    """Return a job to time: the neighborhoods of all queries, down to a size or a fraction."""
    return lambda: tree.neighborhoods(queries, **terminal)


def depths(codes: Codes, queries: Codes, counts: Sequence[int]) -> dict[str, Doubles]:
    """Return mean depths (counts, sizes), those at a fixed fraction (counts,), and nanoseconds of both (counts, 2)."""
    by_size, at_fraction, times = [], [], []
    for count in counts:
        tree = PrefixTree(codes[:count])
        by_size.append([tree.neighborhoods(queries, size=size).length.mean() for size in SIZES])
        at_fraction.append(tree.neighborhoods(queries, fraction=FRACTION).length.mean())
        jobs = {"size": batch_query(tree, queries, size=32), "fraction": batch_query(tree, queries, fraction=FRACTION)}
        times.append([1e9 * seconds / len(queries) for seconds in seconds_each(jobs, rounds=3).values()])
    return {"depth": np.array(by_size), "fraction": np.array(at_fraction), "times": np.array(times)}


def mean_sizes(tree: PrefixTree, queries: Codes, longest: int) -> Doubles:
    """Return the mean size of neighborhoods of length 0, 1, …, `longest`."""
    total = np.zeros(longest + 1)
    for query in queries:
        count = tree.nested(query).count[: longest + 1]
        total[: len(count)] += count
    return total / len(queries)


def fit_line(expected: Doubles, depth: Doubles) -> tuple[float, float]:
    """Return slope and intercept of depth over log2(N/R) / H."""
    slope, intercept = np.polyfit(expected.ravel(), depth.ravel(), 1)
    return float(slope), float(intercept)


def add_depth(lab: Lab, counts: Sequence[int], random: Mapping[str, Any], images: Mapping[str, Any]) -> None:
    """Report depth against log2(N/R) / H(β)."""
    fits = {}
    for beta, depth in zip(BETAS, random["depth"], strict=True):
        expected = expected_depth(counts, float(entropy(beta)))
        deep = expected * entropy(beta) > 3  # neighborhoods of less than an eighth of the items
        fits[beta] = fit_line(expected[deep], depth[deep])
    lab.finding(
        f"depth grows as log(N/R) / H(β), up to {counts[-1]:,} items",
        paper="slope 1",
        ours="slope " + ", ".join(f"{slope:.2f}" for slope, _ in fits.values()) + f" for {BETA_LIST}",
        holds=all(is_unit_slope(slope) for slope, _ in fits.values()),
        seeds=lab.seeds[:1],
    )
    expected = expected_depth(images["counts"].tolist(), float(images["entropy"].mean()))
    deep = expected > 3
    slope, _ = fit_line(expected[deep], images["depth"][deep])
    ratio = images["depth"][-1] / expected[-1]
    apart, _ = fit_line(expected[deep], images["apart"][deep])
    lab.finding(
        "depth grows as log(N/R) / H(β), codes of the retrieval network, β = 0.2",
        paper="slope 1, neglecting dependence between bits",
        ours=f"slope {slope:.2f}; among {images['counts'][-1]:,} images a query walks "
        + ", ".join(f"{walked:.1f} bits at R = {size} ({times:.2f} of the estimate)"
                    for walked, size, times in zip(images["depth"][-1], SIZES, ratio, strict=True))
        + f". With each bit permuted among the images, which makes bits independent, the slope is {apart:.2f}",
        holds=is_unit_slope(float(slope)),
        seeds=lab.seeds[:1],
    )  # fmt: skip
    rows = [[f"{beta}", f"{float(entropy(beta)):.3f}", *line, *map(float, random["depth"][i, -1])]
            for i, (beta, line) in enumerate(fits.items())]  # fmt: skip
    headers = ["β", "H(β)", "slope", "intercept", *(f"depth, R = {size}" for size in SIZES)]
    lab.table(headers, rows, caption=f"Depth over log2(N/R) / H(β), and depth among {counts[-1]:,} codes.")
    lab.measured |= {"slopes": {str(beta): slope for beta, (slope, _) in fits.items()}, "slope of images": slope}


def add_independence(
    lab: Lab,
    counts: Sequence[int],
    widths: Sequence[int],
    items: int,
    random: Mapping[str, Any],
    by_width: Mapping[str, Any],
) -> None:
    """Report what the cost is independent of."""
    depth, ns = by_width["depth"], by_width["ns"]
    lab.finding(
        f"cost is independent of the code width K, {widths[0]} to {widths[-1]} bits",
        paper="independent",
        ours=f"depth {depth.min():.2f} to {depth.max():.2f} bits; {ns[0]:.0f} ns per query at {widths[0]} bits, "
        f"{ns[-1]:.0f} ns at {widths[-1]}, {items:,} items",
        holds=np.ptp(depth) < 0.02 * depth.mean(),
        seeds=lab.seeds[:1],
    )
    spread = np.ptp(random["fraction"], axis=1)
    ends = ", ".join(f"{low:.1f} → {high:.1f}" for low, high in random["fraction"][:, [0, -1]])
    lab.finding(
        f"cost of retrieving {FRACTION:.0%} of the items is independent of N, {counts[0]:,} to {counts[-1]:,} items",
        paper="independent of N",
        ours=f"depth {ends} bits for {BETA_LIST}",
        holds=bool(np.all(spread < 0.1 * random["fraction"].mean(axis=1))),
        seeds=lab.seeds[:1],
    )
    rows = [
        [f"{count:,}", *(float(value) for value in (random["depth"][-1, i, 1], random["times"][-1, i, 0],
                                                      random["fraction"][-1, i], random["times"][-1, i, 1]))]
        for i, count in enumerate(counts)
    ]  # fmt: skip
    lab.table(["items", "depth, R = 32", "ns per query", f"depth, {FRACTION:.0%} of the items", "ns per query"], rows,
              caption="Depth and time per query in batches by number of items, β = 0.5, one thread.")  # fmt: skip


def decay_of(sizes: Doubles, least: float) -> tuple[float, float]:
    """Return the factor per bit that sizes above `least` decay by, and the largest residual of log2.

    >>> factor, residual = decay_of(np.array([64.0, 32.0, 16.0, 8.0, 0.1]), least=1)
    >>> round(factor, 3), round(residual, 3)
    (0.5, 0.0)
    """
    lengths = np.flatnonzero(sizes > least)
    slope, intercept = np.polyfit(lengths, np.log2(sizes[lengths]), 1)
    return float(2**slope), float(np.abs(np.log2(sizes[lengths]) - intercept - slope * lengths).max())


def add_decay(lab: Lab, count: int, sizes: Doubles, image_sizes: Doubles) -> None:
    """Report how fast the sizes of neighborhoods decay."""
    factors, residuals = zip(*(decay_of(own, least=1) for own in sizes), strict=True)
    law = [beta**2 + (1 - beta) ** 2 for beta in BETAS]
    off = max(abs(factor / expected - 1) for factor, expected in zip(factors, law, strict=True))
    lab.finding(
        f"neighborhood sizes decay exponentially, {count:,} random codes",
        ours=f"each bit keeps {', '.join(f'{factor:.2f}' for factor in factors)} of the items for {BETA_LIST}",
        holds=off < 0.05 and max(residuals) < EXPONENTIAL_LOG2,
        seeds=lab.seeds[:1],
    )
    factor, residual = decay_of(image_sizes, least=min(SIZES))
    lab.finding(
        "neighborhood sizes decay exponentially, codes of the retrieval network",
        paper="approximately",
        ours=f"each bit keeps {factor:.2f} of the images; the mean size is at most {2**residual:.2f} times off that "
        f"line, down to {min(SIZES)} members",
        holds=residual < EXPONENTIAL_LOG2,
        seeds=lab.seeds[:1],
    )
    lab.measured |= {"factor per bit": factors, "β² + (1 − β)²": law, "largest residual, log2": max(residuals),
                     "images": {"factor per bit": factor, "largest residual, log2": residual,
                                "sizes": image_sizes.tolist()}}  # fmt: skip


EXPERIMENT = Experiment(
    "complexity",
    "section 5.1",
    "Retrieval in logarithmic time",
    "With bits that are 1 with probability β, a query walks log(N/R) / H(β) bits down the tree: logarithmic in the "
    "number of items N, independent of the code width K, and independent of N if a fixed fraction of the items is "
    "retrieved. The sizes of nested neighborhoods decay approximately exponentially.",
    run,
)
