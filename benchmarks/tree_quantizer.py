"""Recall of one neighborhood of a tree-structured vector quantizer: what a single path of a binary tree can find.

    nestcode data cifar10 --to DIR
    python benchmarks/tree_quantizer.py --data DIR           # a minute

Every cell is split in two by 2-means on its own, without the limits of a network or of one function per bit. A query
walks down, and its neighborhood is the last cell of at least R items, as in section 5 of the paper.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import save, show
from nestcode import data
from nestcode.arrays import Floats, Ids
from nestcode.metrics import exact_neighbors, recall

SIZES = (2, 32, 512)  # terminal sizes R
NEAREST = 10
DIRECTIONS = 128  # principal components that cells are split by
ROUNDS = 15  # of 2-means
SEEN = 500  # items of a cell that the first direction is of


def main() -> None:
    """Split, walk, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="where CIFAR-10 is")
    parser.add_argument("--queries", type=int, default=1000, help="how many test images")
    parser.add_argument("--quick", action="store_true", help="digits: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    if options.data is None and not options.quick:
        parser.error("give --data DIR, where `nestcode data cifar10 --to DIR` put CIFAR-10")
    X, queries = digits() if options.quick else cifar10(options.data, options.queries)
    nearest = exact_neighbors(queries, X, NEAREST)
    mean = X.mean(axis=0)
    vectors = np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :DIRECTIONS].astype(np.float32)
    rows = [measure((X - mean) @ vectors, (queries - mean) @ vectors, nearest, size) for size in SIZES]
    show("Tree-structured vector quantizer", rows, f"{len(X):,} items, {len(queries):,} queries, recall@{NEAREST}.")
    save(options.json, rows, ["nestcode", "numpy"])


def measure(X: Floats, queries: Floats, nearest: NDArray[np.int64], size: int) -> dict[str, Any]:
    """Return recall and mean size of the neighborhoods of at least `size` items."""
    rng, found = np.random.default_rng(0), dict[int, Ids]()
    cells = [(np.arange(len(X)), np.arange(len(queries)))]
    while cells:
        ids, walking = cells.pop()
        upper, normal, middle = split(X[ids], rng)
        ahead = (queries[walking] - middle) @ normal > 0
        for side in (False, True):
            half, own = ids[upper == side], walking[ahead == side]
            if len(half) >= max(size, 2) and len(half) < len(ids) and len(own):
                cells.append((half, own))
            else:  # fewer than R: the neighborhood before is the answer
                found |= dict.fromkeys(own.tolist(), ids)
    hoods = [found[query] for query in range(len(queries))]
    return {"R": size, "recall": recall(hoods, nearest), "members": float(np.mean([len(ids) for ids in hoods]))}


def split(rows: Floats, rng: np.random.Generator) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Return the half of each row by 2-means, and the normal and a point of the boundary."""
    seen = rows[rng.permutation(len(rows))[:SEEN]]
    normal, middle = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)[2][0], rows.mean(axis=0)
    upper = (rows - middle) @ normal > 0
    for _ in range(ROUNDS):
        if upper.all() or not upper.any():
            break
        low, high = rows[~upper].mean(axis=0), rows[upper].mean(axis=0)
        normal, middle = high - low, (low + high) / 2
        upper = (rows - middle) @ normal > 0
    return upper, normal, middle


def cifar10(folder: Path, queries: int) -> tuple[Floats, Floats]:
    """Return training and test images, (n, 3072), in [0, 1]."""
    found = data.cifar10(folder)
    return np.divide(found.train, 255, dtype=np.float32), np.divide(found.test[:queries], 255, dtype=np.float32)


def digits() -> tuple[Floats, Floats]:
    """Return training and test digits."""
    rows = data.digits()[0].astype(np.float32)
    return rows[300:], rows[:300]


if __name__ == "__main__":
    main()
