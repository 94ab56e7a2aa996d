"""Indexes that the second table of the search benchmark compares ours with: FAISS's, hnswlib, usearch and annoy.

Vectors that are compared by angle have length 1 here, so that inner products and distances rank alike.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import annoy
import faiss
import hnswlib
import numpy as np
from numpy.typing import NDArray
from usearch.index import Index as Usearch

from _search_codes import itq_index
from _search_methods import Kind, Method, Setting
from _search_task import NEAREST, Floats, Ids, Task

PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
RERANKED = (2, 4, 10, 20, 40)  # times as many as are asked for
CONSTRUCTION = 128  # effort that graphs are built with
TREES = 50
WIDE, NARROWED = 512, 256  # more features than this are reduced to so many before FAISS's codes are made


def peers(task: Task) -> list[Method]:
    """All of them, at sizes that suit the task."""
    features, items = task.base.shape[1], len(task.base)
    lists = 2 ** round(math.log2(2 * math.sqrt(items)))
    lists = min(lists, 2 ** int(math.log2(items / 39)))  # FAISS wants 39 items for each
    before, width = "", features
    if features > WIDE:
        before, width = f"PCA{NARROWED},", NARROWED
    elif features % 2:
        before, width = f"Pad{features + 1},", features + 1
    ivf, pq = f"{before}IVF{lists}", f"PQ{width // 2}x4fs"
    # What is left after the cell is coded better, but by distance takes new tables for each cell that is searched.
    rest = "r" if task.metric == "cosine" and features <= WIDE else ""
    best = f"{pq}{rest}"
    plain = [f"{pq}r", pq, f"PQ{width}x4fs{rest}", "SQ8", "RaBitQfs", "RaBitQfs4", "RaBitQfs6"]
    refined = [f"{best},Refine(SQ4)", f"{best},Refine(SQ6)", f"{pq},Refine(SQ8)", f"{pq}r,Refine(SQ8)"]
    raw = [f"{pq},RFlat", f"{pq}r,RFlat", "RaBitQfs,RFlat", "RaBitQfs4,RFlat"]
    return [
        *(Faiss(f"{ivf},{codes}", "compressed", nprobe=PROBES) for codes in plain),
        *(Faiss(f"{ivf},{codes}", "compressed", k_factor_rf=RERANKED, nprobe=PROBES) for codes in refined),
        FaissGraph(f"{before}HNSW16_SQ8", "compressed", efSearch=EFFORTS),
        UsearchGraph("i8", "compressed"),
        BinaryGraph(),
        BinaryLists(lists),
        BinaryHash(items),
        *(Faiss(f"{ivf},{codes}", "with rescoring", k_factor_rf=RERANKED, nprobe=PROBES) for codes in raw),
        Faiss(f"{before}IVF{2 * lists},{best},RFlat", "with rescoring", k_factor_rf=RERANKED, nprobe=PROBES),
        Faiss(f"IVF{lists},Flat", "with rescoring", nprobe=PROBES),
        FaissGraph("HNSW16", "with rescoring", efSearch=EFFORTS),
        FaissGraph("HNSW32", "with rescoring", efSearch=EFFORTS),
        Hnswlib(),
        UsearchGraph("f32", "with rescoring"),
        Annoy(),
    ]


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
        inner = self.index.index if isinstance(self.index, faiss.IndexPreTransform) else self.index
        graph: Any = faiss.downcast_index(inner)
        graph.hnsw.efConstruction = CONSTRUCTION


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
        index = faiss.IndexBinaryHNSW(self.bits, 16)
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


class Hnswlib(Method):
    """The HNSW graph of its authors."""

    graph = True

    def __init__(self) -> None:
        self.name, self.kind, self.grid = "hnswlib M=16", "with rescoring", {"ef": EFFORTS}

    def build(self, task: Task) -> None:
        """Add on all cores."""
        self.index = hnswlib.Index("ip" if task.metric == "cosine" else "l2", task.base.shape[1])
        self.index.init_index(len(task.base), M=16, ef_construction=CONSTRUCTION)
        self.index.add_items(task.base)

    def nbytes(self) -> int:
        """As it would be written to a file."""
        return int(self.index.index_file_size())

    def set(self, setting: Setting) -> None:
        """Its effort."""
        self.index.set_ef(setting["ef"])

    def search(self, queries: Floats) -> Ids:
        """Its own search."""
        ids: NDArray[np.uint64] = self.index.knn_query(queries, NEAREST, num_threads=1)[0]
        return ids.astype(np.int64)


class UsearchGraph(Method):
    """usearch's HNSW graph, of floats or of bytes."""

    graph = True

    def __init__(self, number: str, kind: Kind) -> None:
        self.name, self.kind, self.grid = f"usearch {number}", kind, {"expansion": EFFORTS}
        self.number = number

    def build(self, task: Task) -> None:
        """Add on all cores."""
        self.center = task.base.mean(axis=0) if task.metric == "l2" else np.float32(0)
        self.scale = 127 / np.quantile(np.abs(task.base[:10_000] - self.center), 0.9999)
        self.index = Usearch(
            ndim=task.base.shape[1],
            metric="cos" if task.metric == "cosine" else "l2sq",
            dtype=self.number,
            connectivity=16,
            expansion_add=CONSTRUCTION,
        )
        self.index.add(np.arange(len(task.base)), self.numbers(task.base))

    def numbers(self, rows: Floats) -> NDArray[Any]:
        """The rows in the index's own type: left to itself it scales every row on its own, which spoils distances."""
        if self.number == "f32":
            return rows
        scaled: NDArray[np.int8] = np.clip(np.rint((rows - self.center) * self.scale), -127, 127).astype(np.int8)
        return scaled

    def nbytes(self) -> int:
        """As it would be written to a file: in memory it reserves more."""
        return int(self.index.serialized_length)

    def set(self, setting: Setting) -> None:
        """Its effort."""
        self.index.expansion_search = setting["expansion"]

    def search(self, queries: Floats) -> Ids:
        """Its own search."""
        keys: NDArray[np.uint64] = self.index.search(self.numbers(queries), NEAREST, threads=1).keys
        return keys.astype(np.int64).reshape(len(queries), NEAREST)


class Annoy(Method):
    """A forest of random cuts; it has no batches."""

    def __init__(self) -> None:
        self.name, self.kind = f"annoy, {TREES} trees", "with rescoring"
        self.grid = {"search_k": tuple(100 * 2**i for i in range(14))}

    def build(self, task: Task) -> None:
        """Add, then grow trees on all cores."""
        self.index = annoy.AnnoyIndex(task.base.shape[1], "angular" if task.metric == "cosine" else "euclidean")
        self.index.set_seed(0)
        for i, row in enumerate(task.base):
            self.index.add_item(i, row)
        self.index.build(TREES, n_jobs=-1)

    def nbytes(self) -> int:
        """As it is written to a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "annoy"
            self.index.save(str(path))
            return path.stat().st_size

    def set(self, setting: Setting) -> None:
        """Its effort."""
        self.effort = setting["search_k"]

    def search(self, queries: Floats) -> Ids:
        """One query after the other."""
        found = (self.index.get_nns_by_vector(query, NEAREST, self.effort) for query in queries)
        return np.array([ids + [-1] * (NEAREST - len(ids)) for ids in found], dtype=np.int64)
