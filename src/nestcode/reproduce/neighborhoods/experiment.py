"""The similarity of images to the query in nested neighborhoods, by terminal size and by length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestcode import Codes, LinearCoder
from nestcode.arrays import Doubles, Floats, Ids
from nestcode.index import PrefixTree
from nestcode.metrics import exact_neighbors, recall
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.reproduce.lab.images import as_rows
from nestcode.reproduce.lab.recipes import GOAL_ERROR, table_rows
from nestcode.reproduce.lab.recipes import SIZES as RETRIEVED
from nestcode.reproduce.lab.retrieval import (
    NEAREST,
    Retrieval,
    adam_runs,
    retrieval,
    retrieval_images,
    search_recipes,
)
from nestcode.reproduce.lab.verdicts import LSH_BITS, LSH_FACTOR
from nestcode.reproduce.neighborhoods.figures import SHOWN, SIZES, figure_grids, figure_similarity, figure_training

LENGTHS = (8, 16, 32, 64, 128, 256)  # rows of the grid, while others share the query's prefix
RANKS = (0.25, 0.5, 0.9, 1.0)  # of the queries shown, by the length at which they are alone
# Last words name the figures.
DEEP, CONJUGATE = "the retrieval network", "the retrieval network by conjugate gradients"
OURS = "our linear coder"
OWN = "with a decoder of its own"  # than the tied one
SHORTLIST = 100  # nearest images by Hamming distance
LSH_GROWTH = 4  # times the bits of the network
QUERIES = 2000  # test images, at most, that recall is of


def run(lab: Lab) -> None:
    """Draw grids of nested neighborhoods, and measure how similar their members are."""
    images = retrieval_images(lab)
    runs = adam_runs(lab)
    best = min(runs, key=lambda seed: runs[seed].curve[1, -1])
    trained = {DEEP: runs[best], CONJUGATE: retrieval(lab, "conjugate")}
    many = lab.pick(toy=200, quick=300, full=500)
    queries = np.sort(np.random.default_rng(lab.seeds[0]).permutation(len(images.train))[:many])
    kinds = {name: one.codes for name, one in trained.items()}
    kinds[OURS] = linear_codes(lab, images, kinds[DEEP].width)
    add_search(lab)
    add_training(lab, runs, trained[CONJUGATE])
    add_projections(lab, images, trained[DEEP], best)
    to_all = distances(images, queries)
    over_seeds = {seed: measure(images, one.codes, queries, to_all) for seed, one in runs.items()}
    results = {DEEP: over_seeds[best]}
    for name, codes in kinds.items():
        with lab.console.status(f"  {name}"):
            found = results[name] = results.get(name) or measure(images, codes, queries, to_all)
        others = [one for seed, one in over_seeds.items() if name == DEEP and seed != best]
        add_findings(lab, name, codes, queries, found, others, seeds=lab.seeds if name == DEEP else lab.seeds[:1])
        shown = [int(queries[place]) for place in queries_shown(found["alone"])]
        lab.figure(
            f"neighborhoods-{name.split()[-1]}",
            figure_grids(
                images, codes, {query: grid_lengths(*sizes(PrefixTree(codes), codes[query])) for query in shown}
            ),
            f"Nested neighborhoods by {name}, {len(codes):,} images of {images.name}. Rows are neighborhoods N_b of "
            f"growing length b, with the number of their members; the first {SHOWN} are shown in order of the data, "
            "the query framed on the left. The last row is the query alone.",
        )
    lab.figure(
        "neighborhoods-similarity",
        figure_similarity({name: found["by size"] for name, found in results.items()},
                          {name: by_length(found) for name, found in results.items()},
                          [by_length(found) for found in over_seeds.values()]),
        "Mean squared distance of pixels from a query to the other members of its neighborhood, relative to that to "
        "all images. Left: by the terminal size R; bars are two standard errors over queries. Right: by length, while "
        f"a tenth of the queries have other members; thin lines are {DEEP} by seed.",
    )  # fmt: skip
    if lab.scale == "full":
        lab.departure(
            "The recipe is chosen by a search on held-out training images, whose rule was fixed before (see "
            "`reproduce/lab/recipes.py` and the table): unlike in the paper gradients pass the threshold by a "
            "straight-through estimator, the decoder gets bits as -1 and 1, and hidden layers have no dropout, unless "
            "the search chose otherwise. Conjugate gradients train the recipe that the search starts from, with "
            "products in TensorFloat32. Figures show the run of least loss by Adam; claims are judged on every seed."
        )
    lab.departure(
        "The retrieval network has the paper's architecture, tied weights, p_B, β, penalties and sweeping, and is "
        "trained on crops and mirror images of CIFAR-10, which stand in for 80 Million Tiny Images: as many examples, "
        "of far fewer images. The weights of its penalties are ours."
    )
    lab.departure(
        f"80 Million Tiny Images was withdrawn: these are {len(images.train):,} images of {images.name}. Fewer bits "
        "separate so few images, and neighborhoods end sooner. The queries shown are at fixed ranks of the length at "
        "which they are alone, so that none is picked by hand."
    )


def add_search(lab: Lab) -> None:
    """Report the search for the recipe."""
    outcomes = search_recipes(lab)
    if not outcomes:
        return
    lengths = (1, 32, 128, 512)
    lab.table(
        ["recipe", "shortfall", "last loss", *(f"MSE, {length} bits" for length in lengths),
         *(f"recall, R = {r}" for r in RETRIEVED)],
        table_rows(outcomes, lengths),
        caption="Recipes of the retrieval network by their changes to the center of the search, the best first: a "
        "tenth of the budget, nine tenths of the training images; MSE and recall are of the last tenth.",
    )  # fmt: skip
    lab.measured["recipes"] = {
        str(recipe): {"errors": outcome.errors.tolist(), "recall": outcome.recall.tolist(), "loss": outcome.loss}
        for recipe, outcome in outcomes.items()
    }


def add_training(lab: Lab, adam: Mapping[int, Retrieval], conjugate: Retrieval) -> None:
    """Report how the retrieval network was trained, and the recall of its neighborhoods."""
    images = retrieval_images(lab)
    nearest = exact_neighbors(as_rows(images.test[:QUERIES]), as_rows(images.train), NEAREST)
    runs = {f"Adam, seed {seed}": one for seed, one in adam.items()} | {"conjugate gradients": conjugate}
    rows, found = [], {}
    for name, one in runs.items():
        tree = PrefixTree(one.codes)
        hoods = [tree.neighborhood(one.queries[:QUERIES], size=size) for size in RETRIEVED]
        found[name] = [recall([hood.ids for hood in each], nearest) for each in hoods]
        distinct = len(np.unique(one.codes.packed, axis=0)) / len(one.codes)
        rows += [
            [name, f"{one.examples / 1e6:.3g}", f"{one.curve[1, -1]:.4f}",
             *(f"{error:.4f}" for error in one.errors[1]), f"{distinct:.1%}",
             *(f"{share:.3f}" for share in found[name])],
            [f"{name}, {OWN}", "", "", *(f"{error:.4f}" for error in one.own_errors[1]), "",
             *("" for _ in found[name])],
        ]  # fmt: skip
    lengths = next(iter(runs.values())).lengths
    lab.table(
        ["trained by", "million examples", "last loss", *(f"MSE, {length} bits" for length in lengths),
         "distinct codes", *(f"recall, R = {r}" for r in RETRIEVED)],
        rows,
        caption=f"The retrieval network: MSE of test images by length, with tied weights as it was trained and "
        f"{OWN}, and the recall of the {NEAREST} nearest images by L2 of pixels in one neighborhood of a test image, "
        f"over {len(nearest):,} of them.",
    )  # fmt: skip
    searches = conjugate.searches
    if searches:
        lab.finding(
            "line searches satisfy the strong Wolfe conditions",
            where="section 4",
            ours=f"{searches['strong_wolfe'] / searches['searches']:.1%} of {searches['searches']:,} searches, with "
            f"{searches['evaluations'] / searches['searches']:.2f} evaluations each; {searches['zero_steps']:,} steps "
            "of 0",
            holds=searches["strong_wolfe"] >= 0.95 * searches["searches"],
            seeds=lab.seeds[:1],
        )
    for kind, errors in (
        ("as trained", {name: one.errors[1] for name, one in runs.items()}),
        (OWN, {name: one.own_errors[1] for name, one in runs.items()}),
    ):
        falls = {name: bool(np.all(np.diff(each) < 0)) for name, each in errors.items()}
        lab.finding(
            f"the error of test images falls at every doubling of the length, {kind}",
            ours="; ".join(f"{name}: {'falls' if falls[name] else 'does not'}, {each[0]:.4f} at 1 bit, {each[-1]:.4f} "
                           f"at {conjugate.codes.width}" for name, each in errors.items()),
            holds=all(falls.values()),
        )  # fmt: skip
    if lab.scale == "full":
        last = [one.own_errors[1, -1] for one in adam.values()]
        lab.finding(
            f"the MSE of test images at full width is below {GOAL_ERROR}, the goal of the search, {OWN}",
            ours=", ".join(f"{error:.4f}" for error in last) + " by seed; "
            + ", ".join(f"{one.errors[1, -1]:.4f}" for one in adam.values()) + " as trained",
            holds=max(last) < GOAL_ERROR,
        )  # fmt: skip
    lab.finding(
        "neighborhoods contain more of the nearest images than as many random images would",
        ours="; ".join(f"{name}: " + ", ".join(f"{share:.3f} at R = {size}"
                                               for share, size in zip(shares, RETRIEVED, strict=True))
                       for name, shares in found.items()),
        holds=all(share > size / len(images.train)
                  for shares in found.values() for share, size in zip(shares, RETRIEVED, strict=True)),
    )  # fmt: skip
    curves = {name: (one.curve, one.examples) for name, one in runs.items()}
    lab.figure("neighborhoods-training", figure_training(curves),
               "Training loss of the retrieval network by examples drawn; conjugate gradients evaluate each about "
               "three times.")  # fmt: skip
    lab.measured["training"] = {
        name: {"examples": one.examples, "curve": one.curve.tolist(), "errors": one.errors.tolist(),
               "own errors": one.own_errors.tolist(), "lengths": one.lengths.tolist(), "searches": one.searches,
               "recall": found[name]}
        for name, one in runs.items()
    }  # fmt: skip


def add_projections(lab: Lab, images: Images, found: Retrieval, seed: int) -> None:
    """Report locality-sensitive hashing: the sign of random projections of the pixels, beside the network's bits."""
    test = images.test[: lab.pick(toy=100, quick=300, full=500)]
    nearest = exact_neighbors(as_rows(test), as_rows(images.train), NEAREST)
    longest = found.codes.width * LSH_GROWTH
    stored = lab.cached(
        "neighborhoods-projections",
        lambda: {"items": projected(images.train, images.train, longest).packed,
                 "queries": projected(test, images.train, longest).packed},
        width=longest, items=len(images.train), queries=len(test),
    )  # fmt: skip
    items, queries = (Codes(stored[name], longest) for name in ("items", "queries"))
    bits = [2**power for power in range(3, longest.bit_length())]
    random = [hamming_recall(items, queries, b, nearest) for b in bits]
    learned = [hamming_recall(found.codes, found.queries[: len(test)], b, nearest)
               for b in bits if b <= found.codes.width]  # fmt: skip
    wanted = learned[bits.index(min(LSH_BITS, found.codes.width))]
    needed = next((b for b, share in zip(bits, random, strict=True) if share >= wanted), None)
    lab.finding(
        "locality-sensitive hashing needs long codes where the input has many dimensions",
        paper="very inefficient codes",
        where="section 1",
        ours=f"{images.train.shape[1]} dimensions: recall of the {NEAREST} nearest among the {SHORTLIST} nearest by "
        f"Hamming distance is {wanted:.3f} with {min(LSH_BITS, found.codes.width)} bits of the retrieval network; "
        + (f"random projections need {needed}" if needed else f"{longest} random projections have {random[-1]:.3f}"),
        holds=needed is None or needed >= LSH_FACTOR * LSH_BITS,
        seeds=(seed,),
    )
    lab.table(
        ["code", *(f"{b} bits" for b in bits)],
        [["random projections (LSH)", *(f"{share:.3f}" for share in random)],
         [DEEP, *(f"{share:.3f}" for share in learned), *("-" for _ in bits[len(learned) :])]],
        caption=f"Recall of the {NEAREST} nearest images among the {SHORTLIST} nearest by Hamming distance, "
        f"{len(test):,} test images as queries.",
    )  # fmt: skip
    lab.measured["projections"] = {"bits": bits, "random": random, "network": learned}


