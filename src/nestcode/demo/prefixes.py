"""Chapter 3: search with prefixes of the same codes."""

import numpy as np
from numpy.typing import NDArray

from nestcode.arrays import Ids
from nestcode.coders import LinearCoder
from nestcode.data import digits
from nestcode.demo.drawing import neighbors_figure
from nestcode.report import Page
from nestcode.search import asymmetric_distances

TITLE = "Search with prefixes"
WIDTH, NEAREST, SHOWN = 64, 10, 6
LENGTHS = (8, 16, 32, 64)
DRAWN = (8, 16, 64)

CODE = """
codes = coder.encode(digits)  # 64 bits each
short = codes.prefix(16)  # their first 16 bits; nothing is encoded again
asymmetric_distances(coder, queries, short)
"""


def add_chapter(page: Page) -> str:
    """Encode digits with 64 bits each, and search them by prefixes of several lengths."""
    X, labels = digits()
    order = np.random.default_rng(1).permutation(len(X))
    queries, rest = order[:200], order[200:]
    coder = LinearCoder(WIDTH).fit(X[rest])
    codes = coder.encode(X)

    page.section(
        TITLE,
        f"Each of {len(X):,} digits becomes {WIDTH} bits: {codes.packed.nbytes:,} bytes in all, where their pixels "
        f"take {X.size:,}. Short prefixes find coarsely similar digits, longer ones more similar digits. Queries stay "
        "uncompressed: asymmetric distance computation (ADC) sums lookup tables, without decoding any code.",
    )
    shown = queries[np.unique(labels[queries], return_index=True)[1]]  # one of each digit
    images = X.reshape(-1, 8, 8)
    panels = {}
    for length in DRAWN:
        distances = asymmetric_distances(coder, X[shown], codes[rest].prefix(length))
        nearest = rest[distances.argsort(axis=1, kind="stable")[:, :SHOWN]]
        wrong = labels[nearest] != labels[shown, None]
        panels[f"{length} bits"] = list(zip(images[shown], images[nearest], wrong.tolist(), strict=True))
    page.figure(
        "neighbors",
        neighbors_figure(panels),
        f"One query of each digit on the left of each block, and its {SHOWN} nearest by the first {DRAWN[0]}, "
        f"{DRAWN[1]} or {DRAWN[2]} bits; wrong digits are framed.",
    )
    page.code(CODE.strip())
    rows = []
    for length in LENGTHS:
        short = codes.prefix(length)
        asymmetric = asymmetric_distances(coder, X[queries], short[rest])
        hamming = short[queries].hamming(short[rest])
        precisions = [precision(distances, labels[queries], labels[rest]) for distances in (asymmetric, hamming)]
        rows.append([length, *(f"{value:.3f}" for value in precisions)])
    page.table(
        ["bits", "asymmetric", "Hamming"],
        rows,
        caption=f"Precision@{NEAREST}: share of the {NEAREST} nearest that show the query's digit, over "
        f"{len(queries)} queries; 0.1 by chance. Hamming distance weighs late bits like early ones, so more bits may "
        "even hurt.",
    )
    text = ", ".join(f"{row[1]} at {row[0]}" for row in rows)
    return f"precision@{NEAREST}: {text} bits"


def precision(distances: NDArray[np.generic], query_labels: Ids, labels: Ids) -> float:
    """Return the share of the NEAREST items with the query's label; ties at the last distance share their places."""
    shares = []
    for distance, label in zip(distances, query_labels, strict=True):
        last = np.partition(distance, NEAREST - 1)[NEAREST - 1]
        inside, tied = labels[distance < last] == label, labels[distance == last] == label
        shares.append((inside.sum() + (NEAREST - len(inside)) * tied.mean()) / NEAREST)
    return float(np.mean(shares))
