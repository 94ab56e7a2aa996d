"""The graphs that `graph.py` compares: ours, and SymphonyQG with float32 vectors and with 8 bits a dimension.

As a program it prints how much memory a saved graph takes in a process of its own:

    python benchmarks/_graph_methods.py FOLDER QUERIES.npy
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nestcode import Index, LinearCoder
from nestcode.arrays import CORES, Floats, Ids
from nestcode.search.vectors import VectorType

Search = Callable[[Floats, int, int], Ids]  # queries, k and ef to (queries, k)
OURS, PEER = "nestcode.index", "symphony.index"  # names of what is saved
RESIDENT_EF = 200  # of the searches that make the pages of an index resident


class Method(NamedTuple):
    """A graph that was built, and what that cost."""

    name: str
    ours: bool
    build_s: float
    saved_bytes: int
    resident_bytes: int  # that a process gains by loading it and searching
    search: Search


def methods(
    base: Floats, queries: Floats, bits: list[int], vectors: list[VectorType], *, alone: bool
) -> Iterator[Method]:
    """Yield each graph."""
    if not alone and find_spec("rabitqlib") is None:
        print("rabitqlib is not installed: pip install rabitqlib adds SymphonyQG")
    elif not alone:
        yield symphony("SymphonyQG, float32", 0, base, queries)
        yield symphony("SymphonyQG, 8 bits", 8, base, queries)
    for width in bits:
        for vector_type in vectors:
            start = time.perf_counter()
            index = build(base, width, vector_type)
            seconds = time.perf_counter() - start
            sizes = measure(partial(save_index, index), queries)
            yield Method(f"nestcode, {width} bits, {vector_type}", True, seconds, *sizes, partial(search, index))


def symphony(name: str, quantization_bits: int, base: Floats, queries: Floats) -> Method:
    """Return the peer: its vectors are float32, or quantized."""
    start = time.perf_counter()
    peer = import_module("rabitqlib").SymqgIndex(base.shape[1], 32, "l2", quantization_bits)
    peer.build(base, 200, CORES)
    seconds = time.perf_counter() - start
    sizes = measure(lambda folder: peer.save(str(folder / PEER)), queries)

    def find(queries: Floats, k: int, ef: int) -> Ids:
        return np.asarray(peer.search(queries, k, ef)[0]).astype(np.int64)

    return Method(name, False, seconds, *sizes, find)


def build(base: Floats, bits: int, vectors: VectorType | None) -> Index:
    """Return an index with a graph of all items, ready to be searched."""
    index = Index(LinearCoder(bits, metric="cosine").fit(base), vectors=vectors, graph=True)
    index.add(base)
    index.compact()
    index.search(base[:1], 10)
    return index


def save_index(index: Index, folder: Path) -> None:
    """Save an index in a folder."""
    index.save(folder / OURS)


def search(index: Index, queries: Floats, k: int, ef: int) -> Ids:
    """Return the ids that an index finds; a single query is passed as one vector."""
    return index.search(queries if len(queries) > 1 else queries[0], k, candidates=ef).ids


def measure(save: Callable[[Path], object], queries: Floats) -> tuple[int, int]:
    """Return the bytes of what is saved in a folder, and those of memory that a process takes to search it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(folder)
        saved = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        np.save(folder / "queries.npy", queries)
        command = [sys.executable, __file__, name, str(folder / "queries.npy")]
        return saved, int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def resident_bytes() -> int:
    """Return the memory of this process, pages of mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def load_and_search(folder: Path, queries: Floats) -> int:
    """Return how much memory a process gains by loading what is in a folder and searching it."""
    find: Callable[[], Any]
    if (folder / OURS).exists():
        few = Index(LinearCoder(8, metric="cosine").fit(queries))  # loads code that is not of the index
        few.add(queries)
        few.search(queries, 10)
        before = resident_bytes()
        index = Index.open(folder / OURS)
        index.wait()  # lays out all nodes, and lets go of the graph's files
        find = partial(index.search, queries, 10, candidates=RESIDENT_EF)
    else:
        symqg = import_module("rabitqlib").SymqgIndex
        before = resident_bytes()
        peer = symqg.load(str(folder / PEER))
        find = partial(peer.search, queries, 10, RESIDENT_EF)
    find()
    return resident_bytes() - before


if __name__ == "__main__":
    print(load_and_search(Path(sys.argv[1]), np.load(sys.argv[2])))
