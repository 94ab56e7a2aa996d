"""Chapter 1: one progressive stream of an image, truncated anywhere."""

import io
from pathlib import Path

import numpy as np

from nestcode.arrays import Bytes
from nestcode.data import sample_images
from nestcode.demo.widgets import Frame, slider
from nestcode.images import compress_images, decompress_images
from nestcode.metrics import psnr
from nestcode.report import Page
from nestcode.storage import write_atomic

TITLE = "Stream an image to every receiver"
CUTS = (300, 500, 900, 1_500, 2_500, 4_500, 7_500, 13_500, 22_500, 40_500)  # bytes
LINK = 50_000  # bits per second

CODE = """
data = nc.compress_images([image])
preview = nc.decompress_images(data[:4_500])[0]  # any number of bytes
"""


def add_chapter(page: Page, *, folder: Path) -> str:
    """Truncate the stream of an image at growing sizes, beside a progressive JPEG file truncated at the same sizes.

    The stream is saved to the folder, for the explorer of `nestcode serve`.
    """
    image = sample_images()["china"]
    write_atomic(folder / "china.nest", compress_images([image]))
    ours, theirs = truncate_both(image, CUTS)
    our_psnr, their_psnr = ([psnr(image, decoded) for decoded in each] for each in (ours, theirs))
    page.section(
        TITLE,
        f"The image has {image.nbytes:,} bytes. It is encoded once; each view below decodes the first bytes of that "
        "one stream, so a slow link, a small cache or an HTTP range request each get the best image for their bytes. "
        "Beside it, a progressive JPEG file of quality 75 is truncated at the same byte. Move the slider, or press "
        "Play.",
    )
    page.html_block(
        slider(
            "stream",
            "bytes received",
            [
                Frame(
                    f"{cut:,} bytes, {8 * cut / LINK:.2g} s on a link of {LINK // 1000} kbit/s",
                    {f"Nestcode, {our_db:.1f} dB": our, f"JPEG, {their_db:.1f} dB": their},
                )
                for cut, our, their, our_db, their_db in zip(CUTS, ours, theirs, our_psnr, their_psnr, strict=True)
            ],
            start=CUTS.index(1_500),
        )
    )
    page.code(CODE.strip())
    page.table(
        ["first bytes", "bpp", "Nestcode, dB", "JPEG, dB"],
        [
            [f"{cut:,}", f"{8 * cut / image[..., 0].size:.3f}", f"{our_db:.1f}", f"{their_db:.1f}"]
            for cut, our_db, their_db in zip(CUTS, our_psnr, their_psnr, strict=True)
        ][1::2],
        caption="PSNR over red, green and blue by bits per pixel.",
    )
    place = CUTS.index(4_500)
    return (
        f"PSNR of the first {CUTS[place]:,} bytes: {our_psnr[place]:.1f} dB; of a JPEG file {their_psnr[place]:.1f} dB"
    )


def truncate_both(image: Bytes, cuts: tuple[int, ...]) -> tuple[list[Bytes], list[Bytes]]:
    """Return the image decoded from the first bytes of its stream, and from those of its JPEG file."""
    stream, file = compress_images([image]), progressive_jpeg(image)
    ours = [np.asarray(decompress_images(stream[:cut])[0], dtype=np.uint8) for cut in cuts]
    return ours, [decode_truncated(file[:cut], image.shape) for cut in cuts]


def progressive_jpeg(image: Bytes) -> bytes:
    """Return the image as a progressive JPEG file."""
    from PIL import Image

    memory = io.BytesIO()
    Image.fromarray(image).save(memory, "JPEG", quality=75, progressive=True, optimize=True)
    return memory.getvalue()


def decode_truncated(data: bytes, shape: tuple[int, ...]) -> Bytes:
    """Return the image of a truncated file, gray if it cannot be decoded."""
    from PIL import Image, ImageFile

    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except OSError:
        return np.full(shape, 128, dtype=np.uint8)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False
