"""Nestcode, an exact baseline and other libraries in the benchmark of filtered search.

Methods take a filter that is prepared, which is not timed (`prepare`), or a condition as it is written (`write`); both
return what searches for one query. Libraries that are not installed are left out, and named.
"""

import json
import logging
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nestcode as nc
from _engine_task import Task
from _filter_tasks import Condition, Items, K, Mask
from nestcode.arrays import Floats, Ids

LINKS, CONSTRUCTION = 32, 128  # of all graphs of peers
EFFORTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
PROBES = (1, 4, 16, 64, 128, 256, 512)
FOUND_BEFORE = (20, 100, 500, 2_000, 10_000)  # hits of a search whose filter is applied afterwards
BATCH = 1000

Search = Callable[[Floats], Ids]


class Method(ABC):
    """An index that takes filters; an effort that it does not take is None."""

    name: str
    efforts: tuple[int | None, ...] = (None,)

    @abstractmethod
    def build(self, task: Task) -> None:
        """Add all items."""

    def add_columns(self, items: Items) -> None:  # noqa: B027
        """Add the columns of all items."""

    def prepare(self, mask: Mask, effort: int | None) -> Search | None:  # noqa: ARG002
        """Return a search of the items of a mask, if the library takes such."""
        return None

    def write(self, condition: Condition, effort: int | None) -> Search | None:  # noqa: ARG002
        """Return a search with a condition, which it evaluates in each call."""
        return None

    def write_new(self, condition: Condition, effort: int | None) -> Search | None:  # noqa: ARG002
        """Return the same where conditions that were given before cost less: with one that never was."""
        return None


class Nestcode(Method):
    """Nestcode with its defaults, vectors stored as float16."""

    def __init__(self, *, graph: bool) -> None:
        self.name, self._graph, self._calls = f"nestcode {'graph' if graph else 'lists'}", graph, count()

    def build(self, task: Task) -> None:
        """Fit the coder and add all items."""
        coder = nc.LinearCoder(320, task.metric) if self._graph else nc.CellCoder(256, task.metric)
        self._index = nc.Index(coder.fit(task.base), vectors="float16", graph=self._graph)
        self._base = task.base

    def add_columns(self, items: Items) -> None:
        """Add the items with their columns."""
        self._index.add(self._base, attributes=items.columns)
        self._index.compact()

    def prepare(self, mask: Mask, effort: int | None) -> Search:  # noqa: ARG002
        """Return a search with a prepared filter."""
        wanted = self._index.filter(mask)
        return lambda query: self._index.search(query, K, filter=wanted).ids

    def write(self, condition: Condition, effort: int | None) -> Search:  # noqa: ARG002
        """Return a search with the text of a condition."""
        text = condition.sql()
        return lambda query: self._index.search(query, K, filter=text).ids

    def write_new(self, condition: Condition, effort: int | None) -> Search:  # noqa: ARG002
        """Return a search with a text that differs in each call, and means the same."""
        text = condition.sql()
        return lambda query: self._index.search(query, K, filter=text + " " * next(self._calls)).ids


class Subset(Method):
    """NumPy: the product of the query and the allowed rows, which a prepared filter has side by side."""

    name = "NumPy on the subset"

    def build(self, task: Task) -> None:
        """Keep the rows."""
        self._rows, self._metric = task.base, task.metric
        self._norms = np.square(task.base).sum(axis=1)

    def add_columns(self, items: Items) -> None:
        """Keep the columns in Arrow's arrays."""
        self._columns = {name: pa.array(column) for name, column in items.columns.items()}

    def prepare(self, mask: Mask, effort: int | None) -> Search:  # noqa: ARG002
        """Return an exact search."""
        ids = np.flatnonzero(mask)
        rows, norms = self._rows[ids], self._norms[ids]
        return lambda query: ids[self._nearest(query, rows, norms)]

    def write(self, condition: Condition, effort: int | None) -> Search:  # noqa: ARG002
        """Return an exact search of the rows for which Arrow evaluates a condition to true."""

        def search(query: Floats) -> Ids:
            ids = np.flatnonzero(evaluate(condition, self._columns))
            return ids[self._nearest(query, self._rows[ids], self._norms[ids])]

        return search

    def _nearest(self, query: Floats, rows: Floats, norms: Floats) -> Ids:
        near = rows @ query
        near = -near if self._metric == "cosine" else norms - 2 * near
        first = np.argpartition(near, K)[:K] if len(near) > K else np.arange(len(near))
        return first[np.argsort(near[first])]


