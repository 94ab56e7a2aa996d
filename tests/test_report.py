"""Report pages are self-contained, escaped and complete."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from nestcode.report import Link, Page


class Balanced(HTMLParser):
    """A parser that records tags which are never closed."""

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
    page.table(["name", "value"], [["<x>", 0.5]], caption="Values.")
    page.footer("The end.")
    return page


def test_the_page_is_well_formed_and_escaped() -> None:
    parser = Balanced()
    parser.feed(make_page().html())
    assert parser.open == []
    assert "<title>A &lt; B</title>" in make_page().html()
    assert "<td>&lt;x&gt;</td>" in make_page().html()
    assert "<p>First.</p>\n<p>Second.</p>" in make_page().html()


def test_images_are_embedded_in_the_page_and_written_beside_it(tmp_path: Path) -> None:
    path = make_page().write(tmp_path / "report")
    assert path == tmp_path / "report" / "index.html"
    (embedded,) = re.findall(r'src="data:image/webp;base64,([^"]+)"', path.read_text())
    beside = (path.parent / "curve.png").read_bytes()
    assert beside.startswith(b"\x89PNG")
    shown, exact = (np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=float)
                    for data in (base64.b64decode(embedded), beside))  # fmt: skip
    assert shown.shape == exact.shape
    assert np.abs(shown - exact).mean() < 2
    assert not re.search(r"(src|href)=\"(?!data:)", path.read_text())


def test_links_point_to_sections() -> None:
    page = make_page()
    page.section("Second: a < b!", "Text.")
    page.table(["about"], [[Link("there", "Second: a < b!")]], caption="Links.", words=True)
    (target,) = re.findall(r'href="#([^"]+)"', page.html())
    assert f'<h2 id="{target}">Second: a &lt; b!</h2>' in page.html()
