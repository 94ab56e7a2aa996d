"""Chapter 6: a learned decoder of the same stream."""

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from nestcode.arrays import Bytes
from nestcode.data import sample_images
from nestcode.images import Refiner, compress_images, decompress_images
from nestcode.metrics import psnr
from nestcode.report import Page

TITLE = "A learned decoder"
CUTS = (2_500, 7_500, 22_500)  # bytes
CROP = (slice(96, 288), slice(160, 448))  # rows and columns of pixels that are drawn

CODE = """
refiner = nc.images.Refiner.load()  # ships with Nestcode, and needs no PyTorch
image = nc.decompress_images(data[:7_500], refiner=refiner)[0]
"""


def add_chapter(page: Page, *, console: Console) -> str:
    """Decode prefixes of one stream of an image with and without the network."""
    image = sample_images()["china"]
    with console.status("  refining an image decoded from three prefixes"):
        decoded = decode_both(image)
    values = {name: [psnr(image, each) for each in images] for name, images in decoded.items()}
    page.section(
        TITLE,
        "A network removes artifacts that quantization leaves, at every length: it also reads the quantizer step. "
        "The stream stays the same, and the receiver decides whether to spend the time. The network ships with "
        "Nestcode and was trained on other images.",
    )
    page.figure("refined", prefixes_figure(image, decoded), "The same prefixes, plain above and refined below.")
    page.code(CODE.strip())
    page.table(
        ["decoder", *(f"{cut:,} bytes" for cut in CUTS)],
        [[name, *(f"{value:.2f}" for value in each)] for name, each in values.items()],
        caption="PSNR in dB over red, green and blue.",
    )
    gain = values["refined"][1] - values["plain"][1]
    return f"at {CUTS[1]:,} bytes, the refined image has {gain:.2f} dB more PSNR"


def decode_both(image: Bytes) -> dict[str, list[Bytes]]:
    """Return the image decoded from each prefix of its stream, plain and refined."""
    stream = compress_images([image])
    decoders = {"plain": None, "refined": Refiner.load()}
    return {
        name: [np.asarray(decompress_images(stream[:cut], refiner=refiner)[0], dtype=np.uint8) for cut in CUTS]
        for name, refiner in decoders.items()
    }


def prefixes_figure(image: Bytes, decoded: dict[str, list[Bytes]]) -> Figure:
    """Draw a crop of the image decoded from each prefix, one row per decoder, and of the original."""
    height, width = image[CROP].shape[:2]
    columns = len(CUTS) + 1
    figure = Figure(figsize=(11, 2 * (11 / columns * height / width + 0.25)), layout="constrained")
    grid = figure.subplots(2, columns)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes_row, (name, images) in zip(grid, decoded.items(), strict=True):
        for axes, cut, each in zip(axes_row, CUTS, images, strict=False):
            axes.imshow(each[CROP])
            axes.set_title(f"{name}, {cut:,} bytes", fontsize=10)
    grid[0, -1].imshow(image[CROP])
    grid[0, -1].set_title("original", fontsize=10)
    return figure