def projected(pixels: NDArray[np.uint8], train: NDArray[np.uint8], width: int) -> Codes:
    """Return the signs of random projections, around the mean of the training images."""
    directions = np.random.default_rng(0).standard_normal((train.shape[1], width), dtype=np.float32)
    mean = as_rows(train).mean(axis=0)
    parts = [(as_rows(part) - mean) @ directions > 0 for part in np.array_split(pixels, 20)]
    return Codes(np.packbits(np.concatenate(parts), axis=1), width)


def hamming_recall(items: Codes, queries: Codes, length: int, nearest: Ids) -> float:
    """Return the recall of the nearest items among the `SHORTLIST` nearest by Hamming distance of prefixes."""
    far = queries.prefix(length).hamming(items.prefix(length), threads=None)
    return round(recall(np.argpartition(far, SHORTLIST, axis=1)[:, :SHORTLIST], nearest), 4)


def linear_codes(lab: Lab, images: Images, width: int) -> Codes:
    """Return the codes of a LinearCoder, from the cache if they are there."""
    stored = lab.cached(
        "neighborhoods-coder",
        lambda: {"packed": LinearCoder(width).fit(images.train).encode(images.train).packed},
        width=width,
    )
    return Codes(stored["packed"], width)


def measure(images: Images, codes: Codes, queries: Ids, to_all: Floats) -> dict[str, NDArray[Any]]:
    """Return where queries are alone, if they ever are, and how similar the members of their neighborhoods are."""
    tree = PrefixTree(codes)
    found = [sizes(tree, codes[item]) for item in queries]
    return {
        "alone": np.array([length for _, length in found]),
        "single": np.array([count[length] == 1 for count, length in found]),
        **relative_distances(tree, codes, queries, to_all, images.labels),
    }


