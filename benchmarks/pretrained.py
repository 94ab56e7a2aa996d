"""Train the coders in `models/` and the image codec that ships with Nestcode; print their held-out distortion.

    cifar10-small   256 bits, CIFAR-10's 50,000 training images (--data DIR)
    photos-small    256 bits, patches of 32 x 32 pixels: half of them from large images at several scales
                    (--photos DIR), half of them CIFAR-10's training images
    photos          the image codec: the same large images as a whole, at four scales (--photos DIR)

The large images were the color ones of Debian's packages mate-backgrounds (the folder nature) and
plasma-workspace-wallpapers (the JPEG files of 2560 x 1600). Weights are stored as float16.
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

MODELS = Path(__file__).parents[1] / "models"
SIZE, LENGTHS = 32, (8, 16, 32, 64, 128, 256)
PATCHES, SCALES = 40_000, (1.0, 0.5, 0.25)
CODEC_SCALES, RATES = (1.0, 0.5, 0.25, 0.1), (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # rates in bpp
Patches = NDArray[Any]  # (n, 3, 32, 32) in [0, 1]


def main() -> None:
    """Train or load, measure, print and save."""
    options = read_options()
    if options.name == "photos":
        measure_codec(options)
    else:
        measure_coder(options)


def measure_coder(options: argparse.Namespace) -> None:
    """Train a coder of small images, and print its MSE by length."""
    train, tests = read_patches(options)
    if options.measure is not None:
        coder = load_coder(options.measure)
    else:
        coder = train_coder(train, options)
        path = options.save or Path(f"{options.name}.coder")
        coder.save(path, dtype="float16")
        coder = load_coder(path)  # in the precision of the file
    width = coder.width
    step = 16 if options.quick else 1  # the eigenvectors of all pixels would take most of a smoke test
    linear = LinearCoder(width).fit(train.reshape(len(train), -1)[:, ::step])
    rows: list[dict[str, Any]] = []
    for name, images in tests.items():
        pixels = images.reshape(len(images), -1)
        for kind, each, flat in (("linear", linear, pixels[:, ::step]), (options.name, coder, pixels)):
            codes = each.encode(flat)
            errors = {
                str(length): round(float(np.mean((flat - each.decode(codes.prefix(length))) ** 2)), 5)
                for length in LENGTHS
                if length <= width
            }
            rows.append({"images": name, "coder": kind, **errors})
    show(f"MSE by bits: {options.name}", rows, f"Trained on {len(train):,} images.")
    save(options.json, rows, ["nestcode", "numpy", "torch"])


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=("cifar10-small", "photos-small", "photos"), default="cifar10-small")
    parser.add_argument("--quick", action="store_true", help="measure the shipped file on patches of the sample images")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with CIFAR-10")
    parser.add_argument("--photos", type=Path, metavar="DIR", help="folder of large images")
    parser.add_argument("--steps", type=int, default=6000, help="training steps (6000)")
    parser.add_argument("--batch-size", type=int, default=512, help="(512)")
    parser.add_argument("--channels", nargs="+", type=int, default=[32, 64, 96], help="of the convolutions (32 64 96)")
    parser.add_argument("--beams", type=int, default=16, help="of the beam search (16)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="output file (NAME.coder)")
    parser.add_argument("--measure", metavar="FILE", help="only measure an existing file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    options = parser.parse_args()
    if options.quick and options.save is None and options.measure is None:
        options.measure = options.name if options.name == "photos" else MODELS / f"{options.name}.coder"
    for name, needed in (("data", options.name != "photos"), ("photos", options.name != "cifar10-small")):
        if needed and getattr(options, name) is None and not (options.quick or options.measure):
            parser.error(f"give --{name}: {options.name} is trained on it; --quick needs none")
    return options


def read_patches(options: argparse.Namespace) -> tuple[Patches, dict[str, Patches]]:
    """Return training patches, and test patches by name."""
    rng = np.random.default_rng(0)
    sample = cut_patches(list(data.sample_images().values()), 2000, rng)
    if options.quick:
        return sample[:500], {"sample images": sample[500:520]}
    cifar = data.cifar10(options.data)
    train, test = (part.reshape(-1, 3, SIZE, SIZE).astype(np.float32) / 255 for part in (cifar.train, cifar.test))
    tests = {"CIFAR-10, test": test, "patches of the sample images": sample}
    if options.name == "cifar10-small":
        return train, tests
    images = [read_scaled(path, scale) for path in sorted(options.photos.iterdir()) for scale in SCALES]
    return np.concatenate([cut_patches(images, PATCHES // 2, rng), train[: PATCHES // 2]]), tests


def read_scaled(path: Path, scale: float) -> NDArray[np.uint8]:
    """Return an image, downscaled."""
    with Image.open(path) as image:
        size = round(scale * image.width), round(scale * image.height)
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def cut_patches(images: list[NDArray[np.uint8]], count: int, rng: np.random.Generator) -> Patches:
    """Return random patches of the images."""
    patches = data.patches(images, size=SIZE, n=count, rng=rng)
    return patches.transpose(0, 3, 1, 2).astype(np.float32) / 255


def train_coder(train: Patches, options: argparse.Namespace) -> RefinedCoder:
    """Fit an adaptive coder, then train the network that refines its decoding."""
    base = AdaptiveCoder(max(LENGTHS), beams=options.beams).fit(train.reshape(len(train), -1))
    training = Training(steps=options.steps, batch_size=options.batch_size, learning_rate=2e-3)
    coder = RefinedCoder(base, UNet(options.channels, flip=True), training=training)
    return coder.fit(train)


def measure_codec(options: argparse.Namespace) -> None:
    """Train the image codec, and print its PSNR by rate on scikit-learn's sample images."""
    if options.measure is not None:
        codec = ImageCodec.load(options.measure)
    else:
        chosen = [(path, scale) for path in sorted(options.photos.iterdir()) for scale in CODEC_SCALES]
        order = np.random.default_rng(0).permutation(len(chosen))
        codec = ImageCodec().fit([center(read_scaled(*chosen[i])) for i in order])
        codec.save(options.save or Path("photos.coder"))
    rows: list[dict[str, Any]] = []
    for name, image in data.sample_images().items():
        pixels = image.shape[0] * image.shape[1]
        row: dict[str, Any] = {"image": name}
        for rate in RATES:
            decoded = codec.decode(codec.encode(image, limit=int(rate * pixels / 8)), image.shape)
            row[f"{rate:g} bpp"] = round(10 * np.log10(255**2 / np.mean((decoded - image.astype(float)) ** 2)), 2)
        rows.append(row)
    show("PSNR in dB by bpp: photos", rows, "Rates without headers.")
    save(options.json, rows, ["nestcode", "numpy"])


def center(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the central 768 x 512 pixels, or fewer."""
    top, left = (max(0, (size - most) // 2) for size, most in zip(image.shape, (512, 768), strict=False))
    return np.ascontiguousarray(image[top : top + 512, left : left + 768])


if __name__ == "__main__":
    main()
