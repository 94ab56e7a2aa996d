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
from nestcode.reproduce.lab.retrieval import adam_runs, retrieval, retrieval_images
from nestcode.reproduce.neighborhoods.figures import SHOWN, SIZES, figure_grids, figure_similarity, figure_training

RETRIEVED = (2, 32, 512)  # terminal sizes whose recall is measured
LENGTHS = (8, 16, 32, 64, 128, 256)  # rows of the grid, while others share the query's prefix
RANKS = (0.25, 0.5, 0.9, 1.0)  # of the queries shown, by the length at which they are alone
# Last words name the figures.
DEEP, CONJUGATE = "the retrieval network", "the retrieval network by conjugate gradients"
OURS = "our linear coder"
NEAREST = 10  # images that a neighborhood should contain
QUERIES = 2000  # test images, at most, that recall is of


def run(lab: Lab) -> None:
    """Draw grids of nested neighborhoods, and measure how similar their members are."""
    images = retrieval_images(lab)
    trained = {DEEP: retrieval(lab), CONJUGATE: retrieval(lab, "conjugate")}
    many = lab.pick(toy=200, quick=300, full=500)
    queries = np.sort(np.random.default_rng(lab.seeds[0]).permutation(len(images.train))[:many])
    kinds = {name: one.codes for name, one in trained.items()}
    kinds[OURS] = linear_codes(lab, images, kinds[DEEP].width)
    add_training(lab)
    to_all = distances(images, queries)
    results = {}
    for name, codes in kinds.items():
        with lab.console.status(f"  {name}"):
            results[name] = found = measure(images, codes, queries, to_all)
        add_findings(lab, name, codes, queries, found)
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
                          {name: by_length(found) for name, found in results.items()}),
        "Mean squared distance of pixels from a query to the other members of its neighborhood, relative to that to "
        "all images. Left: by the terminal size R. Right: by length, while a tenth of the queries have other members.",
    )  # fmt: skip
    lab.departure(
        "Figures use the run by Adam with the full budget and the one by conjugate gradients. At a rate of 1e-3, with "
        "which a quarter of the budget ends at a lower loss, hidden units die in the full budget and the loss rises: "
        "its rate is a quarter of that."
    )
    lab.departure(
        "The retrieval network is trained with the paper's architecture, p_B, β, penalties and sweeping on crops and "
        "mirror images of CIFAR-10, which stand in for 80 Million Tiny Images: as many examples, of far fewer images. "
        "The weights of its penalties are ours (see `training/presets.py`)."
    )
    lab.departure(
        f"80 Million Tiny Images was withdrawn: these are {len(images.train):,} images of {images.name}. Fewer bits "
        "separate so few images, and neighborhoods end sooner. The queries shown are at fixed ranks of the length at "
        "which they are alone, so that none is picked by hand."
    )


