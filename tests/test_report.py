"""Report pages are self-contained, escaped and written whole."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

from matplotlib.figure import Figure

from nestcode.report import Page


class Balanced(HTMLParser):
    """Notes tags that are never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make_page() -> Page:
    page = Page("A < B", "Lead & all.")
    page.section("One", "First.\n\nSecond.")
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    page.figure("curve", figure, 'It "rises".')
    page.table(["name", "value"], [["<x>", 0.5]], caption="Numbers.")
    page.footer("The end.")
    return page


def test_the_page_is_well_formed_and_escaped() -> None:
    parser = Balanced()
    parser.feed(make_page().html())
    assert parser.open == []
    assert "<title>A &lt; B</title>" in make_page().html()
    assert "<td>&lt;x&gt;</td>" in make_page().html()
    assert "<p>First.</p>\n<p>Second.</p>" in make_page().html()


def test_pictures_are_inside_the_page_and_beside_it(tmp_path: Path) -> None:
    path = make_page().write(tmp_path / "report")
    assert path == tmp_path / "report" / "index.html"
    (inside,) = re.findall(r'src="data:image/png;base64,([^"]+)"', path.read_text())
    assert base64.b64decode(inside) == (path.parent / "curve.png").read_bytes()
    assert (path.parent / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert not re.search(r"(src|href)=\"(?!data:)", path.read_text())