def sizes(tree: PrefixTree, query: Codes) -> tuple[Ids, int]:
    """Return the sizes of all neighborhoods of an item, and the length at which it is alone (the last if never)."""
    count = tree.nested(query).count
    return count, int(np.argmax(count == 1)) if (count == 1).any() else len(count) - 1


def distances(images: Images, queries: Ids) -> Floats:
    """Return squared distances of pixels, (queries, images)."""
    rows = as_rows(images.train)
    squares = (rows**2).sum(axis=1)
    return np.asarray(np.maximum(squares[queries, None] + squares - 2 * rows[queries] @ rows.T, 0), dtype=np.float32)


def relative_distances(
    tree: PrefixTree, codes: Codes, queries: Ids, to_all: Floats, labels: NDArray[np.uint8] | None
) -> dict[str, Doubles]:
    """Return the mean distance of a query to the other members of its neighborhood, relative to all items.

    It is (queries, sizes) by R and (queries, lengths) by length, NaN where there are no others. The share of members
    with the query's class is NaN without labels. `to_all` are the distances of the queries to all items.
    """
    by_size = np.empty((len(queries), len(SIZES)))
    by_length = np.full((len(queries), 65), np.nan)
    same = np.full((len(queries), len(SIZES)), np.nan)
    for row, (item, distance) in enumerate(zip(queries, to_all, strict=True)):
        mean = distance.sum() / (len(distance) - 1)  # its own is 0
        family = tree.nested(codes[item])
        for column, size in enumerate(SIZES):
            ids = tree.neighborhood(codes[item], size=size).ids
            others = ids[ids != item]
            by_size[row, column] = distance[others].mean() / mean
            if labels is not None:
                same[row, column] = (labels[others] == labels[item]).mean()
        for length in range(min(len(family), by_length.shape[1])):
            if family.count[length] > 1:
                by_length[row, length] = distance[family[length].ids].sum() / (family.count[length] - 1) / mean
    return {"by size": by_size, "by length": by_length, "same class": same}


