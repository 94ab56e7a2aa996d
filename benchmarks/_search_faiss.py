"""FAISS's indexes in the QPS table of the search benchmark.

For the cosine, vectors are L2-normalized, so that inner products and distances rank alike.
"""

import math
from typing import Any

import faiss
import numpy as np

from _search_codes import itq_index
from _search_methods import CONSTRUCTION, EFFORTS, LINKS, Grid, Kind, Method, Setting, efforts
from _search_task import Task
from nestcode.arrays import Floats, Ids

PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RERANKED = (2, 4, 10, 20, 40)  # k_factor_rf
WIDE, NARROWED = 512, 256  # more features than WIDE are reduced to NARROWED principal components


def faiss_peers(task: Task) -> list[Method]:
    """Return FAISS's indexes at sizes that suit the task."""
    items = len(task.base)
    lists = 2 ** round(math.log2(2 * math.sqrt(items)))
    lists = min(lists, 2 ** int(math.log2(items / 39)))  # FAISS wants 39 training items per list
    return [
        *inverted_lists(task, lists),
        FaissGraph(f"HNSW{LINKS}_{byte_code(task)}", "compressed", efSearch=EFFORTS),
        BinaryGraph(),
        BinaryLists(lists),
        BinaryHash(items),
        FaissGraph(f"HNSW{LINKS}", "with vectors", efSearch=EFFORTS),
        FaissGraph(f"HNSW{2 * LINKS}", "with vectors", efSearch=EFFORTS),
    ]


def inverted_lists(task: Task, lists: int) -> list[Method]:
    """Return IVF indexes with several codes, alone and reranked by larger codes or stored vectors."""
    before, width = "", task.base.shape[1]
    if width > WIDE:
        before, width = f"PCA{NARROWED},", NARROWED
    elif width % 2:
        before, width = f"Pad{width + 1},", width + 1
    ivf, pq, byte = f"{before}IVF{lists}", f"PQ{width // 2}x4fs", byte_code(task)
    # Residuals are coded better, but for L2 they need new lookup tables for each probed list.
    rest = "r" if task.metric == "cosine" and not before.startswith("PCA") else ""
    best = f"{pq}{rest}"
    plain = [f"{pq}r", pq, f"PQ{width}x4fs{rest}", "SQ8", "RaBitQfs", "RaBitQfs4", "RaBitQfs6"]
    refined = [f"{best},Refine(SQ4)", f"{best},Refine(SQ6)", f"{pq},Refine({byte})", f"{pq}r,Refine({byte})"]
    raw = [f"{pq},RFlat", f"{pq}r,RFlat", "RaBitQfs,RFlat", "RaBitQfs4,RFlat"]
    twice: dict[str, tuple[int, ...]] = {"k_factor_rf": RERANKED, "nprobe": PROBES}
    return [
        *(Faiss(f"{ivf},{codes}", "compressed", nprobe=PROBES) for codes in plain),
        *(Faiss(f"{ivf},{codes}", "compressed", **twice) for codes in refined),
        *(Faiss(f"{ivf},{codes}", "with vectors", **twice) for codes in raw),
        Faiss(f"{before}IVF{2 * lists},{best},RFlat", "with vectors", **twice),
        Faiss(f"IVF{lists},Flat", "with vectors", nprobe=PROBES),
    ]


def byte_code(task: Task) -> str:
    """Return the 8-bit scalar quantizer; pixels are bytes already, and SQ8 would shift them by half a step."""
    sample = task.base[:1000]
    return "SQ8_direct" if np.array_equal(sample, np.clip(np.rint(sample), 0, 255)) else "SQ8"


class Swept(Method):
    """An index with named settings."""

    values: Grid

    def grid(self, k: int) -> Grid:
        """Return its settings; ef is at least k."""
        return {name: efforts(k) if name == "efSearch" else values for name, values in self.values.items()}


