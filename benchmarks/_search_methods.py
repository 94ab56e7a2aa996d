"""The interface of an index in the QPS table of the search benchmark, and Nestcode's."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar, Literal

import nestcode as nc
from _search_task import NEAREST, Task
from nestcode.arrays import Floats, Ids

Kind = Literal["compressed", "with vectors"]  # codes only, or vectors stored too
Setting = dict[str, int]

# Of all graphs: links per node (M), efConstruction, efSearch.
LINKS, CONSTRUCTION = 16, 128
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Method:
    """An index that can be built, configured and searched.

    `grid` has the values of its settings. The last one is the effort, ascending; all others are combined.
    """

    ours: ClassVar[bool] = False
    graph: ClassVar[bool] = False  # graphs are slow to build
    name: str
    kind: Kind
    grid: dict[str, tuple[int, ...]]
    index: Any = None

    def build(self, task: Task) -> None:
        """Train the index and add all items, on all cores."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Return the bytes of the index, including vectors if it stores them."""
        raise NotImplementedError

    def set(self, setting: Setting) -> None:
        """Configure the next searches."""
        raise NotImplementedError

    def search(self, queries: Floats) -> Ids:
        """Return 10 ids per query, on one thread."""
        raise NotImplementedError

    def compared(self, queries: Floats) -> float | None:  # noqa: ARG002
        """Return the mean number of items compared per query, if known."""
        return None

    def release(self) -> None:
        """Free the memory for the next method."""
        self.index = None


class Nestcode(Method):
    """Nestcode's index of `CellCoder` codes."""

    ours = True
    shares = (
        0.001,
        0.002,
        0.004,
        0.007,
        0.01,
        0.015,
        0.02,
        0.03,
        0.05,
        0.08,
    )  # candidate budgets as shares of the items

    def __init__(self, width: int, kind: Kind, items: int) -> None:
        self.name, self.kind, self.width = f"Nestcode, {width} bits", kind, width
        candidates = sorted({max(NEAREST, round(share * items)) for share in self.shares})
        self.grid = {"rerank": (20, 40, 80, 160), "candidates": tuple(candidates)}

    def build(self, task: Task) -> None:
        """Fit the coder and add all items."""
        coder = nc.CellCoder(self.width, metric=task.metric).fit(task.base)
        self.index = nc.Index(coder)
        self.index.add(task.base)
        self.index.compact()
        self.vectors = task.base if self.kind == "with vectors" else None
        self.set({name: values[0] for name, values in self.grid.items()})
        self.search(task.base[:1])  # the first search builds the scorer

    def nbytes(self) -> int:
        """Return the bytes of the codes, the scorer, the coder, and the vectors if they are stored."""
        with tempfile.TemporaryDirectory() as folder:
            coder = Path(folder) / "coder"
            self.index.coder.save(coder)
            held = self.index.nbytes + coder.stat().st_size
        return int(held) + (0 if self.vectors is None else self.vectors.nbytes)

    def set(self, setting: Setting) -> None:
        """Set the candidate budget and the number of candidates to rerank."""
        self.setting = setting

    def search(self, queries: Floats) -> Ids:
        """Return the nearest items by code, reranked by vectors if these are stored."""
        ids: Ids = self._hits(queries).ids
        return ids

    def compared(self, queries: Floats) -> float:
        """Return the mean number of codes compared per query."""
        return float(self._hits(queries).compared.mean())

    def _hits(self, queries: Floats) -> Any:
        raw = {} if self.vectors is None else {"vectors": self.vectors}
        return self.index.search(queries, k=NEAREST, **self.setting, **raw)
