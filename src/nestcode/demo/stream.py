"""Chapter 6: one stream of pictures, cut anywhere."""

import io

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nestcode.data import photographs
from nestcode.report import Page
from nestcode.streams import compress_pictures, decompress_pictures

CUTS = (500, 1_500, 4_500, 13_500, 40_500)  # bytes
Pixels = NDArray[np.uint8]


def add_chapter(page: Page) -> None:
    """Cut the stream of a photograph at growing sizes, beside a JPEG file cut at the same ones."""
    photo = photographs()["china"]
    stream, file = compress_pictures([photo]), jpeg(photo)
    ours = {f"{cut:,} bytes": decompress_pictures(stream[:cut])[0] for cut in CUTS}
    theirs = {f"{cut:,} bytes": decode_cut(file[:cut], photo.shape) for cut in CUTS}
    page.section(
        "A stream that can be cut anywhere",
        f"The photograph has {photo.nbytes:,} bytes. It was encoded once; every picture in the upper row decodes the "
        "first bytes of the same stream, so a slow link, a small cache or an HTTP range request each get the best that "
        "they can take. Below, a progressive JPEG file of quality 75 is cut at the same bytes.",
    )
    page.figure(
        "stream",
        strip_figure({"one stream": ours, "progressive JPEG": theirs}),
        "The first bytes of one stream, above, and of a JPEG file, below.",
    )
    page.table(
        ["first bytes", "bits a pixel", "stream, dB", "JPEG, dB"],
        [
            [f"{cut:,}", f"{8 * cut / photo[..., 0].size:.3f}", f"{psnr(photo, ours[name]):.1f}",
             f"{psnr(photo, theirs[name]):.1f}"]
            for cut, name in zip(CUTS, ours, strict=True)
        ],
        caption="Peak signal-to-noise ratio, over red, green and blue.",
    )  # fmt: skip


def strip_figure(rows: dict[str, dict[str, Pixels]]) -> Figure:
    """Pictures side by side, with what each is of above and what a row is of beside it."""
    columns = len(next(iter(rows.values())))
    figure = Figure(figsize=(2.6 * columns, 1.95 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for place, (name, pictures) in enumerate(rows.items()):
        grid[place][0].set_ylabel(name, fontsize=10)
        for axes, (title, picture) in zip(grid[place], pictures.items(), strict=True):
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.set_title(title if place == 0 else "", fontsize=10)
    return figure


def jpeg(photo: Pixels) -> bytes:
    """A progressive file."""
    from PIL import Image

    memory = io.BytesIO()
    Image.fromarray(photo).save(memory, "JPEG", quality=75, progressive=True, optimize=True)
    return memory.getvalue()


def decode_cut(data: bytes, shape: tuple[int, ...]) -> Pixels:
    """What the beginning of a file decodes to; grey where that is nothing."""
    from PIL import Image, ImageFile

    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except OSError:
        return np.full(shape, 128, dtype=np.uint8)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def psnr(photo: Pixels, other: Pixels) -> float:
    """Decibels."""
    return float(10 * np.log10(255**2 / np.mean((photo.astype(np.float64) - other) ** 2)))
