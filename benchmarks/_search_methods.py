"""What the second table of the search benchmark asks of a method, and ours."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar, Literal

import nestcode as nc
from _search_task import NEAREST, Floats, Ids, Task

Kind = Literal["compressed", "with rescoring"]  # without the raw vectors, or with them
Setting = dict[str, int]

# What all graphs share: links of an item, effort that they are built with, efforts of a search.
LINKS, CONSTRUCTION = 16, 128
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Method:
    """An index that can be built, set and searched.

    `grid` names its settings. All values of the others are combined; the last one is the effort, in rising order.
    """

    ours: ClassVar[bool] = False
    graph: ClassVar[bool] = False  # of the kind that is slow to build
    name: str
    kind: Kind
    grid: dict[str, tuple[int, ...]]
    index: Any = None

    def build(self, task: Task) -> None:
        """Train and add, on all cores."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """What it holds, the raw vectors with it where it needs them."""
        raise NotImplementedError

    def set(self, setting: Setting) -> None:
        """How the next searches are done."""
        raise NotImplementedError

    def search(self, queries: Floats) -> Ids:
        """The ids of 10 items for each query, on one thread."""
        raise NotImplementedError

    def compared(self, queries: Floats) -> float | None:  # noqa: ARG002
        """The mean number of items that were compared with a query, where that is known."""
        return None

    def release(self) -> None:
        """Free the memory, which the next one needs."""
        self.index = None


class Nestcode(Method):
    """An index of cell codes."""

    ours = True
    shares = (0.001, 0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08)  # of the items are candidates

    def __init__(self, width: int, kind: Kind, items: int) -> None:
        self.name, self.kind, self.width = f"Nestcode, {width} bits", kind, width
        candidates = sorted({max(NEAREST, round(share * items)) for share in self.shares})
        self.grid = {"rerank": (20, 40, 80, 160), "candidates": tuple(candidates)}

    def build(self, task: Task) -> None:
        """Fit and add."""
        coder = nc.CellCoder(self.width, metric=task.metric).fit(task.base)
        self.index = nc.Index(coder)
        self.index.add(task.base)
        self.index.compact()
        self.vectors = task.base if self.kind == "with rescoring" else None
        self.set({name: values[0] for name, values in self.grid.items()})
        self.search(task.base[:1])  # the first search makes ready what all need

    def nbytes(self) -> int:
        """The codes, what was made ready for searching them, the coder, and the vectors beside them."""
        with tempfile.TemporaryDirectory() as folder:
            coder = Path(folder) / "coder"
            self.index.coder.save(coder)
            held = self.index.nbytes + coder.stat().st_size
        return int(held) + (0 if self.vectors is None else self.vectors.nbytes)

    def set(self, setting: Setting) -> None:
        """Choose how many items are looked at, and how many of them twice."""
        self.setting = setting

    def search(self, queries: Floats) -> Ids:
        """The nearest by code, or by what the vectors say of the best codes."""
        ids: Ids = self._hits(queries).ids
        return ids

    def compared(self, queries: Floats) -> float:
        """The mean number of codes that were compared with a query."""
        return float(self._hits(queries).compared.mean())

    def _hits(self, queries: Floats) -> Any:
        raw = {} if self.vectors is None else {"vectors": self.vectors}
        return self.index.search(queries, k=NEAREST, **self.setting, **raw)
