"""What an experiment receives and records: its settings, a cache, and findings, figures and tables for the report."""

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from nestcode.data.cifar10 import SHA256
from nestcode.errors import InvalidInput
from nestcode.reproduce.lab.images import Images
from nestcode.reproduce.lab.provenance import Provenance, checksum_of_code, find_machine, find_provenance
from nestcode.storage import write_atomic

Scale = Literal["toy", "quick", "full"]
Verdict = Literal["holds", "differs", "inconclusive"]
Arrays = Mapping[str, NDArray[Any]]
Item = TypeVar("Item")
Value = TypeVar("Value")
SECONDS, SOURCE = "seconds to compute", "machine and commit"  # among the arrays of a cache file
VERDICTS: dict[bool | None, Verdict] = {True: "holds", False: "differs", None: "inconclusive"}


@dataclass(frozen=True)
class Experiment:
    """A figure or claim of the paper, and the function that tests it."""

    name: str
    where: str  # figure or section of the paper
    title: str
    claim: str  # what the paper states, in a few sentences
    run: Callable[["Lab"], None]


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, or a check of our own, and what was measured."""

    claim: str
    of: Literal["paper", "ours"]
    where: str  # in the paper
    paper: str  # what the paper states; empty for a check of our own
    ours: str  # what was measured
    verdict: Verdict
    seeds: tuple[int, ...]  # that were run for it; empty where nothing is random


@dataclass
class Lab:
    """The settings of one experiment, and the record of its results.

    Args:
        folder: for the report and the cache.
        data: folder with CIFAR-10; without it, patches of two sample images are used.
        scale: "toy" for a smoke test, "quick" for minutes on two cores, "full" for a GPU.
        seeds: random seeds; several give a range.
        fresh: whether to ignore the cache.
        console: for progress.
        provenance: the commit of this code, and whether its tree is clean.
        unfinished: take networks whose training was interrupted as they are.
        states: for the cache, to carry trained networks and measurements from one machine to another.
        where: the experiment's place in the paper.

    """

    folder: Path
    data: Path | None = None
    scale: Scale = "quick"
    seeds: tuple[int, ...] = (0, 1, 2)
    fresh: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True))
    provenance: Provenance = field(default_factory=lambda: find_provenance(allow_dirty=True))
    states: Path | None = None
    unfinished: bool = False
    where: str = ""
    findings: list[Finding] = field(default_factory=list)
    departures: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)  # figures and tables, in order
    measured: dict[str, Any] = field(default_factory=dict)  # further values for the JSON file
    files: dict[str, bytes] = field(default_factory=dict)  # figures by file name
    cached_seconds: float = 0.0  # what the arrays from the cache once took to compute
    sources: set[str] = field(default_factory=set)  # machines and commits that computed what the cache gave

    @property
    def cache(self) -> Path:
        """The folder of cached arrays."""
        return self.folder / "cache" if self.states is None else self.states

    @property
    def source(self) -> str:
        """The machine and the commit at work."""
        return f"{find_machine()}, {self.provenance}"

    def pick(self, *, toy: Value, quick: Value, full: Value) -> Value:
        """Return the value for this scale."""
        return {"toy": toy, "quick": quick, "full": full}[self.scale]

    def images(self, train: int | None = None, test: int | None = None) -> Images:
        """Return at most so many images of CIFAR-10, or patches of 16 x 16 pixels of two sample images without it."""
        if self.data is not None:
            cifar = cifar10(self.data)
            return Images("CIFAR-10", 32, cifar.train[:train], cifar.test[:test], cifar.train_labels[:train],
                          cifar.test_labels[:test])  # fmt: skip
        count, more = (train or 10_000), (test or 1_000)
        cut = patches(list(sample_images().values()), size=16, n=count + more, rng=np.random.default_rng(0))
        rows = np.ascontiguousarray(cut.transpose(0, 3, 1, 2)).reshape(len(cut), -1)
        return Images("patches of sample images", 16, rows[:count], rows[count:], None, None)

    def finding(
        self,
        claim: str,
        *,
        paper: str | None = None,
        ours: str,
        holds: bool | None,
        where: str | None = None,
        seeds: Sequence[int] | None = None,
    ) -> None:
        """Record a claim of the paper, or a check of our own.

        Args:
            claim: in one sentence.
            paper: the paper's value or words; None for a check, which the paper does not make.
            ours: what was measured.
            holds: whether it holds; None if that cannot be decided.
            where: in the paper, if not where the experiment is.
            seeds: that were run for it, if not all of the lab's.

        """
        verdict = VERDICTS[None if holds is None else bool(holds)]
        of: Literal["paper", "ours"] = "ours" if paper is None else "paper"
        run = tuple(self.seeds if seeds is None else seeds)
        self.findings.append(Finding(claim, of, where or self.where, paper or "", ours, verdict, run))

    def departure(self, text: str) -> None:
        """Record where the experiment departs from the paper, and why."""
        self.departures.append(text)

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Record a figure, as `name.png` and `name.svg`."""
        dots = self.pick(toy=80, quick=150, full=150)
        tight = self.pick(toy=None, quick="tight", full="tight")  # which draws each figure twice
        for kind in ("png", "svg"):
            memory = BytesIO()
            figure.savefig(
                memory, format=kind, dpi=dots, bbox_inches=tight, metadata={"Date": None} if kind == "svg" else None
            )
            self.files[f"{name}.{kind}"] = memory.getvalue()
        seeds = ", ".join(map(str, self.seeds))
        sources = "; ".join(sorted(self.sources or {self.source}))
        self.blocks.append({"figure": name, "caption": f"{caption} ({self.scale} scale, seeds {seeds}; {sources}.)"})

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> None:
        """Record a table; the first column holds names."""
        cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
        self.blocks.append({"headers": list(headers), "rows": cells, "caption": caption})

    def progress(self, items: Iterable[Item], text: str, total: int | None = None) -> Iterator[Item]:
        """Iterate over items behind a progress bar."""
        hidden = not self.console.is_terminal
        yield from track(items, f"  {text}", total=total, console=self.console, transient=True, disable=hidden)

    def cached(self, name: str, compute: Callable[[], Arrays], **settings: Any) -> dict[str, NDArray[Any]]:
        """Return the arrays of `compute`, from the cache if the same code computed them with equal settings before.

        Scale, the checksums of the data, and those of training, networks and coders are part of the settings.
        """
        data = None if self.data is None else SHA256
        known = {"version": nestcode.__version__, "scale": self.scale, "data": data, "code": checksum_of_code()}
        key = json.dumps({**settings, **known}, sort_keys=True, default=str)
        path = self.cache / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.npz"
        if path.exists() and not self.fresh:
            try:
                with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                    arrays = {key: stored[key] for key in stored.files}
                self.cached_seconds += float(arrays.pop(SECONDS, 0.0))
                self.sources.add(str(arrays.pop(SOURCE)))
                return arrays
            except (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error):
                self.console.print(f"  {path} is damaged and is computed again")
        start = time.perf_counter()
        computed = {key: np.asarray(array) for key, array in compute().items()}
        memory = BytesIO()
        self.sources.add(self.source)
        facts = {SECONDS: np.array(time.perf_counter() - start), SOURCE: np.array(self.source)}
        np.savez_compressed(memory, allow_pickle=False, **computed, **facts)
        write_atomic(path, memory.getvalue())
        return computed

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        if not self.findings:
            raise InvalidInput("an experiment must record a finding, got none: call lab.finding")
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "departures": self.departures,
            "blocks": self.blocks,
            "numbers": _rounded(self.measured),
        }


def _rounded(value: Any) -> Any:
    """Round floats to six digits, beyond any precision measured here."""
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
