"""Other libraries' indexes in the QPS table of the search benchmark."""

import tempfile
from pathlib import Path
from typing import Any

import annoy
import hnswlib
import numpy as np
from numpy.typing import NDArray
from usearch.index import Index as Usearch

from _search_faiss import faiss_peers
from _search_methods import CONSTRUCTION, EFFORTS, LINKS, Kind, Method, Setting
from _search_task import NEAREST, Task
from nestcode.arrays import Floats, Ids

TREES = 50


def peers(task: Task) -> list[Method]:
    """Return all peers, in the order of the table."""
    others = [UsearchGraph("i8", "compressed"), Hnswlib(), UsearchGraph("f32", "with vectors"), Annoy()]
    return faiss_peers(task) + others


class Hnswlib(Method):
    """HNSW by its authors."""

    graph = True

    def __init__(self) -> None:
        self.name, self.kind, self.grid = f"hnswlib M={LINKS}", "with vectors", {"ef": EFFORTS}

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        self.index = hnswlib.Index("ip" if task.metric == "cosine" else "l2", task.base.shape[1])
        self.index.init_index(len(task.base), M=LINKS, ef_construction=CONSTRUCTION)
        self.index.add_items(task.base)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        return int(self.index.index_file_size())

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.index.set_ef(setting["ef"])

    def search(self, queries: Floats) -> Ids:
        """Return the ids of its search."""
        ids: NDArray[np.uint64] = self.index.knn_query(queries, NEAREST, num_threads=1)[0]
        return ids.astype(np.int64)


class UsearchGraph(Method):
    """usearch's HNSW graph over float32 or int8."""

    graph = True

    def __init__(self, dtype: str, kind: Kind) -> None:
        self.name, self.kind, self.grid = f"usearch {dtype}", kind, {"expansion": EFFORTS}
        self.dtype = dtype

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        self.center = task.base.mean(axis=0) if task.metric == "l2" else np.float32(0)
        self.scale = 127 / np.quantile(np.abs(task.base[:10_000] - self.center), 0.9999)
        self.index = Usearch(
            ndim=task.base.shape[1],
            metric="cos" if task.metric == "cosine" else "l2sq",
            dtype=self.dtype,
            connectivity=LINKS,
            expansion_add=CONSTRUCTION,
        )
        self.index.add(np.arange(len(task.base)), self.cast(task.base))

    def cast(self, rows: Floats) -> NDArray[Any]:
        """Return rows in the index's type; by default usearch scales every row separately, which distorts distances."""
        if self.dtype == "f32":
            return rows
        scaled: NDArray[np.int8] = np.clip(np.rint((rows - self.center) * self.scale), -127, 127).astype(np.int8)
        return scaled

    def nbytes(self) -> int:
        """Return the bytes of its serialized form; in memory it reserves more."""
        return int(self.index.serialized_length)

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.index.expansion_search = setting["expansion"]

    def search(self, queries: Floats) -> Ids:
        """Return the ids of its search."""
        keys: NDArray[np.uint64] = self.index.search(self.cast(queries), NEAREST, threads=1).keys
        return keys.astype(np.int64).reshape(len(queries), NEAREST)


class Annoy(Method):
    """Annoy: a forest of random hyperplane trees, without batch search."""

    def __init__(self) -> None:
        self.name, self.kind = f"annoy, {TREES} trees", "with vectors"
        self.grid = {"search_k": tuple(100 * 2**i for i in range(14))}

    def build(self, task: Task) -> None:
        """Add all items, then build the trees on all cores."""
        self.index = annoy.AnnoyIndex(task.base.shape[1], "angular" if task.metric == "cosine" else "euclidean")
        self.index.set_seed(0)
        for i, row in enumerate(task.base):
            self.index.add_item(i, row)
        self.index.build(TREES, n_jobs=-1)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "annoy"
            self.index.save(str(path))
            return path.stat().st_size

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.effort = setting["search_k"]

    def search(self, queries: Floats) -> Ids:
        """Return the ids of single searches."""
        found = (self.index.get_nns_by_vector(query, NEAREST, self.effort) for query in queries)
        return np.array([ids + [-1] * (NEAREST - len(ids)) for ids in found], dtype=np.int64)
