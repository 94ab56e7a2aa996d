"""Chapter 4: codes find similar digits, and it matters how they are compared."""

import numpy as np
from numpy.typing import NDArray

from nestcode.coders import LinearCoder
from nestcode.data import digits
from nestcode.demo._pictures import found_figure
from nestcode.report import Page

WIDTH, SHOWN = 64, 10
LENGTHS = (8, 16, 32, 64)


def add_chapter(page: Page) -> None:
    """Encode digits as 64 bits each and look for neighbours among them."""
    X, labels = digits()
    order = np.random.default_rng(0).permutation(len(X))
    queries, rest = order[:200], order[200:]
    coder = LinearCoder(WIDTH).fit(X[rest])
    codes = coder.encode(X)

    page.section(
        "Codes and their neighbours",
        f"Each of {len(X):,} digits becomes {WIDTH} bits: {codes.packed.nbytes:,} bytes in all; their pixels take "
        f"{X.nbytes:,}. A query keeps its pixels: its distance to a code is that to the decoded prefix, summed up from "
        "tables without decoding anything.",
    )
    shown = queries[np.unique(labels[queries], return_index=True)[1]]  # one of each digit
    nearest = coder.asymmetric_distances(X[shown], codes[rest]).argsort(axis=1, kind="stable")[:, :SHOWN]
    images = X.reshape(-1, 8, 8)
    page.figure(
        "neighbours",
        found_figure(list(zip(images[shown], images[rest[nearest]], strict=True)), "nearest codes", 6.6, 0.15),
        f"One of each digit, and the {SHOWN} others whose codes are nearest to it.",
    )
    rows = []
    for length in LENGTHS:
        short = codes.prefix(length)
        asymmetric = coder.asymmetric_distances(X[queries], short[rest])
        hamming = short[queries].hamming(short[rest])
        shares = [_agreement(distance, labels[queries], labels[rest]) for distance in (asymmetric, hamming)]
        rows.append([length, *(f"{share:.3f}" for share in shares)])
    page.table(
        ["bits kept", "asymmetric", "Hamming"],
        rows,
        caption=f"How many of the {SHOWN} nearest show the query's digit, over {len(queries)} queries; chance is 0.1.",
    )


def _agreement(distances: NDArray[np.generic], query_labels: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """The share of neighbours with the query's label; codes at the same distance count as one crowd."""
    shares = []
    for distance, label in zip(distances, query_labels, strict=True):
        cut = np.partition(distance, SHOWN - 1)[SHOWN - 1]
        inside, edge = labels[distance < cut] == label, labels[distance == cut] == label
        shares.append((inside.sum() + (SHOWN - len(inside)) * edge.mean()) / SHOWN)
    return float(np.mean(shares))
