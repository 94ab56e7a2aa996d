"""Run the chapters in order and write the page."""

import platform
from pathlib import Path

from rich.console import Console

import nestcode
from nestcode.errors import import_extra
from nestcode.report import Page

NEXT = (
    ("see how fast search is here", "nestcode bench"),
    ("stream a folder of pictures", "nestcode compress photos/ -o photos.nest --budget 2MB"),
    ("check a claim of the paper", "nestcode reproduce pca --out paper"),
)  # what to try after the tour


def run(out: str | Path, *, steps: int = 400, console: Console | None = None) -> Path:
    """Run the tour, write its page into the folder `out` and return the page's path.

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
    page = Page(
        "Nested codes, in pictures",
        "A nested code is a string of units or bits whose every prefix is itself the best code of that length. "
        "Everything below was computed on this machine from real images.",
    )
    console.print("[bold]1/6[/] Ordering the units of an autoencoder on photograph patches")
    ordered.add_chapter(page, steps=steps, console=console)
    console.print("[bold]2/6[/] Turning units into bits")
    bits.add_chapter(page, console=console)
    console.print("[bold]3/6[/] Decoding bits by a network")
    deep.add_chapter(page, console=console)
    console.print("[bold]4/6[/] Finding similar digits")
    codes.add_chapter(page)
    console.print("[bold]5/6[/] Searching photograph patches")
    search.add_chapter(page, console=console)
    console.print("[bold]6/6[/] Streaming a photograph")
    stream.add_chapter(page)
    page.footer(f"Made by nestcode demo, version {nestcode.__version__}, on {platform.machine()}.")
    return page.write(out)
