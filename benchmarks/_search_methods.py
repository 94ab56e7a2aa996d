"""The interface of an index in the QPS table of the search benchmark, Nestcode's, and the exact baseline."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import nestcode as nc
from _search_task import Task
from nestcode.arrays import Floats, Ids

Kind = Literal["compressed", "with vectors"]  # codes only, or vectors stored too
Setting = dict[str, int]
Grid = dict[str, tuple[int, ...]]

# Of all graphs: links per node (M), efConstruction, efSearch.
LINKS, CONSTRUCTION = 16, 128
EFFORTS = (10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)


class Method:
    """An index that can be built, configured and searched."""

    ours: ClassVar[bool] = False
    graph: ClassVar[bool] = False  # graphs are slow to build
    name: str
    kind: Kind
    index: Any = None

    def build(self, task: Task) -> None:
        """Train the index and add all items, on all cores."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Return the bytes of the index, including vectors if it stores them."""
        raise NotImplementedError

    def graph_nbytes(self) -> int:
        """Return how many of these bytes are those of a graph, where they are known."""
        return 0

    def grid(self, k: int) -> Grid:
        """Return the values of its settings. The last one is the effort, ascending; all others are combined."""
        raise NotImplementedError

    def set(self, setting: Setting) -> None:
        """Configure the next searches."""
        raise NotImplementedError

    def search(self, queries: Floats, k: int) -> Ids:
        """Return k ids per query, on one thread."""
        raise NotImplementedError

    def compared(self, queries: Floats, k: int) -> float | None:  # noqa: ARG002
        """Return the mean number of items compared per query, if known."""
        return None


def efforts(k: int) -> tuple[int, ...]:
    """Return the values of ef: k, and larger ones.

    >>> efforts(100)[:3]
    (100, 128, 192)
    """
    return (k, *(effort for effort in EFFORTS if effort > k))


def saved_size(save: Callable[[str], object]) -> int:
    """Return the bytes of what a function writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        save(str(Path(folder) / "index"))
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


class Nestcode(Method):
    """Nestcode's inverted lists of `CellCoder` codes, with vectors stored as float16 or without."""

    ours = True
    shares = (0.001, 0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)  # of the items: candidates

    def __init__(self, width: int, kind: Kind) -> None:
        self.name, self.kind, self.width = f"Nestcode lists, {width} bits", kind, width

    def build(self, task: Task) -> None:
        """Fit the coder and add all items."""
        self.index = self.empty(task)
        self.index.add(task.base)
        self.index.compact()
        self.index.search(task.base[:1], k=1)  # the first search builds the scorer

    def empty(self, task: Task) -> nc.Index:
        """Fit the coder and return an empty index."""
        coder = nc.CellCoder(self.width, metric=task.metric).fit(task.base)
        return nc.Index(coder, vectors="float16" if self.kind == "with vectors" else None)

    def nbytes(self) -> int:
        """Return the bytes of the codes, the vectors if they are stored, the scorer and the coder."""
        return int(self.index.nbytes) + saved_size(self.index.coder.save)

    def grid(self, k: int) -> Grid:
        """Return multiples of k to rerank, and candidate budgets."""
        candidates = sorted({max(k, round(share * len(self.index))) for share in self.shares})
        return {"k_factor": (3, 4, 6, 8, 12, 16), "candidates": tuple(candidates)}

    def set(self, setting: Setting) -> None:
        """Set the candidate budget and how many candidates are reranked."""
        self.setting = setting

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the nearest items by code, reranked by vectors if these are stored."""
        ids: Ids = self._hits(queries, k).ids
        return ids

    def compared(self, queries: Floats, k: int) -> float:
        """Return the mean number of codes compared per query."""
        return float(self._hits(queries, k).compared.mean())

    def _hits(self, queries: Floats, k: int) -> Any:
        candidates, rerank = self.setting["candidates"], self.setting["k_factor"] * k
        return self.index.search(queries, k=k, candidates=candidates, rerank=rerank)


class NestcodeGraph(Nestcode):
    """Nestcode's graph navigated by `LinearCoder` codes, with vectors stored as float16 or without."""

    graph = True

    def __init__(self, width: int, kind: Kind) -> None:
        super().__init__(width, kind)
        self.name = f"Nestcode graph, {width} bits"

    def empty(self, task: Task) -> nc.Index:
        """Fit the coder and return an empty index with a graph."""
        coder = nc.LinearCoder(self.width, metric=task.metric).fit(task.base)
        return nc.Index(coder, vectors="float16" if self.kind == "with vectors" else None, graph=True)

    def graph_nbytes(self) -> int:
        """Return the bytes of the neighbors and of the records, which have their ids and leading bits."""
        parts = self.index.nbytes_by_part()
        return int(parts["neighbors"] + parts["prepared"]) if "neighbors" in parts else 0  # few items have no graph

    def grid(self, k: int) -> Grid:
        """Return how many items a walk keeps (ef); all of them are reranked."""
        return {"ef": efforts(k)}

    def _hits(self, queries: Floats, k: int) -> Any:
        return self.index.search(queries, k=k, candidates=self.setting["ef"], rerank=self.setting["ef"])


class NestcodeScan(Nestcode):
    """Exhaustive search of `LinearCoder` codes: those that a graph without vectors ranks by."""

    def __init__(self, width: int) -> None:
        super().__init__(width, "compressed")
        self.name = f"Nestcode full scan of the graph's {width} bits"

    def empty(self, task: Task) -> nc.Index:
        """Fit the coder and return an empty index."""
        return nc.Index(nc.LinearCoder(self.width, metric=task.metric).fit(task.base))

    def grid(self, k: int) -> Grid:
        """Return its one setting."""
        return {"nearest": (k,)}

    def _hits(self, queries: Floats, k: int) -> Any:
        return self.index.search(queries, k=k, candidates=len(self.index))


class Exact(Method):
    """NumPy's matrix product and argpartition."""

    name, kind = "NumPy, exact", "with vectors"
    batch = 64  # queries

    def build(self, task: Task) -> None:
        """Keep the items and what ranks them beside the inner product."""
        self.index = task.base
        self.offsets = np.zeros(1) if task.metric == "cosine" else np.square(task.base).sum(axis=1) / 2

    def nbytes(self) -> int:
        """Return the bytes of the items."""
        return int(self.index.nbytes)

    def grid(self, k: int) -> Grid:
        """Return its one setting."""
        return {"nearest": (k,)}

    def set(self, setting: Setting) -> None:
        """Do nothing."""

    def search(self, queries: Floats, k: int) -> Ids:
        """Return the exact neighbors."""
        parts = (queries[i : i + self.batch] for i in range(0, len(queries), self.batch))
        return np.concatenate(
            [np.argpartition(self.offsets - part @ self.index.T, k - 1, axis=1)[:, :k] for part in parts]
        )
