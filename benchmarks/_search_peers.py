"""Other libraries' indexes in the QPS table of the search benchmark.

Each library is imported when its index is built; one that is not installed is left out, and named.
"""

import json
import os
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _search_faiss import faiss_peers
from _search_methods import CONSTRUCTION, LINKS, Grid, Kind, Method, Setting, efforts, saved_size
from _search_task import Task
from nestcode.arrays import CORES, Floats, Ids

TREES = 50
LEADING = (  # words in the names of the strongest peers: those that run if --peers is not given
    "SymphonyQG", "VSAG", "FAISS HNSW", "x4fsr,RFlat", "RaBitQfs4", "usearch f32", "turbovec", "ScaNN",
)  # fmt: skip


def peers(task: Task) -> list[Method]:
    """Return all peers, in the order of the table."""
    return [
        Symphony(),
        *faiss_peers(task),
        Vsag(),
        UsearchGraph("f32", "with vectors"),
        UsearchGraph("i8", "compressed"),
        Scann(),
        Turbovec(2),
        Turbovec(4),
        Hnswlib(),
        Annoy(),
    ]


class Graph(Method):
    """A graph searched with an effort ef."""

    graph = True

    def grid(self, k: int) -> Grid:
        """Return the efforts."""
        return {"ef": efforts(k)}

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.effort = setting["ef"]