def add_training(lab: Lab) -> None:
    """Report how the retrieval network was trained, and the recall of its neighborhoods."""
    images = retrieval_images(lab)
    nearest = exact_neighbors(as_rows(images.test[:QUERIES]), as_rows(images.train), NEAREST)
    adam = adam_runs(lab)
    runs = {f"Adam, seed {seed}": one for seed, one in adam.items()}
    runs["conjugate gradients"] = retrieval(lab, "conjugate")
    rows, found = [], {}
    for name, one in runs.items():
        tree = PrefixTree(one.codes)
        hoods = [tree.neighborhood(one.queries[:QUERIES], size=size) for size in RETRIEVED]
        found[name] = [recall([hood.ids for hood in each], nearest) for each in hoods]
        distinct = len(np.unique(one.codes.packed, axis=0)) / len(one.codes)
        rows.append([name, f"{one.examples / 1e6:.3g}", f"{one.curve[1, -1]:.4f}", f"{one.errors[1, -1]:.4f}",
                     f"{distinct:.1%}", *(f"{share:.3f}" for share in found[name])])  # fmt: skip
    lab.table(
        [
            "trained by",
            "million examples",
            "last loss",
            "MSE of test images",
            "distinct codes",
            *(f"recall, R = {r}" for r in RETRIEVED),
        ],
        rows,
        caption=f"The retrieval network, and the recall of the {NEAREST} nearest images by L2 of pixels in one "
        f"neighborhood of a test image, over {len(nearest):,} of them.",
    )
    searches = runs["conjugate gradients"].searches
    if searches:
        lab.finding(
            "line searches satisfy the strong Wolfe conditions",
            paper="a strong Wolfe conditions line search",
            where="section 4",
            ours=f"{searches['strong_wolfe'] / searches['searches']:.1%} of {searches['searches']:,} searches, with "
            f"{searches['evaluations'] / searches['searches']:.2f} evaluations each; {searches['zero_steps']:,} steps "
            "of 0",
            holds=searches["strong_wolfe"] >= 0.95 * searches["searches"],
            seeds=lab.seeds[:1],
        )
    first, *others = adam.values()
    if others:
        lab.finding(
            "more training lowers the loss",
            ours="; ".join(f"{one.examples / 1e6:.3g} million examples: {one.curve[1, -1]:.3f}, at the lowest "
                           f"{one.curve[1].min():.3f} after {one.curve[0, one.curve[1].argmin()]:,.0f} steps"
                           for one in adam.values()),
            holds=bool(first.curve[1, -1] < min(one.curve[1, -1] for one in others)),
        )  # fmt: skip
    shares = next(iter(found.values()))
    lab.finding(
        "neighborhoods contain more of the nearest images than as many random images would",
        ours=", ".join(f"{share:.3f} at R = {size}" for share, size in zip(shares, RETRIEVED, strict=True)),
        holds=all(share > size / len(images.train) for share, size in zip(shares, RETRIEVED, strict=True)),
        seeds=lab.seeds[:1],
    )
    curves = {name: (one.curve, one.examples) for name, one in runs.items()}
    lab.figure("neighborhoods-training", figure_training(curves),
               "Training loss of the retrieval network by examples drawn; conjugate gradients evaluate each about two "
               "and a half times.")  # fmt: skip
    lab.measured["training"] = {
        name: {"examples": one.examples, "curve": one.curve.tolist(), "errors": one.errors.tolist(),
               "lengths": one.lengths.tolist(), "searches": one.searches, "recall": found[name]}
        for name, one in runs.items()
    }  # fmt: skip


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


def add_findings(lab: Lab, name: str, codes: Codes, queries: Ids, found: Mapping[str, NDArray[Any]]) -> None:
    """Report the statements on figure 4 for one kind of code."""
    of_paper, seeds = name.startswith(DEEP), lab.seeds[:1]
    mean_by_size = found["by size"].mean(axis=0)
    lab.finding(
        f"smaller neighborhoods are more similar to the query, {name}",
        paper="similarity increases" if of_paper else None,
        ours="relative distance "
        + ", ".join(f"{value:.2f} at R = {size}" for value, size in zip(mean_by_size, SIZES, strict=True)),
        holds=bool(np.all(np.diff([1, *mean_by_size]) < 0)),
        seeds=seeds,
    )
    lengths, curve = by_length(found)
    octaves = [b for b in (1, 2, 4, 8, 16, 32, 64) if b in lengths]
    at_octaves = ", ".join(f"{curve[lengths == b][0]:.2f} at {b}" for b in octaves)
    values = found["by length"]  # NaN where a query is alone, so that changes compare the same queries
    changes = [float(np.nanmean(values[:, b] - values[:, a])) for a, b in pairwise([0, *octaves])]
    lab.finding(
        f"similarity rises with length, {name}",
        paper="finer with each row" if of_paper else None,
        ours=f"relative distance {at_octaves} bits",
        holds=max(changes) < 0,
        seeds=seeds,
    )
    lab.finding(
        f"the last neighborhood is the query alone, {name}",
        paper="at 465 and 158 bits" if of_paper else None,
        ours=f"{found['single'].mean():.1%} of queries; at {np.median(found['alone']):.0f} bits in the median, "
        f"{found['alone'].max()} at most",
        holds=bool(found["single"].mean() > 0.95),
        seeds=seeds,
    )
    nested = are_nested(codes, [int(queries[place]) for place in queries_shown(found["alone"])])
    lab.finding(f"each neighborhood is contained in the one before, {name}",
                paper="always" if of_paper else None, ours=str(nested), holds=nested, seeds=seeds)  # fmt: skip
    if not np.isnan(found["same class"]).any():
        shares = [f"{100 * share:.0f} %" for share in found["same class"].mean(axis=0)]
        lab.table(["R", *map(str, SIZES)], [["same class", *shares]],
                  caption=f"Share of members with the query's class, {name}.")  # fmt: skip
    lab.measured[name] = {"by size": mean_by_size.tolist(), "lengths": lengths.tolist(), "by length": curve.tolist(),
                          "changes": changes,
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
