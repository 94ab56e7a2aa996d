"""Figure 3 of the paper and its headline: a million codes of 2,048 bits in 200 µs, 15,000 times as fast as a scan."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import Codes, Index, LinearCoder, PrefixTree
from nestcode.data import patches
from nestcode.metrics import exact_neighbors, recall
from nestcode.reproduce.complexity.experiment import asking
from nestcode.reproduce.lab import Experiment, Lab
from nestcode.reproduce.lab.timing import seconds_each
from nestcode.reproduce.speeds.figures import PAPER_SECONDS, PROBES, RADII, SIZES, ball, figure_time, figure_worth

SIDE = 16  # of crops
SEARCHED = 256  # bits that search ranks by
PAPER_FASTER = 15_000


def crops(lab: Lab, count: int, queries: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Squares cut out of the training images, and others out of the test images to ask for."""
    if lab.data is None:  # its images are cut out of photographs already
        images = lab.images(count, queries)
        return images.train, images.test
    images, rng = lab.images(), np.random.default_rng(lab.seeds[0])
    cut = [
        patches(list(images.as_images(rows)), SIDE, n, rng)
        for rows, n in ((images.train, count), (images.test, queries))
    ]
    train, test = (np.ascontiguousarray(part.transpose(0, 3, 1, 2)).reshape(len(part), -1) for part in cut)
    return train, test


def shortened(codes: Codes, width: int) -> Codes:
    """A prefix as codes of that width would lie in memory."""
    return Codes(codes.prefix(width).packed.copy(), width)


def flips(width: int, radius: int, most: int, rng: np.random.Generator) -> Codes:
    """What to flip to reach the codes within a radius: all of them, or that many of those at the radius.

    >>> flips(3, 1, 10, np.random.default_rng(0))
    Codes(4 items of 3 bits: 000, 100, 010, …)
    """
    if ball(width, radius) <= most:
        chosen = [flip for count in range(radius + 1) for flip in itertools.combinations(range(width), count)]
    else:
        chosen = [tuple(rng.choice(width, radius, replace=False)) for _ in range(most)]
    bits = np.zeros((len(chosen), width), dtype=bool)
    for row, places in zip(bits, chosen, strict=True):
        row[list(places)] = True
    return Codes.from_bits(bits)


def hashed(tree: PrefixTree, probes: Codes) -> int:
    """Semantic hashing: how many items have one of these codes.

    The tree is the hash table, as one look-up finds a whole code.
    """
    hoods = tree.neighborhoods(probes, size=1)
    return int(hoods.count[hoods.length == tree.width].sum())


def seconds_of_hashing(tree: PrefixTree, queries: Codes, radius: int) -> float:
    """Of one query; only look-ups count, not the flipping of bits."""
    flipped = flips(tree.width, radius, PROBES, np.random.default_rng(0))
    balls = {str(i): Codes(query.packed ^ flipped.packed, tree.width) for i, query in enumerate(queries)}
    best = seconds_each({name: partial(hashed, tree, probes) for name, probes in balls.items()}, rounds=2)
    return float(np.mean(list(best.values()))) * ball(tree.width, radius) / len(flipped)


def heads(codes: Codes) -> NDArray[np.uint64]:
    """The first 64 bits of each code as a number; short codes are followed by zeros."""
    whole = np.zeros((len(codes), 8), dtype=np.uint8)
    whole[:, : codes.packed.shape[1]] = codes.packed[:, :8]
    return whole.view(">u8").astype(np.uint64).ravel()


def walk(ordered: NDArray[np.uint64], head: int, width: int, size: int) -> int:
    """The paper's retrieval as it stands, bit by bit: how long the shared prefix is, up to 64 bits.

    >>> ordered = heads(Codes.from_bits([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 1]]))
    >>> [walk(ordered, int(ordered[1]), width=3, size=size) for size in (1, 2, 3, 4)]
    [3, 2, 1, 0]
    """
    for length in range(1, min(width, 64) + 1):
        free = 64 - length
        first = head >> free << free
        begin = int(np.searchsorted(ordered, np.uint64(first)))
        end = int(np.searchsorted(ordered, np.uint64(first + (1 << free) - 1), side="right"))
        if end - begin < size:
            return length - 1
        ordered = ordered[begin:end]
    return min(width, 64)


def walk_each(ordered: NDArray[np.uint64], asked: Sequence[int], width: int, size: int) -> list[int]:
    """One after the other."""
    return [walk(ordered, head, width, size) for head in asked]


