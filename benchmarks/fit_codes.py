"""What `nestcode.fit` chooses for codes alone: recall@10 of held-out queries by its codes, beside FAISS's.

    python benchmarks/fit_codes.py --folder DIR --items 20000 --json fit.json

The rows of sentences.npy in the folder (another set with --data) are items in random order, and 500 others queries by
the cosine. Each coder is fitted once, at the largest length: shorter codes are its prefixes. Distances are those to
what codes decode to. FAISS's residual quantizer, where it is installed, has codebooks of 256 entries and a beam of 5,
and is trained for each length. With --quick it is left out.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import nestcode as nc
from _choice_data import SETS, read_task
from _engine_task import Task, read_digits
from _report import save, show
from nestcode.arrays import Floats
from nestcode.coders.auto import Goal
from nestcode.metrics import exact_neighbors, recall

ITEMS, QUERIES, NEIGHBORS = 20_000, 500, 10
LENGTHS, QUICK_LENGTHS = (64, 128), (8, 16)
GOALS: tuple[Goal, ...] = ("search", "codes")
BEAM = 5  # of FAISS, its default

Row = dict[str, Any]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where the data sets are")
    parser.add_argument("--data", choices=SETS, default="sentences", help="the data set (default: sentences)")
    parser.add_argument("--items", type=int, default=ITEMS, metavar="N", help="how many items")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of unallocated bits
    task = read_digits("cosine") if options.quick else read_task(options.data, options.folder, "cosine")
    task = task.first(min(options.items, len(task.base)))
    rows = list(measure(task, task.queries[:QUERIES], quick=options.quick))
    packages = ["nestcode", "numpy", *(["faiss-cpu"] if find_spec("faiss") else [])]
    show(f"Codes alone: {task}, recall@{NEIGHBORS}", rows, "fit s: CPU seconds, with the trials of `nestcode.fit`.")
    save(options.json, rows, packages)


def measure(task: Task, queries: Floats, *, quick: bool) -> Iterator[Row]:
    """Yield the recall at each length, a row for each way to fit."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    exact = exact_neighbors(queries, task.base, NEIGHBORS, task.metric)

    def found(decoded: Floats) -> float:
        return round(recall(exact_neighbors(queries, decoded, NEIGHBORS, task.metric), exact), 3)

    for goal in GOALS:
        start = time.process_time()
        coder = nc.fit(task.base, lengths[-1], metric=task.metric, goal=goal)
        seconds, codes = time.process_time() - start, coder.encode(task.base)
        recalls = {f"{length} bits": found(coder.decode(codes.prefix(length))) for length in lengths}
        yield {"codes": f'fit(goal="{goal}"): {type(coder).__name__}'} | recalls | {"fit s": round(seconds, 1)}
    if find_spec("faiss") and not quick:
        start = time.process_time()
        recalls = {f"{length} bits": found(_faiss_decoded(task.base, length)) for length in lengths}
        yield {"codes": "FAISS residual quantizer"} | recalls | {"fit s": round(time.process_time() - start, 1)}


def _faiss_decoded(rows: Floats, bits: int) -> Floats:
    """Return what the codes of FAISS's residual quantizer decode to."""
    import faiss

    quantizer = faiss.ResidualQuantizer(rows.shape[1], bits // 8, 8)
    quantizer.max_beam_size = BEAM
    quantizer.train(rows)
    return np.asarray(quantizer.decode(quantizer.compute_codes(rows)), dtype=np.float32)


if __name__ == "__main__":
    main()