class Faiss(Swept):
    """An index of FAISS's index_factory."""

    def __init__(self, description: str, kind: Kind, **grid: tuple[int, ...]) -> None:
        self.name, self.description, self.kind, self.values = f"FAISS {description}", description, kind, grid

    def build(self, task: Task) -> None:
        """Train the index and add all items."""
        # PCA centers the data, which changes angles.
        by_angle = task.metric == "cosine" and "PCA" not in self.description
        metric = faiss.METRIC_INNER_PRODUCT if by_angle else faiss.METRIC_L2
        self.index = faiss.index_factory(task.base.shape[1], self.description, metric)
        self.prepare()
        self.index.train(task.base)
        self.index.add(task.base)

    def prepare(self) -> None:
        """Configure the index before items are added."""

    def nbytes(self) -> int:
        """Return the bytes of its serialized form."""
        return len(faiss.serialize_index(self.index))

    def set(self, setting: Setting) -> None:
        """Set parameters by FAISS's ParameterSpace."""
        description = ",".join(f"{name}={value}" for name, value in setting.items())
        space: Any = faiss.ParameterSpace()
        space.set_index_parameters(self.index, description)

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search."""
        ids: Ids = self.index.search(queries, k)[1]
        return ids


class FaissGraph(Faiss):
    """FAISS's HNSW graph over vectors or codes."""

    graph = True

    def prepare(self) -> None:
        """Set the efConstruction of all graphs."""
        self.index.hnsw.efConstruction = CONSTRUCTION


class Binary(Swept):
    """FAISS's binary indexes over ITQ codes, ranked by Hamming distance."""

    kind = "compressed"
    bits: int

    def build(self, task: Task) -> None:
        """Train ITQ, then add all codes."""
        features = task.base.shape[1]
        self.bits = min(256, features // 8 * 8)
        self.coder = itq_index(features, self.bits)
        self.coder.train(task.base)
        self.index = self.empty()
        codes = self.coder.sa_encode(task.base)
        self.index.train(codes)
        self.index.add(codes)

    def empty(self) -> Any:
        """Return an empty index."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Return the bytes of codes and ITQ in serialized form."""
        return len(faiss.serialize_index_binary(self.index)) + len(faiss.serialize_index(self.coder))

    def set(self, setting: Setting) -> None:
        """Set its parameter."""
        for name, value in setting.items():
            setattr(self.index, name, value)

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search over encoded queries."""
        ids: Ids = self.index.search(self.coder.sa_encode(queries), k)[1]
        return ids


class BinaryGraph(Binary):
    """An HNSW graph over binary codes."""

    def __init__(self) -> None:
        self.name, self.values = "FAISS BinaryHNSW", {"efSearch": EFFORTS}

    def empty(self) -> Any:
        """Return an empty graph with the links of all graphs."""
        index = faiss.IndexBinaryHNSW(self.bits, LINKS)
        index.hnsw.efConstruction = CONSTRUCTION
        return index

    def set(self, setting: Setting) -> None:
        """Set the efSearch of the graph."""
        self.index.hnsw.efSearch = setting["efSearch"]


class BinaryLists(Binary):
    """Inverted lists of binary codes."""

    def __init__(self, lists: int) -> None:
        self.name, self.values, self.lists = f"FAISS BinaryIVF{lists}", {"nprobe": PROBES}, lists

    def empty(self) -> Any:
        """Return an empty index whose coarse quantizer is binary as well."""
        self.coarse = faiss.IndexBinaryFlat(self.bits)  # the index does not keep it alive
        return faiss.IndexBinaryIVF(self.coarse, self.bits, self.lists)


class BinaryHash(Binary):
    """Multi-probe hashing: a hash table of the first bits, probed with flipped bits."""

    def __init__(self, items: int) -> None:
        self.name, self.values = "FAISS BinaryHash", {"nflip": (0, 1, 2, 3, 4)}
        self.hashed = max(4, int(math.log2(items / 8)))

    def empty(self) -> Any:
        """Return an empty table with about eight items per bucket."""
        return faiss.IndexBinaryHash(self.bits, min(self.hashed, self.bits))
