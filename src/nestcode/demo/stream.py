"""Chapter 1: one stream of a picture, cut anywhere."""

import io

import numpy as np
from matplotlib.figure import Figure

from nestcode.arrays import Bytes
from nestcode.data import sample_images
from nestcode.demo.widgets import Frame, slider
from nestcode.images import compress_images, decompress_images
from nestcode.metrics import psnr
from nestcode.report import Page

TITLE = "One file for every receiver"
CUTS = (300, 500, 900, 1_500, 2_500, 4_500, 7_500, 13_500, 22_500, 40_500)  # bytes
LINK = 50_000  # bits a second

CODE = """
data = nc.compress_images([photo])
rough = nc.decompress_images(data[:4_500])[0]  # any number of bytes will do
"""


def add_chapter(page: Page) -> str:
    """Cut the stream of a photograph at growing sizes, beside a JPEG file cut at the same ones."""
    photo = sample_images()["china"]
    ours, theirs = cut_both(photo, CUTS)
    likeness = [[psnr(photo, picture) for picture in each] for each in (ours, theirs)]
    page.section(
        TITLE,
        f"The photograph has {photo.nbytes:,} bytes. It was encoded once, and what you see decodes the first bytes of "
        "that one stream, so a slow link, a small cache or an HTTP range request each get the best that they can take. "
        "Beside it a progressive JPEG file of quality 75 is cut at the same byte. Move the slider, or press Play.",
    )
    page.html_block(
        slider(
            "stream",
            "how many bytes have come",
            [
                Frame(
                    f"{cut:,} bytes, which a link of {LINK // 1000} kbit/s has brought after {8 * cut / LINK:.2g} s",
                    {f"Nestcode, {like:.1f} dB": our, f"JPEG, {like_theirs:.1f} dB": their},
                )
                for cut, our, their, like, like_theirs in zip(CUTS, ours, theirs, *likeness, strict=True)
            ],
            start=CUTS.index(1_500),
        )
    )
    page.code(CODE.strip())
    page.table(
        ["first bytes", "bits a pixel", "stream, dB", "JPEG, dB"],
        [
            [f"{cut:,}", f"{8 * cut / photo[..., 0].size:.3f}", f"{like:.1f}", f"{like_theirs:.1f}"]
            for cut, like, like_theirs in zip(CUTS, *likeness, strict=True)
        ][1::2],
        caption="Peak signal-to-noise ratio, over red, green and blue.",
    )
    place = CUTS.index(4_500)
    return (
        f"the first {CUTS[place]:,} bytes show the photograph with {likeness[0][place]:.1f} dB; "
        f"those of a JPEG file with {likeness[1][place]:.1f}"
    )


def cut_both(photo: Bytes, cuts: tuple[int, ...]) -> tuple[list[Bytes], list[Bytes]]:
    """What is seen of a photograph when its stream, or its JPEG file, is cut at these bytes."""
    stream, file = compress_images([photo]), jpeg(photo)
    ours = [np.asarray(decompress_images(stream[:cut])[0]) for cut in cuts]
    return ours, [decode_cut(file[:cut], photo.shape) for cut in cuts]


def strip_figure(rows: dict[str, dict[str, Bytes]]) -> Figure:
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


def jpeg(photo: Bytes) -> bytes:
    """A progressive file."""
    from PIL import Image

    memory = io.BytesIO()
    Image.fromarray(photo).save(memory, "JPEG", quality=75, progressive=True, optimize=True)
    return memory.getvalue()


def decode_cut(data: bytes, shape: tuple[int, ...]) -> Bytes:
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