def by_length(found: Mapping[str, NDArray[Any]]) -> tuple[Ids, Doubles]:
    """Return the lengths at which a tenth of the queries have other members, and their mean relative distance."""
    there = ~np.isnan(found["by length"])
    lengths = np.flatnonzero(there.mean(axis=0) >= 0.1)
    return lengths, np.nanmean(found["by length"][:, lengths], axis=0)


def octaves_in(lengths: Ids) -> list[int]:
    """Return the powers of two among lengths."""
    return [b for b in (1, 2, 4, 8, 16, 32, 64) if b in lengths]


def changes(found: Mapping[str, NDArray[Any]]) -> list[float]:
    """Return how much the relative distance changes at each doubling of the length; the same queries are compared."""
    values, (lengths, _) = found["by length"], by_length(found)  # NaN where a query is alone
    octaves = octaves_in(lengths)
    return [float(np.nanmean(values[:, b] - values[:, a])) for a, b in pairwise([0, *octaves])]


def queries_shown(alone: Ids) -> list[int]:
    """Return the queries at fixed ranks of the length at which they are alone."""
    order = np.argsort(alone, kind="stable")
    return [int(order[int(rank * (len(order) - 1))]) for rank in RANKS]


def grid_lengths(count: Ids, alone: int) -> list[int]:
    """Return the lengths of a query's rows: those with other members, and the one at which the query is alone.

    >>> grid_lengths(np.array([500, 300, 200, 100, 60, 30, 20, 9, 5, 2, 1]), alone=10)
    [8, 10]
    """
    return [length for length in LENGTHS if length < alone and count[length] > 1] + [alone]


