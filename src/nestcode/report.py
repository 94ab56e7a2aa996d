"""Self-contained HTML pages of text, figures and tables.

A page is one file that can be mailed or opened from disk. Its images are embedded as WebP, a quarter of the size of
PNG, and also written beside it as PNG for use elsewhere.
"""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from nestcode.storage import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

# The palette of Okabe and Ito, which color-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
)  # fmt: skip
GRAY = "#999999"
COLORS = BLUE, VERMILLION, GREEN, PURPLE  # of curves, in order

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --faint: #57606a; --page: #fff;
  --panel: #f2f4f6; --line: #d7dce1; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dfe3e8; --faint: #9aa4af; --page: #16191d; --panel: #242a31; --line: #3a424b; --link: #7cb8f2; }
}
body { font: 17px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 0 auto;
  max-width: 56rem; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 2rem; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p { max-width: 44rem; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; display: block; background: #fff; border-radius: 4px; }
figcaption, caption { color: var(--faint); font-size: .9rem; text-align: left; margin-top: .5rem; max-width: 44rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: min(26rem, 100%); font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; }
th, td { padding: .35rem .9rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.words th, .words td { text-align: left; vertical-align: top; }
li { max-width: 44rem; }
a { color: var(--link); }
footer { margin-top: 3rem; color: var(--faint); font-size: .85rem; }
code { font-size: .9em; background: var(--panel); padding: .1em .3em; border-radius: 3px; }
pre { background: var(--panel); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; line-height: 1.45; }
pre code { padding: 0; background: none; }
"""


@dataclass(frozen=True)
class Link:
    """A table cell or list item that links to a section.

    >>> page = Page("Codes", "What prefixes decode to.")
    >>> page.table(["about"], [[Link("errors", section="Errors")]], caption="Sections.")
    >>> '<a href="#errors">errors</a>' in page.html()
    True
    """

    text: str
    section: str  # its title

    def __str__(self) -> str:
        return self.text


class Page:
    """A page that is written from top to bottom.

    >>> page = Page("Codes", "What prefixes decode to.")
    >>> page.section("Errors", "They fall with length.")
    >>> page.table(["length", "error"], [[8, 0.25], [16, 0.125]], caption="Lower is better.")
    >>> '<h2 id="errors">Errors</h2>' in page.html()
    True
    """

    def __init__(self, title: str, lead: str) -> None:
        self._title = title
        self._blocks = [f"<h1>{escape(title)}</h1>", f"<p>{escape(lead)}</p>"]
        self._images: dict[str, bytes] = {}

    def section(self, title: str, text: str) -> None:
        """Start a section; blank lines in the text separate paragraphs."""
        self._blocks.append(f'<h2 id="{_anchor(title)}">{escape(title)}</h2>')
        self.text(text)

    def text(self, text: str) -> None:
        """Add paragraphs, separated by blank lines."""
        self._blocks += [f"<p>{escape(paragraph)}</p>" for paragraph in re.split(r"\n\s*\n", text)]

    def list(self, items: Sequence[str | Link]) -> None:
        """Add a bulleted list of texts or links to sections."""
        self._blocks.append(f"<ul>{''.join(f'<li>{_cell(item)}</li>' for item in items)}</ul>")

    def code(self, source: str) -> None:
        """Add source code."""
        self._blocks.append(f"<pre><code>{escape(source)}</code></pre>")

    def html_block(self, html: str) -> None:
        """Add HTML as it is; the caller escapes what it shows."""
        self._blocks.append(html)

    def figure(self, name: str, figure: "Figure", caption: str) -> None:
        """Add a Matplotlib figure; `name` becomes `name.png`."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=160, bbox_inches="tight")
        self.image(name, buffer.getvalue(), caption)

    def image(self, name: str, png: bytes, caption: str) -> None:
        """Add an image in PNG; `name` becomes `name.png`."""
        from PIL import Image

        self._images[f"{name}.png"] = png
        with Image.open(io.BytesIO(png)) as image:
            source = data_uri(image)
        self._blocks.append(
            f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
        )

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[object]], caption: str, *, words: bool = False
    ) -> None:
        """Add a table; the first column holds names, the other columns hold values or words."""
        head = "".join(f"<th>{escape(header)}</th>" for header in headers)
        body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        self._blocks.append(
            f'<div class="scroll"><table class="{"words" if words else "numbers"}"><caption>{escape(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def footer(self, text: str) -> None:
        """End the page with a note on how it was written."""
        self._blocks.append(f"<footer>{escape(text)}</footer>")

    def html(self) -> str:
        """Return the page as HTML."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._blocks)
            + "\n</body></html>\n"
        )

    def write(self, folder: str | Path) -> Path:
        """Write `index.html` and the images into `folder`, and return the page's path."""
        folder = Path(folder)
        for name, data in self._images.items():
            write_atomic(folder / name, data)
        write_atomic(folder / "index.html", self.html().encode())
        return folder / "index.html"


def data_uri(image: "Image", quality: int = 90) -> str:
    """Return an image as a data URI in WebP, for pages that are one file.

    >>> from PIL import Image
    >>> data_uri(Image.new("RGB", (4, 4)))[:23]
    'data:image/webp;base64,'
    """
    memory = io.BytesIO()
    image.convert("RGB").save(memory, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(memory.getvalue()).decode()


def _anchor(title: str) -> str:
    """Return the id of a section for links."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _cell(cell: object) -> str:
    text = escape(str(cell))
    return f'<a href="#{_anchor(cell.section)}">{text}</a>' if isinstance(cell, Link) else text
