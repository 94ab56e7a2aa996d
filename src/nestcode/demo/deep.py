"""Chapter 6: better bits, decoded by a network."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from nestcode.coders import Coder, LinearCoder, load_coder
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import photograph_figure
from nestcode.report import Page

TITLE = "A network that decodes"
SIDE, SHOWN = 32, (32, 64, 128)

CODE = """
coder = nc.load_coder("photos-small")  # or nc.RefinedCoder(base=nc.AdaptiveCoder(256)).fit(images)
"""


def add_chapter(page: Page, *, console: Console) -> str:
    """Decode patches of a photograph by both coders, at the same lengths."""
    with console.status("  a linear coder of patches of 32 x 32"):
        kinds, test = both()
    errors = {
        name: [float(np.mean((test - at_length(coder, length, test)) ** 2)) for length in SHOWN]
        for name, coder in kinds.items()
    }
    page.section(
        TITLE,
        "The bits of an adaptive coder go where an image is least known, and a network that was trained at all lengths "
        "decodes them. This one comes with Nestcode: it was learnt from other photographs and from CIFAR-10; the "
        f"linear coder was fitted on these. A patch of {SIDE} x {SIDE} pixels is {24 * SIDE**2:,} bits.",
    )
    page.figure("deep", compared_figure(kinds), "The same lengths, linear above and deep below.")
    page.code(CODE.strip())
    page.table(
        ["coder", *(f"{length} bits" for length in SHOWN)],
        [[name, *(f"{error:.5f}" for error in each)] for name, each in errors.items()],
        caption="Mean squared error of a pixel on [0, 1], on other patches of the photographs.",
    )
    share = 100 * errors["deep"][-1] / errors["linear"][-1]
    return f"at {SHOWN[-1]} bits a patch the network has {share:.0f} % of the linear coder's error"


def both() -> tuple[dict[str, Coder], NDArray[np.float32]]:
    """A linear coder that is fitted on patches of two photographs and the deep one that comes along; other patches."""
    cut = patches(list(sample_images().values()), size=SIDE, n=5_500, rng=np.random.default_rng(2))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    return {"linear": LinearCoder(max(SHOWN)).fit(X[:5_000]), "deep": load_coder("photos-small")}, X[5_000:]


def compared_figure(kinds: dict[str, Coder]) -> Figure:
    """A photograph by each coder, a row for each."""
    return photograph_figure(
        sample_images()["china"][64:320, 128:448],
        SIDE,
        [
            {f"{name}, {length} bits a patch": partial(at_length, coder, length) for length in SHOWN}
            for name, coder in kinds.items()
        ],
    )


def at_length(coder: Coder, length: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of pixels, (n, side * side * 3), encoded and decoded; networks take them plane by plane."""
    if isinstance(coder, LinearCoder):
        return coder.decode(coder.encode(rows).prefix(length))
    planes = rows.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2).reshape(len(rows), -1)
    decoded = coder.decode(coder.encode(planes).prefix(length))
    return decoded.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1).reshape(len(rows), -1)