def time_width(codes: Codes, queries: Codes, exact: int) -> dict[str, NDArray[Any]]:
    """One code length of figure 3: seconds of a query by each way, bits walked, and how far the nearest item is."""
    tree = PrefixTree(codes)
    ordered, asked = heads(tree.codes), heads(queries[:100]).tolist()
    scan = seconds_each({"scan": lambda: queries[0].hamming(codes)}, rounds=3)["scan"]
    hashing = [seconds_of_hashing(tree, queries[:3], radius) for radius in RADII]
    best = seconds_each({str(size): asking(tree, queries, size=size) for size in SIZES}, rounds=5)
    walks = seconds_each({str(size): partial(walk_each, ordered, asked, codes.width, size) for size in SIZES}, rounds=1)
    near = [int(query.hamming(codes, threads=None).min()) for query in queries[:exact]]
    return {
        "scan": np.array(scan),
        "hashing": np.array(hashing),
        "ordered": np.array(list(best.values())) / len(queries),
        "walk": np.array(list(walks.values())) / len(asked),
        "depth": np.array([tree.neighborhoods(queries, size=size).length.mean() for size in SIZES]),
        "nearest": np.array(near),
    }


def one_by_one(tree: PrefixTree, queries: Sequence[Codes], size: int) -> None:
    """Retrieval that does not know the next query yet."""
    for query in queries:
        tree.neighborhood(query, size=size)


