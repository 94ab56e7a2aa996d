"""Chapter 6: adaptive bits and a learned decoder."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from nestcode.arrays import Floats
from nestcode.coders import Coder, LinearCoder, load_coder
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import patches_figure
from nestcode.metrics import distortion
from nestcode.report import Page

TITLE = "A learned decoder"
SIDE, SHOWN = 32, (32, 64, 128)
TRAIN, TEST = 5_000, 120  # patches

CODE = """
coder = nc.load_coder("photos-small")  # or nc.RefinedCoder(base=nc.AdaptiveCoder(256)).fit(images)
"""


def add_chapter(page: Page, *, console: Console) -> str:
    """Decode patches of an image by a linear and by a refined coder, at the same lengths."""
    with console.status("  fitting a LinearCoder on patches of 32 x 32 pixels"):
        coders, test = both_coders()
    errors = {
        name: [distortion(test, decode_prefix(coder, length, test)) for length in SHOWN]
        for name, coder in coders.items()
    }
    page.section(
        TITLE,
        "The bits of an adaptive coder go to the components of an image that are least certain, and a network that was "
        "trained at all lengths decodes them. The coder shown ships with Nestcode and was trained on other images, "
        f"among them CIFAR-10; the linear coder is fitted on these. A patch of {SIDE} x {SIDE} pixels has "
        f"{24 * SIDE**2:,} bits.",
    )
    page.figure("refined", coders_figure(coders), "The same lengths, linear above and refined below.")
    page.code(CODE.strip())
    page.table(
        ["coder", *(f"{length} bits" for length in SHOWN)],
        [[name, *(f"{error:.5f}" for error in each)] for name, each in errors.items()],
        caption="MSE of pixels on the scale from 0 to 1, of test patches.",
    )
    share = 100 * errors["refined"][-1] / errors["linear"][-1]
    return f"at {SHOWN[-1]} bits per patch, the refined coder has {share:.0f} % of the linear coder's MSE"


def both_coders() -> tuple[dict[str, Coder], Floats]:
    """Return a linear coder fitted on patches of two images, the refined coder that ships, and test patches."""
    cut = patches(list(sample_images().values()), size=SIDE, n=TRAIN + TEST, rng=np.random.default_rng(2))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    return {"linear": LinearCoder(max(SHOWN)).fit(X[:TRAIN]), "refined": load_coder("photos-small")}, X[TRAIN:]


def coders_figure(coders: dict[str, Coder]) -> Figure:
    """Draw an image decoded by each coder, one row each."""
    return patches_figure(
        sample_images()["china"][64:320, 128:448],
        SIDE,
        [
            {f"{name}, {length} bits per patch": partial(decode_prefix, coder, length) for length in SHOWN}
            for name, coder in coders.items()
        ],
    )


def decode_prefix(coder: Coder, length: int, rows: Floats) -> Floats:
    """Return rows of pixels, (n, side * side * 3), encoded and decoded; the refined coder takes them plane by plane."""
    if isinstance(coder, LinearCoder):
        return coder.decode(coder.encode(rows).prefix(length))
    planes = rows.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2).reshape(len(rows), -1)
    decoded = coder.decode(coder.encode(planes).prefix(length))
    return decoded.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1).reshape(len(rows), -1)