class Faiss(Method):
    """FAISS with an IDSelectorBitmap."""

    def __init__(self, kind: str) -> None:
        self.name, self._kind = f"FAISS {kind}", kind
        self.efforts = EFFORTS if kind == "HNSW" else PROBES

    def build(self, task: Task) -> None:
        """Train it and add all items."""
        self._faiss = import_module("faiss")
        metric = self._faiss.METRIC_INNER_PRODUCT if task.metric == "cosine" else self._faiss.METRIC_L2
        lists = 2 ** round(np.log2(2 * len(task.base) ** 0.5))
        description = f"HNSW{LINKS},Flat" if self._kind == "HNSW" else f"IVF{lists},Flat"
        self._index = self._faiss.index_factory(task.base.shape[1], description, metric)
        if self._kind == "HNSW":
            self._index.hnsw.efConstruction = CONSTRUCTION
        self._index.train(task.base)
        self._index.add(task.base)

    def add_columns(self, items: Items) -> None:
        """Keep the columns in Arrow's arrays."""
        self._columns = {name: pa.array(column) for name, column in items.columns.items()}

    def prepare(self, mask: Mask, effort: int | None) -> Search:
        """Return a search with a bitmap."""
        bits = np.packbits(mask, bitorder="little")
        selector = self._faiss.IDSelectorBitmap(bits)
        if self._kind == "HNSW":
            parameters = self._faiss.SearchParametersHNSW(sel=selector, efSearch=effort)
        else:
            parameters = self._faiss.SearchParametersIVF(sel=selector, nprobe=effort)

        def search(query: Floats, kept: object = (bits, selector)) -> Ids:  # noqa: ARG001
            ids: Ids = self._index.search(query[None], K, params=parameters)[1][0]
            return ids

        return search

    def write(self, condition: Condition, effort: int | None) -> Search:
        """Return a search with the bitmap of what Arrow evaluates."""
        return lambda query: self.prepare(evaluate(condition, self._columns), effort)(query)


