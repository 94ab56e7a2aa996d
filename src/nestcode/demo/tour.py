"""Run the chapters in order and write the page."""

import platform
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import nestcode
from nestcode.errors import extra_folder
from nestcode.report import Link, Page
from nestcode.storage import make_folder

NEXT = (
    ("measure search on this machine", "nestcode bench"),
    ("stream a folder of images", "nestcode images compress photos/ -o photos.nest --budget 2MB"),
    ("test a claim of the paper, with PyTorch", "nestcode reproduce pca --out paper"),
)  # commands to try after the tour

WRONG_TOOL = (
    "A few thousand vectors: exhaustive search with NumPy is exact and fast enough.",
    "Recall near 1 with ample memory: a graph index on uncompressed vectors, such as HNSW, is made for that.",
    "One file size for all, judged by eye: AVIF looks better at the same size, and browsers decode it.",
    "Lossless compression: nested codes are approximations.",
)


@dataclass(frozen=True)
class Tour:
    """The page of a tour, the result of each chapter in one line, and the command that explores its data."""

    page: Path
    found: dict[str, str]
    explore: str


def run(out: str | Path, *, steps: int = 400, console: Console | None = None) -> Tour:
    """Run the tour, write its page into the folder `out`, and return both.

    Args:
        out: a folder, created if missing.
        steps: training steps of the standard autoencoder; fewer are faster and less accurate.
        console: for progress.

    """
    for module in ("sklearn", "matplotlib", "PIL"):
        extra_folder(module, extra="demo", purpose="the demo")  # before any work, and without importing them
    from nestcode.demo import bits, ordering, prefixes, refined, search, stream

    folder = Path(out) / "explorer"
    make_folder(folder)  # fail before the work if the folder cannot be written

    console = console or Console(stderr=True)
    chapters: dict[str, Callable[[Page], str]] = {
        stream.TITLE: partial(stream.add_chapter, folder=folder),
        search.TITLE: partial(search.add_chapter, folder=folder, console=console),
        prefixes.TITLE: prefixes.add_chapter,
        ordering.TITLE: partial(ordering.add_chapter, steps=steps, console=console),
        bits.TITLE: partial(bits.add_chapter, console=console),
        refined.TITLE: partial(refined.add_chapter, console=console),
    }
    page = Page(
        "Nested codes: a guided tour",
        "Nestcode turns vectors and images into bit strings that can be truncated anywhere: every prefix is itself a "
        "code, about as good as one trained for that length. You encode once, search with the bits that a query needs, "
        "and send the bits that each receiver can take. Everything below was computed on this machine, from real "
        "images.",
    )
    page.list([Link(title, section=title) for title in (*chapters, "Next steps")])
    start, found = time.perf_counter(), {}
    for number, (title, add_chapter) in enumerate(chapters.items(), 1):
        console.print(f"[bold]{number}/{len(chapters)} {title}[/]", highlight=False)
        found[title] = add_chapter(page)
        console.print(f"    {found[title]}", highlight=False, soft_wrap=True)
    _add_next_steps(page)
    page.footer(
        f"Written by nestcode demo, version {nestcode.__version__}, on {platform.machine()}, in "
        f"{time.perf_counter() - start:.0f} seconds."
    )
    parts = (folder / "patches.index", "--items", folder / "patches.npy", "--streams", folder)
    explore = shlex.join(["nestcode", "serve", *map(str, parts)])
    return Tour(page.write(out), found, explore)


def _add_next_steps(page: Page) -> None:
    page.section("Next steps", "Three commands to try:")
    page.code("\n".join(f"{command}  # {purpose}" for purpose, command in NEXT))
    page.text("When Nestcode is the wrong tool:")
    page.list(WRONG_TOOL)
