"""Chapter 3: better bits, decoded by a network."""

from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nestcode.coders import Coder, LinearCoder, load_coder
from nestcode.data import patches, photographs
from nestcode.demo._pictures import photograph_figure
from nestcode.report import Page

SIDE, SHOWN = 32, (32, 64, 128)


def add_chapter(page: Page, *, console: Console) -> None:
    """Decode patches of a photograph by both coders, at the same lengths."""
    photos = photographs()
    cut = patches(list(photos.values()), size=SIDE, n=6_000, rng=np.random.default_rng(2))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    with console.status("  a linear coder of patches of 32 x 32"):
        linear = LinearCoder(max(SHOWN)).fit(X[:5_000])
    deep = load_coder("cifar10-small")
    test = X[5_000:]
    kinds: dict[str, Coder] = {"linear": linear, "deep": deep}
    errors = [
        [name, *(f"{np.mean((test - at_length(coder, length, test)) ** 2):.5f}" for length in SHOWN)]
        for name, coder in kinds.items()
    ]
    page.section(
        "A network that decodes",
        "The bits of an adaptive coder go where an image is least known, and a network that was trained at all lengths "
        "decodes them. This one comes with Nestcode: it was learnt from CIFAR-10 and has not seen photographs like "
        f"these, on which the linear coder was fitted. A patch of {SIDE} x {SIDE} pixels is {24 * SIDE**2:,} bits.",
    )
    page.figure(
        "deep",
        photograph_figure(
            photos["china"][64:320, 128:448],
            SIDE,
            [
                {f"{name}, {length} bits a patch": partial(at_length, coder, length) for length in SHOWN}
                for name, coder in kinds.items()
            ],
        ),
        "The same lengths, linear above and deep below.",
    )
    page.table(
        ["coder", *(f"{length} bits" for length in SHOWN)],
        errors,
        caption="Mean squared error of a pixel on [0, 1], on other patches of the photographs.",
    )


def at_length(coder: Coder, length: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of pixels, (n, side * side * 3), encoded and decoded; networks take them plane by plane."""
    if isinstance(coder, LinearCoder):
        return coder.decode(coder.encode(rows).prefix(length))
    planes = rows.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2).reshape(len(rows), -1)
    decoded = coder.decode(coder.encode(planes).prefix(length))
    return decoded.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1).reshape(len(rows), -1)