class Symphony(Graph):
    """SymphonyQG: a graph whose neighbors' RaBitQ codes are scored by fast-scan."""

    def __init__(self) -> None:
        self.name, self.kind = f"SymphonyQG, {2 * LINKS} links", "with vectors"

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        metric = "ip" if task.metric == "cosine" else "l2"
        self.index = import_module("rabitqlib").SymqgIndex(task.base.shape[1], 2 * LINKS, metric)
        self.index.build(task.base, CONSTRUCTION, CORES)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        return saved_size(self.index.save)

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search."""
        ids: NDArray[np.uint32] = self.index.search(queries, k, self.effort, 1)[0]
        return ids.astype(np.int64)


class Vsag(Graph):
    """VSAG's HGraph over int8 with float vectors to rerank, without batch search."""

    def __init__(self) -> None:
        self.name, self.kind = f"VSAG HGraph, {2 * LINKS} links", "with vectors"

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        settings = {
            "dtype": "float32",
            "metric_type": "ip" if task.metric == "cosine" else "l2",
            "dim": task.base.shape[1],
            "index_param": {
                "base_quantization_type": "sq8",
                "use_reorder": True,
                "precise_quantization_type": "fp32",
                "max_degree": 2 * LINKS,
                "ef_construction": CONSTRUCTION,
                "build_thread_count": CORES,
            },
        }
        self.index = import_module("pyvsag").Index("hgraph", json.dumps(settings))
        self.index.build(task.base.ravel(), np.arange(len(task.base)), *task.base.shape)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        return saved_size(self.index.save)

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of single searches."""
        settings = json.dumps({"hgraph": {"ef_search": self.effort}})
        return np.stack([self.index.knn_search(query, k, settings)[0] for query in queries])


class UsearchGraph(Graph):
    """usearch's HNSW graph over float32 or int8."""

    def __init__(self, dtype: str, kind: Kind) -> None:
        self.name, self.kind, self.dtype = f"usearch {dtype}", kind, dtype

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        self.center = task.base.mean(axis=0) if task.metric == "l2" else np.float32(0)
        self.scale = 127 / np.quantile(np.abs(task.base[:10_000] - self.center), 0.9999)
        self.index = import_module("usearch.index").Index(
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
        self.index.expansion_search = setting["ef"]

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search."""
        keys: NDArray[np.uint64] = self.index.search(self.cast(queries), k, threads=1).keys
        return keys.astype(np.int64).reshape(len(queries), k)


class Scann(Method):
    """ScaNN: inverted lists of anisotropically quantized codes, reranked by vectors."""

    def __init__(self) -> None:
        self.name, self.kind = "ScaNN", "with vectors"

    def build(self, task: Task) -> None:
        """Train it and add all items, on all cores."""
        builder = import_module("scann").scann_ops_pybind.builder
        metric = "dot_product" if task.metric == "cosine" else "squared_l2"
        self.leaves = int(2 * len(task.base) ** 0.5)
        self.index = (
            builder(task.base, 10, metric)
            .set_n_training_threads(CORES)
            .tree(self.leaves, self.leaves // 20, training_sample_size=min(len(task.base), 250_000))
            .score_ah(2, anisotropic_quantization_threshold=0.2)
            .reorder(100)
            .build()
        )

    def nbytes(self) -> int:
        """Return the bytes of its files."""

        def save(path: str) -> None:
            os.mkdir(path)  # noqa: PTH102
            self.index.serialize(path)

        return saved_size(save)

    def grid(self, k: int) -> Grid:
        """Return how many are reranked, and how many lists are probed."""
        lists = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
        return {"reorder": (4 * k, 10 * k, 20 * k), "leaves": tuple(n for n in lists if n <= self.leaves)}

    def set(self, setting: Setting) -> None:
        """Set both."""
        self.setting = setting

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search on one thread."""
        found = self.index.search_batched(
            queries, k, pre_reorder_num_neighbors=self.setting["reorder"], leaves_to_search=self.setting["leaves"]
        )
        return np.asarray(found[0], dtype=np.int64)


class Turbovec(Method):
    """turbovec: exhaustive search of TurboQuant codes."""

    kind = "compressed"

    def __init__(self, bits: int) -> None:
        self.name, self.bits = f"turbovec, {bits} bits/dimension", bits

    def build(self, task: Task) -> None:
        """Calibrate it and add all items, on one core: the number of its threads is fixed at the first call."""
        os.environ["RAYON_NUM_THREADS"] = "1"
        if task.metric == "l2":
            raise NotImplementedError("it ranks by inner product only")
        self.index = import_module("turbovec").TurboQuantIndex(dim=task.base.shape[1], bit_width=self.bits)
        self.index.calibrate(task.base[np.random.default_rng(0).permutation(len(task.base))[:2048]])
        self.index.add(task.base)
        self.index.prepare()

    def nbytes(self) -> int:
        """Return the bytes of its serialized form."""
        return len(self.index.to_bytes())

    def grid(self, k: int) -> Grid:
        """Return its one setting."""
        return {"nearest": (k,)}

    def set(self, setting: Setting) -> None:
        """Do nothing."""

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search."""
        ids: Ids = self.index.search(queries, k=k)[1]
        return ids


class Hnswlib(Graph):
    """HNSW by its authors."""

    def __init__(self) -> None:
        self.name, self.kind = f"hnswlib M={LINKS}", "with vectors"

    def build(self, task: Task) -> None:
        """Add all items, on all cores."""
        metric = "ip" if task.metric == "cosine" else "l2"
        self.index = import_module("hnswlib").Index(metric, task.base.shape[1])
        self.index.init_index(len(task.base), M=LINKS, ef_construction=CONSTRUCTION)
        self.index.add_items(task.base)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        return int(self.index.index_file_size())

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.index.set_ef(setting["ef"])

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of its search."""
        ids: NDArray[np.uint64] = self.index.knn_query(queries, k, num_threads=1)[0]
        return ids.astype(np.int64)


class Annoy(Method):
    """Annoy: a forest of random hyperplane trees, without batch search."""

    def __init__(self) -> None:
        self.name, self.kind = f"annoy, {TREES} trees", "with vectors"

    def build(self, task: Task) -> None:
        """Add all items, then build the trees on all cores."""
        metric = "angular" if task.metric == "cosine" else "euclidean"
        self.index = import_module("annoy").AnnoyIndex(task.base.shape[1], metric)
        self.index.set_seed(0)
        for i, row in enumerate(task.base):
            self.index.add_item(i, row)
        self.index.build(TREES, n_jobs=-1)

    def nbytes(self) -> int:
        """Return the bytes of its file."""
        return saved_size(self.index.save)

    def grid(self, k: int) -> Grid:
        """Return how many nodes are inspected."""
        return {"search_k": tuple(10 * k * 2**i for i in range(14))}

    def set(self, setting: Setting) -> None:
        """Set its effort."""
        self.effort = setting["search_k"]

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the ids of single searches."""
        found = (self.index.get_nns_by_vector(query, k, self.effort) for query in queries)
        return np.array([ids + [-1] * (k - len(ids)) for ids in found], dtype=np.int64)
