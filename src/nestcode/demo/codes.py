"""Chapter 2: bits of the ordered code find similar digits."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from nestcode.codes import Codes
from nestcode.data import digits
from nestcode.demo._linear import Floats, train
from nestcode.lengths import Uniform
from nestcode.report import Page

WIDTH, SHOWN = 32, 10
LENGTHS = (4, 8, 16, 32)


def add_chapter(page: Page, *, steps: int, console: Console) -> None:
    """Encode digits as 32 bits each and look for neighbours among them."""
    X, labels = digits()
    model = train(X, width=WIDTH, lengths=Uniform(), steps=steps, name="nested code of digits", console=console)
    units = model.encode(X)
    codes = Codes.from_bits(units > np.median(units, axis=0))
    order = np.random.default_rng(0).permutation(len(X))
    queries, rest = order[:200], order[200:]

    page.section(
        "Codes and their neighbours",
        f"Each of {len(X):,} digits becomes {WIDTH} bits: whether each unit of a nested code lies above its median. "
        f"Packed, all of them take {codes.packed.nbytes:,} bytes; their pixels take {X.nbytes:,}.",
    )
    shown = queries[np.unique(labels[queries], return_index=True)[1]]  # one of each digit
    nearest = codes[shown].hamming(codes[rest]).argsort(axis=1, kind="stable")[:, :SHOWN]
    page.figure(
        "neighbours",
        _neighbours_figure(X, shown, rest[nearest]),
        f"One of each digit, and the {SHOWN} others whose codes differ least from its code.",
    )
    rows = []
    for length in LENGTHS:
        short = codes.prefix(length)
        rows.append([length, f"{_agreement(short[queries], short[rest], labels[queries], labels[rest]):.3f}"])
    page.table(
        ["bits kept", "same digit"],
        rows,
        caption=f"How many of the {SHOWN} nearest codes show the query's digit, "
        f"over {len(queries)} queries; chance is 0.1.",
    )


def _agreement(queries: Codes, others: Codes, query_labels: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """The share of neighbours with the query's label; codes at the same distance count as one crowd."""
    shares = []
    for distance, label in zip(queries.hamming(others), query_labels, strict=True):
        cut = np.partition(distance, SHOWN - 1)[SHOWN - 1]
        inside, edge = labels[distance < cut] == label, labels[distance == cut] == label
        shares.append((inside.sum() + (SHOWN - len(inside)) * edge.mean()) / SHOWN)
    return float(np.mean(shares))


def _neighbours_figure(X: Floats, queries: NDArray[np.int64], neighbours: NDArray[np.int64]) -> Figure:
    figure = Figure(figsize=(7, 6.6))
    grid = figure.subplots(len(queries), SHOWN + 1, gridspec_kw={"wspace": 0.15, "hspace": 0.15})
    for row, query, found in zip(grid, queries, neighbours, strict=True):
        for axes, item in zip(row, [query, *found], strict=True):
            axes.imshow(X[item].reshape(8, 8), cmap="gray_r")
            axes.set(xticks=[], yticks=[])
        for spine in row[0].spines.values():
            spine.set(edgecolor="tab:red", linewidth=2)
    grid[0][0].set_title("query", fontsize=10)
    grid[0][1].set_title("nearest codes", fontsize=10, loc="left")
    return figure
