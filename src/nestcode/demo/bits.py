"""Chapter 5: LinearCoder turns ordered units into ordered bits."""

from functools import partial

import numpy as np
from rich.console import Console

from nestcode.arrays import Floats
from nestcode.coders import LinearCoder
from nestcode.data import patches, sample_images
from nestcode.demo.drawing import error_figure, patches_figure
from nestcode.metrics import distortion
from nestcode.report import Page

TITLE = "From units to bits"
SIDE, WIDTH = 16, 1024
TRAIN, TEST = 10_000, 2_000  # patches
SHOWN = (16, 64, 256)

CODE = """
coder = nc.LinearCoder(width=1024).fit(patches)
coder.decode(coder.encode(patches).prefix(64))
"""


def add_chapter(page: Page, *, console: Console) -> str:
    """Fit the coder on patches of two images, and decode prefixes of its codes."""
    images = sample_images()
    cut = patches(list(images.values()), size=SIDE, n=TRAIN + TEST, rng=np.random.default_rng(1))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    train, test = X[:TRAIN], X[TRAIN:]
    with console.status("  fitting a LinearCoder of 1,024 bits"):
        coder = LinearCoder(WIDTH).fit(train)
    codes = coder.encode(test)
    lengths = np.arange(0, WIDTH + 1, 16)
    errors = np.array([distortion(test, coder.decode(codes.prefix(int(k)))) for k in lengths])

    page.section(
        TITLE,
        "A unit can be quantized to one bit or to many. LinearCoder spends bits one at a time where they lower the "
        "error most, so several bits may refine one principal component. It is fitted on "
        f"{len(train):,} patches of {SIDE} x {SIDE} pixels; a patch has 6,144 bits.",
    )

    def decode_prefix(length: int, rows: Floats) -> Floats:
        return coder.decode(coder.encode(rows).prefix(length))

    page.figure(
        "bits",
        patches_figure(
            images["china"][64:304, 144:464],
            SIDE,
            [{f"{length} bits per patch": partial(decode_prefix, length) for length in SHOWN}],
        ),
        "The same code truncated to 16, 64 and 256 bits per patch: 1/384, 1/96 and 1/24 of the pixels' size.",
    )
    expected = np.array([coder.expected_error(int(k)) for k in lengths])
    page.figure(
        "bits-error",
        error_figure(
            {
                "LinearCoder, test patches": (lengths, errors),
                "expected from the training patches": (lengths, expected),
            },
            "length (bits)",
        ),
        "MSE by length: every prefix decodes, and every bit lowers the error.",
    )
    page.code(CODE.strip())
    page.table(
        ["bits", "MSE"],
        [[length, f"{errors[length // 16]:.5f}"] for length in (0, *SHOWN, 1024)],
        caption="MSE of pixels on the scale from 0 to 1, of test patches.",
    )
    left = 100 * errors[SHOWN[1] // 16] / errors[0]
    return f"{SHOWN[1]} of a patch's 6,144 bits leave {left:.1f} % of its variance"
