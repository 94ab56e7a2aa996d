"""Chapter 5: the linear coder turns ordered units into ordered bits."""

from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nestcode.coders import LinearCoder
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import error_figure, photograph_figure
from nestcode.report import Page

TITLE = "From units to bits"
SIDE, WIDTH = 16, 1024
SHOWN = (16, 64, 256)

CODE = """
coder = nc.LinearCoder(width=1024).fit(patches)
coder.decode(coder.encode(patches).prefix(64))
"""


def add_chapter(page: Page, *, console: Console) -> str:
    """Fit the coder on patches of two photographs, and decode prefixes of its codes."""
    photos = sample_images()
    cut = patches(list(photos.values()), size=SIDE, n=12_000, rng=np.random.default_rng(1))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    train, test = X[:10_000], X[10_000:]
    with console.status("  a linear coder of 1,024 bits"):
        coder = LinearCoder(WIDTH).fit(train)
    codes = coder.encode(test)
    lengths = np.arange(0, WIDTH + 1, 16)
    errors = np.array([np.mean((test - coder.decode(codes.prefix(int(k)))) ** 2) for k in lengths])

    page.section(
        TITLE,
        "A unit can be told by one bit or by many. LinearCoder spends bits one at a time where the error falls most, "
        "so several bits may refine one direction. "
        f"It was fitted on {len(train):,} patches of {SIDE} x {SIDE} pixels; a patch is 6,144 bits of pixels.",
    )

    def at_length(length: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return coder.decode(coder.encode(rows).prefix(length))

    page.figure(
        "bits",
        photograph_figure(
            photos["china"][64:304, 144:464],
            SIDE,
            [{f"{length} bits a patch": partial(at_length, length) for length in SHOWN}],
        ),
        "The same code, cut at 16, 64 and 256 bits for each patch: 1/384, 1/96 and 1/24 of the pixels' size.",
    )
    bound = np.array([coder.expected_error(int(k)) for k in lengths])
    page.figure(
        "bits-error",
        error_figure(
            {
                "LinearCoder, other patches": (lengths, errors),
                "as expected from the training patches": (lengths, bound),
            },
            "bits kept",
        ),
        "Error by number of bits: every prefix decodes, and every bit helps.",
    )
    page.code(CODE.strip())
    page.table(
        ["bits kept", "error"],
        [[length, f"{errors[length // 16]:.5f}"] for length in (0, *SHOWN, 1024)],
        caption="Mean squared error of a pixel on [0, 1], on patches that were not fitted on.",
    )
    left = 100 * errors[SHOWN[1] // 16] / errors[0]
    return f"{SHOWN[1]} bits for the 6,144 of a patch leave {left:.1f} % of its variance"