class Hnswlib(Method):
    """hnswlib with a function that tells whether an id is allowed."""

    name, efforts = "hnswlib", EFFORTS

    def build(self, task: Task) -> None:
        """Add all items."""
        self._index = import_module("hnswlib").Index("ip" if task.metric == "cosine" else "l2", task.base.shape[1])
        self._index.init_index(len(task.base), M=LINKS // 2, ef_construction=CONSTRUCTION)
        self._index.add_items(task.base, num_threads=1)

    def prepare(self, mask: Mask, effort: int | None) -> Search:
        """Return a search with a function."""
        allowed, most = mask.tolist(), min(K, int(mask.sum()))

        def search(query: Floats) -> Ids:
            self._index.set_ef(effort)
            try:
                found = self._index.knn_query(query, most, num_threads=1, filter=allowed.__getitem__)[0][0]
            except RuntimeError:  # it found fewer
                return np.empty(0, dtype=np.int64)
            ids: Ids = found.astype(np.int64)
            return ids

        return search


class Usearch(Method):
    """usearch, whose Python package takes no filter: hits that are not allowed are dropped afterwards."""

    name, efforts = "usearch, filtered after", FOUND_BEFORE

    def build(self, task: Task) -> None:
        """Add all items."""
        self._index = import_module("usearch.index").Index(
            ndim=task.base.shape[1],
            metric="cos" if task.metric == "cosine" else "l2sq",
            connectivity=LINKS // 2,
            expansion_add=CONSTRUCTION,
        )
        self._index.add(np.arange(len(task.base)), task.base, threads=1)

    def prepare(self, mask: Mask, effort: int | None) -> Search:
        """Return a search for many more hits."""
        wanted = min(int(effort or K), len(mask))

        def search(query: Floats) -> Ids:
            self._index.expansion_search = wanted
            keys: Ids = self._index.search(query, wanted, threads=1).keys.astype(np.int64)
            return keys[mask[keys]][:K]

        return search


class Vsag(Method):
    """VSAG's HGraph, whose Python package takes no filter either."""

    name, efforts = "VSAG, filtered after", FOUND_BEFORE

    def build(self, task: Task) -> None:
        """Add all items."""
        settings = {
            "dtype": "float32",
            "metric_type": "ip" if task.metric == "cosine" else "l2",
            "dim": task.base.shape[1],
            "index_param": {
                "base_quantization_type": "sq8",
                "use_reorder": True,
                "precise_quantization_type": "fp32",
                "max_degree": LINKS,
                "ef_construction": CONSTRUCTION,
                "build_thread_count": 1,
            },
        }
        self._index = import_module("pyvsag").Index("hgraph", json.dumps(settings))
        self._index.build(task.base.ravel(), np.arange(len(task.base)), *task.base.shape)

    def prepare(self, mask: Mask, effort: int | None) -> Search:
        """Return a search for many more hits."""
        wanted = min(int(effort or K), len(mask))
        settings = json.dumps({"hgraph": {"ef_search": wanted}})

        def search(query: Floats) -> Ids:
            ids: Ids = self._index.knn_search(query, wanted, settings)[0]
            return ids[mask[ids]][:K]

        return search


class Lance(Method):
    """LanceDB in a folder, with indexes of its columns; conditions are applied before the search."""

    name, efforts = "LanceDB", PROBES[1:5]

    def build(self, task: Task) -> None:
        """Keep the rows: they are added with their columns."""
        self._lancedb, self._task = import_module("lancedb"), task

    def add_columns(self, items: Items) -> None:
        """Add all items and index them."""
        base = self._task.base
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(base.ravel()), base.shape[1])
        self._folder = tempfile.TemporaryDirectory()
        table = pa.table({"id": np.arange(len(base)), "vector": vectors, **items.columns})
        self._table = self._lancedb.connect(self._folder.name).create_table("items", table)
        metric = "cosine" if self._task.metric == "cosine" else "l2"
        self._table.create_index(
            metric, index_type="IVF_HNSW_SQ", num_partitions=max(len(base) // 10_000, 1), m=20, ef_construction=300
        )
        index_columns(self._table)

    def write(self, condition: Condition, effort: int | None) -> Search:
        """Return a search with a condition in SQL."""
        text = condition.sql().replace("array_contains(", "array_has(")

        def search(query: Floats) -> Ids:
            found = self._table.search(query).where(text, prefilter=True).select(["id", "_distance"]).limit(K)
            found = found.nprobes(effort).ef(64 * int(effort or 1)).refine_factor(2)
            ids: Ids = found.to_arrow().column("id").to_numpy()
            return ids

        return search


class Qdrant(Method):
    """Qdrant's local mode, in memory."""

    name = "Qdrant, local mode"

    def build(self, task: Task) -> None:
        """Keep the rows: they are added with their columns."""
        package = import_module("qdrant_client")
        self._models, self._task = package.models, task
        logging.getLogger("httpx").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="qdrant_client")
        self._client = package.QdrantClient(":memory:")
        distance = self._models.Distance.COSINE if task.metric == "cosine" else self._models.Distance.EUCLID
        size = self._models.VectorParams(size=task.base.shape[1], distance=distance)
        self._client.create_collection("items", vectors_config=size)

    def add_columns(self, items: Items) -> None:
        """Add all items."""
        base, columns = self._task.base, {name: pa.array(own).to_pylist() for name, own in items.columns.items()}
        for first in range(0, len(base), BATCH):
            rows = range(first, min(first + BATCH, len(base)))
            payloads = [{name: column[i] for name, column in columns.items()} for i in rows]
            batch = self._models.Batch(ids=list(rows), vectors=base[rows.start : rows.stop].tolist(), payloads=payloads)
            self._client.upsert("items", batch)

    def write(self, condition: Condition, effort: int | None) -> Search:  # noqa: ARG002
        """Return a search with a condition in its models."""
        models = self._models
        if condition.column == "number":
            must = [models.FieldCondition(key="number", range=models.Range(lt=condition.values[0]))]
        else:
            must = [
                models.FieldCondition(key=condition.column, match=models.MatchValue(value=value))
                for value in condition.values
            ]
        wanted = models.Filter(must=must)

        def search(query: Floats) -> Ids:
            found = self._client.query_points("items", query=query, query_filter=wanted, limit=K, with_payload=False)
            return np.array([point.id for point in found.points], dtype=np.int64)

        return search


def index_columns(table: Any) -> None:
    """Index the columns of a table of LanceDB, each by the kind that suits it."""
    for column, kind in (("number", "BTREE"), ("cluster", "BITMAP"), ("tags", "LABEL_LIST")):
        if column in table.schema.names:
            table.create_scalar_index(column, index_type=kind)


def evaluate(condition: Condition, columns: Mapping[str, Any]) -> Mask:
    """Return the items for which a condition is true, by Arrow."""
    column, found = columns[condition.column], None
    if condition.column == "number":
        found = pc.less(column, condition.values[0])
    elif condition.column == "cluster":
        found = pc.equal(column, condition.values[0])
    if found is not None:
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask
    mask, values, parents = (
        np.ones(len(column), dtype=np.bool_),
        pc.list_flatten(column),
        pc.list_parent_indices(column),
    )
    for word in condition.values:
        own = np.zeros(len(column), dtype=np.bool_)
        own[parents.to_numpy()[pc.equal(values, word).to_numpy(zero_copy_only=False)]] = True
        mask &= own
    return mask


def methods() -> list[Method]:
    """Return all methods, in the order of the table."""
    return [
        Nestcode(graph=True),
        Nestcode(graph=False),
        Subset(),
        Faiss("HNSW"),
        Faiss("IVF"),
        Hnswlib(),
        Usearch(),
        Vsag(),
        Lance(),
        Qdrant(),
    ]
