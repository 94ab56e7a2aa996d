"""What an index costs beside its codes: bytes per item by part, and the first search after opening it.

Items are CIFAR-10 with --data DIR, else patches of the sample images. "heads" and "tables" are the prefix tree,
"places" finds items by id: heads are in memory after the first neighborhood, places after the first use of an id;
"all uses" is after a search and both of these. "blocks" are the bits that fast-scan reads, in its own order, with
"biases", and "norms" those that ADC and angles need; "prepared" is what a search keeps beside these. Times are CPU
times; NumPy's is a matrix product and argpartition.
"""

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _report import arguments, images, save, seconds_each, show
from nestcode import CellCoder, Coder, Index, LinearCoder, ResidualCoder

Rows = NDArray[np.float32]
SMALL = 1000  # items of an index that is searched exhaustively
PARTS = ("ids", "heads", "tables", "places", "blocks", "biases", "norms", "prepared", "buffer")


def main() -> None:
    """Measure, print and save."""
    options = arguments(__doc__)
    name, train, test = images(options)
    items, queries = (rows.astype(np.float32) for rows in (train, test[:100]))
    width = 24 if options.quick else 256
    coders = [kind(width).fit(items[:10_000]) for kind in (LinearCoder, ResidualCoder, CellCoder)]
    sizes = [bytes_of(coder, items, queries) for coder in coders]
    times = [times_of(coder, items, queries, graph=False) for coder in coders]
    times.append({**times_of(coders[0], items, queries, graph=True), "coder": "LinearCoder, graph"})
    show(f"Bytes per item beside {width // 8} of the code, {len(items):,} {name}", sizes, "after a search")
    show(
        "Milliseconds of one query",
        times,
        f"small: exhaustive among {SMALL:,} items, by codes and by stored vectors; NumPy: by vectors",
    )
    rows = [{"table": table, **row} for table, rows in (("bytes", sizes), ("times", times)) for row in rows]
    save(options.json, rows, ["nestcode", "numpy"])


def bytes_of(coder: Coder, items: Rows, queries: Rows) -> dict[str, Any]:
    """Return the bytes per item of each part but the codes, after a search; and of all after all uses."""
    index = Index(coder)
    index.add(items)
    index.search(queries)
    sizes = index.nbytes_by_part()
    own = sizes.pop("codes", 0)  # a small index has all items in its buffer
    parts = {part: sizes.get(part, 0) / len(index) for part in PARTS}
    index.neighborhood(queries, size=10)
    index.codes([0])
    used = (index.nbytes - own) / len(index)
    return {"coder": type(coder).__name__, **parts, "all": sum(sizes.values()) / len(index), "all uses": used}


def times_of(coder: Coder, items: Rows, queries: Rows, *, graph: bool) -> dict[str, Any]:
    """Return milliseconds to open an index, of the first search and of later ones, and of searches in a small index."""
    folder = Path(tempfile.mkdtemp())
    try:
        index = Index(coder, graph=graph)
        index.add(items)
        index.save(folder)
        clock = time.process_time
        start = clock()
        opened = Index.open(folder)
        begun = clock()
        opened.search(queries[0])
        first = clock() - begun
        later = seconds_each({"later": partial(search_each, opened, queries)}, rounds=3, clock=clock)["later"]
    finally:
        shutil.rmtree(folder)
    by_codes, by_vectors = Index(coder), Index(coder, vectors="float32")
    for small in (by_codes, by_vectors):
        small.add(items[:SMALL])
    jobs = {
        "small, codes": partial(search_each, by_codes, queries),
        "small, vectors": partial(search_each, by_vectors, queries),
        "small, NumPy": partial(numpy_each, items[:SMALL], queries),
    }
    best = {"later": later, **seconds_each(jobs, rounds=5, clock=clock)}
    return {
        "coder": type(coder).__name__,
        "open": 1e3 * (begun - start),
        "first": 1e3 * first,
        **{job: 1e3 * seconds / len(queries) for job, seconds in best.items()},
    }


def search_each(index: Index, queries: Rows) -> None:
    """Search one query after the other."""
    for query in queries:
        index.search(query)


def numpy_each(items: Rows, queries: Rows, k: int = 10) -> None:
    """Find the k nearest items of one query after the other by a matrix product."""
    norms = np.einsum("nf,nf->n", items, items)
    for query in queries:
        distances = norms - 2 * (items @ query)
        nearest = np.argpartition(distances, k)[:k]
        _ = nearest[np.argsort(distances[nearest])]


if __name__ == "__main__":
    main()
