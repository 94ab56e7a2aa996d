"""Quality of images that are shown smaller, decoded from the bytes that their width on the screen needs.

    python benchmarks/image_width.py --photos DIR

Each image is scaled to at most 1,200 pixels and encoded. For each width on the screen the stream is truncated to
`ImageStreamHeader.bytes_for_width`, decoded at full size, scaled down, and compared with the scaled original.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from _report import save, show
from nestcode import data, metrics
from nestcode.images import compress_images, decompress_images
from nestcode.images.format import parse_image_header

SIDE = 1200  # pixels
REDUCTIONS = (1, 2, 4, 8)  # of the width
Pixels = NDArray[np.uint8]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="crops of the sample images, for a smoke test")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of images (scikit-learn's two)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    options = parser.parse_args()
    images = [*data.sample_images().values()]
    if options.photos is not None:
        images = [read_image(path) for path in sorted(options.photos.iterdir())]
    rows = measure([image[:96, :128] for image in images] if options.quick else images)
    show("Images at the bytes that their width needs", rows, f"Means of {len(images)} images; the least SSIM beside.")
    save(options.json, rows, ["nestcode", "numpy", "pillow"])


def read_image(path: Path) -> Pixels:
    """Return the image of a file, scaled to at most `SIDE` pixels."""
    with Image.open(path) as image:
        small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(small)


def measure(images: Sequence[Pixels]) -> list[dict[str, Any]]:
    """Return the mean rate and quality by width."""
    found: dict[int, list[tuple[float, float, float]]] = {reduction: [] for reduction in REDUCTIONS}
    for image in images:
        stream = compress_images([image], bpp=1.5)
        header = parse_image_header(memoryview(stream))
        for reduction, each in found.items():
            size = image.shape[1] // reduction, image.shape[0] // reduction
            part = stream[: header.bytes_for_width(size[0])]
            original, decoded = (scaled(some, size) for some in (image, decompress_images(part)[0]))
            bpp = 8 * len(part) / (size[0] * size[1])
            each.append((bpp, metrics.psnr(original, decoded), metrics.ssim(original, decoded)))
    return [
        {
            "width": f"1/{reduction}" if reduction > 1 else "1",
            **dict(zip(("bpp shown", "PSNR", "SSIM"), np.mean(each, axis=0).round(3).tolist(), strict=True)),
            "least SSIM": round(min(ssim for _, _, ssim in each), 3),
        }
        for reduction, each in found.items()
    ]


def scaled(image: NDArray[Any], size: tuple[int, int]) -> Pixels:
    """Return an image of another size."""
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))


if __name__ == "__main__":
    main()
