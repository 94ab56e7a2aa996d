"""Interactive parts of the page: HTML with a short script; without scripts, the start state is shown."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nestcode.arrays import Bytes
from nestcode.report import data_uri

GAP = 16  # pixels between images side by side


@dataclass(frozen=True)
class Frame:
    """One position of a slider: a line of text, and images by caption."""

    text: str
    images: dict[str, Bytes]


def slider(name: str, label: str, frames: Sequence[Frame], *, start: int) -> str:
    """Return images side by side that change as a slider moves or plays.

    Args:
        name: id of the element, unique on the page.
        label: description for screen readers.
        frames: one per position.
        start: the position shown first.

    """
    blocks = []
    for place, frame in enumerate(frames):
        images = "".join(
            f'<figure><img src="{data_uri(Image.fromarray(image), quality=80)}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for caption, image in frame.images.items()
        )
        hidden = "" if place == start else " hidden"
        blocks.append(
            f'<div class="frame"{hidden}><div class="text">{escape(frame.text)}</div>'
            f'<div class="images">{images}</div></div>'
        )
    return _fill("slider", name=name, label=escape(label), last=len(frames) - 1, start=start, frames="\n".join(blocks))


def lookup(
    name: str, label: str, images: Sequence[Bytes], found: NDArray[np.integer], *, side: int, step: int,
    start: tuple[int, int, int],
) -> str:  # fmt: skip
    """Return two images side by side; pointing at a place frames the squares found for it in both.

    Args:
        name: id of the element, unique on the page.
        label: description for screen readers.
        images: of one size, (height, width, 3).
        found: (image, row, column, place, 3), the image, y and x of squares; the first is the query's own.
        side: of a square, in pixels.
        step: between adjacent rows or columns of queries, in pixels.
        start: image, row and column of the query shown first.

    """
    height, width = images[0].shape[:2]
    apart = width + GAP
    places = np.stack([found[..., 2] + apart * found[..., 0], found[..., 1]], axis=-1).astype("<u2")
    elements = "".join(
        f'<image x="{apart * place}" width="{width}" height="{height}" href="{data_uri(Image.fromarray(image))}"/>'
        for place, image in enumerate(images)
    )
    first = places[start].tolist()
    return _fill(
        "lookup",
        name=name,
        label=escape(label),
        width=2 * width + GAP,
        height=height,
        images=elements,
        boxes="".join(f'<rect x="{x}" y="{y}" width="{side}" height="{side}"/>' for x, y in first),
        tiles="".join(f'<svg viewBox="{x} {y} {side} {side}"><use href="#{name}-images"/></svg>' for x, y in first),
        found=base64.b64encode(places.tobytes()).decode(),
        sizes=[side, step, found.shape[1], found.shape[2], apart],
        start=list(start),
    )


def _fill(template: str, **values: object) -> str:
    """Return a template of this folder with its [[placeholders]] filled."""
    text = files(__package__).joinpath(f"{template}.html").read_text(encoding="utf-8")
    for placeholder, value in values.items():
        text = text.replace(f"[[{placeholder}]]", str(value))
    return text
