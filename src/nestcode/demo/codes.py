"""Chapter 3: cut codes search too, more roughly."""

import numpy as np
from numpy.typing import NDArray

from nestcode.coders import LinearCoder
from nestcode.data import digits
from nestcode.demo.drawing import found_figure
from nestcode.report import Page
from nestcode.search import asymmetric_distances

TITLE = "As many bits as the question needs"
WIDTH, NEAREST, SHOWN = 64, 10, 6
LENGTHS = (8, 16, 32, 64)
DRAWN = (8, 16, 64)

CODE = """
codes = coder.encode(digits)  # 64 bits each
short = codes.prefix(16)  # the first 16 of each: nothing is computed again
asymmetric_distances(coder, queries, short)
"""


def add_chapter(page: Page) -> str:
    """Encode digits as 64 bits each and look for neighbours among them, at several lengths."""
    X, labels = digits()
    order = np.random.default_rng(1).permutation(len(X))
    queries, rest = order[:200], order[200:]
    coder = LinearCoder(WIDTH).fit(X[rest])
    codes = coder.encode(X)

    page.section(
        TITLE,
        f"Each of {len(X):,} digits becomes {WIDTH} bits: {codes.packed.nbytes:,} bytes in all, where their pixels "
        f"take {X.size:,}. A short prefix of the same codes finds roughly similar ones, more bits find more similar "
        "ones. A query keeps its pixels: its distance to a code is summed up from tables, without decoding anything.",
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
        "neighbours",
        found_figure(panels),
        f"One of each digit on the left of each block, and the {SHOWN} others whose first {DRAWN[0]}, {DRAWN[1]} or "
        f"{DRAWN[2]} bits are nearest; other digits than the query's are framed.",
    )
    page.code(CODE.strip())
    rows = []
    for length in LENGTHS:
        short = codes.prefix(length)
        asymmetric = asymmetric_distances(coder, X[queries], short[rest])
        hamming = short[queries].hamming(short[rest])
        shares = [_agreement(distance, labels[queries], labels[rest]) for distance in (asymmetric, hamming)]
        rows.append([length, *(f"{share:.3f}" for share in shares)])
    page.table(
        ["bits kept", "asymmetric", "Hamming"],
        rows,
        caption=f"How many of the {NEAREST} nearest show the query's digit, over {len(queries)} queries; chance is 0.1."
        " Hamming distance counts late bits as much as early ones, so more of them may even hurt.",
    )
    told = ", ".join(f"{100 * float(str(row[1])):.0f} % by {row[0]}" for row in rows)
    return f"neighbours that show the same digit: {told} bits"


def _agreement(distances: NDArray[np.generic], query_labels: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """The share of neighbours with the query's label; codes at the same distance count as one crowd."""
    shares = []
    for distance, label in zip(distances, query_labels, strict=True):
        cut = np.partition(distance, NEAREST - 1)[NEAREST - 1]
        inside, edge = labels[distance < cut] == label, labels[distance == cut] == label
        shares.append((inside.sum() + (NEAREST - len(inside)) * edge.mean()) / NEAREST)
    return float(np.mean(shares))
