"""Run the chapters in order and write the page."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import nestcode
from nestcode.errors import import_extra
from nestcode.report import Link, Page

NEXT = (
    ("see how fast search is here", "nestcode bench"),
    ("stream a folder of pictures", "nestcode compress photos/ -o photos.nest --budget 2MB"),
    ("check a claim of the paper", "nestcode reproduce pca --out paper"),
)  # what to try after the tour

WRONG_TOOL = (
    "A few thousand vectors: compare all of them with NumPy; it is exact and quick enough.",
    "Recall near 1, and memory is no matter: a graph of whole vectors, such as HNSW, is made for that.",
    "One size for everybody, judged by eyes: AVIF looks better at the same size, and browsers show it.",
    "Lossless: nested codes are approximations.",
)


@dataclass(frozen=True)
class Tour:
    """What a tour left: its page, and what each chapter found in one line."""

    page: Path
    found: dict[str, str]


def run(out: str | Path, *, steps: int = 400, console: Console | None = None) -> Tour:
    """Run the tour and write its page into the folder `out`.

    Args:
        out: a folder; it is made if it is not there.
        steps: training steps of the ordinary autoencoder; fewer are quicker and rougher.
        console: where to say what is going on.

    """
    for module in ("torch", "sklearn", "matplotlib", "PIL"):
        import_extra(module, extra="reproduce", purpose="the demo")
    from nestcode.demo import bits, codes, deep, ordered, search, stream

    Path(out).mkdir(parents=True, exist_ok=True)  # where it cannot be written is better known before the work

    console = console or Console(stderr=True)
    chapters: dict[str, Callable[[Page], str]] = {
        stream.TITLE: stream.add_chapter,
        search.TITLE: partial(search.add_chapter, console=console),
        codes.TITLE: codes.add_chapter,
        ordered.TITLE: partial(ordered.add_chapter, steps=steps, console=console),
        bits.TITLE: partial(bits.add_chapter, console=console),
        deep.TITLE: partial(deep.add_chapter, console=console),
    }
    page = Page(
        "Nested codes, in pictures",
        "Nestcode turns vectors and images into bit strings that can be cut anywhere: every prefix is itself a code, "
        "about as good as one made for that length. Encode once; then search with as many bits as the question needs, "
        "and send as many as each receiver can take. Everything below was computed on this machine, from real images.",
    )
    page.list([Link(title, section=title) for title in (*chapters, "Your turn")])
    start, found = time.perf_counter(), {}
    for number, (title, add_chapter) in enumerate(chapters.items(), 1):
        console.print(f"[bold]{number}/{len(chapters)} {title}[/]", highlight=False)
        found[title] = add_chapter(page)
        console.print(f"    {found[title]}", highlight=False, soft_wrap=True)
    _end(page)
    page.footer(
        f"Made by nestcode demo, version {nestcode.__version__}, on {platform.machine()}, in "
        f"{time.perf_counter() - start:.0f} seconds."
    )
    return Tour(page.write(out), found)


def _end(page: Page) -> None:
    page.section("Your turn", "Three commands to try next:")
    page.code("\n".join(f"{command}  # {purpose}" for purpose, command in NEXT))
    page.text("And when Nestcode is the wrong tool:")
    page.list(WRONG_TOOL)