def worth(
    coder: LinearCoder, codes: Codes, rows: NDArray[np.uint8], asked: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    """What is found of the ten nearest by pixels, and seconds of one query alone: each size, (a scan,) a search."""
    true, queries, tree = exact_neighbors(asked, rows), coder.encode(asked), PrefixTree(codes)
    found = [recall([hood.ids for hood in tree.neighborhoods(queries, size=size)], true) for size in SIZES]
    scanned = [np.argpartition(query.hamming(codes)[0], 10)[:10] for query in queries]
    index = Index(coder, width=min(SEARCHED, codes.width))
    index.add(codes.prefix(min(SEARCHED, codes.width)))
    hits = index.search(asked, k=10)
    ones = [queries[i] for i in range(len(queries))]
    jobs = {str(size): partial(one_by_one, tree, ones, size) for size in SIZES}
    best = seconds_each(jobs | {"search": lambda: index.search(asked, k=10)}, rounds=5)
    return {
        "found": np.array([*found, recall(scanned, true), recall(hits.ids, true)]),
        "alone": np.array(list(best.values())) / len(asked),  # sizes, then search
    }


def measure(lab: Lab, count: int, widths: Sequence[int], queries: int, exact: int) -> dict[str, NDArray[Any]]:
    """Encode crops, and time every way of retrieval at every width."""
    rows, asked = crops(lab, count, queries)
    with lab.console.status("  encoding"):
        coder = LinearCoder(widths[-1]).fit(rows[:25_000])
        codes, codes_asked = coder.encode(rows), coder.encode(asked)
    timed = [
        time_width(shortened(codes, width), shortened(codes_asked, width), exact)
        for width in lab.progress(widths, "code lengths")
    ]
    with lab.console.status("  recall"):
        found = worth(coder, codes, rows, asked[:exact])
    return {name: np.array([one[name] for one in timed]) for name in timed[0]} | found


def run(lab: Lab) -> None:
    """Time against code length, and what the answers are worth."""
    count = lab.pick(toy=3000, quick=1_000_000, full=1_000_000)
    widths = [2**k for k in lab.pick(toy=(4, 6, 8), quick=range(4, 12), full=range(4, 12))]
    queries, exact = lab.pick(toy=200, quick=10_000, full=10_000), lab.pick(toy=50, quick=100, full=1000)
    found = lab.cached("speeds", lambda: measure(lab, count, widths, queries, exact), seed=lab.seeds[0])
    add_headline(lab, count, widths[-1], found)
    add_claims(lab, widths, found)
    lab.table(
        ["bits", "scan", *(f"hashing, radius {r}" for r in RADII), *(f"ordered, R = {r}" for r in SIZES),
         *(f"bit by bit, R = {r}" for r in SIZES), *(f"empty, radius {r}" for r in RADII)],
        [
            [str(width), *(1e6 * float(t) for t in (found["scan"][i], *found["hashing"][i], *found["ordered"][i],
                                                    *found["walk"][i])),
             *(f"{(found['nearest'][i] > radius).mean():.0%}" for radius in RADII)]
            for i, width in enumerate(widths)
        ],
        caption=f"Microseconds of a query among {count:,} codes, one thread; shares of empty Hamming balls.",
    )  # fmt: skip
    lab.figure(
        "speeds-time",
        figure_time(count, widths, found),
        f"Time of one query against the length of codes. Dots are measured; dashed lines without dots are extrapolated "
        f"from {PROBES:,} look-ups. Dotted lines are the paper's walk, bit by bit, in Python.",
    )
    lab.figure(
        "speeds-worth",
        figure_worth(widths, found),
        "Left: Hamming balls with nothing in them. Right: what share of the ten nearest by pixels each way finds, and "
        "how long a query takes: neighborhoods one by one, search in a batch.",
    )
    lab.departure(
        f"The paper's codes are of 80 Million Tiny Images, which was withdrawn. Here they are of {count:,} crops of "
        f"{SIDE} x {SIDE} pixels, by a linear coder of {widths[-1]} bits, whose prefixes are the shorter codes."
    )
    lab.departure(
        "Semantic hashing looks codes up in the prefix tree, a third slower than a hash table made for it; in return "
        "only look-ups are timed, not the flipping of bits. Ordered retrieval is timed in batches, and one by one."
    )


def add_headline(lab: Lab, count: int, width: int, found: Mapping[str, Any]) -> None:
    """200 µs, 15,000 times as fast as a scan, and what is found."""
    batch, alone, scan = (float(t) for t in (found["ordered"][-1, 1], found["alone"][1], found["scan"][-1]))
    walked = float(found["walk"][-1, 1])
    what = f"{count:,} codes of {width} bits"
    lab.finding(
        f"time of a query, {what}, R = 32",
        paper="200 µs",
        ours=f"{1e6 * alone:.2f} µs alone, {1e9 * batch:.0f} ns in batches ({1e6 * walked:.0f} µs bit by bit)",
        holds=alone <= PAPER_SECONDS,
    )
    lab.finding(
        "faster than a linear scan",
        paper="15,000 times",
        ours=f"{scan / alone:,.0f} times alone, {scan / batch:,.0f} in batches; the scan takes {1e3 * scan:.1f} ms "
        "(the paper's must have taken 3 s)",
        holds=scan / alone >= PAPER_FASTER,
    )
    hashing = float(found["hashing"][-1, 1])
    lab.finding(
        "faster than semantic hashing, radius 2",
        paper="15,000 times",
        ours=f"{hashing / alone:,.0f} times alone",
        holds=hashing / alone >= PAPER_FASTER,
    )
    shares = found["found"]
    lab.finding(
        "what that speed is worth: share of the ten nearest by pixels",
        paper="not given",
        ours=", ".join(f"{share:.0%} in neighborhoods of {size}" for size, share in zip(SIZES, shares, strict=False))
        + f", {shares[3]:.0%} by a scan for Hamming distance, {shares[4]:.0%} by Index.search",
    )
    lab.measured |= {name: np.asarray(value).tolist() for name, value in found.items()}


def add_claims(lab: Lab, widths: Sequence[int], found: Mapping[str, Any]) -> None:
    """What the paper says about figure 3."""
    ordered, scan, hashing = found["ordered"][:, 1], found["scan"], found["hashing"]
    grown = float(ordered[-1] / ordered[1])
    lab.finding(
        f"time does not depend on the code length, {widths[1]} to {widths[-1]} bits",
        paper="independent",
        ours=f"x {grown:.2f} (the scan: x {scan[-1] / scan[1]:.0f})",
        holds=grown < 2,
    )
    first, second = -np.diff(found["depth"][-1])
    slower = ", ".join(f"{1e6 * seconds:.0f}" for seconds in found["walk"][-1])
    lab.finding(
        "each factor of 16 in R, 2 to 32 to 512, is a constant shift",
        paper="constant",
        ours=f"{first:.1f} and {second:.1f} bits less to walk; bit by bit {slower} µs",
        holds=abs(first - second) < 0.3 * max(first, second),
    )
    beyond = [width for width, slow in zip(widths, hashing[:, 2] > scan, strict=True) if slow]
    lab.finding(
        "semantic hashing of a radius over 2 is slower than the scan",
        paper="even for very short codes",
        ours=f"radius 3 from {beyond[0]} bits on" if beyond else "never",
        holds=beyond == list(widths),
    )
    empty = (found["nearest"] > 2).mean(axis=1)
    lab.finding(
        "long codes leave Hamming balls empty",
        paper="very likely",
        ours=", ".join(f"{share:.0%} at {width}" for width, share in zip(widths, empty, strict=True))
        + " bits, radius 2",
        holds=empty[-1] > 0.5,
    )


EXPERIMENT = Experiment(
    "speeds",
    "figure 3 and section 1",
    "A million codes of 2,048 bits, searched as fast as short ones",
    "Retrieval among a million codes of 2,048 bits takes 200 µs, 15,000 times less than a linear scan or semantic "
    "hashing. Its cost does not depend on the length of codes, and each factor of the size R shifts it by a "
    "constant. Semantic hashing of a radius over 2 is slower than a scan, and finds nothing for most long codes.",
    run,
)