def add_findings(
    lab: Lab,
    name: str,
    codes: Codes,
    queries: Ids,
    found: Mapping[str, NDArray[Any]],
    others: Sequence[Mapping[str, NDArray[Any]]] = (),
    seeds: tuple[int, ...] = (0,),
) -> None:
    """Report the statements on figure 4 for one kind of code: values of one run, verdicts on it and all others."""
    of_paper, runs = name.startswith(DEEP), [found, *others]
    lengths, curve = by_length(found)
    octaves = octaves_in(lengths)
    mean_by_size, at_octaves = found["by size"].mean(axis=0), [float(curve[lengths == b][0]) for b in octaves]
    statements = (
        (
            "smaller neighborhoods are more similar to the query",
            "similarity increases",
            "relative distance "
            + ", ".join(f"{value:.2f} at R = {size}" for value, size in zip(mean_by_size, SIZES, strict=True)),
            [bool(np.all(np.diff([1, *one["by size"].mean(axis=0)]) < 0)) for one in runs],
        ),
        (
            "similarity rises with length",
            "finer with each row",
            "relative distance "
            + ", ".join(f"{value:.2f} at {b}" for value, b in zip(at_octaves, octaves, strict=True))
            + " bits",
            [max(changes(one)) < 0 for one in runs],
        ),
        (
            "the last neighborhood is the query alone",
            "at 465 and 158 bits",
            f"{found['single'].mean():.1%} of queries; at {np.median(found['alone']):.0f} bits in the median, "
            f"{found['alone'].max()} at most",
            [bool(one["single"].mean() > 0.95) for one in runs],
        ),
    )
    for claim, paper, ours, holds in statements:
        every = f"; it holds for {sum(holds)} of {len(holds)} seeds" if others else ""
        lab.finding(
            f"{claim}, {name}", paper=paper if of_paper else None, ours=ours + every, holds=all(holds), seeds=seeds
        )
    nested = are_nested(codes, [int(queries[place]) for place in queries_shown(found["alone"])])
    lab.finding(f"each neighborhood is contained in the one before, {name}",
                paper="always" if name == DEEP else None, ours=str(nested), holds=nested, seeds=seeds)  # fmt: skip
    if not np.isnan(found["same class"]).any():
        shares = [f"{100 * share:.0f} %" for share in found["same class"].mean(axis=0)]
        lab.table(["R", *map(str, SIZES)], [["same class", *shares]],
                  caption=f"Share of members with the query's class, {name}.")  # fmt: skip
    lab.measured[name] = {"by size": mean_by_size.tolist(), "lengths": lengths.tolist(), "by length": curve.tolist(),
                          "changes": changes(found),
                          "alone": np.quantile(found["alone"], [0, 0.25, 0.5, 0.75, 1]).tolist()}  # fmt: skip


def are_nested(codes: Codes, queries: Sequence[int]) -> bool:
    """Return whether each neighborhood of these queries contains the next."""
    tree = PrefixTree(codes)
    return all(
        bool(np.isin(small.ids, large.ids).all())
        for query in queries
        for large, small in pairwise(tree.nested(codes[query]))
    )


EXPERIMENT = Experiment(
    "neighborhoods",
    "figure 4",
    "Nested neighborhoods of images",
    "As the terminal size R falls, the retrieved images become more similar to the query; more bits resolve it from "
    "similar images, and the last neighborhood contains the query only.",
    run,
)
