"""What an experiment is given, and what it leaves: findings, figures, tables, and numbers that are kept."""

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeVar
from zipfile import BadZipFile

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

import nestcode
from nestcode.data import cifar10, patches, sample_images
from nestcode.errors import InvalidInput
from nestcode.storage import write_atomic

Scale = Literal["toy", "quick", "full"]
Arrays = Mapping[str, NDArray[Any]]
Item = TypeVar("Item")
Value = TypeVar("Value")
SECONDS = "seconds of making this"  # among the arrays of a file


@dataclass(frozen=True)
class Experiment:
    """One figure or claim of the paper."""

    name: str
    where: str  # in the paper
    title: str
    says: str  # what the paper says, in a few sentences
    run: Callable[["Lab"], None]


@dataclass(frozen=True)
class Finding:
    """One claim beside what was measured."""

    claim: str
    paper: str
    ours: str
    holds: bool | None  # None where the paper gives nothing to compare with


@dataclass(frozen=True)
class Images:
    """Rows of bytes, planes of red, green and blue one after the other, (n, 3 * side * side)."""

    name: str
    side: int
    train: NDArray[np.uint8]
    test: NDArray[np.uint8]
    labels: NDArray[np.uint8] | None  # of the training images
    test_labels: NDArray[np.uint8] | None

    def shown(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows as pictures, (n, side, side, 3)."""
        return rows.reshape(-1, 3, self.side, self.side).transpose(0, 2, 3, 1)

    def shrunk(self, side: int) -> "Images":
        """The images with at most `side` pixels a side, each the mean of a square."""
        by = self.side // min(side, self.side)

        def shrink(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
            means = rows.reshape(-1, 3, self.side // by, by, self.side // by, by).mean(axis=(3, 5))
            return np.asarray(means.round().astype(np.uint8).reshape(len(rows), -1))

        return replace(self, side=self.side // by, train=shrink(self.train), test=shrink(self.test))


@dataclass
class Lab:
    """Where an experiment runs.

    Args:
        folder: for what it keeps.
        data: folder with CIFAR-10; without it patches of photographs stand in.
        scale: "toy" to see that it runs, "quick" for minutes on two cores, "full" for a GPU.
        seeds: of what is random; three give a spread.
        fresh: whether to compute again what was kept.
        console: where to say what is going on.

    """

    folder: Path
    data: Path | None = None
    scale: Scale = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    fresh: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True))
    findings: list[Finding] = field(default_factory=list)
    departures: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)  # figures and tables, in order
    numbers: dict[str, Any] = field(default_factory=dict)  # whatever else belongs into the JSON file
    pictures: dict[str, bytes] = field(default_factory=dict)  # files by name
    spared: float = 0.0  # seconds that what was kept took

    def pick(self, *, toy: Value, quick: Value, full: Value) -> Value:
        """What belongs to the scale."""
        return {"toy": toy, "quick": quick, "full": full}[self.scale]

    def images(self, train: int | None = None, test: int | None = None) -> Images:
        """CIFAR-10, or patches of 16 x 16 pixels of two photographs where it is not given; as many as wanted."""
        if self.data is not None:
            all_of_it = cifar10(self.data)
            return Images("CIFAR-10", 32, all_of_it.train[:train], all_of_it.test[:test],
                          all_of_it.train_labels[:train], all_of_it.test_labels[:test])  # fmt: skip
        count, more = (train or 10_000), (test or 1_000)
        cut = patches(list(sample_images().values()), size=16, n=count + more, rng=np.random.default_rng(0))
        rows = np.ascontiguousarray(cut.transpose(0, 3, 1, 2)).reshape(len(cut), -1)
        return Images("patches of photographs", 16, rows[:count], rows[count:], None, None)

    def finding(self, claim: str, *, paper: str, ours: str, holds: bool | None = None) -> None:
        """Note what was found beside what the paper says."""
        self.findings.append(Finding(claim, paper, ours, None if holds is None else bool(holds)))

    def departure(self, text: str) -> None:
        """Note where this differs from the paper, and why."""
        self.departures.append(text)

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Keep a figure, as `name.png` and `name.svg`."""
        for kind in ("png", "svg"):
            memory = BytesIO()
            figure.savefig(
                memory, format=kind, dpi=150, bbox_inches="tight", metadata={"Date": None} if kind == "svg" else None
            )
            self.pictures[f"{name}.{kind}"] = memory.getvalue()
        self.blocks.append({"figure": name, "caption": caption})

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> None:
        """Keep a table; the first column holds names."""
        cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
        self.blocks.append({"headers": list(headers), "rows": cells, "caption": caption})

    def progress(self, items: Iterable[Item], text: str, total: int | None = None) -> Iterator[Item]:
        """Items, with a bar while they are worked off."""
        hidden = not self.console.is_terminal
        yield from track(items, f"  {text}", total=total, console=self.console, transient=True, disable=hidden)

    def kept(self, name: str, make: Callable[[], Arrays], **settings: Any) -> dict[str, NDArray[Any]]:
        """Arrays that `make` computes, or that this version computed before with the same settings, scale and data."""
        known = {"version": nestcode.__version__, "scale": self.scale, "data": self.data is not None}
        about = json.dumps({**settings, **known}, sort_keys=True, default=str)
        path = self.folder / "kept" / f"{name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}.npz"
        if path.exists() and not self.fresh:
            try:
                with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as found:
                    arrays = {key: found[key] for key in found.files}
                self.spared += float(arrays.pop(SECONDS, 0.0))
                return arrays
            except (OSError, ValueError, EOFError, BadZipFile, zlib.error):
                self.console.print(f"  {path} is damaged and is made again")
        start = time.perf_counter()
        made = {key: np.asarray(array) for key, array in make().items()}
        memory = BytesIO()
        np.savez_compressed(memory, allow_pickle=False, **made, **{SECONDS: np.array(time.perf_counter() - start)})
        write_atomic(path, memory.getvalue())
        return made

    def to_json(self) -> dict[str, Any]:
        """What is found, for a file."""
        if not self.findings:
            raise InvalidInput("an experiment must find something: call lab.finding")
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "departures": self.departures,
            "blocks": self.blocks,
            "numbers": _rounded(self.numbers),
        }


def _rounded(value: Any) -> Any:
    """Numbers to six digits, which nobody measures beyond."""
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
