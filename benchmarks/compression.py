"""Compression against image codecs and truncated autoencoders, as in section 6 of the paper.

--parts images: MSE by bits per image on CIFAR-10 with --data DIR, else on patches of two images. Decoded images are
rounded to 8 bits per channel first, as codecs do.

    coders          each fitted once, at the largest length; shorter codes are prefixes
    autoencoder     one layer of bits trained without nested dropout, truncated; in the paper's form (tied weights,
                    dropped bits are 0) and with bits of -1 and 1 trained by the straight-through estimator
    OBD             the same with its units ordered by Optimal Brain Damage, estimated once as in the paper, or repeated
    nested dropout  the same trained with it (--nested)
    codecs          over their quality settings, with headers and without
    Gaussian bound  R(D) of Gaussian data with the principal variances of the training images; images may be below it

--parts photos: PSNR and SSIM of large images (scikit-learn's two, or --photos DIR) by bits per pixel, BD-rate and MB/s
beside JPEG, JPEG 2000, WebP, AVIF (4:2:0 and 4:4:4) and, with `pip install pillow-jxl-plugin`, JPEG XL. Images
that nothing here was trained on are in Debian's packages lomiri-wallpapers-16.04 and -20.04: `apt-get download` both,
and `dpkg -x` each into DIR.

--parts lossless: bits per pixel of the same images, coded losslessly by PNG, JPEG 2000, WebP and JPEG XL.

--parts speed: MB/s of raw pixels against the same codecs, on one thread.

--parts memory: bytes of memory per sample while a large image is encoded and decoded.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _compression_images
import _compression_lossless
import _compression_memory
import _compression_photos
import _compression_speed
from _compression_task import Task
from _report import save
from nestcode.reproduce.lab.networks import RECIPES

PARTS: dict[str, Callable[[Task], list[dict[str, Any]]]] = {
    "images": _compression_images.measure,
    "photos": _compression_photos.measure,
    "lossless": _compression_lossless.measure,
    "speed": _compression_speed.measure,
    "memory": _compression_memory.measure,
}


def main() -> None:
    """Run the chosen parts."""
    options = read_options()
    task = Task(options)
    rows = [{"part": name, **row} for name in options.parts for row in PARTS[name](task)]
    save(options.json, rows, ["nestcode", "numpy", "pillow", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a smoke test")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (all)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of large images")
    parser.add_argument("--side", type=int, default=768, metavar="N", help="longer side they are scaled to (768)")
    parser.add_argument("--points", type=Path, metavar="FILE", help="keep what was measured of large images, to go on")
    parser.add_argument("--train", type=int, metavar="N", help="training images (all)")
    parser.add_argument("--test", type=int, default=1000, metavar="N", help="test images (1,000)")
    parser.add_argument("--width", type=int, default=1024, metavar="K", help="bits of a code (1024)")
    parser.add_argument("--beams", type=int, default=8, metavar="N", help="of the adaptive coder's search (8)")
    parser.add_argument("--deep", type=Path, metavar="FILE", help="also a RefinedCoder of these images, as saved")
    parser.add_argument("--networks", nargs="*", choices=RECIPES, default=list(RECIPES), help="autoencoders (all)")
    parser.add_argument("--nested", action="store_true", help="also autoencoders trained with nested dropout")
    parser.add_argument("--epochs", type=float, default=20, metavar="N", help="of training autoencoders (20)")
    parser.add_argument("--device", default="auto", help='of networks; "auto" takes a GPU if there is one')
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw MSE by bits per image")
    parser.add_argument("--photos-figure", type=Path, metavar="FILE", help="also draw PSNR and SSIM by bpp")
    options = parser.parse_args()
    if options.quick:
        options.train, options.test, options.width, options.epochs = 600, 20, 64, 1
    return options


if __name__ == "__main__":
    main()
