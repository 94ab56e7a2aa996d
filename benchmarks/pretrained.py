"""Make the coders that come with Nestcode, and print how well they do on images they have not seen.

    cifar10-small   256 bits, CIFAR-10's 50,000 training images (--data DIR)
    photos-small    256 bits, patches of 32 x 32 pixels: half of them from photographs at several scales (--photos DIR),
                    half of them CIFAR-10's training images
    photos          for pictures of any size: the same photographs as a whole, at four scales (--photos DIR)

The photographs were those in colour of Debian's packages mate-backgrounds (the folder nature) and
plasma-workspace-wallpapers (the JPEG files of 2560 x 1600). Weights are kept with half the digits.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from _report import save, show
from nestcode import data, load_coder
from nestcode.coders import AdaptiveCoder, LinearCoder
from nestcode.coders.refined import RefinedCoder, UNet
from nestcode.images import ImageCodec
from nestcode.training import Training

SIZE, LENGTHS = 32, (8, 16, 32, 64, 128, 256)
PATCHES, SCALES = 40_000, (1.0, 0.5, 0.25)
PICTURE_SCALES, PICTURE_LENGTHS = (1.0, 0.5, 0.25, 0.1), (32, 64, 128, 256, 512, 1024)
Images = NDArray[Any]  # (n, 3, 32, 32), between 0 and 1


def main() -> None:
    """Make, measure, print and save."""
    options = read_options()
    if options.name == "photos":
        make_pictures(options)
    else:
        make_images(options)


def make_images(options: argparse.Namespace) -> None:
    """A coder for images of one size, and its errors by length."""
    train, tests = read_images(options)
    if options.measure is not None:
        coder = load_coder(options.measure)
    else:
        coder = make(train, options)
        path = options.save or Path(f"{options.name}.coder")
        coder.save(path, dtype="float16")
        coder = load_coder(path)  # as others will have it
    width = coder.width
    linear = LinearCoder(width).fit(train.reshape(len(train), -1))
    rows: list[dict[str, Any]] = []
    for name, images in tests.items():
        for kind, each in (("linear", linear), (options.name, coder)):
            flat = images.reshape(len(images), -1)
            codes = each.encode(flat)
            errors = {
                str(length): round(float(np.mean((flat - each.decode(codes.prefix(length))) ** 2)), 5)
                for length in LENGTHS
                if length <= width
            }
            rows.append({"images": name, "coder": kind, **errors})
    show(f"Squared error of a pixel by bits: {options.name}", rows, f"Learnt from {len(train):,} images.")
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Which coder, from which data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=("cifar10-small", "photos-small", "photos"), default="cifar10-small")
    parser.add_argument("--quick", action="store_true", help="a tiny coder of the sample photographs")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of photographs")
    parser.add_argument("--steps", type=int, default=6000, help="of training (6000)")
    parser.add_argument("--batch-size", type=int, default=512, help="(512)")
    parser.add_argument("--channels", nargs="+", type=int, default=[32, 64, 96], help="of the convolutions (32 64 96)")
    parser.add_argument("--beams", type=int, default=16, help="of the search for bits (16)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where the coder goes (NAME.coder)")
    parser.add_argument("--measure", metavar="FILE", help="only measure a coder that is there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    if options.quick and options.save is None and options.measure is None:
        options.measure = options.name
    for name, needed in (("data", options.name != "photos"), ("photos", options.name != "cifar10-small")):
        if needed and getattr(options, name) is None and not (options.quick or options.measure):
            parser.error(f"give --{name}: {options.name} is learnt from it; --quick needs none")
    return options


def read_images(options: argparse.Namespace) -> tuple[Images, dict[str, Images]]:
    """Images to learn from, and others to measure on by name."""
    rng = np.random.default_rng(0)
    sample = cut(list(data.sample_images().values()), 2000, rng)
    if options.quick:
        return sample[:500], {"sample photographs": sample[500:700]}
    cifar = data.cifar10(options.data)
    train, test = (part.reshape(-1, 3, SIZE, SIZE).astype(np.float32) / 255 for part in (cifar.train, cifar.test))
    tests = {"CIFAR-10, test": test, "patches of the sample photographs": sample}
    if options.name == "cifar10-small":
        return train, tests
    photographs = [scaled(path, scale) for path in sorted(options.photos.iterdir()) for scale in SCALES]
    return np.concatenate([cut(photographs, PATCHES // 2, rng), train[: PATCHES // 2]]), tests


def scaled(path: Path, scale: float) -> NDArray[np.uint8]:
    """A photograph, made smaller."""
    with Image.open(path) as image:
        size = round(scale * image.width), round(scale * image.height)
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def cut(photographs: list[NDArray[np.uint8]], count: int, rng: np.random.Generator) -> Images:
    """Patches from anywhere in them."""
    patches = data.patches(photographs, size=SIZE, n=count, rng=rng)
    return patches.transpose(0, 3, 1, 2).astype(np.float32) / 255


def make(train: Images, options: argparse.Namespace) -> RefinedCoder:
    """Fit the bits, then train the network that decodes them."""
    base = AdaptiveCoder(max(LENGTHS), beams=options.beams).fit(train.reshape(len(train), -1))
    training = Training(steps=options.steps, batch_size=options.batch_size, learning_rate=2e-3)
    coder = RefinedCoder(base, UNet(options.channels, flip=True), training=training)
    return coder.fit(train)


def make_pictures(options: argparse.Namespace) -> None:
    """Learn from photographs as a whole, and measure on two others."""
    if options.measure is not None:
        coder = ImageCodec.load(options.measure)
    else:
        chosen = [(path, scale) for path in sorted(options.photos.iterdir()) for scale in PICTURE_SCALES]
        order = np.random.default_rng(0).permutation(len(chosen))
        coder = ImageCodec().fit([middle(scaled(*chosen[i])) for i in order])
        coder.save(options.save or Path("photos.coder"))
    rows: list[dict[str, Any]] = []
    for name, picture in data.sample_images().items():
        pixels = picture.shape[0] * picture.shape[1]
        row: dict[str, Any] = {"picture": name}
        for length in PICTURE_LENGTHS:
            decoded = coder.decode(coder.encode(picture, limit=length * pixels // SIZE**2 // 8), picture.shape)
            row[f"{length} bits"] = round(10 * np.log10(255**2 / np.mean((decoded - picture.astype(float)) ** 2)), 2)
        rows.append(row)
    show("PSNR in dB by bits of a tile of 32 x 32 pixels: photos", rows, "1024 bits are one for each pixel.")
    save(options.json, rows, ["nestcode", "numpy"])


def middle(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """At most 768 x 512 pixels of it."""
    top, left = (max(0, (size - most) // 2) for size, most in zip(picture.shape, (512, 768), strict=False))
    return np.ascontiguousarray(picture[top : top + 512, left : left + 768])


if __name__ == "__main__":
    main()
