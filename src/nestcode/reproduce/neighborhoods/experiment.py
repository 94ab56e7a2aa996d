"""Figure 4 of the paper: nested neighborhoods of images, from many that are alike down to the query alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from nestcode import AutoencoderCoder, Codes, LinearCoder, PrefixTree
from nestcode.arrays import Doubles
from nestcode.nn import SemiLinearAutoencoder
from nestcode.reproduce.lab import Experiment, Images, Lab
from nestcode.training import find_preset

LENGTHS = (8, 16, 32, 64, 128, 256)  # shown, where more than the query is left
SHOWN = 32
BETA = 0.2
SIZES = (512, 128, 32, 8, 2)  # R
RANKS = (0.25, 0.5, 0.9, 1.0)  # of queries, by the length at which they are alone
DEEP, FLAT, OURS = (
    "the paper's network",
    "the paper's linear model",
    "our linear coder",
)  # figures have their last words


def encode_flat(images: Images, width: int) -> Codes:
    """The paper's model without hidden layers: principal directions, by theorem 3, thresholded at a quantile."""
    rows = images.train.astype(np.float32) / np.float32(255)
    units = SemiLinearAutoencoder(width, orthonormal=True).fit(rows).encode(rows).numpy()
    units *= np.sign((units**3).mean(axis=0))  # signs are free: ones are on the side of the longer tail
    return Codes.from_bits(units > np.quantile(units, 1 - BETA, axis=0))


def encode_deep(images: Images, epochs: int) -> Codes:
    """The paper's 3072-2048-1024-512 network, with its constants."""
    training = replace(find_preset("paper-retrieval").training, epochs=epochs)
    rows = images.train.astype(np.float32) / np.float32(255)
    return AutoencoderCoder(preset="paper-retrieval", training=training).fit(rows, progress=False).encode(rows)


def encode_ours(images: Images, width: int) -> Codes:
    """Bits of a linear coder: several for the first directions, one or none for the last."""
    return LinearCoder(width).fit(images.train).encode(images.train)


def company(tree: PrefixTree, query: Codes) -> tuple[NDArray[np.int64], int]:
    """The sizes of all neighborhoods of an item, and the length at which it is alone (or the last, if it never is)."""
    count = tree.nested(query).count
    return count, int(np.argmax(count == 1)) if (count == 1).any() else len(count) - 1


def choose(alone: NDArray[np.int64]) -> list[int]:
    """Queries that are soon alone and late, by rank: what is shown is not picked by hand."""
    order = np.argsort(alone, kind="stable")
    return [int(order[int(rank * (len(order) - 1))]) for rank in RANKS]


def rows_of(count: NDArray[np.int64], alone: int) -> list[int]:
    """The lengths of the rows: those where others are left, and the one where the query is alone.

    >>> rows_of(np.array([500, 300, 200, 100, 60, 30, 20, 9, 5, 2, 1]), alone=10)
    [8, 10]
    """
    return [length for length in LENGTHS if length < alone and count[length] > 1] + [alone]


def distances(images: Images, asked: NDArray[np.int64]) -> NDArray[np.float32]:
    """Squared distances of pixels, (asked, images)."""
    rows = images.train.astype(np.float32) / np.float32(255)
    squares = (rows**2).sum(axis=1)
    return np.asarray(np.maximum(squares[asked, None] + squares - 2 * rows[asked] @ rows.T, 0), dtype=np.float32)


def nearness(
    tree: PrefixTree, codes: Codes, asked: NDArray[np.int64], far: NDArray[np.float32], labels: NDArray[np.uint8] | None
) -> dict[str, Doubles]:
    """How near the others in a neighborhood are, in units of the mean over all items: by R and by length.

    `far` are the distances of those asked for to all items. Class shares are NaN without labels.
    """
    by_size = np.empty((len(asked), len(SIZES)))
    by_length = np.full((len(asked), 65), np.nan)
    same = np.full((len(asked), len(SIZES)), np.nan)
    for row, (item, distance) in enumerate(zip(asked, far, strict=True)):
        usual = distance.sum() / (len(distance) - 1)  # its own is 0
        family = tree.nested(codes[item])
        for column, size in enumerate(SIZES):
            ids = tree.neighborhood(codes[item], size=size).ids
            others = ids[ids != item]
            by_size[row, column] = distance[others].mean() / usual
            if labels is not None:
                same[row, column] = (labels[others] == labels[item]).mean()
        for length in range(min(len(family), by_length.shape[1])):
            if family.count[length] > 1:
                by_length[row, length] = distance[family[length].ids].sum() / (family.count[length] - 1) / usual
    return {"by size": by_size, "by length": by_length, "same class": same}


