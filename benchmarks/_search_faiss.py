"""FAISS's indexes in the second table of the search benchmark.

Vectors that are compared by angle have length 1 here, so that inner products and distances rank alike.
"""

import math
from typing import Any

import faiss
import numpy as np

from _search_codes import itq_index
from _search_methods import CONSTRUCTION, EFFORTS, LINKS, Kind, Method, Setting
from _search_task import NEAREST, Floats, Ids, Task

PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RERANKED = (2, 4, 10, 20, 40)  # times as many as are asked for
WIDE, NARROWED = 512, 256  # more features than this are reduced to so many before codes are made


def faiss_peers(task: Task) -> list[Method]:
    """All of them, at sizes that suit the task."""
    items = len(task.base)
    lists = 2 ** round(math.log2(2 * math.sqrt(items)))
    lists = min(lists, 2 ** int(math.log2(items / 39)))  # FAISS wants 39 items for each
    return [
        *inverted_lists(task, lists),
        FaissGraph(f"HNSW{LINKS}_{byte_code(task)}", "compressed", efSearch=EFFORTS),
        BinaryGraph(),
        BinaryLists(lists),
        BinaryHash(items),
        FaissGraph(f"HNSW{LINKS}", "with rescoring", efSearch=EFFORTS),
        FaissGraph(f"HNSW{2 * LINKS}", "with rescoring", efSearch=EFFORTS),
    ]


def inverted_lists(task: Task, lists: int) -> list[Method]:
    """Lists of codes of several sizes, alone and with larger codes or raw vectors that rank the best of them again."""
    before, width = "", task.base.shape[1]
    if width > WIDE:
        before, width = f"PCA{NARROWED},", NARROWED
    elif width % 2:
        before, width = f"Pad{width + 1},", width + 1
    ivf, pq, byte = f"{before}IVF{lists}", f"PQ{width // 2}x4fs", byte_code(task)
    # What is left after the cell is coded better, but by distance takes new tables for each cell that is searched.
    rest = "r" if task.metric == "cosine" and not before.startswith("PCA") else ""
    best = f"{pq}{rest}"
    plain = [f"{pq}r", pq, f"PQ{width}x4fs{rest}", "SQ8", "RaBitQfs", "RaBitQfs4", "RaBitQfs6"]
    refined = [f"{best},Refine(SQ4)", f"{best},Refine(SQ6)", f"{pq},Refine({byte})", f"{pq}r,Refine({byte})"]
    raw = [f"{pq},RFlat", f"{pq}r,RFlat", "RaBitQfs,RFlat", "RaBitQfs4,RFlat"]
    twice: dict[str, tuple[int, ...]] = {"k_factor_rf": RERANKED, "nprobe": PROBES}
    return [
        *(Faiss(f"{ivf},{codes}", "compressed", nprobe=PROBES) for codes in plain),
        *(Faiss(f"{ivf},{codes}", "compressed", **twice) for codes in refined),
        *(Faiss(f"{ivf},{codes}", "with rescoring", **twice) for codes in raw),
        Faiss(f"{before}IVF{2 * lists},{best},RFlat", "with rescoring", **twice),
        Faiss(f"IVF{lists},Flat", "with rescoring", nprobe=PROBES),
    ]


def byte_code(task: Task) -> str:
    """A byte for each number; pixels are bytes already, and SQ8 would add half a step to them."""
    sample = task.base[:1000]
    return "SQ8_direct" if np.array_equal(sample, np.clip(np.rint(sample), 0, 255)) else "SQ8"


class Faiss(Method):
    """What FAISS's factory makes of a description."""

    def __init__(self, description: str, kind: Kind, **grid: tuple[int, ...]) -> None:
        self.name, self.description, self.kind, self.grid = f"FAISS {description}", description, kind, grid

    def build(self, task: Task) -> None:
        """Train and add."""
        # Directions are found around the mean, from which angles are not the same.
        by_angle = task.metric == "cosine" and "PCA" not in self.description
        metric = faiss.METRIC_INNER_PRODUCT if by_angle else faiss.METRIC_L2
        self.index = faiss.index_factory(task.base.shape[1], self.description, metric)
        self.prepare()
        self.index.train(task.base)
        self.index.add(task.base)

    def prepare(self) -> None:
        """Set what must be set before items are added."""

    def nbytes(self) -> int:
        """As it would be written to a file."""
        return len(faiss.serialize_index(self.index))

    def set(self, setting: Setting) -> None:
        """By the names of FAISS's own parameter space."""
        description = ",".join(f"{name}={value}" for name, value in setting.items())
        space: Any = faiss.ParameterSpace()
        space.set_index_parameters(self.index, description)

    def search(self, queries: Floats) -> Ids:
        """Its own search."""
        ids: Ids = self.index.search(queries, NEAREST)[1]
        return ids


class FaissGraph(Faiss):
    """FAISS's HNSW graph over raw vectors or over codes."""

    graph = True

    def prepare(self) -> None:
        """Build with care, as the other graphs are."""
        self.index.hnsw.efConstruction = CONSTRUCTION


class Binary(Method):
    """FAISS's binary indexes over ITQ codes, which compare bits with bits."""

    kind = "compressed"
    bits: int

    def build(self, task: Task) -> None:
        """Learn the codes, then add them."""
        features = task.base.shape[1]
        self.bits = min(256, features // 8 * 8)
        self.coder = itq_index(features, self.bits)
        self.coder.train(task.base)
        self.index = self.empty()
        codes = self.coder.sa_encode(task.base)
        self.index.train(codes)
        self.index.add(codes)

    def empty(self) -> Any:
        """An index of such codes without items."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """The codes and the coder, as they would be written to files."""
        return len(faiss.serialize_index_binary(self.index)) + len(faiss.serialize_index(self.coder))

    def set(self, setting: Setting) -> None:
        """Its one number."""
        for name, value in setting.items():
            setattr(self.index, name, value)

    def search(self, queries: Floats) -> Ids:
        """Encode and search."""
        ids: Ids = self.index.search(self.coder.sa_encode(queries), NEAREST)[1]
        return ids


class BinaryGraph(Binary):
    """An HNSW graph of codes."""

    def __init__(self) -> None:
        self.name, self.grid = "FAISS BinaryHNSW", {"efSearch": EFFORTS}

    def empty(self) -> Any:
        """With as many links as the other graphs."""
        index = faiss.IndexBinaryHNSW(self.bits, LINKS)
        index.hnsw.efConstruction = CONSTRUCTION
        return index

    def set(self, setting: Setting) -> None:
        """It lies in the graph."""
        self.index.hnsw.efSearch = setting["efSearch"]


class BinaryLists(Binary):
    """Inverted lists of codes."""

    def __init__(self, lists: int) -> None:
        self.name, self.grid, self.lists = f"FAISS BinaryIVF{lists}", {"nprobe": PROBES}, lists

    def empty(self) -> Any:
        """With lists that are chosen by code as well."""
        self.cells = faiss.IndexBinaryFlat(self.bits)  # the index does not keep it alive
        return faiss.IndexBinaryIVF(self.cells, self.bits, self.lists)


class BinaryHash(Binary):
    """A hash table of the first bits, probed with some of them flipped."""

    def __init__(self, items: int) -> None:
        self.name, self.grid = "FAISS BinaryHash", {"nflip": (0, 1, 2, 3, 4)}
        self.hashed = max(4, int(math.log2(items / 8)))

    def empty(self) -> Any:
        """About eight items for each value."""
        return faiss.IndexBinaryHash(self.bits, min(self.hashed, self.bits))
