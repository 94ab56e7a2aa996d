"""Parts of the page that answer to a hand: HTML with a few lines of script, and something to see without it."""

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

GAP = 16  # between pictures that stand side by side


@dataclass(frozen=True)
class Frame:
    """What a slider shows at one of its places: a line, and pictures with their captions under it."""

    text: str
    pictures: dict[str, Bytes]


def slider(name: str, label: str, frames: Sequence[Frame], *, start: int) -> str:
    """Pictures side by side that change as a slider moves, or plays."""
    blocks = []
    for place, frame in enumerate(frames):
        pictures = "".join(
            f'<figure><img src="{data_uri(Image.fromarray(picture), quality=80)}" alt="{escape(caption)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for caption, picture in frame.pictures.items()
        )
        hidden = "" if place == start else " hidden"
        blocks.append(
            f'<div class="frame"{hidden}><div class="text">{escape(frame.text)}</div>'
            f'<div class="pictures">{pictures}</div></div>'
        )
    return _filled(
        "slider", name=name, label=escape(label), last=len(frames) - 1, start=start, frames="\n".join(blocks)
    )


def lookup(
    name: str, label: str, photos: Sequence[Bytes], found: NDArray[np.integer], *, side: int, step: int,
    start: tuple[int, int, int],
) -> str:  # fmt: skip
    """Two photographs of one size; where one points, squares that were found for that place light up in both.

    Args:
        name: of the element, once on a page.
        label: what it is, for those who do not see it.
        photos: of one size, (height, width, 3).
        found: (photograph, row, column, place, 3), the photograph, y and x of squares; the first is the query's own.
        side: of a square, in pixels.
        step: between one row or column of queries and the next, in pixels.
        start: photograph, row and column of the query that is shown at first.

    """
    height, width = photos[0].shape[:2]
    apart = width + GAP
    places = np.stack([found[..., 2] + apart * found[..., 0], found[..., 1]], axis=-1).astype("<u2")
    pictures = "".join(
        f'<image x="{apart * place}" width="{width}" height="{height}" href="{data_uri(Image.fromarray(photo))}"/>'
        for place, photo in enumerate(photos)
    )
    first = places[start].tolist()
    return _filled(
        "lookup",
        name=name,
        label=escape(label),
        width=2 * width + GAP,
        height=height,
        pictures=pictures,
        boxes="".join(f'<rect x="{x}" y="{y}" width="{side}" height="{side}"/>' for x, y in first),
        tiles="".join(f'<svg viewBox="{x} {y} {side} {side}"><use href="#{name}-pictures"/></svg>' for x, y in first),
        found=base64.b64encode(places.tobytes()).decode(),
        sizes=[side, step, found.shape[1], found.shape[2], apart],
        start=list(start),
    )


def _filled(template: str, **values: object) -> str:
    """A template of this folder, its [[gaps]] filled."""
    text = files(__package__).joinpath(f"{template}.html").read_text(encoding="utf-8")
    for gap, value in values.items():
        text = text.replace(f"[[{gap}]]", str(value))
    return text