def measure(
    images: Images, codes: Codes, asked: NDArray[np.int64], far: NDArray[np.float32]
) -> dict[str, NDArray[Any]]:
    """What one kind of codes gives: where queries are alone, if they are, and how near their neighborhoods are."""
    tree = PrefixTree(codes)
    found = [company(tree, codes[item]) for item in asked]
    return {
        "alone": np.array([length for _, length in found]),
        "single": np.array([count[length] == 1 for count, length in found]),
        **nearness(tree, codes, asked, far, images.labels),
    }


def run(lab: Lab) -> None:
    """Grids of neighborhoods, and how alike their members are."""
    images = lab.images(lab.pick(toy=1500, quick=None, full=None), 1)
    width = lab.pick(toy=256, quick=256, full=512)
    many = lab.pick(toy=200, quick=300, full=2000)
    asked = np.sort(np.random.default_rng(lab.seeds[0]).permutation(len(images.train))[:many])
    kinds: dict[str, Callable[[], Codes]] = {
        FLAT: lambda: encode_flat(images, width),
        OURS: lambda: encode_ours(images, width),
    }
    if lab.scale == "full" and images.side == 32:
        kinds = {DEEP: lambda: encode_deep(images, epochs=200), **kinds}
    else:
        lab.departure(f"{DEEP.capitalize()} is trained at full scale and on CIFAR-10 only: its linear limit stands in.")
    far = distances(images, asked)
    near = {}
    for name, encode in kinds.items():
        with lab.console.status(f"  {name}"):
            codes = kept_codes(lab, name, encode, width)
            found = measure(images, codes, asked, far)
        near[name] = found
        add_findings(lab, name, codes, asked, found)
        lab.figure(
            f"neighborhoods-{name.split()[-1]}",
            figure_grids(images, codes, [int(asked[place]) for place in choose(found["alone"])]),
            f"Nested neighborhoods by {name}, {len(codes):,} images of {images.name}. Rows are neighborhoods N_b of "
            f"growing length b, with the number of their members; the first {SHOWN} are shown in order of the data, "
            "the query in a frame left of them. The last row is the query alone.",
        )
    lab.figure(
        "neighborhoods-similarity",
        figure_similarity(near),
        "Mean squared distance of pixels from a query to the others in its neighborhood, in units of that to all. "
        "Left: by the size R at which retrieval ends. Right: by length, while a tenth of the queries have company.",
    )
    lab.departure(
        f"80 Million Tiny Images was withdrawn: these are {len(images.train):,} images of {images.name}. So few are "
        "told apart by fewer bits, and neighborhoods end sooner. Queries are at fixed ranks of the length at which "
        "they are alone, so that none is picked by hand."
    )


def kept_codes(lab: Lab, name: str, encode: Callable[[], Codes], width: int) -> Codes:
    """Codes that are made once."""
    kept = lab.cached(f"neighborhoods-{name.split()[-1]}", lambda: {"packed": encode().packed}, width=width)
    return Codes(kept["packed"], width)


def add_findings(
    lab: Lab, name: str, codes: Codes, asked: NDArray[np.int64], found: Mapping[str, NDArray[Any]]
) -> None:
    """What figure 4 says, in numbers."""
    by_size = found["by size"].mean(axis=0)
    steps = ", ".join(f"{near:.2f} at R = {size}" for near, size in zip(by_size, SIZES, strict=True))
    lab.finding(
        f"smaller neighborhoods are more alike, {name}",
        paper="similarity increases",
        ours=f"distance 1 over all, {steps}",
        holds=bool(np.all(np.diff([1, *by_size]) < 0)),
    )
    lengths, curve = by_length(found)
    octaves = [b for b in (1, 2, 4, 8, 16, 32, 64) if b in lengths]
    told = ", ".join(f"{curve[lengths == b][0]:.2f} at {b}" for b in octaves)
    values = found["by length"]  # NaN where a query is alone, so that changes are of the same queries
    changes = [float(np.nanmean(values[:, b] - values[:, a])) for a, b in pairwise([0, *octaves])]
    lab.finding(
        f"similarity rises with length, {name}",
        paper="finer with each row",
        ours=f"distance 1 over all, {told} bits",
        holds=max(changes) < 0,
    )
    lab.finding(
        f"the last neighborhood is the query alone, {name}",
        paper="at 465 and 158 bits",
        ours=f"{found['single'].mean():.1%} of queries; at {np.median(found['alone']):.0f} bits in the median, "
        f"{found['alone'].max()} at most",
        holds=bool(found["single"].mean() > 0.95),
    )
    tree = PrefixTree(codes)
    nested = all(
        np.isin(small.ids, large.ids).all()
        for place in choose(found["alone"])
        for large, small in pairwise(tree.nested(codes[int(asked[place])]))
    )
    lab.finding(f"each neighborhood lies in the one before, {name}", paper="always", ours=str(nested), holds=nested)
    if not np.isnan(found["same class"]).any():
        shares = [f"{100 * share:.0f} %" for share in found["same class"].mean(axis=0)]
        lab.table(["R", *map(str, SIZES)], [["same class", *shares]], caption=f"Members of the query's class, {name}.")
    lab.measured[name] = {"by size": by_size.tolist(), "lengths": lengths.tolist(), "by length": curve.tolist(),
                         "changes": changes,
                         "alone": np.quantile(found["alone"], [0, 0.25, 0.5, 0.75, 1]).tolist()}  # fmt: skip


def by_length(found: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], Doubles]:
    """Lengths at which a tenth of the queries still have company, and the mean over those that have."""
    there = ~np.isnan(found["by length"])
    lengths = np.flatnonzero(there.mean(axis=0) >= 0.1)
    return lengths, np.nanmean(found["by length"][:, lengths], axis=0)


def figure_grids(images: Images, codes: Codes, queries: Sequence[int]) -> Figure:
    """A block of rows for each query."""
    tree = PrefixTree(codes)
    blocks = [(query, rows_of(*company(tree, codes[query]))) for query in queries]
    heights = [1.0 for _, lengths in blocks for _ in [*lengths, None]][:-1]
    figure = Figure(figsize=(12, 0.42 * len(heights)), layout="constrained")
    every = iter(figure.subplots(len(heights), 1))
    for number, (query, lengths) in enumerate(blocks):
        if number:
            next(every).set_axis_off()  # a gap between queries
        family = tree.nested(codes[query])
        for length in lengths:
            label = f"$N_{{{length}}}$: {family.count[length]:,}"
            draw_row(next(every), images, query if length == lengths[0] else None, family[length].ids, label)
    return figure


def draw_row(axes: Axes, images: Images, query: int | None, ids: NDArray[np.int64], label: str) -> None:
    """The first members of a neighborhood side by side, and left of them the query where it is given."""
    side = images.side
    strip = np.full((side, (SHOWN + 5) * side, 3), 255, dtype=np.uint8)  # room for the query and a label
    for place, item in enumerate(ids[:SHOWN], start=5):
        strip[:, place * side : (place + 1) * side] = images.as_images(images.train[item])[0]
    if query is not None:
        strip[:, :side] = images.as_images(images.train[query])[0]
        axes.add_patch(Rectangle((-0.5, -0.5), side, side, fill=False, edgecolor="#d55e00", linewidth=3))
    axes.imshow(strip, interpolation="nearest")
    axes.set_axis_off()
    axes.text(4.8 * side, side / 2, label, ha="right", va="center", fontsize=10)


def figure_similarity(near: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """How near neighborhoods are."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    styles = zip(("o-", "s--", "D:"), ("#d55e00", "#0072b2", "#009e73"), strict=True)
    for (name, found), (style, color) in zip(near.items(), styles, strict=False):
        mean = found["by size"].mean(axis=0)
        spread = 2 * found["by size"].std(axis=0) / np.sqrt(len(found["by size"]))
        left.errorbar(range(len(SIZES)), mean, spread, fmt=style, color=color, label=name, capsize=3)
        right.plot(*by_length(found), style, color=color, markersize=4, label=name)
    for axes in (left, right):
        axes.axhline(1, color="0.5", linewidth=1)
        axes.grid(alpha=0.3)
        axes.set_ylim(0, 1.1)
    left.set_xticks(range(len(SIZES)), [str(size) for size in SIZES])
    left.set(xlabel="size R at which retrieval ends", ylabel="distance of members / of all images",
             title="Smaller neighborhoods are more alike")  # fmt: skip
    right.set(xlabel="length of the prefix, bits", title="More bits, more alike")
    left.legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    "neighborhoods",
    "figure 4",
    "Neighborhoods of images, finer with every bit",
    "As the terminal size R falls, what is retrieved becomes more similar to the query; more bits tell it better from "
    "images like it, and the last neighborhood holds the query only.",
    run,
)
